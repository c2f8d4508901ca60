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
Counts = NDArray[np.integer[Any]]
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


def pearson_statistic(x: Floats, y: Floats) -> Statistic:
    """Every sum of a resample is one weighted sum over the examples."""
    x, y = _standard(x), _standard(y)
    # einsum and not matmul: the resamples already run on every core, and BLAS threads would only get in the way.
    terms = np.stack([x, y, x * x, y * y, x * y])

    def statistic(counts: Counts) -> Floats:
        n = counts.sum(axis=0, dtype=np.float64)
        weights = counts.astype(np.float64)
        mx, my, xx, yy, xy = (np.einsum("i,ij->j", term, weights) / n for term in terms)
        return _ratio(xy - mx * my, xx - mx**2, yy - my**2, floor=_ROUNDING)

    return statistic


def spearman_statistic(x: Floats, y: Floats) -> Statistic:
    """Memory: half a dozen arrays of the shape of `counts`, in float64."""
    rank_x, rank_y = _rank_statistic(x), _rank_statistic(y)

    def statistic(counts: Counts) -> Floats:
        weights = counts.astype(np.float64)
        rx, spread_x = rank_x(weights)
        ry, spread_y = rank_y(weights)
        return _ratio(np.einsum("ij,ij,ij->j", weights, rx, ry), spread_x, spread_y, floor=0.0)

    return statistic


def _rank_statistic(values: Floats) -> Callable[[Floats], tuple[Floats, Floats]]:
    """Mean ranks less their mean, of every example in every resample, and the sum of their squares."""
    values = np.asarray(values, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    last_of_tie = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
    group = np.searchsorted(ordered[last_of_tie], values)

    def ranks(weights: Floats) -> tuple[Floats, Floats]:
        up_to = _running_sum(weights[order])[last_of_tie]
        n = up_to[-1].copy()
        tied = np.diff(up_to, axis=0, prepend=0.0)
        # A tie group of t examples, the last of them in place p, has the mean rank p - (t - 1) / 2; the mean of all
        # ranks is (n + 1) / 2, and the sum of their squared distances from it (n³ - Σ t³) / 12, whatever the ties.
        spread = (n**3 - np.einsum("ij,ij,ij->j", tied, tied, tied)) / 12
        tied *= 0.5
        up_to -= tied
        up_to -= n / 2
        return up_to[group], spread

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


def _once(statistic: Statistic, examples: int) -> float:
    return float(statistic(np.ones((examples, 1), dtype=np.int64))[0])
