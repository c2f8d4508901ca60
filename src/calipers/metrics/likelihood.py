"""Likelihoods per token, for one sample or for many bootstrap resamples at once.

A ratio of sums (log-likelihood over tokens) is resampled by its examples, the texts: tokens of one text are not
independent of each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.integer[Any]]
Statistic = Callable[[Counts], Floats]


def ratio_statistic(part: NDArray[Any], whole: NDArray[Any]) -> Statistic:
    """Σ part / Σ whole over the examples of each resample; NaN where the whole is 0.

    >>> ratio_statistic(np.array([1, 2]), np.array([4, 4]))(np.array([[1, 2], [1, 0]]))
    array([0.375, 0.25 ])
    """
    part, whole = np.asarray(part, np.float64), np.asarray(whole, np.float64)

    def statistic(counts: Counts) -> Floats:
        weights = counts.astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            found = np.einsum("i,ij->j", part, weights) / np.einsum("i,ij->j", whole, weights)
        return np.where(np.isfinite(found), found, np.nan)

    return statistic


def perplexity_statistic(log_likelihood: NDArray[Any], tokens: NDArray[Any]) -> Statistic:
    """exp(-Σ log-likelihood / Σ tokens): 1 is certainty, the size of the vocabulary is a blind guess.

    >>> perplexity_statistic(np.log([0.25, 0.25]), np.array([1, 1]))(np.array([[1], [1]]))
    array([4.])
    """
    nll = ratio_statistic(-np.asarray(log_likelihood), tokens)

    def statistic(counts: Counts) -> Floats:
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(nll(counts)))

    return statistic
