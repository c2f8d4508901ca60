"""How close two vectors are, for the exact search: float32 proposes, float64 decides. Higher is closer."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from calipers.metrics.arrays import Array, Floats, Ints, Vectors, slices
from calipers.metrics.geometry import in_reach
from calipers.metrics.kernels import faiss_threads
from calipers.metrics.products import largest_products
from calipers.metrics.threads import permitted_threads

_CELLS = 1 << 18  # numbers of an intermediate array: 2 MB in float64, which the caches hold
_SAFE = 40  # powers of two: float32 holds products of numbers up to 2 ** 40, and of some that are down to 2 ** -40


class Measure(ABC):
    @abstractmethod
    def in_float32(self, queries: Vectors, window: Vectors, last: Floats) -> tuple[Vectors, Vectors, Floats]:
        """The same search where float32 would overflow, or numbers vanish in it: vectors times powers of two, and the
        scores to be reached, float64[q], on the scale of the proposals."""

    @abstractmethod
    def propose(self, queries: Vectors, window: Vectors, wide: int, floor: Floats) -> tuple[Vectors, Ints]:
        """Scores and documents of the best `wide` of the window, [q, wide] each, best first; those below `floor`,
        float64[q], may be missing (-inf and -1)."""

    @abstractmethod
    def score_all(self, queries: Vectors, window: Vectors) -> Vectors:
        """float32[q, n], on the same scale."""

    @abstractmethod
    def slack(self, queries: Vectors, window: Vectors) -> Floats:
        """By how much two scores of each query may be in the wrong order, float64[q]."""

    @abstractmethod
    def decide(self, documents: Floats, queries: Vectors) -> Floats:
        """The score of each pair of rows, float64[n]; `documents` may be overwritten."""

    def exact(self, queries: Vectors, window: Vectors, query: Ints, document: Ints) -> Floats:
        """float64[n], pair by pair: a sum along the row has the same order of operations wherever the row stands."""
        scores = np.empty(len(query))
        for part in slices(len(query), _CELLS // queries.shape[1]):
            scores[part] = self.decide(window[document[part]].astype(np.float64), queries[query[part]])
        return scores


def rounding(dimensions: int) -> float:
    """By how much two float32 inner products of unit vectors may be in the wrong order: each is off by at most
    d · 2⁻²⁴, times both lengths for other vectors (Higham 2002, section 3.1)."""
    return 2.0 * dimensions * 2.0**-24


class InnerProduct(Measure):
    """The inner product; of unit vectors, the cosine."""

    def in_float32(self, queries: Vectors, window: Vectors, last: Floats) -> tuple[Vectors, Vectors, Floats]:
        rows, shift = in_reach(queries)
        shift_all = _power(window)
        if max(abs(shift_all), int(np.abs(shift).max())) <= _SAFE:
            return queries, window, last
        with np.errstate(under="ignore"):
            window = np.ldexp(window, np.int32(-shift_all))
            return rows.astype(np.float32), window, np.ldexp(last, -(shift + shift_all))

    def propose(self, queries: Vectors, window: Vectors, wide: int, floor: Floats) -> tuple[Vectors, Ints]:
        below = np.nextafter(floor.astype(np.float32), np.float32(-np.inf), dtype=np.float32)
        return largest_products(queries, window, wide, above=below)

    def score_all(self, queries: Vectors, window: Vectors) -> Vectors:
        return np.asarray(queries @ window.T)

    def slack(self, queries: Vectors, window: Vectors) -> Floats:
        return np.asarray(rounding(queries.shape[1]) * np.linalg.norm(queries, axis=1) * _longest(window, 2))

    def decide(self, documents: Floats, queries: Vectors) -> Floats:
        documents *= queries
        return np.asarray(documents.sum(axis=1))


class Distance(Measure):
    """A distance with a minus. Proposals are by its `order`-th power."""

    order: int

    def in_float32(self, queries: Vectors, window: Vectors, last: Floats) -> tuple[Vectors, Vectors, Floats]:
        power = max(_power(queries), _power(window))  # one for both sides: distances are no products
        shift = power if abs(power) > _SAFE // 2 else 0
        if shift:
            with np.errstate(under="ignore"):
                queries, window = np.ldexp(queries, np.int32(-shift)), np.ldexp(window, np.int32(-shift))
        return queries, window, -(np.abs(np.ldexp(last, -shift)) ** self.order)

    def slack(self, queries: Vectors, window: Vectors) -> Floats:
        reach = np.linalg.norm(queries, ord=self.order, axis=1) + _longest(window, self.order)
        return np.asarray(2.0 * rounding(queries.shape[1]) * reach**self.order)

    def decide(self, documents: Floats, queries: Vectors) -> Floats:
        documents -= queries
        rows, power = in_reach(documents)
        return np.asarray(-np.ldexp(self.length(rows), power))

    @abstractmethod
    def length(self, rows: Floats) -> Floats:
        """The norm of each row, float64[n]."""


class Euclidean(Distance):
    """As an inner product, −|q − d|² is 2 (q·d − |d|² / 2) − |q|²: off by what its largest part is off by."""

    order = 2

    def propose(self, queries: Vectors, window: Vectors, wide: int, floor: Floats) -> tuple[Vectors, Ints]:
        ones = np.ones((len(queries), 1), np.float32)
        products, documents = largest_products(np.hstack([queries, ones]), np.hstack([window, -_halves(window)]), wide)
        return 2.0 * (products - _halves(queries)), documents

    def score_all(self, queries: Vectors, window: Vectors) -> Vectors:
        return np.asarray(2.0 * (queries @ window.T - _halves(window).T - _halves(queries)))

    def length(self, rows: Floats) -> Floats:
        return np.asarray(np.sqrt(np.square(rows).sum(axis=1)))


class Manhattan(Distance):
    order = 1

    def propose(self, queries: Vectors, window: Vectors, wide: int, floor: Floats) -> tuple[Vectors, Ints]:
        with faiss_threads(permitted_threads()) as faiss:
            distances, documents = faiss.knn(queries, window, wide, metric=faiss.METRIC_L1)
        return -distances, documents

    def score_all(self, queries: Vectors, window: Vectors) -> Vectors:
        with faiss_threads(permitted_threads()) as faiss:
            return np.asarray(-faiss.pairwise_distances(queries, window, metric=faiss.METRIC_L1))

    def length(self, rows: Floats) -> Floats:
        return np.asarray(np.abs(rows).sum(axis=1))


def _halves(rows: Vectors) -> Vectors:
    """Half of the square of each length, float32[n, 1]."""
    return np.asarray(np.einsum("ij,ij->i", rows, rows)[:, None] / np.float32(2.0))


def _power(vectors: Array) -> int:
    """The power of two above the largest number."""
    largest = np.array([[float(vectors.max()), float(-vectors.min())]])
    return int(in_reach(largest)[1][0])


def _longest(window: Vectors, order: int) -> float:
    parts = (window[rows] for rows in slices(len(window), _CELLS // window.shape[1]))
    return float(max(np.linalg.norm(part, ord=order, axis=1).max() for part in parts))


INNER_PRODUCT = InnerProduct()
# By the names that sentence-transformers gives them; for the cosine vectors are scaled to length 1 first.
MEASURES: dict[str, Measure] = {
    "cosine": INNER_PRODUCT,
    "dot": INNER_PRODUCT,
    "euclidean": Euclidean(),
    "manhattan": Manhattan(),
}
