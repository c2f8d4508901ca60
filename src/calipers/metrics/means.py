"""Sums and means over examples, for one sample or for many bootstrap resamples at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.number[Any]]
Statistic = Callable[[Counts], Floats]


def ratio_statistic(part: NDArray[Any], whole: NDArray[Any]) -> Statistic:
    """Σ part / Σ whole over the examples of each resample; NaN where the whole is 0.

    >>> ratio_statistic(np.array([1, 2]), np.array([4, 4]))(np.array([[1, 2], [1, 0]]))
    array([0.375, 0.25 ])
    """
    part, whole = np.asarray(part, np.float64), np.asarray(whole, np.float64)

    def statistic(counts: Counts) -> Floats:
        weights = np.asarray(counts, dtype=np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            found = np.einsum("i,ij->j", part, weights) / np.einsum("i,ij->j", whole, weights)
        return np.where(np.isfinite(found), found, np.nan)

    return statistic


def mean_statistic(values: NDArray[Any]) -> Statistic:
    """The mean over the examples for which there is a value: NaN is left out, and all NaN is NaN.

    >>> mean_statistic(np.array([1.0, np.nan, 3.0]))(np.array([[1], [5], [1]]))
    array([2.])
    """
    known = np.isfinite(values)
    return ratio_statistic(np.where(known, values, 0.0), known)
