"""How a long cell is divided on a cluster: ranges of a corpus to embed and search, or every n-th shard."""

from __future__ import annotations

import math
from dataclasses import dataclass

from calipers.core import Dataset
from calipers.metrics.search import WINDOW
from calipers.models import ModelOptions
from calipers.runs.shards import COMPUTING, SHARD

_FEWEST_SHARDS = 4  # from which on a cell is spread over the nodes
_MOST_PARTS = 8
_MOST_RANGES = 32


@dataclass(frozen=True)
class Division:
    """Into how many parts; `ranges` where each of them is a range of the corpus whose best results are merged."""

    parts: int = 1
    ranges: bool = False


def divide(rows: Dataset, backend: str, ability: str, options: ModelOptions, jobs: int | None) -> Division:
    """The division of a cell of these rows; one part where it is not worth it. With several sizes of vectors the
    search is not divided: it needs all vectors in memory."""
    windows = math.ceil(max((len(table) for table in rows.tables.values()), default=0) / WINDOW)
    if ability == "retrieve" and backend != "bm25" and windows > 1 and not options.sizes:
        return Division(min(jobs or _MOST_RANGES, windows), ranges=True)
    shards = sum(len(table) for table in rows.tables.values()) // SHARD + len(rows) // SHARD
    if backend not in COMPUTING or shards < _FEWEST_SHARDS:
        return Division()
    return Division(min(jobs or _MOST_PARTS, shards // 2))
