"""Hubness: how unevenly a search spreads its results over the documents (Radovanović et al. 2010).

`found` is int64[q, k]: the documents that each query retrieves, -1 where there are fewer. The corpus is fixed and the
queries are the sample: the influence of a query is what the figure loses when it is taken away (the jackknife), which
changes the counts of k documents and is worked out for all queries at once. A bootstrap of the queries themselves
would be wrong here: a query that is drawn twice makes hubs of all that it retrieves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.metrics.geometry import Estimate

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def retrieval_counts(found: Ints, documents: int) -> Ints:
    """By how many queries each document is retrieved, int64[documents].

    >>> retrieval_counts(np.array([[0, 2], [2, -1]]), 4).tolist()
    [1, 0, 2, 0]
    """
    return np.bincount(found[found >= 0], minlength=documents)


def skewness(counts: NDArray[Any]) -> float:
    """Third standardised moment over all documents, without correction for size; NaN where all counts are equal.

    >>> round(skewness(np.array([0, 0, 0, 4])), 4)
    1.1547
    """
    c = counts.astype(np.float64)
    return float(_skewness(c.sum(), (c**2).sum(), (c**3).sum(), len(c)))


def _skewness(first: Any, second: Any, third: Any, n: int) -> Any:
    """From the sums of counts, of their squares and of their cubes."""
    mean = first / n
    variance = second / n - mean**2
    moment = third / n - 3 * mean * second / n + 2 * mean**3
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(variance > 1e-12 * (second / n), moment / np.abs(variance) ** 1.5, np.nan)


def gini(counts: NDArray[Any]) -> float:
    """Σ|cᵢ − cⱼ| / (2 n Σc): 0 where all documents are retrieved alike, near 1 where few have it all; NaN for none.

    >>> gini(np.array([0, 0, 0, 4]))
    0.75
    """
    ordered = np.sort(counts)
    n, total = len(ordered), float(ordered.sum())
    if total == 0:
        return np.nan
    return float((2 * np.arange(1, n + 1) - n - 1) @ ordered / (n * total))


def never_retrieved(counts: NDArray[Any]) -> float:
    """Share of documents that no query retrieves.

    >>> never_retrieved(np.array([0, 0, 0, 4]))
    0.75
    """
    return float((counts == 0).mean()) if len(counts) else np.nan


def chance_skewness(queries: int, k: int, documents: int) -> float:
    """The skewness of a search that retrieves k documents at random: that of a binomial count.

    A large corpus and few queries are skewed without any hub: most documents have 0 and some have 1.
    """
    share = min(k, documents) / documents
    spread = queries * share * (1 - share)
    return float((1 - 2 * share) / np.sqrt(spread)) if spread > 0 else np.nan


def hubness(found: Ints, documents: int, *, exact: bool = True) -> tuple[Estimate, Estimate, Estimate]:
    """Skewness, Gini coefficient and share never retrieved, over all documents."""
    counts = retrieval_counts(found, documents)
    own = np.where(found >= 0, counts[found], 0)  # 0 where there is no result: it changes nothing below
    there = found >= 0
    return (
        _jackknife(skewness(counts), _skewness_without(counts, own, there), exact),
        _jackknife(gini(counts), _gini_without(counts, own, there), exact),
        _jackknife(never_retrieved(counts), ((counts == 0).sum() + (own == 1).sum(axis=1)) / documents, exact),
    )


def _jackknife(value: float, without: Floats, exact: bool) -> Estimate:
    """`without` float64[q] is the figure when one query is taken away."""
    influence = (len(without) - 1) * (without.mean() - without)
    return Estimate(value, len(without), np.arange(len(without)), np.asarray(influence), exact)


def _skewness_without(counts: Ints, own: Ints, there: NDArray[np.bool_]) -> Floats:
    c = counts.astype(np.float64)
    first = c.sum() - there.sum(axis=1)
    second = (c**2).sum() - np.where(there, 2 * own - 1, 0).sum(axis=1)
    third = (c**3).sum() - np.where(there, 3 * own**2 - 3 * own + 1, 0).sum(axis=1)
    return np.asarray(_skewness(first, second, third, len(counts)))


def _gini_without(counts: Ints, own: Ints, there: NDArray[np.bool_]) -> Floats:
    """A document that goes from c to c − 1 comes 1 nearer to those below c, and 1 further from all others; two that
    had the same count and both lose one stay equal."""
    n, ordered = len(counts), np.sort(counts)
    differences = float((2 * np.arange(1, n + 1) - n - 1) @ ordered)  # Σ over i < j
    below = np.searchsorted(ordered, own)
    change = np.where(there, n - 1 - 2 * below, 0).sum(axis=1)
    row = np.sort(np.where(there, own, -1 - np.arange(own.shape[1])), axis=1)  # those missing equal nothing
    equal = sum(((row[:, step:] == row[:, :-step]).sum(axis=1) for step in range(1, row.shape[1])), np.zeros(len(row)))
    left = counts.sum() - there.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((differences + change - 2 * equal) / (n * left))


def invaded(found: Ints, documents: Ints) -> list[Ints]:
    """For each of these documents the queries that retrieve it.

    >>> [rows.tolist() for rows in invaded(np.array([[0, 2], [2, 1]]), np.array([2, 1]))]
    [[0, 1], [1]]
    """
    return [np.flatnonzero((found == document).any(axis=1)) for document in documents]
