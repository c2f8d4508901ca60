"""Ranking measures by hand, their edges, and what is refused."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from calipers.metrics.ranking import (
    Mean,
    Rankings,
    TieShare,
    average_precision,
    hit,
    judged,
    mean_over_queries,
    mrr,
    ndcg,
    precision,
    r_precision,
    recall,
    tie_share,
)
from calipers.metrics.ranking_ties import query_of, sort_with_ties
from tests.support.rankings import from_runs, ideal_of_retrieved

# Measures of a list with a cut-off, each as measure(rankings, k, ties=…).
MEASURES: list[Callable[..., Any]] = [ndcg, mrr, hit, average_precision, recall, precision]
POLICIES = ("expected", "trec_eval", "sentence-transformers")


def one(scores: list[float], grades: list[float], *missing: float, **more: Any) -> Rankings:
    """One query, with grades of relevant documents that were not retrieved."""
    ideal = [g for g in grades if g > 0] + list(missing)
    return Rankings([0, len(scores)], scores, grades, [0, len(ideal)], ideal, **more)  # type: ignore[arg-type]


# Places: 1 grade 0, 2 grade 2, 3 grade 1, 4 grade 0; a document of grade 3 was not retrieved.
GRADED = one([0.1, 0.9, 0.5, 0.7], [0, 0, 1, 2], 3)


def test_graded_lists_by_hand() -> None:
    result = 2 / math.log2(3) + 1 / 2
    assert ndcg(GRADED)[0] == pytest.approx(result / (3 + 2 / math.log2(3) + 1 / 2))
    assert ndcg(GRADED, 2)[0] == pytest.approx((2 / math.log2(3)) / (3 + 2 / math.log2(3)))
    assert ndcg(GRADED, 2, gain="exponential")[0] == pytest.approx((3 / math.log2(3)) / (7 + 3 / math.log2(3)))
    assert mrr(GRADED) == 1 / 2
    assert average_precision(GRADED)[0] == pytest.approx((1 / 2 + 2 / 3) / 3)
    assert average_precision(GRADED, 2)[0] == pytest.approx((1 / 2) / 3)
    assert recall(GRADED, 2)[0] == pytest.approx(1 / 3)
    assert precision(GRADED, 4) == 2 / 4
    assert r_precision(GRADED)[0] == pytest.approx(2 / 3)
    assert [hit(GRADED, k)[0] for k in (1, 2)] == [0, 1]


def test_a_level_of_relevance_moves_all_but_ndcg() -> None:
    strict = replace(GRADED, relevant_from=2)
    assert average_precision(strict)[0] == pytest.approx((1 / 2) / 2)
    assert recall(strict, 4) == 1 / 2
    assert r_precision(strict) == 1 / 2
    assert ndcg(strict) == ndcg(GRADED)


def test_tied_lists_by_hand() -> None:
    # One of two relevant documents is first for sure; the other is in place 2, 3 or 4 with equal chances.
    run = one([9, 5, 5, 5], [1, 1, 0, 0])
    assert average_precision(run)[0] == pytest.approx((1 + (2 / 2 + 2 / 3 + 2 / 4) / 3) / 2)
    assert average_precision(run, 2)[0] == pytest.approx((1 + 1 / 3) / 2)
    assert precision(run, 2)[0] == pytest.approx((1 + 1 / 3) / 2)
    assert recall(run, 3)[0] == pytest.approx((1 + 2 / 3) / 2)
    assert r_precision(run)[0] == pytest.approx((1 + 1 / 3) / 2)
    discounts = [1 / math.log2(place + 1) for place in (1, 2, 3, 4)]
    assert ndcg(run)[0] == pytest.approx((1 + sum(discounts[1:]) / 3) / sum(discounts[:2]))


def test_the_first_relevant_document_of_a_tie_by_hand() -> None:
    # One irrelevant document, then four tied ones, two of them relevant: the first is in place 2, 3, 4 with
    # the chances 1/2, 1/3, 1/6.
    run = one([9, 5, 5, 5, 5], [0, 1, 0, 1, 0])
    assert mrr(run)[0] == pytest.approx(1 / 2 / 2 + 1 / 3 / 3 + 1 / 6 / 4)
    assert mrr(run, 3)[0] == pytest.approx(1 / 2 / 2 + 1 / 3 / 3)
    assert [hit(run, k)[0] for k in (1, 2, 3, 4)] == pytest.approx([0, 1 / 2, 5 / 6, 1])


def test_the_three_policies_on_one_tie() -> None:
    run = one([1, 1], [0, 1], documents=np.array(["a", "b"], dtype=object))
    assert [mrr(run, ties=ties)[0] for ties in ("expected", "trec_eval")] == [0.75, 1.0]
    assert [average_precision(run, ties=ties)[0] for ties in POLICIES] == [0.75, 1.0, 0.5]
    other_names = replace(run, documents=np.array(["b", "a"], dtype=object))
    assert average_precision(other_names, ties="trec_eval") == 0.5
    assert average_precision(replace(run, documents=None, id_rank=[1, 0]), ties="trec_eval") == 0.5


@pytest.mark.parametrize("measure", MEASURES)
def test_an_all_tied_run_is_neither_perfect_nor_moved_by_the_order(measure: Callable[..., Any]) -> None:
    grades = np.zeros(50)
    grades[:5] = 1
    values = {float(measure(one([0.0] * 50, list(np.roll(grades, by))), 5)[0]) for by in (0, 7, 45)}
    assert len(values) == 1
    assert 0 < values.pop() < 0.5


def test_documents_in_another_order_and_queries_in_other_company_score_the_same() -> None:
    rng = np.random.default_rng(0)
    lengths = np.array([0, 3, 200, 1, 0, 17, 16, 33])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    scores, grades = rng.integers(0, 9, offsets[-1]) * 1.0, rng.integers(0, 3, offsets[-1]) * 1.0
    together = Rankings(offsets, scores, grades, *ideal_of_retrieved(offsets, grades))
    alone = []
    for start, end in itertools.pairwise(offsets):
        mixed = start + rng.permutation(end - start)
        alone.append(one(list(scores[mixed]), list(grades[mixed])))
    for measure in MEASURES:
        np.testing.assert_allclose(measure(together, 10), [measure(single, 10)[0] for single in alone], rtol=1e-14)


@pytest.mark.parametrize("ties", POLICIES)
@pytest.mark.parametrize("measure", MEASURES)
def test_a_forgotten_query_scores_0_and_counts(measure: Callable[..., Any], ties: str) -> None:
    run = from_runs({"a": {"x": 1.0, "y": 0.5}}, {"a": {"x": 1}, "b": {"x": 2}})
    values = measure(run, ties=ties) if measure is average_precision else measure(run, 1, ties=ties)
    assert values.tolist() == [1, 0]
    assert mean_over_queries(values) == Mean(0.5, 2, 0)
    assert run.forgotten == ("b",)


@pytest.mark.parametrize("measure", MEASURES)
def test_a_query_without_relevant_documents_is_reported_and_has_no_value(measure: Callable[..., Any]) -> None:
    run, qrels = {"a": {"x": 1.0}, "b": {"x": 1.0}}, {"a": {"x": 1}, "b": {"x": 0}, "c": {}}
    rankings = from_runs(run, qrels)
    assert rankings.without_relevant == ("b", "c")
    np.testing.assert_array_equal(measure(rankings, 1), [1, np.nan, np.nan])
    assert mean_over_queries(measure(rankings, 1)) == Mean(1.0, 1, 2)
    assert measure(from_runs(run, qrels, empty_queries="zero"), 1).tolist() == [1, 0, 0]


def test_grades_below_0_are_0_and_unjudged_documents_count_as_shown() -> None:
    rankings = from_runs({"a": {"x": 3.0, "y": 2, "z": 1}}, {"a": {"x": -2, "y": 1}})
    assert rankings.relevance.tolist() == [0, 1, 0]
    assert mrr(rankings) == 0.5
    assert judged(rankings, 2) == 1.0
    assert judged(rankings, 10)[0] == pytest.approx(2 / 3)


def test_judged_has_no_value_without_documents_or_judgements() -> None:
    assert math.isnan(judged(from_runs({}, {"a": {"x": 1}}), 5)[0])
    with pytest.raises(ValueError, match="needs `judged`"):
        judged(GRADED, 5)


def test_a_single_document_and_a_cut_off_behind_the_end() -> None:
    run = one([0.3], [2])
    for measure in (ndcg, mrr, hit, average_precision, recall):
        assert measure(run, 1000).tolist() == measure(run).tolist() == [1]
    assert precision(run, 4) == 0.25


def test_a_perfect_list_is_exactly_1() -> None:
    run = one([5, 4, 3, 2, 1], [3, 3, 2, 1, 0])
    for measure in (ndcg, mrr, hit, average_precision, recall):
        assert measure(run) == 1
    assert ndcg(run, gain="exponential") == 1


def test_no_queries_give_no_values() -> None:
    run = from_runs({}, {})
    assert ndcg(run, 10).shape == mrr(run).shape == average_precision(run).shape == (0,)
    assert mean_over_queries(ndcg(run)).count == 0
    assert math.isnan(mean_over_queries(ndcg(run)).value)
    assert math.isnan(tie_share(run).documents)


def test_infinite_scores_have_their_place_in_ragged_lists() -> None:
    inf = math.inf
    run = from_runs({"a": {"x": -inf, "y": 0.0, "z": inf}, "b": {"x": -inf, "y": -inf}}, {"a": {"x": 1}, "b": {"x": 1}})
    np.testing.assert_allclose(mrr(run), [1 / 3, 3 / 4])


def test_minus_infinity_does_not_mix_with_the_padding_of_shorter_lists() -> None:
    rng = np.random.default_rng(0)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(300, 512, 40))])
    scores = np.where(rng.random(offsets[-1]) < 0.5, -math.inf, rng.random(offsets[-1]))
    order = sort_with_ties(offsets, scores)
    np.testing.assert_array_equal(query_of(offsets, order.documents), query_of(offsets, np.arange(offsets[-1])))
    np.testing.assert_array_equal(np.sort(order.documents), np.arange(offsets[-1]))


def test_minus_zero_ties_with_zero() -> None:
    assert mrr(one([0.0, -0.0], [0, 1])) == 0.75


def test_the_ideal_counts_what_was_not_retrieved() -> None:
    run = one([2, 1], [0, 1], 1)
    assert recall(run, 2) == 0.5
    assert ndcg(run)[0] == pytest.approx((1 / math.log2(3)) / (1 + 1 / math.log2(3)))


def test_the_share_of_ties() -> None:
    run = from_runs(
        {"a": {"x": 1, "y": 1, "z": 0}, "b": {"x": 2, "y": 1}, "c": {"x": 1}}, {"a": {}, "b": {}, "c": {}, "d": {}}
    )
    assert tie_share(run) == TieShare(documents=2 / 6, queries=1 / 4)
    assert tie_share(GRADED) == TieShare(documents=0.0, queries=0.0)


def test_single_precision_scores_stay_so() -> None:
    run = one([0, 0], [0, 1])
    assert replace(run, scores=np.array([0.1, 0.2], np.float32)).scores.dtype == np.float32
    assert replace(run, scores=np.array([1, 2])).scores.dtype == np.float64


def test_nan_scores_are_refused_with_both_ids() -> None:
    with pytest.raises(ValueError, match=r"query 'b', document 'y' has the score NaN.*1 more"):
        from_runs({"a": {"x": 1.0}, "b": {"x": 1.0, "y": math.nan, "z": math.nan}}, {"a": {"x": 1}, "b": {"x": 1}})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"offsets": [0, 3]}, "offsets must rise from 0 to 4"),
        ({"offsets": [0, 5, 4], "ideal_offsets": [0, 3, 3]}, "offsets must rise"),
        ({"ideal_offsets": [0, 1, 3]}, "another length of ideal_offsets"),
        ({"relevance": [0, 1]}, "another length of relevance"),
        ({"queries": ("a", "b")}, "another length of queries"),
        ({"relevance": [0, 0, -1, 2]}, "query '0', document '2' has a grade"),
        ({"ideal_relevance": [1, 2, math.nan]}, "query '0': ideal_relevance has a grade"),
        ({"relevance": [1, 1, 1, 1]}, "query '0': more relevant documents"),
        ({"relevant_from": 0}, "relevant_from must be above 0"),
        ({"empty_queries": "skip"}, "empty_queries must be nan or zero"),
    ],
)
def test_records_without_sense_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(GRADED, **change)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: ndcg(GRADED, 0), "cut-off k"),
        (lambda: precision(GRADED, 2.5), "cut-off k"),  # type: ignore[arg-type]
        (lambda: mrr(GRADED, ties="best"), "ties must be one of expected"),  # type: ignore[arg-type]
        (lambda: ndcg(GRADED, ties="best"), "ties must be one of expected"),  # type: ignore[arg-type]
        (lambda: ndcg(GRADED, gain="cubic"), "gain must be"),  # type: ignore[arg-type]
        (lambda: ndcg(one([1], [2000]), gain="exponential"), "use the linear gain"),
        (lambda: average_precision(GRADED, 5, ties="sentence-transformers"), "no average precision at k"),
        (lambda: mrr(one([1, 1], [0, 1]), ties="trec_eval"), "pass `documents` or `id_rank`"),
    ],
)
def test_questions_without_an_answer_are_refused(ask: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ask()
