"""The figures of the method, as plain numpy written from their definitions alone: no function of the package, float64,
every pair in one matrix. Vectors are float[n, d] of any length; results are rows of documents, best first."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
K = 10


def unit(vectors: Array) -> Array:
    wide = np.asarray(vectors, np.float64)
    return np.asarray(wide / np.linalg.norm(wide, axis=1, keepdims=True))


def squared_distances(left: Array, right: Array) -> Array:
    """Of every row with every row, by differences: no digit is lost where two are close."""
    return np.array([np.square(right - row).sum(axis=1) for row in left])


def top(queries: Array, documents: Array, k: int = K) -> Array:
    return np.asarray(np.argsort(-(unit(queries) @ unit(documents).T), axis=1, kind="stable")[:, :k])


def alignment(left: Array, right: Array, alpha: float = 2.0) -> float:
    return float((np.linalg.norm(unit(left) - unit(right), axis=1) ** alpha).mean())


def uniformity(documents: Array, t: float = 2.0) -> float:
    apart = squared_distances(unit(documents), unit(documents))
    return float(np.log(np.exp(-t * apart[np.triu_indices(len(apart), 1)]).mean()))


def anisotropy(documents: Array) -> float:
    cosines = unit(documents) @ unit(documents).T
    n = len(cosines)
    return float((cosines.sum() - np.trace(cosines)) / (n * (n - 1)))


def two_nn(documents: Array) -> float:
    """Over distinct vectors: a copy has no first neighbour to divide by."""
    distinct = np.unique(unit(documents).astype(np.float32), axis=0).astype(np.float64)
    apart = np.sqrt(squared_distances(distinct, distinct))
    np.fill_diagonal(apart, np.inf)
    first, second = np.sort(apart, axis=1)[:, :2].T
    return float(len(distinct) / np.log(second / first).sum())


def retrieved(results: Array, documents: int) -> Array:
    return np.array([(results == document).sum() for document in range(documents)], np.float64)


def skewness(counts: Array) -> float:
    moved = counts - counts.mean()
    return float((moved**3).mean() / (moved**2).mean() ** 1.5)


def gini(counts: Array) -> float:
    return float(np.abs(counts[:, None] - counts[None, :]).sum() / (2 * len(counts) * counts.sum()))


def churn(results: Array, others: Array) -> float:
    """The share of queries of which more than half of the first K are altered."""
    stay = [len(set(one) & set(other)) for one, other in zip(results.tolist(), others.tolist(), strict=True)]
    return float(np.mean([count < results.shape[1] / 2 for count in stay]))


def zero_recall(results: Array, ids: Sequence[str], qrels: Sequence[Mapping[str, float]]) -> float:
    """Over the queries that have a right item."""
    judged = [(row, grades) for row, grades in zip(results.tolist(), qrels, strict=True) if max(grades.values()) >= 1]
    return float(np.mean([all(grades.get(ids[document], 0) < 1 for document in row) for row, grades in judged]))


def rank_reversal(results: Array, ids: Sequence[str], qrels: Sequence[Mapping[str, float]]) -> float:
    """Of the queries that show an accessory (ESCI, 1) and a main product (3): an accessory stands above."""
    reversed_ = []
    for row, grades in zip(results.tolist(), qrels, strict=True):
        shown = [grades.get(ids[document]) for document in row]
        if 1 in shown and 3 in shown:
            reversed_.append(shown.index(1) < shown.index(3))
    return float(np.mean(reversed_))


def int8(documents: Array, vectors: Array) -> Array:
    """256 even levels of each dimension between the 0.1 and the 99.9 percentile of the corpus."""
    low, high = np.percentile(unit(documents), [0.1, 99.9], axis=0)
    step = (high - low) / 255
    return np.asarray(np.clip(np.rint((unit(vectors) - low) / step), 0, 255) * step + low)


def stability(vectors: Array, stored: Array) -> Array:
    """G_q of each query."""
    return np.asarray((unit(vectors) * unit(stored)).sum(axis=1))


def density(results: Array, documents: Array) -> Array:
    """I_q of each query: the mean cosine of two of its K nearest."""
    means = []
    for row in results:
        cosines = unit(documents[row]) @ unit(documents[row]).T
        means.append(cosines[np.triu_indices(len(row), 1)].mean())
    return np.array(means)


def reliability(g: Array, i: Array) -> Array:
    """R_q of each query."""
    return np.asarray(2 * g * i / (g + i))


def bigrams(text: str) -> set[str]:
    plain = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return {plain[i : i + 2] for i in range(len(plain) - 1)}


def semantic_gap(queries: Sequence[str], titles: Sequence[str], query_vectors: Array, document_vectors: Array) -> float:
    """The mean over pairs, one query and one product each."""
    sets = [(bigrams(query), bigrams(title)) for query, title in zip(queries, titles, strict=True)]
    lexical = np.array([len(a & b) / len(a | b) for a, b in sets])
    cosine = (unit(query_vectors) * unit(document_vectors)).sum(axis=1)
    return float(np.abs(lexical - cosine).mean())
