"""Overlap of lists and order among grades: hand-computed, and against plain loops over sets."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from calipers.metrics import overlap

NAN = np.nan


def test_jaccard_by_hand() -> None:
    left = np.array([[1, 2, 3, 4], [1, 2, 3, 4], [5, 6, -1, -1], [-1, -1, -1, -1]])
    right = np.array([[4, 3, 2, 1], [1, 2, 7, 8], [5, -1, -1, -1], [-1, -1, -1, -1]])
    assert overlap.jaccard(left, right)[:3].tolist() == [1.0, 2 / 6, 0.5]
    assert np.isnan(overlap.jaccard(left, right)[3])


def test_jaccard_against_sets() -> None:
    rng = np.random.default_rng(0)
    left, right = (np.stack([rng.permutation(15)[:10] for _ in range(50)]) for _ in range(2))
    sets = [(set(a), set(b)) for a, b in zip(left.tolist(), right.tolist(), strict=True)]
    assert overlap.jaccard(left, right).tolist() == [len(a & b) / len(a | b) for a, b in sets]


def test_a_query_has_churned_when_at_most_four_of_ten_stay() -> None:
    first = np.arange(10)
    lists = np.stack([np.where(np.arange(10) < stay, first, first + 100) for stay in range(11)])
    expected = [1] * 5 + [0] * 6  # four stay: churned; five stay: more than half is not altered
    assert overlap.churned(np.tile(first, (11, 1)), lists).tolist() == expected


def test_churn_of_short_and_empty_lists() -> None:
    left, right = np.array([[1, 2, -1], [-1, -1, -1], [1, 2, 3]]), np.array([[1, 7, -1], [-1, -1, -1], [1, -1, -1]])
    assert overlap.churned(left, right)[[0, 2]].tolist() == [0, 1]
    assert np.isnan(overlap.churned(left, right)[1])


def test_reversals_by_hand() -> None:
    scores = np.array([[4.0, 3, 2, 1]] * 5)
    grades = np.array(
        [
            [3, 2, 1, 0],  # in order
            [0, 1, 2, 3],  # all six pairs the wrong way
            [1, 3, 3, 0],  # 1 above two 3s: 2 of 5 pairs that differ
            [NAN, 0, NAN, 2],  # the two judged ones are reversed
            [1, 1, NAN, 1],  # no two grades
        ]
    )
    assert overlap.reversals(scores, grades)[:4].tolist() == [0, 1, 0.4, 1]
    assert np.isnan(overlap.reversals(scores, grades)[4])


def test_tied_scores_count_half() -> None:
    assert overlap.reversals(np.array([[1.0, 1.0]]), np.array([[0.0, 2.0]])).tolist() == [0.5]
    assert overlap.reversals(np.array([[1.0, 1.0]]), np.array([[2.0, 0.0]])).tolist() == [0.5]


def test_a_random_order_reverses_half() -> None:
    rng = np.random.default_rng(0)
    grades = rng.integers(0, 4, size=(4000, 10)).astype(float)
    result = overlap.reversals(np.broadcast_to(-np.arange(10.0), grades.shape), grades)
    assert np.nanmean(result) == pytest.approx(0.5, abs=0.01)


def test_lists_of_thousands_fit_in_memory() -> None:
    """Pair by pair these would be 300 × 5,000² comparisons at once: 7.5 GB."""
    left = np.argsort(np.random.default_rng(0).random((300, 5000)), axis=1)
    assert overlap.jaccard(left[:, :2500], left[:, 1250:3750]).tolist() == [1250 / 3750] * 300
    grades = np.full((300, 5000), np.nan)
    grades[:, 4000], grades[:, 4999] = 1.0, 2.0
    assert overlap.reversals(np.zeros_like(grades) - np.arange(5000), grades).tolist() == [1.0] * 300


def test_reversals_against_all_pairs() -> None:
    rng = np.random.default_rng(1)
    grades = np.where(rng.random((40, 12)) < 0.4, np.nan, rng.integers(0, 4, (40, 12)))
    scores = -np.sort(-rng.integers(0, 6, (40, 12)).astype(float), axis=1)
    for one, score, row in zip(overlap.reversals(scores, grades), scores, grades, strict=True):
        pairs = [(i, j) for i, j in combinations(range(12), 2) if abs(row[i] - row[j]) > 0]
        bad = sum(0.5 if score[i] == score[j] else float(row[i] < row[j]) for i, j in pairs)
        assert one == pytest.approx(bad / len(pairs)) if pairs else np.isnan(one)


def test_an_accessory_above_every_product() -> None:
    grades = np.array([[1, 3, 1], [3, 1, 1], [2, 1, 3], [1, 2, 0]], dtype=float)
    assert overlap.above(grades, 1, 3)[:3].tolist() == [1, 0, 1]
    assert np.isnan(overlap.above(grades, 1, 3)[3])
