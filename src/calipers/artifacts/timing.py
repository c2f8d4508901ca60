"""How long a row takes, alone and on one thread, so that stages can be compared."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import numpy as np

from calipers.artifacts.inputs import Batch, Forward
from calipers.artifacts.manifest import Latency


def latency(forward: Forward, batches: Sequence[Batch]) -> Latency:
    """Each row twice, behind one that does not count."""
    with _one_thread():
        forward(batches[0])
        seconds = [_clock(forward, batch) for batch in (*batches, *batches)]
    p50, p95 = np.percentile(np.array(seconds) * 1000, [50, 95])
    tokens = float(np.mean([batch.mask.sum() / len(batch.mask) for batch in batches]))
    return Latency(round(float(p50), 3), round(float(p95), 3), len(batches), round(tokens, 1))


def _clock(forward: Forward, batch: Batch) -> float:
    start = time.perf_counter()
    forward(batch)
    return time.perf_counter() - start


class _one_thread:
    """PyTorch on one thread, as the sessions are, so that latencies can be compared."""

    def __enter__(self) -> None:
        self._torch = sys.modules.get("torch")
        self._before = self._torch.get_num_threads() if self._torch else 0
        if self._torch:
            self._torch.set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        if self._torch:
            self._torch.set_num_threads(self._before)
