"""Reranking, pair classification and pair correlation: what they do with rows, labels and scores."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import calipers
from calipers import DataOptions
from calipers.core import SILENT, DataError, InvalidOutput, ModelInfo, Outcomes, RequestError
from calipers.data import load_rows
from calipers.tasks import find, pair_classification, reranking
from tests.support.samples import Run, write_jsonl

Named = Callable[[str], Path]


class Lexical:
    """A real scorer that needs no weights: the share of the query's words that a document holds."""

    def __init__(self, outputs: Callable[[float], Any] = lambda s: s, **settings: Any) -> None:
        self.info = ModelInfo("test", "lexical", None, "cpu", "sha256:0", settings)
        self._outputs = outputs

    def score(self, pairs: Sequence[tuple[str, str]], *, progress: Any = SILENT) -> np.ndarray:
        shares = [len({*a.split()} & {*b.split()}) / len({*a.split()}) for a, b in pairs]
        return np.array([self._outputs(share) for share in shares], dtype=np.float32)


class InOrder(Lexical):
    """An identity reranker: documents keep the order in which they come."""

    def score(self, pairs: Sequence[tuple[str, str]], *, progress: Any = SILENT) -> np.ndarray:
        return -np.arange(len(pairs), dtype=np.float32)


def rank(tmp_path: Path, rows: list[dict[str, Any]], model: Any = None, **options: Any) -> Outcomes:
    task = find("text-ranking")
    file = write_jsonl(tmp_path / "rows.jsonl", rows)
    dataset = load_rows(str(file), task.columns, mapping={}, options=DataOptions(shuffle=False))
    task.check(dataset)
    return task.run(model or Lexical(), dataset, reranking.RerankingOptions(**options), SILENT)


GRADED = {
    "query": "red winter coat",
    "documents": [
        {"id": "x", "text": "blue summer hat", "relevance": 0},
        {"id": "y", "text": "red coat", "relevance": 1},
        {"id": "z", "text": "red winter coat", "relevance": 3},
    ],
}


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
    with pytest.raises(DataError, match=r"the query '0'.*no document that it is relevant"):
        rank(tmp_path, [{"query": "q", "documents": ["a", "b"]}])
    with pytest.raises(DataError, match="either documents or negatives"):
        rank(tmp_path, [{"query": "q", "positive": "p", "negative": "n", "documents": ["a"]}])


def test_at_k_names_the_metrics(tmp_path: Path) -> None:
    assert "ndcg@3" in rank(tmp_path, [GRADED], at_k=3).columns
    assert reranking.metrics_for(reranking.RerankingOptions(at_k=3))[0].name == "ndcg@3"


def test_a_bad_document_names_its_place(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"line 1, column 'documents\[1\]': expected a text or an object"):
        rank(tmp_path, [{"query": "q", "documents": ["a", 7]}])


def classify(tmp_path: Path, labels: Sequence[Any], model: Any, **options: Any) -> Outcomes:
    task = find("pair-classification")
    texts = ["a b c d", "a b c x", "a b x y", "a x y z", "w x y z"]
    rows = [{"sentence1": "a b c d", "sentence2": t, "label": label} for t, label in zip(texts, labels, strict=False)]
    file = write_jsonl(tmp_path / "rows.jsonl", rows)
    dataset = load_rows(str(file), task.columns, mapping={}, options=DataOptions())
    task.check(dataset)
    return task.run(model, dataset, pair_classification.PairClassificationOptions(**options), SILENT)


def values(outcomes: Outcomes) -> dict[str, float]:
    metrics = [m for m in pair_classification.METRICS if all(c in outcomes.columns for c in m.needs)]
    return {m.name: m.value(outcomes.columns) for m in metrics}


def test_one_output_is_judged_at_its_best_cut(tmp_path: Path) -> None:
    """Scores 1, 3/4, 1/2, 1/4, 0 for labels 1, 1, 0, 1, 0: the best cuts leave one mistake."""
    found = classify(tmp_path, [1, 1, 0, 1, 0], Lexical())
    assert values(found)["accuracy"] == pytest.approx(4 / 5)
    assert values(found)["f1"] == pytest.approx(6 / 7)
    assert values(found)["average_precision"] == pytest.approx((1 + 1 + 3 / 4) / 3)
    assert found.counts["f1_threshold"] == pytest.approx((1 / 4 + 0) / 2)


def one_hot(order: Sequence[int]) -> Callable[[float], list[float]]:
    """Three classes by the share of words: many, some, none; put out in this order."""
    return lambda share: [float(order[i] == (0 if share > 0.6 else 1 if share > 0.1 else 2)) for i in range(3)]


def test_several_outputs_are_judged_by_the_highest(tmp_path: Path) -> None:
    found = classify(tmp_path, [0, 0, 1, 1, 2], Lexical(one_hot([0, 1, 2])))
    assert values(found)["accuracy"] == 1.0
    assert "average_precision" not in values(found)
    assert next(iter(values(found))) == "f1_macro"


def test_a_permutation_that_fits_far_better_is_told(tmp_path: Path) -> None:
    found = classify(tmp_path, [0, 0, 1, 1, 2], Lexical(one_hot([2, 0, 1])))
    assert values(found)["accuracy"] < 0.5
    (note,) = found.notes
    mapping = note.split("--label-mapping ")[1].split()[0]
    assert (
        values(classify(tmp_path, [0, 0, 1, 1, 2], Lexical(one_hot([2, 0, 1])), label_mapping=mapping))["accuracy"] == 1
    )


def test_names_of_labels_come_from_the_model_or_the_mapping(tmp_path: Path) -> None:
    labels = ["Same", "same", "near", "near", "other"]
    model = Lexical(one_hot([0, 1, 2]), label_names=["same", "near", "other"])
    assert values(classify(tmp_path, labels, model))["accuracy"] == 1.0
    with pytest.raises(DataError, match=r"'Same'.*not a class of the model \(numbers only\).*--label-mapping"):
        classify(tmp_path, labels, Lexical(one_hot([0, 1, 2])))
    with pytest.raises(DataError, match="outside the model's classes 0 to 1"):
        classify(tmp_path, [0, 1, 2, 1, 0], Lexical())
    with pytest.raises(RequestError, match="LABEL=NUMBER"):
        pair_classification.PairClassificationOptions("a=b")


def test_scores_that_point_the_other_way_are_told(tmp_path: Path) -> None:
    assert "other way" in classify(tmp_path, [0, 0, 0, 1, 1], Lexical()).notes[0]


def test_pair_correlation_by_hand(tmp_path: Path) -> None:
    rows = [
        {"sentence1": "a b", "sentence2": s, "score": g} for s, g in (("a b", 5), ("a x", 1), ("x y", 2), ("b a", 4))
    ]
    file = write_jsonl(tmp_path / "rows.jsonl", rows)
    result = calipers.evaluate(Lexical(), task="pair-correlation", dataset=str(file), resamples=50)
    # Ranks of the scores 1, 1/2, 0, 1: 3.5, 2, 1, 3.5; of gold 4, 1, 2, 3.
    assert result.metrics["spearman"] == pytest.approx(3.5 / np.sqrt(4.5 * 5))


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


def test_a_run_file_is_known_by_its_content(tmp_path: Path) -> None:
    """Same name, another order: another fingerprint and another figure."""
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    write_jsonl(folder / "corpus.jsonl", [{"_id": d, "title": "", "text": f"text {d}"} for d in ("a", "b")])
    write_jsonl(folder / "queries.jsonl", [{"_id": q, "text": f"query {q}"} for q in ("1", "2")])
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n1\ta\t1\n2\tb\t1\n")
    found = []
    for order in ("ab", "ba"):
        lines = [f"{q} Q0 {d} {i + 1} {2 - i} x\n" for q in "12" for i, d in enumerate(order if q == "1" else "ba")]
        (tmp_path / "run.txt").write_text("".join(lines))
        asked = {"task": "retrieval", "dataset": str(folder), "resamples": 20}
        found.append(calipers.evaluate(f"run:{tmp_path / 'run.txt'}", **asked))
    assert found[0].model.fingerprint != found[1].model.fingerprint
    assert [result.metrics["mrr@10"] for result in found] == pytest.approx([1.0, 0.75])
