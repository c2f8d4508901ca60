"""What would help: the gains against plain loops with a real model, the filter by hand, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from calipers import models
from calipers.core import Figure, RequestError
from calipers.core.figures import read_figures
from calipers.diagnosis import api, findings
from calipers.diagnosis.options import DiagnosisOptions
from calipers.diagnosis.records import Diagnosis
from calipers.runs.embedding import CorpusInputs
from calipers.shop import sample as shop
from tests.support.diagnoses import Letters
from tests.support.samples import write_jsonl

Array = NDArray[Any]


def plain_ndcg(order: Sequence[str], grades: Mapping[str, float], k: int = 10) -> float:
    def gain(ordered: Sequence[float]) -> float:
        return sum(grade / np.log2(place + 2) for place, grade in enumerate(ordered[:k]))

    best = gain(sorted(grades.values(), reverse=True))
    return gain([grades.get(id, 0.0) for id in order]) / best if best else 0.0


def unit(rows: Array) -> Array:
    wide = np.asarray(rows, np.float64)
    return np.asarray(wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12))


@pytest.fixture(scope="module")
def made() -> shop.Shop:
    return shop.make()


@pytest.fixture(scope="module")
def diagnosis(made: shop.Shop, model: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Diagnosis:
    folder = tmp_path_factory.mktemp("shop")
    shop.write(folder)
    options = DiagnosisOptions(layers=("retrieval", "remedies"))
    return api.diagnose(str(model("potion-base-4m-int8")), CorpusInputs(dataset=str(folder)), options=options)


def columns(diagnosis: Diagnosis, layer: str) -> Mapping[str, Array]:
    (finding,) = [f for f in diagnosis.findings if f.layer == layer]
    assert finding.result is not None
    return finding.result.outcomes.columns


def test_gains_equal_a_plain_loop(diagnosis: Diagnosis, made: shop.Shop, model: Callable[[str], Path]) -> None:
    encoder: Any = models.load(models.find(str(model("potion-base-4m-int8"))), models.ModelOptions(), "encode")
    texts = [f"{p.row['title']} {p.row['description']}" for p in made.products]
    queries, documents = unit(encoder.encode([q.text for q in made.queries])), unit(encoder.encode(texts))
    mean = documents.mean(axis=0)
    cosines = queries @ documents.T
    crowding = np.sort(cosines, axis=0)[-10:].mean(axis=0)
    searched = {
        "mean_removed": unit(queries - mean) @ unit(documents - mean).T,
        "csls": 2 * cosines - crowding,
        "half_dimensions": unit(queries[:, :64]) @ unit(documents[:, :64]).T,
    }
    ids = [p.id for p in made.products]
    alive = np.abs(queries).sum(axis=1) > 0.5

    def quality(scores: Array) -> Array:
        ranked = [[ids[i] for i in order] for order in np.argsort(-scores, axis=1, kind="stable")]
        each = [plain_ndcg(order, grades) for order, grades in zip(ranked, made.qrels, strict=True)]
        return np.where(alive, each, 0.0)

    before = quality(cosines)
    for name, scores in searched.items():
        gains = columns(diagnosis, "remedies")[f"gain/{name}"]
        np.testing.assert_allclose(gains, quality(scores) - before, atol=1e-9, err_msg=name)


def test_a_gain_is_of_the_ndcg_that_the_table_shows(diagnosis: Diagnosis) -> None:
    shown, gains = columns(diagnosis, "retrieval")["ndcg@10"], columns(diagnosis, "remedies")["gain/int8"]
    assert np.all(shown + gains >= -1e-9)
    assert np.all(shown + gains <= 1 + 1e-9)
    figure = {f.name: f for finding in diagnosis.findings for f in findings.figures_of(finding)}["gain/int8"]
    assert figure.value == pytest.approx(np.nanmean(gains))
    assert figure.interval is not None
    assert findings.interval_of(figure).count(" to ") == 1


def test_what_surely_helps_is_a_headline_with_its_interval(diagnosis: Diagnosis) -> None:
    (finding,) = [f for f in diagnosis.findings if f.layer == "remedies"]
    sure = [f for f in findings.figures_of(finding) if f.interval and f.interval[0] > 0]
    lines = [line.sentence for line in findings.headlines(diagnosis) if line.layer == "remedies"]
    assert len(lines) == len(sure) > 0
    for line, figure in zip(lines, sure, strict=True):
        assert f"would change ndcg@10 by {findings.value_of(figure)} ({findings.interval_of(figure)}" in line
        assert findings.value_of(figure).startswith("+")


def small(folder: Path, qrels: str) -> CorpusInputs:
    rows = [("p0", "aaaa", "blue"), ("p1", "aaab", "red"), ("p2", "aabb", "red"), ("p3", "cccc", "")]
    write_jsonl(folder / "c.jsonl", [{"_id": id, "title": text, "text": "", "colour": c} for id, text, c in rows])
    write_jsonl(folder / "q.jsonl", [{"_id": "q0", "text": "aaaa red"}, {"_id": "q1", "text": "aaaa"}])
    (folder / "r.txt").write_text(qrels)
    names = {"corpus": "c.jsonl", "queries": "q.jsonl", "qrels": "r.txt"}
    return CorpusInputs(**{name: str(folder / file) for name, file in names.items()})


def gains(inputs: CorpusInputs, **options: Any) -> dict[str, Figure]:
    request = DiagnosisOptions(layers=("remedies",), layer_options=options)
    (finding,) = api.diagnose(Letters(), inputs, options=request).findings
    assert finding.result is not None
    return {figure.name: figure for figure in read_figures(finding.result.outcomes)}


def test_a_filter_puts_what_contradicts_last(tmp_path: Path) -> None:
    """p0 is blue and nearest to both queries; only q0 asks for red, and its right product is second."""
    figures = gains(small(tmp_path, "q0 0 p1 1\nq1 0 p0 1\n"), k=2)
    colour = figures["gain/colour_filter"]
    assert colour.count == 1  # q1 states no colour
    assert colour.value == pytest.approx(1 - 1 / np.log2(3))
    assert figures["gain/brand_filter"].reason == "no query states a brand"


def test_without_judgements_the_layer_says_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no document is judged relevant"):
        gains(small(tmp_path, "q0 0 p1 0\nq1 0 p0 0\n"))


def test_vectors_of_different_lengths_that_are_compared_by_dot_are_left_alone(tmp_path: Path) -> None:
    inputs = small(tmp_path, "q0 0 p1 1\nq1 0 p0 1\n")
    request = DiagnosisOptions(layers=("remedies",), similarity="dot")
    (finding,) = api.diagnose(Letters(), inputs, options=request).findings
    assert finding.result is not None
    figures = {figure.name: figure for figure in read_figures(finding.result.outcomes)}
    assert "keeps directions alone" in str(figures["gain/csls"].reason)
    assert figures["gain/colour_filter"].value is not None
