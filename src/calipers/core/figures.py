"""Figures of a diagnosis: a number with how sure it is, which way is good, and what it means; and what it points at.

They travel as two tables among the details of Outcomes, `figures` and `named`, so that the store keeps them and a
report can be made from a stored run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.core.results import Columns, Outcomes


@dataclass(frozen=True)
class Figure:
    """A number about a model on a corpus. `value` is None where it is unknown, and `reason` says why."""

    name: str
    value: float | None
    count: int  # how many of `unit` it is about
    unit: str
    higher_is_better: bool | None  # None: neither way is good in itself
    meaning: str  # one sentence
    interval: tuple[float, float] | None = None
    standard_error: float | None = None
    level: str | None = None  # where it warns, in words: "above 10"; None: it never does
    warning: str | None = None  # one sentence, where the value is past the level
    exact: bool = True  # False: worked out on a sample; the standard error covers that
    reason: str | None = None
    digits: int = 3


@dataclass(frozen=True)
class Named:
    """An example that a figure points at: a hub, a copy, a term."""

    figure: str
    id: str
    text: str
    value: float
    note: str


_TEXTS = ("name", "unit", "meaning", "level", "warning", "reason")
_OPTIONAL_TEXTS = ("level", "warning", "reason")
_NUMBERS = ("value", "standard_error")


def figure_tables(figures: Sequence[Figure], named: Sequence[Named]) -> dict[str, Columns]:
    """The two tables, one row each; None is NaN among numbers and "" among texts."""
    table: dict[str, NDArray[Any]] = {key: _texts([getattr(f, key) for f in figures]) for key in _TEXTS}
    table |= {key: _floats([getattr(f, key) for f in figures]) for key in _NUMBERS}
    table["low"] = _floats([f.interval and f.interval[0] for f in figures])
    table["high"] = _floats([f.interval and f.interval[1] for f in figures])
    table["higher_is_better"] = _floats([f.higher_is_better for f in figures])
    table["count"] = np.array([f.count for f in figures], np.int64)
    table["digits"] = np.array([f.digits for f in figures], np.int64)
    table["exact"] = np.array([f.exact for f in figures], np.bool_)
    texts = {key: _texts([getattr(n, key) for n in named]) for key in ("figure", "id", "text", "note")}
    return {"figures": table, "named": {**texts, "value": _floats([n.value for n in named])}}


def read_figures(outcomes: Outcomes) -> tuple[Figure, ...]:
    """The figures of a layer's outcomes, none for those of a task."""
    return tuple(_figure(row) for row in _rows(outcomes.details.get("figures", {})))


def read_named(outcomes: Outcomes) -> tuple[Named, ...]:
    rows = _rows(outcomes.details.get("named", {}))
    return tuple(Named(**{f.name: row[f.name] for f in fields(Named)}) for row in rows)


def _figure(row: Mapping[str, Any]) -> Figure:
    known = {key: row[key] for key in ("name", "unit", "meaning", "count", "digits", "exact")}
    known |= {key: row[key] or None for key in _OPTIONAL_TEXTS}
    known |= {key: _known(row[key]) for key in _NUMBERS}
    low, high = _known(row["low"]), _known(row["high"])
    better = _known(row["higher_is_better"])
    return Figure(
        **known,
        interval=None if low is None or high is None else (low, high),
        higher_is_better=None if better is None else bool(better),
    )


def _known(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None


def _rows(table: Columns) -> list[dict[str, Any]]:
    columns = {key: values.tolist() for key, values in table.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _texts(values: Sequence[str | None]) -> NDArray[Any]:
    # No object array: pyarrow takes an empty one for a column of nulls.
    return np.array([value or "" for value in values], dtype=np.str_) if values else np.empty(0, np.str_)


def _floats(values: Sequence[float | None]) -> NDArray[np.float64]:
    return np.array([np.nan if value is None else value for value in values], np.float64)
