"""Correlation of two columns, for one sample or for many bootstrap resamples at once.

A resample is given by how often each example counts (`counts`, int[n, r]), so that nothing is sorted twice: the
ranks of a resample follow from cumulative counts along one sort of the original column.
A correlation is NaN where one of the columns is constant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Places = NDArray[np.int64]
Counts = NDArray[np.number[Any]]
Statistic = Callable[[Counts], Floats]

# Below this share of the largest possible variance, what varies is rounding error and not the column.
_ROUNDING = 1e-14


def pearson(x: Floats, y: Floats) -> float:
    """Linear correlation; higher is better.

    >>> round(pearson([1, 2, 3, 4], [1, 2, 3, 5]), 6)
    0.982708
    """
    return _once(pearson_statistic(x, y), len(x))


def spearman(x: Floats, y: Floats) -> float:
    """Correlation of ranks, ties sharing their mean rank; higher is better.

    >>> spearman([1, 2, 3, 4], [1, 4, 9, 16])
    1.0
    >>> spearman([1, 2, 2], [7, 7, 7])
    nan
    """
    return _once(spearman_statistic(x, y), len(x))


def kendall(x: Floats, y: Floats) -> float:
    """Kendall's tau-b: (concordant - discordant pairs) / √(pairs untied in x · pairs untied in y); higher is better.

    O(n log n). A NaN in a column is a ValueError with its rows; fewer than two rows, or a constant column, give NaN.

    >>> round(kendall([1, 2, 3, 4], [1, 2, 4, 3]), 6)
    0.666667
    >>> kendall([1, 1, 2], [3, 3, 4])
    1.0
    >>> kendall([1, 2], [5, 5])
    nan
    """
    return _once(kendall_statistic(x, y), len(x))


def pearson_statistic(x: Floats, y: Floats) -> Statistic:
    """Every sum of a resample is one weighted sum over the examples."""
    x, y = _standard(x), _standard(y)
    # einsum and not matmul: the resamples already run on every core, and BLAS threads would only get in the way.
    terms = np.stack([x, y, x * x, y * y, x * y])

    def statistic(counts: Counts) -> Floats:
        n = counts.sum(axis=0, dtype=np.float64)
        weights = np.asarray(counts, dtype=np.float64)
        mx, my, xx, yy, xy = (np.einsum("i,ij->j", term, weights) / n for term in terms)
        return _ratio(xy - mx * my, xx - mx**2, yy - my**2, floor=_ROUNDING)

    return statistic


def spearman_statistic(x: Floats, y: Floats) -> Statistic:
    """Memory: half a dozen arrays of the shape of `counts`, in float64."""
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    few, many = sorted((x, y), key=lambda values: len(np.unique(values)))
    # In the order of the column with more distinct values, half of the work is running sums in place.
    order = np.argsort(many, kind="stable")
    rank_many, rank_few = _rank_statistic(many[order]), _rank_statistic(few[order])

    def statistic(counts: Counts) -> Floats:
        weights = np.asarray(counts, dtype=np.float64)[order]
        ranks, spread_many = rank_many(weights)
        other, spread_few = rank_few(weights)
        ranks *= weights
        return _ratio(np.einsum("ij,ij->j", ranks, other), spread_many, spread_few, floor=0.0)

    return statistic


def kendall_statistic(x: Floats, y: Floats) -> Statistic:
    """Tau-b of every resample in O(n log d), d the distinct values of the column that has fewer of them.

    Copies of one example tie in both columns. Memory: two arrays of n integers for every bit of d, and half a dozen
    arrays of the shape of `counts`, in float64.
    """
    few, many = sorted((_dense_ranks(x, "x"), _dense_ranks(y, "y")), key=lambda ranks: int(ranks.max(initial=0)))
    squares = [_tie_squares(codes) for codes in (many, few, many * (few.max(initial=0) + 1) + few)]
    order = np.lexsort((few, many))
    levels = [(order[ones], order[zeros], *before) for ones, zeros, *before in _inversion_levels(few[order])]

    def statistic(counts: Counts) -> Floats:
        weights = np.asarray(counts, dtype=np.float64)
        n2 = weights.sum(axis=0) ** 2
        tied_many, tied_few, tied_both = (square(weights) for square in squares)
        discordant = np.zeros_like(n2)
        for level in levels:
            discordant += _inversions(weights, *level)
        # Of the n² ordered pairs, an example with itself among them, Σ t² tie. Concordant and discordant ones together
        # are what neither column ties; a discordant pair is in there twice, and is to count -2.
        apart = n2 - tied_many - tied_few + tied_both
        return _ratio(apart - 4 * discordant, n2 - tied_many, n2 - tied_few, floor=0.0)

    return statistic


def _dense_ranks(values: Floats, name: str) -> Places:
    """0 for the smallest value, 1 for the next one, …; equal values share a rank."""
    values = np.asarray(values, dtype=np.float64)
    _refuse(np.isnan(values), f"{name} is NaN")
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def _tie_squares(codes: Places) -> Callable[[Floats], Floats]:
    """Σ t² over the groups of equal codes, t the examples that a group has in the resample."""
    order = np.argsort(codes, kind="stable")
    last_of_tie = np.flatnonzero(np.diff(codes[order], append=-1))

    def squares(weights: Floats) -> Floats:
        tied = weights
        if len(last_of_tie) < len(order):
            tied = np.diff(_running_sum(weights[order])[last_of_tie], axis=0, prepend=0.0)
        return np.asarray(np.einsum("ij,ij->j", tied, tied))

    return squares


def _inversion_levels(ranks: Places) -> list[tuple[Places, Places, Places, Places]]:
    """Where the pairs with a larger rank before a smaller one are, one level per bit of the ranks.

    Two different ranks part at one bit, and are an inversion if the row with the 1 comes before the row with the 0.
    A level holds the rows with a 1 and the rows with a 0, sorted by the bits above and otherwise in their order; then,
    for each 0, how many 1s stand before the rows that share its bits above, and how many before itself.
    """
    rows, levels = np.arange(len(ranks)), []
    for bit in reversed(range(int(ranks.max(initial=0)).bit_length())):
        key = ranks[rows] >> bit
        one = (key & 1).astype(bool)
        first = _first_places(key >> 1)
        ones_before = np.cumsum(one) - one
        levels.append((rows[one], rows[~one], ones_before[first][~one], ones_before[~one]))
        ones_beside = ones_before - ones_before[first]
        place = _first_places(key) + np.where(one, ones_beside, np.arange(len(rows)) - first - ones_beside)
        moved = np.empty_like(rows)
        moved[place] = rows
        rows = moved
    return levels


def _first_places(key: Places) -> Places:
    """For each row, where the rows with its key begin once all are sorted by key."""
    sizes = np.bincount(key)
    return np.asarray((np.cumsum(sizes) - sizes)[key])


def _inversions(weights: Floats, ones: Places, zeros: Places, before_group: Places, before: Places) -> Floats:
    """Inversions of one level in every resample: each 0 with the 1s before it among those that share its bits above."""
    up_to = np.zeros((len(ones) + 1, weights.shape[1]))
    up_to[1:] = _running_sum(weights[ones])
    ones_beside = up_to[before]
    ones_beside -= up_to[before_group]
    return np.asarray(np.einsum("ij,ij->j", weights[zeros], ones_beside))


def _rank_statistic(values: Floats) -> Callable[[Floats], tuple[Floats, Floats]]:
    """Mean ranks less their mean, of every example in every resample, and the sum of their squares."""
    order = np.argsort(values, kind="stable")
    in_order = bool((np.diff(order) > 0).all())
    ordered = values[order]
    first_of_tie = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    group = np.searchsorted(ordered[first_of_tie], values)
    untied = len(first_of_tie) == len(values)

    def ranks(weights: Floats) -> tuple[Floats, Floats]:
        tied = weights if in_order else weights[order]
        if not untied:
            tied = np.add.reduceat(tied, first_of_tie, axis=0)
        up_to = _running_sum(tied)
        n = up_to[-1].copy()
        # A tie group of t examples, the last of them in place p, has the mean rank p - (t - 1) / 2; the mean of all
        # ranks is (n + 1) / 2, and the sum of their squared distances from it (n³ - Σ t³) / 12, whatever the ties.
        halves = tied * 0.5
        up_to -= halves
        halves *= tied
        spread = (n**3 - 2 * np.einsum("ij,ij->j", halves, tied)) / 12
        up_to -= n / 2
        return up_to if untied and in_order else up_to[group], spread

    return ranks


def _running_sum(rows: Floats, block: int = 32) -> Floats:
    """np.cumsum(rows, axis=0), four times faster: whole rows are added at once, inside blocks and then across them."""
    n, width = rows.shape
    padded = np.zeros((-(-n // block) * block, width))
    padded[:n] = rows
    blocks = padded.reshape(-1, block, width)
    for i in range(1, block):
        blocks[:, i] += blocks[:, i - 1]
    blocks[1:] += np.cumsum(blocks[:-1, -1], axis=0)[:, None]
    return padded[:n]


def _standard(values: Floats) -> Floats:
    """Centred and scaled, so that sums of squares lose no digits; a constant column becomes zeros."""
    values = np.asarray(values, dtype=np.float64)
    centred = values - values.mean()
    spread = np.abs(centred).max(initial=0.0)
    return centred / spread if spread > _ROUNDING * np.abs(values).max(initial=0.0) else np.zeros_like(values)


def _ratio(covariance: Floats, vx: Floats, vy: Floats, *, floor: float) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        r = covariance / np.sqrt(vx * vy)
    return np.where((vx > floor) & (vy > floor), np.clip(r, -1.0, 1.0), np.nan)


def _refuse(bad: NDArray[np.bool_], what: str) -> None:
    """A ValueError that names the first rows that are bad, if any are."""
    if bad.any():
        rows = np.flatnonzero(bad)
        more = f" and {len(rows) - 10} more" if len(rows) > 10 else ""
        raise ValueError(f"{what} in rows {rows[:10].tolist()}{more}, counted from 0")


def _once(statistic: Statistic, examples: int) -> float:
    return float(statistic(np.ones((examples, 1), dtype=np.int64))[0])
