"""Exact retrieval over vectors in a memory-mapped file: time, share of sgemm, and the peak of anonymous memory.

    python -m bench.retrieval_memory [--documents 1000000] [--dimensions 384] [--queries 1000] [--folder TMP]

The file is made first, in a temporary folder (1.5 GB at the defaults). Pages of a mapped file belong to the file, and
the system takes them back when it needs them; RssAnon in /proc/self/status is what the process holds for itself.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from bench.common.entries import Entry, named, record
from bench.common.rounds import Turns, limit_of, ratio_of, seconds_of, share_of, take_turns
from calipers.metrics.kernels import load_faiss, loaded_kernels
from calipers.metrics.search import exact_search, windows_of


def make_vectors(file: Path, documents: int, dimensions: int, block: int = 50_000) -> None:
    """Random unit vectors, written block by block."""
    rng = np.random.default_rng(0)
    table = np.lib.format.open_memmap(file, mode="w+", dtype=np.float32, shape=(documents, dimensions))
    for start in range(0, documents, block):
        rows = rng.standard_normal((min(block, documents - start), dimensions), dtype=np.float32)
        table[start : start + block] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    table.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--dimensions", type=int, default=384)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--top-k", type=int, default=100)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        file = Path(folder) / "vectors.npy"
        make_vectors(file, asked.documents, asked.dimensions)
        table = np.load(file, mmap_mode="r")
        queries = np.random.default_rng(1).standard_normal((asked.queries, asked.dimensions), dtype=np.float32)
        queries /= np.linalg.norm(queries, axis=1, keepdims=True)
        contestants = {
            "faiss.knn": lambda: knn(queries, table, asked.top_k),
            "calipers": lambda: exact_search(queries, windows_of(table), asked.top_k).documents,
        }
        report(take_turns(contestants, asked.rounds), asked)
        first = np.argsort(-(table @ queries[0]), kind="stable")[:10]
        mine = exact_search(queries[:1], windows_of(table), 10).documents
        assert (mine == first).all(), "the first query's results differ from a plain product's"


def knn(queries: np.ndarray, table: np.ndarray, k: int) -> np.ndarray:
    """FAISS, with the kernel that its OpenBLAS has in this process."""
    faiss = load_faiss()
    rows = faiss.knn(queries, table, k, metric=faiss.METRIC_INNER_PRODUCT)[1]
    return np.asarray(rows).reshape(-1)


def report(turns: Turns, asked: argparse.Namespace) -> None:
    gflop = 2 * asked.documents * asked.dimensions * asked.queries / 1e9
    theirs, mine = turns["faiss.knn"], turns["calipers"]
    same = float((theirs[0].result == mine[0].result).mean())
    kernel = next((k.architecture for k in loaded_kernels() if k.owner == "faiss_cpu"), "unnamed")
    print(f"faiss.knn reaches {share_of(theirs, gflop):.0%} of sgemm with the kernel {kernel}")
    work = f"exact search, {asked.queries:,} × {asked.documents:,} × {asked.dimensions}, top {asked.top_k}"
    record(
        [
            Entry(
                work,
                f"{named('faiss-cpu')}, kernel {kernel}",
                seconds_of(mine),
                ratio_of(theirs, mine),
                share_of(mine, gflop),
                limit_of(mine),
                memory=max(turn.memory for turn in mine),
                agreement=f"{same:.2%} of the results at the same rank",
            )
        ]
    )


if __name__ == "__main__":
    main()
