"""The paired bootstrap against scipy's, on the same outcomes; and comparing two stored runs from the command line.

    python -m bench.compare [--examples 10000] [--resamples 10000] [--peer 200]

scipy.stats.bootstrap draws the same paired percentile interval. It gets fewer resamples, being slow; its seconds are
for all of them, by proportion. The stored runs are two models on 1,379 made-up pairs, as many
as the test of the STS benchmark has.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from calipers.metrics import bootstrap
from calipers.metrics.correlation import spearman_statistic
from calipers.metrics.means import mean_statistic, perplexity_statistic
from calipers.metrics.threads import available_cores

Table = dict[str, np.ndarray]


def outcomes(n: int) -> Table:
    rng = np.random.default_rng(0)
    gold = np.round(rng.random(n) * 20) / 4
    a = gold + rng.normal(size=n)
    tokens = rng.integers(5, 60, n).astype(float)
    return {"gold": gold, "a": a, "b": a + 0.2 * rng.normal(size=n), "tokens": tokens}


def kinds(t: Table) -> dict[str, tuple[list[Any], Callable[..., Any], tuple[np.ndarray, ...]]]:
    """Our statistics of both models, and scipy's of the difference."""
    a, b, gold, tokens = t["a"], t["b"], t["gold"], t["tokens"]
    return {
        "mean": (
            [mean_statistic(a), mean_statistic(b)],
            lambda a, b, axis=-1: (b - a).mean(axis=axis),
            (a, b),
        ),
        "perplexity": (
            [perplexity_statistic(-a * tokens, tokens), perplexity_statistic(-b * tokens, tokens)],
            lambda a, b, t, axis=-1: np.exp((b * t).sum(axis) / t.sum(axis)) - np.exp((a * t).sum(axis) / t.sum(axis)),
            (a, b, tokens),
        ),
        "spearman": (
            [spearman_statistic(a, gold), spearman_statistic(b, gold)],
            lambda a, b, g: stats.spearmanr(b, g).statistic - stats.spearmanr(a, g).statistic,
            (a, b, gold),
        ),
    }


def clock(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def stored() -> float:
    """Seconds of `calipers compare RUN RUN`, the start of Python included; the best of three."""
    with tempfile.TemporaryDirectory() as place:
        folder, rng = Path(place), np.random.default_rng(1)
        rows = [{"sentence1": f"l{i}", "sentence2": f"r{i}", "score": float(rng.integers(0, 6))} for i in range(1379)]
        (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        texts = "\n".join(str(row[key]) for row in rows for key in ("sentence1", "sentence2"))
        command = [sys.executable, "-m", "calipers"]
        surroundings = {**os.environ, "CALIPERS_STORE": str(folder / "store")}
        surroundings.pop("PYTHONDONTWRITEBYTECODE", None)  # installed packages have their byte code beside them
        for name in ("a", "b"):
            np.save(folder / f"{name}.npy", rng.normal(size=(2 * len(rows), 8)).astype(np.float32))
            (folder / f"{name}.txt").write_text(texts + "\n")
            line = ["eval", "-m", str(folder / f"{name}.npy"), "--dataset", str(folder / "pairs.jsonl")]
            subprocess.run([*command, *line], env=surroundings, check=True, capture_output=True)
        listed = subprocess.run([*command, "runs", "list", "--json"], env=surroundings, check=True, capture_output=True)
        line = ["compare", *(run["run_id"] for run in json.loads(listed.stdout))]
        return min(
            clock(lambda: subprocess.run([*command, *line], env=surroundings, capture_output=True)) for _ in "123"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=10_000)
    parser.add_argument("--resamples", type=int, default=10_000)
    parser.add_argument("--peer", type=int, default=200, help="resamples for scipy")
    asked = parser.parse_args()
    n, r = asked.examples, asked.resamples
    print(f"{r:,} paired resamples of {n:,} examples, {available_cores()} cores")
    print(f"{'':14}{'ours, s':>10}{'scipy, s':>10}{'ratio':>8}")
    for name, (ours, theirs, columns) in kinds(outcomes(n)).items():
        mine = clock(partial(bootstrap.distribution, ours, n, resamples=r, seed=1, threads=available_cores()))
        settings = {"n_resamples": asked.peer, "paired": True, "method": "percentile", "vectorized": name != "spearman"}
        peer = clock(partial(stats.bootstrap, columns, theirs, **settings))
        peer *= r / asked.peer
        print(f"{name:14}{mine:10.2f}{peer:10.2f}{peer / mine:8.1f}", flush=True)
    print(f"two stored runs of 1,379 pairs, from the command line: {stored():.2f} s")


if __name__ == "__main__":
    main()
