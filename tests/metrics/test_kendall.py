"""Kendall's tau-b against hand-computed values, scipy, and resamples written out row by row."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from calipers.metrics.bootstrap import draw
from calipers.metrics.correlation import kendall, kendall_statistic

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
