"""The command around a sweep: `--init`, `--dry-run`, the live table, `--fail-fast`, `status`, a missing model."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from calipers.runs.store import Store
from calipers.sweeps.api import look_ahead
from calipers.sweeps.init import make_registry
from calipers.sweeps.live import live_table
from calipers.sweeps.records import SweepOptions, SweepStatus
from calipers.sweeps.registry import check_registry
from tests.support.masked_models import make_model
from tests.support.samples import Run
from tests.support.sweeps import MODELS, command, finish, run, write_registry


@pytest.fixture
def folder(tmp_path: Path, minilm: Path) -> Path:
    """Two real models, one deeper than the other and one with a name that YAML would read otherwise; and no models."""
    shutil.copytree(minilm, tmp_path / "models" / "yes: #1")
    make_model("bert", tmp_path / "models" / "deep" / "er" / "mlm")
    (tmp_path / "models" / "notes").mkdir()
    (tmp_path / "models" / "notes" / "read.me").write_text("no model")
    (tmp_path / "models" / ".hidden").mkdir()
    return tmp_path / "models"


def test_init_writes_a_registry_of_the_models_in_a_folder(folder: Path, tmp_path: Path, calipers: Run) -> None:
    registry = tmp_path / "registry.yaml"
    made = calipers("sweep", "--init", str(folder), str(registry))
    assert (made.returncode, "--dry-run" in made.stdout) == (0, True)
    entries, problems = check_registry(registry)
    assert problems == []
    assert [(m.id, m.reference, m.precisions) for m in entries.models] == [
        ("mlm", str(folder / "deep" / "er" / "mlm"), ("int8-dynamic",)),
        ("yes: #1", str(folder / "yes: #1"), ("int8-dynamic",)),
    ]
    assert {task.task for task in entries.tasks} == {"fill-mask", "sentence-similarity", "retrieval"}
    assert entries.tasks[0].data_options.samples == 200
    assert "# torch, fill-mask" in registry.read_text()
    again = calipers("sweep", "--init", str(folder), str(registry))
    assert (again.returncode, "--force" in again.stderr) == (2, True)


def test_init_of_a_folder_without_models_is_a_sentence(tmp_path: Path, calipers: Run) -> None:
    for place, words in ((tmp_path, "there is no model in"), (tmp_path / "none", "is no folder")):
        made = calipers("sweep", "--init", str(place), str(tmp_path / "registry.yaml"))
        assert (made.returncode, words in made.stderr, made.stderr.count("\n")) == (2, True, 1)
    assert not (tmp_path / "registry.yaml").exists()


def test_the_tasks_of_init_need_only_a_dataset(folder: Path) -> None:
    text = make_registry(folder)
    assert re.findall(r"(?m)^    # dataset: FILE    # default: \S+$", text)


def test_a_plan_says_once_why_cells_are_unavailable(tmp_path: Path, calipers: Run) -> None:
    more = "".join(f"  - {{id: m{i}, reference: ./gone{i}}}\n" for i in range(2))
    registry = write_registry(tmp_path, MODELS.replace("tasks:", f"{more}tasks:"))
    printed = calipers("sweep", str(registry), "--store", str(tmp_path / "store"), "--dry-run").stdout
    assert len(re.findall(r"(?m)^m\d +sts +float32 +unavailable \(model-load\)", printed)) == 2
    assert len(re.findall(r"(?m)^1 unavailable: .*gone\d", printed)) == 2
    assert "5, 0 of them in the store, 2 unavailable" in printed
    assert not (tmp_path / "store").exists()  # a plan writes nothing
    states = {
        cell["model"]: cell["state"] for cell in look_ahead(registry, SweepOptions(), Store(tmp_path / "s")).cells
    }
    assert states == {"good": "to measure", "near": "to measure", "bad": "to measure"} | dict.fromkeys(
        ("m0", "m1"), "unavailable (model-load)"
    )


def test_a_missing_model_among_twenty_fails_its_cells_only(tmp_path: Path) -> None:
    more = "".join(f"  - {{id: m{i}, reference: good.npy}}\n" for i in range(16))
    registry = write_registry(tmp_path, MODELS.replace("tasks:", f"{more}  - {{id: gone, reference: ./gone}}\ntasks:"))
    made = run(registry, tmp_path / "store", exclude=("bad",))
    failed = [cell for cell in made.cells if cell.failure]
    assert [(str(cell.key), cell.failure.kind, cell.exit_code) for cell in failed if cell.failure] == [
        ("gone/sts/float32", "model-load", 3)
    ]
    assert len([cell for cell in made.cells if cell.value is not None]) == 18
    assert made.plan["shared"]["repeated_cells"] == 16  # identical work is done once
    assert made.exit_code == 3


def test_fail_fast_stops_at_the_first_failure_and_the_same_command_goes_on(tmp_path: Path) -> None:
    text = MODELS.replace("models:", "models:\n  - {id: early, reference: dead.npy, priority: 0}")
    registry, store = write_registry(tmp_path, text), tmp_path / "store"
    (tmp_path / "dead.npy").write_bytes(b"no vectors")
    (tmp_path / "dead.txt").write_text("x\n")
    made = run(registry, store, fail_fast=True, jobs=1)
    assert {str(cell.key): cell.outcome for cell in made.cells} == {
        "early/sts/float32": "failed",
        **dict.fromkeys(("good/sts/float32", "near/sts/float32", "bad/sts/float32"), "not run"),
    }
    assert made.exit_code == 3
    rest = run(registry, store)
    assert {cell.outcome for cell in rest.cells} == {"failed", "without a label", "PASS", "REGRESSION"}
    assert not any(cell.newly_broken for cell in rest.cells)  # what was not run was not whole
    (tmp_path / "dead.npy").unlink()
    assert {cell.outcome for cell in run(registry, tmp_path / "other", fail_fast=True).cells} == {"failed", "not run"}


def test_the_live_table_names_what_runs_the_counts_the_rate_and_the_time_to_go() -> None:
    console = Console(width=100, file=io.StringIO())
    console.print(live_table(SweepStatus(10, ("minilm/sts/w8a8", "evil\x1b[2J"), 4, 1, 60.0, 75.0)))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    for words in ("4 of 10 done, 1 failed", "4.0 jobs a minute", "75 s to go", "minilm/sts/w8a8", "60 s"):
        assert words in shown
    assert "\x1b[2J" not in shown


def test_a_terminal_shows_the_live_table_and_a_log_gets_lines(tmp_path: Path) -> None:
    registry = write_registry(tmp_path)
    leader, follower = pty.openpty()
    words = ("sweep", str(registry), "--store", str(tmp_path / "store"), "--no-latency", "--resamples", "200", "--json")
    process = command(*words, environment={"TERM": "xterm", "COLUMNS": "100"}, stderr=follower)
    os.close(follower)
    seen = b""
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:  # the terminal is closed
            break
        if not piece:
            break
        seen += piece
    os.close(leader)
    code, out, _ = finish(process)
    assert (code, json.loads(out)["exit"]) == (1, 1)
    assert re.search(rb"\d of 3 done, 0 failed", seen)
    assert re.search(rb"(good|near|bad)/sts/float32", seen)
    quiet = finish(command(*words, "--retry-failed"))
    assert quiet[0] == 1
    assert b"\x1b" not in quiet[2].encode()


def test_the_state_is_seen_from_another_terminal(tmp_path: Path, calipers: Run) -> None:
    registry, store = write_registry(tmp_path), tmp_path / "store"
    before = calipers("sweep", "status", str(registry), "--store", str(store))
    assert (before.returncode, before.stderr.count("\n")) == (2, 1)
    run(registry, store)
    table = calipers("sweep", "status", str(registry), "--store", str(store))
    assert re.findall(r"(?m)^(\w+)/sts/float32 +measure +done +1 ", table.stdout) == ["bad", "good", "near"]
    assert "3 jobs: 3 done" in table.stdout
    rows = json.loads(calipers("sweep", "status", str(registry), "--store", str(store), "--json").stdout)
    assert {row["state"] for row in rows} == {"done"}
    assert {"owner", "lease", "attempts", "exit_code"} <= set(rows[0])
    logs = [Path(row["log"]) for row in rows]
    assert all("done" in log.read_text() for log in logs)
