"""`calipers diagnose` end to end: pathologies that were planted are found by the right figure and by no other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calipers import models
from calipers.data import beir
from calipers.models import ModelOptions
from tests.support.diagnoses import Part, ask, cut, keep, warned, write

LAYERS = ("--layers", "geometry,retrieval", "--no-store")


@pytest.fixture(scope="module")
def part(data: Callable[[str], Path], model: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Part:
    folder = cut(data("scifact"), tmp_path_factory.mktemp("scifact"))
    dataset = beir.load(str(folder))
    potion: Any = models.load(models.find(f"static:{model('potion-base-4m-int8')}"), ModelOptions())
    corpus = potion.encode(dataset.tables["corpus"].columns["text"])
    # The space of a real model, without the mean vector that all texts share: a healthy one to plant faults in.
    mean = corpus.mean(axis=0)
    return Part(folder, dataset, corpus - mean, potion.encode(dataset.columns["query"]) - mean)


def diagnose(part: Part, tmp_path: Path, capsys: Any, change: Callable[[Any], Any] = lambda v: v) -> dict[str, Any]:
    documents, queries = part.texts()
    vectors = change(np.concatenate([part.documents, part.queries]))
    model = keep(tmp_path / "vectors.npy", documents + queries, vectors)
    code, document = ask(capsys, model, "--dataset", part.folder, *LAYERS)
    assert code == 0
    return document


def test_a_healthy_space_gives_no_warning(part: Part, tmp_path: Path, capsys: Any) -> None:
    found = diagnose(part, tmp_path, capsys)
    assert warned(found) == set()
    assert found["dataset"]["documents"] == 500
    assert found["layers"]["retrieval"]["metrics"]["ndcg@10"] > 0.4
    assert set(found["layers"]) == {"geometry", "retrieval"}
    for place in (found, *found["layers"].values()):  # each says how long it searched, and at what rate
        assert 0 < place["timing"]["search_seconds"] < found["timing"]["total_seconds"]
        assert place["timing"]["search_share"] > 0
    assert found["layers"]["retrieval"]["timing"]["index_seconds"] > 0


@pytest.mark.parametrize("scale", [1e20, 1e-25])
def test_the_length_of_vectors_changes_no_figure(part: Part, tmp_path: Path, capsys: Any, scale: float) -> None:
    plain = diagnose(part, tmp_path, capsys)["layers"]
    scaled = diagnose(part, tmp_path, capsys, lambda vectors: vectors * np.float32(scale))["layers"]
    for layer in ("geometry", "retrieval"):
        values = {name: value for name, value in plain[layer]["metrics"].items() if value is not None}
        again = {name: value for name, value in scaled[layer]["metrics"].items() if value is not None}
        assert again == pytest.approx(values, rel=1e-4, abs=1e-6)


def test_a_constant_vector_is_found_as_anisotropy(part: Part, tmp_path: Path, capsys: Any) -> None:
    def add(vectors: Any) -> Any:
        constant = np.random.default_rng(0).normal(size=vectors.shape[1])
        return vectors + 3 * np.linalg.norm(vectors, axis=1).mean() * constant / np.linalg.norm(constant)

    found = diagnose(part, tmp_path, capsys, add)
    assert "anisotropy" in warned(found)
    assert warned(found) <= {"anisotropy", "hubness_skewness"}
    assert found["layers"]["geometry"]["metrics"]["anisotropy"] > 0.7


def test_vampire_documents_are_found_as_hubs_by_name(part: Part, tmp_path: Path, capsys: Any) -> None:
    """Three documents, relevant to nothing, that lie in the direction of all queries at once."""
    rng = np.random.default_rng(1)
    ids = part.dataset.tables["corpus"].ids
    relevant = {id for grades in part.dataset.columns["qrels"] for id in grades}
    vampires = [row for row, id in enumerate(ids) if id not in relevant][:3]
    units = part.queries / np.linalg.norm(part.queries, axis=1, keepdims=True)

    def invade(vectors: Any) -> Any:
        for row in vampires:
            vectors[row] = units.sum(axis=0) + 0.2 * rng.normal(size=vectors.shape[1])
        return vectors

    found = diagnose(part, tmp_path, capsys, invade)
    assert warned(found) == {"hubness_skewness"}
    named = [e["id"] for e in found["layers"]["geometry"]["examples"] if e["figure"] == "hubness_skewness"]
    assert set(named[:3]) == {ids[row] for row in vampires}


def test_duplicates_are_found_and_leave_the_dimension_alone(part: Part, tmp_path: Path, capsys: Any) -> None:
    corpus = part.dataset.tables["corpus"]
    texts = dict(zip(corpus.ids, corpus.columns["text"], strict=True))
    copies = {f"{id}-copy": f"{text} (copy)" for id, text in list(texts.items())[-100:]}
    folder = write(tmp_path / "copies", {**texts, **copies}, part.dataset)
    vectors = np.concatenate([part.documents, part.documents[-100:], part.queries])
    model = keep(tmp_path / "v.npy", [*texts.values(), *copies.values(), *part.dataset.columns["query"]], vectors)
    clean = diagnose(part, tmp_path, capsys)
    code, found = ask(capsys, model, "--dataset", folder, *LAYERS)
    assert code == 0
    assert warned(found) == {"duplicates"}
    assert found["layers"]["geometry"]["metrics"]["duplicates"] == pytest.approx(100 / 600)
    before, after = (d["layers"]["geometry"]["metrics"]["intrinsic_dimension"] for d in (clean, found))
    assert after == pytest.approx(before, rel=1e-6)


def test_dead_vectors_are_invalid_with_their_ids(part: Part, tmp_path: Path, capsys: Any) -> None:
    from calipers import cli

    vectors = np.concatenate([part.documents, part.queries])
    vectors[3] = np.nan
    documents, queries = part.texts()
    model = keep(tmp_path / "dead.npy", documents + queries, vectors)
    assert cli.run(["diagnose", str(model), "--dataset", str(part.folder), *LAYERS]) == 4
    assert part.dataset.tables["corpus"].ids[3] in capsys.readouterr().err
    alive = keep(tmp_path / "alive.npy", documents + queries, np.concatenate([part.documents, part.queries]))
    code, found = ask(capsys, model, "--baseline", alive, "--dataset", part.folder, *LAYERS)
    assert (code, found["label"]) == (1, "INVALID")


def test_a_worse_model_is_a_regression_beside_its_baseline(part: Part, tmp_path: Path, capsys: Any) -> None:
    documents, queries = part.texts()
    vectors = np.concatenate([part.documents, part.queries])
    noise = np.random.default_rng(0).normal(size=vectors.shape) * np.linalg.norm(vectors, axis=1).mean() / 12
    good = keep(tmp_path / "good.npy", documents + queries, vectors)
    bad = keep(tmp_path / "bad.npy", documents + queries, vectors + noise)
    line = ("--dataset", part.folder, *LAYERS, "--resamples", "1000")
    code, found = ask(capsys, bad, "--baseline", good, *line)
    assert (code, found["label"]) == (1, "REGRESSION")
    layer = found["layers"]["retrieval"]
    assert 0 < layer["metrics"]["jaccard@10"] < 1
    assert {c["metric"] for c in layer["comparisons"] if c["decides"]} == {"ndcg@10"}
    assert found["layers"]["geometry"]["label"] is None
    code, same = ask(capsys, good, "--baseline", good, *line)
    assert (code, same["label"]) == (0, "PASS")
    assert same["layers"]["retrieval"]["metrics"]["jaccard@10"] == 1
    assert same["layers"]["retrieval"]["metrics"]["churn"] == 0


def test_without_judgements_stability_is_still_measured(part: Part, tmp_path: Path, capsys: Any) -> None:
    documents, queries = part.texts()
    model = keep(tmp_path / "v.npy", documents + queries, np.concatenate([part.documents, part.queries]))
    files = ("--corpus", part.folder / "corpus.jsonl", "--queries", part.folder / "queries.jsonl")
    code, found = ask(capsys, model, *files, *LAYERS)
    metrics = found["layers"]["retrieval"]["metrics"]
    assert code == 0
    assert metrics["ndcg@10"] is None
    assert metrics["jaccard@10/fp16"] > 0.95
    reasons = {f["name"]: f["reason"] for f in found["layers"]["retrieval"]["figures"]}
    assert reasons["ndcg@10"] == "no document is judged relevant to any query (--qrels)"
    code, found = ask(capsys, model, *files[:2], "--no-store", "--layers", "geometry")
    assert (code, found["dataset"]["queries"]) == (0, 0)


def test_a_reranker_gives_a_second_stage(part: Part, tmp_path: Path, capsys: Any, weights: Any) -> None:
    documents, queries = part.texts()
    model = keep(tmp_path / "v.npy", documents + queries, np.concatenate([part.documents, part.queries]))
    line = ("--dataset", part.folder, "--layers", "retrieval", "--no-store", "--samples", "3", "--rerank-k", "2")
    code, found = ask(capsys, model, *line, "--rerank", weights("ms-marco-MiniLM-L12-v2-int8"))
    metrics = found["layers"]["retrieval"]["metrics"]
    assert code == 0
    assert {"ndcg@10", "base_ndcg@10", "recall@100", "base_recall@100"} <= set(metrics)
    assert metrics["recall@100"] == metrics["base_recall@100"]
