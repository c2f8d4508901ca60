"""The figures of a diagnosis against the method's definitions in plain numpy, on real products and real vectors."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calipers import models
from calipers.diagnosis.api import diagnose
from calipers.diagnosis.options import DiagnosisOptions
from calipers.models import ModelOptions
from calipers.runs.embedding import CorpusInputs
from tests.support import method

Named = Callable[[str], Path]
FIGURES = (
    "alignment", "uniformity", "anisotropy", "intrinsic_dimension", "hubness_skewness", "hubness_gini", "churn",
    "zero_recall", "rank_reversal", "stability", "coherence", "reliability", "semantic_gap",
)  # fmt: skip
_JUDGED = 12  # documents of a query, evenly over its grades


@dataclass(frozen=True, eq=False)
class Products:
    """About 1,200 products of icecat with all its queries and the judgements among them."""

    folder: Path
    ids: list[str]
    titles: list[str]
    texts: list[str]
    query_ids: list[str]
    queries: list[str]
    qrels: list[dict[str, float]]


@pytest.fixture(scope="module")
def products(data: Named, tmp_path_factory: pytest.TempPathFactory) -> Products:
    source, folder = data("icecat"), tmp_path_factory.mktemp("icecat")
    rows = {row["_id"]: row for row in _lines(source / "corpus.jsonl")}
    queries = _lines(source / "queries.jsonl")
    grades: dict[str, dict[str, float]] = {query["_id"]: {} for query in queries}
    for line in (source / "qrels" / "test.tsv").read_text().splitlines()[1:]:
        query, document, grade = line.split("\t")
        grades[query][document] = float(grade)
    chosen = {id for judged in grades.values() for id in _evenly(sorted(judged, key=lambda id: (judged[id], id)))}
    ids = [id for id in rows if id in chosen]
    qrels = [{id: grade for id, grade in judged.items() if id in chosen} for judged in grades.values()]
    (folder / "qrels").mkdir()
    kept = [{key: rows[id][key] for key in ("_id", "title", "text") if key in rows[id]} for id in ids]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept))
    (folder / "queries.jsonl").write_text("".join(json.dumps(query) + "\n" for query in queries))
    lines = [f"{q}\t{id}\t{grade:g}" for q, judged in zip(grades, qrels, strict=True) for id, grade in judged.items()]
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]) + "\n")
    titles = [row["title"] for row in kept]
    texts = [f"{row['title']} {row.get('text', '')}".strip() for row in kept]
    return Products(folder, ids, titles, texts, list(grades), [query["text"] for query in queries], qrels)


def _lines(file: Path) -> list[dict[str, Any]]:
    """Not splitlines(): a text may hold U+2028."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]


def _evenly(ids: list[str]) -> list[str]:
    return [ids[int(place)] for place in np.linspace(0, len(ids) - 1, min(_JUDGED, len(ids)))]


def encode(path: str, texts: tuple[str, ...]) -> Any:
    encoder: Any = models.load(models.find(path), ModelOptions())
    return encoder.encode(list(texts))


def measured(model: Path, products: Products, baseline: Path) -> dict[str, float]:
    """The figures of all layers that the method defines, against vectors of a lesser model."""
    options = DiagnosisOptions(
        layers=("geometry", "retrieval", "semantic_gap", "certainty"),
        layer_options={"grades": "esci", "permutations": 1},
        resamples=100,
    )
    diagnosis = diagnose(
        str(model), CorpusInputs(dataset=str(products.folder)), baseline=str(baseline), options=options
    )
    return {name: value for f in diagnosis.findings if f.result for name, value in f.result.metrics.items()}


def expected(documents: Any, queries: Any, lesser: tuple[Any, Any], products: Products) -> dict[str, float]:
    results, place = method.top(queries, documents), {id: row for row, id in enumerate(products.ids)}
    judged = [(q, place[id], grade) for q, grades in enumerate(products.qrels) for id, grade in grades.items()]
    positive = np.array([(q, d) for q, d, grade in judged if grade >= 1])
    pairs = np.array([(q, d) for q, d, _ in judged])
    counts = method.retrieved(results, len(documents))
    g, i = method.stability(queries, method.int8(documents, queries)), method.density(results, documents)
    return {
        "alignment": method.alignment(queries[positive[:, 0]], documents[positive[:, 1]]),
        "uniformity": method.uniformity(documents),
        "anisotropy": method.anisotropy(documents),
        "intrinsic_dimension": method.two_nn(documents),
        "hubness_skewness": method.skewness(counts),
        "hubness_gini": method.gini(counts),
        "churn": method.churn(results, method.top(lesser[1], lesser[0])),
        "zero_recall": method.zero_recall(results, products.ids, products.qrels),
        "rank_reversal": method.rank_reversal(results, products.ids, products.qrels),
        "stability": float(g.mean()),
        "coherence": float(i.mean()),
        "reliability": float(method.reliability(g, i).mean()),
        "semantic_gap": method.semantic_gap(
            [products.queries[q] for q in pairs[:, 0]],
            [products.titles[d] for d in pairs[:, 1]],
            queries[pairs[:, 0]],
            documents[pairs[:, 1]],
        ),
    }


@cache
def both(model: Path, products: Products) -> tuple[dict[str, float], dict[str, float]]:
    """The figures of a diagnosis, and what they should be. The baseline has the first half of each vector."""
    vectors = encode(str(model), (*products.texts, *products.queries))
    half, documents = vectors[:, : vectors.shape[1] // 2], len(products.texts)
    baseline = products.folder / f"{model.name}.npy"
    np.save(baseline, half)
    names = [f"{id}/document" for id in products.ids] + [f"{id}/query" for id in products.query_ids]
    baseline.with_suffix(".ids").write_text("\n".join(names) + "\n")
    lesser = half[:documents], half[documents:]
    return measured(model, products, baseline), expected(vectors[:documents], vectors[documents:], lesser, products)


def compare(model: Path, products: Products, *names: str) -> None:
    figures, wanted = both(model, products)
    apart = {name: abs(figures[name] - wanted[name]) for name in names}
    assert max(apart.values()) < 1e-7, {name: (figures[name], wanted[name]) for name in apart if apart[name] >= 1e-7}


def test_about_1200_products(products: Products) -> None:
    assert 1150 <= len(products.ids) <= 1250


def test_figures_are_the_methods(model: Named, products: Products) -> None:
    compare(model("potion-base-4m-int8"), products, *FIGURES)


@pytest.mark.slow
def test_figures_of_a_transformer_are_the_methods(minilm: Path, products: Products) -> None:
    compare(minilm, products, *FIGURES)
