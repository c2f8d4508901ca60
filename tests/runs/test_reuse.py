"""Runs under keys in the store: found by them, through migrations and through a killed process."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from calipers.runs import migrations
from calipers.runs.store import Store
from tests.support.samples import PAIRS, write_jsonl
from tests.support.stores import make, same, sql


@pytest.fixture
def place(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_a_run_is_found_by_its_key_and_by_no_other(place: Store) -> None:
    assert place.find("k") is None
    assert not place.folder.exists()
    place.save(make("a"), "k")
    place.save(make("b"))
    found = place.find("k")
    assert found is not None
    assert same(found, make("a"))
    assert place.find("other") is None
    assert place.find("") is None


def test_the_newest_readable_run_answers(place: Store) -> None:
    for day in (1, 2, 3):
        place.save(make(f"run-{day}", f"2025-01-0{day}T00:00:00.000+00:00"), "k")
    assert getattr(place.find("k"), "run_id", None) == "run-3"
    (place.folder / "outcomes" / "run-3.parquet").unlink()
    assert getattr(place.find("k"), "run_id", None) == "run-2"
    place.remove("run-2")
    place.remove("run-1")
    assert place.find("k") is None


def old_store(place: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store as the first version left it, with one run written by the statement of then."""
    place.save(make("a"))
    (facts,) = sql(place, "SELECT facts FROM runs")
    (place.folder / "calipers.db").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "MIGRATIONS", migrations.MIGRATIONS[:1])
        place.check_writable()
    old = json.loads(facts)
    del old["outcome_notes"]
    values = ("a", old["created"], old["task"], "odd", "pairs.csv", 6, "cosine_spearman", 0.5, json.dumps(old))
    with closing(sqlite3.connect(place.folder / "calipers.db")) as database, database:
        database.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)


def test_a_store_of_the_first_version_is_brought_up_and_keeps_its_runs(
    place: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_store(place, monkeypatch)
    assert sql(place, "PRAGMA user_version") == (1,)
    assert place.find("k") is None
    assert sql(place, "PRAGMA user_version") == (len(migrations.MIGRATIONS),)
    assert same(place.load("a"), make("a"))
    place.save(make("b"), "k")
    assert getattr(place.find("k"), "run_id", None) == "b"
    assert [line.run_id for line in place.list()] == ["b", "a"]
    plan = sql(place, "EXPLAIN QUERY PLAN SELECT run_id FROM runs WHERE cache_key = 'k'")
    assert "runs_by_cache_key" in plan[-1]


# --- must-show 5: a process killed between two evaluations ---------------------------------------------------------

COMPARER = """
import os, signal, sys
from pathlib import Path
from calipers import models
from calipers.runs import api
from calipers.core import Silent
from calipers.runs.store import Store

class Dying(Silent):
    '''Says which models are asked, and dies by SIGKILL at the wanted moment of the second evaluation.'''
    def start(self, label, total):
        os.write(1, f"{label}\\n".encode())
        if sys.argv[4] == label and self.second:
            os.kill(os.getpid(), signal.SIGKILL)

place, progress = Path(sys.argv[3]), Dying()
for side in sys.argv[1:3]:
    progress.second = side == sys.argv[2]
    api.evaluate(side, dataset=str(place / "pairs.jsonl"), resamples=50, progress=progress, reuse=True,
                 store=Store(place / "store"))
    os.write(1, b"done\\n")
"""


def compare(first: Path, second: Path, place: Path, *, dies: str = "never") -> tuple[int, list[str]]:
    """Exit code, and what was said of models, in a process of its own."""
    command = [sys.executable, "-c", COMPARER, str(first), str(second), str(place), dies]
    found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env={**os.environ})
    return found.returncode, found.stdout.splitlines()


@pytest.fixture
def sides(vectors: Path, tmp_path: Path) -> tuple[Path, Path]:
    import numpy as np

    other = tmp_path / "other.npy"
    np.save(other, np.load(vectors) + np.float32(0.25))
    other.with_suffix(".txt").write_bytes(vectors.with_suffix(".txt").read_bytes())
    write_jsonl(tmp_path / "pairs.jsonl", PAIRS)
    return vectors, other


def test_a_process_killed_between_two_evaluations_loses_neither_the_store_nor_the_finished_half(
    sides: tuple[Path, Path], tmp_path: Path, place: Store
) -> None:
    code, said = compare(*sides, tmp_path, dies="Loading the model")
    assert (code, said) == (-signal.SIGKILL, ["Loading the model", "done", "Loading the model"])
    assert sql(place, "PRAGMA integrity_check") == ("ok",)
    (first,) = place.list()
    assert len(place.load(first.run_id).outcomes) == len(PAIRS)
    code, said = compare(*sides, tmp_path)
    assert code == 0
    assert said == [f"Reusing the stored run {first.run_id}", "done", "Loading the model", "done"]
    code, said = compare(*sides, tmp_path)
    assert [line.split(" run ")[0] for line in said] == ["Reusing the stored", "done"] * 2
    assert len(place.list()) == 2
