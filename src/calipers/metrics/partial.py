"""Partial rank correlation: what two columns have to do with each other beyond what others explain of both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.metrics.correlation import spearman_statistic

Floats = NDArray[np.float64]
Counts = NDArray[np.number[Any]]
Statistic = Callable[[Counts], Floats]

_EXPLAINED = 1e-9  # of 1 − r²: less than this of a column is left by the given ones
_CELLS = 1 << 19  # rows × resamples in hand at a time: see bootstrap


def partial_spearman(x: Floats, y: Floats, *given: Floats) -> float:
    """The correlation of what is left of the ranks of x and y when those of `given` are taken out by regression.

    NaN where a column is constant, or where the given ones explain all of x or y, so that nothing is left.

    >>> x, y, given = np.array([1.0, 2, 3, 4]), np.array([1.0, 3, 2, 4]), np.array([1.0, 2, 4, 3])
    >>> round(partial_spearman(x, y, given), 6)  # (0.8 − 0.8 · 0.4) / √(0.36 · 0.84)
    0.872872
    """
    return float(partial_spearman_statistic(x, y, *given)(np.ones((len(x), 1)))[0])


def partial_spearman_statistic(x: Floats, y: Floats, *given: Floats) -> Statistic:
    """One column is taken out after the other: r_xy·g = (r_xy − r_xg r_yg) / √((1 − r_xg²)(1 − r_yg²)), beginning
    with Spearman's r of every two columns; that is the correlation of the residuals."""
    columns = [x, y, *given]
    both = [(i, j) for j in range(len(columns)) for i in range(j)]
    spearman = {(i, j): spearman_statistic(columns[i], columns[j]) for i, j in both}

    def statistic(counts: Counts) -> Floats:
        r = {pair: correlation(counts) for pair, correlation in spearman.items()}
        for last in range(len(columns) - 1, 1, -1):
            r = {(i, j): _without(r[i, j], r[i, last], r[j, last]) for i, j in r if j < last}
        return r[0, 1]

    return statistic


def _without(xy: Floats, xg: Floats, yg: Floats) -> Floats:
    left_x, left_y = 1.0 - xg**2, 1.0 - yg**2
    with np.errstate(invalid="ignore", divide="ignore"):
        r = (xy - xg * yg) / np.sqrt(left_x * left_y)
    return np.where((left_x > _EXPLAINED) & (left_y > _EXPLAINED), np.clip(r, -1.0, 1.0), np.nan)


def grouped(statistic: Statistic, group: NDArray[np.int64]) -> Statistic:
    """The statistic when groups of rows are drawn together: `counts` are then of the groups, int[g, r].

    Resamples are taken a few at a time, so that memory is bounded however many rows a group has.

    >>> ratio = grouped(lambda c: np.array([1.0, 2.0, 6.0]) @ c / c.sum(axis=0), np.array([0, 0, 1]))
    >>> ratio(np.array([[1, 1], [1, 0]]))
    array([3. , 1.5])
    """
    width = max(1, _CELLS // max(1, len(group)))

    def of_groups(counts: Counts) -> Floats:
        starts = range(0, counts.shape[1], width)
        return np.concatenate([statistic(np.asarray(counts[:, i : i + width])[group]) for i in starts])

    return of_groups
