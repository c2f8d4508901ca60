"""How good a score is that speaks of a yes or a no: does it order (AUROC), is it near (Brier), is it honest (ECE)?

Statistics as everywhere here: prepared once, then a function of how often each example counts, int[n, r] to float64[r].
`labels` are 0 or 1. AUROC takes any finite scores; Brier and ECE take probabilities.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calipers.metrics import bootstrap
from calipers.metrics.arrays import Array, Counts, Floats, Ints, Statistic, share, tie_starts
from calipers.metrics.means import mean_statistic, ratio_statistic

BINS = 10
_PER_BIN = 10  # examples that a bin should have: a share of fewer says little


def auroc_statistic(scores: Array, labels: Array) -> Statistic:
    """The chance that a positive scores above a negative, a tie counting half (Mann and Whitney); 0.5 is a coin.

    NaN in a resample that lacks positives or negatives.

    >>> auroc_statistic(np.array([0.9, 0.8, 0.8, 0.1]), np.array([1, 1, 0, 0]))(np.ones((4, 1)))
    array([0.875])
    """
    scores, positive = np.asarray(scores, np.float64), np.asarray(labels, np.float64) > 0
    order = np.argsort(scores, kind="stable")
    starts = tie_starts(scores[order])

    def statistic(counts: Counts) -> Floats:
        weights = np.asarray(counts, np.float64)[order]
        if not len(starts):
            return np.full(weights.shape[1], np.nan)
        up = np.add.reduceat(np.where(positive[order, None], weights, 0.0), starts, axis=0)
        down = np.add.reduceat(np.where(positive[order, None], 0.0, weights), starts, axis=0)
        below = np.cumsum(down, axis=0) - down / 2
        return share(np.einsum("ij,ij->j", up, below), up.sum(axis=0) * down.sum(axis=0))

    return statistic


def brier_statistic(probabilities: Array, labels: Array) -> Statistic:
    """The mean of (probability − label)²: 0 is best; p (1 − p) is what the base rate p gets for saying itself.

    >>> brier_statistic(np.array([1.0, 0.5]), np.array([1, 0]))(np.ones((2, 1)))
    array([0.125])
    """
    return mean_statistic((np.asarray(probabilities, np.float64) - labels) ** 2)


def ece_statistic(probabilities: Array, labels: Array) -> Statistic:
    """Expected calibration error: over bins, the share of examples times |mean probability − share of positives|.

    The bins are `equal_mass_bins` of these examples and stay as they are in every resample. An estimate of it is too
    high on few examples, even for an honest score: compare it with `honest_ece`.

    >>> ece_statistic(np.array([0.2, 0.4] * 10), np.array([0, 1] * 10))(np.ones((20, 1)))
    array([0.4])
    """
    bins = equal_mass_bins(probabilities)
    gaps = np.asarray(probabilities, np.float64) - labels
    order = np.argsort(bins, kind="stable")
    starts = tie_starts(bins[order])

    def statistic(counts: Counts) -> Floats:
        weights = np.asarray(counts, np.float64)
        rows = weights.sum(axis=0)
        if not len(starts):
            return np.full(len(rows), np.nan)
        missed = np.abs(np.add.reduceat(gaps[order, None] * weights[order], starts, axis=0)).sum(axis=0)
        return share(missed, rows)

    return statistic


def equal_mass_bins(probabilities: Array) -> Ints:
    """A bin for each example, int64[n]: at most `BINS` of about equal size, with 10 examples or more; equal
    probabilities share the bin of the middle of their ranks.

    >>> equal_mass_bins(np.array([0.1, 0.9, 0.9, 0.5] * 5)).tolist()
    [0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0]
    """
    n = len(probabilities)
    wanted = max(1, min(BINS, n // _PER_BIN))
    _, where, counts = np.unique(probabilities, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - (counts + 1) / 2
    return np.asarray((middle[where] * wanted / max(1, n)).astype(np.int64))


def honest_ece(probabilities: Array, *, seed: int = 42, trials: int = 200) -> float:
    """The mean ECE of labels drawn with exactly these probabilities: what chance alone leaves. NaN without examples."""
    p = np.asarray(probabilities, np.float64)
    if not len(p):
        return np.nan
    bins = equal_mass_bins(p)
    order = np.argsort(bins, kind="stable")
    gaps = p - (np.random.default_rng(seed).random((trials, len(p))) < p)
    missed = np.abs(np.add.reduceat(gaps[:, order], tie_starts(bins[order]), axis=1))
    return float(missed.sum(axis=1).mean() / len(p))


@dataclass(frozen=True)
class CurvePoint:
    """Examples of about the same probability: their mean, and how many of them were positive."""

    probability: float
    share: float
    interval: tuple[float, float] | None
    count: int


def reliability_curve(
    probabilities: Array, labels: Array, *, resamples: int = 2000, confidence: float = 0.95, seed: int = 42
) -> tuple[CurvePoint, ...]:
    """A point for each bin, from low to high. On an honest score share and probability are one."""
    p, y = np.asarray(probabilities, np.float64), np.asarray(labels, np.float64)
    if not len(p):
        return ()
    bins = equal_mass_bins(p)
    inside = [bins == number for number in np.unique(bins)]
    drawn = bootstrap.distribution(
        [ratio_statistic(y * rows, rows) for rows in inside], len(p), resamples=resamples, seed=seed
    )
    return tuple(
        CurvePoint(
            float(p[rows].mean()),
            float(y[rows].mean()),
            bootstrap.percentile_interval(values, confidence=confidence),
            int(rows.sum()),
        )
        for rows, values in zip(inside, drawn, strict=True)
    )


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """What happens if only scores from a threshold on are answered, float64[t] each, from strict to lax: the threshold,
    the share of the `count` examples that are answered, and the share of failures among these."""

    count: int
    threshold: Floats
    coverage: Floats
    risk: Floats

    def at(self, error: float) -> float | None:
        """The lowest threshold whose risk is at most `error`, None where there is none. It must answer 1/error examples
        or more: fewer without a failure do not show such a rate."""
        fit = np.flatnonzero((self.risk <= error) & (np.rint(self.coverage * self.count) >= self.least(error)))
        return float(self.threshold[fit[-1]]) if len(fit) else None

    def least(self, error: float) -> int:
        return int(np.ceil(1 / error - 1e-9)) if error > 0 else self.count

    def covered(self, threshold: float) -> float:
        """The share of examples at or above a threshold."""
        return float(np.max(self.coverage[self.threshold >= threshold], initial=0.0))

    @property
    def area(self) -> float:
        """The mean risk over all coverages (AURC), each answered example counting once: lower is better."""
        return float(np.sum(self.risk * np.diff(self.coverage, prepend=0.0))) if len(self.risk) else np.nan


def risk_coverage(scores: Array, labels: Array) -> RiskCoverage:
    """One point for each different score; examples of the same score are answered together or not at all.

    >>> curve = risk_coverage(np.array([0.9, 0.8, 0.8, 0.1]), np.array([1, 1, 0, 0]))
    >>> curve.coverage.tolist(), curve.risk.round(3).tolist(), curve.at(0.4), curve.at(0.1)
    ([0.25, 0.75, 1.0], [0.0, 0.333, 0.5], 0.8, None)
    """
    order = np.argsort(-np.asarray(scores, np.float64), kind="stable")
    ranked = np.asarray(scores, np.float64)[order]
    ends = np.append(tie_starts(ranked), len(ranked))[1:] - 1
    failures = np.cumsum(1.0 - np.asarray(labels, np.float64)[order])
    return RiskCoverage(len(ranked), ranked[ends], (ends + 1) / max(1, len(ranked)), failures[ends] / (ends + 1))
