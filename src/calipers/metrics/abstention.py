"""What abstaining by a confidence is worth, by the definition that mteb publishes figures of (Gisserot-Boukhlef et al.
2024): the mean quality of what is kept while 0 to 90 % of the queries are given up, the least confident first.
"""

from __future__ import annotations

import numpy as np

from calipers.metrics.arrays import Array, Floats

_RATES = np.linspace(0, 1, 11)[:-1]


def abstention_curve(confidence: Array, quality: Array) -> Floats:
    """The mean quality of the kept queries at each share given up, float64[10]. Queries of the same confidence count
    with their mean: which of them a cut keeps is chance."""
    n = len(confidence)
    ordered = np.sort(confidence)
    _, group = np.unique(confidence, return_inverse=True)
    means = np.bincount(group, np.asarray(quality, np.float64)) / np.bincount(group)
    kept = means[np.unique(ordered, return_inverse=True)[1]]
    return np.array([kept[min(round(rate * n), n - 1) :].mean() for rate in _RATES])


def nauc(confidence: Array, quality: Array) -> float:
    """The area under that curve between a flat one (0) and the oracle's (1), who gives up the worst first. NaN where
    the oracle's is flat.

    >>> round(nauc(np.arange(10.0), np.arange(10.0)), 6), nauc(np.arange(4), np.ones(4))
    (1.0, nan)
    """
    if not len(quality):
        return float("nan")
    own, oracle = (np.trapezoid(abstention_curve(x, quality), _RATES) for x in (confidence, quality))
    flat = float((_RATES[-1] - _RATES[0]) * np.mean(quality))
    return float((own - flat) / (oracle - flat)) if oracle - flat > 1e-12 else float("nan")
