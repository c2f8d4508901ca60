"""Sweeps of vectors in real processes: labels, the store as a queue, failures by class, exit codes, files."""

from __future__ import annotations

import csv
import json
import os
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from xml.etree import ElementTree as xml

import numpy as np
import pytest

from calipers.core import RequestError
from calipers.runs.store import Store
from calipers.sweeps.records import CellResult, worst_exit
from tests.support.sweeps import MODELS, command, finish, run, write_registry


def cells(made: object) -> dict[str, CellResult]:
    return {str(cell.key): cell for cell in made.cells}  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A registry and the store of its first sweep."""
    folder = tmp_path_factory.mktemp("swept")
    registry = write_registry(folder)
    made = run(registry, folder / "store")
    by_cell = cells(made)
    assert by_cell["near/sts/float32"].label == "PASS"
    assert by_cell["bad/sts/float32"].label == "REGRESSION"
    assert by_cell["good/sts/float32"].label is None
    assert (by_cell["bad/sts/float32"].baseline, made.exit_code) == (by_cell["good/sts/float32"].value, 1)
    assert str(made.cells[0].key) == "bad/sts/float32"  # worst first
    return registry, folder / "store"


def test_a_second_sweep_takes_everything_from_the_store(swept: tuple[Path, Path]) -> None:
    registry, store = swept
    runs = len(Store(store).list())
    made = run(registry, store)
    assert all(cell.reused for cell in made.cells)
    assert made.plan["to_measure"] == 0
    assert len(Store(store).list()) == runs


def test_only_keeps_the_baseline_of_what_is_left(swept: tuple[Path, Path]) -> None:
    registry, store = swept
    assert set(cells(run(registry, store, only=("near",)))) == {"near/sts/float32", "good/sts/float32"}
    assert set(cells(run(registry, store, exclude=("bad/*",)))) == {"near/sts/float32", "good/sts/float32"}
    assert set(cells(run(registry, store, only=("fleet",)))) == {"near/sts/float32", "good/sts/float32"}
    with pytest.raises(RequestError, match="matches no cell"):
        run(registry, store, only=("nothing",))


def test_the_command_writes_every_format(swept: tuple[Path, Path], tmp_path: Path) -> None:
    registry, store = swept
    files = {name: tmp_path / f"sweep.{name}" for name in ("html", "markdown", "junit", "csv")}
    words = [word for name, file in files.items() for word in (f"--{name}", str(file))]
    process = command("sweep", str(registry), "--store", str(store), "--no-latency", "--json", *words)
    code, out, err = finish(process)
    assert code == 1, err
    document = json.loads(out)
    expected = {
        *("model", "task", "precision", "metric", "value", "interval", "baseline", "delta", "relative", "label"),
        *("size", "latency", "run", "failure"),
    }
    assert expected <= set(document["cells"][0])
    assert (document["exit"], document["plan"]["cells"]) == (1, 3)
    suite = xml.parse(files["junit"]).getroot()[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "0")
    rows = list(csv.DictReader(files["csv"].read_text().splitlines()))
    assert [row["label"] for row in rows] == ["REGRESSION", "PASS", ""]
    assert "REGRESSION" in files["html"].read_text()
    assert "| `bad` |" in files["markdown"].read_text()


def test_the_classic_columns_are_those_of_the_published_table(swept: tuple[Path, Path]) -> None:
    registry, store = swept
    run(registry, store)  # the last sweep is shown, and another test may have made one of a part
    process = command("sweep", "show", str(registry), "--store", str(store), "--columns", "classic")
    lines = finish(process)[1].splitlines()
    assert lines[0].split() == ["model", "quantised", "baseline", "change", "verdict"]
    assert lines[1].split()[0] == "near"
    assert lines[-1].split()[0] == "bad"  # worst last
    assert lines[-1].split()[-1] == "REGRESSION"


FAILING = """
  - {id: gone, reference: ./gone}
  - {id: dead, reference: dead.npy, baseline: good}
  - {id: static, reference: good.npy, precisions: [w8a8], tasks: [sts]}
"""


def test_failures_are_classed_and_cost_their_cell_only(tmp_path: Path) -> None:
    registry = write_registry(
        tmp_path,
        MODELS.replace("tasks:", FAILING + "tasks:")
        + "  - {id: lost, task: sentence-similarity, dataset: lost.jsonl}\n",
    )  # fmt: skip
    np.save(tmp_path / "dead.npy", np.full_like(np.load(tmp_path / "good.npy"), np.nan))
    (tmp_path / "dead.txt").write_text((tmp_path / "good.txt").read_text())
    made = run(registry, tmp_path / "store", only=("*/sts", "good/lost"))
    by_cell = cells(made)
    failed = {key: cell.failure.kind for key, cell in by_cell.items() if cell.failure}
    assert failed == {
        "gone/sts/float32": "model-load",
        "dead/sts/float32": "inference",
        "good/lost/float32": "data",
        "static/sts/w8a8": "export",
    }
    assert by_cell["dead/sts/float32"].label == "INVALID"
    assert by_cell["near/sts/float32"].label == "PASS"
    assert "lost.jsonl" in by_cell["good/lost/float32"].failure.message
    assert by_cell["static/sts/w8a8"].failure.tail
    assert made.exit_code == 1
    again = run(registry, tmp_path / "store", only=("static",))  # a failure stays until it is retried
    assert cells(again)["static/sts/w8a8"].failure.kind == "export"


CRASH = """
import os, signal, sys
if "calipers.sweeps.worker" in sys.orig_argv and '"near/' in open(sys.orig_argv[-1]).read():
    os.kill(os.getpid(), signal.SIGSEGV)
"""


def test_a_crash_costs_its_cell_only(tmp_path: Path) -> None:
    registry = write_registry(tmp_path)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(CRASH)
    path = os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")])
    words = ("sweep", str(registry), "--store", str(tmp_path / "store"), "--no-latency", "--resamples", "200", "--json")
    code, out, err = finish(command(*words, environment={"PYTHONPATH": path}))
    by_model = {cell["model"]: cell for cell in json.loads(out)["cells"]}
    failure = by_model["near"]["failure"]
    assert (failure["class"], failure["exit_code"]) == ("signal", 4), err
    assert "SIGSEGV" in failure["message"]
    assert (by_model["bad"]["label"], by_model["good"]["failure"], code) == ("REGRESSION", None, 1)
    again = finish(command(*words, "--retry-failed", "signal"))  # without the crash
    assert {cell["model"]: cell["label"] for cell in json.loads(again[1])["cells"]}["near"] == "PASS"


@pytest.mark.parametrize(("limits", "kind"), [({"cell_timeout": 0.05}, "time-out"), ({"memory_limit": 0.01}, "memory")])
def test_a_limit_ends_a_cell_and_retry_runs_it_again(tmp_path: Path, limits: dict[str, float], kind: str) -> None:
    registry = write_registry(tmp_path)
    made = run(registry, tmp_path / "store", only=("good",), **limits)
    assert cells(made)["good/sts/float32"].failure.kind == kind
    assert made.exit_code == 4
    with pytest.raises(RequestError, match="`retry_failed` must be among data, model-load"):
        run(registry, tmp_path / "store", ["slow"], only=("good",))
    other = "data" if kind == "time-out" else "time-out"
    assert cells(run(registry, tmp_path / "store", [other], only=("good",)))["good/sts/float32"].failure
    assert cells(run(registry, tmp_path / "store", [kind], only=("good",)))["good/sts/float32"].value is not None


def test_newly_broken_names_what_the_last_sweep_had(tmp_path: Path) -> None:
    registry = write_registry(tmp_path)
    run(registry, tmp_path / "store", exclude=("bad",))
    np.save(tmp_path / "near.npy", np.load(tmp_path / "bad.npy"))
    made = run(registry, tmp_path / "store", exclude=("bad",))
    assert [str(cell.key) for cell in made.cells if cell.newly_broken] == ["near/sts/float32"]


def test_interrupted_is_130_and_the_same_command_goes_on(tmp_path: Path) -> None:
    registry, store = write_registry(tmp_path), tmp_path / "store"
    words = ("sweep", str(registry), "--store", str(store), "--no-latency", "--jobs", "1", "--resamples", "200")
    process = command(*words)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and not list(store.glob("sweeps/logs/*.log")):
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert finish(process)[0] == 130
    with closing(sqlite3.connect(store / "calipers.db")) as database:
        states = {row[0] for row in database.execute("SELECT state FROM jobs")}
    assert "running" not in states
    assert finish(command(*words))[0] == 1


def test_exit_codes_are_ordered() -> None:
    assert [worst_exit(codes) for codes in ([0, 5], [5, 2], [2, 3], [3, 4], [4, 1])] == [5, 2, 3, 4, 1]
