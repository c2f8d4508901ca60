"""Labels, paired statistics and what makes two runs comparable."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from calipers.comparison import verdict
from calipers.core import Metric, ModelInfo, RequestError, Thresholds
from calipers.metrics import paired
from calipers.metrics.correlation import spearman_statistic
from calipers.metrics.exchange import ranks
from calipers.metrics.means import mean_statistic
from tests.support.verdicts import label_of
from tests.support.verdicts import scored as result

ACCURACY = Metric("accuracy", "share right", lambda c: mean_statistic(c["right"]))
PERPLEXITY = Metric(
    "pppl", "", lambda c: mean_statistic(c["right"]), higher_is_better=False, thresholds=Thresholds(0.05, 0.10)
)


def terms(**changes: Any) -> verdict.Terms:
    return replace(verdict.Terms({}, deciding=("accuracy",), resamples=2000), **changes)


def judge(baseline: Any, candidate: Any, metric: Metric = ACCURACY, **changes: Any) -> verdict.Verdict:
    return verdict.compare(result(baseline), result(candidate), [metric], terms(deciding=(metric.name,), **changes))


# The published quantisation table for fill-mask models: candidate, baseline, label.
PUBLISHED = [
    (4.3528, 4.2981, "PASS"),
    (5.3561, 5.2706, "PASS"),
    (2.7162, 2.6770, "PASS"),
    (5.4702, 5.3352, "PASS"),
    (4.6449, 4.4645, "PASS"),
    (3.9015, 3.6435, "AT_RISK"),
    (5.7810, 5.2262, "REGRESSION"),
    (3339.66, 6.6132, "REGRESSION"),
]


@pytest.mark.parametrize(("candidate", "baseline", "label"), PUBLISHED)
def test_the_published_table_is_labelled_as_published(candidate: float, baseline: float, label: str) -> None:
    assert label_of(baseline, candidate, PERPLEXITY.thresholds, higher_is_better=False) == label


@pytest.mark.parametrize(
    ("baseline", "candidate", "label"),
    [(80, 78.01, "PASS"), (80, 78, "AT_RISK"), (80, 76.01, "AT_RISK"), (80, 76, "REGRESSION"), (80, 99, "PASS")],
)
def test_absolute_thresholds_pass_below_the_first_and_regress_from_the_second(
    baseline: float, candidate: float, label: str
) -> None:
    points = Thresholds(2.0, 4.0, relative=False)
    assert label_of(baseline, candidate, points, higher_is_better=True) == label


@pytest.mark.parametrize(
    ("baseline", "candidate", "label"), [(0.0, 0.0, "PASS"), (0.0, 0.1, "REGRESSION"), (0.0, -0.1, "PASS")]
)
def test_a_share_of_zero_is_infinite_unless_nothing_changed(baseline: float, candidate: float, label: str) -> None:
    assert label_of(baseline, candidate, Thresholds(0.05, 0.1), higher_is_better=False) == label


def test_equal_models_pass_even_where_nothing_may_be_lost() -> None:
    found = judge([1, 0, 1, 1], [1, 0, 1, 1], thresholds={"accuracy": Thresholds(0.0, 0.0)})
    (comparison,) = found.comparisons
    assert found.label == "PASS"
    assert (comparison.delta, comparison.interval, comparison.confidence) == (0.0, (0.0, 0.0), 1.0)
    assert comparison.p_value == 1.0
    assert found.worst == ()


def test_the_interval_is_that_of_the_paired_difference() -> None:
    """Both models vary much from example to example, and by the same: the difference does not vary at all."""
    right = np.random.default_rng(0).random(50)
    (comparison,) = judge(right, right - 0.25).comparisons
    assert comparison.delta == pytest.approx(-0.25)
    assert comparison.interval == pytest.approx((-0.25, -0.25))


def test_what_few_examples_cannot_settle_is_inconclusive_and_says_how_many_would() -> None:
    rng = np.random.default_rng(1)
    baseline = (rng.random(40) < 0.8).astype(float)
    candidate = np.where(rng.random(40) < 0.25, 1 - baseline, baseline)
    found = judge(baseline, candidate)
    (comparison,) = found.comparisons
    assert found.label == comparison.label == "INCONCLUSIVE"
    assert comparison.estimate != "INCONCLUSIVE"
    assert comparison.confidence is not None
    assert comparison.confidence < 0.95
    assert comparison.settled_by is not None
    assert comparison.settled_by > 40


def test_one_example_settles_nothing() -> None:
    found = judge([1.0], [0.2])
    (comparison,) = found.comparisons
    assert (found.label, comparison.estimate, comparison.interval) == ("INCONCLUSIVE", "REGRESSION", None)
    assert comparison.reason == "one example cannot be resampled"


def test_only_metrics_that_decide_make_the_label() -> None:
    found = judge([1.0] * 9, [0.1] * 9, thresholds={}, worst=2)
    assert found.label == "REGRESSION"
    spared = verdict.compare(result([1.0] * 9), result([0.1] * 9), [ACCURACY], terms(deciding=()))
    assert spared.label == "INCONCLUSIVE"
    assert spared.comparisons[0].label == "REGRESSION"


def test_the_worst_examples_are_named_with_texts_and_sum_to_the_loss() -> None:
    found = judge([1, 1, 1, 1, 1], [1, 0, 1, 0.5, 1])
    assert [(e.id, e.texts["text"]) for e in found.worst] == [("r1", "text 1"), ("r3", "text 3")]
    assert [e.share for e in found.worst] == pytest.approx([-0.2, -0.1])
    assert (found.worst[0].baseline["right"], found.worst[0].candidate["right"]) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"task": "other"}, "the tasks differ: toy and other"),
        ({"options": {"k": 3}}, "options differ: k None and 3"),
        ({"fingerprint": "else"}, "differ under the same ids"),
    ],
)
def test_what_differs_is_told_in_one_sentence(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(RequestError, match=told):
        verdict.compare(result([1, 0]), result([1, 0], **changes), [ACCURACY], terms())


def test_a_list_that_was_stored_is_the_tuple_that_it_was() -> None:
    stored, fresh = result([1, 0, 1], options={"k": [3]}), result([1, 0, 1], options={"k": (3,)})
    assert verdict.compare(stored, fresh, [ACCURACY], terms()).label == "PASS"


def test_other_examples_and_another_order_are_refused() -> None:
    with pytest.raises(RequestError, match=r"the examples differ \(3 and 2\): r2 only in the first"):
        verdict.compare(result([1, 0, 1]), result([1, 0]), [ACCURACY], terms())
    turned = result([1, 0])
    turned = replace(turned, outcomes=replace(turned.outcomes, ids=("r1", "r0")))
    with pytest.raises(RequestError, match="another order"):
        verdict.compare(result([1, 0]), turned, [ACCURACY], terms())


def test_what_may_differ_is_shown() -> None:
    other = ModelInfo("onnx", "q", None, "cpu", "g", settings={"dtype": "int8"})
    found = verdict.compare(result([1, 0, 1]), result([1, 0, 1], model=other), [ACCURACY], terms())
    assert found.differences == {"backend": ("torch", "onnx"), "dtype": ("float32", "int8")}


def test_a_mean_per_token_of_two_tokenizers_is_refused() -> None:
    metric = replace(ACCURACY, same=("right",))
    with pytest.raises(RequestError, match="is a mean over right; the first has 2 and the second 1"):
        verdict.compare(result([1, 1]), result([1, 0]), [metric], terms())


def test_a_dead_candidate_has_no_number_and_a_reason() -> None:
    found = verdict.invalid(result([1, 0]), "dead", "NaN in 2 rows", [ACCURACY], terms())
    (comparison,) = found.comparisons
    assert (found.label, comparison.label, comparison.candidate, comparison.reason) == (
        "INVALID",
        "INVALID",
        None,
        "NaN in 2 rows",
    )
    assert comparison.baseline == 0.5


# --- paired statistics -------------------------------------------------------------------------------------------


def test_influence_of_a_correlation_is_that_of_leaving_one_out() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=30), rng.normal(size=30)
    found = paired.influence(spearman_statistic(x, y), 30, threads=2)
    whole = spearman_statistic(x, y)(np.ones((30, 1)))[0]
    for i in (0, 7, 29):
        keep = np.arange(30) != i
        without = spearman_statistic(x[keep], y[keep])(np.ones((29, 1)))[0]
        assert found[i] == pytest.approx(29 * (whole - without))


def test_the_permutation_p_value_is_that_of_all_sign_patterns() -> None:
    """2⁸ patterns by hand against 20,000 random ones."""
    differences = np.array([0.3, 0.1, 0.4, -0.2, 0.5, 0.2, 0.1, 0.3])
    delta = differences.mean()
    patterns = np.array(np.meshgrid(*[[-1, 1]] * 8)).reshape(8, -1)
    exact = (np.abs(patterns.T @ differences / 8) >= abs(delta) - 1e-9).mean()
    found = paired.permutation_p(differences, permutations=20_000, seed=0)
    assert found == pytest.approx(exact, abs=0.01)


def test_a_p_value_is_never_zero() -> None:
    assert paired.permutation_p(np.full(200, 5.0), permutations=999, seed=0) == 1 / 1000


def test_holm_is_at_least_each_p_value_at_most_bonferroni_and_keeps_their_order() -> None:
    p = [0.001, 0.2, 0.04, 0.04, 0.9]
    adjusted = paired.holm(p)
    assert all(a >= b and a <= min(1.0, 5 * b) for a, b in zip(adjusted, p, strict=True))
    assert [adjusted[i] for i in np.argsort(p)] == sorted(adjusted)
    assert paired.holm([]) == []


def test_correcting_needs_all_candidates() -> None:
    one = judge([1, 1, 0, 1, 1, 1, 1, 0], [1, 1, 0, 1, 1, 1, 0, 0])
    (alone,) = verdict.correct([one])
    pair = verdict.correct([one, one])
    assert alone.comparisons[0].adjusted_p == alone.comparisons[0].p_value
    assert pair[0].comparisons[0].adjusted_p == min(1.0, 2 * (one.comparisons[0].p_value or 0))


def test_a_metric_that_is_no_mean_exchanges_the_models() -> None:
    """Whatever the scale of the candidate's scores: its ranks are what is exchanged."""
    rng = np.random.default_rng(0)
    gold = rng.normal(size=80)
    metric = Metric("rho", "", lambda c: spearman_statistic(c["right"], gold_twice(c["right"])), exchange=ranks)

    def gold_twice(values: Any) -> Any:
        return np.tile(gold, len(values) // len(gold))

    a, b = gold + rng.normal(size=80), gold + 2.0 * rng.normal(size=80)
    p_values = [judge(a, scores, metric).comparisons[0].p_value for scores in (b, np.exp(b), a)]
    assert p_values[0] == p_values[1] < 0.05
    assert p_values[2] == 1.0


class TestMoreThanTwentyThousandExamples:
    """Leaving out one at a time would take minutes there: means, correlations and figures of classes need not."""

    SIZE = 20_001

    def both(self) -> tuple[Any, Any]:
        rng = np.random.default_rng(0)
        right = rng.integers(0, 2, self.SIZE)
        return right, np.where(rng.uniform(size=self.SIZE) < 0.01, 0, right)

    def test_a_mean_keeps_its_method_its_p_value_and_the_worst_examples(self) -> None:
        found = judge(*self.both(), resamples=200, worst=3)
        (comparison,) = found.comparisons
        assert (found.bootstrap["method"], comparison.reason) == ("studentised", None)
        assert comparison.p_value == pytest.approx(1 / (found.bootstrap["permutations"] + 1))
        assert [example.candidate["right"] for example in found.worst] == [0.0] * 3

    def test_what_has_no_closed_form_says_what_is_missing(self) -> None:
        def middle(columns: Any) -> Any:
            mean = mean_statistic(columns["right"])
            return lambda counts: mean(counts)

        found = judge(*self.both(), Metric("middle", "", middle), resamples=200, worst=3)
        (comparison,) = found.comparisons
        assert (found.bootstrap["method"], comparison.p_value, found.worst) == ("percentile", None, ())
        expected = "judged by percentiles, the p-value and the worst examples are unknown: leaving out one at a time"
        assert comparison.reason is not None
        assert comparison.reason.startswith(expected)
