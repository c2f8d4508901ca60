"""The largest inner products of queries with rows, as fast as the machine multiplies matrices.

Every thread multiplies its own queries with a block of rows and compares the result with the k-th best so far: nearly
all of it falls below and is never sorted. The products are numpy's, or PyTorch's where it is loaded and faster, which a
product of some milliseconds decides. FAISS's are not used: the OpenBLAS in its package does not recognise processors
that are newer than itself and falls back to SSE3, at a tenth of the rate.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np

from calipers.metrics.arrays import Ints, Vectors, slices
from calipers.metrics.threads import one_thread_each, permitted_threads

Product = Callable[[Vectors, Vectors, Vectors], object]  # queries [q, d], rows [n, d], result [q, n]

_QUERIES = 1_024  # of one product at most: a block of rows is arranged anew for each
_CELLS = 1 << 19  # numbers of one product: 2 MB, which the caches hold
_PROBE = (256, 2_048, 128)  # queries, rows and dimensions of the product that chooses a library: 0.13 GFLOP


def largest_products(
    queries: Vectors, rows: Vectors, k: int, *, above: Vectors | None = None, threads: int | None = None
) -> tuple[Vectors, Ints]:
    """The k largest inner products of each query, float32[q, k], and their rows, int64[q, k], best first; of equal
    numbers the earlier rows. k is at most the number of rows. Memory: some MB a thread, and 24 bytes a result.

    `above` float32[q] is what a product must exceed, such as the k-th best of rows that were searched before; -inf and
    -1 stand where fewer do.

    >>> scores, places = largest_products(np.eye(2, dtype=np.float32), np.eye(2, dtype=np.float32)[::-1].copy(), 1)
    >>> scores.tolist(), places.tolist()
    ([[1.0], [1.0]], [[1], [0]])
    """
    scores, places = np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.int64)
    threads = threads or permitted_threads()
    multiply = fastest_product("torch" in sys.modules)
    least = np.full(len(queries), -np.inf, np.float32) if above is None else above

    def work(part: slice) -> None:
        scores[part], places[part] = _search(queries[part], rows, k, least[part], multiply)

    several = threads * -(-len(queries) // (threads * _QUERIES))  # as many for each thread
    parts = list(slices(len(queries), -(-len(queries) // max(1, several))))
    with one_thread_each(), ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, parts))
    return scores, places


def _search(queries: Vectors, rows: Vectors, k: int, above: Vectors, multiply: Product) -> tuple[Vectors, Ints]:
    width = max(8, _CELLS // len(queries) // 8 * 8)
    best = _Best(above[:, None], k, width)
    result = np.empty((len(queries), width), np.float32)
    for part in slices(len(rows), width):
        block = rows[part]
        values = result if len(block) == width else np.empty((len(queries), len(block)), np.float32)
        multiply(queries, block, values)
        best.add(values, part.start)
    return best.in_order()


class _Best:
    """The best numbers of each query so far: k of them, and those that came since they were last cut to k."""

    def __init__(self, least: Vectors, k: int, width: int) -> None:
        queries = len(least)
        self.k, self.spare = k, max(k, 64)
        self.scores = np.full((queries, k + self.spare), -np.inf, np.float32)
        self.places = np.full((queries, k + self.spare), -1, np.int64)
        self.filled = np.zeros(queries, np.int64)
        self.last = self.least = least  # the k-th best when they were cut
        self.above = np.zeros((queries, width), np.bool_)

    def add(self, values: Vectors, start: int) -> None:
        """Numbers of consecutive rows from `start` on, [q, n]."""
        query, column = self._above(values)
        counts = np.bincount(query, minlength=len(self.filled))
        if counts.max() > self.spare:
            rows = np.broadcast_to(np.arange(start, start + values.shape[1]), values.shape)
            exceeds = values > self.least
            values, rows = np.where(exceeds, values, -np.inf), np.where(exceeds, rows, -1)
            self._cut(np.hstack([self.scores, values]), np.hstack([self.places, rows]))
            return
        if (self.filled + counts).max() > self.k + self.spare:
            self._cut(self.scores, self.places)
        place = self.filled[query] + np.arange(len(query)) - (np.cumsum(counts) - counts)[query]
        self.scores[query, place] = values[query, column]
        self.places[query, place] = start + column
        self.filled += counts

    def in_order(self) -> tuple[Vectors, Ints]:
        self._cut(self.scores, self.places)
        scores, places = self.scores[:, : self.k], self.places[:, : self.k]
        order = np.lexsort((places, -scores), axis=1)
        return np.take_along_axis(scores, order, axis=1), np.take_along_axis(places, order, axis=1)

    def _above(self, values: Vectors) -> tuple[Ints, Ints]:
        """Where numbers are above the k-th best, in the order of queries. Eight comparisons are looked at together,
        since nearly all fail."""
        width = self.above.shape[1]
        self.above[:, values.shape[1] :] = False
        np.greater(values, self.last, out=self.above[:, : values.shape[1]])
        eights = np.flatnonzero(self.above.reshape(-1).view(np.uint64))
        which, place = np.nonzero(self.above.reshape(-1, 8)[eights])
        return np.divmod(eights[which] * 8 + place, width)

    def _cut(self, scores: Vectors, places: Ints) -> None:
        """Keep the k best; of those that equal the last, the earlier ones."""
        k = self.k
        last = -np.partition(-scores, k - 1, axis=1)[:, k - 1 : k]
        chosen = scores > last
        equal = scores == last
        chosen |= equal & (np.cumsum(equal, axis=1) <= k - chosen.sum(axis=1, keepdims=True))
        self.scores[:, :k], self.places[:, :k] = scores[chosen].reshape(-1, k), places[chosen].reshape(-1, k)
        self.scores[:, k:] = -np.inf
        self.filled[:], self.last = k, np.maximum(last, self.least)


@cache
def fastest_product(with_torch: bool) -> Product:
    """numpy's product, or PyTorch's where that is faster on this machine by more than the noise of the probe."""
    if not with_torch or sys.modules["torch"].get_float32_matmul_precision() != "highest":
        return numpy_product
    queries, rows, dimensions = _PROBE
    sides = np.ones((queries, dimensions), np.float32), np.ones((rows, dimensions), np.float32)
    result = np.empty((queries, rows), np.float32)
    with one_thread_each():
        seconds = {product: _best_time(product, *sides, result) for product in (numpy_product, torch_product)}
    return torch_product if seconds[torch_product] < 0.9 * seconds[numpy_product] else numpy_product


def _best_time(product: Product, queries: Vectors, rows: Vectors, result: Vectors) -> float:
    times = []
    for _ in range(4):
        start = time.perf_counter()
        product(queries, rows, result)
        times.append(time.perf_counter() - start)
    return min(times[1:])


def numpy_product(queries: Vectors, rows: Vectors, result: Vectors) -> None:
    np.matmul(queries, rows.T, out=result)


def torch_product(queries: Vectors, rows: Vectors, result: Vectors) -> None:
    torch: Any = sys.modules["torch"]
    if not (queries.flags.writeable and rows.flags.writeable):  # of these PyTorch warns
        numpy_product(queries, rows, result)
        return
    torch.mm(torch.from_numpy(queries), torch.from_numpy(rows).T, out=torch.from_numpy(result))
