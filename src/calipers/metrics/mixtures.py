"""Correlations of two models whose outcomes are exchanged at random, for many exchanges at once.

Every mixture has each example once, so that gold and its ranks are those of the sample, and what the second mixture has
is what the first one lacks: both follow from the same sums.
"""

from __future__ import annotations

import numpy as np

from calipers.metrics.arrays import Floats, Ints, share, tie_starts
from calipers.metrics.jackknife import Exchanged

_EXACT_IN_FLOAT32 = 1 << 22  # halves up to here


def pearson_mixtures(values: Floats, gold: Floats, floor: float) -> Exchanged | None:
    """Of 2 n rows, the outcomes of one model and then of another, centred and scaled; None where gold is not that of
    the same examples. A variance up to `floor` is none.

    >>> mixed = pearson_mixtures(np.array([-1.0, 1.0, 1.0, -1.0]), np.array([-1.0, 1.0, -1.0, 1.0]), 0.0)
    >>> [r.tolist() for r in mixed(np.array([[1.0, 1.0], [1.0, 0.0]]))]
    [[1.0, nan], [-1.0, nan]]
    """
    n = _common(gold)
    if not n:
        return None
    mean, variance = gold[:n].mean(), float(gold[:n].var())
    centred = gold - mean
    terms = np.stack([values, values * values, values * centred])
    whole, second, change = terms.sum(axis=1)[:, None], terms[:, n:].sum(axis=1)[:, None], terms[:, :n] - terms[:, n:]

    def correlation(sums: Floats) -> Floats:
        own_mean, square, covariance = sums / n
        own = square - own_mean**2
        with np.errstate(invalid="ignore", divide="ignore"):
            r = covariance / np.sqrt(own * variance)
        return np.where((own > floor) & (variance > floor), np.clip(r, -1.0, 1.0), np.nan)

    def mixtures(first: Floats) -> tuple[Floats, Floats]:
        sums = second + np.einsum("ki,ij->kj", change, first)
        return correlation(sums), correlation(whole - sums)

    return mixtures


def _common(gold: Floats) -> int:
    """How many examples there are, if the second half of gold is the first; else 0."""
    n = len(gold) // 2
    return n if np.array_equal(gold[:n], gold[n:]) else 0


def spearman_mixtures(values: Floats, gold: Floats) -> Exchanged | None:
    """Of 2 n rows, the outcomes of one model and then of another; None where gold is not that of the same examples.

    All sums are of whole numbers and halves, and exact.

    >>> mixed = spearman_mixtures(np.array([1.0, 2.0, 3.0, 3.0, 2.0, 1.0]), np.array([1.0, 2.0, 3.0, 1.0, 2.0, 3.0]))
    >>> [r.tolist() for r in mixed(np.array([[1.0], [1.0], [1.0]]))]
    [[1.0], [-1.0]]
    """
    n = _common(gold)
    if not n:
        return None
    centred = _doubled_ranks(gold[:n]) / 2
    centred -= centred.mean()
    order = np.argsort(values, kind="stable")
    starts = tie_starts(values[order])
    sizes = np.diff(starts, append=len(order)).astype(np.float64)
    pairs = bool((sizes == 2).all())
    kind = np.float32 if n * sizes.max() < _EXACT_IN_FLOAT32 else np.float64
    pull = centred[order % n].astype(kind)[:, None]
    places = np.cumsum(sizes) - sizes / 2
    pulls = _sum_groups(pull.astype(np.float64), starts, pairs)[:, 0]
    # Covariances of both mixtures differ by a sum that is linear in who has what.
    linear = np.empty(2 * n)
    linear[order] = np.repeat(places, sizes.astype(np.int64)) * centred[order % n]
    linear[order] += np.repeat(np.cumsum(pulls[::-1])[::-1] - pulls / 2, sizes.astype(np.int64))
    constant, change = float(places @ pulls - linear[n:].sum()), linear[:n] - linear[n:]
    spread = float(centred @ centred)

    def correlation(covariance: Floats, cubes: Floats) -> Floats:
        return np.clip(share(covariance, np.sqrt((float(n) ** 3 - cubes) / 12 * spread)), -1.0, 1.0)

    def mixtures(first: Floats) -> tuple[Floats, Floats]:
        rows = np.empty((2 * n, first.shape[1]), kind)
        rows[:n] = first
        np.subtract(1.0, rows[:n], out=rows[n:])
        rows = rows[order]
        counts = _sum_groups(rows, starts, pairs)
        rows *= pull
        covariance = _covariance(counts, _sum_groups(rows, starts, pairs))
        other = covariance + constant - np.einsum("i,ij->j", change, first)
        cubes = _cubes(counts, sizes, n, pairs)
        return correlation(covariance, cubes[0]), correlation(other, cubes[1])

    return mixtures


def _covariance(counts: Floats, pulls: Floats) -> Floats:
    """Of how many of each group a mixture has, and the sum of their centred ranks of gold, [groups, r] each."""
    places = np.cumsum(counts, axis=0, dtype=counts.dtype)
    counts = counts * counts.dtype.type(0.5)
    places -= counts
    return np.asarray(np.einsum("ij,ij->j", places, pulls, dtype=np.float64))


def _cubes(counts: Floats, sizes: Floats, n: int, pairs: bool) -> tuple[Floats, Floats]:
    """Σ t³ over the groups of both mixtures; of a pair t is 0, 1 or 2, and its cube is 3 t² − 2 t."""
    if pairs:
        squares = np.einsum("ij,ij->j", counts, counts).astype(np.float64)
        cubes = 3 * squares - 2 * n
        return cubes, 8 * n - 12 * n + 6 * squares - cubes
    others = sizes[:, None] - counts
    one, other = (np.einsum("ij,ij,ij->j", rows, rows, rows, dtype=np.float64) for rows in (counts, others))
    return one, other


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
