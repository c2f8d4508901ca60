"""Sums and means over examples, for one sample or for many bootstrap resamples at once.

A ratio of sums, such as log-likelihood over tokens, is resampled by its examples, the texts: tokens of one text are not
independent of each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from calipers.metrics.arrays import Array, Counts, Floats, Ints, Statistic
from calipers.metrics.jackknife import Jackknifed, ratio_left_out


def ratio_statistic(part: Array, whole: Array) -> Jackknifed:
    """Σ part / Σ whole over the examples of each resample; NaN where the whole is 0.

    >>> ratio_statistic(np.array([1, 2]), np.array([4, 4]))(np.array([[1, 2], [1, 0]]))
    array([0.375, 0.25 ])
    """
    part, whole = np.asarray(part, np.float64), np.asarray(whole, np.float64)

    def statistic(counts: Counts) -> Floats:
        weights = np.asarray(counts, dtype=np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            ratios = np.einsum("i,ij->j", part, weights) / np.einsum("i,ij->j", whole, weights)
        return np.where(np.isfinite(ratios), ratios, np.nan)

    return Jackknifed(statistic, lambda: ratio_left_out(part, whole))


@dataclass(frozen=True)
class ValueMean:
    """A mean of one value per example, or of such means over groups, as a statistic that knows its values.

    NaN or infinite is no value: the example is left out. A resample in which a group has no value is NaN.
    """

    values: Floats
    groups: Array | None = None

    def __post_init__(self) -> None:
        finite = np.isfinite(self.values)
        kept = np.where(finite, self.values, 0.0)
        means = [(rows, ratio_statistic(kept[rows], finite[rows])) for rows in self.places()]
        object.__setattr__(self, "_means", means)

    def __call__(self, counts: Counts) -> Floats:
        means: list[tuple[Ints | slice, Statistic]] = vars(self)["_means"]
        if not means:
            return np.full(counts.shape[1], np.nan)
        parts = [mean(counts[rows]) for rows, mean in means]
        return parts[0] if len(parts) == 1 else np.asarray(np.mean(parts, axis=0), np.float64)

    @property
    def shares(self) -> Floats:
        """What one unit of each example's value adds to the mean; NaN where there is no value."""
        shares = np.full(len(self.values), np.nan)
        finite, places = np.isfinite(self.values), self.places()
        for rows in places:
            here = finite[rows]
            shares[rows] = np.where(here, 1.0 / max(1, len(places) * int(here.sum())), np.nan)
        return shares

    def places(self) -> list[Ints | slice]:
        """The rows of each group; all of them where there are no groups."""
        if self.groups is None:
            return [slice(None)]
        return [np.flatnonzero(self.groups == name) for name in np.unique(self.groups)]


def mean_statistic(values: Array) -> ValueMean:
    """The mean over the examples for which there is a value: NaN is left out, and all NaN is NaN.

    >>> mean_statistic(np.array([1.0, np.nan, 3.0]))(np.array([[1], [5], [1]]))
    array([2.])
    """
    return ValueMean(np.asarray(values, np.float64))


def pair_means(first: Statistic, second: Statistic, *, higher_is_better: bool) -> tuple[Statistic, Statistic, int]:
    """Two means over the same examples, and how many values the second has lost.

    An example without a value in the first is left out of both. One without a value in the second alone counts there as
    the worst value of either, and as 0 at most where higher is better, 1 at least where lower is: losing a value is a
    loss. Statistics that are no means of values stay as they are.

    >>> first, second = (mean_statistic(np.array(v)) for v in ([1.0, 1.0, 0.0, np.nan], [1.0, 1.0, np.nan, 1.0]))
    >>> first, second, lost = pair_means(first, second, higher_is_better=True)
    >>> first(np.ones((4, 1))), second(np.ones((4, 1))), lost
    (array([0.66666667]), array([0.66666667]), 1)
    """
    if not (isinstance(first, ValueMean) and isinstance(second, ValueMean)):
        return first, second, 0
    has, kept = np.isfinite(first.values), np.isfinite(second.values)
    lost = has & ~kept
    if not (lost.any() or (kept & ~has).any()):
        return first, second, 0
    seen = np.concatenate([first.values[has], second.values[kept]])
    worst = seen.min(initial=0.0) if higher_is_better else seen.max(initial=1.0)
    values = np.where(has, np.where(lost, worst, second.values), np.nan)
    return first, ValueMean(values, second.groups), int(lost.sum())


def mean_of(column: str) -> Callable[[Mapping[str, Array]], Statistic]:
    """The statistic of a metric that is the mean of an outcome column.

    >>> mean_of("hit")({"hit": np.array([1.0, 0.0])})(np.ones((2, 1)))
    array([0.5])
    """
    return lambda columns: mean_statistic(columns[column])


def macro_mean_statistic(values: Array, groups: Array) -> ValueMean:
    """The mean over groups of the mean over a group's examples: each group counts the same, however many it has.

    Examples without a value (NaN) are left out of their group. A resample in which a group has none left is NaN.

    >>> macro = macro_mean_statistic(np.array([1.0, 0.0, 0.0, 0.5]), np.array([0, 0, 0, 7]))
    >>> macro(np.array([[1, 3], [1, 0], [1, 0], [1, 0]]))
    array([0.41666667,        nan])
    """
    return ValueMean(np.asarray(values, np.float64), np.asarray(groups))


def perplexity_statistic(log_likelihood: Array, tokens: Array) -> Jackknifed:
    """exp(-Σ log-likelihood / Σ tokens): 1 is certainty, the size of the vocabulary is a blind guess.

    >>> perplexity_statistic(np.log([0.25, 0.25]), np.array([1, 1]))(np.array([[1], [1]]))
    array([4.])
    """

    def exponential(nll: Floats) -> Floats:
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(nll))

    return ratio_statistic(-np.asarray(log_likelihood), tokens).then(exponential)
