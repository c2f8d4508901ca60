"""What `calipers doctor --repair` finds and removes, and what it leaves alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest

from calipers.core import RequestError
from calipers.runs import repair
from calipers.runs.store import Store
from tests.support.stores import make, sql

Run = Callable[..., "CompletedProcess[str]"]


@pytest.fixture
def place(tmp_path: Path) -> Store:
    place = Store(tmp_path / "store")
    place.save(make("whole"))
    place.save(make("damaged"))
    outcomes, vectors = place.folder / "outcomes", place.folder / "vectors"
    (outcomes / "damaged.parquet").write_bytes(b"PAR1")
    (outcomes / "orphan.parquet").write_bytes((outcomes / "whole.parquet").read_bytes())
    (outcomes / ".whole.parquet.999999999-0.part").write_bytes(b"x")
    killed = place.folder / "sweeps" / "results" / ".job.1.part"
    killed.mkdir(parents=True)
    (killed / "run.json").write_text("{}")
    os.utime(killed, (0, 0))
    vectors.mkdir()
    np.save(vectors / "k.npy", np.ones((2, 2), np.float32))  # without a checksum behind it
    columns = "created, task, model_id, dataset, examples, metric, value, facts, cache_key"
    sql(place, f"INSERT INTO runs (run_id, {columns}) SELECT '../../x', {columns} FROM runs WHERE run_id = 'whole'")
    return place


def test_what_no_run_needs_is_removed_and_runs_stay(place: Store, tmp_path: Path) -> None:
    canary = tmp_path / "x.parquet"
    canary.write_text("stays")
    names = [Path(damage.what).name for damage in repair.repair(place)]
    left_behind = [".job.1.part", ".whole.parquet.999999999-0.part"]
    assert sorted(names) == [*left_behind, "a row of the database", "k.npy", "orphan.parquet"]
    (left,) = repair.inspect(place)
    assert left.what == "the run damaged"
    assert left.repair is None
    assert [line.run_id for line in place.list()] == ["damaged", "whole"]
    assert place.load("whole").run_id == "whole"
    assert canary.exists()
    assert not list((place.folder / "vectors").iterdir())


def test_the_doctor_names_what_is_damaged_and_repairs_it(calipers: Run, place: Store) -> None:
    before = calipers("doctor", "--store", str(place.folder))
    assert (before.returncode, "orphan.parquet" in before.stdout) == (0, True)
    assert "calipers doctor --repair" in before.stdout
    after = calipers("doctor", "--store", str(place.folder), "--repair")
    assert "removed" in after.stdout
    assert "orphan.parquet" not in calipers("doctor", "--store", str(place.folder)).stdout


def test_a_database_with_damaged_bytes_is_named(tmp_path: Path) -> None:
    """SQLite repeats the bytes of its schema in a message, which is then no UTF-8."""
    store = Store(tmp_path / "store")
    store.save(make("one"))
    file = store.folder / "calipers.db"
    file.write_bytes(
        file.read_bytes().replace(b"CREATE INDEX", b"CREATE \xd8\xd8DEX").replace(b"CREATE TABLE", b"CR\xdfATE TABLE")
    )
    for use in (store.list, lambda: repair.inspect(store), lambda: repair.repair(store), lambda: store.load("latest")):
        with pytest.raises(RequestError, match=r"calipers\.db cannot be used as a store"):
            use()


def test_a_verdict_does_not_depend_on_a_store_that_can_be_written(
    calipers: Run, tmp_path: Path, vectors: Path, pairs: Path
) -> None:
    store = Store(tmp_path / "store")
    for name in ("one", "two"):
        assert calipers("eval", vectors, "--dataset", pairs, "--name", name).returncode == 0
    (store.folder / ".writing").unlink()
    (store.folder / ".writing").mkdir()  # as in a store that may only be read, for any user
    done = calipers("compare", "one", "two")
    assert (done.returncode, "PASS" in done.stdout) == (0, True), done.stderr
    done = calipers("runs", "tag", "one", "x")
    assert (done.returncode, "cannot be written" in done.stderr) == (2, True), done.stderr
    done = calipers("eval", vectors, "--dataset", pairs, "--name", "three")
    assert (done.returncode, "cannot be written: it is a folder (--no-store" in done.stderr) == (2, True), done.stderr
    with pytest.raises(RequestError, match=r"cannot be written: it is a folder$"):
        store.check_writable()


@pytest.mark.parametrize("kind", ["loop", "nowhere", "pipe", "folder", "zero"])
def test_what_stands_in_the_place_of_outcomes_is_named(calipers: Run, tmp_path: Path, kind: str) -> None:
    store = Store(tmp_path / "store")
    store.save(make("20250101-000000-aaaaaa"))
    file = store.folder / "outcomes" / "20250101-000000-aaaaaa.parquet"
    file.unlink()
    targets = {"loop": str(file), "nowhere": "nowhere", "zero": "/dev/zero"}
    if kind in targets:
        file.symlink_to(targets[kind])
    else:
        os.mkfifo(file) if kind == "pipe" else file.mkdir()
    assert calipers("runs", "list").returncode == 0
    shown = calipers("runs", "show", "latest")
    assert (shown.returncode, len(shown.stderr.splitlines())) == (2, 1)
    assert str(file.name) in shown.stderr
    removed = calipers("runs", "rm", "latest")
    assert removed.returncode == (2 if kind == "folder" else 0), removed.stderr
    assert store.list() == []
