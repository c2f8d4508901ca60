"""A diagnosis and a trust score search as the model's files say, and report it; they report texts that are cut."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calipers import ModelOptions, diagnose, evaluate, trust
from calipers.core.choices import SIMILARITIES
from calipers.diagnosis.options import DiagnosisOptions
from calipers.metrics.geometry import unit_like
from calipers.metrics.search import nearest_rows
from calipers.reliability.api import TrustOptions
from calipers.runs.embedding import CorpusInputs
from calipers.runs.vector_cache import VectorCache
from calipers.shop import sample as shop

RAW = ModelOptions(normalize=False)


@pytest.fixture(scope="module")
def goods(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(shop.write(tmp_path_factory.mktemp("shop")))


def saying(model: Callable[[str], Path], folder: Path, similarity: str) -> str:
    """potion, with files that name a similarity. Its vectors differ in length."""
    shutil.copytree(model("potion-base-4m-int8"), folder)
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"similarity_fn_name": similarity}))
    return str(folder)


def figures(place: str, goods: str, **options: Any) -> Any:
    chosen = DiagnosisOptions(layers=("retrieval",), **options)
    return diagnose(place, CorpusInputs(dataset=goods), options=chosen, model_options=RAW)


@pytest.mark.parametrize("similarity", ["dot", "euclidean"])
def test_a_diagnosis_searches_as_the_files_say(
    model: Callable[[str], Path], goods: str, tmp_path: Path, similarity: str
) -> None:
    place = saying(model, tmp_path / "model", similarity)
    diagnosis = figures(place, goods)
    task = evaluate(place, task="retrieval", dataset=goods, model_options=RAW, resamples=100)
    metrics = diagnosis.findings[0].result.metrics
    assert metrics["ndcg@10"] == pytest.approx(task.metrics["ndcg@10"])
    assert diagnosis.to_dict()["similarity"] == similarity
    plain = figures(place, goods, similarity="cosine")
    assert plain.findings[0].result.metrics["ndcg@10"] != pytest.approx(metrics["ndcg@10"])
    assert "jaccard@10/int8" in plain.findings[0].result.metrics
    assert "jaccard@10/int8" not in metrics
    assert plain.findings[0].result.request["given"]["similarity"] == "cosine"


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_the_first_rows_by_any_measure(similarity: str) -> None:
    rng = np.random.default_rng(0)
    queries, vectors = (rng.normal(size=(n, 6)).astype(np.float32) * rng.uniform(0.5, 2, (n, 1)) for n in (7, 40))
    queries = vectors[:7] if similarity == "dot" else queries.astype(np.float32)
    a, b = (unit_like(x) if similarity == "cosine" else x for x in (queries, vectors.astype(np.float32)))
    scores = a @ b.T
    if similarity in ("euclidean", "manhattan"):
        scores = -np.linalg.norm(a[:, None] - b[None], ord=2 if similarity == "euclidean" else 1, axis=2)
    np.testing.assert_array_equal(nearest_rows(a, b, 5, similarity=similarity), np.argsort(-scores)[:, :5])
    own = np.arange(7)
    scores[own, own] = -np.inf
    rows = nearest_rows(a, b, 5, similarity=similarity, exclude=own)
    np.testing.assert_array_equal(rows, np.argsort(-scores)[:, :5])


def test_trust_searches_as_the_files_say(model: Callable[[str], Path], goods: str, tmp_path: Path) -> None:
    place = saying(model, tmp_path / "model", "dot")
    answer = trust(place, goods, ["red mug"], model_options=RAW)
    retrieval = evaluate(place, task="retrieval", dataset=goods, model_options=RAW, resamples=100)
    assert answer.to_dict()["similarity"] == "dot"
    plain = trust(place, goods, ["red mug"], model_options=RAW, options=TrustOptions(similarity="cosine"))
    assert plain.rows.tolist() != answer.rows.tolist()
    assert (np.diff(plain.cosines) <= 1e-12).all()
    assert retrieval.model.settings["similarity_fn_name"] == "dot"
    answer.trust.save(tmp_path / "score.trust")
    again = trust(place, goods, ["red mug"], model_options=RAW, options=TrustOptions(load=tmp_path / "score.trust"))
    assert again.rows.tolist() == answer.rows.tolist()


def test_texts_that_are_cut_are_reported_from_the_cache_too(
    model: Callable[[str], Path], goods: str, tmp_path: Path
) -> None:
    short, cache = ModelOptions(max_length=5), VectorCache(tmp_path / "vectors")
    place = str(model("potion-base-4m-int8"))
    options = DiagnosisOptions(layers=("geometry",))
    both = [
        diagnose(place, CorpusInputs(dataset=goods), options=options, model_options=short, vectors=cache)
        for _ in range(2)
    ]
    first, second = ([note for note in diagnosis.notes if "cut at 5 tokens" in note] for diagnosis in both)
    assert first == second
    assert len(first) == 2
    assert both[1].timing["texts_encoded"] == 0
    counts = both[1].findings[0].result.outcomes.counts  # type: ignore[union-attr]
    assert first[0].startswith(f"{counts['documents_truncated']:,} documents are longer than the model reads")
    answer = trust(place, goods, ["a red mug of stone ware and glass"], model_options=short)
    cut = counts["queries_truncated"] + 1  # the queries beside the corpus, and this one; not the odd ones made from it
    assert f"{cut} queries are longer than the model reads and are cut at 5 tokens" in answer.notes
