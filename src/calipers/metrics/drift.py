"""Is today's traffic what a score was calibrated on? A martingale for a stream, a classifier test for two samples.

The martingale bets against exchangeability (Vovk et al. 2003). Half of the reference says what is usual (mean and
covariance); a query is the stranger the further it lies from that. Its p-value is its place among the other half and
all queries before it: uniform as long as the stream is exchangeable with the reference. Bets on small p-values multiply
a capital of 1, which then reaches 20 in at most one stream of twenty, however long it is (Ville's inequality). A part
of the capital moves between the bets at each step, so that a late change is seen as well.

The classifier test asks whether a logistic map can tell two samples apart on held-out examples (Lopez-Paz and Oquab
2017).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, field

import numpy as np

from calipers.metrics import bootstrap, calibration, geometry, probabilities
from calipers.metrics.arrays import Array, Floats, Vectors, once

ALARM = 20.0  # capital: at most 5 % of exchangeable streams ever reach it
_POWERS = np.array([0.1, 0.3, 0.5, 0.7, 0.9, 1.0])  # a bet of power e pays e · p^(e − 1); 1 does not bet
_MOVED = 0.01  # share of the capital that is dealt out evenly at each step
_MOST = 4096  # distances that are remembered; then half of them are forgotten, drawn at random
_SHRINK = 0.1  # of the covariance towards its diagonal
_RIDGE = 30.0


@dataclass(eq=False)
class Martingale:
    """The capital of a bet against exchangeability, float64[f] features a query. `capital` is today's, `highest` the
    highest so far; from ALARM on the alarm stays."""

    centre: Floats
    whitening: Floats
    usual: list[float]
    rng: np.random.Generator
    stakes: Floats = field(default_factory=lambda: np.full(len(_POWERS), 1 / len(_POWERS)))
    count: int = 0
    highest: float = 1.0
    alarm_at: int | None = None
    most: int = _MOST

    @classmethod
    def fit(cls, reference: Floats, *, seed: int = 42, most: int = _MOST) -> Martingale:
        """From the features of at least ten queries, float64[n, f]; every other one says what is usual. `most` is how
        many distances are remembered, or three times those of the reference where that is more."""
        rows = np.random.default_rng(seed).permutation(len(reference))
        own, others = reference[rows[::2]], reference[rows[1::2]]
        centre = own.mean(axis=0)
        spread = np.cov(own, rowvar=False).reshape(own.shape[1], -1)
        spread = (1 - _SHRINK) * spread + _SHRINK * np.diag(np.diag(spread)) + 1e-12 * np.eye(len(spread))
        whitening = np.linalg.cholesky(np.linalg.inv(spread))
        fitted = cls(centre, whitening, [], np.random.default_rng(seed), most=max(most, 3 * len(others)))
        fitted.usual = sorted(fitted.strangeness(others).tolist())
        return fitted

    @property
    def capital(self) -> float:
        return float(self.stakes.sum())

    @property
    def alarm(self) -> bool:
        return self.alarm_at is not None

    def strangeness(self, features: Floats) -> Floats:
        """The distance from what is usual, float64[q]."""
        return np.asarray(np.linalg.norm((features - self.centre) @ self.whitening, axis=1))

    def add(self, features: Floats) -> float:
        """One query float64[f]; its p-value. One that is not finite changes nothing and has the p-value NaN."""
        if not np.isfinite(features).all():
            return float("nan")
        strange = float(self.strangeness(features[None])[0])
        above = len(self.usual) - bisect_right(self.usual, strange)
        same = len(self.usual) - above - bisect_left(self.usual, strange)
        p = (above + self.rng.random() * (same + 1)) / (len(self.usual) + 1)
        insort(self.usual, strange)
        if len(self.usual) > self.most:
            self._forget()
        self.stakes = self.stakes * _POWERS * max(p, 1e-12) ** (_POWERS - 1)
        self.stakes = (1 - _MOVED) * self.stakes + _MOVED * self.stakes.mean()
        self.count += 1
        self.highest = max(self.highest, self.capital)
        if self.alarm_at is None and self.capital >= ALARM:
            self.alarm_at = self.count
        return p

    def _forget(self) -> None:
        """Keep a random half. Which ones stay does not depend on the order in which they came, and p-values so far are
        independent of what was seen as a set: later ones stay uniform and independent of them."""
        kept = np.sort(self.rng.permutation(len(self.usual))[: len(self.usual) // 2])
        self.usual = [self.usual[place] for place in kept.tolist()]


@dataclass(frozen=True)
class TwoSamples:
    """How well a classifier tells two samples apart on held-out texts: AUROC with its interval; 0.5 is not at all.
    `new` are the rows of the current sample that look least like the reference, first the strangest."""

    auroc: float
    interval: tuple[float, float] | None
    new: tuple[int, ...]

    @property
    def alarm(self) -> bool:
        return self.interval is not None and self.interval[0] > 0.5


def two_samples(
    reference: Array, current: Array, *, folds: int = 5, seed: int = 42, resamples: int = 2000, confidence: float = 0.95
) -> TwoSamples:
    """From vectors float[n, d] and float[m, d], at least `folds` of each."""
    vectors: Vectors = geometry.unit_or_zero(np.concatenate([reference, current]))
    labels = np.concatenate([np.zeros(len(reference)), np.ones(len(current))])
    fold = calibration.folds(labels, folds, seed=seed)
    p = calibration.out_of_fold(
        lambda x, y: calibration.fit_logistic(x, y, ridge=_RIDGE), vectors.astype(np.float64), labels, fold
    )
    statistic = probabilities.auroc_statistic(p, labels)
    interval = bootstrap.interval(statistic, len(labels), resamples=resamples, confidence=confidence, seed=seed)
    order = np.argsort(-p[len(reference) :], kind="stable")
    return TwoSamples(once(statistic, len(labels)), interval, tuple(order.tolist()))
