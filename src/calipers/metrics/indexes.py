"""Search as an index in production does it: vectors in fewer bits, or only a part of them searched.

Documents are stored by the codec or in the index, queries stay as they are; cosine decides.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from calipers.metrics import search
from calipers.metrics.arrays import Array, Ints, Vectors
from calipers.metrics.codecs import Codec
from calipers.metrics.geometry import unit
from calipers.metrics.kernels import faiss_threads
from calipers.metrics.search_timing import approximate_part

MOST_DOCUMENTS = 200_000  # an index over more takes minutes to build
INDEXES = {
    "ivf": "an inverted file: 4·√n cells, 8 of them are searched",
    "hnsw": "a graph: 16 links a node, 40 nodes in hand while building and 64 while searching",
}
_CELLS_SEARCHED, _LINKS, _BUILDING, _SEARCHING = 8, 16, 40, 64


class Decoded:
    """Vectors as they come back from a codec, a slice at a time, as an array would give them."""

    def __init__(self, codec: Codec, vectors: Array) -> None:
        self._codec = codec
        self._vectors = vectors
        self.shape = vectors.shape

    def __len__(self) -> int:
        return len(self._vectors)

    def __getitem__(self, rows: Any) -> Vectors:
        return self._codec.decode(self._codec.encode(self._vectors[rows]))


def nearest_stored(queries: Array, vectors: Array, k: int, *, codec: Codec) -> Ints:
    """The k nearest documents, int64[q, k], where the documents are stored by a codec, fitted on them."""
    return search.nearest(queries, cast(Any, Decoded(codec, vectors)), k)[1]


def nearest_indexed(queries: Array, vectors: Array, k: int, *, index: str) -> Ints:
    """The k documents that an index of FAISS finds, int64[q, k], -1 where it finds fewer. One thread: a graph that
    several build at once is another one every time."""
    with approximate_part(), faiss_threads(1) as faiss:
        _, documents = _make(faiss, index, unit(vectors)).search(unit(queries), k)
    return np.asarray(documents, np.int64)


def _make(faiss: Any, index: str, rows: Vectors) -> Any:
    d = rows.shape[1]
    if index == "hnsw":
        graph = faiss.IndexHNSWFlat(d, _LINKS, faiss.METRIC_INNER_PRODUCT)
        graph.hnsw.efConstruction, graph.hnsw.efSearch = _BUILDING, _SEARCHING
        graph.add(rows)
        return graph
    cells = max(1, min(int(4 * np.sqrt(len(rows))), len(rows) // 39))  # as few vectors a cell as FAISS advises
    made = faiss.index_factory(d, f"IVF{cells},Flat", faiss.METRIC_INNER_PRODUCT)
    made.cp.min_points_per_centroid = 1  # or it complains on standard error about a small corpus
    made.train(rows)
    made.add(rows)
    made.nprobe = min(_CELLS_SEARCHED, cells)
    return made
