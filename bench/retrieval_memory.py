"""Exact retrieval over vectors in a memory-mapped file: time, share of sgemm, and the peak of anonymous memory.

    python -m bench.retrieval_memory [--documents 1000000] [--dimensions 384] [--queries 1000] [--folder TMP]

The file is made first, in a temporary folder (1.5 GB at the defaults). Pages of a mapped file belong to the file, and
the system takes them back when it needs them; RssAnon in /proc/self/status is what the process holds for itself.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from calipers.metrics.search import WINDOW, exact_search
from calipers.metrics.threads import available_cores


def make_vectors(file: Path, documents: int, dimensions: int, block: int = 50_000) -> None:
    """Random unit vectors, written block by block."""
    rng = np.random.default_rng(0)
    table = np.lib.format.open_memmap(file, mode="w+", dtype=np.float32, shape=(documents, dimensions))
    for start in range(0, documents, block):
        rows = rng.standard_normal((min(block, documents - start), dimensions), dtype=np.float32)
        table[start : start + block] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    table.flush()


def anonymous_mb() -> float:
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found, "this system does not say RssAnon"
    return int(found[1]) / 1024


class Peak(threading.Thread):
    """The highest anonymous memory seen, looked at every 20 ms: more often, and the looking slows what it looks at."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.highest = anonymous_mb()
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.wait(0.02):
            self.highest = max(self.highest, anonymous_mb())


def sgemm_rate(size: int = 2048, repeats: int = 8) -> float:
    """GFLOP/s of numpy's float32 matrix product on all cores."""
    a = np.random.default_rng(0).random((size, size), dtype=np.float32)
    a @ a
    start = time.perf_counter()
    for _ in range(repeats):
        a @ a
    return repeats * 2 * size**3 / (time.perf_counter() - start) / 1e9


def windows(table: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(table), WINDOW):
        yield table[start : start + WINDOW]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--dimensions", type=int, default=384)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--top-k", type=int, default=100)
    parser.add_argument("--folder", type=Path, default=None)
    asked = parser.parse_args()
    rate = sgemm_rate()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        file = Path(folder) / "vectors.npy"
        make_vectors(file, asked.documents, asked.dimensions)
        table = np.load(file, mmap_mode="r")
        queries = np.random.default_rng(1).standard_normal((asked.queries, asked.dimensions), dtype=np.float32)
        queries /= np.linalg.norm(queries, axis=1, keepdims=True)
        before, peak = anonymous_mb(), Peak()
        peak.start()
        start = time.perf_counter()
        documents = exact_search(queries, windows(table), asked.top_k).documents
        seconds = time.perf_counter() - start
        peak.done.set()
        peak.join()
        first = np.argsort(-(table @ queries[0]), kind="stable")[:10]
        assert (documents[:10] == first).all(), "the first query's results differ from a plain product's"
    share = 2 * asked.documents * asked.dimensions * asked.queries / seconds / 1e9 / rate
    print(f"{asked.queries} queries × {asked.documents} documents × {asked.dimensions}, top {asked.top_k}")
    print(f"{seconds:.1f} s, {share:.0%} of sgemm ({rate:.0f} GFLOP/s on {available_cores()} cores)")
    print(f"anonymous memory: {before:.0f} MB before, {peak.highest:.0f} MB at its peak (bound: 600)")
    print(json.dumps({"seconds": seconds, "share_of_sgemm": share, "peak_anonymous_mb": peak.highest}))


if __name__ == "__main__":
    main()
