"""How fast several graphs are beside each other, on a machine that others use too."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from calipers.artifacts import Batch, Graph, open_graph

_ROUNDS = 5


def latencies(graphs: Sequence[Path], batches: Sequence[Batch], *, provider: str) -> list[tuple[float, float]]:
    """Median and 95th percentile of the time of a batch in milliseconds, one thread, for each graph. They take turns
    row by row, so that what else the machine does slows them all alike."""
    opened = [open_graph(path, provider=provider, what=str(path)) for path in graphs]
    for graph in opened:
        graph.run(batches[0])
    seconds = [[_clock(graph, batch) for graph in opened] for _ in range(_ROUNDS) for batch in batches]
    middle, high = np.percentile(np.array(seconds) * 1000, [50, 95], axis=0)
    return [(round(float(a), 3), round(float(b), 3)) for a, b in zip(middle, high, strict=True)]


def _clock(graph: Graph, batch: Batch) -> float:
    start = time.perf_counter()
    graph.run(batch)
    return time.perf_counter() - start
