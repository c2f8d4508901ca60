"""Spearman's correlation of two models whose outcomes are exchanged at random, for many exchanges at once.

Every mixture has each example once, so that the ranks of gold are those of the sample, and what the second mixture has
is what the first one lacks: both follow from one running sum.
"""

from __future__ import annotations

import numpy as np

from calipers.metrics.arrays import Floats, Ints, share, tie_starts
from calipers.metrics.jackknife import Exchanged

_EXACT_IN_FLOAT32 = 1 << 22  # halves up to here


def spearman_mixtures(values: Floats, gold: Floats) -> Exchanged | None:
    """Of 2 n rows, the outcomes of one model and then of another; None where gold is not that of the same examples.

    All sums are of whole numbers and halves, and exact.

    >>> mixed = spearman_mixtures(np.array([1.0, 2.0, 3.0, 3.0, 2.0, 1.0]), np.array([1.0, 2.0, 3.0, 1.0, 2.0, 3.0]))
    >>> [r.tolist() for r in mixed(np.array([[1.0], [1.0], [1.0]]))]
    [[1.0], [-1.0]]
    """
    n = len(gold) // 2
    if not n or not np.array_equal(gold[:n], gold[n:]):
        return None
    centred = _doubled_ranks(gold[:n]) / 2
    centred -= centred.mean()
    order = np.argsort(values, kind="stable")
    starts = tie_starts(values[order])
    sizes = np.diff(starts, append=len(order)).astype(np.float64)
    pairs = bool((sizes == 2).all())
    kind = np.float32 if n * sizes.max() < _EXACT_IN_FLOAT32 else np.float64
    pull = centred[order % n].astype(kind)[:, None]
    whole = _Groups(sizes[:, None], _sum_groups(pull.astype(np.float64), starts, pairs))
    spread = float(centred @ centred)

    def mixtures(first: Floats) -> tuple[Floats, Floats]:
        rows = np.empty((2 * n, first.shape[1]), kind)
        rows[:n] = first
        np.subtract(1.0, rows[:n], out=rows[n:])
        rows = rows[order]
        counts = _sum_groups(rows, starts, pairs)
        rows *= pull
        one = _Groups(counts, _sum_groups(rows, starts, pairs))
        other = _Groups(whole.counts - one.counts, whole.pulls - one.pulls)
        return one.correlation(n, spread), other.correlation(n, spread)

    return mixtures


class _Groups:
    """Groups of equal outcomes, in ascending order: how many of each a mixture has, and the sum of their centred ranks
    of gold, [groups, r] each."""

    def __init__(self, counts: Floats, pulls: Floats) -> None:
        self.counts, self.pulls = counts, pulls

    def correlation(self, n: int, spread: float) -> Floats:
        places = np.cumsum(self.counts, axis=0, dtype=self.counts.dtype)
        places -= self.counts * self.counts.dtype.type(0.5)
        covariance = np.einsum("ij,ij->j", places, self.pulls, dtype=np.float64)
        cubes = np.einsum("ij,ij,ij->j", self.counts, self.counts, self.counts, dtype=np.float64)
        own = (float(n) ** 3 - cubes) / 12
        correlations = share(covariance, np.sqrt(own * spread))
        return np.clip(correlations, -1.0, 1.0)


def _sum_groups(rows: Floats, starts: Ints, pairs: bool) -> Floats:
    """Sums over groups of rows; most often every group is a rank of one model and the same of the other."""
    return rows[0::2] + rows[1::2] if pairs else np.add.reduceat(rows, starts, axis=0)


def _doubled_ranks(values: Floats) -> Floats:
    """Twice the mean ranks, which are whole numbers."""
    order = np.argsort(values, kind="stable")
    starts = tie_starts(values[order])
    sizes = np.diff(starts, append=len(order))
    places = np.empty(len(values))
    places[order] = np.repeat(2.0 * starts + sizes + 1, sizes)
    return places
