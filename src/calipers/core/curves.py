"""Metrics by the size of the vectors: what `METRIC/SIZE` and `METRIC_delta/SIZE` of a Result say, a row for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calipers.core.outcomes import Outcomes

Interval = tuple[float, float] | None


@dataclass(frozen=True)
class CurveRow:
    """`dimensions` is None for whole vectors; `delta` is the value less that of whole vectors, by a paired interval."""

    dimensions: int | None
    metric: str
    examples: int
    value: float
    interval: Interval
    delta: float | None
    delta_interval: Interval


def curve_rows(
    metrics: Mapping[str, float], intervals: Mapping[str, Interval], sizes: Sequence[int], outcomes: Outcomes
) -> list[CurveRow]:
    """All rows of all metrics, from the smallest size to whole vectors; none where no size was measured."""
    names = [name for name in metrics if any(f"{name}/{size}" in metrics for size in sizes)]
    return [_row(name, size, metrics, intervals, outcomes) for name in names for size in (*sizes, None)]


def _row(name: str, size: int | None, metrics: Any, intervals: Any, outcomes: Outcomes) -> CurveRow:
    if size is None:
        return CurveRow(None, name, _count(outcomes, ""), metrics[name], intervals.get(name), None, None)
    value, delta = f"{name}/{size}", f"{name}_delta/{size}"
    count = _count(outcomes, f"/{size}")
    return CurveRow(size, name, count, metrics[value], intervals.get(value), metrics.get(delta), intervals.get(delta))


def _count(outcomes: Outcomes, suffix: str) -> int:
    """Examples that have a value at a size: those of its fullest column."""
    measured = {name.partition("/")[0] for name in outcomes.columns if "/" in name}
    columns = [outcomes.columns[name + suffix] for name in measured]
    return max((int(np.isfinite(values).sum()) for values in columns), default=len(outcomes))
