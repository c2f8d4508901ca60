"""Chances of the labels, and exit codes that never flip: the rule, its edges, and a property over random data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from calipers.comparison import verdict
from calipers.comparison.records import Chances, GateOptions, Question, Verdict
from calipers.core import Metric, Outcomes, RequestError, Thresholds
from calipers.metrics.correlation import spearman_statistic
from calipers.metrics.means import mean_statistic, pair_means, perplexity_statistic
from calipers.tasks import fill_mask
from tests.support.verdicts import scored

ACCURACY = Metric("accuracy", "", lambda c: mean_statistic(c["x"]))
DRIFT = Metric("drift", "", lambda c: mean_statistic(c["x"]), higher_is_better=False)
SPEARMAN = Metric("spearman", "", lambda c: spearman_statistic(c["x"], c["gold"]))
PERPLEXITY = Metric(
    "pppl", "", lambda c: perplexity_statistic(c["x"], c["tokens"]), higher_is_better=False, log_scale=np.log
)
ORDER = {0: 0, 5: 1, 1: 2}  # from the best exit code to the worst


def side(**columns: Any) -> Any:
    arrays = {name: np.asarray(values, np.float64) for name, values in columns.items()}
    made = scored(arrays["x"])
    return replace(made, outcomes=Outcomes(made.outcomes.ids, arrays))


def judge(a: Any, b: Any, metrics: Any = ACCURACY, limits: Any = None, **changes: Any) -> Verdict:
    metrics = metrics if isinstance(metrics, list) else [metrics]
    limits = limits if isinstance(limits, dict) else {m.name: limits for m in metrics if limits}
    names = tuple(m.name for m in metrics)
    terms = replace(verdict.Terms(limits, names, resamples=500, worst=0), **changes)
    sides = [one if hasattr(one, "outcomes") else side(x=one) for one in (a, b)]
    return verdict.compare(*sides, metrics, terms)


def skewed(rng: np.random.Generator, n: int) -> NDArray[np.float64]:
    return np.where(rng.random(n) < 0.2, rng.exponential(0.5, n), rng.normal(0, 0.02, n))


# --- the rule -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chances", "estimate", "question", "label"),
    [
        (Chances(0.0, 0.05, 0.95), "REGRESSION", "REGRESSION", "REGRESSION"),
        (Chances(0.0, 0.06, 0.94), "REGRESSION", "REGRESSION", "INCONCLUSIVE"),
        (Chances(0.5, 0.45, 0.05), "AT_RISK", "REGRESSION", "AT_RISK"),
        (Chances(0.5, 0.45, 0.05), "PASS", "REGRESSION", "PASS"),
        (Chances(0.5, 0.44, 0.06), "PASS", "REGRESSION", "INCONCLUSIVE"),
        (Chances(0.05, 0.9, 0.05), "AT_RISK", "AT_RISK", "AT_RISK"),
        (Chances(0.02, 0.02, 0.96), "REGRESSION", "AT_RISK", "REGRESSION"),
        (Chances(0.96, 0.04, 0.0), "PASS", "AT_RISK", "PASS"),
        (Chances(0.5, 0.5, 0.0), "AT_RISK", "AT_RISK", "INCONCLUSIVE"),
        (None, "PASS", "REGRESSION", "INCONCLUSIVE"),
    ],
)
def test_the_label_follows_from_the_chance_of_what_fails(
    chances: Chances | None, estimate: Any, question: Question, label: str
) -> None:
    assert verdict.decide(chances, estimate, question, 0.95) == label


def test_the_exit_code_does_not_come_back_when_a_threshold_between_is_loosened() -> None:
    """The issue's case: with 0.5,9 the exit code was 0, with 2,9 it was 5, with 8,9 it was 0 again."""
    rng = np.random.default_rng(5)
    before = rng.normal(80, 10, 300)
    after = before - 2.9 + rng.normal(0, 12, 300)
    codes = [
        GateOptions().exit_code([judge(before, after, limits=Thresholds(passes, 9.0, False)).label])
        for passes in (0.5, 2.0, 3.0, 8.0, 9.0)
    ]
    assert codes == [0] * 5


def test_chances_agree_with_the_interval_and_sum_to_one() -> None:
    rng = np.random.default_rng(1)
    before = rng.normal(0, 1, 80)
    after = before - skewed(rng, 80)
    (c,) = judge(before, after, limits=Thresholds(0.05, 0.1, False)).comparisons
    assert c.chances is not None
    assert c.interval is not None
    assert sum(c.chances.to_dict().values()) == pytest.approx(1.0)
    (at_end,) = judge(before, after, limits=Thresholds(0.0, -c.interval[0], False)).comparisons
    assert at_end.chances is not None
    assert at_end.chances.regression == pytest.approx(0.025, abs=0.004)


@pytest.mark.parametrize("question", ["REGRESSION", "AT_RISK"])
def test_loosening_a_threshold_never_makes_the_exit_code_worse(question: Question) -> None:
    """Random data, metrics, directions, shares and points; one metric or two; each threshold loosened in turn."""
    gate = GateOptions("at-risk" if question == "AT_RISK" else "regression")
    flips = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(5, 90))
        base = np.abs(rng.normal(1.0, 0.5, n)) if seed % 2 else rng.random(n).round(1)
        loss = skewed(rng, n) * rng.choice([-1, 0.3, 1, 3]) + rng.choice([0.0, 0.1])
        gold = base + rng.normal(0, 0.3, n)
        sides = [side(x=v, gold=gold, tokens=np.ones(n)) for v in (base, base - loss)]
        metrics = list(rng.choice(np.array([ACCURACY, DRIFT, SPEARMAN, PERPLEXITY]), rng.integers(1, 3), replace=False))
        limits = {m.name: _limits(rng) for m in metrics}
        codes = []
        for step in range(6):
            if step:
                name = str(rng.choice(sorted(limits)))
                limits[name] = _looser(limits[name], rng)
            labels = [judge(*sides, metrics, limits, question=question, resamples=200).label]
            codes.append(ORDER[gate.exit_code(labels)])
        flips += len(set(codes)) > 1
        assert codes == sorted(codes, reverse=True), (seed, codes)
    assert flips > 5  # the thresholds that were tried do matter


def _limits(rng: np.random.Generator) -> Thresholds:
    first, second = np.sort(rng.choice([0.0, 0.01, 0.05, 0.1, 0.2], 2))
    return Thresholds(float(first), float(second), relative=bool(rng.integers(2)))


def _looser(limits: Thresholds, rng: np.random.Generator) -> Thresholds:
    more = float(rng.exponential(0.1))
    if rng.integers(2):
        return replace(limits, at_risk=limits.at_risk + more)
    return replace(limits, passes=min(limits.at_risk, limits.passes + more))


# --- rare losses ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 20])
def test_a_model_passes_against_itself_at_any_number_of_examples(n: int) -> None:
    values = np.linspace(0.0, 1.0, n)
    (c,) = judge(values, values, limits=Thresholds(0.0, 0.0)).comparisons
    assert (c.label, c.chances, c.interval) == ("PASS", Chances(1.0, 0.0, 0.0), (0.0, 0.0))


@pytest.mark.parametrize("changed", [1, 2, 4])
@pytest.mark.parametrize("step", [-1.0, 1e-6, 1.0])
def test_few_changed_examples_settle_nothing(changed: int, step: float) -> None:
    before = np.full(50, 2.0)
    after = before - np.where(np.arange(50) < changed, step, 0.0)
    (c,) = judge(before, after).comparisons
    assert (c.label, c.interval, c.chances) == ("INCONCLUSIVE", None, None)
    assert c.reason == f"only {changed} of 50 changed, which cannot show a rare loss: at least 5 must"
    assert c.settled_by is not None
    assert c.settled_by > 50


def test_two_examples_that_lose_half_are_no_regression() -> None:
    """It was REGRESSION with confidence 1.0 beside p 0.5."""
    (c,) = judge([1.0, 1.0], [0.5, 0.5]).comparisons
    assert (c.label, c.estimate) == ("INCONCLUSIVE", "REGRESSION")


def test_a_loss_that_two_of_fifty_examples_carry_is_in_doubt_though_all_jitter() -> None:
    rng = np.random.default_rng(3)
    before = rng.random(50) + 1
    after = before - np.where(np.arange(50) < 2, 0.9, rng.normal(0, 0.001, 50))
    (c,) = judge(before, after, limits=Thresholds(0.05, 0.10, False)).comparisons
    assert (c.estimate, c.label) == ("PASS", "INCONCLUSIVE")


# --- examples without a value ---------------------------------------------------------------------------------------


def test_losing_a_value_is_a_loss() -> None:
    """[1,1,1,1,0] against [1,1,1,1,NaN] was +25 %, PASS."""
    (c,) = judge([1, 1, 1, 1, 0], [1, 1, 1, 1, np.nan]).comparisons
    assert (c.candidate, c.delta) == (0.8, 0.0)
    assert c.reason == "1 of 5 have no value in the candidate and count as the worst value"
    (worse,) = judge([1.0] * 20, [1.0] * 12 + [np.inf] * 4 + [np.nan] * 4).comparisons
    assert (worse.candidate, worse.label) == (0.6, "REGRESSION")


def test_losing_a_value_is_a_loss_where_lower_is_better() -> None:
    """The worst of what was seen was the baseline's own value, so that nothing seemed lost."""
    before, after = mean_statistic(np.full(4, 0.3)), mean_statistic(np.array([0.3, 0.3, np.nan, np.inf]))
    first, second, lost = pair_means(before, after, higher_is_better=False)
    values = [float(mean(np.ones((4, 1)))[0]) for mean in (first, second)]
    assert (lost, values) == (2, pytest.approx([0.3, 0.65]))


def test_what_the_baseline_has_no_value_of_is_left_out_of_both() -> None:
    (c,) = judge([np.nan, 1, 1, 1], [0.0, 1, 1, 1]).comparisons
    assert (c.baseline, c.candidate, c.label, c.examples) == (1.0, 1.0, "PASS", 3)


def test_a_p_value_counts_only_examples_with_a_value() -> None:
    """5 of 15 have a value, all 1 → 0.5: 2 of 2⁵ sign patterns are as far from 0. It was 0.0003."""
    values = np.where(np.arange(15) < 5, 1.0, np.nan)
    (c,) = judge(values, values / 2).comparisons
    assert c.p_value == pytest.approx(0.0625, abs=0.01)


def test_ties_of_the_permutation_test_are_ties() -> None:
    """Three of 200 queries lose everything: exact 0.25, it was 0.125."""
    before = np.random.default_rng(0).random(200) * 0.1 + 0.9
    after = np.where(np.arange(200) < 3, before - 0.7, before)
    (c,) = judge(before, after).comparisons
    assert c.p_value == pytest.approx(0.25, abs=0.015)
    (even,) = judge(np.full(12, 0.1), np.full(12, 0.1) + np.tile([0.3, -0.3], 6)).comparisons
    assert even.p_value == 1.0


# --- what decides ---------------------------------------------------------------------------------------------------


def test_without_the_metric_that_decides_there_is_no_verdict() -> None:
    gone = replace(ACCURACY, needs=("missing",))
    with pytest.raises(RequestError, match="one of them has no accuracy, and the verdict depends on it"):
        judge([1.0, 0.0], [1.0, 0.0], [gone, DRIFT])
    with pytest.raises(RequestError, match="there is no metric that both have"):
        judge([1.0, 0.0], [1.0, 0.0], [gone], deciding=())


def test_where_at_risk_fails_it_is_not_hidden_by_what_is_inconclusive() -> None:
    rng = np.random.default_rng(0)
    before = rng.normal(10, 1, 60)
    sides = side(x=before, y=before), side(x=before - 0.7 + rng.normal(0, 0.1, 60), y=before + rng.normal(0, 9, 60))
    noise = Metric("noise", "", lambda c: mean_statistic(c["y"]))
    assert judge(*sides, [ACCURACY, noise], question="AT_RISK").label == "AT_RISK"
    assert judge(*sides, [ACCURACY, noise]).label == "INCONCLUSIVE"


def test_perplexity_and_its_logarithm_have_one_label() -> None:
    """+0.326 nats was PASS by nll and REGRESSION by pseudo_perplexity."""
    rng = np.random.default_rng(2)
    chosen = [m for m in fill_mask.METRICS if m.name in ("pseudo_perplexity", "nll", "bits_per_token")]
    for nats in (0.0, 0.03, 0.06, 0.08, 0.326):
        tokens = rng.integers(5, 60, 40).astype(float)
        ll = -tokens * rng.gamma(20, 0.35, 40)
        sides = [
            side(x=tokens, log_likelihood=v, tokens=tokens) for v in (ll, ll - tokens * rng.normal(nats, 0.04, 40))
        ]
        pppl, nll, bits = judge(*sides, chosen).comparisons
        assert pppl.label == nll.label == bits.label
        assert pppl.chances is not None
        assert nll.chances is not None
        assert pppl.chances.regression == pytest.approx(nll.chances.regression, abs=1e-9)
    assert nll.label == "REGRESSION"


def test_thousands_of_ids_are_compared_in_linear_time() -> None:
    """8,000 ids took 2 s: the set was made anew for each of them."""
    import time

    many = side(x=np.zeros(100_000))
    other = replace(many, outcomes=replace(many.outcomes, ids=tuple(f"s{i}" for i in range(100_000))))
    start = time.perf_counter()
    with pytest.raises(RequestError, match="the examples differ"):
        verdict.refuse_unlike(many, other)
    assert time.perf_counter() - start < 2.0


def test_the_number_of_threads_changes_no_bit() -> None:
    rng = np.random.default_rng(4)
    gold = rng.random(700)
    sides = [side(x=gold + rng.normal(0, s, 700), gold=gold) for s in (0.1, 0.2)]
    first, second = (judge(*sides, [SPEARMAN], threads=threads, resamples=3000).comparisons[0] for threads in (1, 3))
    assert (first.chances, first.interval) == (second.chances, second.interval)
