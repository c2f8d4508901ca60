"""The largest inner products of queries with rows, as fast as the machine multiplies matrices.

Every thread multiplies blocks of rows with its own queries and compares the result with the k-th best so far: nearly
all of it falls below and is never sorted. The products are numpy's, or PyTorch's where that is loaded and numpy has a
generic kernel. FAISS's are not used: the OpenBLAS in its package does not recognise processors that are newer than
itself and falls back to SSE3, at a tenth of the rate.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np

from calipers.metrics.arrays import Bools, Ints, Vectors, slices
from calipers.metrics.kernels import loaded_kernels
from calipers.metrics.threads import on_threads, permitted_threads

Tile = tuple[slice, slice]  # of queries and of rows
Product = Callable[[Vectors, Vectors, Vectors], object]  # rows [n, d], queries [q, d], result [n, q]

_QUERIES = 1_024  # of one product at most
_CELLS = 1 << 19  # numbers of one product: 2 MB, which the caches hold
_ROWS = 1_024  # of one product at least: the queries are arranged anew for each
_SPARE = 2  # places beyond k, for each of the k
_NO_KEY = np.iinfo(np.int64).max
_ROW_BITS, _NUMBER_BITS = 0xFFFFFFFF, np.int32(0x7FFFFFFF)  # of a key; of a float32, without its sign


def largest_products(
    queries: Vectors, rows: Vectors, k: int, *, above: Vectors | None = None, threads: int | None = None
) -> tuple[Vectors, Ints]:
    """The k largest inner products of each query, float32[q, k], and their rows, int64[q, k], best first; of equal
    numbers the earlier rows. k is at most the number of rows, which is below 2³². Memory: some MB a thread, and 40
    bytes a result.

    `above` float32[q] is what a product must exceed, such as the k-th best of rows that were searched before; -inf and
    -1 stand where fewer do.

    >>> scores, places = largest_products(np.eye(2, dtype=np.float32), np.eye(2, dtype=np.float32)[::-1].copy(), 1)
    >>> scores.tolist(), places.tolist()
    ([[1.0], [1.0]], [[1], [0]])
    """
    threads = threads or permitted_threads()
    multiply = fastest_product("torch" in sys.modules)
    least = np.full(len(queries), -np.inf, np.float32) if above is None else above
    tiles = _tiles(len(queries), len(rows), threads)

    def search(tile: Tile) -> Ints:
        part, block = tile
        best = _Best(least[part], k)
        for start, values in _blocks(queries[part], rows[block], multiply):
            best.add(values, block.start + start)
        return best.cut()

    best = np.full((len(queries), k), _NO_KEY)
    for (part, _), keys in zip(tiles, on_threads(search, tiles, threads), strict=True):
        best[part] = np.partition(np.hstack([best[part], keys]), k - 1, axis=1)[:, :k]
    best.sort(axis=1)
    none = best == _NO_KEY
    return np.where(none, np.float32(-np.inf), _numbers(best)), np.where(none, -1, best & _ROW_BITS)


def _tiles(queries: int, rows: int, threads: int) -> list[Tile]:
    """Queries and rows that are multiplied with each other, as many for each thread. Rows are divided where that leaves
    more queries together: the fewer, the slower a product.

    >>> _tiles(1_500, 40_000, 4)[:2]
    [(slice(0, 750, None), slice(0, 20000, None)), (slice(0, 750, None), slice(20000, 40000, None))]
    """
    parts = max(1, -(-queries // _QUERIES))
    parts = -(-parts // threads) * threads if parts > threads else parts
    height = max(_ROWS, -(-rows // -(-threads // parts)))
    return [(part, block) for part in slices(queries, -(-queries // parts)) for block in slices(rows, height)]


def _blocks(queries: Vectors, rows: Vectors, multiply: Product) -> Iterator[tuple[int, Vectors]]:
    """Products of consecutive rows, float32[n, q], and the first of these rows; the memory is used again."""
    height = min(len(rows), max(_ROWS, _CELLS // len(queries)))
    result = np.empty((height, len(queries)), np.float32)
    for part in slices(len(rows), height):
        values = result[: len(rows[part])]
        multiply(rows[part], queries, values)
        yield part.start, values


class _Best:
    """The best numbers of each query so far, k of them, and those that came since they were last cut to k.

    A number and its row are one integer, the smaller the better: of equal numbers the earlier row is the better one,
    and whatever sorts or divides integers, which numpy does with vector instructions, settles ties as well."""

    def __init__(self, least: Vectors, k: int) -> None:
        queries = len(least)
        self.k, self.spare = k, max(64, _SPARE * k)
        self.keys = np.full((queries, k + self.spare), _NO_KEY)
        self.filled = np.zeros(queries, np.int64)
        self.last = least  # what a number must exceed
        self.above = np.empty((0, queries), np.bool_)

    def add(self, values: Vectors, start: int) -> None:
        """Numbers of consecutive rows from `start` on, [n, q]."""
        several = len(values) > self.spare
        if several and np.isneginf(self.last).any():
            self._raise(values)
        row, query, counts = self._above(values)
        if several and counts.max() > self.spare:
            self._raise(values)
            row, query, counts = self._above(values)
        if counts.max() > self.spare:  # equal numbers: of few rows there are no more than places
            for part in slices(len(values), self.spare):
                self._put(*self._above(values[part]), values[part], start + part.start)
                self.cut()
        else:
            self._put(row, query, counts, values, start)

    def _above(self, values: Vectors) -> tuple[Ints, Ints, Ints]:
        """Rows and queries of the numbers that may be among the best, in the order of queries, then of rows; and how
        many each query has."""
        if len(self.above) < len(values):
            self.above = np.empty(values.shape, np.bool_)
        above = np.greater(values, self.last, out=self.above[: len(values)])
        row, query = _places(above)
        order = np.argsort(query.astype(np.uint16), kind="stable")  # of so short integers, a radix sort
        return row[order], query[order], np.bincount(query, minlength=len(self.last))

    def _put(self, row: Ints, query: Ints, counts: Ints, values: Vectors, start: int) -> None:
        if (self.filled + counts).max() > self.k + self.spare:
            self.cut()
        place = np.arange(len(query)) + (self.filled - (np.cumsum(counts) - counts))[query]
        self.keys[query, place] = _keys(values[row, query], row + start)
        self.filled += counts

    def _raise(self, values: Vectors) -> None:
        """What a number must exceed: at least all that is below the k best of the block."""
        kth = np.partition(-values.T, self.k - 1, axis=1)[:, self.k - 1]
        self.last = np.maximum(self.last, np.nextafter(-kth, np.float32(-np.inf)))

    def cut(self) -> Ints:
        """Keep the k best; their keys, `_NO_KEY` where there are fewer."""
        self.keys.partition(self.k - 1, axis=1)
        self.keys[:, self.k :] = _NO_KEY
        self.filled[:] = self.k
        kth = self.keys[:, self.k - 1]
        self.last = np.where(kth == _NO_KEY, self.last, np.maximum(self.last, _numbers(kth)))
        return self.keys[:, : self.k]


def _places(above: Bools) -> tuple[Ints, Ints]:
    """Rows and columns of what is true. nonzero of a table looks at each cell, of a row it skips what is false."""
    return np.divmod(np.flatnonzero(above.reshape(-1)), above.shape[1])


def _keys(numbers: Vectors, rows: Ints) -> Ints:
    """One integer for each number and its row, which ascends as numbers fall and, among equal ones, rows rise."""
    bits = (numbers + np.float32(0.0)).view(np.int32)  # 0.0 for -0.0, which is equal
    falling = ~(bits ^ ((bits >> 31) & _NUMBER_BITS))
    return np.asarray((falling.astype(np.int64) << 32) | rows)


def _numbers(keys: Ints) -> Vectors:
    """The numbers in the keys; NaN for `_NO_KEY`."""
    rising = ~(keys >> 32).astype(np.int32)
    return (rising ^ ((rising >> 31) & _NUMBER_BITS)).view(np.float32)


@cache
def fastest_product(with_torch: bool) -> Product:
    """numpy's product, or PyTorch's where numpy has a generic kernel. The names of kernels decide and no clock does: two
    processes on one machine propose the same rows."""
    if not with_torch or sys.modules["torch"].get_float32_matmul_precision() != "highest":
        return numpy_product
    generic = any(kernel.is_generic for kernel in loaded_kernels() if kernel.owner == "numpy")
    return torch_product if generic else numpy_product


def numpy_product(rows: Vectors, queries: Vectors, result: Vectors) -> None:
    np.matmul(rows, queries.T, out=result)


def torch_product(rows: Vectors, queries: Vectors, result: Vectors) -> None:
    torch: Any = sys.modules["torch"]
    if not (queries.flags.writeable and rows.flags.writeable):  # of these PyTorch warns
        numpy_product(rows, queries, result)
        return
    torch.mm(torch.from_numpy(rows), torch.from_numpy(queries).T, out=torch.from_numpy(result))
