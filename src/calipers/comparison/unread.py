"""Examples with a text that a model has no vector for: both models are judged on the same examples.

What neither can read is left out of both. What one of them alone cannot read counts against it: a query finds nothing,
and where the outcome would be unknown it is the worst there is (`Metric.fail`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from calipers.comparison.records import Unread
from calipers.core import WITHOUT_VECTOR, Metric, Outcomes
from calipers.metrics.arrays import Bools


def settle(metrics: Sequence[Metric], a: Outcomes, b: Outcomes) -> tuple[Outcomes, Outcomes, Unread]:
    """The outcomes of both models on the same examples, and which these metrics could not read."""
    first, second = _mark(a), _mark(b)
    sides = _fail(metrics, a, first & ~second), _fail(metrics, b, second & ~first)
    return *sides, Unread(*(_name(a, rows) for rows in (first & ~second, second & ~first, first & second)))


def _mark(outcomes: Outcomes) -> Bools:
    marked = outcomes.columns.get(WITHOUT_VECTOR)
    return np.zeros(len(outcomes), np.bool_) if marked is None else np.asarray(marked, np.bool_)


def _fail(metrics: Sequence[Metric], outcomes: Outcomes, rows: Bools) -> Outcomes:
    for fail in dict.fromkeys(metric.fail for metric in metrics if metric.fail):
        outcomes = replace(outcomes, columns=fail(outcomes.columns, rows))
    return outcomes


def _name(outcomes: Outcomes, rows: Bools) -> tuple[str, ...]:
    return tuple(outcomes.ids[i] for i in np.flatnonzero(rows).tolist())
