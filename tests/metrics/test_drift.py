"""The bet against exchangeability and the classifier test."""

from __future__ import annotations

import numpy as np
import pytest

from calipers.metrics.drift import Martingale, two_samples

RNG = np.random.default_rng(9)
STREAMS = 200


def test_exchangeable_streams_alarm_in_five_percent_at_most() -> None:
    """Ville's inequality holds for every length; 200 streams of 150 queries."""
    alarms = 0
    for seed in range(STREAMS):
        rng = np.random.default_rng(seed)
        rows = rng.standard_t(4, size=(300, 4)) @ np.triu(np.ones((4, 4)))
        bet = Martingale.fit(rows[:150], seed=seed)
        for row in rows[150:]:
            bet.add(row)
        alarms += bet.alarm
    assert alarms <= STREAMS * 0.05 + 3 * np.sqrt(STREAMS * 0.05 * 0.95)


def test_a_long_stream_takes_no_more_memory_and_alarms_no_oftener() -> None:
    """What the bet remembers is thinned at random, which keeps p-values uniform: 100 streams of 800 queries."""
    alarms = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        rows = rng.standard_t(4, size=(840, 3))
        bet = Martingale.fit(rows[:40], seed=seed, most=64)
        for row in rows[40:]:
            bet.add(row)
        assert len(bet.usual) <= 64
        alarms += bet.alarm
    assert alarms <= 100 * 0.05 + 3 * np.sqrt(100 * 0.05 * 0.95)


@pytest.mark.parametrize("before", [0, 300])
def test_a_shift_is_seen_at_once_and_late(before: int) -> None:
    bet = Martingale.fit(RNG.normal(size=(150, 4)))
    for row in RNG.normal(size=(before, 4)):
        bet.add(row)
    assert not bet.alarm
    for row in RNG.normal(size=(50, 4)) + 3:
        bet.add(row)
    assert bet.alarm_at is not None
    assert bet.alarm_at <= before + 50


def test_a_query_that_is_not_finite_changes_nothing() -> None:
    bet = Martingale.fit(RNG.normal(size=(50, 2)))
    assert np.isnan(bet.add(np.array([np.nan, 1.0])))
    assert (bet.count, bet.capital) == (0, pytest.approx(1.0))


def test_p_values_of_exchangeable_queries_are_uniform() -> None:
    bet = Martingale.fit(RNG.normal(size=(200, 3)))
    values = np.sort([bet.add(row) for row in RNG.normal(size=(1000, 3))])
    assert np.abs(values - (np.arange(1000) + 0.5) / 1000).max() < 0.08


def test_two_samples_of_one_kind_and_of_two() -> None:
    same = two_samples(RNG.normal(size=(150, 12)), RNG.normal(size=(120, 12)), resamples=500)
    other = two_samples(RNG.normal(size=(150, 12)), RNG.normal(size=(120, 12)) + 0.5, resamples=500)
    assert not same.alarm
    assert other.alarm
    assert other.auroc > 0.8
    assert sorted(other.new) == list(range(120))


def test_two_samples_of_one_kind_alarm_in_five_percent_at_most() -> None:
    alarms = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        alarms += two_samples(rng.normal(size=(60, 5)), rng.normal(size=(60, 5)), seed=seed, resamples=200).alarm
    assert alarms <= 100 * 0.05 + 3 * np.sqrt(100 * 0.05 * 0.95)
