"""Do intervals hold what they promise? Simulated experiments whose truth is known, for each kind of metric."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from calipers.comparison import verdict
from calipers.comparison.records import Comparison
from calipers.core import Metric, Outcomes, Thresholds
from calipers.metrics import classification, ranking
from calipers.metrics.correlation import spearman_statistic
from calipers.metrics.means import mean_statistic, perplexity_statistic
from tests.support.verdicts import label_of
from tests.support.verdicts import scored as result

EXPERIMENTS, EXAMPLES, RESAMPLES = 1000, 250, 1000
POPULATION = 400_000
EFFECTS = np.linspace(0.0, 1.0, 9)  # from no harm to well above the second threshold

Pair = tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]


@dataclass(frozen=True)
class Kind:
    metric: Metric
    sample: Callable[[np.random.Generator, int, float], Pair]
    population: int = POPULATION


def means(rng: np.random.Generator, n: int, effect: float) -> Pair:
    ease = rng.beta(4, 2, n)
    a, b = rng.random(n) < ease, rng.random(n) < ease * (1 - 0.25 * effect)
    return {"x": a.astype(float)}, {"x": np.where(rng.random(n) < 0.6, np.minimum(a, b), b).astype(float)}


def correlations(rng: np.random.Generator, n: int, effect: float) -> Pair:
    gold = np.round(rng.random(n) * 20) / 4
    a = gold + rng.normal(0, 0.8, n)
    return {"x": a, "gold": gold}, {"x": a + rng.normal(0, 0.2 + 0.9 * effect, n), "gold": gold}


def likelihoods(rng: np.random.Generator, n: int, effect: float) -> Pair:
    tokens = rng.integers(5, 60, n).astype(float)
    a = tokens * rng.gamma(8, 0.16, n)
    b = a * rng.gamma(60, (1 + 0.15 * effect) / 60, n)
    return {"ll": -a, "tokens": tokens}, {"ll": -b, "tokens": tokens}


def rankings(rng: np.random.Generator, n: int, effect: float) -> Pair:
    grades = rng.choice([0.0, 1.0, 2.0], p=[0.8, 0.15, 0.05], size=(n, 20))
    grades[:, 0] = 1.0
    a = grades + rng.normal(0, 1.0, (n, 20))
    b = a + rng.normal(0, 0.1 + 1.1 * effect, (n, 20))
    return {"x": ndcg(a, grades)}, {"x": ndcg(b, grades)}


def ndcg(scores: NDArray[np.float64], grades: NDArray[np.float64]) -> NDArray[np.float64]:
    offsets = np.arange(len(scores) + 1) * scores.shape[1]
    return ranking.ndcg(ranking.Rankings(offsets, scores.ravel(), grades.ravel(), offsets, grades.ravel()), 10)


def classes(rng: np.random.Generator, n: int, effect: float) -> Pair:
    label = (rng.random(n) < 0.4).astype(float)
    a = label + rng.normal(0, 0.5, n)
    return {"x": a, "label": label}, {"x": a + rng.normal(0, 0.1 + 0.6 * effect, n), "label": label}


def f1(columns: Any) -> Any:
    """At a fixed cut: F1 of the class that is predicted."""
    return classification.f1_macro_statistic((columns["x"] > 0.5).astype(np.int64), columns["label"].astype(np.int64))


KINDS = {
    "mean": Kind(Metric("mean", "", lambda c: mean_statistic(c["x"])), means),
    "spearman": Kind(
        Metric(
            "spearman", "", lambda c: spearman_statistic(c["x"], c["gold"]), thresholds=Thresholds(0.02, 0.04, False)
        ),
        correlations,
    ),
    "perplexity": Kind(
        Metric("pppl", "", lambda c: perplexity_statistic(c["ll"], c["tokens"]), higher_is_better=False), likelihoods
    ),
    "ndcg": Kind(Metric("ndcg", "", lambda c: mean_statistic(c["x"])), rankings, population=60_000),
    "f1": Kind(Metric("f1", "", f1), classes),
}


def truths(kind: Kind) -> list[tuple[float, str]]:
    """The true delta and label of every effect, from a population of its own."""
    found = []
    for effect in EFFECTS:
        a, b = (kind.metric.value(c) for c in kind.sample(np.random.default_rng(99), kind.population, effect))
        label = label_of(a, b, kind.metric.thresholds, higher_is_better=kind.metric.higher_is_better)
        found.append((b - a, label))
    return found


def judge(kind: Kind, pair: Pair, seed: int) -> Comparison:
    sides = []
    for columns in pair:
        made = result(np.zeros(len(next(iter(columns.values())))))
        sides.append(replace(made, outcomes=Outcomes(made.outcomes.ids, columns)))
    terms = verdict.Terms({}, (kind.metric.name,), resamples=RESAMPLES, seed=seed, worst=0)
    return verdict.compare(*sides, [kind.metric], terms).comparisons[0]


def experiments(kind: Kind) -> list[tuple[Comparison, float, str]]:
    """(comparison, true delta, true label) of every experiment, the effects in turn."""
    known, found = truths(kind), []
    for seed in range(EXPERIMENTS):
        which = seed % len(EFFECTS)
        pair = kind.sample(np.random.default_rng(1000 + seed), EXAMPLES, EFFECTS[which])
        found.append((judge(kind, pair, seed), *known[which]))
    return found


@pytest.fixture(scope="module")
def simulated(monkeypatch_module: pytest.MonkeyPatch) -> dict[str, list[tuple[Comparison, float, str]]]:
    monkeypatch_module.setattr(verdict, "permutations", lambda units: 9)  # p-values are not looked at here
    return {name: experiments(kind) for name, kind in KINDS.items()}


@pytest.fixture(scope="module")
def monkeypatch_module() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_a_95_percent_interval_holds_the_true_delta_in_93_to_97_percent(
    name: str, simulated: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    held = [c.interval[0] <= delta <= c.interval[1] for c, delta, _ in simulated[name]]
    with capsys.disabled():
        print(f"\n{name}: the interval holds the true delta in {np.mean(held):.1%} of {len(held)} experiments")
    assert 0.93 <= np.mean(held) <= 0.97


@pytest.mark.slow
def test_the_stated_confidence_is_how_often_the_label_is_true(
    simulated: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    stated = np.array([c.confidence for rows in simulated.values() for c, _, _ in rows])
    true = np.array([c.estimate == label for rows in simulated.values() for c, _, label in rows])
    for low, high in ((0.3, 0.6), (0.6, 0.8), (0.8, 0.9), (0.9, 0.97), (0.97, 1.01)):
        here = (stated >= low) & (stated < high)
        with capsys.disabled():
            print(
                f"\nstated {stated[here].mean():.1%}, true {true[here].mean():.1%} ({here.sum()} experiments)", end=""
            )
        assert abs(stated[here].mean() - true[here].mean()) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_identical_models_are_never_a_regression(name: str) -> None:
    kind = KINDS[name]
    for seed in range(100):
        columns, _ = kind.sample(np.random.default_rng(seed), 30, 0.0)
        found = judge(kind, (columns, columns), seed)
        assert (found.label, found.delta, found.confidence) == ("PASS", 0.0, 1.0)
