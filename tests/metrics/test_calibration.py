"""Maps, qualities and abstention: scikit-learn as the reference, hand-computed cases, one-sided labels."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, roc_auc_score

from calipers.metrics import bootstrap, calibration, probabilities
from calipers.metrics.calibration import fit_isotonic, fit_logistic, pool_adjacent
from calipers.metrics.probabilities import (
    auroc_statistic,
    brier_statistic,
    ece_statistic,
    equal_mass_bins,
    risk_coverage,
)


def once(statistic: probabilities.Statistic, n: int) -> float:
    return float(statistic(np.ones((n, 1)))[0])


def example(n: int, seed: int = 0, *, digits: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    scores = np.round(rng.random(n), digits)
    return scores, (rng.random(n) < scores).astype(float)


# --- maps ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 7, 60, 900])
@pytest.mark.parametrize("digits", [1, 8])
def test_isotonic_is_that_of_scikit_learn(n: int, digits: int) -> None:
    scores, labels = example(n, n, digits=digits)
    theirs = IsotonicRegression(out_of_bounds="clip").fit(scores, labels)
    grid = np.linspace(-0.5, 1.5, 400)
    assert np.interp(grid, *pool_adjacent(scores, labels)) == pytest.approx(theirs.predict(grid), abs=1e-12)


def test_isotonic_by_hand() -> None:
    score, level = pool_adjacent(np.array([1.0, 2.0, 3.0, 4.0, 5.0]), np.array([0.0, 1.0, 0.0, 0.0, 1.0]))
    assert score.tolist() == [1, 2, 4, 5]
    assert level.tolist() == pytest.approx([0, 1 / 3, 1 / 3, 1])


def test_no_isotonic_probability_is_certain() -> None:
    found = fit_isotonic(np.arange(8.0), np.array([0, 0, 0, 0, 1, 1, 1, 1.0]))
    assert found(np.array([-9.0, 0.0, 7.0, 99.0])).tolist() == pytest.approx([0.1, 0.1, 0.9, 0.9])
    assert np.isnan(found(np.array([np.nan]))[0])


def test_isotonic_of_equal_scores_is_their_share() -> None:
    found = fit_isotonic(np.ones(4), np.array([0, 1, 1, 1.0]))
    assert found(np.array([0.0, 1.0, 2.0])).tolist() == pytest.approx([0.75] * 3)


@pytest.mark.parametrize("n", [12, 300])
@pytest.mark.parametrize("ridge", [0.3, 1.0])
def test_logistic_is_that_of_scikit_learn(n: int, ridge: float) -> None:
    rng = np.random.default_rng(n)
    features = rng.normal(size=(n, 4)) * [1, 10, 0.01, 1] + [0, 5, 1, 0]
    labels = (rng.random(n) < calibration.sigmoid(features[:, 0] * 2)).astype(float)
    ours = fit_logistic(features, labels, ridge=ridge)
    scaled = (features - features.mean(axis=0)) / features.std(axis=0)
    theirs = LogisticRegression(C=1 / ridge, tol=1e-12, max_iter=2000).fit(scaled, labels)
    assert ours.weights == pytest.approx(theirs.coef_[0], abs=1e-5)
    assert ours(features) == pytest.approx(theirs.predict_proba(scaled)[:, 1], abs=1e-6)


def test_a_stacked_map_is_isotonic_over_what_was_not_seen() -> None:
    rng = np.random.default_rng(3)
    features = rng.normal(size=(200, 4))
    labels = (rng.random(200) < calibration.sigmoid(2 * features[:, 0])).astype(float)
    found = calibration.fit_stacked(features, labels)
    fold = calibration.folds(labels)
    unseen = np.empty(200)
    for number in range(5):
        rest = fold != number
        unseen[~rest] = fit_logistic(features[rest], labels[rest])(features[~rest])
    expected = IsotonicRegression(y_min=1 / 202, y_max=201 / 202, out_of_bounds="clip").fit(unseen, labels)
    assert found(features) == pytest.approx(expected.predict(fit_logistic(features, labels)(features)), abs=1e-9)
    assert np.isnan(found(np.full((1, 4), np.nan))).all()


def test_logistic_stays_finite_where_a_feature_tells_all() -> None:
    features = np.stack([np.r_[np.zeros(20), np.ones(20)], np.full(40, 3.0)], axis=1)
    found = fit_logistic(features, np.r_[np.zeros(20), np.ones(20)])
    assert np.isfinite(found.weights).all()
    assert found.weights[1] == 0  # no spread, no weight
    assert found(features)[[0, -1]] == pytest.approx([0.03, 0.97], abs=0.05)
    assert np.isnan(found(np.array([[np.nan, 3.0]]))[0])


def test_folds_have_the_same_shares_and_follow_the_seed() -> None:
    labels = np.r_[np.ones(33), np.zeros(67)]
    fold = calibration.folds(labels, 5, seed=1)
    sizes = [int((fold == i).sum()) for i in range(5)]
    assert sizes == [20] * 5
    assert all(labels[fold == i].sum() in (6, 7) for i in range(5))
    assert (calibration.folds(labels, 5, seed=1) == fold).all()
    assert (calibration.folds(labels, 5, seed=2) != fold).any()


def test_out_of_fold_never_sees_its_own_label() -> None:
    scores, labels = example(50, 4)
    fold = calibration.folds(labels, 5)
    before = calibration.out_of_fold(fit_isotonic, scores, labels, fold)
    turned = labels.copy()
    turned[7] = 1 - turned[7]
    after = calibration.out_of_fold(fit_isotonic, scores, turned, fold)
    assert (before[fold == fold[7]] == after[fold == fold[7]]).all()


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        ([], "no query is judged"),
        ([1.0] * 9, "every one of 9 queries succeeds"),
        ([0.0] * 9, "every one of 9 queries fails"),
        ([1.0] * 4 + [0.0] * 9, "4 of 13 queries succeed: 5 folds need at least 5"),
    ],
)
def test_why_nothing_can_be_learnt(labels: list[float], why: str) -> None:
    assert why in str(calibration.why_not(np.array(labels)))
    assert calibration.why_not(np.array([1.0] * 5 + [0.0] * 5)) is None


# --- qualities -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_auroc_and_brier_are_those_of_scikit_learn(seed: int) -> None:
    scores, labels = example(80, seed, digits=1)
    assert once(auroc_statistic(scores, labels), 80) == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    assert once(brier_statistic(scores, labels), 80) == pytest.approx(brier_score_loss(labels, scores), abs=1e-12)


def test_auroc_of_a_resample_is_that_of_the_repeated_examples() -> None:
    scores, labels = example(40, 9, digits=1)
    counts = bootstrap.draw(40, 6, np.random.default_rng(0))
    found = auroc_statistic(scores, labels)(counts)
    for r in range(6):
        rows = np.repeat(np.arange(40), counts[:, r].astype(int))
        assert found[r] == pytest.approx(roc_auc_score(labels[rows], scores[rows]), abs=1e-12)


def test_auroc_by_hand_and_at_the_edges() -> None:
    assert once(auroc_statistic(np.array([1.0, 2.0, 3.0]), np.array([0, 1, 0])), 3) == 0.5
    assert once(auroc_statistic(np.ones(6), np.array([0, 1, 0, 1, 1, 0])), 6) == 0.5
    assert np.isnan(once(auroc_statistic(np.array([1.0, 2.0]), np.array([1, 1])), 2))
    assert np.isnan(once(auroc_statistic(np.empty(0), np.empty(0)), 0))


def ece_loop(p: np.ndarray, y: np.ndarray, bins: np.ndarray) -> float:
    total = 0.0
    for b in set(bins.tolist()):
        rows = bins == b
        total += rows.mean() * abs(p[rows].mean() - y[rows].mean())
    return total


@pytest.mark.parametrize("digits", [1, 6])
def test_ece_against_a_plain_loop(digits: int) -> None:
    p, y = example(173, 5, digits=digits)
    assert once(ece_statistic(p, y), 173) == pytest.approx(ece_loop(p, y, equal_mass_bins(p)), abs=1e-12)


def test_ece_of_a_resample_keeps_the_bins() -> None:
    p, y = example(120, 6)
    counts = bootstrap.draw(120, 3, np.random.default_rng(1))
    bins = equal_mass_bins(p)
    for r in range(3):
        rows = np.repeat(np.arange(120), counts[:, r].astype(int))
        assert ece_statistic(p, y)(counts)[r] == pytest.approx(ece_loop(p[rows], y[rows], bins[rows]), abs=1e-12)


def test_bins_have_equal_mass_and_equal_values_share_one() -> None:
    assert np.bincount(equal_mass_bins(np.random.default_rng(0).random(200))).tolist() == [20] * 10
    assert np.bincount(equal_mass_bins(np.random.default_rng(0).random(35))).tolist() == [12, 12, 11]
    assert set(equal_mass_bins(np.ones(50)).tolist()) == {2}
    assert equal_mass_bins(np.empty(0)).shape == (0,)


def test_an_honest_score_has_about_the_ece_that_chance_leaves() -> None:
    found = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        p = rng.random(300)
        found.append(once(ece_statistic(p, (rng.random(300) < p).astype(float)), 300))
    assert np.mean(found) == pytest.approx(probabilities.honest_ece(np.random.default_rng(1).random(300)), abs=0.01)
    assert np.isnan(probabilities.honest_ece(np.empty(0)))


def test_the_reliability_curve_has_a_point_for_each_bin() -> None:
    p, y = example(200, 8, digits=6)
    curve = probabilities.reliability_curve(p, y, resamples=300)
    bins = equal_mass_bins(p)
    assert [point.count for point in curve] == [20] * 10
    assert [point.share for point in curve] == pytest.approx([y[bins == b].mean() for b in range(10)])
    assert all(point.interval and point.interval[0] <= point.share <= point.interval[1] for point in curve)
    assert probabilities.reliability_curve(np.empty(0), np.empty(0)) == ()


# --- abstention ------------------------------------------------------------------------------------------------


def test_risk_and_coverage_against_a_plain_loop() -> None:
    scores, labels = example(60, 2, digits=1)
    curve = risk_coverage(scores, labels)
    for threshold, coverage, risk in zip(curve.threshold, curve.coverage, curve.risk, strict=True):
        answered = scores >= threshold
        assert coverage == pytest.approx(answered.mean())
        assert risk == pytest.approx(1 - labels[answered].mean())
        assert curve.covered(threshold) == coverage


def test_the_threshold_of_a_wished_error_rate_is_the_lowest_that_keeps_it() -> None:
    scores = np.linspace(1, 0, 20)
    labels = np.r_[np.ones(10), 0, np.ones(3), np.zeros(6)]
    curve = risk_coverage(scores, labels)
    assert curve.at(0.1) == pytest.approx(scores[13])  # 14 answered, one of them wrong
    assert curve.at(0.01) is None  # a hundred answers would be needed to show it
    assert risk_coverage(scores, np.zeros(20)).at(0.5) is None
    assert risk_coverage(np.empty(0), np.empty(0)).at(0.5) is None


def test_a_share_that_is_rounded_loses_no_step() -> None:
    """10 / n · n is below 10 in floats for 22 of these sizes."""
    for rows in range(12, 2001):
        first_ten = (np.arange(rows) < 10).astype(float)
        assert risk_coverage(first_ten, first_ten).at(0.1) == 1.0


def test_the_area_is_lower_for_a_better_order() -> None:
    labels = np.r_[np.ones(10), np.zeros(10)]
    good, bad = (risk_coverage(scores, labels).area for scores in (np.linspace(1, 0, 20), np.linspace(0, 1, 20)))
    assert good < risk_coverage(np.ones(20), labels).area == 0.5 < bad


def test_the_interval_of_an_ece_holds_its_value() -> None:
    from calipers.metrics import assessment
    from calipers.metrics.trust import TrustParts

    rng = np.random.default_rng(0)
    x = rng.random((5, 100))
    found = assessment.assess(TrustParts(*x), (rng.random(100) < x[0]).astype(float), resamples=300)
    for quality in found.qualities:
        low, high = quality.ece.interval or (9, 9)
        assert 0 <= low <= quality.ece.value <= high
