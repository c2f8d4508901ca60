"""Correlation of two columns, for one sample or for many bootstrap resamples at once.

A resample is given by how often each example counts (`counts`, int[n, r]), so that nothing is sorted twice: the
ranks of a resample follow from cumulative counts along one sort of the original column.
A correlation is NaN where one of the columns is constant.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import DTypeLike

from calipers.metrics.arrays import (
    Array,
    Counts,
    Floats,
    Ints,
    Later,
    Statistic,
    narrow,
    once,
    refuse_rows,
    slices,
    tie_starts,
)
from calipers.metrics.jackknife import Jackknifed, kendall_left_out, pearson_left_out, spearman_left_out
from calipers.metrics.mixtures import pearson_mixtures, spearman_mixtures
from calipers.metrics.moments import moment_sums
from calipers.metrics.running import run_up, running_sum, scratch, take_rows

# Below this share of the largest possible variance, what varies is rounding error and not the column.
_ROUNDING = 1e-14
_EXACT_IN_FLOAT32 = 1 << 23  # halves up to here
_FEW_GROUPS = 48  # of equal values
_MANY_ROWS = 1 << 18
_PART = 1 << 16  # of rows whose sums are made at a time
_OFTEN = 255  # times that an example is drawn: more are no resample
_EXPLAINED = 1e-9  # of 1 − r²: less than this of a column is left when others are taken out


def pearson(x: Floats, y: Floats) -> float:
    """Linear correlation; higher is better.

    >>> round(pearson([1, 2, 3, 4], [1, 2, 3, 5]), 6)
    0.982708
    """
    return once(pearson_statistic(x, y), len(x))


def spearman(x: Floats, y: Floats) -> float:
    """Correlation of ranks, ties sharing their mean rank; higher is better. A NaN is refused as in `kendall`.

    >>> spearman([1, 2, 3, 4], [1, 4, 9, 16])
    1.0
    >>> spearman([1, 2, 2], [7, 7, 7])
    nan
    """
    return once(spearman_statistic(x, y), len(x))


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
    return once(kendall_statistic(x, y), len(x))


def pearson_statistic(x: Floats, y: Floats) -> Jackknifed:
    """Every sum of a resample is one weighted sum over the examples."""
    x = _standard(_without_nan(x, "x"))
    y = _standard(_without_nan(y, "y"))
    sums = moment_sums(x, y)

    def statistic(counts: Counts) -> Floats:
        mx, my, xx, xy, yy = sums(counts) / counts.sum(axis=0, dtype=np.float64)
        return _ratio(xy - mx * my, xx - mx**2, yy - my**2, floor=_ROUNDING)

    return Jackknifed(
        statistic, lambda: _ratio(*pearson_left_out(x, y), floor=_ROUNDING), pearson_mixtures(x, y, _ROUNDING)
    )


def spearman_statistic(x: Floats, y: Floats) -> Jackknifed:
    """Memory: four arrays of the shape of `counts`, which a thread keeps for the next call.

    In the order of the column with more distinct values ranks are running sums; the other column only needs sums over
    its groups of equal values. All are whole numbers and halves, which float32 holds exactly up to 2²³, a rank times a
    count while examples × the largest count stay below it; what is summed beyond that is summed in float64.
    """
    x, y = _without_nan(x, "x"), _without_nan(y, "y")
    mixed = spearman_mixtures(x, y)
    # What has mixtures is asked for little else.
    statistic = Later(lambda: _spearman_of(x, y)) if mixed else _spearman_of(x, y)
    return Jackknifed(
        statistic,
        lambda: _ratio(*spearman_left_out(*(_narrow_ranks(*column) for column in ((x, "x"), (y, "y")))), floor=0.0),
        mixed,
    )


def _spearman_of(x: Floats, y: Floats) -> Statistic:
    few, many = sorted((x, y), key=lambda values: len(tie_starts(np.sort(values))))
    order = narrow(np.argsort(many, kind="stable"), len(many))
    share_ties = _tie_sharing(many[order])
    values, codes = np.unique(few, return_inverse=True)
    codes = narrow(codes, len(values))[order]
    group_sums = _group_sums(codes, len(values))

    def statistic(counts: Counts) -> Floats:
        largest = int(counts.max(initial=1))
        kind = np.float32 if 2 * len(counts) < _EXACT_IN_FLOAT32 and largest <= _OFTEN else np.float64
        weights = take_rows(_as_floats(counts, kind), order, "weights")
        sizes = group_sums(weights)
        n = sizes.sum(axis=0)
        ranks, spread_many = share_ties(weights, n, largest)
        centred = np.cumsum(sizes, axis=0) - sizes / 2 - n / 2  # one of the two is enough
        # All are whole numbers and halves: products are exact.
        if len(values) <= _FEW_GROUPS and n.max(initial=0.0) ** 2 < 2 * _EXACT_IN_FLOAT32:  # Σ ranks is n² / 2
            ranks *= weights
            covariance = np.einsum("ij,ij->j", group_sums(ranks), centred)
        elif len(counts) * largest < _EXACT_IN_FLOAT32:
            ranks *= weights
            expected = take_rows(centred.astype(kind), codes, "moved")
            covariance = np.einsum("ij,ij->j", ranks, expected, dtype=np.float64)
        else:
            expected = take_rows(centred.astype(kind), codes, "moved")
            covariance = np.einsum("ij,ij,ij->j", ranks, weights, expected, dtype=np.float64)
        return _ratio(covariance, spread_many, _spread(n, np.einsum("ij,ij,ij->j", sizes, sizes, sizes)), floor=0.0)

    return statistic


def _as_floats(counts: Counts, kind: DTypeLike) -> Array:
    """The same numbers, as they are or in scratch."""
    if counts.dtype == kind:
        return counts
    converted = scratch("converted", counts.shape, kind)
    converted[:] = counts
    return converted


def kendall_statistic(x: Floats, y: Floats) -> Jackknifed:
    """Tau-b of every resample in O(n log d), d the distinct values of the column that has fewer of them.

    Memory: two arrays of n integers for every bit of d, and half a dozen arrays of the shape of `counts`, in float64.
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

    return Jackknifed(statistic, lambda: _ratio(*kendall_left_out(few, many), floor=0.0))


def partial_spearman_statistic(x: Floats, y: Floats, *others: Floats) -> Statistic:
    """The correlation of the ranks of x and y when those of `others` are taken out by regression.

    One column is taken out after the other: r_xy·g = (r_xy − r_xg r_yg) / √((1 − r_xg²)(1 − r_yg²)), beginning
    with Spearman's r of every two columns; that is the correlation of the residuals. NaN where a column is constant,
    or where the others explain all of x or y, so that nothing is left.

    >>> x, y, other = np.array([1.0, 2, 3, 4]), np.array([1.0, 3, 2, 4]), np.array([1.0, 2, 4, 3])
    >>> partial_spearman_statistic(x, y, other)(np.ones((4, 1))).round(6)  # (0.8 − 0.8 · 0.4) / √(0.36 · 0.84)
    array([0.872872])
    """
    columns = [x, y, *others]
    both = [(i, j) for j in range(len(columns)) for i in range(j)]
    spearman = {(i, j): spearman_statistic(columns[i], columns[j]) for i, j in both}

    def statistic(counts: Counts) -> Floats:
        r = {pair: correlation(counts) for pair, correlation in spearman.items()}
        for last in range(len(columns) - 1, 1, -1):
            r = {(i, j): _without(r[i, j], r[i, last], r[j, last]) for i, j in r if j < last}
        return r[0, 1]

    return statistic


def _without(xy: Floats, xg: Floats, yg: Floats) -> Floats:
    return _ratio(xy - xg * yg, 1.0 - xg**2, 1.0 - yg**2, floor=_EXPLAINED)


def _dense_ranks(values: Floats, name: str) -> Ints:
    """0 for the smallest value, 1 for the next one, …; equal values share a rank."""
    return np.unique(_without_nan(values, name), return_inverse=True)[1].astype(np.int64, copy=False)


def _narrow_ranks(values: Floats, name: str) -> Array:
    ranks = _dense_ranks(values, name)
    return narrow(ranks, int(ranks.max(initial=0)) + 1)


def _without_nan(values: Floats, name: str) -> Floats:
    """The column in float64; a NaN in it is a ValueError with its rows."""
    values = np.asarray(values, dtype=np.float64)
    refuse_rows(np.isnan(values), f"{name} is NaN")
    return values


def _tie_squares(codes: Ints) -> Callable[[Floats], Floats]:
    """Σ t² over the groups of equal codes, t the examples that a group has in the resample."""
    order = np.argsort(codes, kind="stable")
    last_of_tie = np.flatnonzero(np.diff(codes[order], append=-1))

    def squares(weights: Floats) -> Floats:
        tied = weights
        if len(last_of_tie) < len(order):
            tied = np.diff(running_sum(weights[order])[last_of_tie], axis=0, prepend=0.0)
        return np.asarray(np.einsum("ij,ij->j", tied, tied))

    return squares


def _inversion_levels(ranks: Ints) -> list[tuple[Ints, Ints, Ints, Ints]]:
    """Where the pairs with a larger rank before a smaller one are, one level per bit of the ranks.

    Two different ranks part at one bit, and are an inversion if the row with the 1 comes before the row with the 0. A
    level holds the rows with a 1, those with a 0, sorted by the bits above and otherwise in their order; and for each 0
    how many 1s stand before the rows that share its bits above, and before itself.
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


def _first_places(key: Ints) -> Ints:
    """For each row, where the rows with its key begin once all are sorted by key."""
    sizes = np.bincount(key)
    return np.asarray((np.cumsum(sizes) - sizes)[key])


def _inversions(weights: Floats, ones: Ints, zeros: Ints, before_group: Ints, before: Ints) -> Floats:
    """Inversions of one level in every resample: each 0 with the 1s before it among those that share its bits above."""
    up_to = np.zeros((len(ones) + 1, weights.shape[1]))
    up_to[1:] = running_sum(weights[ones])
    ones_beside = up_to[before]
    ones_beside -= up_to[before_group]
    return np.asarray(np.einsum("ij,ij->j", weights[zeros], ones_beside))


def _group_sums(codes: Array, groups: int) -> Callable[[Floats], Floats]:
    """Sums of whole numbers over the rows of each group, float64[groups, r]; of a few groups by a matrix product."""
    if groups <= _FEW_GROUPS and len(codes) <= _MANY_ROWS:
        members = (np.arange(groups)[:, None] == codes).astype(np.float32)
        return lambda rows: (members @ rows).astype(np.float64)
    if len(codes) > _MANY_ROWS:  # no second order of a million rows is held; a few resamples are in hand at a time
        return lambda rows: _binned(codes, rows, groups)
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=groups)) - 1

    def sums(rows: Floats) -> Floats:
        up_to = run_up(take_rows(rows, order, "moved"), "ranks")[ends].astype(np.float64)
        return np.diff(up_to, axis=0, prepend=0.0)

    return sums


def _binned(codes: Array, rows: Floats, groups: int) -> Floats:
    """The sums of a few columns, a part of the rows at a time where that makes no more work than the rows are."""
    sums = np.zeros((groups, rows.shape[1]))
    for part in slices(len(codes), max(_PART, groups)):
        for column, total in zip(rows[part].T, sums.T, strict=True):
            total += np.bincount(codes[part], column, minlength=groups)
    return sums


def _tie_sharing(ordered: Floats) -> Callable[[Floats, Floats, int], tuple[Floats, Floats]]:
    """Mean ranks less a half, of every example in every resample, and the sum of their squares about their mean. A
    group of t examples with p before them has the mean rank p + (t + 1) / 2."""
    starts = tie_starts(ordered)
    sizes = np.diff(starts, append=len(ordered))
    first, size = starts[sizes > 1], sizes[sizes > 1]
    members = np.repeat(first - np.cumsum(size) + size, size) + np.arange(size.sum())

    def share(weights: Floats, n: Floats, largest: int) -> tuple[Floats, Floats]:
        up_to = run_up(weights, "ranks")
        ends = up_to[first + size - 1]
        before = np.where(first[:, None] > 0, up_to[first - 1], 0.0)
        halves = np.multiply(weights, 0.5, out=scratch("moved", weights.shape, weights.dtype))
        up_to -= halves
        halves *= weights
        # Σ t³ is at most n times the square of the largest t.
        exact = np.float32 if len(weights) * largest**2 < _EXACT_IN_FLOAT32 else np.float64
        cubes = 2.0 * np.einsum("ij,ij->j", halves, weights, dtype=exact).astype(np.float64)
        if len(size):
            up_to[members] = np.repeat((before + ends) / 2, size, axis=0)
            tied, alone = (part.astype(np.float64) for part in (ends - before, weights[members]))
            cubes += (tied**3).sum(axis=0) - (alone**3).sum(axis=0)
        return up_to, _spread(n, cubes)

    return share


def _spread(n: Floats, cubes: Floats) -> Floats:
    """The sum of squared distances of mean ranks from their mean: (n³ - Σ t³) / 12 for groups of t."""
    return (n**3 - cubes) / 12


def _standard(values: Floats) -> Floats:
    """Centred and scaled, so that sums of squares lose no digits; a constant column becomes zeros."""
    values = np.asarray(values, dtype=np.float64)
    centred = values - values.mean()
    spread = _largest(centred)
    if spread > _ROUNDING * _largest(values):
        centred /= spread
    else:
        centred[:] = 0.0
    return np.asarray(centred)


def _largest(values: Floats) -> float:
    """The largest number without its sign."""
    return max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))


def _ratio(covariance: Floats, vx: Floats, vy: Floats, *, floor: float) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        r = vx * vy
        np.divide(covariance, np.sqrt(r, out=r), out=r)
    np.clip(r, -1.0, 1.0, out=r)
    r[~((vx > floor) & (vy > floor))] = np.nan
    return r
