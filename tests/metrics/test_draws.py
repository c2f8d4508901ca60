"""Random whole numbers: the same as numpy's, whatever the range and however many; and coins."""

from __future__ import annotations

import numpy as np
import pytest

from calipers.metrics import draws
from calipers.metrics.draws import even_parts, fair_coins, whole_numbers


@pytest.mark.parametrize("high", [1, 2, 3, 6, 255, 256, 1_379, 65_536, 65_537, 10**6, 2**31 + 1, 2**32 - 1])
@pytest.mark.parametrize("size", [0, 1, 2, 7, 1_000])
def test_whole_numbers_are_those_of_numpy(high: int, size: int) -> None:
    for seed in range(20):  # of 2³¹ + 1 half are drawn anew
        expected = np.random.default_rng(seed).integers(0, high, size=size)
        [drawn] = whole_numbers(np.random.default_rng(seed), high, [(size,)])
        assert drawn.dtype == expected.dtype
        np.testing.assert_array_equal(drawn, expected)


@pytest.mark.parametrize("rare", [2**31, 2**63])
@pytest.mark.parametrize("high", [2, 1_379, 2**31 + 1])
def test_parts_are_those_of_one_array(high: int, rare: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draws, "_RARE", rare)
    for seed in range(20):
        expected = np.random.default_rng(seed).integers(0, high, size=(7, 3))
        shapes = [(part.stop - part.start, 3) for part in even_parts(7, 3)]
        assert shapes == [(2, 3), (2, 3), (2, 3), (1, 3)]
        drawn = np.concatenate(list(whole_numbers(np.random.default_rng(seed), high, shapes)))
        np.testing.assert_array_equal(drawn, expected)


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (3, 5), (100, 7)])
def test_coins_are_zeros_and_ones_of_a_seed(shape: tuple[int, int]) -> None:
    coins = fair_coins(np.random.default_rng(3), shape)
    assert coins.dtype == np.float64
    assert coins.shape == shape
    assert np.isin(coins, [0.0, 1.0]).all()
    np.testing.assert_array_equal(coins, fair_coins(np.random.default_rng(3), shape))


def test_coins_are_fair_and_independent() -> None:
    """Within five standard errors: means of rows and columns, and products of neighbours either way."""
    signs = 2 * fair_coins(np.random.default_rng(5), (1_000, 1_013)) - 1
    assert np.abs(signs.mean(axis=0)).max() < 5 / np.sqrt(1_000)
    assert np.abs(signs.mean(axis=1)).max() < 5 / np.sqrt(1_013)
    assert abs((signs[1:] * signs[:-1]).mean()) < 5e-3
    assert abs((signs[:, 1:] * signs[:, :-1]).mean()) < 5e-3
