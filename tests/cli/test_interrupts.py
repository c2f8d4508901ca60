"""Ctrl-C: exit code 130, one line, and nothing half-written; and kills: what was stored stays. In real processes."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from onnx import TensorProto

from tests.support.kills import POINTS, STEPS
from tests.support.samples import write_jsonl
from tests.support.sweeps import command, finish, write_registry
from tests.support.tiny_graphs import tiny

Lines = Callable[[str, Path], list[str]]


@pytest.fixture
def lines(tmp_path: Path, tiny_bert: Path, few_texts: Path) -> Lines:
    """The words of a command that writes below a folder."""
    registry = write_registry(tmp_path)
    vectors, pairs = f"vectors:{tmp_path / 'good.npy'}", str(tmp_path / "pairs.jsonl")
    texts = (tmp_path / "good.txt").read_text(encoding="utf-8").splitlines()[:40]
    beir = tmp_path / "beir"
    (beir / "qrels").mkdir(parents=True)
    for name in ("corpus", "queries"):
        write_jsonl(beir / f"{name}.jsonl", [{"_id": f"{i}", "text": text} for i, text in enumerate(texts)])
    (beir / "qrels" / "test.tsv").write_text(
        "query-id\tcorpus-id\tscore\n" + "".join(f"{i}\t{i}\t1\n" for i in range(40))
    )

    def words(name: str, folder: Path) -> list[str]:
        store, out = ["--store", str(folder / "store")], str(folder / "out")
        return {
            "eval": ["eval", vectors, "--dataset", pairs, *store, "-o", f"{out}.json"],
            "compare": ["compare", vectors, vectors, "--dataset", pairs, *store, "--junit", f"{out}.xml"],
            "diagnose": ["diagnose", vectors, "--dataset", str(beir), *store, "--html", f"{out}.html"],
            "sweep": ["sweep", str(registry), "--no-latency", "--resamples", "200", *store, "--html", f"{out}.html"],
            "build": ["build", str(tmp_path / "graph" / "m.onnx"), "--precision", "int8-dynamic", "-o", out],
            "export": ["build", str(tiny_bert), "--precision", "w8a8", "--calibration", str(few_texts), "-o", out],
        }[name]

    tiny(tmp_path / "graph", tiny_bert, inputs=dict.fromkeys(("input_ids", "attention_mask"), TensorProto.INT64))
    return words


def check(folder: Path, code: int, err: str) -> None:
    """What holds after an interrupt at any moment."""
    assert (code, err.split("\n")[-2]) == (130, "calipers: interrupted")
    assert "Traceback" not in err
    assert [path for path in folder.rglob("*") if path.name.endswith(".part")] == []
    assert not (folder / "out").exists() or (folder / "out" / "manifest.json").exists()
    if (folder / "store" / "calipers.db").exists():
        with closing(sqlite3.connect(folder / "store" / "calipers.db")) as database:
            assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def stop(words: list[str], folder: Path, point: str, how: str) -> tuple[int, str] | None:
    """Exit code and standard error of a command that gets a signal while a file is written, flushed or renamed, or the
    store changed; None where it has fewer of these steps."""
    path = os.pathsep.join(filter(None, [str(POINTS), os.environ.get("PYTHONPATH", "")]))
    settings = {"PYTHONPATH": path, "KILL_AT": f"driver:{point}", "KILL_SIGNAL": how, "KILL_LOG": os.devnull}
    folder.mkdir(exist_ok=True)
    code, _, err = finish(command(*words, environment={**settings, "KILL_ONCE": str(folder / "once")}), 120)
    if (folder / "once").exists():
        return code, err
    assert code in (0, 1, 5)
    return None


def interrupt(words: list[str], folder: Path, point: str) -> None:
    """Ctrl-C at this step. The same command then goes through; a report that was whole before stays, and is in its
    way without --force."""
    if stopped := stop(words, folder, point, "SIGINT"):
        check(folder, *stopped)
        for report in folder.glob("out.*"):
            assert report.stat().st_size > 0
            report.unlink()
        code, _, err = finish(command(*words), 120)
        assert code in (0, 1, 5), err


@pytest.mark.parametrize(
    ("name", "point"),
    [
        ("eval", "before:rename:1"),
        ("eval", "after:commit:2"),
        ("diagnose", "after:write:1"),
        ("build", "after:rename:1"),
    ],
)
def test_ctrl_c_at_a_write_leaves_nothing_half_written(lines: Lines, tmp_path: Path, name: str, point: str) -> None:
    interrupt(lines(name, tmp_path / "place"), tmp_path / "place", point)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["eval", "compare", "diagnose", "sweep", "build", "export"])
@pytest.mark.parametrize("point", [f"{side}:{step}:{n}" for side, step in STEPS for n in (1, 2, 3)])
def test_ctrl_c_at_every_write_leaves_nothing_half_written(lines: Lines, tmp_path: Path, name: str, point: str) -> None:
    interrupt(lines(name, tmp_path / "place"), tmp_path / "place", point)


@pytest.mark.parametrize("seconds", [0.05, 0.3, 1.0])
def test_ctrl_c_while_modules_are_imported_shows_no_traceback(lines: Lines, tmp_path: Path, seconds: float) -> None:
    (tmp_path / "place").mkdir()
    process = command(*lines("eval", tmp_path / "place"), start_new_session=True)
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    code, _, err = finish(process)
    starting = code == 1 and err.endswith("KeyboardInterrupt\n") and "/calipers/" not in err  # in `site` or `runpy`
    if code == -signal.SIGINT:  # the interpreter itself was still starting
        assert "/calipers/" not in err
    elif not starting:
        assert code == 0 or (code, err.split("\n")[-2]) == (130, "calipers: interrupted")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["eval", "compare", "diagnose"])
@pytest.mark.parametrize("point", [f"{side}:{step}:{n}" for side, step in STEPS for n in (1, 2, 3)])
def test_a_kill_at_every_write_costs_no_stored_run(lines: Lines, tmp_path: Path, name: str, point: str) -> None:
    folder = tmp_path / "place"
    folder.mkdir()
    store = ["--store", str(folder / "store")]
    assert finish(command(*lines("eval", folder)), 120)[0] == 0
    earlier = json.loads(finish(command("runs", "list", "--json", *store))[1])
    (folder / "out.json").unlink()
    if stopped := stop(lines(name, folder), folder, point, "SIGKILL"):
        assert stopped[0] == -signal.SIGKILL
    with closing(sqlite3.connect(folder / "store" / "calipers.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    runs = [str(run["run_id"]) for run in json.loads(finish(command("runs", "list", "--json", *store))[1])]
    assert {str(run["run_id"]) for run in earlier} <= set(runs)
    for run in runs:  # each is whole
        assert finish(command("runs", "show", run, "--examples", "1", *store))[0] == 0
    again = ["--force"] if any(folder.glob("out.*")) else []  # a report that was whole before the kill
    code, _, err = finish(command(*lines(name, folder), *again), 120)
    assert code in (0, 1, 5), err
