"""How many examples would settle it: with as many, 80 % of samples do. Seven cases whose truth is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from calipers.comparison import evidence, verdict
from calipers.comparison.records import Question
from calipers.core import Metric, Outcomes, Thresholds
from calipers.metrics.correlation import spearman_statistic
from calipers.metrics.means import mean_statistic

MEAN = Metric("mean", "", lambda c: mean_statistic(c["x"]))
SPEARMAN = Metric("spearman", "", lambda c: spearman_statistic(c["x"], c["gold"]))
POINTS = Thresholds(0.05, 0.10, relative=False)

Pair = tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]
Losses = Callable[[np.random.Generator, int], NDArray[np.float64]]


def values(losses: Losses) -> Callable[[np.random.Generator, int], Pair]:
    def sample(rng: np.random.Generator, n: int) -> Pair:
        before = rng.normal(1.0, 0.2, n)
        return {"x": before}, {"x": before - losses(rng, n)}

    return sample


def pairs(rng: np.random.Generator, n: int) -> Pair:
    gold = rng.random(n)
    before = gold + rng.normal(0, 0.2, n)
    return {"x": before, "gold": gold}, {"x": before + rng.normal(0, 0.12, n), "gold": gold}


NORMAL = {at: values(lambda rng, n, at=at: rng.normal(at, 0.3, n)) for at in (0.0, 0.05, 0.075, 0.15)}  # type: ignore[misc]
SKEWED = values(lambda rng, n: rng.gamma(0.5, 0.1, n))


@dataclass(frozen=True)
class Case:
    """A metric, samples of both models, the true loss, and what is asked."""

    metric: Metric
    sample: Callable[[np.random.Generator, int], Pair]
    loss: float
    thresholds: Thresholds = POINTS
    question: Question = "REGRESSION"


CASES = {
    "no loss": Case(MEAN, NORMAL[0.0], 0.0),
    "at the first threshold": Case(MEAN, NORMAL[0.05], 0.05),
    "the middle of AT_RISK": Case(MEAN, NORMAL[0.075], 0.075),
    "a regression": Case(MEAN, NORMAL[0.15], 0.15),
    "skewed": Case(MEAN, SKEWED, 0.05, Thresholds(0.04, 0.075, False)),
    "the middle of AT_RISK, which fails": Case(MEAN, NORMAL[0.075], 0.075, question="AT_RISK"),
    "rank correlation, as a share": Case(SPEARMAN, pairs, 0.0531, Thresholds(0.05, 0.12)),
}
EXPERIMENTS = 300


def judge(case: Case, n: int, seed: int) -> str:
    chances, _ = evidence.chances_and_interval(gather(case, n, seed), case.thresholds, 0.95)
    return verdict.decide(chances, "PASS", case.question, 0.95)


def gather(case: Case, n: int, seed: int) -> evidence.Evidence:
    ids = tuple(map(str, range(n)))
    a, b = (Outcomes(ids, columns) for columns in case.sample(np.random.default_rng(seed), n))
    return evidence.gather([case.metric], a, b, evidence.DrawnUnits(n), resamples=1000, seed=seed, threads=1)[0]


def promised(case: Case) -> int:
    """The median of what samples of 40 say whose loss is the true one."""
    numbers = []
    for seed in range(10_000, 10_200):
        sample = gather(case, 40, seed)
        scale = evidence.loss_scale(sample, case.thresholds)
        assert scale.pivot is not None
        moved = replace(scale, pivot=replace(scale.pivot, estimate=case.loss))
        numbers.append(evidence.units_for(moved, case.question, sample, 0.95) or 0)
    return int(np.median(numbers))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_with_the_number_that_is_promised_four_of_five_samples_settle(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    case = CASES[name]
    n = promised(case)
    settled = [judge(case, n, seed) != "INCONCLUSIVE" for seed in range(EXPERIMENTS)]
    with capsys.disabled():
        print(f"\n{name}: {n} examples settle {np.mean(settled):.1%}")
    assert np.mean(settled) >= 0.8
    assert n < 20_000
