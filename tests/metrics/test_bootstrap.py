"""Resamples and their intervals against scipy and theory."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from calipers.metrics.bootstrap import distribution, draw, grouped, interval, percentile_interval
from calipers.metrics.correlation import partial_spearman_statistic, pearson, pearson_statistic, spearman_statistic
from tests.support.references import by_residuals


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


def test_the_interval_of_one_statistic_is_that_of_its_distribution() -> None:
    x, y = np.random.default_rng(6).normal(size=(2, 50))
    drawn = distribution([spearman_statistic(x, y)], 50, resamples=300, seed=7)[0]
    wanted = percentile_interval(drawn, confidence=0.9)
    assert interval(spearman_statistic(x, y), 50, resamples=300, confidence=0.9, seed=7) == wanted


def test_groups_are_drawn_together(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    x, y, g = rng.normal(size=(3, 60))
    group = np.sort(rng.integers(0, 7, 60))
    counts = rng.integers(1, 4, size=(7, 5))
    monkeypatch.setattr("calipers.metrics.bootstrap._CHUNK_CELLS", 100)
    result = grouped(partial_spearman_statistic(x, y, g), group)(counts)
    for column, value in enumerate(result):
        rows = np.repeat(np.arange(60), counts[group, column])
        assert value == pytest.approx(by_residuals(x[rows], y[rows], g[rows]), abs=1e-9)
