"""Weighted sums of two columns, of their squares and of their products, for many resamples at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from calipers.metrics.arrays import Counts, Floats, slices

_ROWS = 1 << 15  # in hand at a time


def moment_sums(x: Floats, y: Floats) -> Callable[[Counts], Floats]:
    """Counts, int[n, r], to Σ x, Σ y, Σ x², Σ x y and Σ y² over the examples as often as they count, float64[5, r].

    One matrix product. Of many examples the squares and products are made anew, some rows at a time: two columns of a
    million are held, not five.

    >>> moment_sums(np.array([1.0, 2.0]), np.array([3.0, 5.0]))(np.array([[1], [2]])).ravel()
    array([ 5., 13.,  9., 23., 59.])
    """
    return moment_sums_of(lambda part: (x[part], y[part]), len(x))


def moment_sums_of(columns: Callable[[slice], tuple[Floats, Floats]], size: int) -> Callable[[Counts], Floats]:
    """The same of columns that are made anew, too, from what is held anyway."""
    if size <= _ROWS:
        rows = _terms(*columns(slice(size)))
        return lambda counts: rows @ np.asarray(counts, np.float64)

    def sums(counts: Counts) -> Floats:
        total = np.zeros((5, counts.shape[1]))
        for part in slices(size, _ROWS):
            total += _terms(*columns(part)) @ np.asarray(counts[part], np.float64)
        return total

    return sums


def _terms(x: Floats, y: Floats) -> Floats:
    return np.stack([x, y, x * x, x * y, y * y])
