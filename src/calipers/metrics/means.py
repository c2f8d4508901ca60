"""Sums and means over examples, for one sample or for many bootstrap resamples at once.

A ratio of sums, such as log-likelihood over tokens, is resampled by its examples, the texts: tokens of one text are not
independent of each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from calipers.metrics.arrays import Array, Counts, Floats, Statistic


def ratio_statistic(part: Array, whole: Array) -> Statistic:
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

    return statistic


def mean_statistic(values: Array) -> Statistic:
    """The mean over the examples for which there is a value: NaN is left out, and all NaN is NaN.

    >>> mean_statistic(np.array([1.0, np.nan, 3.0]))(np.array([[1], [5], [1]]))
    array([2.])
    """
    finite = np.isfinite(values)
    return ratio_statistic(np.where(finite, values, 0.0), finite)


def mean_of(column: str) -> Callable[[Mapping[str, Array]], Statistic]:
    """The statistic of a metric that is the mean of an outcome column.

    >>> mean_of("hit")({"hit": np.array([1.0, 0.0])})(np.ones((2, 1)))
    array([0.5])
    """
    return lambda columns: mean_statistic(columns[column])


def macro_mean_statistic(values: Array, groups: Array) -> Statistic:
    """The mean over groups of the mean over a group's examples: each group counts the same, however many it has.

    Examples without a value (NaN) are left out of their group. A resample in which a group has none left is NaN.

    >>> macro = macro_mean_statistic(np.array([1.0, 0.0, 0.0, 0.5]), np.array([0, 0, 0, 7]))
    >>> macro(np.array([[1, 3], [1, 0], [1, 0], [1, 0]]))
    array([0.41666667,        nan])
    """
    places = [np.flatnonzero(groups == name) for name in np.unique(groups)]
    means = [(rows, mean_statistic(values[rows])) for rows in places]

    def statistic(counts: Counts) -> Floats:
        if not means:
            return np.full(counts.shape[1], np.nan)
        return np.asarray(np.mean([mean(counts[rows]) for rows, mean in means], axis=0), np.float64)

    return statistic


def perplexity_statistic(log_likelihood: Array, tokens: Array) -> Statistic:
    """exp(-Σ log-likelihood / Σ tokens): 1 is certainty, the size of the vocabulary is a blind guess.

    >>> perplexity_statistic(np.log([0.25, 0.25]), np.array([1, 1]))(np.array([[1], [1]]))
    array([4.])
    """
    nll = ratio_statistic(-np.asarray(log_likelihood), tokens)

    def statistic(counts: Counts) -> Floats:
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(nll(counts)))

    return statistic
