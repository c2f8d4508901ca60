"""Search in a space that is changed after the fact, which costs no new vectors: the mean removed, fewer dimensions,
hubs discounted.

Queries float[q, d] and documents float[n, d] of any length; cosine decides. Each search gives the rows of the k best
documents, int64[q, k], -1 where there are no more. A vector that a change leaves without a direction has a cosine of 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from calipers.metrics import search
from calipers.metrics.arrays import Array, Floats, Ints, Vectors, slices
from calipers.metrics.geometry import unit_or_zero

CSLS_NEIGHBOURS = 10  # of a document among the queries, as in the paper (Conneau and others, 2018)
_CELLS = 1 << 22  # numbers of an intermediate array: 16 MB in float32

Change = Callable[[Array], Vectors]


def nearest_centred(queries: Array, vectors: Array, k: int) -> Ints:
    """With the mean direction of the documents taken off every vector.

    >>> rows = np.array([[1.0, 0.1, 0.0], [1.0, -0.3, 0.2], [1.0, 0.2, -0.4]])
    >>> nearest_centred(np.array([[1.0, 0.0, -0.05]]), rows, 2).tolist()
    [[0, 1]]
    """
    total = np.zeros(vectors.shape[1])
    for part in slices(len(vectors), search.WINDOW):
        total += unit_or_zero(vectors[part]).sum(axis=0, dtype=np.float64)
    mean = (total / max(1, len(vectors))).astype(np.float32)
    return _nearest(queries, vectors, k, lambda rows: unit_or_zero(unit_or_zero(rows) - mean))


def nearest_cut(queries: Array, vectors: Array, k: int) -> Ints:
    """With the first half of the dimensions, as an index for a model that was trained to be cut has it."""
    width = max(1, vectors.shape[1] // 2)
    return _nearest(queries, vectors, k, lambda rows: unit_or_zero(rows[:, :width]))


def nearest_csls(queries: Array, vectors: Array, k: int) -> Ints:
    """By 2·cos(q, d) − r(d), r(d) the mean cosine of a document and its nearest queries: what is near to all queries, a
    hub, is discounted. The same mean of the query, which belongs to the measure, does not change its order."""
    directions = unit_or_zero(queries)
    crowding = hub_crowding(directions, vectors)
    longer = np.concatenate([2 * directions, np.full((len(directions), 1), -1, np.float32)], axis=1)
    windows = (
        np.concatenate([unit_or_zero(vectors[part]), crowding[part, None].astype(np.float32)], axis=1)
        for part in slices(len(vectors), search.WINDOW)
    )
    return search.first_rows(search.exact_search(longer, windows, k), k)


def hub_crowding(queries: Array, vectors: Array) -> Floats:
    """The mean cosine of each document with its nearest queries, ten or as many as there are, float64[n]."""
    directions = unit_or_zero(queries)
    nearest = min(CSLS_NEIGHBOURS, len(directions))
    crowding = np.empty(len(vectors))
    for part in slices(len(vectors), max(1, _CELLS // max(1, len(directions)))):
        cosines = directions @ unit_or_zero(vectors[part]).T
        crowding[part] = np.partition(cosines, len(directions) - nearest, axis=0)[len(directions) - nearest :].mean(
            axis=0
        )
    return crowding


def _nearest(queries: Array, vectors: Array, k: int, change: Change) -> Ints:
    def windows() -> Iterator[Vectors]:
        for part in slices(len(vectors), search.WINDOW):
            yield change(vectors[part])

    return search.first_rows(search.exact_search(change(queries), windows(), k), k)
