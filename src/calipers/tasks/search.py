"""Exact search: the documents with the highest inner product, in an amount of memory that a window bounds.

FAISS finds candidates in float32; which of them are the best, and in which order, is decided by their inner products
in float64. Equal vectors therefore tie exactly, ties are broken by the order of the documents (the earlier one
first), and neither the size of a window nor the number of threads changes a result.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from calipers.core import SILENT, ModelInfo, Progress

Floats = NDArray[np.float64]
Vectors = NDArray[np.float32]
Ints = NDArray[np.int64]

WINDOW = 50_000  # documents whose vectors are in hand at a time
_SPARE = 28  # candidates beyond k, so that those that differ by rounding from the last one are among them
_CELLS = 1 << 22  # numbers of an intermediate array: 16 MB in float32, 32 MB in float64


class Retriever(Protocol):
    """A model that searches by itself, such as BM25."""

    @property
    def info(self) -> ModelInfo: ...

    def search(
        self, queries: Any, documents: Any, k: int, *, progress: Progress = SILENT
    ) -> tuple[NDArray[np.float32], Ints]:
        """Scores float32[q, k] and documents int64[q, k], best first; -1 stands where there is no further document."""
        ...


@dataclass(frozen=True, eq=False)
class Hits:
    """What a search found: the results of query i are offsets[i]:offsets[i + 1], best first.

    `documents` int64[n] are rows of the corpus, `scores` float64[n] fall within a query.
    """

    offsets: Ints
    documents: Ints
    scores: Floats

    @property
    def queries(self) -> Ints:
        """The query of each result, int64[n]."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    @property
    def ranks(self) -> Ints:
        """1 for the best result of its query, int64[n].

        >>> Hits(np.array([0, 2, 2, 3]), np.array([4, 1, 0]), np.array([2.0, 1.0, 5.0])).ranks
        array([1, 2, 1])
        """
        return np.arange(len(self.documents)) - self.offsets[:-1][self.queries] + 1


@dataclass(frozen=True, eq=False)
class Judgements:
    """All grades of all queries: `query` int64[j] ascending, `document` int64[j] (a row of the corpus, -1 if it is not
    there), `grade` float64[j] from 0 up (TREC's negative grades are 0)."""

    query: Ints
    document: Ints
    grade: Floats
    queries: int
    documents: int

    def look_up(self, query: Ints, document: Ints) -> Floats:
        """The grade of each pair, NaN where it has none."""
        known = self.document >= 0
        keys = self.query[known] * self.documents + self.document[known]
        order = np.argsort(keys)
        keys, grades = np.append(keys[order], -1), np.append(self.grade[known][order], np.nan)
        asked = query * self.documents + document
        place = np.searchsorted(keys[:-1], asked)
        return np.where(keys[place] == asked, grades[place], np.nan)


def from_table(scores: NDArray[Any], documents: NDArray[Any]) -> Hits:
    """[q, k] arrays, -1 where there is no document, to ragged ones.

    >>> from_table(np.array([[3.0, 1.0], [2.0, 0.0]]), np.array([[7, 5], [6, -1]])).offsets
    array([0, 2, 3])
    """
    found = documents >= 0
    offsets = np.concatenate([[0], np.cumsum(found.sum(axis=1))])
    return Hits(offsets, documents[found].astype(np.int64), scores[found].astype(np.float64))


def sort_hits(query: Ints, document: Ints, score: Floats, *, queries: int, k: int | None = None) -> Hits:
    """Loose results to Hits: best first, among equals the earlier document; the first k of each query."""
    order = np.lexsort((document, -score, query))
    hits = Hits(np.searchsorted(query[order], np.arange(queries + 1)), document[order], score[order])
    if k is None:
        return hits
    kept = hits.ranks <= k
    offsets = np.concatenate([[0], np.cumsum(kept)])[hits.offsets]
    return Hits(offsets, hits.documents[kept], hits.scores[kept])


def exact_search(queries: Vectors, windows: Iterable[NDArray[Any]], k: int) -> tuple[Floats, Ints]:
    """The k documents with the highest inner product for each query, best first.

    queries float32[q, d]; windows float32[n, d], any number of them, together the corpus in its order; all finite.
    Returns scores float64[q, m] and documents int64[q, m], with m = k or the documents there are. Memory: one window
    (none, where it is a view of a mapped file), q × k results, and about 100 MB.

    >>> exact_search(np.eye(2, dtype=np.float32), [np.eye(2), np.ones((2, 2))], 3)[1]
    array([[0, 2, 3],
           [1, 2, 3]])
    """
    queries = np.ascontiguousarray(queries, dtype=np.float32)
    nothing = np.empty(0, np.int64)
    best = Hits(np.zeros(len(queries) + 1, np.int64), nothing, np.empty(0))
    seen = 0
    for given in windows:
        window = np.ascontiguousarray(given, dtype=np.float32)
        query, document = _candidates(queries, window, k, _last_scores(best, k))
        score = _inner_products(queries, window, query, document)
        best = sort_hits(
            np.concatenate([best.queries, query]),
            np.concatenate([best.documents, document + seen]),
            np.concatenate([best.scores, score]),
            queries=len(queries),
            k=k,
        )
        seen += len(window)
    shape = (len(queries), min(k, seen))
    return best.scores.reshape(shape), best.documents.reshape(shape)


def _last_scores(best: Hits, k: int) -> Floats:
    """The score that a further document must reach, float64[q]: that of the k-th result, if there are so many."""
    full = np.diff(best.offsets) == k
    last = np.full(len(full), -np.inf)
    last[full] = best.scores[best.offsets[1:][full] - 1]
    return last


def _candidates(queries: Vectors, window: Vectors, k: int, last: Floats) -> tuple[Ints, Ints]:
    """Every (query, document of the window) that may be among the k best, for all that float32 can tell.

    A float32 inner product of d terms is off by at most d · 2⁻²⁴ · |q| · |x| (Higham 2002, section 3.1); both the
    candidate and the one that it competes with may be.
    """
    import faiss

    asked = min(k + _SPARE, len(window))
    if asked == 0 or len(queries) == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    scores, documents = faiss.knn(queries, window, asked, metric=faiss.METRIC_INNER_PRODUCT)
    longest = np.sqrt(max(np.einsum("ij,ij->i", part, part).max() for part in _parts(window)))
    slack = 2.0 * queries.shape[1] * 2.0**-24 * np.linalg.norm(queries, axis=1) * longest
    floor = (np.maximum(last, scores[:, k - 1]) if len(window) >= k else last) - slack
    near = scores >= floor[:, None]
    crowded = near[:, -1] & (asked < len(window))  # there may be more that are as good as the last one asked for
    near[crowded] = False
    query, place = np.nonzero(near)
    more = _scan(queries, window, np.flatnonzero(crowded), floor)
    return np.concatenate([query, more[0]]), np.concatenate([documents[query, place].astype(np.int64), more[1]])


def _parts(window: Vectors) -> list[Vectors]:
    rows = max(1, _CELLS // window.shape[1])
    return [window[start : start + rows] for start in range(0, len(window), rows)]


def _scan(queries: Vectors, window: Vectors, rows: Ints, floor: Floats) -> tuple[Ints, Ints]:
    """The same for queries at whose cut many documents tie: all documents of the window above the floor."""
    step = max(1, _CELLS // max(1, len(window)))
    query, document = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for start in range(0, len(rows), step):
        some = rows[start : start + step]
        which, found = np.nonzero(queries[some] @ window.T >= floor[some, None])
        query.append(some[which])
        document.append(found)
    return np.concatenate(query), np.concatenate(document)


def _inner_products(queries: Vectors, window: Vectors, query: Ints, document: Ints) -> Floats:
    """float64[n], pair by pair: a sum along the row has the same order of operations wherever the row stands."""
    scores = np.empty(len(query))
    step = max(1, _CELLS // queries.shape[1])
    for start in range(0, len(query), step):
        part = slice(start, start + step)
        products = window[document[part]].astype(np.float64)
        products *= queries[query[part]]
        scores[part] = products.sum(axis=1)
    return scores
