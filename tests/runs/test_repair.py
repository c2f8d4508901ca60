"""What `calipers doctor --repair` finds and removes, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest

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
    vectors.mkdir()
    np.save(vectors / "k.npy", np.ones((2, 2), np.float32))  # without a checksum behind it
    columns = "created, task, model_id, dataset, examples, metric, value, facts, cache_key"
    sql(place, f"INSERT INTO runs (run_id, {columns}) SELECT '../../x', {columns} FROM runs WHERE run_id = 'whole'")
    return place


def test_what_no_run_needs_is_removed_and_runs_stay(place: Store, tmp_path: Path) -> None:
    canary = tmp_path / "x.parquet"
    canary.write_text("stays")
    names = [Path(damage.what).name for damage in repair.repair(place)]
    assert sorted(names) == [".whole.parquet.999999999-0.part", "a row of the database", "k.npy", "orphan.parquet"]
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
