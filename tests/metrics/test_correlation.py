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

from calipers.metrics.bootstrap import distribution, draw, percentile_interval
from calipers.metrics.correlation import (
    kendall_statistic,
    pearson,
    pearson_statistic,
    running_sum,
    spearman,
    spearman_statistic,
)

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


def test_any_rising_scale_of_gold_gives_the_same_spearman() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(2, 200))
    assert spearman(x, np.exp(y)) == spearman(x, y)


@given(st.integers(1, 100), st.integers(1, 4))
def test_the_running_sum_is_cumsum(rows: int, columns: int) -> None:
    values = np.random.default_rng(rows).integers(0, 9, size=(rows, columns)).astype(float)
    np.testing.assert_array_equal(running_sum(values), np.cumsum(values, axis=0))


def test_every_resample_draws_as_many_examples_as_there_are() -> None:
    counts = draw(7, 1000, np.random.default_rng(0))
    assert (counts.sum(axis=0) == 7).all()
    assert counts.mean(axis=1) == pytest.approx(np.ones(7), abs=0.15)


def test_the_same_seed_gives_the_same_bits_with_any_number_of_threads() -> None:
    x, y = np.random.default_rng(2).normal(size=(2, 300))
    one, two, other = (
        distribution([spearman_statistic(x, y)], 300, resamples=5000, seed=seed, threads=threads)
        for seed, threads in ((1, 1), (1, 2), (3, 2))
    )
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)


def test_the_interval_agrees_with_scipys_bootstrap() -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=400)
    y = 0.8 * x + 0.6 * rng.normal(size=400)
    drawn = distribution([pearson_statistic(x, y)], 400, resamples=10_000, seed=0)[0]
    ours = percentile_interval(drawn, confidence=0.95)
    theirs = stats.bootstrap(
        (x, y), pearson, paired=True, vectorized=False, method="percentile", n_resamples=3000, rng=rng
    ).confidence_interval
    assert ours == pytest.approx(tuple(theirs), abs=0.006)


def test_the_interval_has_the_width_that_theory_gives() -> None:
    """Fisher: atanh(r) has standard error 1 / sqrt(n - 3) for normal data."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=2000)
    y = 0.5 * x + math.sqrt(0.75) * rng.normal(size=2000)
    r = pearson(x, y)
    low, high = (math.tanh(math.atanh(r) + z * 1.96 / math.sqrt(1997)) for z in (-1, 1))
    drawn = distribution([pearson_statistic(x, y)], 2000, resamples=10_000, seed=0)[0]
    assert percentile_interval(drawn, confidence=0.95) == pytest.approx((low, high), abs=0.006)


def test_few_undefined_resamples_are_left_out_and_many_leave_no_interval() -> None:
    values = np.linspace(0, 1, 1000)
    values[:5] = np.nan
    assert percentile_interval(values, confidence=0.95) is not None
    values[:50] = np.nan
    assert percentile_interval(values, confidence=0.95) is None


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
