"""Hybrid search: what a reference means, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

import calipers
from calipers import ModelOptions, models
from calipers.core import ModelError, RequestError
from calipers.data import trec
from calipers.models import identity
from calipers.models.hybrid import Fusion, Hybrid, settle
from tests.support.samples import write_jsonl

DOCUMENTS = {
    "d1": "red wine from the south",
    "d2": "a red bicycle for children",
    "d3": "white wine, dry",
    "d4": "wine glasses, set of six",
    "d5": "a city bike",
}
QUERIES = {"q1": "red wine", "q2": "bicycle", "q3": "glasses"}
QRELS = [("q1", "d1", 2), ("q1", "d3", 1), ("q2", "d2", 1), ("q2", "d5", 1), ("q3", "d4", 1)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_jsonl(tmp_path / "corpus.jsonl", [{"_id": id, "text": text} for id, text in DOCUMENTS.items()])
    write_jsonl(tmp_path / "queries.jsonl", [{"_id": id, "text": text} for id, text in QUERIES.items()])
    (tmp_path / "qrels").mkdir()
    lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in QRELS)]
    (tmp_path / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n")
    return tmp_path


@pytest.mark.parametrize(("settings", "fusion"), [("", Fusion()), (":0.5", Fusion(0.5)), (":k1=2", Fusion())])
def test_its_order_is_the_fusion_of_its_parts(minilm: Path, folder: Path, settings: str, fusion: Fusion) -> None:
    """The run files of the encoder and of BM25, fused by hand, are the run file of the hybrid."""
    lexical = f"bm25{settings if '=' in settings else ''}"
    runs = {}
    for name, model in (("dense", str(minilm)), ("lexical", lexical), ("both", f"hybrid:{minilm}+bm25{settings}")):
        out = folder / f"{name}.trec"
        calipers.evaluate(model, task="retrieval", dataset=str(folder), run_out=out)
        runs[name] = trec.read_run(out)
    for query in QUERIES:
        assert list(runs["both"][query]) == fused(runs["dense"][query], runs["lexical"].get(query, {}), fusion)


def fused(dense: dict[str, float], lexical: dict[str, float], fusion: Fusion) -> list[str]:
    sums = dict.fromkeys(DOCUMENTS, 0.0)
    for share, scores in ((fusion.weight, dense), (1 - (fusion.weight or 0), lexical)):
        order = sorted(scores, key=lambda id: (-scores[id], id))
        for rank, id in enumerate(order, 1):
            span = scores[order[0]] - scores[order[-1]]
            scaled = (scores[id] - scores[order[-1]]) / span if span else 1.0
            sums[id] += 1 / (60 + rank) if share is None or fusion.weight is None else share * scaled
    return sorted((id for id in DOCUMENTS if id in dense or id in lexical), key=lambda id: (-sums[id], id))


def test_the_model_says_what_it_is_made_of(minilm: Path) -> None:
    model = models.load_model(f"hybrid:{minilm}+bm25:weight=0.7,depth=50,b=0.4", ability="retrieve")
    assert isinstance(model, Hybrid)
    assert model.fusion == Fusion(0.7, depth=50)
    assert model.lexical.settings.b == 0.4
    assert model.info.model_id == f"{minilm.name} + bm25"
    assert model.info.settings["fusion"] == {"weight": 0.7, "constant": 60.0, "depth": 50}


def test_every_part_is_in_the_key(minilm: Path) -> None:
    references = [f"{minilm}+bm25", f"{minilm}+bm25:0.7", f"{minilm}+bm25:constant=10", f"{minilm}+bm25:k1=0.9"]
    facts = [identity.identity(models.find(f"hybrid:{r}"), ModelOptions(), "retrieve") for r in references]
    assert len({repr(fact) for fact in facts}) == 4


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("hybrid:model", "a hybrid search is written hybrid:MODEL"),
        ("hybrid:+bm25", "a hybrid search is written hybrid:MODEL"),
        ("hybrid:bm25+bm25", "takes a model that gives vectors"),
        ("hybrid:MODEL+bm25:1.5", "the weight of a hybrid search must be a number from 0 to 1, found '1.5'"),
        ("hybrid:MODEL+bm25:nan", "the weight of a hybrid search must be a number from 0 to 1"),
        ("hybrid:MODEL+bm25:depth=0", "the depth of a hybrid search must be a number from 1 to 1,000,000,000"),
        ("hybrid:MODEL+bm25:depth=99999999999999999999", "the depth of a hybrid search must be a number from 1 to"),
        ("hybrid:MODEL+bm25:depth=2.5", "the depth of a hybrid search must be a number from 1 to 1,000,000,000"),
        ("hybrid:MODEL+bm25:0.5,weight=0.7", "gives weight twice"),
        ("hybrid:MODEL+bm25:colour=red", "BM25 has no setting 'colour'"),
    ],
)
def test_a_wrong_reference_is_refused(minilm: Path, reference: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        models.load_model(reference.replace("MODEL", str(minilm)), ability="retrieve")


def test_settings_of_both_parts_are_told_apart() -> None:
    fusion, lexical = settle(models.Source("hybrid", "hybrid:x+bm25:k1=0.9,0.7,stopwords=none", None))
    assert (fusion, lexical.reference) == (Fusion(0.7), "bm25:k1=0.9,stopwords=none")


def test_it_has_no_vectors_of_its_own(minilm: Path) -> None:
    with pytest.raises(ModelError, match="cannot encode"):
        models.load_model(f"hybrid:{minilm}+bm25")
