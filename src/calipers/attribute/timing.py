"""How fast several graphs are beside each other, on a machine that others use too."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from calipers.build import Batch, Graph, open_graph

_ROUNDS = 5


def p50s(graphs: Sequence[Path], batches: Sequence[Batch], *, provider: str) -> list[float]:
    """The median time of a batch in milliseconds, one thread, for each graph. They take turns row by row, so that what
    else the machine does slows them all alike."""
    opened = [open_graph(path, provider=provider, what=str(path)) for path in graphs]
    for graph in opened:
        graph.run(batches[0])
    seconds = [[_clock(graph, batch) for graph in opened] for _ in range(_ROUNDS) for batch in batches]
    return [round(float(ms), 3) for ms in np.median(np.array(seconds) * 1000, axis=0)]


def _clock(graph: Graph, batch: Batch) -> float:
    start = time.perf_counter()
    graph.run(batch)
    return time.perf_counter() - start
