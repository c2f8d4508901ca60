"""Texts whose vector is zero: counted, named, left out of the geometry, failing in retrieval, and INVALID when many."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calipers import cli
from calipers.core import SILENT, Figure, InvalidOutput, ModelInfo, Outcomes, read_figures, read_named
from calipers.diagnosis import api, layers
from calipers.diagnosis.layers import PairVectors, Space, Texts
from calipers.diagnosis.options import DiagnosisOptions
from calipers.runs import space as directions
from calipers.runs.embedding import CorpusInputs
from calipers.runs.space import Kept, directed, draw, put_back
from calipers.shop import sample as shop
from tests.support.diagnoses import ask
from tests.support.samples import write_jsonl


def texts(side: str, vectors: Any) -> Texts:
    ids = tuple(f"{side}{i}" for i in range(len(vectors)))
    return Texts(ids, [f"text of {id}" for id in ids], np.asarray(vectors, np.float32))


@pytest.fixture
def space() -> Space:
    """40 documents and 20 queries, of which d3, d7 and q5 have no direction."""
    rng = np.random.default_rng(0)
    corpus, queries = rng.normal(size=(40, 6)), rng.normal(size=(20, 6))
    corpus[[3, 7]], queries[5] = 0, 0
    qrels = [{f"d{2 * i}": 2.0, f"d{2 * i + 1}": 0.0} for i in range(20)]
    return Space(texts("d", corpus), texts("q", queries), qrels)


def figures(outcomes: Outcomes) -> dict[str, Figure]:
    return {figure.name: figure for figure in read_figures(outcomes)}


def run(name: str, space: Space) -> Outcomes:
    layer = layers.find(name)
    return layer.run(None, space, layer.options(), SILENT)


def test_what_has_no_direction_is_taken_out_and_numbered(space: Space) -> None:
    found = directed(space)
    assert found.documents.tolist() == [i for i in range(40) if i not in (3, 7)]
    assert found.queries.tolist() == [i for i in range(20) if i != 5]
    assert found.space.queries is not None
    assert (found.space.corpus.ids[3], found.space.queries.ids[5]) == ("d4", "q6")
    assert found.space.qrels[5] == space.qrels[6]
    assert np.array_equal(found.space.corpus.vectors[3:5], space.corpus.vectors[4:6])
    assert np.array_equal(np.asarray(found.space.corpus.vectors), space.corpus.vectors[found.documents])


def test_without_such_texts_nothing_is_copied(space: Space) -> None:
    whole = replace(space, corpus=texts("d", np.eye(6)), queries=None, qrels=())
    assert directed(whole).space.corpus is whole.corpus


def test_neighbours_are_rows_of_the_whole_corpus(space: Space) -> None:
    assert space.queries is not None
    found = directed(space).find(space.queries.vectors, 40)
    assert (found[5] == -1).all()
    for query in (0, 6, 19):
        cosines = [v @ space.queries.vectors[query] / max(np.linalg.norm(v), 1e-9) for v in space.corpus.vectors]
        best = [int(i) for i in np.argsort(-np.array(cosines)) if i not in (3, 7)]
        assert found[query].tolist() == [*best, -1, -1]


def test_a_sample_is_the_same_for_two_models_but_for_what_one_leaves_out() -> None:
    whole = draw(None, 100, 30, seed=1)
    kept = np.delete(np.arange(100), [4, int(whole[0]), 50])
    some = kept[draw(Kept(kept, 100), 97, 30, seed=1)]
    assert set(some) == set(whole) - {4, int(whole[0]), 50}


def test_a_tenth_is_the_most_that_may_be_missing(space: Space) -> None:
    vectors = space.corpus.vectors.copy()
    vectors[[1, 2]] = 0
    directions.refuse(replace(space, corpus=texts("d", vectors)))  # 4 of 40
    vectors[4] = 0
    with pytest.raises(InvalidOutput, match=r"5 of 40 documents are zero, more than 10% \(rows d1, d2, d3, d4, d7\)"):
        directions.refuse(replace(space, corpus=texts("d", vectors)))


def test_a_number_that_is_not_finite_is_invalid_at_once(space: Space) -> None:
    assert space.queries is not None
    vectors = space.queries.vectors.copy()
    vectors[2, 1] = np.inf
    with pytest.raises(InvalidOutput, match=r"1 of 20 queries hold NaN or infinite numbers \(rows q2\)"):
        directions.refuse(replace(space, queries=texts("q", vectors)))


def test_geometry_leaves_them_out_and_names_them(space: Space) -> None:
    outcomes = run("geometry", space)
    alive = replace(
        space, corpus=texts("d", space.corpus.vectors[np.delete(np.arange(40), [3, 7])]), queries=None, qrels=()
    )
    found, without = figures(outcomes), figures(run("geometry", alive))
    for name in ("anisotropy", "uniformity", "intrinsic_dimension", "duplicates"):
        assert found[name].value == pytest.approx(without[name].value)
    assert (found["without_direction"].value, found["without_direction"].count) == (2 / 40, 40)
    assert found["without_direction"].warning
    assert [n.id for n in read_named(outcomes) if n.figure == "without_direction"] == ["d3", "d7"]
    assert len(outcomes.ids) == 60  # all are examples still, so that models stay comparable
    row = outcomes.ids.index("d3/document")
    assert np.isnan(outcomes.columns["anisotropy"][row])
    assert np.nanmean(outcomes.columns["anisotropy"]) == pytest.approx(found["anisotropy"].value)


def test_pairs_without_a_direction_are_left_out_of_alignment(space: Space) -> None:
    left, right = np.eye(6, dtype=np.float32)[[0, 1] * 10], np.eye(6, dtype=np.float32)[[0, 2] * 10]
    right[0] = 0
    pairs = PairVectors(tuple(f"p{i}" for i in range(20)), left, right)
    alignment = figures(run("geometry", replace(space, pairs=pairs)))["alignment"]
    assert (alignment.value, alignment.count) == (pytest.approx(10 * 2 / 19), 19)  # 9 pairs at distance 0, 10 at √2


def test_semantic_gap_and_certainty_keep_their_rows_as_nan(space: Space) -> None:
    gap = run("semantic_gap", space)
    assert len(gap.ids) == 20
    assert np.isnan(gap.columns["semantic_gap"]).nonzero()[0].tolist() == [5]
    assert gap.counts["pairs_without_direction"] == 4  # two of q5, and d3 of q1, d7 of q3
    assert gap.ids[int(gap.details["pairs"]["example"][-1])] == "q19/query"
    sure = run("certainty", space)
    assert len(sure.ids) == 20
    assert np.isnan(sure.columns["reliability"]).nonzero()[0].tolist() == [5]


def test_outcomes_are_put_back_among_all() -> None:
    some = Outcomes(("a", "c"), {"x": np.array([1.0, 2.0])}, details={"t": {"example": np.array([0, 1, 1])}})
    found = put_back(some, np.array([0, 2]), ("a", "b", "c"), {})
    assert found.columns["x"].tolist() == pytest.approx([1.0, np.nan, 2.0], nan_ok=True)
    assert found.details["t"]["example"].tolist() == [0, 2, 2]


class Words:
    """An encoder for tests: which of its words a text has. A text without any is zero."""

    def __init__(self, *words: str) -> None:
        self.info = ModelInfo("test", "words", None, "cpu", ",".join(words))
        self._words = words

    def encode(self, texts: Any, *, prompt: str | None = None, progress: Any = SILENT) -> Any:
        return np.array([[text.split().count(word) for word in self._words] for text in texts], np.float32)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    things = ("mug", "cup", "pot")
    corpus = [{"_id": f"d{i}", "text": f"{things[i % 3]} {things[(i // 3) % 3]} number{i % 5}"} for i in range(30)]
    asked = [*(things[i % 3] for i in range(18)), "unheard", "of"]
    write_jsonl(tmp_path / "corpus.jsonl", corpus)
    write_jsonl(tmp_path / "queries.jsonl", [{"_id": f"q{i}", "text": text} for i, text in enumerate(asked)])
    (tmp_path / "qrels.tsv").write_text("".join(f"q{i}\td{i % 30}\t1\n" for i in range(20)))
    names = {"corpus": "corpus.jsonl", "queries": "queries.jsonl", "qrels": "qrels.tsv"}
    return {key: str(tmp_path / name) for key, name in names.items()}


def test_two_models_that_miss_different_texts_are_compared(files: dict[str, str]) -> None:
    options = DiagnosisOptions(layers=("geometry", "retrieval", "semantic_gap"), resamples=200)
    known = ("mug", "cup", "pot", "number1", "number2")
    found = api.diagnose(Words(*known), CorpusInputs(**files), baseline=Words(*known, "unheard"), options=options)
    assert all(finding.verdict and finding.verdict.comparisons for finding in found.findings)
    retrieval = found.findings[1]
    assert retrieval.result is not None
    ndcg = dict(zip(retrieval.result.outcomes.ids, retrieval.result.outcomes.columns["ndcg@10"], strict=True))
    assert (ndcg["q18"], ndcg["q19"]) == (0.0, 0.0)
    assert retrieval.result.metrics["queries_without_direction"] == 2 / 20
    assert retrieval.result.metrics["zero_recall"] >= 2 / 20
    told = [note for note in found.notes if "no direction" in note]
    assert "2 of 20 queries" in told[0]
    assert "(q18, q19)" in told[0]
    assert told[1].startswith("the baseline: 1 of 20 queries")


def test_a_real_model_that_knows_no_word_of_three_queries_is_diagnosed(
    model: Callable[[str], Path], tmp_path: Path, capsys: Any
) -> None:
    """potion has none of the characters of 傘 and 弁当箱: three Japanese queries of the sample shop are zero."""
    folder = shop.write(tmp_path / "shop")
    potion = f"static:{model('potion-base-4m-int8')}"
    code, found = ask(
        capsys, potion, "--dataset", folder, "--layers", "geometry,retrieval,attributes,certainty", "--no-store"
    )
    assert code == 0
    retrieval = found["layers"]["retrieval"]
    assert retrieval["metrics"]["queries_without_direction"] == pytest.approx(3 / 200)
    lost = {e["id"]: e["text"] for e in retrieval["examples"] if e["figure"] == "queries_without_direction"}
    assert lost == {"q023": "傘", "q060": "弁当箱 紫", "q061": "弁当箱"}
    assert {f["name"]: f["count"] for f in retrieval["figures"]}["ndcg@10"] == 200
    assert found["layers"]["geometry"]["metrics"]["without_direction"] == 0
    assert found["layers"]["attributes"]["scored"]["queries_without_results"] == 3
    assert found["layers"]["certainty"]["scored"]["queries"] == 197
    assert any("q023, q060, q061" in note for note in found["notes"])


def test_a_real_model_that_knows_too_few_words_is_invalid(
    model: Callable[[str], Path], tmp_path: Path, capsys: Any
) -> None:
    (tmp_path / "corpus.txt").write_text("\n".join([*(f"word {i}" for i in range(20)), "傘", "弁当箱", "弁当箱 傘"]))
    potion = f"static:{model('potion-base-4m-int8')}"
    line = ("diagnose", potion, "--corpus", str(tmp_path / "corpus.txt"), "--layers", "geometry", "--no-store")
    assert cli.run([*line]) == 4
    assert "3 of 23 documents are zero, more than 10%" in capsys.readouterr().err
