"""How close two vectors are, for the exact search: float32 proposes, float64 decides. Higher is closer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from calipers.metrics.arrays import Array, Floats, Ints, Vectors, slices
from calipers.metrics.geometry import in_reach
from calipers.metrics.kernels import faiss_threads
from calipers.metrics.products import largest_products
from calipers.metrics.threads import on_threads, permitted_threads

_CELLS = 1 << 17  # numbers of an intermediate array: 1 MB in float64, which the caches hold
_ROWS_AT_ONCE = 4_096  # whose lengths a thread takes
_SAFE = 40  # powers of two: float32 holds products of numbers up to 2 ** 40, and of some that are down to 2 ** -40


@dataclass(frozen=True, eq=False)
class Proposals:
    """What float32 proposes for each query in a window: scores and documents [q, several], best first; those below what
    is to be reached may be missing (-inf and -1).

    `queries` and `window` are times powers of two, where float32 would overflow or lose their numbers. `last`
    float64[q] are the scores to be reached on the scale of the proposals, `slack` float64[q] by how much two of these
    may be in the wrong order."""

    queries: Vectors
    window: Vectors
    last: Floats
    slack: Floats
    scores: Vectors
    documents: Ints


class Measure(ABC):
    @abstractmethod
    def propose(self, queries: Vectors, window: Vectors, last: Floats, wide: int) -> Proposals:
        """The best `wide` documents of the window; `last` float64[q] are the scores to be reached."""

    @abstractmethod
    def score_all(self, queries: Vectors, window: Vectors) -> Vectors:
        """float32[q, n], on the same scale."""

    @abstractmethod
    def decide(self, documents: Floats, queries: Floats) -> Floats:
        """The score of each pair of rows, float64[n]; `documents` may be overwritten."""

    def exact(self, queries: Vectors, window: Vectors, query: Ints, document: Ints) -> Floats:
        """float64[n], pair by pair: a sum along the row has the same order of operations wherever the row stands. The
        memory between is used again: fresh pages cost as much as the sums."""
        step = max(1, min(len(query), _CELLS // queries.shape[1]))
        single = np.empty((step, queries.shape[1]), np.float32)
        documents, askers, exact_queries = *np.empty((2, *single.shape)), queries.astype(np.float64)
        scores = np.empty(len(query))
        for part in slices(len(query), step):
            size = len(query[part])
            documents[:size] = np.take(window, document[part], axis=0, out=single[:size], mode="clip")
            np.take(exact_queries, query[part], axis=0, out=askers[:size], mode="clip")
            scores[part] = self.decide(documents[:size], askers[:size])
        return scores


def rounding(dimensions: int) -> float:
    """By how much two float32 inner products of unit vectors may be in the wrong order: each is off by at most
    d · 2⁻²⁴, times both lengths for other vectors (Higham 2002, section 3.1)."""
    return 2.0 * dimensions * 2.0**-24


class InnerProduct(Measure):
    """The inner product; of unit vectors, the cosine."""

    def propose(self, queries: Vectors, window: Vectors, last: Floats, wide: int) -> Proposals:
        with np.errstate(over="ignore", invalid="ignore"):  # then longest is inf
            proposals, longest = self._largest(queries, window, last, wide)
        if _is_moderate(_lengths(queries, 2), queries, _SAFE) and _is_moderate(longest, window, _SAFE):
            return proposals
        scaled = self._scale(queries, window, last)
        return proposals if scaled is None else self._largest(*scaled, wide)[0]

    @staticmethod
    def _largest(queries: Vectors, window: Vectors, last: Floats, wide: int) -> tuple[Proposals, float]:
        margin = rounding(queries.shape[1]) * _lengths(queries, 2)
        below = np.nextafter(last, -np.inf)  # what equals the last one ties with it
        scores, documents, longest = largest_products(queries, window, wide, above=below, margin=margin)
        return Proposals(queries, window, last, margin * longest, scores, documents), longest

    @staticmethod
    def _scale(queries: Vectors, window: Vectors, last: Floats) -> tuple[Vectors, Vectors, Floats] | None:
        rows, shift = in_reach(queries)
        shift_all = _power(window)
        if max(abs(shift_all), int(np.abs(shift).max())) <= _SAFE:
            return None
        with np.errstate(under="ignore"):
            window = np.ldexp(window, np.int32(-shift_all))
            return rows.astype(np.float32), window, np.ldexp(last, -(shift + shift_all))

    def score_all(self, queries: Vectors, window: Vectors) -> Vectors:
        return np.asarray(queries @ window.T)

    def decide(self, documents: Floats, queries: Floats) -> Floats:
        return np.asarray(np.einsum("ij,ij->i", documents, queries))


class Distance(Measure):
    """A distance with a minus. Proposals are by its `order`-th power."""

    order: int

    def propose(self, queries: Vectors, window: Vectors, last: Floats, wide: int) -> Proposals:
        power = max(_power(queries), _power(window))  # one for both sides: distances are no products
        shift = power if abs(power) > _SAFE // 2 else 0
        if shift:
            with np.errstate(under="ignore"):
                queries, window = np.ldexp(queries, np.int32(-shift)), np.ldexp(window, np.int32(-shift))
        reach = _lengths(queries, self.order) + _longest(window, self.order)
        slack = 2.0 * rounding(queries.shape[1]) * reach**self.order
        reached = -(np.abs(np.ldexp(last, -shift)) ** self.order)
        return Proposals(queries, window, reached, slack, *self.closest(queries, window, wide))

    @abstractmethod
    def closest(self, queries: Vectors, window: Vectors, wide: int) -> tuple[Vectors, Ints]:
        """Scores and documents of the best `wide`, [q, wide] each, best first."""

    def decide(self, documents: Floats, queries: Floats) -> Floats:
        documents -= queries
        rows, power = in_reach(documents)
        return np.asarray(-np.ldexp(self.length(rows), power))

    @abstractmethod
    def length(self, rows: Floats) -> Floats:
        """The norm of each row, float64[n]."""


class Euclidean(Distance):
    """As an inner product, −|q − d|² is 2 (q·d − |d|² / 2) − |q|²: off by what its largest part is off by."""

    order = 2

    def closest(self, queries: Vectors, window: Vectors, wide: int) -> tuple[Vectors, Ints]:
        ones = np.ones((len(queries), 1), np.float32)
        largest = largest_products(np.hstack([queries, ones]), np.hstack([window, -_halves(window)]), wide)
        return 2.0 * (largest.scores - _halves(queries)), largest.places

    def score_all(self, queries: Vectors, window: Vectors) -> Vectors:
        return np.asarray(2.0 * (queries @ window.T - _halves(window).T - _halves(queries)))

    def length(self, rows: Floats) -> Floats:
        return np.asarray(np.sqrt(np.square(rows).sum(axis=1)))


class Manhattan(Distance):
    order = 1

    def closest(self, queries: Vectors, window: Vectors, wide: int) -> tuple[Vectors, Ints]:
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
    parts = list(slices(len(window), _ROWS_AT_ONCE))
    return float(max(on_threads(lambda part: _lengths(window[part], order).max(), parts, permitted_threads())))


def _lengths(rows: Vectors, order: int) -> Floats:
    """float64[n] of sums in float32: inf where these overflow."""
    with np.errstate(over="ignore"):
        sums = np.sqrt(np.einsum("ij,ij->i", rows, rows)) if order == 2 else np.abs(rows).sum(axis=1)
    return np.asarray(sums, np.float64)


def _is_moderate(lengths: Floats | float, rows: Vectors, power: int) -> bool:
    """Whether the largest number of rows with such lengths is certainly between 2⁻ᵖ and 2ᵖ; no number is larger than
    the length of its row, and the largest one is no smaller than a share of it."""
    return bool(np.max(lengths) < 2.0**power and np.min(lengths) > rows.shape[1] * 2.0**-power)


INNER_PRODUCT = InnerProduct()
# By the names that sentence-transformers gives them; for the cosine vectors are scaled to length 1 first.
MEASURES: dict[str, Measure] = {
    "cosine": INNER_PRODUCT,
    "dot": INNER_PRODUCT,
    "euclidean": Euclidean(),
    "manhattan": Manhattan(),
}
