"""Correlations against hand-computed values, scipy, and re-sorted resamples."""

from __future__ import annotations

import math
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from calipers.metrics import correlation
from calipers.metrics.arrays import Floats, once
from calipers.metrics.bootstrap import draw
from calipers.metrics.correlation import (
    kendall,
    kendall_statistic,
    partial_spearman_statistic,
    pearson,
    pearson_statistic,
    running_sum,
    spearman,
    spearman_statistic,
)
from tests.support.references import by_residuals


def partial_spearman(x: Floats, y: Floats, *others: Floats) -> float:
    return once(partial_spearman_statistic(x, y, *others), len(x))


few_values = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=2, max_size=40)


def test_spearman_by_hand() -> None:
    # Ranks of x: 1, 2.5, 2.5, 4; of y: 2, 1, 4, 3. Centred products: 0.75 + 0 + 0 + 0.75 = 1.5;
    # sums of squares 4.5 and 5, so rho = 1.5 / sqrt(22.5).
    assert spearman(np.array([1.0, 5, 5, 9]), np.array([20.0, 10, 40, 30])) == pytest.approx(1.5 / math.sqrt(22.5))


def test_pearson_by_hand() -> None:
    # Centred x: -1, 0, 1; y: -2, -2, 4. Products sum to 6; squares to 2 and 24.
    assert pearson(np.array([1.0, 2, 3]), np.array([0.0, 0, 6])) == pytest.approx(6 / math.sqrt(48))


@given(few_values)
def test_both_agree_with_scipy_on_ties(rows: list[tuple[int, int]]) -> None:
    x, y = np.array(rows, dtype=float).T
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        assert math.isnan(spearman(x, y))
        assert math.isnan(pearson(x, y))
    else:
        assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)
        assert pearson(x, y) == pytest.approx(stats.pearsonr(x, y).statistic, abs=1e-12)


@given(few_values, st.integers(0, 2**32))
def test_a_resample_by_counts_equals_the_repeated_rows(rows: list[tuple[int, int]], seed: int) -> None:
    x, y = np.array(rows, dtype=float).T
    counts = draw(len(x), 5, np.random.default_rng(seed)).astype(int)
    for statistic, plain in ((spearman_statistic, spearman), (pearson_statistic, pearson)):
        found = statistic(x, y)(counts)
        wanted = [plain(np.repeat(x, c), np.repeat(y, c)) for c in counts.T]
        np.testing.assert_allclose(found, wanted, atol=1e-10)


def test_a_far_offset_costs_no_digits() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=500)
    y = x + rng.normal(size=500)
    assert pearson(1e9 + x, y) == pytest.approx(pearson(x, y), abs=1e-6)


def test_rounding_noise_on_a_constant_column_is_not_a_correlation() -> None:
    noisy = 0.7 + np.array([0, 1, -1, 0, 1]) * 1e-17
    assert math.isnan(pearson(noisy, np.arange(5.0)))


@pytest.mark.parametrize("values", [1, 2, 5])
def test_large_tie_groups_lose_no_digits(values: int) -> None:
    x = np.random.default_rng(values).integers(0, values + 1, 3000).astype(float)
    assert spearman(x, x) == 1.0


@pytest.mark.parametrize("rows", [3999, 4001])
def test_a_resample_in_which_a_column_is_constant_has_no_correlation(rows: int) -> None:
    x = np.arange(rows) % 2.0  # two values
    y = np.where(np.arange(rows) < rows - 2, 0.0, np.arange(rows))  # three, and the resample draws the first of them
    counts = np.ones((rows, 1))
    counts[-2:], counts[0] = 0.0, 3.0
    assert math.isnan(spearman_statistic(x, y)(counts)[0])


@pytest.mark.parametrize("statistic", [pearson_statistic, spearman_statistic, kendall_statistic])
def test_a_missing_value_is_refused_with_its_row(statistic: Any) -> None:
    with pytest.raises(ValueError, match=r"y is NaN in rows \[2\]"):
        statistic(np.arange(3.0), np.array([1.0, 2.0, np.nan]))


def test_any_rising_scale_of_gold_gives_the_same_spearman() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(2, 200))
    assert spearman(x, np.exp(y)) == spearman(x, y)


@given(st.integers(1, 100), st.integers(1, 4))
def test_the_running_sum_is_cumsum(rows: int, columns: int) -> None:
    values = np.random.default_rng(rows).integers(0, 9, size=(rows, columns)).astype(float)
    np.testing.assert_array_equal(running_sum(values), np.cumsum(values, axis=0))


@pytest.mark.parametrize("resamples", [0, 1, 5])
@pytest.mark.parametrize("rows", [0, 1, 200])
@pytest.mark.parametrize("statistic", [pearson_statistic, spearman_statistic, kendall_statistic])
def test_the_first_call_of_a_thread_is_like_any_other(statistic: Any, rows: int, resamples: int) -> None:
    """Scratch memory is kept by thread. What a thread computes first, be it nothing, must not matter."""
    rng = np.random.default_rng(rows)
    x, y = rng.normal(size=rows), rng.integers(3, size=rows).astype(float)
    counts = rng.integers(1, 3, size=(rows, resamples))

    def compute() -> tuple[str, list[float]]:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return "", statistic(x, y)(counts).tolist()
            except (ValueError, IndexError) as error:
                return str(error), []

    spearman([1.0, 2.0, 3.0], [1.0, 3.0, 2.0])  # this thread has scratch memory
    with ThreadPoolExecutor(1) as fresh:
        first, again = fresh.submit(compute).result(), fresh.submit(compute).result()
    np.testing.assert_equal(first, compute())
    np.testing.assert_equal(again, first)


def test_a_value_is_not_changed_by_the_next_call() -> None:
    """No array that a caller holds may lie in scratch memory."""
    rng = np.random.default_rng(1)
    x, y, counts = rng.normal(size=300), rng.normal(size=300), rng.integers(0, 3, size=(300, 7))
    for statistic in (pearson_statistic, spearman_statistic, kendall_statistic):
        value = statistic(x, y)(counts)
        kept = value.copy()
        statistic(y[::-1], x)(counts[::-1])
        np.testing.assert_array_equal(value, kept)


# --- partial correlations ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_a_partial_correlation_is_that_of_residual_ranks(columns: int) -> None:
    rng = np.random.default_rng(columns)
    base = rng.normal(size=200)
    others = [(base + rng.normal(size=200)).round(1) for _ in range(columns)]
    x, y = (base + rng.normal(size=200)).round(1), np.clip((base + rng.normal(size=200)).round(), -1, 1)
    assert partial_spearman(x, y, *others) == pytest.approx(by_residuals(x, y, *others), abs=1e-9)


def test_a_partial_correlation_without_others_is_spearman() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=50), rng.normal(size=50)
    assert partial_spearman(x, y) == spearman(x, y)


def test_what_is_explained_wholly_leaves_nothing() -> None:
    x = np.arange(10.0)
    assert np.isnan(partial_spearman(x, np.arange(10.0) % 3, x**3))
    assert np.isnan(partial_spearman(x, np.ones(10), np.arange(10.0) % 4))


def test_a_common_cause_is_taken_out() -> None:
    rng = np.random.default_rng(1)
    cause = rng.normal(size=4000)
    x, y = cause + rng.normal(size=4000), cause + rng.normal(size=4000)
    assert spearman(x, y) > 0.4
    assert abs(partial_spearman(x, y, cause)) < 0.05


# --- Kendall's tau-b --------------------------------------------------------------------------------------------------


Rows = list[tuple[int, int]]

many_ties = st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 6)), max_size=40)
few_ties = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), max_size=70)


def columns(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.array(rows, dtype=float).reshape(-1, 2).T
    return x, y


def scipy_tau(x: np.ndarray, y: np.ndarray) -> float:
    with warnings.catch_warnings():
        # scipy warns about empty and constant columns before it answers NaN
        warnings.simplefilter("ignore")
        return float(stats.kendalltau(x, y).statistic)


def repeated_tau(x: np.ndarray, y: np.ndarray, counts: np.ndarray) -> list[float]:
    return [scipy_tau(np.repeat(x, c), np.repeat(y, c)) for c in counts.T]


def test_tau_by_hand_without_ties() -> None:
    # Of the six pairs of y, 3-4, 1-4 and 1-2 rise as x does; 3-1, 3-2 and 4-2 fall.
    assert kendall(np.array([1.0, 2, 3, 4]), np.array([3.0, 1, 4, 2])) == 0


def test_tau_by_hand_with_ties_in_both_columns() -> None:
    # Rows (1,1) (1,2) (2,2) (3,1): of six pairs one ties in x and two in y; concordant (1,1)-(2,2); discordant
    # (1,2)-(3,1) and (2,2)-(3,1). tau-b = (1 - 2) / sqrt(5 · 4).
    assert kendall(np.array([1.0, 1, 2, 3]), np.array([1.0, 2, 2, 1])) == pytest.approx(-1 / math.sqrt(20), abs=1e-15)


@given(many_ties | few_ties)
def test_tau_agrees_with_scipy(rows: Rows) -> None:
    x, y = columns(rows)
    np.testing.assert_allclose(kendall(x, y), scipy_tau(x, y), rtol=0, atol=1e-12)


@given(many_ties | few_ties, st.integers(0, 2**32))
def test_a_resample_by_counts_equals_scipy_on_the_repeated_rows(rows: Rows, seed: int) -> None:
    x, y = columns(rows)
    rng = np.random.default_rng(seed)
    counts = np.concatenate([rng.integers(0, 4, size=(len(x), 3)), np.zeros((len(x), 1), dtype=int)], axis=1)
    np.testing.assert_allclose(kendall_statistic(x, y)(counts), repeated_tau(x, y, counts), rtol=0, atol=1e-12)


def test_a_bootstrap_of_continuous_columns_equals_scipy_on_the_repeated_rows() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=1000)
    y = x + rng.normal(size=1000)
    counts = draw(1000, 4, rng).astype(int)
    np.testing.assert_allclose(kendall_statistic(x, y)(counts), repeated_tau(x, y, counts), rtol=0, atol=1e-12)


@given(many_ties)
def test_the_columns_may_change_places(rows: Rows) -> None:
    x, y = columns(rows)
    np.testing.assert_array_equal(kendall(x, y), kendall(y, x))


def test_a_hundred_thousand_rows_agree_with_scipy() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=100_000)
    y = np.round(x + rng.normal(size=100_000), 2)
    assert kendall(x, y) == pytest.approx(scipy_tau(x, y), abs=1e-12)


def test_signs_and_infinities_only_matter_by_their_order() -> None:
    x, y = np.array([-np.inf, -0.0, 0.0, np.inf]), np.array([1.0, 2, 2, 3])
    assert kendall(x, y) == 1
    assert kendall(x, -y) == -1


@pytest.mark.parametrize(("x", "y"), [([], []), ([1.0], [2.0]), ([1.0, 2], [3.0, 3]), ([4.0, 4], [1.0, 2])])
def test_too_few_rows_or_a_constant_column_have_no_tau(x: list[float], y: list[float]) -> None:
    assert math.isnan(kendall(np.array(x), np.array(y)))


def test_nan_is_refused_with_its_column_and_rows() -> None:
    with pytest.raises(ValueError, match=r"y is NaN in rows \[1, 3\]"):
        kendall_statistic(np.arange(4.0), np.array([0, np.nan, 1, np.nan]))


@pytest.mark.parametrize("levels", [3, 200])
def test_many_rows_are_summed_by_group_as_few_are(levels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=300), rng.integers(0, levels, size=300).astype(float)
    counts = draw(300, 5, rng)
    expected = spearman_statistic(x, y)(counts)
    monkeypatch.setattr(correlation, "_MANY_ROWS", 10)
    monkeypatch.setattr(correlation, "_EXACT_IN_FLOAT32", 700)
    np.testing.assert_allclose(spearman_statistic(x, y)(counts), expected, rtol=0, atol=1e-13)
