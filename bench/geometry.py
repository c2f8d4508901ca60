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

from bench.common.entries import Entry, named, record
from bench.common.rounds import Peak, Turns, limit_of, ratio_of, seconds_of, share_of, take_turns
from calipers.core import SILENT, read_figures
from calipers.diagnosis.layers import Space, Texts, geometry
from calipers.diagnosis.layers.geometry import GeometryOptions, GeometryPart
from calipers.metrics import geometry as figures_of
from calipers.metrics import neighbours, search
from calipers.metrics.geometry import Estimate
from calipers.metrics.threads import available_cores

OPTIONS = GeometryOptions()
CENTRES = 1000
OTHERS = 100_000  # documents that scikit-learn still searches in reasonable time and memory


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
    with Peak() as peak:
        start = time.perf_counter()
        found = work()
        seconds = time.perf_counter() - start
    return seconds, peak.added, found


def show(label: str, seconds: float, memory: float, said: str = "") -> None:
    print(f"  {label:22} {seconds:8.1f} s  {memory:6.0f} MB  {said}", flush=True)


def describe(part: GeometryPart) -> str:
    def how(found: Estimate) -> str:
        return "exact" if found.exact else f"{found.count} sampled"

    return ", ".join(
        f"{name} {found.value:.4g} ± {found.standard_error:.2g} ({how(found)})"
        for name, found in part.estimates.items()
    )


def search_lines(vectors: np.ndarray, asking: int, with_others: bool) -> list[Entry]:
    """The neighbour search beside scikit-learn's, which needs its data in memory and fewer of them."""
    rows = np.sort(figures_of.sample(len(vectors), asking, seed=0))
    contestants = {"calipers": lambda: search.nearest_own(vectors, rows, 10)[0]}
    if with_others:
        from sklearn.neighbors import NearestNeighbors

        whole = np.array(vectors)
        index = NearestNeighbors(n_neighbors=11, algorithm="brute").fit(whole)
        contestants["scikit-learn"] = lambda: index.kneighbors(whole[rows])[0][:, 1:]
    turns: Turns = take_turns(contestants, 3)
    mine, theirs = turns["calipers"], turns.get("scikit-learn")
    gap = float(np.abs(mine[0].result - theirs[0].result).max()) if theirs else 0.0
    return [
        Entry(
            f"neighbour search, {asking:,} × {len(vectors):,} × {vectors.shape[1]}",
            named("scikit-learn") if theirs else "",
            seconds_of(mine),
            ratio_of(theirs, mine) if theirs else None,
            share_of(mine, 2 * asking * len(vectors) * vectors.shape[1] / 1e9),
            limit_of(mine),
            memory=max(turn.memory for turn in mine),
            agreement=f"distances within {gap:.0e}" if theirs else "",
        )
    ]


def pair_lines(vectors: np.ndarray, pairs: int = 4000) -> list[Entry]:
    """The uniformity of some documents beside scipy's distances of all pairs."""
    from scipy.spatial.distance import pdist

    part = np.array(vectors[:pairs])
    turns = take_turns(
        {
            "scipy": lambda: float(np.log(np.exp(-2 * pdist(part, "sqeuclidean")).mean())),
            "calipers": lambda: figures_of.uniformity(part).value,
        },
        3,
    )
    mine, theirs = turns["calipers"], turns["scipy"]
    return [
        Entry(
            f"uniformity of {len(part):,} × {vectors.shape[1]}, all pairs",
            named("scipy"),
            seconds_of(mine),
            ratio_of(theirs, mine),
            memory=max(turn.memory for turn in mine),
            agreement=f"within {abs(mine[0].result - theirs[0].result):.0e}",
        )
    ]


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
    seconds, memory, outcomes = timed(lambda: geometry.run(None, space, OPTIONS, SILENT))
    known = sum(figure.value is not None for figure in read_figures(outcomes))
    show("the whole layer", seconds, memory, f"{known} figures")
    found["layer"] = {"seconds": seconds, "peak_mb": memory}
    lines = [Entry(f"geometry layer, {documents:,} × {vectors.shape[1]}", "", seconds, memory=memory)]
    lines += search_lines(vectors, min(documents, 4000), with_others and documents <= OTHERS)
    record(lines + (pair_lines(vectors) if with_others else []))
    return found


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
