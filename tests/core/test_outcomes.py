"""Outcomes as tables."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from calipers.core import Outcomes, RequestError

OUTCOMES = Outcomes(
    ids=("a", "b"),
    columns={"gold": np.array([1, 2]), "cosine": np.array([0.5, np.nan])},
    texts={"text_1": ("one", "two")},
    details={
        "tokens": {"example": np.array([0, 0, 1], np.int32), "token": np.array(["x", "y", "z"])},
        "flags": {"example": np.array([1]), "seen": np.array([True])},
    },
)


def test_examples_as_arrow() -> None:
    table = OUTCOMES.to_arrow()
    assert table.column_names == ["id", "text_1", "gold", "cosine"]
    assert table["text_1"].to_pylist() == ["one", "two"]
    assert table["gold"].to_pylist() == [1, 2]
    np.testing.assert_array_equal(table["cosine"].to_numpy(), OUTCOMES.columns["cosine"])


def test_details_as_arrow() -> None:
    assert OUTCOMES.to_arrow("tokens").to_pydict() == {"example": [0, 0, 1], "token": ["x", "y", "z"]}
    assert OUTCOMES.to_arrow("flags")["seen"].to_pylist() == [True]


def test_examples_and_details_as_pandas() -> None:
    pytest.importorskip("pandas")
    frame = OUTCOMES.to_pandas()
    assert frame.columns.tolist() == ["id", "text_1", "gold", "cosine"]
    assert frame["cosine"].isna().tolist() == [False, True]
    assert OUTCOMES.to_pandas("tokens").groupby("example").size().tolist() == [2, 1]


def test_no_examples_are_an_empty_table() -> None:
    empty = Outcomes((), {"cosine": np.empty(0)})
    assert empty.to_arrow().num_rows == 0
    assert repr(empty) == "Outcomes(0 examples: id, cosine)"


def test_unknown_details_are_refused_by_name() -> None:
    with pytest.raises(RequestError, match="`details` 'words' does not exist: expected one of tokens, flags"):
        OUTCOMES.to_arrow("words")
    with pytest.raises(RequestError, match="these outcomes have none"):
        Outcomes((), {}).to_pandas("words")


def test_without_pandas_the_message_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(RequestError, match="pip install pandas"):
        OUTCOMES.to_pandas()


def test_repr_is_one_short_line() -> None:
    assert repr(OUTCOMES) == "Outcomes(2 examples: id, text_1, gold, cosine; details: tokens, flags)"
