"""Correlations of two models whose outcomes are exchanged at random, for many exchanges at once.

Every mixture has each example once, so that gold and its ranks are those of the sample, and what the second mixture has
is what the first one lacks: both follow from the same sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from calipers.metrics.arrays import Array, Floats, Ints, narrow, share, slices, tie_starts
from calipers.metrics.jackknife import Exchanged
from calipers.metrics.running import run_up, scratch, take_rows

_EXACT_IN_FLOAT32 = 1 << 22  # halves up to here
_GROUPS = 1 << 16  # of equal values that are in hand at a time


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
    centred = gold[:n] - gold[:n].mean()
    variance = float(np.einsum("i,i->", centred, centred)) / n
    whole, second, change = np.empty((3, 1)), np.empty((3, 1)), np.empty((3, n))
    one, other = values[:n], values[n:]
    for i, (factor, other_factor) in enumerate(((np.ones(1), np.ones(1)), (one, other), (centred, centred))):
        np.multiply(one, factor, out=change[i])
        term = other * other_factor
        second[i] = term.sum()
        whole[i] = change[i].sum() + second[i]
        change[i] -= term

    def correlation(sums: Floats) -> Floats:
        own_mean, square, covariance = sums / n
        own = square - own_mean**2
        with np.errstate(invalid="ignore", divide="ignore"):
            r = covariance / np.sqrt(own * variance)
        return np.where((own > floor) & (variance > floor), np.clip(r, -1.0, 1.0), np.nan)

    def mixtures(first: Floats) -> tuple[Floats, Floats]:
        sums = second + change @ first
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
    order = narrow(np.argsort(values, kind="stable"), 2 * n)
    starts = tie_starts(values[order])
    sizes = np.diff(starts, append=len(order)).astype(np.float64)
    constant, change = _linear(order, centred, starts, sizes)
    spread = float(centred @ centred)
    one_each = len(sizes) == n and (order[0::2] < n).all() and (order[1::2] >= n).all()
    mixed = _mixed_pairs(order, centred) if one_each else _mixed_groups(order, centred, starts, sizes)

    def correlation(covariance: Floats, cubes: Floats) -> Floats:
        return np.clip(share(covariance, np.sqrt((float(n) ** 3 - cubes) / 12 * spread)), -1.0, 1.0)

    def mixtures(first: Floats) -> tuple[Floats, Floats]:
        covariance, cubes, other_cubes = mixed(first)
        other = covariance + constant - change @ first
        return correlation(covariance, cubes), correlation(other, other_cubes)

    return mixtures


def _linear(order: Array, centred: Floats, starts: Ints, sizes: Floats) -> tuple[float, Floats]:
    """Covariances of both mixtures differ by a sum that is linear in who has what: what it is if the first mixture has
    nothing of the first model, and what each example changes."""
    n, ends, pulls = len(centred), np.cumsum(sizes), np.empty(len(sizes))
    for groups, rows in _parts(starts, 2 * n):
        pulls[groups] = np.add.reduceat(centred[order[rows] % n], starts[groups] - rows.start)
    from_here = np.cumsum(pulls[::-1])[::-1]
    change, constant = np.zeros(n), 0.0
    for groups, rows in _parts(starts, 2 * n):
        counts, places = sizes[groups].astype(np.int64), ends[groups] - sizes[groups] / 2
        constant += float(places @ pulls[groups])
        pulled = centred[order[rows] % n]
        pulled *= np.repeat(places, counts)
        pulled += np.repeat(from_here[groups] - pulls[groups] / 2, counts)
        of_first = order[rows] < n
        change[order[rows][of_first]] += pulled[of_first]
        change[order[rows][~of_first] - n] -= pulled[~of_first]
        constant -= float(pulled[~of_first].sum())
    return constant, change


def _parts(starts: Ints, size: int) -> Iterator[tuple[slice, slice]]:
    """Some groups at a time, and their rows."""
    for groups in slices(len(starts), _GROUPS):
        end = starts[groups.stop] if groups.stop < len(starts) else size
        yield groups, slice(int(starts[groups.start]), int(end))


# Who has what, float64[n, r], to the covariance of the first mixture, and Σ t³ over groups of t equal values of both.
_Mixed = Callable[[Floats], tuple[Floats, Floats, Floats]]


def _mixed_pairs(order: Array, centred: Floats) -> _Mixed:
    """Where a rank of one model is a rank of the other, and no other is equal: most often."""
    n = len(centred)
    kind: Any = np.float32 if 2 * n < _EXACT_IN_FLOAT32 else np.float64
    of_first, of_second = order[0::2].copy(), order[1::2] - order.dtype.type(n)
    pull, other_pull = (centred[rows].astype(kind)[:, None] for rows in (of_first, of_second))
    steps = (np.arange(n, dtype=kind) + kind(0.5))[:, None]

    def mixed(first: Floats) -> tuple[Floats, Floats, Floats]:
        converted = scratch("converted", first.shape, kind)
        converted[:] = first
        one, other = take_rows(converted, of_first, "one"), take_rows(converted, of_second, "other")
        change = np.subtract(one, other, out=converted)  # a rank is there 1 + this many times
        squares = n + np.einsum("ij,ij->j", change, change).astype(np.float64)
        places = run_up(change, "places")
        change *= kind(0.5)
        places -= change
        places += steps
        one *= pull
        other *= other_pull
        one -= other
        one += other_pull
        cubes = 3 * squares - 2 * n  # t is 0, 1 or 2: its cube is 3 t² − 2 t
        return np.einsum("ij,ij->j", places, one, dtype=np.float64), cubes, 6 * squares - 4 * n - cubes

    return mixed


def _mixed_groups(order: Array, centred: Floats, starts: Ints, sizes: Floats) -> _Mixed:
    n = len(centred)
    kind: Any = np.float32 if n * sizes.max() < _EXACT_IN_FLOAT32 else np.float64
    pull = centred[order % n].astype(kind)[:, None]

    def mixed(first: Floats) -> tuple[Floats, Floats, Floats]:
        both = scratch("converted", (2 * n, first.shape[1]), kind)
        both[:n] = first
        np.subtract(1.0, both[:n], out=both[n:])
        rows = take_rows(both, order, "one")
        counts = np.add.reduceat(rows, starts, axis=0)
        rows *= pull
        places = run_up(counts, "places")
        places -= counts * kind(0.5)
        covariance = np.einsum("ij,ij->j", places, np.add.reduceat(rows, starts, axis=0), dtype=np.float64)
        others = sizes[:, None] - counts
        cubes, other_cubes = (np.einsum("ij,ij,ij->j", t, t, t, dtype=np.float64) for t in (counts, others))
        return covariance, cubes, other_cubes

    return mixed


def _doubled_ranks(values: Floats) -> Floats:
    """Twice the mean ranks, which are whole numbers."""
    order = np.argsort(values, kind="stable")
    starts = tie_starts(values[order])
    sizes = np.diff(starts, append=len(order))
    places = np.empty(len(values))
    places[order] = np.repeat(2.0 * starts + sizes + 1, sizes)
    return places
