"""Reranking by hand, beside sentence-transformers on the same scores, and with the judgements of all documents."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sentence_transformers.cross_encoder import evaluation as theirs

import calipers
from calipers import DataOptions
from calipers.core import (
    SILENT,
    DataError,
    Dataset,
    DataSource,
    Document,
    InvalidOutput,
    Outcomes,
    RequestError,
)
from calipers.data import load_rows
from calipers.tasks import find, reranking
from calipers.tasks.reranking import QueryRow, RerankingOptions, make_lists
from tests.support.evaluators import COMPAT, QUERIES, samples, score_tables
from tests.support.samples import Run, write_jsonl
from tests.support.scorers import GRADED, Card, FixedCrossEncoder, FixedScorer, InOrder, Lexical

Named = Callable[[str], Path]


# --- by hand ----------------------------------------------------------------------------------------------------


def rank(tmp_path: Path, rows: list[dict[str, Any]], model: Any = None, **options: Any) -> Outcomes:
    task = find("text-ranking")
    file = write_jsonl(tmp_path / "rows.jsonl", rows)
    dataset = load_rows(str(file), task.columns, mapping={}, options=DataOptions(shuffle=False))
    task.check(dataset)
    return task.run(model or Lexical(), dataset, reranking.RerankingOptions(**options), SILENT)


def test_graded_documents_by_hand(tmp_path: Path) -> None:
    """As they came the grades are 0, 1, 3; by shared words 3, 1, 0."""
    found = rank(tmp_path, [GRADED])
    ideal = 3 + 1 / np.log2(3)
    assert found.columns["ndcg@10"] == pytest.approx([1.0])
    assert found.columns["base_ndcg@10"] == pytest.approx([(1 / np.log2(3) + 3 / 2) / ideal])
    assert found.columns["base_mrr@10"] == pytest.approx([1 / 2])
    assert found.columns["base_map"] == pytest.approx([(1 / 2 + 2 / 3) / 2])


def test_relevant_from_makes_grades_alike(tmp_path: Path) -> None:
    found = rank(tmp_path, [GRADED], relevant_from=2)
    assert found.columns["base_ndcg@10"] == pytest.approx([1 / 2])
    assert found.columns["base_map"] == pytest.approx([1 / 3])


def test_positives_and_negatives_need_no_documents(tmp_path: Path) -> None:
    row = {"query": "red winter coat", "positive": "red coat", "negative": ["blue hat", "winter coat red"]}
    found = rank(tmp_path, [row])
    assert found.columns["mrr@10"] == pytest.approx([1 / 2])
    assert "base_map" not in found.columns


@pytest.mark.parametrize("always", [True, False])
def test_an_identity_reranker_changes_nothing(tmp_path: Path, always: bool) -> None:
    """Two positives, one of them retrieved: the ideal counts both, before and after."""
    row = {"query": "q", "positive": ["p1", "p2"], "documents": ["d1", "p1", "d2"]}
    found = rank(tmp_path, [row], InOrder(), always_rerank_positives=always)
    for name in ("ndcg@10", "mrr@10", "map"):
        assert found.columns[name] == pytest.approx(found.columns[f"base_{name}"])
    assert found.columns["ndcg@10"][0] < 1


def test_the_known_fault_is_there_in_compat_mode(tmp_path: Path) -> None:
    row = {"query": "q", "positive": ["p1", "p2"], "documents": ["d1", "p1", "d2"]}
    options = {"at_k": 3, "always_rerank_positives": False, "compat": "sentence-transformers"}
    found = rank(tmp_path, [row], InOrder(), **options)
    # The same order before and after; its ideal has two positives before, and one after.
    assert found.columns["base_ndcg@3"] == pytest.approx([(1 / np.log2(3)) / (1 + 1 / np.log2(3))])
    assert found.columns["ndcg@3"] == pytest.approx([1 / np.log2(3)])


def test_a_positive_that_was_not_found_is_ranked_too(tmp_path: Path) -> None:
    row = {"query": "red winter coat", "positive": ["red winter coat"], "documents": ["blue hat", "red hat"]}
    assert rank(tmp_path, [row]).columns["map"] == pytest.approx([1.0])
    assert rank(tmp_path, [row]).columns["base_map"] == pytest.approx([1 / 3])
    assert rank(tmp_path, [row], always_rerank_positives=False).columns["map"] == pytest.approx([0.0])


def test_a_query_without_relevant_documents_is_left_out_and_counted(tmp_path: Path) -> None:
    nothing = {"query": "red hat", "documents": [{"text": "red hat", "relevance": 0}, {"text": "x", "relevance": 0}]}
    found = rank(tmp_path, [GRADED, nothing])
    assert np.isnan(found.columns["map"][1])
    assert found.counts["without_relevant"] == 1
    assert find("reranking").metrics[0].value(found.columns) == pytest.approx(1.0)


def test_all_scores_equal_is_invalid(tmp_path: Path) -> None:
    with pytest.raises(InvalidOutput, match=r"INVALID.*same score"):
        rank(tmp_path, [GRADED], Lexical(lambda s: 0.5))
    with pytest.raises(InvalidOutput, match=r"INVALID.*NaN.*rows 0"):
        rank(tmp_path, [GRADED], Lexical(lambda s: np.nan if s == 1 else s))


def test_a_row_that_says_nothing_of_relevance_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"the query '0'.*names no document as relevant"):
        rank(tmp_path, [{"query": "q", "documents": ["a", "b"]}])
    with pytest.raises(DataError, match="either documents or negatives"):
        rank(tmp_path, [{"query": "q", "positive": "p", "negative": "n", "documents": ["a"]}])


def test_at_k_names_the_metrics(tmp_path: Path) -> None:
    assert "ndcg@3" in rank(tmp_path, [GRADED], at_k=3).columns
    assert reranking.metrics_for(reranking.RerankingOptions(at_k=3))[0].name == "ndcg@3"


def test_a_bad_document_names_its_place(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"line 1, column 'documents\[1\]': expected a text or an object"):
        rank(tmp_path, [{"query": "q", "documents": ["a", 7]}])


# --- beside sentence-transformers --------------------------------------------------------------------------------


def as_dataset(rows: Sequence[dict[str, Any]]) -> Dataset:
    """Samples of the evaluator as rows of the task."""

    def texts(value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    columns = {
        "query_column": [row["query"] for row in rows],
        "documents_column": [[*map(Document, row["documents"])] if "documents" in row else None for row in rows],
        "positive_column": [texts(row["positive"]) for row in rows],
        "negative_column": [row.get("negative") for row in rows],
    }
    return Dataset(tuple(map(str, range(len(rows)))), columns, DataSource("rows"), "sha256:0")


# --- parity ----------------------------------------------------------------------------------------------------


@given(samples(), score_tables(QUERIES), st.booleans(), st.integers(1, 12))
def test_the_task_is_theirs_in_compat_mode(rows: Any, scores: Any, always: bool, k: int) -> None:
    assume(any(row["positive"] or row.get("documents") or row.get("negative") for row in rows))
    dataset, options = as_dataset(rows), RerankingOptions(k, always, compat=COMPAT)
    reranking.check(dataset)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            expected = theirs.CrossEncoderRerankingEvaluator(rows, k, always)(FixedCrossEncoder(scores))
    except Exception:
        with pytest.raises((DataError, InvalidOutput)):
            reranking.run(FixedScorer(lambda a, b: scores[a, b]), dataset, options, SILENT)
        return
    try:
        found = reranking.run(FixedScorer(lambda a, b: scores[a, b]), dataset, options, SILENT)
    except InvalidOutput:
        return  # all scores alike, which a task refuses and a trainer's evaluator does not
    metrics = {m.name: m.value(found.columns) for m in reranking.metrics_for(options) if m.name in found.columns}
    assert metrics == pytest.approx(expected, abs=1e-9)


def test_in_compat_mode_grades_make_positives() -> None:
    """Grades 0, 1, 3 from 1 on: two positives, which come first in the order of the documents."""
    documents = [Document(d["text"], relevance=d["relevance"]) for d in GRADED["documents"]]
    found = make_lists(QueryRow((), documents), RerankingOptions(compat=COMPAT)).ranked
    assert found.texts == ["red coat", "red winter coat", "blue summer hat"]
    assert found.relevance == [1.0, 1.0, 0.0]
    cut = make_lists(QueryRow((), documents), RerankingOptions(compat=COMPAT, relevant_from=2.0)).ranked
    assert cut.relevance == [1.0, 0.0, 0.0]


# --- what counts once ------------------------------------------------------------------------------------------


def test_a_document_counts_once_by_its_id_or_else_its_text() -> None:
    named = [Document("same", "x", 0), Document("same", "y", 1), Document("other", "x", 2)]
    found = make_lists(QueryRow((), named), RerankingOptions()).ranked
    assert (found.texts, found.relevance) == (["same", "same"], [2.0, 1.0])
    nameless = [Document("a"), Document("p"), Document("a"), Document("p")]
    found = make_lists(QueryRow(["p", "p", "q", "q"], nameless), RerankingOptions()).ranked
    assert (found.texts, found.relevance) == (["a", "p", "q"], [0.0, 1.0, 1.0])


def test_rows_with_documents_and_rows_with_negatives_share_no_base() -> None:
    """The base is the mean over rows that came with an order; positives and negatives came with none."""
    rows = [
        {"query": "q", "positive": ["b"], "documents": ["a", "b"]},
        {"query": "q", "positive": ["b"], "negative": ["a"]},
    ]
    found = reranking.run(FixedScorer(lambda q, d: ord(d)), as_dataset(rows), RerankingOptions(), SILENT)
    assert found.columns["map"] == pytest.approx([1.0, 1.0])
    assert found.columns["base_map"] == pytest.approx([0.5, np.nan], nan_ok=True)
    assert reranking.metrics_for(RerankingOptions())[5].value(found.columns) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("row", "value"),
    [
        ({"positive": ["b", "c"], "negative": []}, 1.0),
        ({"positive": ["b"], "documents": []}, 1.0),
        ({"positive": ["c"], "documents": ["a", "b"]}, 1.0),
    ],
)
def test_awkward_rows_have_stated_answers(row: dict[str, Any], value: float) -> None:
    rows = [{"query": "q", **row}, {"query": "q", "positive": [], "documents": ["a"]}]
    dataset = as_dataset(rows)
    reranking.check(dataset)
    found = reranking.run(FixedScorer(lambda q, d: ord(d)), dataset, RerankingOptions(), SILENT)
    assert found.columns["map"] == pytest.approx([value, np.nan], nan_ok=True)
    assert found.counts["without_relevant"] == 1


def test_rows_of_which_none_can_be_measured_are_refused_before_scoring() -> None:
    nothing = as_dataset([{"query": "q", "positive": [], "documents": ["a", "b"]}])
    with pytest.raises(DataError, match="rows has no query with a relevant document"):
        reranking.run(None, nothing, RerankingOptions(), SILENT)  # type: ignore[arg-type]
    alone = as_dataset([{"query": "q", "positive": ["a"], "documents": ["a"]}])
    with pytest.raises(DataError, match="query '0' of rows has one document, a positive"):
        reranking.run(None, alone, RerankingOptions(compat=COMPAT), SILENT)  # type: ignore[arg-type]


# --- judgements of all documents -------------------------------------------------------------------------------


def judge(tmp_path: Path, qrels: str, rows: Sequence[dict[str, Any]], model: Any = None, **options: Any) -> Any:
    (tmp_path / "qrels.txt").write_text(qrels)
    asked = {"qrels": str(tmp_path / "qrels.txt"), **options}
    file = write_jsonl(tmp_path / "rows.jsonl", rows)
    return calipers.evaluate(model or InOrder(), task="reranking", task_options=asked, dataset=str(file), resamples=50)


ROW = {"id": "7", "query": "q", "documents": [{"id": d, "text": f"text {d}", "relevance": 0} for d in "xyz"]}


@pytest.mark.parametrize("qrels", ["7 0 y 1\n7 0 w 3\n7 0 x -1\n", "query-id\tcorpus-id\tscore\n7\ty\t1\n7\tw\t3\n"])
def test_judgements_of_documents_that_were_not_found_count_in_the_ideal(tmp_path: Path, qrels: str) -> None:
    """y, grade 1, is second of three; w, grade 3, is not there. The relevance in the rows is not read."""
    result = judge(tmp_path, qrels, [ROW])
    wanted = (1 / np.log2(3)) / (3 + 1 / np.log2(3))
    assert result.metrics["ndcg@10"] == result.metrics["base_ndcg@10"] == pytest.approx(wanted)
    assert result.metrics["map"] == pytest.approx(1 / 2 / 2)
    assert result.outcomes.counts["positives_not_found"] == 1
    assert judge(tmp_path, qrels, [ROW], relevant_from=2.0).metrics["ndcg@10"] == 0


def test_the_fingerprint_covers_the_judgements(tmp_path: Path) -> None:
    prints = {judge(tmp_path, qrels, [ROW]).fingerprint for qrels in ("7 0 y 1\n", "7 0 y 2\n", "7 0 y 2\n")}
    assert len(prints) == 2


def test_queries_without_judgements_are_told_and_left_out(tmp_path: Path) -> None:
    result = judge(tmp_path, "7 0 y 1\n8 0 y 1\n", [ROW, {**ROW, "id": "9"}])
    assert result.metrics["base_mrr@10"] == pytest.approx(0.5)
    assert "1 queries have no judgement in qrels.txt and no figure: 9" in result.warnings
    assert (result.outcomes.counts["queries_unjudged"], result.outcomes.counts["judged_queries_missing"]) == (1, 1)


@pytest.mark.parametrize(
    ("qrels", "row", "message"),
    [
        (
            "8 0 y 1\n",
            ROW,
            r"judges no query of .*it has 8, and the rows 7 \(name the column of ids with `columns` id_column",
        ),
        ("", ROW, "judges no query"),
        ("7 0 y 1\n", {**ROW, "documents": ["a", "b"]}, "query '7' of .* has documents without an id"),
        ("7 0 y 1\n", {**ROW, "positive": ["a"]}, "names relevant texts, and `qrels` names relevant documents"),
        ("7 0 q 0\n", ROW, "has no query with a relevant document"),
        ("7 0 y one\n", ROW, "qrels.txt, line 1, column 'grade': expected a number|judges no query"),
    ],
)
def test_judgements_that_do_not_fit_are_refused(tmp_path: Path, qrels: str, row: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        judge(tmp_path, qrels, [row])


def test_compat_knows_no_judgements(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="`qrels` and `compat` are mutually exclusive"):
        judge(tmp_path, "7 0 y 1\n", [ROW], compat=COMPAT)
    with pytest.raises(DataError, match="cannot be read: No such file"):
        calipers.evaluate(InOrder(), task="reranking", task_options={"qrels": "gone.txt"}, dataset=_rows(tmp_path))


def _rows(tmp_path: Path) -> str:
    return str(write_jsonl(tmp_path / "rows.jsonl", [ROW]))


def test_dl19_in_compat_mode_is_theirs_and_the_reference(data: Named) -> None:
    """Positives are grades from 2 on; many documents share a score."""
    file, model = data("trec-dl/dl19-bm25-top100.jsonl"), Lexical()
    options = {"relevant_from": 2.0, "compat": COMPAT}
    found = calipers.evaluate(model, task="reranking", task_options=options, dataset=str(file), resamples=50).metrics
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    expected = theirs.CrossEncoderRerankingEvaluator(
        [
            {
                "query": row["query"],
                "positive": [d["text"] for d in row["documents"] if d["relevance"] >= 2],
                "documents": [d["text"] for d in row["documents"]],
            }
            for row in rows
        ]
    )(Predicting(model))
    assert found == pytest.approx(expected, abs=1e-9)
    base = {"base_map": 0.45979267, "base_mrr@10": 0.70241787, "base_ndcg@10": 0.50377617}
    assert {name: found[name] for name in base} == pytest.approx(base, abs=1e-8)


class Predicting:
    """A scorer of ours with the face of a CrossEncoder."""

    def __init__(self, model: Lexical) -> None:
        self.model, self.model_card_data = model, Card()

    def predict(self, pairs: Any, **asked: Any) -> np.ndarray:
        return self.model.score([tuple(pair) for pair in pairs])


@pytest.mark.parametrize(("year", "wanted"), [("19", 0.5058), ("20", 0.4796)])
def test_bm25_on_trec_dl_gives_the_figures_of_the_reference(data: Named, year: str, wanted: float) -> None:
    result = calipers.evaluate(
        Lexical(),
        task="reranking",
        task_options={"qrels": str(data(f"trec-dl/qrels.dl{year}.txt"))},
        dataset=str(data(f"trec-dl/dl{year}-bm25-top100.jsonl")),
        resamples=50,
    )
    assert result.metrics["base_ndcg@10"] == pytest.approx(wanted, abs=5e-5)


def test_dl19_base_figures_on_the_command_line(model: Named, data: Named, calipers: Run) -> None:
    """Three queries only: the whole file takes minutes (the slow test has it)."""
    folder, rows = model("ms-marco-MiniLM-L12-v2-dequant"), data("trec-dl/dl19-bm25-top100.jsonl")
    asked = (
        "eval",
        "-m",
        folder,
        "--task",
        "text-ranking",
        "--dataset",
        rows,
        "--samples",
        "3",
        "--relevant-from",
        "2",
    )
    found = calipers(*asked, "--max-length", "64", "--json")
    assert found.returncode == 0, found.stderr
    document = json.loads(found.stdout)
    assert document["scored"]["documents"] == 300
    assert document["metrics"]["map"] > document["metrics"]["base_map"]


DL19 = {
    "map": 0.71174448, "mrr@10": 0.88837209, "ndcg@10": 0.75701179,
    "base_map": 0.45979267, "base_mrr@10": 0.70241787, "base_ndcg@10": 0.50377617,
}  # fmt: skip


def rerank_dl19(model: Path, data: Named) -> dict[str, float]:
    result = calipers.evaluate(
        str(model),
        task="reranking",
        task_options={"relevant_from": 2.0, "compat": "sentence-transformers"},
        dataset=str(data("trec-dl/dl19-bm25-top100.jsonl")),
        resamples=200,
    )
    return dict(result.metrics)


@pytest.mark.slow
def test_dl19_gives_the_figures_of_the_reference(model: Named, data: Named) -> None:
    assert rerank_dl19(model("ms-marco-MiniLM-L12-v2-dequant"), data) == pytest.approx(DL19, abs=1e-4)


@pytest.mark.slow
def test_dl19_with_the_int8_graph_is_near_them(weights: Named, data: Named) -> None:
    found = rerank_dl19(weights("ms-marco-MiniLM-L12-v2-int8"), data)
    assert found == pytest.approx(DL19, abs=0.02)
    assert {name: value for name, value in found.items() if "base" in name} == pytest.approx(
        {name: value for name, value in DL19.items() if "base" in name}, abs=1e-7
    )


@pytest.mark.parametrize("grade", [0, -1])
def test_a_grade_that_unjudged_documents_reach_is_refused(grade: float) -> None:
    with pytest.raises(RequestError, match="`relevant_from` must be above 0"):
        reranking.RerankingOptions(relevant_from=grade)
