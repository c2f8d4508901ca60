"""Outcomes of many examples are read a column at a time, and are the same as those of few."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from calipers.core import Outcomes, RequestError, packed
from calipers.core.packed import PackedTexts
from calipers.runs import stored_tables
from calipers.runs.store import Store
from tests.support.stores import make

IDS = tuple(f"row {i} größer" for i in range(70))
NUMBERS = {"gold": np.linspace(0.0, 1.0, 70), "tokens": np.arange(70), "read": np.arange(70) % 2 == 0}
DETAILS = {"results": {"example": np.arange(70, dtype=np.int32), "document": np.array(IDS, dtype=object)}}


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Outcomes], Outcomes]:
    """What is read again, as if seventy rows were millions."""
    monkeypatch.setattr(stored_tables, "_MANY", 10)
    monkeypatch.setattr(stored_tables, "_ROWS", 16)
    monkeypatch.setattr(packed, "_FEW", 10)
    store = Store(tmp_path / "store")

    def read_again(outcomes: Outcomes) -> Outcomes:
        store.save(make("a", outcomes=outcomes))
        return store.load("a").outcomes

    return read_again


def test_many_rows_are_what_was_stored(stored: Callable[[Outcomes], Outcomes]) -> None:
    outcomes = stored(Outcomes(IDS, NUMBERS, {"text": IDS[::-1]}, DETAILS))
    assert isinstance(outcomes.ids, PackedTexts)
    assert list(outcomes.ids) == list(IDS)
    assert list(outcomes.texts["text"]) == list(IDS[::-1])
    assert list(outcomes.columns) == list(NUMBERS)
    for name, values in NUMBERS.items():
        assert outcomes.columns[name].dtype == values.dtype
        assert outcomes.columns[name].tolist() == values.tolist()
    assert outcomes.details["results"]["document"].tolist() == list(IDS)
    assert outcomes.to_arrow().column_names == ["id", "text", *NUMBERS]


def test_a_column_is_kept_only_while_somebody_uses_it(stored: Callable[[Outcomes], Outcomes]) -> None:
    columns = stored(Outcomes(IDS, NUMBERS)).columns
    gold = columns["gold"]
    assert columns["gold"] is gold
    kept = weakref.ref(gold)
    del gold
    gc.collect()
    assert kept() is None
    assert columns["gold"].tolist() == NUMBERS["gold"].tolist()


def test_a_column_that_is_not_there_is_named(stored: Callable[[Outcomes], Outcomes]) -> None:
    columns = stored(Outcomes(IDS, NUMBERS)).columns
    with pytest.raises(RequestError, match=r"a\.parquet have no column 'other'"):
        columns["other"]
    assert columns.get("other") is None
    assert "other" not in columns


def test_a_missing_value_of_many_is_nan(stored: Callable[[Outcomes], Outcomes]) -> None:
    import pyarrow

    holes = pyarrow.array([1, None] * 35)
    values = stored(Outcomes(IDS, {"gold": holes})).columns["gold"]
    assert np.isnan(values[1::2].astype(np.float64)).all()
    assert values[::2].tolist() == [1.0] * 35


@pytest.mark.skipif("sys.platform == 'win32'", reason="a file that is open cannot be removed")
def test_a_run_that_is_removed_after_it_was_loaded_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_tables, "_MANY", 10)
    store = Store(tmp_path / "store")
    store.save(make("a", outcomes=Outcomes(IDS, NUMBERS)))
    outcomes = store.load("a").outcomes
    store.remove("a")
    assert list(outcomes.ids) == list(IDS)
    assert outcomes.columns["gold"].tolist() == NUMBERS["gold"].tolist()
