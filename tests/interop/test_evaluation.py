"""Our evaluators for sentence-transformers: the installed ones' figures on the same scores, and where ours differ."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers.cross_encoder import evaluation as theirs

from calipers.interop import sentence_transformers as ours
from tests.support.evaluators import (
    COMPAT,
    NAMES,
    QUERIES,
    ScoreTable,
    assert_parity,
    pair_rows,
    rerank,
    samples,
    score_tables,
)
from tests.support.scorers import FixedCrossEncoder, FixedScorer

# --- parity ----------------------------------------------------------------------------------------------------


@given(samples(), score_tables(QUERIES), st.booleans(), st.integers(1, 12), st.sampled_from(["", "dev"]))
def test_reranking_is_theirs_in_compat_mode(rows: Any, scores: Any, always: bool, k: int, name: str) -> None:
    options = {"at_k": k, "always_rerank_positives": always, "name": name}
    assert_parity(
        ours.CrossEncoderRerankingEvaluator(rows, compat=COMPAT, **options),
        theirs.CrossEncoderRerankingEvaluator(rows, **options),
        lambda: FixedCrossEncoder(scores),
    )


@given(pair_rows(st.integers(0, 1)), score_tables(), st.sampled_from(["", "dev"]), st.sampled_from([np.float32, float]))
def test_classification_by_one_output_is_theirs(rows: Any, scores: Any, name: str, dtype: Any) -> None:
    pairs, labels = [[a, b] for a, b, _ in rows], [label for _, _, label in rows]
    assert_parity(
        ours.CrossEncoderClassificationEvaluator(pairs, labels, name=name, compat=COMPAT),
        theirs.CrossEncoderClassificationEvaluator(pairs, labels, name=name),
        lambda: FixedCrossEncoder(scores, dtype=dtype),
    )


@given(pair_rows(st.integers(0, 4), least=1), score_tables(outputs=3))
def test_classification_by_several_outputs_is_theirs(rows: Any, scores: Any) -> None:
    pairs, labels = [[a, b] for a, b, _ in rows], [label for _, _, label in rows]
    assert_parity(
        ours.CrossEncoderClassificationEvaluator(pairs, labels, name="nli", compat=COMPAT),
        theirs.CrossEncoderClassificationEvaluator(pairs, labels, name="nli"),
        lambda: FixedCrossEncoder(scores, num_labels=3),
    )


@given(pair_rows(st.floats(0, 5, width=16)), score_tables(), st.sampled_from([None, math.nan, math.inf]))
def test_correlation_is_theirs(rows: Any, scores: Any, dead: float | None) -> None:
    pairs, gold = [[a, b] for a, b, _ in rows], [value for _, _, value in rows]
    if rows and dead is not None:
        scores = ScoreTable({**scores, tuple(pairs[0]): dead})
    assert_parity(
        ours.CrossEncoderCorrelationEvaluator(pairs, gold, name="sts", compat=COMPAT),
        theirs.CrossEncoderCorrelationEvaluator(pairs, gold, name="sts"),
        lambda: FixedCrossEncoder(scores),
    )


# --- the honest figures, by hand -------------------------------------------------------------------------------


@given(
    st.lists(st.sampled_from("abcdefgh"), max_size=10), st.lists(st.sampled_from("abcdefgh"), max_size=5), st.booleans()
)
def test_an_identity_reranker_changes_nothing(documents: list[str], positive: list[str], always: bool) -> None:
    first_stage = [*dict.fromkeys(documents), *dict.fromkeys(p for p in positive if p not in documents)]
    found, evaluator = rerank(
        [{"query": "q", "positive": positive, "documents": documents}],
        lambda q, d: -first_stage.index(d),
        always_rerank_positives=always,
        at_k=3,
    )
    for key in ("map", "mrr@3", "ndcg@3"):
        assert found[key] == pytest.approx(found[f"base_{key}"], abs=1e-12, nan_ok=True)
        assert math.isnan(found[key]) == (not positive)
    assert evaluator.outcomes.counts["without_relevant"] == (not positive)


def test_the_known_fault_is_only_in_compat_mode() -> None:
    row = {"query": "q", "positive": ["c", "z"], "documents": ["a", "b", "c", "d"]}
    honest, _ = rerank([row], always_rerank_positives=False)
    assert honest["ndcg@10"] == honest["base_ndcg@10"] == pytest.approx(0.5 / (1 + 1 / np.log2(3)))
    fault = ours.CrossEncoderRerankingEvaluator([row], always_rerank_positives=False, compat=COMPAT)
    assert fault(FixedScorer(lambda q, d: -ord(d)))["ndcg@10"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("row", "always", "value"),
    [
        ({"positive": ["a"], "negative": []}, True, 1.0),
        ({"positive": "a", "documents": ["a"]}, False, 1.0),
        ({"positive": ["a", "b"], "documents": []}, True, 1.0),
        ({"positive": ["a", "b"], "documents": []}, False, 0.0),
        ({"positive": ["z"], "documents": ["a", "b"]}, False, 0.0),
        ({"positive": [], "documents": ["a", "b"]}, True, math.nan),
    ],
)
def test_awkward_samples_have_stated_answers(row: dict[str, Any], always: bool, value: float) -> None:
    found, _ = rerank([{"query": "q", **row}], always_rerank_positives=always)
    assert set(found.values()) == {value} or all(map(math.isnan, found.values()))
    assert math.isnan(found["map"]) == math.isnan(value)
    assert ("base_map" in found) == ("documents" in row)


def test_tied_documents_have_the_expected_value_in_every_metric() -> None:
    """One positive tied with one negative: it is first or second, each in half of the orders."""
    found, _ = rerank([{"query": "q", "positive": ["b"], "negative": ["a"]}], lambda q, d: 0.5)
    assert found == pytest.approx({"map": 0.75, "mrr@10": 0.75, "ndcg@10": (1 + 1 / np.log2(3)) / 2})


def test_queries_without_positives_are_left_out_of_the_mean_and_not_scored() -> None:
    rows = [{"query": "q", "positive": ["b"], "negative": ["a"]}, {"query": "r", "positive": [], "negative": ["a"]}]
    scored: list[str] = []
    found, evaluator = rerank(rows, lambda q, d: scored.append(q) or -ord(d))  # type: ignore[func-returns-value]
    assert found["map"] == pytest.approx(0.5)
    assert evaluator.outcomes.columns["map"] == pytest.approx([0.5, np.nan], nan_ok=True)
    assert set(scored) == {"q"}


@pytest.mark.parametrize("name", [name for name in NAMES if "NanoBEIR" not in name])
def test_nothing_to_evaluate_is_nan_and_a_warning(name: str, caplog: pytest.LogCaptureFixture) -> None:
    arguments = ([],) if "Reranking" in name else ([], [])
    evaluator = getattr(ours, name)(*arguments, name="dev")
    found = evaluator(FixedCrossEncoder({}))
    assert all(map(math.isnan, found.values()))
    assert evaluator.primary_metric in found
    assert "nothing to evaluate" in caplog.text
    with pytest.raises(ValueError, match="nothing to evaluate"):
        getattr(ours, name)(*arguments, compat=COMPAT)(FixedCrossEncoder({}))


def test_labels_without_positives_are_nan_and_in_compat_mode_0() -> None:
    pairs, model = [["a", "b"], ["a", "c"]], FixedScorer(lambda a, b: ord(b))
    honest = ours.CrossEncoderClassificationEvaluator(pairs, [0, 0])(model)
    assert honest["accuracy"] == 1
    assert all(math.isnan(honest[key]) for key in ("f1", "f1_threshold", "precision", "recall", "average_precision"))
    compat = ours.CrossEncoderClassificationEvaluator(pairs, [0, 0], compat=COMPAT)(model)
    assert compat["average_precision"] == compat["f1"] == 0
