"""Do intervals hold what they promise, and exit codes what they risk? Simulated experiments whose truth is known.

    python -m bench.coverage [--experiments 1000] [--resamples 2000] [--state coverage.json] [--metric mean]

For five metrics, four shapes of loss and three numbers of examples: how often a 95 % interval holds the truth, of one
model and of the difference of two; and how often the exit code is 0 or 1 where the true loss is the REGRESSION
threshold itself, so that either is an error. Beside the intervals that are reported stand those of other methods, from
the same resamples.
A cell that is finished is kept in the state file: a run that was stopped goes on where it was. The table is Markdown.
"""

from __future__ import annotations

import argparse
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.comparison import evidence, verdict
from calipers.core import Metric, Outcomes, Thresholds
from calipers.metrics import bootstrap, classification, ranking, studentised
from calipers.metrics.correlation import spearman_statistic
from calipers.metrics.means import mean_statistic, perplexity_statistic

Floats = NDArray[np.float64]
Table = dict[str, NDArray[Any]]
Pair = tuple[Table, Table]

SHAPES = ("symmetric", "skewed", "zero-inflated", "clustered")
EXAMPLES = (20, 50, 200)
CLUSTER = 5  # examples of one source
POPULATION = 200_000
CONFIDENCE = 0.95


# --- how examples change --------------------------------------------------------------------------------------------


def losses(rng: np.random.Generator, n: int, shape: str) -> Floats:
    """What each example loses, of mean 1: all about as much; a few much; a fifth all, the rest nothing; by source."""
    if shape == "symmetric":
        return rng.normal(1.0, 2.0, n)
    if shape == "skewed":
        return rng.gamma(0.5, 2.0, n)
    if shape == "zero-inflated":
        return np.where(rng.random(n) < 0.2, rng.uniform(0.0, 10.0, n), 0.0)
    return _by_source(rng.normal(1.0, 1.5, -(-n // CLUSTER)), n) + rng.normal(0.0, 1.5, n)


def _by_source(values: Floats, n: int) -> Floats:
    return np.repeat(values, CLUSTER)[:n]


def _shared(rng: np.random.Generator, n: int, shape: str) -> Floats:
    """What examples of one source have in common beside their loss; standard normal for each example elsewhere."""
    return _by_source(rng.normal(size=-(-n // CLUSTER)), n) if shape == "clustered" else rng.normal(size=n)


def means(rng: np.random.Generator, n: int, shape: str) -> Pair:
    before = 1.0 + 0.2 * _shared(rng, n, shape)
    return {"x": before}, {"x": before - 0.1 * losses(rng, n, shape)}


def correlations(rng: np.random.Generator, n: int, shape: str) -> Pair:
    gold = np.round(rng.random(n) * 20) / 4
    before = gold + 0.8 * _shared(rng, n, shape)
    after = before + 0.5 * losses(rng, n, shape) * rng.choice([-1.0, 1.0], n)
    return {"x": before, "gold": gold}, {"x": after, "gold": gold}


def likelihoods(rng: np.random.Generator, n: int, shape: str) -> Pair:
    tokens = rng.integers(5, 60, n).astype(float)
    before = tokens * np.abs(1.6 + 0.4 * _shared(rng, n, shape))
    after = before + 0.08 * tokens * losses(rng, n, shape)
    return {"ll": -before, "tokens": tokens}, {"ll": -after, "tokens": tokens}


def rankings(rng: np.random.Generator, n: int, shape: str) -> Pair:
    grades = rng.choice([0.0, 1.0, 2.0], p=[0.8, 0.15, 0.05], size=(n, 20))
    grades[:, 0] = 1.0
    before = grades + 0.8 * rng.normal(size=(n, 20)) * np.exp(0.3 * _shared(rng, n, shape))[:, None]
    after = before + 0.3 * np.abs(losses(rng, n, shape))[:, None] * rng.normal(size=(n, 20))
    return {"x": ndcg(before, grades)}, {"x": ndcg(after, grades)}


def ndcg(scores: Floats, grades: Floats) -> Floats:
    offsets = np.arange(len(scores) + 1) * scores.shape[1]
    return ranking.ndcg(ranking.Rankings(offsets, scores.ravel(), grades.ravel(), offsets, grades.ravel()), 10)


def classes(rng: np.random.Generator, n: int, shape: str) -> Pair:
    label = (rng.random(n) < 0.4).astype(np.int64)
    before = label + 0.5 * _shared(rng, n, shape)
    after = before + 0.3 * losses(rng, n, shape) * rng.choice([-1.0, 1.0], n)
    first, second = ({"predicted": (x > 0.5).astype(np.int64), "label": label} for x in (before, after))
    return first, second


def _f1(columns: Any) -> Any:
    return classification.f1_macro_statistic(columns["predicted"], columns["label"])


@dataclass(frozen=True)
class Kind:
    metric: Metric
    sample: Callable[[np.random.Generator, int, str], Pair]
    relative: bool = True


KINDS = {
    "mean": Kind(Metric("mean", "", lambda c: mean_statistic(c["x"])), means),
    "spearman": Kind(Metric("spearman", "", lambda c: spearman_statistic(c["x"], c["gold"])), correlations, False),
    "perplexity": Kind(
        Metric(
            "perplexity",
            "",
            lambda c: perplexity_statistic(c["ll"], c["tokens"]),
            higher_is_better=False,
            log_scale=np.log,
        ),
        likelihoods,
    ),
    "ndcg": Kind(Metric("ndcg", "", lambda c: mean_statistic(c["x"])), rankings),
    "f1": Kind(Metric("f1", "", _f1), classes),
}


# --- one cell ---------------------------------------------------------------------------------------------------------


def measure(name: str, shape: str, n: int, *, experiments: int, resamples: int) -> dict[str, float]:
    """Shares of the experiments: see `_COLUMNS`."""
    kind, seed = KINDS[name], zlib.crc32(f"{name} {shape} {n}".encode())
    population = kind.sample(np.random.default_rng(seed), POPULATION, shape)
    first, second = (kind.metric.value(columns) for columns in population)
    sign = -1.0 if kind.metric.higher_is_better else 1.0
    loss = sign * (second - first) / (abs(first) if kind.relative else 1.0)
    units = evidence.DrawnUnits(n, np.arange(n) // CLUSTER if shape == "clustered" else None)
    rows = [
        _experiment(kind, shape, units, (first, second, float(loss)), resamples, [seed, number])
        for number in range(experiments)
    ]
    return {column: _share([row[column] for row in rows]) for column in rows[0]}


def _share(values: list[float]) -> float:
    """Of the experiments that have one; NaN where none has."""
    finite = [value for value in values if np.isfinite(value)]
    return float(np.mean(finite)) if finite else float("nan")


def _experiment(
    kind: Kind,
    shape: str,
    units: evidence.DrawnUnits,
    truth: tuple[float, float, float],
    resamples: int,
    seed: list[int],
) -> dict[str, float]:
    first, second, loss = truth
    columns = kind.sample(np.random.default_rng(seed), units.examples, shape)
    ids = tuple(map(str, range(units.examples)))
    a, b = (Outcomes(ids, table) for table in columns)
    (both,) = evidence.gather([kind.metric], a, b, units, resamples=resamples, seed=seed[1], threads=1)
    alone = studentised.draw_pairs(
        [studentised.alone(units.of(kind.metric.statistic(a.columns)))],
        units.count,
        resamples=resamples,
        seed=seed[1],
    )[0]
    chances, delta = evidence.chances_and_interval(both, Thresholds(0.0, loss, kind.relative), CONFIDENCE)
    label = verdict.decide(chances, "PASS", "REGRESSION", CONFIDENCE)
    pivot, drawn = alone.difference(), both.draws.drawn
    reported = bootstrap.percentile_interval(drawn[0], confidence=CONFIDENCE, units=units.count)
    unchanged = both.changed == 0  # the interval from 0 to 0 says that, and nothing of other samples
    return {
        "single": _holds(reported, first),
        "single_percentile": _holds(bootstrap.percentile_interval(drawn[0], confidence=CONFIDENCE), first),
        "single_studentised": _holds(pivot.interval(CONFIDENCE) if pivot else None, first),
        "paired": _holds(None if unchanged else delta, second - first),
        "paired_percentile": _holds(
            bootstrap.percentile_interval(drawn[1] - drawn[0], confidence=CONFIDENCE), second - first
        ),
        "exit_0": float(label == "PASS"),
        "exit_1": float(label == "REGRESSION"),
        "no_interval": float(delta is None),
        "unchanged": float(unchanged),
    }


def _holds(interval: tuple[float, float] | None, truth: float) -> float:
    return float("nan") if interval is None else float(interval[0] <= truth <= interval[1])


# --- the table --------------------------------------------------------------------------------------------------------

_COLUMNS = {
    "single": "one model",
    "single_percentile": "percentile",
    "single_studentised": "studentised",
    "paired": "difference",
    "paired_percentile": "percentile",
    "no_interval": "none",
    "unchanged": "unchanged",
    "exit_0": "exit 0",
    "exit_1": "exit 1",
}


def table(cells: dict[str, dict[str, float]]) -> str:
    lines = [f"| metric | loss | n | {' | '.join(_COLUMNS.values())} |", f"|---|---|{'---:|' * (len(_COLUMNS) + 1)}"]
    for key, cell in cells.items():
        name, shape, n, *_ = key.split("/")
        numbers = ["–" if np.isnan(cell[column]) else f"{100 * cell[column]:.1f}" for column in _COLUMNS]
        lines.append(f"| {name} | {shape} | {n} | {' | '.join(numbers)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=1000)
    parser.add_argument("--resamples", type=int, default=2000)
    parser.add_argument("--state", type=Path, default=Path("coverage.json"))
    parser.add_argument("--metric", choices=KINDS, action="append")
    parser.add_argument("--examples", type=int, action="append")
    flags = parser.parse_args()
    state: dict[str, dict[str, float]] = json.loads(flags.state.read_text()) if flags.state.exists() else {}
    cells = {}
    for name in flags.metric or KINDS:
        for shape in SHAPES:
            for n in flags.examples or EXAMPLES:
                key = f"{name}/{shape}/{n}/{flags.experiments}/{flags.resamples}"
                if key not in state:
                    state[key] = measure(name, shape, n, experiments=flags.experiments, resamples=flags.resamples)
                    flags.state.write_text(json.dumps(state, indent=1))
                cells[key] = state[key]
    print("In percent; exit 0 and 1 where the true loss is the REGRESSION threshold.\n")
    print(table(cells))


if __name__ == "__main__":
    main()
