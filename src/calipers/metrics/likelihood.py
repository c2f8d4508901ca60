"""Likelihoods per token, for one sample or for many bootstrap resamples at once.

A ratio of sums (log-likelihood over tokens) is resampled by its examples, the texts: tokens of one text are not
independent of each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.metrics.means import ratio_statistic

Floats = NDArray[np.float64]
Counts = NDArray[np.number[Any]]
Statistic = Callable[[Counts], Floats]


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
