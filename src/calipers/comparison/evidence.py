"""What the examples say about a metric of two models: its values over the same examples, resamples of both, and from
them how likely each label is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.comparison.records import Chances, Question
from calipers.core import Columns, Metric, Outcomes, Statistic, Thresholds
from calipers.core.room import give_back, large_arrays_apart
from calipers.metrics import bootstrap, paired, studentised
from calipers.metrics.jackknife import Jackknifed
from calipers.metrics.means import ValueMean, pair_means
from calipers.metrics.running import forget_scratch

_MANY = 100_000  # examples, from which on an array of them is worth giving back

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Fewer examples that changed cannot show what a rare loss costs; by simulation, docs/statistics.md.
FEWEST_CHANGED = 5
_MEAN_TO_SEE = 6.73  # expected changes with which at least FEWEST_CHANGED are seen in 80 % of samples (Poisson)
_MOST_USEFUL = 1_000_000  # examples; who needs more is too close to a threshold to be settled in practice


@dataclass(frozen=True)
class DrawnUnits:
    """What is drawn again: the examples, or clusters of them."""

    examples: int
    cluster: Ints | None = None  # the number of each example's cluster, from 0

    @property
    def count(self) -> int:
        return self.examples if self.cluster is None else int(self.cluster.max(initial=-1)) + 1

    def of(self, statistic: Statistic) -> Statistic:
        return statistic if self.cluster is None else bootstrap.grouped(statistic, self.cluster)

    def total(self, values: Floats) -> Floats:
        """The sum of the values of each unit; NaN where none of its examples has one."""
        if self.cluster is None:
            return values
        finite = np.isfinite(values)
        sums = np.bincount(self.cluster, np.where(finite, values, 0.0), minlength=self.count)
        return np.where(np.bincount(self.cluster, finite, minlength=self.count) > 0, sums, np.nan)

    def with_any(self, mask: NDArray[np.bool_]) -> int:
        """How many units have an example that is marked."""
        return int(mask.sum()) if self.cluster is None else len(np.unique(self.cluster[mask]))


@dataclass(frozen=True)
class Evidence:
    """One metric of two models on the same examples."""

    metric: Metric
    draws: studentised.PairedDraws
    log_draws: studentised.PairedDraws | None  # of the logarithms, where shares are a perplexity's
    contribute: Callable[[], Floats] | None  # see `each`
    drawn: DrawnUnits
    examples: int  # with a value
    lost: int  # examples whose value only the candidate lacks
    changed: int  # units that are not the same in both models

    @property
    def values(self) -> tuple[float, float]:
        return float(self.draws.values[0]), float(self.draws.values[1])

    @property
    def each(self) -> Floats | None:
        """What each example adds to the difference, made anew; None where there are too many to tell."""
        return self.contribute() if self.contribute else None

    @property
    def by_unit(self) -> Floats | None:
        return self.drawn.total(self.contribute()) if self.contribute else None

    @property
    def shows_rare_losses(self) -> bool:
        return self.changed == 0 or self.changed >= FEWEST_CHANGED


def gather(
    metrics: Sequence[Metric], a: Outcomes, b: Outcomes, units: DrawnUnits, *, resamples: int, seed: int, threads: int
) -> list[Evidence]:
    """The evidence on every metric; all see the same resamples. Metrics are prepared one after the other, and of many
    examples only what resamples need of them is in memory together."""
    sides: list[_Sides] = []

    def pairs() -> Iterator[tuple[Statistic, Statistic]]:
        with sparing_memory(units.examples):
            for metric in metrics:
                side, pair = _prepare(metric, a.columns, b.columns, units)
                sides.append(side)
                yield pair
                if metric.log_scale:
                    yield _logarithm(metric, pair[0]), _logarithm(metric, pair[1])
                del side, pair

    draws = iter(studentised.draw_pairs(pairs(), units.count, resamples=resamples, seed=seed, threads=threads))
    return [
        _evidence(side, next(draws), next(draws) if side.metric.log_scale else None, units, threads) for side in sides
    ]


@dataclass(frozen=True)
class _Sides:
    """What is known of a metric before resamples are drawn."""

    metric: Metric
    statistics: tuple[Statistic, Statistic] | None  # where contributions are not those of the units: means and clusters
    traceable: bool  # whether all contributions can be traced
    examples: int
    lost: int
    changed: int


def _evidence(
    side: _Sides,
    draws: studentised.PairedDraws,
    log_draws: studentised.PairedDraws | None,
    units: DrawnUnits,
    threads: int,
) -> Evidence:
    contribute = None
    if (added := draws.added) is not None and side.traceable:
        statistics, delta = side.statistics, float(draws.values[1] - draws.values[0])
        if statistics is None:
            contribute = partial(paired.shares_of, delta, added)
        else:
            contribute = partial(_contributions, *statistics, added, units, threads)
    draws = replace(draws, spread=side.metric.spread)
    return Evidence(side.metric, draws, log_draws, contribute, units, side.examples, side.lost, side.changed)


def _contributions(first: Statistic, second: Statistic, added: Floats, units: DrawnUnits, threads: int) -> Floats:
    """Of examples, by means or where units are clusters of them."""
    if units.cluster is not None:
        added = np.stack([paired.influence(s, units.examples, threads=threads) for s in (first, second)])
    return paired.contributions(first, second, (added[0], added[1]))


@contextmanager
def sparing_memory(examples: int) -> Iterator[None]:
    """Where examples are many, memory goes back to the system as soon as it is not needed: what was freed before, each
    array inside, and what this thread keeps for later."""
    if examples <= _MANY:
        yield
        return
    forget_scratch()
    give_back()
    with large_arrays_apart():
        yield
        forget_scratch()


class _Noted(Mapping[str, Any]):
    """Columns that note which of them are read."""

    def __init__(self, columns: Columns) -> None:
        self.columns, self.read = columns, set[str]()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return self.columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)


def _prepare(metric: Metric, a: Columns, b: Columns, units: DrawnUnits) -> tuple[_Sides, tuple[Statistic, Statistic]]:
    """The metric of both over the same units, and what is known of it."""
    first, second, lost, changed = _statistics(metric, a, b)
    means = isinstance(first, ValueMean)
    traceable = units.examples <= studentised.MOST_TO_LEAVE_OUT or all(map(paired.has_closed_form, (first, second)))
    kept = (first, second) if means or units.cluster is not None else None
    examples = int(np.isfinite(first.values).sum()) if isinstance(first, ValueMean) else units.examples
    side = _Sides(metric, kept, traceable, examples, lost, units.with_any(changed))
    return side, (units.of(first), units.of(second))


def _statistics(metric: Metric, a: Columns, b: Columns) -> tuple[Statistic, Statistic, int, NDArray[np.bool_]]:
    """The metric of both over the same examples, how many values the second has lost, and which examples differ."""
    noted = _Noted(a), _Noted(b)
    first, second, lost = pair_means(
        metric.statistic(noted[0]), metric.statistic(noted[1]), higher_is_better=metric.higher_is_better
    )
    if isinstance(first, ValueMean) and isinstance(second, ValueMean):
        return first, second, lost, _differ(first.values, second.values)
    read = sorted((noted[0].read | noted[1].read) & a.keys() & b.keys())
    changed = np.zeros(len(next(iter(a.values()), ())), dtype=bool)
    for name in read:
        changed |= _differ(a[name], b[name])
    return first, second, lost, changed


def _differ(old: NDArray[Any], new: NDArray[Any]) -> NDArray[np.bool_]:
    both_unknown = (old != old) & (new != new)  # NaN is not equal to itself
    return np.asarray((old != new) & ~both_unknown)


def _logarithm(metric: Metric, statistic: Statistic) -> Statistic:
    assert metric.log_scale is not None
    scale = metric.log_scale

    def logarithm(values: Floats) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            return scale(values)

    if isinstance(statistic, Jackknifed):
        return statistic.then(logarithm)
    return lambda counts: logarithm(statistic(counts))


# --- losses -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LossScale:
    """The loss on the scale that it is resampled on, and where the thresholds lie on that scale."""

    pivot: studentised.Pivot | None
    bounds: tuple[float, float]
    any_loss: bool = False  # the baseline is 0: every loss is infinitely many times as much

    def chance_of(self, bound: float) -> float:
        """Of a loss of at least this much; of any loss, where nothing may be lost."""
        assert self.pivot is not None
        if self.any_loss or bound <= 0:
            return self.pivot.chance_of(0.0, more=True)
        return self.pivot.chance_of(bound)

    @property
    def chances(self) -> Chances | None:
        if self.pivot is None:
            return None
        at_risk_or_worse, regression = (self.chance_of(bound) for bound in self.bounds)
        return Chances(1.0 - at_risk_or_worse, at_risk_or_worse - regression, regression)


def loss_scale(evidence: Evidence, thresholds: Thresholds) -> LossScale:
    """Points are differences of the metric, shares are of the baseline, and shares of a perplexity are differences of
    its logarithm, so that a perplexity and its logarithm always get the same label."""
    sign = -1.0 if evidence.metric.higher_is_better else 1.0
    bounds = thresholds.passes, thresholds.at_risk
    if not thresholds.relative:
        return LossScale(evidence.draws.difference(sign), bounds)
    if evidence.log_draws is not None:
        return LossScale(
            evidence.log_draws.difference(sign), (_logarithmic(bounds[0], sign), _logarithmic(bounds[1], sign))
        )
    if evidence.values[0] == 0:
        return LossScale(evidence.draws.difference(sign), (0.0, 0.0), any_loss=True)
    return LossScale(evidence.draws.share(sign), bounds)


def _logarithmic(share: float, sign: float) -> float:
    """The difference of logarithms that is this share: ln(1 + share), or −ln(1 − share) of what should be high."""
    return math.inf if sign * share <= -1 else sign * math.log1p(sign * share)


def chances_and_interval(
    evidence: Evidence, thresholds: Thresholds, confidence: float
) -> tuple[Chances | None, tuple[float, float] | None]:
    """How likely each label is, and the interval of the difference. Without a change both are certain; where too few
    examples changed to show a rare loss, both are unknown."""
    if evidence.changed == 0:
        return Chances(1.0, 0.0, 0.0), (0.0, 0.0)
    if not evidence.shows_rare_losses:
        return None, None
    pivot = evidence.draws.difference()
    return loss_scale(evidence, thresholds).chances, pivot.interval(confidence) if pivot else None


def settled_by(evidence: Evidence, thresholds: Thresholds, question: Question, confidence: float) -> int | None:
    """About how many examples would settle the exit code; None where that is unknown or beyond use."""
    if evidence.changed == 0:
        return None
    needed = units_for(loss_scale(evidence, thresholds), question, evidence, confidence)
    if needed is None:
        return None
    examples = math.ceil(max(needed, evidence.draws.units + 1) * evidence.examples / evidence.draws.units)
    return examples if examples <= _MOST_USEFUL else None


def units_for(scale: LossScale, question: Question, evidence: Evidence, confidence: float) -> int | None:
    """How many units show on which side of the threshold in question a loss as large as the estimate is, in 80 % of
    samples, and enough changes to show rare losses."""
    if scale.pivot is None:
        return None
    units, bound = evidence.draws.units, scale.bounds[0 if question == "AT_RISK" else 1]
    needed = studentised.units_to_settle(scale.pivot, scale.pivot.estimate - bound, units, confidence=confidence)
    seen = 0 if evidence.shows_rare_losses else math.ceil(units * _MEAN_TO_SEE / evidence.changed)
    return None if needed is None else max(needed, seen)
