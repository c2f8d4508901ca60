"""The geometry layer over vectors in a memory-mapped file: time and peak anonymous memory of each figure.

    python -m bench.geometry [--documents 100000] [--documents 1000000] [--queries 1000] [--folder TMP] [--no-others]

The file is made first, in a temporary folder (1.5 GB for a million documents): unit vectors around 1,000 random
centres. Pages of a mapped file belong to the file; RssAnon in /proc/self/status is what the process holds for itself,
and is given as what comes on top of what it held before. Goals at one million: the whole layer in 180 s and 1 GB; the
neighbour search at 75 % of the rate of a float32 matrix product or more.

The others: scikit-learn's NearestNeighbors (brute force) on the same search, and scipy's pdist for the pairs of
uniformity, each on as much as it can do in reasonable time; the ratio is theirs over ours at the same size.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench.retrieval_memory import Peak, anonymous_mb, sgemm_rate
from calipers.core import SILENT, read_figures
from calipers.diagnosis.layers import Space, Texts, geometry
from calipers.diagnosis.layers.geometry import GeometryOptions, GeometryPart
from calipers.metrics import geometry as figures_of
from calipers.metrics import neighbours, search
from calipers.metrics.geometry import Estimate
from calipers.metrics.threads import available_cores

OPTIONS = GeometryOptions()
CENTRES = 1000


def make_clusters(file: Path, documents: int, dimensions: int, block: int = 50_000) -> None:
    """Unit vectors around random centres, written block by block."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((CENTRES, dimensions), dtype=np.float32)
    table = np.lib.format.open_memmap(file, mode="w+", dtype=np.float32, shape=(documents, dimensions))
    for start in range(0, documents, block):
        size = min(block, documents - start)
        rows = centres[rng.integers(0, CENTRES, size)]
        rows += rng.standard_normal((size, dimensions), dtype=np.float32)
        table[start : start + size] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    table.flush()


def timed(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """Seconds, the most anonymous memory on top of what there was, in MB, and what came out."""
    before, peak = anonymous_mb(), Peak()
    peak.start()
    start = time.perf_counter()
    found = work()
    seconds = time.perf_counter() - start
    peak.done.set()
    peak.join()
    return seconds, peak.highest - before, found


def show(label: str, seconds: float, memory: float, said: str = "") -> None:
    print(f"  {label:22} {seconds:8.1f} s  {memory:6.0f} MB  {said}", flush=True)


def describe(part: GeometryPart) -> str:
    def how(found: Estimate) -> str:
        return "exact" if found.exact else f"{found.count} sampled"

    return ", ".join(
        f"{name} {found.value:.4g} ± {found.standard_error:.2g} ({how(found)})"
        for name, found in part.estimates.items()
    )


def search_share(vectors: np.ndarray, asking: int) -> dict[str, float]:
    """The middle one of three rounds; the rate of sgemm is taken around each: what else runs slows both."""
    rows = np.sort(figures_of.sample(len(vectors), asking, seed=0))
    rounds = []
    for _ in range(3):
        before = sgemm_rate()
        seconds, memory, _ = timed(lambda: search.nearest_own(vectors, rows, 10))
        rate = (before + sgemm_rate()) / 2
        share = 2 * asking * len(vectors) * vectors.shape[1] / seconds / 1e9 / rate
        show("neighbour search", seconds, memory, f"{asking} ask, {share:.0%} of sgemm ({rate:.0f} GFLOP/s)")
        rounds.append({"seconds": seconds, "share_of_sgemm": share, "sgemm_gflops": rate, "peak_mb": memory})
    return sorted(rounds, key=lambda found: found["share_of_sgemm"])[1]


def others(vectors: np.ndarray, asking: int = 1000, pairs: int = 4000) -> dict[str, float]:
    from scipy.spatial.distance import pdist
    from sklearn.neighbors import NearestNeighbors

    rows = np.sort(figures_of.sample(len(vectors), asking, seed=0))
    whole = np.array(vectors[: min(len(vectors), 100_000)])  # scikit-learn wants its data in memory
    queries = vectors[rows]
    ours, _, mine = timed(lambda: search.nearest(queries, whole, 10))
    index = NearestNeighbors(n_neighbors=10, algorithm="brute").fit(whole)
    theirs, memory, (distances, _) = timed(lambda: index.kneighbors(queries))
    assert np.allclose(distances[:, 1:], mine[0][:, 1:], atol=1e-3), "scikit-learn finds other distances"
    show("scikit-learn", theirs, memory, f"{asking} ask {len(whole)}: {theirs / ours:.1f} × ours ({ours:.1f} s)")
    some = np.array(vectors[:pairs])
    mine_seconds, _, found = timed(lambda: figures_of.uniformity(some))
    plain, memory, value = timed(lambda: float(np.log(np.exp(-2 * pdist(some, "sqeuclidean")).mean())))
    assert abs(value - found.value) < 1e-5, "scipy finds another uniformity"
    show("scipy pdist", plain, memory, f"{pairs} documents: {plain / mine_seconds:.1f} × ours ({mine_seconds:.2f} s)")
    return {"scikit_learn_ratio": theirs / ours, "pdist_ratio": plain / mine_seconds}


def measure(file: Path, documents: int, queries: int, with_others: bool) -> dict[str, Any]:
    vectors = np.load(file, mmap_mode="r")
    names = tuple(f"d{i}" for i in range(documents))
    rng = np.random.default_rng(1)
    asked = vectors[np.sort(rng.choice(documents, queries, replace=False))]
    asked = asked + 0.03 * rng.standard_normal(asked.shape, dtype=np.float32)
    asking = Texts(tuple(f"q{i}" for i in range(queries)), [""] * queries, asked)
    space = Space(Texts(names, names, vectors), asking)
    print(f"{documents} × {vectors.shape[1]}, {queries} queries, {available_cores()} cores")
    found: dict[str, Any] = {"documents": documents, "parts": {}}
    seconds, memory, first = timed(lambda: neighbours.first_copies(vectors))
    show("finding copies", seconds, memory, f"{int((first != np.arange(documents)).sum())} found")
    steps: tuple[tuple[str, Callable[[], GeometryPart]], ...] = (
        ("anisotropy, directions", lambda: geometry.spectrum(space, first, OPTIONS)),
        ("uniformity", lambda: geometry.uniformity(space, OPTIONS)),
        ("intrinsic dimension", lambda: geometry.dimension(space, first, OPTIONS)),
        ("hubness", lambda: geometry.hubs(space, OPTIONS)),
        ("duplicates", lambda: geometry.copies(space, first, OPTIONS)),
    )
    for label, step in steps:
        seconds, memory, part = timed(step)
        show(label, seconds, memory, describe(part))
        found["parts"][label] = {"seconds": seconds, "peak_mb": memory}
    found["search"] = search_share(vectors, min(documents, 4000))
    seconds, memory, outcomes = timed(lambda: geometry.run(None, space, OPTIONS, SILENT))
    known = sum(figure.value is not None for figure in read_figures(outcomes))
    show("the whole layer", seconds, memory, f"{known} figures")
    found["layer"] = {"seconds": seconds, "peak_mb": memory}
    return found | (others(vectors) if with_others else {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, action="append")
    parser.add_argument("--dimensions", type=int, default=384)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--no-others", action="store_true")
    asked = parser.parse_args()
    for documents in asked.documents or [100_000, 1_000_000]:
        with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
            file = Path(folder) / "vectors.npy"
            make_clusters(file, documents, asked.dimensions)
            print(json.dumps(measure(file, documents, asked.queries, not asked.no_others)))


if __name__ == "__main__":
    main()
