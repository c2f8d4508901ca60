"""What statistics are without each example, against leaving them out one by one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from calipers.metrics import classification, correlation, means, paired
from calipers.metrics.arrays import Floats, Statistic
from calipers.metrics.cross_fit import f1_of_calls
from calipers.metrics.jackknife import Jackknifed

CORRELATIONS = (correlation.pearson_statistic, correlation.spearman_statistic, correlation.kendall_statistic)
AT_CUTS = (
    classification.average_precision_statistic,
    classification.best_accuracy_statistic,
    classification.best_f1_statistic,
    classification.precision_at_best_f1_statistic,
    classification.recall_at_best_f1_statistic,
    classification.mcc_at_best_f1_statistic,
)
OF_CLASSES = (
    classification.accuracy_statistic,
    classification.f1_macro_statistic,
    classification.f1_weighted_statistic,
    classification.mcc_statistic,
)


def agree(statistic: Statistic, n: int) -> None:
    assert paired.has_closed_form(statistic)
    one_by_one: Callable[..., Floats] = lambda counts: statistic(counts)  # noqa: E731  # hides that there is a closed form
    expected = paired.influence(one_by_one, n)
    np.testing.assert_allclose(paired.influence(statistic, n), expected, atol=1e-9, equal_nan=True)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("make", CORRELATIONS)
def test_correlations(make: Callable[[Floats, Floats], Statistic], seed: int) -> None:
    """With no ties, ties in one column, ties in both, and columns that become constant."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 60))
    x = rng.normal(size=n)
    y = x + rng.normal(size=n)
    for first, second in ((x, y), (x, np.round(y)), (np.round(x), np.round(y)), (x, np.eye(1, n)[0])):
        agree(make(first, second), n)


@pytest.mark.parametrize("seed", range(12))
def test_figures_at_the_best_cut_and_of_classes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 50))
    labels = rng.integers(0, 2, n) if seed % 4 else np.eye(1, n, dtype=np.int64)[0]
    scores = rng.normal(size=n) + labels
    for make in AT_CUTS:
        agree(make(scores, labels), n)
        agree(make(np.round(scores), labels), n)
    classes = rng.integers(0, 4, (2, n))
    for make in OF_CLASSES:
        agree(make(*classes), n)
    agree(f1_of_calls(rng.uniform(size=n), labels), n)


@pytest.mark.parametrize("seed", range(6))
def test_means_and_ratios(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values, groups = rng.normal(size=30), np.arange(30) % 3
    values[[2, 7]] = np.nan
    agree(means.mean_statistic(values), 30)
    agree(means.macro_mean_statistic(values, groups), 30)
    agree(means.perplexity_statistic(-np.abs(rng.normal(size=30)), rng.integers(1, 9, 30)), 30)


def test_some_rows_of_more_and_another_scale() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 9))
    rows = np.array([0, 2, 3, 4, 6, 7, 8, 10, 11])
    statistic = correlation.spearman_statistic(x, y).among(rows, 12).then(lambda points: 100 * points)
    agree(statistic, 12)
    assert isinstance(statistic, Jackknifed)
    assert np.isclose(statistic(np.ones((12, 1)))[0], 100 * correlation.spearman(x, y))
