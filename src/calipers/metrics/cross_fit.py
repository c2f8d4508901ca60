"""Figures at thresholds that were chosen on other examples.

The best threshold of a sample fits the sample: its F1 and its accuracy are optimistic, and an interval around them
misses the figure of new examples. Here a row is called positive by the threshold that is best on the other folds, in
several rounds with other folds each, so that no single draw decides; what is left is a figure of fixed calls, and a
bootstrap of the rows covers it (simulated in tests/metrics/test_cross_fit.py).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from calipers.metrics.arrays import Array, Counts, Floats, Statistic, share
from calipers.metrics.calibration import FOLDS, folds
from calipers.metrics.means import ValueMean, mean_statistic

_ROUNDS = 10

Threshold = Callable[[Array, Array], float]  # of scores and 0/1 labels


def calls(scores: ArrayLike, labels: ArrayLike, threshold: Threshold, *, seed: int = 42) -> Floats | None:
    """In which share of the rounds each row is called positive, float64[n]; None where a label has fewer rows than
    there are folds.

    >>> calls(np.arange(20.0), np.arange(20) >= 10, lambda scores, labels: 9.5).tolist() == [0.0] * 10 + [1.0] * 10
    True
    """
    values, positive = np.asarray(scores), np.asarray(labels) == 1
    if min(positive.sum(), (~positive).sum()) < FOLDS:
        return None
    called = np.zeros(len(values))
    for round in range(_ROUNDS):
        fold = folds(positive, FOLDS, seed=seed + round)
        for number in range(FOLDS):
            held = fold == number
            called[held] += values[held] >= threshold(values[~held], positive[~held].astype(np.int64))
    return called / _ROUNDS


def f1_of_calls(called: Array, labels: ArrayLike) -> Statistic:
    """2 · Σ calls of positives / (Σ calls + positives), in 0–1; NaN without either.

    >>> f1_of_calls(np.array([1.0, 0.5, 0.0]), [1, 1, 0])(np.ones((3, 1)))
    array([0.85714286])
    """
    calls, positive = np.asarray(called, np.float64), np.asarray(labels, np.float64)

    def statistic(counts: Counts) -> Floats:
        weights = np.asarray(counts, np.float64)
        right, either = (np.einsum("i,ij->j", terms, weights) for terms in (calls * positive, calls + positive))
        return share(2 * right, either)

    return statistic


def accuracy_of_calls(called: Array, labels: ArrayLike) -> ValueMean:
    """The mean share of rounds in which a row is called what it is labelled, in 0–1.

    >>> accuracy_of_calls(np.array([1.0, 0.5, 0.0]), [1, 1, 0])(np.ones((3, 1)))
    array([0.83333333])
    """
    return mean_statistic(np.where(np.asarray(labels) == 1, called, 1.0 - np.asarray(called)))
