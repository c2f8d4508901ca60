"""Predictors by hand, and by plain loops."""

from __future__ import annotations

import numpy as np
import pytest

from calipers.metrics import codecs, geometry, predictors, search
from calipers.metrics import trust as metrics
from calipers.metrics.search import Hits

RNG = np.random.default_rng(3)
CORPUS = RNG.normal(size=(300, 8)).astype(np.float32)
QUERIES = RNG.normal(size=(6, 8)).astype(np.float32)
DEEP = predictors.deep_rows(QUERIES, CORPUS, "cosine")


def test_scores_by_hand() -> None:
    columns = predictors.score_columns(np.array([[0.5, 0.9, 0.7], [0.4, np.nan, np.nan]]))
    assert columns["top_score"].tolist() == [0.9, 0.4]
    assert columns["margin"][0] == pytest.approx(0.4)
    assert columns["gap"][0] == pytest.approx(0.2)
    assert columns["spread"][0] == pytest.approx(np.std([0.5, 0.9, 0.7]))
    assert columns["spread_top"][0] == pytest.approx(0.9 * np.std([0.5, 0.9, 0.7]))
    assert [columns[name][0] for name in ("score_1", "score_2", "score_3")] == [0.9, 0.7, 0.5]
    assert np.isnan([columns[name][1] for name in ("margin", "gap", "spread", "spread_top", "score_2")]).all()


def test_vectors_against_a_plain_loop() -> None:
    codec = codecs.fit("int8", CORPUS)
    parts = metrics.parts_in(QUERIES, CORPUS, DEEP[:, :10], codec)
    background = predictors.CorpusStatistics.fit(CORPUS, seed=1)
    columns = predictors.vector_columns(parts, QUERIES, lambda rows: CORPUS[DEEP[rows, :10]], background)
    unit = CORPUS / np.linalg.norm(CORPUS, axis=1, keepdims=True)
    sample = background.sample.astype(float)
    for row, query in enumerate(QUERIES / np.linalg.norm(QUERIES, axis=1, keepdims=True)):
        cosines = unit @ query
        first = np.sort(cosines)[::-1][:10]
        assert columns["nqc"][row] == pytest.approx(np.std(first) / max(0.05, abs(cosines.mean())), rel=1e-4)
        usual = sample @ query
        assert columns["standard_top"][row] == pytest.approx((first[0] - usual.mean()) / usual.std(), rel=1e-4)
        near = unit[DEEP[row, :10]]
        hubs = np.sort(near @ sample.T, axis=1)[:, -10:].mean(axis=1)
        corrected = 2 * near @ query - first.mean() - hubs
        assert columns["csls_top"][row] == pytest.approx(corrected.max(), abs=1e-5)
        assert columns["csls_gap"][row] == pytest.approx(corrected.max() - corrected.min(), abs=1e-5)


def test_only_what_is_wanted_is_computed() -> None:
    parts = metrics.parts_in(QUERIES, CORPUS, DEEP[:, :10], codecs.fit("int8", CORPUS))
    background = predictors.CorpusStatistics.fit(CORPUS, seed=1)
    columns = predictors.vector_columns(parts, QUERIES, CORPUS.__getitem__, background, ["nqc"])
    assert set(columns) == {"stability", "coherence", "nqc"}


def test_the_corpus_by_hand() -> None:
    columns = predictors.corpus_columns(QUERIES, CORPUS, DEEP, 10)
    cosines = geometry.cosines_at(QUERIES, CORPUS, DEEP)
    assert columns["spread_50"] == pytest.approx(cosines[:, :50].std(axis=1), rel=1e-4)
    assert columns["spread_100"] == pytest.approx(cosines.std(axis=1), rel=1e-4)
    for name in ("noise_overlap", "halves_overlap"):
        assert ((columns[name] > 0) & (columns[name] < 1)).any()
    alone = predictors.corpus_columns(QUERIES, CORPUS[:20], search.nearest(QUERIES, CORPUS[:20], 100)[1], 20)
    assert alone["noise_overlap"].tolist() == [1.0] * 6  # all there are stay


def test_texts_by_hand() -> None:
    deep = np.array([[3, 1, 7, *[-1] * 97], [5, 6, 8, *[-1] * 97]])
    lexical = Hits(np.array([0, 3, 3]), np.array([1, 9, 3]), np.array([8.0, 5.0, 4.0]))
    columns = predictors.text_columns(deep, lexical)
    assert columns["bm25_overlap_10"].tolist() == [0.2, 0.0]
    assert columns["bm25_overlap_100"].tolist() == [0.02, 0.0]
    assert columns["bm25_top"].tolist() == [8.0, 0.0]
    assert columns["bm25_gap"].tolist() == [8.0, 0.0]  # the tenth has no score


def test_a_reranker_by_hand() -> None:
    scores = np.array([[9.0, 8.0, 1.0, 0.0], [0.0, 1.0, 8.0, 9.0], [np.nan] * 4])
    columns = predictors.reranker_columns(scores, 4)
    assert columns["rerank_top"][:2].tolist() == [9.0, 9.0]
    assert columns["rerank_agreement"][:2].tolist() == [1.0, 0.0]
    assert np.isnan(columns["rerank_top"][2])
