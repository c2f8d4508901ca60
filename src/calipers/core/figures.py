"""Figures of a diagnosis: a number with how sure it is, which way is good, and what it means; and what it points at.

They travel as two tables among the details of Outcomes, `figures` and `named`, so that the store keeps them and a
report can be made from a stored run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calipers.core.outcomes import Columns, Outcomes
from calipers.core.results import Metric, Statistic, Thresholds
from calipers.core.rounding import digits_apart


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
    signed: bool = False  # a difference, shown with its sign


@dataclass(frozen=True)
class FigureKind:
    """What a figure is before it is measured: its name, its direction, where it warns and what a warning says.

    >>> kind = FigureKind("duplicates", "share of copies", "The share of copies.", None, "document", above=0.05,
    ...                   advice="copies crowd the results", digits=2)
    >>> kind.figure(0.25, 8).warning
    'duplicates is 0.25, above 0.05: copies crowd the results'
    """

    name: str
    about: str  # short, for lists of metrics
    meaning: str  # one sentence
    higher_is_better: bool | None
    unit: str = ""
    above: float | None = None  # it warns above this value, or below that one
    below: float | None = None
    advice: str = ""  # the second half of the warning
    level: str | None = None  # where it warns, in words, if that is neither `above` nor `below`
    digits: int = 3
    share: bool = False  # between 0 and 1: an interval must not leave this range
    signed: bool = False
    thresholds: Thresholds = Metric.thresholds

    def figure(
        self,
        value: float | None,
        count: int,
        *,
        unit: str | None = None,
        interval: tuple[float, float] | None = None,
        standard_error: float | None = None,
        exact: bool = True,
        reason: str | None = None,
        warns: bool = True,
        warning: str | None = None,
    ) -> Figure:
        """The figure of this kind with a value. A value past `above` or `below` warns unless `warns` is False;
        `warning` is a sentence to use instead. Where the level depends on the data: `replace(kind, above=…)`."""
        if interval and self.share:
            interval = max(0.0, interval[0]), min(1.0, interval[1])
        error = None if standard_error is None else _finite(standard_error)
        warning = warning or (self.warning(value) if warns and value is not None else None)
        about = self.name, value, count, unit or self.unit, self.higher_is_better, self.meaning
        return Figure(*about, interval, error, self.level_text, warning, exact, reason, self.digits, self.signed)

    def unknown(self, reason: str, *, unit: str | None = None) -> Figure:
        """The figure of this kind without a value, and why there is none."""
        return replace(self.figure(None, 0, unit=unit, reason=reason), digits=Figure.digits)

    @property
    def level_text(self) -> str | None:
        limits = (("above", self.above), ("below", self.below))
        return self.level or next((f"{side} {limit:.3g}" for side, limit in limits if limit is not None), None)

    def warning(self, value: float) -> str | None:
        """The warning for this value, None where it is within the level."""
        if (self.above is None or value <= self.above) and (self.below is None or value >= self.below):
            return None
        limits = [limit for limit in (self.above, self.below) if limit is not None]
        return f"{self.name} is {value:.{digits_apart(value, limits, self.digits)}f}, {self.level_text}: {self.advice}"

    def metric(self, statistic: Callable[[Columns], Statistic]) -> Metric:
        """The metric that compares two models by the outcome column of the figure's name. A figure without a good
        direction is minor: neither way is a regression."""
        better, minor = bool(self.higher_is_better), self.higher_is_better is None
        return Metric(self.name, self.about, statistic, better, self.thresholds, self.digits, (self.name,), minor=minor)


@dataclass(frozen=True)
class Named:
    """An example that a figure points at: a hub, a copy, a term."""

    figure: str
    id: str
    text: str
    value: float
    note: str


_TEXTS = ("name", "unit", "meaning", "level", "warning", "reason")
_NUMBERS = ("value", "standard_error", "low", "high", "higher_is_better")
_TYPES = {
    **dict.fromkeys(_NUMBERS, np.float64),
    **dict.fromkeys(("count", "digits"), np.int64),
    **dict.fromkeys(("exact", "signed"), np.bool_),
}


def figure_tables(figures: Sequence[Figure], named: Sequence[Named]) -> dict[str, Columns]:
    """The two tables, one row each; None is NaN among numbers and "" among texts."""
    rows = [{**vars(f), "low": f.interval and f.interval[0], "high": f.interval and f.interval[1]} for f in figures]
    return {
        "figures": _table(rows, _TEXTS, _TYPES),
        "named": _table([vars(n) for n in named], ("figure", "id", "text", "note"), {"value": np.float64}),
    }


def _table(rows: Sequence[Mapping[str, Any]], texts: Sequence[str], numbers: Mapping[str, type]) -> Columns:
    # No object array: pyarrow takes an empty one for a column of nulls.
    return {key: np.array([row[key] or "" for row in rows], np.str_) for key in texts} | {
        key: np.array([np.nan if row[key] is None else row[key] for row in rows], kind) for key, kind in numbers.items()
    }


def read_figures(outcomes: Outcomes) -> tuple[Figure, ...]:
    """The figures of a layer's outcomes, none for those of a task."""
    return tuple(_figure(row) for row in _rows(outcomes.details.get("figures", {})))


def read_named(outcomes: Outcomes) -> tuple[Named, ...]:
    return tuple(Named(**row) for row in _rows(outcomes.details.get("named", {})))


def _figure(row: dict[str, Any]) -> Figure:
    values = row | {key: row[key] or None for key in ("level", "warning", "reason")}
    values |= {key: _finite(row[key]) for key in _NUMBERS}
    low, high, better = (values.pop(key) for key in ("low", "high", "higher_is_better"))
    return Figure(
        **values,
        interval=None if low is None or high is None else (low, high),
        higher_is_better=None if better is None else bool(better),
    )


def _finite(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None


def _rows(table: Columns) -> list[dict[str, Any]]:
    columns = {key: values.tolist() for key, values in table.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
