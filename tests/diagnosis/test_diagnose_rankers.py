"""A diagnosis of what orders documents by itself: BM25, a hybrid search, a file of results; and figures by group."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calipers.cli import run
from calipers.core import DataError, RequestError, Result
from calipers.core.datasets import Listed
from calipers.data import trec
from calipers.data.choose import DataOptions
from calipers.diagnosis.api import diagnose
from calipers.diagnosis.html import page
from calipers.diagnosis.options import DiagnosisOptions
from calipers.diagnosis.records import Diagnosis
from calipers.models import ModelOptions
from calipers.runs.api import evaluate
from calipers.runs.embedding import CorpusInputs
from calipers.runs.ranking import read_run
from calipers.shop import sample
from tests.support.samples import write_jsonl

LAYERS = ("retrieval", "attributes")
FEW = 30  # queries


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first queries of the sample shop, one of them with a label that tries to break out."""
    folder = sample.write(tmp_path_factory.mktemp("shop"), products=1000)
    rows = [json.loads(line) for line in (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()][:FEW]
    for number, row in enumerate(rows):
        row["kind"] = "<script>alert(1)</script>" if number % 2 else "a"
    write_jsonl(folder / "queries.jsonl", rows)
    return folder


def examine(model: Any, shop: Path, baseline: Any = None, **options: Any) -> Diagnosis:
    options = {"layers": LAYERS, "layer_options": {"texts": 5}, **options}
    return diagnose(model, CorpusInputs(dataset=str(shop)), baseline=baseline, options=DiagnosisOptions(**options))


def result_of(diagnosis: Diagnosis, layer: str) -> Result:
    result = next(finding.result for finding in diagnosis.findings if finding.layer == layer)
    assert result is not None
    return result


def references(model: Callable[[str], Path]) -> list[str]:
    potion = model("potion-base-4m-int8")
    return ["bm25", str(potion), f"hybrid:{potion}+bm25", f"hybrid:{potion}+bm25:0.3"]


@pytest.mark.parametrize("which", range(4))
def test_a_run_file_has_the_attributes_of_the_model_that_wrote_it(
    which: int, shop: Path, tmp_path: Path, model: Callable[[str], Path]
) -> None:
    reference, file = references(model)[which], tmp_path / "results.trec"
    evaluate(reference, task="retrieval", dataset=str(shop), run_out=file, resamples=50)
    by_model, by_file = examine(reference, shop), examine(f"run:{file}", shop)
    first, second = (result_of(each, "attributes") for each in (by_model, by_file))
    assert first.metrics == second.metrics
    assert first.intervals == second.intervals
    ranked = [result_of(each, "retrieval").metrics for each in (by_model, by_file)]
    for name in ("ndcg@10", "mrr@10", "zero_recall", "zero_recall@100", "grade_reversal", "judged@10"):
        assert ranked[0][name] == ranked[1][name]


def test_a_hybrid_search_is_diagnosed_as_it_is_evaluated(shop: Path, model: Callable[[str], Path]) -> None:
    reference = references(model)[2]
    evaluated = evaluate(reference, task="retrieval", dataset=str(shop), resamples=50)
    assert result_of(examine(reference, shop), "retrieval").metrics["ndcg@10"] == evaluated.metrics["ndcg@10"]


def test_layers_that_need_vectors_say_why_they_are_skipped(shop: Path, model: Callable[[str], Path]) -> None:
    for reference, why in (("bm25", "bm25 has no vectors"), (references(model)[2], "hybrid search has no vectors")):
        findings = {finding.layer: finding for finding in examine(reference, shop, layers=()).findings}
        assert [layer for layer, finding in findings.items() if finding.result] == list(LAYERS)
        assert why in str(findings["geometry"].reason)
    with pytest.raises(RequestError, match="the layer geometry describes vectors: bm25 has no vectors"):
        examine("bm25", shop, layers=("geometry",))


def test_what_has_no_effect_without_vectors_is_refused(shop: Path) -> None:
    inputs = CorpusInputs(dataset=str(shop))
    with pytest.raises(RequestError, match="`query_prompt` does not apply to bm25"):
        diagnose("bm25", inputs, options=DiagnosisOptions(query_prompt="q: "))
    with pytest.raises(RequestError, match="`pooling` is not supported for bm25, which has no weights"):
        diagnose("bm25", inputs, model_options=ModelOptions(pooling="cls"))
    with pytest.raises(RequestError, match="`mteb` needs models that give vectors"):
        diagnose("bm25", inputs, options=DiagnosisOptions(mteb=("STS12",)))


def test_edited_queries_are_searched_again_and_not_in_a_file(shop: Path, tmp_path: Path) -> None:
    assert result_of(examine("bm25", shop), "retrieval").metrics["robustness/case"] == 1.0
    file = write_jsonl(tmp_path / "run.jsonl", [{"query_id": "q000", "doc_id": "p0001", "score": 1.0}])
    assert "robustness/case" not in result_of(examine(f"run:{file}", shop), "retrieval").metrics


def test_a_baseline_run_has_an_overlap(shop: Path, tmp_path: Path) -> None:
    file = tmp_path / "bm25.trec"
    evaluate("bm25", task="retrieval", dataset=str(shop), run_out=file, resamples=50)
    diagnosis = examine("bm25", shop, baseline=f"run:{file}", resamples=100)
    assert result_of(diagnosis, "retrieval").metrics["jaccard@10"] == 1.0
    verdict = diagnosis.findings[0].verdict
    assert verdict is not None
    assert verdict.label == "PASS"


# --- files of results -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rows",
    [
        [{"query_id": "q", "doc_id": "a", "score": 2}, {"query_id": "q", "doc_id": "b", "score": 1.5}],
        [{"qid": "q", "results": [{"id": "a", "score": 2}, {"id": "b", "score": 1.5}]}],
    ],
)
def test_rows_are_results(tmp_path: Path, rows: Any) -> None:
    assert trec.read_run(write_jsonl(tmp_path / "r.jsonl", rows)) == {"q": {"a": 2.0, "b": 1.5}}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"query_id": "q", "score": 1}, "expected one of document_id"),
        ({"doc_id": "q", "score": 1}, "expected one of query_id"),
        ({"query_id": "q", "doc_id": "d"}, "'score': expected a number"),
        ({"query_id": "q", "results": [1]}, "'results': expected a list of objects"),
    ],
)
def test_a_row_that_is_no_result_is_named(tmp_path: Path, row: dict[str, object], words: str) -> None:
    with pytest.raises(DataError, match=f"line 1.*{words}"):
        trec.read_run(write_jsonl(tmp_path / "r.jsonl", [row]))


def test_a_ranker_gives_what_its_file_says(tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "r.jsonl", [{"query_id": "q", "results": [{"id": "b", "score": 1}]}])
    hits = read_run(f"run:{file}").rank(Listed(["q"], ["?"]), Listed(["a", "b"], ["", ""]), 10)
    assert np.array_equal(hits.documents, [1])


# --- groups -----------------------------------------------------------------------------------------------------------


def test_figures_by_group_are_those_of_the_whole_for_one_group(shop: Path) -> None:
    diagnosis = examine("bm25", shop, group_by=("kind", "language"))
    result = result_of(diagnosis, "retrieval")
    kinds, languages = result.slices
    assert sum(each.examples for each in kinds.slices) == FEW
    values = dict(zip(result.outcomes.ids, result.outcomes.columns["ndcg@10"], strict=True))
    japanese = [
        values[id]
        for id, text in zip(result.outcomes.ids, result.outcomes.texts["query"], strict=True)
        if not text.isascii()
    ]
    slices = {each.group: each for each in languages.slices}
    assert slices["Japanese"].metrics["ndcg@10"] == pytest.approx(np.mean(japanese), abs=1e-12)
    assert "zero_recall" in slices["Japanese"].metrics
    html = page(diagnosis)
    assert "<script>" not in html
    assert "ndcg@10 by kind" in html


def test_beside_a_baseline_the_group_that_is_hurt_most_is_named(shop: Path) -> None:
    diagnosis = examine("bm25:k1=0.1,b=0", shop, baseline="bm25", group_by=("language",), resamples=100)
    verdict = diagnosis.findings[0].verdict
    assert verdict is not None
    assert verdict.slices[0].hurts_most is not None
    assert "most: ndcg@10" in page(diagnosis)
    document = diagnosis.to_dict()["layers"]["retrieval"]
    assert document["slice_changes"][0]["hurts_most"] == verdict.slices[0].hurts_most.group


def test_the_command_takes_a_file_or_a_model(shop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "bm25.trec", tmp_path / "d.json"
    evaluate("bm25", task="retrieval", dataset=str(shop), run_out=file, resamples=50, data_options=DataOptions())
    line = ["diagnose", "--dataset", str(shop), "--no-store", "--layers", "attributes"]
    assert run([*line, "--run", str(file), "-o", str(out)]) == 0
    assert json.loads(out.read_text())["model"]["backend"] == "run"
    for wrong in ([], ["bm25", "--run", str(file)]):
        assert run([*line, *wrong]) == 2
        assert "name one model" in capsys.readouterr().err
    assert run([*line, "bm25", "--group-by", "nope"]) == 2
    assert "--group-by: there is no column 'nope'" in capsys.readouterr().err
