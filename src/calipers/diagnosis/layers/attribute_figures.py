"""The figures of the attributes layer: three rates for each part and for all together, with level and meaning.

All together never warns: it is past a level where a part is, and the part says which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calipers.core import Columns, Figure, Metric, Statistic, Thresholds
from calipers.diagnosis.layer import RESAMPLES
from calipers.metrics import bootstrap
from calipers.metrics.means import ratio_statistic
from calipers.shop.agree import PARTS

_LEAST = 5  # queries that state a part: a rate of fewer is no ground for a warning
_SHARE = Thresholds(0.02, 0.05, relative=False)  # in points, as the shares of the retrieval layer

# What a part is called in a sentence; "" is all of them together.
WHAT: Mapping[str, str] = {
    "": "a colour, a brand or a size",
    "colour": "a colour",
    "brand": "a brand",
    "dimension": "a size",
}
assert {*WHAT} == {"", *PARTS}


@dataclass(frozen=True)
class Rate:
    """Of `column` over the results: of the queries that state the part, or of all of them."""

    name: str
    column: str
    explicit: bool
    about: str
    meaning: str
    above: float
    advice: str


_RATES = (
    Rate(
        "explicit_failure_rate",
        "failures",
        True,
        "share of results that contradict {what} of their query, among those of queries that state one",
        "Of the results of queries that state {what}, the share that contradicts it.",
        0.5,
        "most results of queries that state {what} contradict it: filter by it, or rerank with a model that reads it",
    ),
    Rate(
        "global_failure_rate",
        "failures",
        False,
        "share of all results that contradict {what} of their query",
        "The share of all results, of whatever query, that contradict {what} that their query states.",
        0.25,
        "of all that is shown, more than a quarter contradicts {what} that was asked for",
    ),
    Rate(
        "unknown_rate",
        "unknown",
        True,
        "share of results that say nothing of {what}, among those of queries that state one",
        "Of the results of queries that state {what}, the share whose product does not say: these do not fail.",
        0.5,
        "most products do not say, so the failure rates rest on the few that do",
    ),
)


def _statistic(prefix: str, rate: Rate) -> Callable[[Columns], Statistic]:
    def statistic(columns: Columns) -> Statistic:
        stated = columns[f"{prefix}stated"]
        whole = columns["results"] * (
            stated if rate.explicit else stated.any()
        )  # nothing asked is unknown, not perfect
        return ratio_statistic(columns[f"{prefix}{rate.column}"], whole)

    return statistic


def _prefix(part: str) -> str:
    return f"{part}_" if part else ""


_KINDS = {f"{_prefix(part)}{rate.name}": (part, rate) for part in WHAT for rate in _RATES}

METRICS = tuple(
    Metric(
        name,
        rate.about.format(what=WHAT[part]),
        _statistic(_prefix(part), rate),
        higher_is_better=False,
        thresholds=_SHARE,
        digits=4,
        needs=(f"{_prefix(part)}{rate.column}",),
    )
    for name, (part, rate) in _KINDS.items()
)


def make_figures(
    columns: Columns, *, confidence: float = 0.95, seed: int = 42, exact: bool = True
) -> tuple[Figure, ...]:
    """Each metric with its interval. One that no query states is unknown, not 0."""
    statistics = [metric.statistic(columns) for metric in METRICS]
    queries = len(columns["results"])
    drawn = bootstrap.distribution(statistics, queries, resamples=RESAMPLES, seed=seed) if queries else None
    return tuple(
        _figure(metric, columns, None if drawn is None else drawn[row], confidence, exact)
        for row, metric in enumerate(METRICS)
    )


def _figure(
    metric: Metric, columns: Columns, drawn: NDArray[np.float64] | None, confidence: float, exact: bool
) -> Figure:
    part, rate = _KINDS[metric.name]
    stated = columns[f"{_prefix(part)}stated"]
    count = int(stated.sum()) if rate.explicit else len(stated)
    value = metric.value(columns) if drawn is not None else np.nan
    known = bool(np.isfinite(value))
    warns = part and known and value > rate.above and stated.sum() >= _LEAST
    interval = None
    if known and drawn is not None and count > 1:  # every resample of one query is that query
        interval = bootstrap.percentile_interval(drawn, confidence=confidence)
    return Figure(
        name=metric.name,
        value=value if known else None,
        count=count,
        unit="query",
        higher_is_better=False,
        meaning=rate.meaning.format(what=WHAT[part]),
        interval=interval,
        level=f"above {rate.above:g}" if part else None,
        warning=_warning(metric.name, value, part, rate) if warns else None,
        exact=exact,
        reason=None if known else f"no query with results states {WHAT[part]}",
        digits=metric.digits,
    )


def _warning(name: str, value: float, part: str, rate: Rate) -> str:
    return f"{name} is {value:.4f}, above {rate.above:g}: {rate.advice.format(what=WHAT[part])}"
