"""The largest inner products of queries with rows, as fast as the machine multiplies matrices.

Every thread multiplies blocks of rows with its own queries and compares the result with the k-th best so far: nearly
all of it falls below and is never sorted. The products are numpy's, or PyTorch's where that is loaded and numpy has a
generic kernel. FAISS's are not used: the OpenBLAS in its package does not recognise processors that are newer than
itself and falls back to SSE3, at a tenth of the rate.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from calipers.metrics.arrays import Array, Ints, Vectors, slices
from calipers.metrics.kernels import loaded_kernels
from calipers.metrics.threads import on_threads, permitted_threads

Product = Callable[[Vectors, Vectors, Vectors], object]  # rows [n, d], queries as columns [d, q], result [n, q]

_QUERIES = 1_024  # of one product at most
_CELLS = 1 << 19  # numbers of one product where rows are enough: 2 MB, which the caches hold
_ROWS = 1_024  # of one product at least: the queries are arranged anew for each
_SPARE = 2  # places beyond k, for each of the k
_NO_KEY = np.iinfo(np.int64).max
_ROW_BITS, _NUMBER_BITS = 0xFFFFFFFF, np.int32(0x7FFFFFFF)  # of a key; of a float32, without its sign


class Largest(NamedTuple):
    """The largest products of each query and their rows, and the length of the longest row of all: inf beyond
    float32."""

    scores: Vectors
    places: Ints
    longest: float


def largest_products(
    queries: Vectors,
    rows: Vectors,
    k: int,
    *,
    above: Array | None = None,
    margin: Array | None = None,
    threads: int | None = None,
) -> Largest:
    """The k largest inner products of each query, float32[q, k], and their rows, int64[q, k], best first; of equal
    numbers the earlier rows. k is at most the number of rows, which is below 2³². Memory: some MB a thread, and 40
    bytes a result.

    `above` float[q] is what a product must exceed, such as the k-th best of rows that were searched before; -inf and -1
    stand where fewer do. `margin` float[q] is by how much it may fall short, for rows of length 1; in proportion for
    others.

    >>> scores, places, _ = largest_products(np.eye(2, dtype=np.float32), np.eye(2, dtype=np.float32)[::-1].copy(), 1)
    >>> scores.tolist(), places.tolist()
    ([[1.0], [1.0]], [[1], [0]])
    """
    threads = threads or permitted_threads()
    multiply = fastest_product("torch" in sys.modules)
    least = np.full(len(queries), -np.inf, np.float32) if above is None else above
    margin = np.zeros(len(queries)) if margin is None else margin
    parts, blocks = _tiles(len(queries), len(rows), threads)
    table = np.empty((len(queries), len(blocks) * k), np.int64)  # the k best keys of each block, in no order
    scores, places = np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.int64)

    def search(tile: tuple[slice, int]) -> float:
        part, number = tile
        best, block, longest, bound = _Best(len(queries[part]), k), blocks[number], -1.0, least[part]
        for start, values, length in _products(queries[part], rows[block], multiply):
            if length > longest:
                longest, bound = length, _not_above(least[part] - margin[part] * length)
            best.add(values, block.start + start, bound)
        table[part, number * k : (number + 1) * k] = best.cut()
        return longest

    def settle(part: slice) -> None:
        keys = np.sort(np.partition(table[part], k - 1, axis=1)[:, :k], axis=1)
        scores[part], places[part] = _numbers(keys), np.where(keys == _NO_KEY, -1, keys & _ROW_BITS)

    lengths = on_threads(search, list(itertools.product(parts, range(len(blocks)))), threads)
    on_threads(settle, list(slices(len(queries), -(-len(queries) // threads))), threads)
    return Largest(scores, places, max(lengths, default=0.0))


def _not_above(numbers: Array) -> Vectors:
    """The same in float32, or the next number below."""
    single = numbers.astype(np.float32)
    return np.where(single > numbers, np.nextafter(single, np.float32(-np.inf)), single)


def _tiles(queries: int, rows: int, threads: int) -> tuple[list[slice], list[slice]]:
    """Parts of the queries and blocks of the rows: as many pairs of both for each thread. Rows are divided where that
    leaves more queries together: the fewer, the slower a product.

    >>> _tiles(1_500, 40_000, 4)
    ([slice(0, 750, None), slice(750, 1500, None)], [slice(0, 20000, None), slice(20000, 40000, None)])
    """
    parts = max(1, -(-queries // _QUERIES))
    parts = -(-parts // threads) * threads if parts > threads else parts
    height = max(_ROWS, -(-rows // -(-threads // parts)))
    return list(slices(queries, -(-queries // parts))), list(slices(rows, height))


def _products(queries: Vectors, rows: Vectors, multiply: Product) -> Iterator[tuple[int, Vectors, float]]:
    """Products of consecutive rows, float32[n, q], the first of these rows and the length of the longest; the memory is
    used again. To take lengths first costs nothing: it brings the rows into the caches in their order."""
    height = min(len(rows), max(_ROWS, _CELLS // len(queries)))
    columns, result = np.ascontiguousarray(queries.T), np.empty((height, len(queries)), np.float32)
    for part in slices(len(rows), height):
        block, values = rows[part], result[: len(rows[part])]
        longest = float(np.sqrt(np.einsum("ij,ij->i", block, block).max()))
        multiply(block, columns, values)
        yield part.start, values, longest


class _Best:
    """The best numbers of each query so far, k of them, and those that came since they were last cut to k.

    A number and its row are one integer, the smaller the better: of equal numbers the earlier row is the better one,
    and whatever sorts or divides integers, which numpy does with vector instructions, settles ties as well."""

    def __init__(self, queries: int, k: int) -> None:
        self.k, self.spare = k, max(64, _SPARE * k)
        self.keys = np.full((queries, k + self.spare), _NO_KEY)
        self.filled = np.zeros(queries, np.int64)
        self.last = self.kth = np.full(queries, -np.inf, np.float32)  # what a number must exceed, and the k-th best
        self.above = np.empty((0, queries), np.bool_)

    def add(self, values: Vectors, start: int, least: Vectors) -> None:
        """Numbers of consecutive rows from `start` on, [n, q], of which those count that exceed `least` [q]."""
        self.last = np.maximum(self.kth, least)
        several = len(values) > self.spare
        if several and np.isneginf(self.last).any():
            self._raise(values)
        cells = self._above(values)
        counts = self._counts(cells)
        if several and counts.max() > self.spare:
            self._raise(values)
            cells = self._above(values)
            counts = self._counts(cells)
        if counts.max() <= self.spare:
            self._put(cells, counts, values, start)
            return
        for part in slices(len(values), self.spare):  # equal numbers: of few rows there are no more than places
            cells = self._above(values[part])
            self._put(cells, self._counts(cells), values[part], start + part.start)
            self.cut()

    def _above(self, values: Vectors) -> Ints:
        """The cells whose numbers may be among the best, in the order of rows. nonzero looks at each cell of a table,
        of a row it skips what is false."""
        if len(self.above) < len(values):
            self.above = np.empty(values.shape, np.bool_)
        return np.flatnonzero(np.greater(values, self.last, out=self.above[: len(values)]).reshape(-1))

    def _counts(self, cells: Ints) -> Ints:
        return np.bincount(cells % len(self.last), minlength=len(self.last))

    def _put(self, cells: Ints, counts: Ints, values: Vectors, start: int) -> None:
        if not len(cells):
            return
        if (self.filled + counts).max() > self.k + self.spare:
            self.cut()
        row, query = np.divmod(cells.astype(np.uint32), np.uint32(len(counts)))
        order = np.argsort(query.astype(np.uint16), kind="stable")  # of so short integers, a radix sort
        query, ends = query[order], np.cumsum(counts)
        place = np.arange(len(query)) + (self.filled - (ends - counts))[query]
        self.keys[query, place] = _keys(values.reshape(-1)[cells[order]], row[order].astype(np.int64) + start)
        self.filled += counts

    def _raise(self, values: Vectors) -> None:
        """What a number must exceed: at least all that is below the k best of the block."""
        kth = np.partition(-values.T, self.k - 1, axis=1)[:, self.k - 1]
        self.last = np.maximum(self.last, np.nextafter(-kth, np.float32(-np.inf)))

    def cut(self) -> Ints:
        """Keep the k best; their keys, `_NO_KEY` where there are fewer."""
        if self.filled.max(initial=0) < self.k:
            return self.keys[:, : self.k]
        self.keys.partition(self.k - 1, axis=1)
        self.keys[:, self.k :] = _NO_KEY
        self.filled[:] = self.k
        self.kth = _numbers(self.keys[:, self.k - 1])
        self.last = np.maximum(self.last, self.kth)
        return self.keys[:, : self.k]


def _keys(numbers: Vectors, rows: Ints) -> Ints:
    """One integer for each number and its row, which ascends as numbers fall and, among equal ones, rows rise."""
    bits = (numbers + np.float32(0.0)).view(np.int32)  # 0.0 for -0.0, which is equal
    falling = ~(bits ^ ((bits >> 31) & _NUMBER_BITS))
    return np.asarray((falling.astype(np.int64) << 32) | rows)


def _numbers(keys: Ints) -> Vectors:
    """The numbers in the keys; -inf for `_NO_KEY`."""
    rising = ~(keys >> 32).astype(np.int32)
    numbers = (rising ^ ((rising >> 31) & _NUMBER_BITS)).view(np.float32)
    return np.where(keys == _NO_KEY, np.float32(-np.inf), numbers)


@cache
def fastest_product(with_torch: bool) -> Product:
    """numpy's product, or PyTorch's where numpy has a generic kernel. The name of the kernel decides and no clock does:
    two processes on one machine propose the same rows."""
    if not with_torch or sys.modules["torch"].get_float32_matmul_precision() != "highest":
        return numpy_product
    generic = any(kernel.is_generic for kernel in loaded_kernels() if kernel.owner == "numpy")
    return torch_product if generic else numpy_product


def numpy_product(rows: Vectors, columns: Vectors, result: Vectors) -> None:
    np.matmul(rows, columns, out=result)


def torch_product(rows: Vectors, columns: Vectors, result: Vectors) -> None:
    torch: Any = sys.modules["torch"]
    if not (columns.flags.writeable and rows.flags.writeable):  # of these PyTorch warns
        numpy_product(rows, columns, result)
        return
    torch.mm(torch.from_numpy(rows), torch.from_numpy(columns), out=torch.from_numpy(result))
