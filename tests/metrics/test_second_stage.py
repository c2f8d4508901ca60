"""The trade of a second stage: what it keeps, what it saves, and when it is not worth a call."""

from __future__ import annotations

import numpy as np
import pytest

from calipers.metrics.second_stage import StagedQueries, second_stage

RNG = np.random.default_rng(8)


def staged(n: int, gain: float) -> StagedQueries:
    """A first stage that is right as often as its probability says; a reranker mends the share `gain` of its faults."""
    scores = RNG.random(n)
    before = (RNG.random(n) < scores).astype(float)
    mended = (RNG.random(n) < gain).astype(float)
    return StagedQueries(scores, before, np.maximum(before, mended))


def test_calls_are_saved_where_the_first_stage_is_sure() -> None:
    trade = second_stage(staged(400, 0.8), staged(400, 0.8))
    assert trade.threshold is not None
    assert trade.interval is not None
    assert trade.interval[0] > 0
    assert 0.1 < 1 - trade.calls < 0.6
    assert trade.kept > 0.95
    assert trade.curve[0].ndcg == pytest.approx(trade.before)
    assert trade.curve[-1].ndcg == pytest.approx(trade.after)
    assert trade.curve[5].ndcg > (trade.before + trade.after) / 2  # better than reranking every other query
    assert f"saves {1 - trade.calls:.0%} of the calls (on 400 held-out queries)" in trade.sentence


@pytest.mark.parametrize("after", [0.0, 1.0])
def test_a_reranker_that_changes_or_mends_nothing_is_not_worth_a_call(after: float) -> None:
    first = staged(200, 0.0)
    second = StagedQueries(first.scores, first.before, first.before * after)
    trade = second_stage(second, second)
    assert (trade.threshold, trade.calls) == (None, 0.0)
    assert trade.sentence.startswith("A second stage is not worth its calls on these queries")


def test_what_is_answered_or_odd_is_not_reranked() -> None:
    queries = staged(400, 0.8)
    odd = StagedQueries(np.where(np.arange(400) % 2, queries.scores, -np.inf), queries.before, queries.after)
    assert second_stage(odd, odd).calls <= 0.5
    answered = second_stage(queries, queries, answer=0.3)
    assert answered.calls == pytest.approx((queries.scores < 0.3).mean(), abs=0.02)


def test_the_threshold_is_chosen_on_one_half_and_measured_on_the_other() -> None:
    learned, tested = staged(300, 0.8), staged(300, 0.0)
    trade = second_stage(learned, tested)
    assert trade.threshold is not None
    assert trade.ndcg == pytest.approx(tested.before.mean())  # nothing is mended there
    assert trade.calls == pytest.approx((tested.scores < trade.threshold).mean())
