"""The promise: exact tails, and how often it is broken where the truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from calipers.metrics.promise import Promise, binomial_tail, keep, order, promise

CALIBRATIONS = 2000


@pytest.mark.parametrize(("failures", "count", "rate"), [(0, 29, 0.1), (3, 40, 0.2), (200, 5000, 0.05), (7, 7, 0.3)])
def test_the_tail_is_the_binomial_one(failures: int, count: int, rate: float) -> None:
    assert binomial_tail(failures, count, rate) == pytest.approx(stats.binom.cdf(failures, count, rate), rel=1e-9)


def test_twenty_nine_without_a_failure_show_ten_percent_and_twenty_eight_do_not() -> None:
    learned = np.linspace(0, 1, 29), np.ones(29)
    assert promise(learned, (np.linspace(0, 1, 29), np.ones(29)), error=0.1).threshold is not None
    none = promise((learned[0][:28], np.ones(28)), (np.linspace(0, 1, 28), np.ones(28)), error=0.1)
    assert none.threshold is None
    assert none.possible == pytest.approx(0.11)
    assert none.sentence.startswith("At 10% errors this model can answer nothing; at 11% it can answer 100% of queries")


def broken(rng: np.random.Generator, n: int, error: float, rise: float) -> tuple[int, int]:
    """How many of the calibrations give a threshold, and in how many its true risk is above the error. A score s is
    uniform and succeeds with probability 1 − (1 − s)·rise, so that the risk from t on is rise·(1 − t)/2."""
    given = wrong = 0
    for _ in range(CALIBRATIONS):
        halves = [rng.random(n) for _ in range(2)]
        labels = [(rng.random(n) < 1 - (1 - s) * rise).astype(float) for s in halves]
        thresholds = order(halves[0], labels[0], n, error)
        place = keep(halves[1], labels[1], thresholds, error=error, confidence=0.95)
        if place is not None:
            given += 1
            wrong += rise * (1 - thresholds[place]) / 2 > error
    return given, wrong


@pytest.mark.parametrize(("n", "error", "rise"), [(150, 0.2, 0.6), (100, 0.3, 0.7)])
def test_the_promise_is_broken_in_five_percent_of_calibrations_at_most(n: int, error: float, rise: float) -> None:
    given, wrong = broken(np.random.default_rng(5), n, error, rise)
    assert given > 300
    # 5 % of all calibrations, and the simulation's own error (three standard errors)
    assert wrong <= CALIBRATIONS * (0.05 + 3 * np.sqrt(0.05 * 0.95 / CALIBRATIONS))


def test_a_risk_exactly_at_the_error_is_promised_in_five_percent_at_most() -> None:
    """The hardest case: every threshold has the risk that is promised."""
    rng = np.random.default_rng(6)
    given = 0
    for _ in range(CALIBRATIONS):
        halves = [(rng.random(100), (rng.random(100) < 0.8).astype(float)) for _ in range(2)]
        given += keep(*halves[1], order(*halves[0], 100, 0.2 - 1e-9), error=0.2 - 1e-9, confidence=0.95) is not None
    assert given <= CALIBRATIONS * (0.05 + 3 * np.sqrt(0.05 * 0.95 / CALIBRATIONS))


def test_chosen_shares_keep_their_digits_and_measured_ones_do_not_read_as_all() -> None:
    given = Promise(0.125, 0.995, 1000, threshold=0.4, answered=0.997, failures=3)
    assert given.sentence.startswith("At 12.5% errors, with 99.5% confidence, this model can answer 99.7% of queries")
    none = Promise(0.2, 0.995, 200, possible=0.2041, possible_answered=0.25)
    assert none.sentence.startswith("At 20% errors this model can answer nothing; at 20.4% it can answer 25% of")
