"""The paired bootstrap against scipy's, on the same outcomes; and comparing two stored runs from the command line.

    python -m bench.compare [--examples 10000] [--resamples 10000] [--peer 200] [--rounds 3]

Ratios of the commands are their least over the command: 0.31 is 3.2 times what `python -c 'import numpy, …'` takes.
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
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from bench.common.entries import Entry, named, record
from bench.common.rounds import ratio_of, seconds_of, take_turns
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


def commands(rounds: int) -> list[Entry]:
    """`calipers compare RUN RUN` and `calipers --help` beside the least that Python needs for them."""
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
        imports = "import numpy, pyarrow.parquet"

        def run(*arguments: str) -> Callable[[], Any]:
            return lambda: subprocess.run([sys.executable, *arguments], env=surroundings, capture_output=True)

        turns = take_turns(
            {
                imports: run("-c", imports),
                "compare": run("-m", "calipers", *line),
                "pass": run("-c", "pass"),
                "--help": run("-m", "calipers", "--help"),
            },
            rounds,
        )
    return [
        Entry(f"calipers {name}", f"python -c '{least}'", seconds_of(mine), ratio_of(turns[least], mine))
        for name, mine, least in (("compare RUN RUN", turns["compare"], imports), ("--help", turns["--help"], "pass"))
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=10_000)
    parser.add_argument("--resamples", type=int, default=10_000)
    parser.add_argument("--peer", type=int, default=200, help="resamples for scipy")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-commands", action="store_true", help="leave out the commands")
    asked = parser.parse_args()
    n, r = asked.examples, asked.resamples
    lines = []
    for name, (ours, theirs, columns) in kinds(outcomes(n)).items():
        settings = {"n_resamples": asked.peer, "paired": True, "method": "percentile", "vectorized": name != "spearman"}
        turns = take_turns(
            {
                "calipers": partial(bootstrap.distribution, ours, n, resamples=r, seed=1, threads=available_cores()),
                "scipy": partial(stats.bootstrap, columns, theirs, **settings),
            },
            asked.rounds,
        )
        mine, peer = turns["calipers"], turns["scipy"]
        drawn = mine[0].result[1] - mine[0].result[0]
        spread = float(np.std(drawn)) / float(peer[0].result.standard_error)
        lines.append(
            Entry(
                f"paired bootstrap of {name}, {n:,} examples × {r:,} resamples",
                f"{named('scipy')} ({asked.peer} resamples, by proportion)",
                seconds_of(mine),
                ratio_of(peer, mine) * r / asked.peer,
                memory=max(turn.memory for turn in mine),
                agreement=f"standard error {spread:.2f} of the peer's",
            )
        )
    record(lines + ([] if asked.no_commands else commands(asked.rounds)))


if __name__ == "__main__":
    main()
