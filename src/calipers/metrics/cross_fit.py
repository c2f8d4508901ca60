"""Figures at thresholds that were chosen on other examples.

The best threshold of a sample fits the sample: its F1 and its accuracy are optimistic, and an interval around them
misses the figure of new examples. Here the rows are halved at random, many times. The threshold that is best on one
half is a place among all scores, and a row is called positive by the mean of the places chosen without it. The mean of
many halves varies less than the best place of a sample, so the figure is near the one of the best threshold for
new rows; what is left is a figure of fixed calls, and a bootstrap of the rows covers it (simulated in
tests/metrics/test_cross_fit.py, docs/statistics.md).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from calipers.metrics.arrays import Array, Floats, Statistic
from calipers.metrics.calibration import folds
from calipers.metrics.means import ValueMean, mean_statistic, ratio_statistic

FEWEST = 5  # rows of either label
_MOST_ROUNDS, _FEWEST_ROUNDS = 40, 5
_ROWS = 400_000  # rows × rounds: of many rows, few rounds settle a threshold
# By how much more a figure varies between samples than its fixed calls show, because thresholds vary with the sample
# (measured: 1.00 to 1.09, of a difference of two models up to 1.15).
SPREAD = 1.12

Threshold = Callable[[Array, Array], float]  # of scores and 0/1 labels


def calls(scores: ArrayLike, labels: ArrayLike, threshold: Threshold, *, seed: int = 42) -> Floats | None:
    """1 where a row is called positive and 0 where not, float64[n]; None where a label has fewer than 5 rows.

    >>> calls(np.arange(20.0), np.arange(20) >= 10, lambda scores, labels: 9.5).tolist() == [0.0] * 10 + [1.0] * 10
    True
    """
    values, positive = np.asarray(scores), np.asarray(labels) == 1
    if min(positive.sum(), (~positive).sum()) < FEWEST:
        return None
    ordered = np.sort(values)
    cuts, rounds = np.zeros(len(values)), max(_FEWEST_ROUNDS, min(_MOST_ROUNDS, _ROWS // len(values)))
    for round in range(rounds):
        half = folds(positive, 2, seed=seed + round)
        for number in range(2):
            held = half == number
            cuts[held] += np.searchsorted(ordered, threshold(values[~held], positive[~held].astype(np.int64)))
    return np.asarray(_places(ordered, values) >= cuts / rounds - 0.5, dtype=np.float64)


def _places(ordered: Array, values: Array) -> Floats:
    """Where each value is among all, from 0 on; equal ones share the middle of their places."""
    left, right = (np.searchsorted(ordered, values, side=side) for side in ("left", "right"))
    return np.asarray((left + right - 1) / 2)


def f1_of_calls(called: Array, labels: ArrayLike) -> Statistic:
    """2 · Σ calls of positives / (Σ calls + positives), in 0–1; NaN without either.

    >>> f1_of_calls(np.array([1.0, 0.5, 0.0]), [1, 1, 0])(np.ones((3, 1)))
    array([0.85714286])
    """
    calls, positive = np.asarray(called, np.float64), np.asarray(labels, np.float64)
    return ratio_statistic(2 * calls * positive, calls + positive)


def accuracy_of_calls(called: Array, labels: ArrayLike) -> ValueMean:
    """The share of rows that are called what they are labelled, in 0–1.

    >>> accuracy_of_calls(np.array([1.0, 0.5, 0.0]), [1, 1, 0])(np.ones((3, 1)))
    array([0.83333333])
    """
    return mean_statistic(np.where(np.asarray(labels) == 1, called, 1.0 - np.asarray(called)))
