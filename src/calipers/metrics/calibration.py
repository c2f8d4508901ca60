"""From a score to a probability: isotonic and logistic maps, and folds to measure them. Labels are 0 and 1, both.

An isotonic map takes one score and is the non-decreasing step function nearest to the labels (pool adjacent violators;
Ayer et al. 1955), with lines between the steps. A logistic map takes several features (Platt 1999). A stacked map is an
isotonic one behind a logistic one: it takes several features and assumes no shape of the curve.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from calipers.metrics.arrays import Array, Floats, Ints

FOLDS = 5
_ITERATIONS = 100


@dataclass(frozen=True, eq=False)
class Isotonic:
    """Knots float64[m], rising; between them lines, outside them the ends."""

    score: Floats
    probability: Floats

    def __call__(self, scores: Floats) -> Floats:
        """float64[n]; NaN where the score is."""
        return np.interp(scores, self.score, self.probability)


@dataclass(frozen=True, eq=False)
class Logistic:
    """1 / (1 + exp(−(intercept + weights · (features − mean) / scale))), float64[f] each."""

    mean: Floats
    scale: Floats
    weights: Floats
    intercept: float

    def __call__(self, features: Floats) -> Floats:
        """float64[n, f] to float64[n]; NaN where a feature is."""
        return sigmoid((features - self.mean) / self.scale @ self.weights + self.intercept)


@dataclass(frozen=True, eq=False)
class Stacked:
    """The isotonic map reads what the logistic one says of the features."""

    logistic: Logistic
    isotonic: Isotonic

    def __call__(self, features: Floats) -> Floats:
        """float64[n, f] to float64[n]; NaN where a feature is."""
        return self.isotonic(self.logistic(features))


Map = Isotonic | Logistic


def fit_isotonic(scores: Floats, labels: Floats) -> Isotonic:
    """The map, kept 1/(n + 2) away from 0 and 1: n examples cannot show that anything is certain (Laplace).

    >>> fit_isotonic(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.0, 1.0, 0.0, 1.0])).probability.round(3).tolist()
    [0.167, 0.5, 0.5, 0.833]
    """
    score, value = pool_adjacent(scores, labels)
    least = 1 / (len(labels) + 2)
    return Isotonic(score, np.clip(value, least, 1 - least))


def pool_adjacent(scores: Floats, labels: Floats) -> tuple[Floats, Floats]:
    """The non-decreasing fit by squares: the first and the last score of each level, and the level. Equal scores count
    as one with their mean label. At least one example.

    >>> pool_adjacent(np.array([1.0, 2.0, 3.0, 3.0]), np.array([1.0, 0.0, 1.0, 1.0]))
    (array([1., 2., 3.]), array([0.5, 0.5, 1. ]))
    """
    distinct, where, counts = np.unique(scores, return_inverse=True, return_counts=True)
    sums = np.bincount(where, labels)
    blocks: list[tuple[float, int, int]] = []  # sum, count, first place
    for place, (total, count) in enumerate(zip(sums.tolist(), counts.tolist(), strict=True)):
        first = place
        while blocks and blocks[-1][0] * count >= total * blocks[-1][1]:
            before = blocks.pop()
            total, count, first = total + before[0], count + before[1], before[2]
        blocks.append((total, count, first))
    firsts = np.array([first for _, _, first in blocks])
    lasts = np.append(firsts[1:], len(distinct)) - 1
    ends = np.stack([firsts, lasts], axis=1).ravel()
    levels = np.repeat([total / count for total, count, _ in blocks], 2)
    once = np.append(True, np.diff(ends) > 0)
    return distinct[ends[once]], levels[once]


def fit_logistic(features: Floats, labels: Floats, *, ridge: float = 1.0) -> Logistic:
    """Minimises Σ log-loss + ridge/2 · |weights|² over standardised features, by Newton's method.

    `features` float64[n, f], finite; one without spread gets no weight. The ridge, not on the intercept, keeps the
    weights finite where the features separate the labels.
    """
    mean, scale = features.mean(axis=0), features.std(axis=0)
    flat = scale <= 1e-12 * np.maximum(1.0, np.abs(mean))
    scale = np.where(flat, 1.0, scale)
    inputs = np.column_stack([np.where(flat, 0.0, (features - mean) / scale), np.ones(len(labels))])
    penalty = np.append(np.full(features.shape[1], ridge), 0.0)
    weights = _newton(inputs, np.asarray(labels, np.float64), penalty)
    return Logistic(mean, scale, np.where(flat, 0.0, weights[:-1]), float(weights[-1]))


def fit_stacked(features: Floats, labels: Floats, *, seed: int = 42) -> Stacked:
    """The isotonic part is fitted on what logistic maps say of examples that they have not seen, where they are less
    sure."""
    unseen = out_of_fold(fit_logistic, features, labels, folds(labels, seed=seed))
    return Stacked(fit_logistic(features, labels), fit_isotonic(unseen, labels))


def _newton(inputs: Floats, labels: Floats, penalty: Floats) -> Floats:
    """The function is convex; a step that does not lower it is halved until it does."""
    w = np.zeros(inputs.shape[1])
    lowest = _loss(inputs, labels, penalty, w)
    for _ in range(_ITERATIONS):
        p = sigmoid(inputs @ w)
        slope = inputs.T @ (p - labels) + penalty * w
        bend = (inputs * (p * (1 - p))[:, None]).T @ inputs + np.diag(penalty + 1e-12)
        step = np.linalg.solve(bend, slope)
        share = 1.0
        while (loss := _loss(inputs, labels, penalty, w - share * step)) > lowest and share > 1e-10:
            share /= 2
        if loss > lowest:
            break
        w, lowest = w - share * step, loss
        if np.abs(share * step).max() < 1e-10:
            break
    return w


def _loss(inputs: Floats, labels: Floats, penalty: Floats, w: Floats) -> float:
    z = inputs @ w
    return float(np.sum(np.logaddexp(0.0, z) - labels * z) + 0.5 * penalty @ w**2)


def sigmoid(z: Floats) -> Floats:
    """1 / (1 + exp(−z)) without overflow: the smaller of exp(±z) is never above 1.

    >>> sigmoid(np.array([0.0, 800.0, -800.0]))
    array([0.5, 1. , 0. ])
    """
    small = np.exp(-np.abs(z))
    return np.asarray(np.where(z >= 0, 1.0, small) / (1.0 + small))


def folds(labels: Array, count: int = FOLDS, *, seed: int = 42) -> Ints:
    """A fold for each example, int64[n], dealt at random within each label: folds of different shares of labels would
    give even a constant score an AUROC below 0.5 over all folds."""
    rng = np.random.default_rng(seed)
    fold = np.empty(len(labels), np.int64)
    dealt = 0
    for label in (0, 1):
        rows = rng.permutation(np.flatnonzero(np.asarray(labels) == label))
        fold[rows] = (np.arange(len(rows)) + dealt) % count
        dealt += len(rows)
    return fold


def why_not(labels: Array, count: int = FOLDS) -> str | None:
    """Why nothing can be learnt from these labels; None where it can."""
    n, right = len(labels), int(np.sum(labels))
    if right in (0, n):
        which = "succeeds" if n and right else "fails"
        who = "the only query" if n == 1 else f"every one of {n} queries"
        return f"{who} {which}: there is nothing to distinguish" if n else "no query is judged"
    if min(right, n - right) < count:
        return f"{right} of {n} queries succeed: {count} folds need at least {count} of either kind"
    return None


def out_of_fold(fit: Callable[[Floats, Floats], Map | Stacked], inputs: Floats, labels: Floats, fold: Ints) -> Floats:
    """The probability of each example by a map that was fitted on the other folds, float64[n]."""
    probabilities = np.empty(len(labels))
    for number in np.unique(fold):
        held = fold == number
        probabilities[held] = fit(inputs[~held], labels[~held])(inputs[held])
    return probabilities
