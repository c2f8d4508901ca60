"""Retrieval: the metrics against pytrec_eval, two stages by hand, real figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import calipers
from calipers import models
from calipers.core import SILENT, DataError, Dataset, DataSource, InvalidOutput, ModelInfo, RequestError
from calipers.data import trec
from calipers.models import ModelOptions, Source, bm25
from calipers.tasks import retrieval
from calipers.tasks.retrieval import GivenRun, RetrievalOptions, TwoStage
from tests.support.cross_encoders import tiny
from tests.support.retrieving import run
from tests.support.samples import write_jsonl

Named = Callable[[str], Path]
INFO = ModelInfo("test", "test", None, "cpu", "sha256:0")
GROUPS = {"a": "red wine glass", "b": "blue glass", "c": "red bicycle", "d": "green tea", "e": "wine wine wine"}


class Words:
    """An encoder and a cross-encoder that can be checked by hand: counts of words, and how many words are shared."""

    def __init__(self, **settings: Any) -> None:
        self.info = ModelInfo("test", "words", None, "cpu", "sha256:1", settings)
        self.seen: list[str] = []

    def encode(self, texts: Sequence[str], *, prompt: str | None = None, progress: object = SILENT) -> np.ndarray:
        self.seen += [(self.info.settings.get("prompt", "") if prompt is None else prompt) + text for text in texts]
        vocabulary = sorted({word for text in GROUPS.values() for word in text.split()} | {"other"})
        rows = [[word in text.split() for word in vocabulary] for text in texts]
        return np.array(rows, dtype=np.float32) + np.float32(0.01)

    def score(self, pairs: Sequence[tuple[str, str]], *, progress: object = SILENT) -> np.ndarray:
        return np.array([len(set(a.split()) & set(b.split())) / len(b.split()) for a, b in pairs], dtype=np.float32)


def make(queries: dict[str, str], qrels: dict[str, dict[str, float]], corpus: dict[str, str] = GROUPS) -> Dataset:
    source = DataSource("made")
    table = Dataset(tuple(corpus), {"text": list(corpus.values())}, source, "sha256:c")
    columns: dict[str, Any] = {"query": list(queries.values()), "qrels": [qrels[id] for id in queries]}
    return Dataset(tuple(queries), columns, source, "sha256:q", {"corpus": table})


ROWS = make({"1": "red wine", "2": "tea"}, {"1": {"a": 2, "c": 1, "gone": 1}, "2": {"a": 0}})


# --- outcomes and metrics --------------------------------------------------------------------------------------


def test_metrics_by_hand() -> None:
    found = run(Words(), ROWS)
    # Cosines with "red wine", but for the 0.01 that keeps vectors from being zero: 2/√6, 1/√2, 1/2, 0, 0.
    assert found.details["results"]["document"][:5].tolist() == ["a", "e", "c", "b", "d"]
    ideal = 2 + 1 / np.log2(3) + 1 / np.log2(4)  # with the document that the corpus lacks
    assert found.columns["ndcg@10"].tolist() == pytest.approx([(2 + 1 / np.log2(4)) / ideal, 0.0])
    assert found.columns["recall@10"].tolist() == pytest.approx([2 / 3, 0.0])
    assert found.columns["precision@10"].tolist() == pytest.approx([0.2, 0.0])
    assert found.counts["queries_without_relevant"] == 1
    assert found.counts["relevant"] == 3
    np.testing.assert_array_equal(found.details["results"]["grade"][:5], [2, np.nan, 1, np.nan, np.nan])


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("scale", [1e20, 1e-25])
def test_the_length_of_vectors_changes_nothing(scale: float, similarity: str) -> None:
    class Scaled(Words):
        def encode(self, texts: Sequence[str], **options: Any) -> np.ndarray:
            return super().encode(texts, **options) * np.float32(scale)

    dataset = make({"q1": "red wine", "q2": "green"}, {"q1": {"a": 1}, "q2": {"d": 1}})
    plain, scaled = (run(model, dataset, similarity=similarity) for model in (Words(), Scaled()))
    for name, values in plain.columns.items():
        assert scaled.columns[name] == pytest.approx(values), name


def test_queries_without_relevant_documents_can_be_left_out() -> None:
    found = run(Words(), ROWS, empty_queries="nan")
    assert np.isnan(found.columns["ndcg@10"]).tolist() == [False, True]
    metric = next(m for m in retrieval.METRICS if m.name == "recall@10")
    assert metric.value(found.columns) == pytest.approx(2 / 3)


def test_metrics_equal_pytrec_eval() -> None:
    import pytrec_eval

    rng = np.random.default_rng(3)
    corpus = {f"d{i}": f"text {i}" for i in range(300)}
    ids = list(corpus)
    queries = {f"q{i}": f"query {i}" for i in range(40)}
    qrels = {q: {str(d): int(rng.integers(0, 4)) for d in rng.choice(ids, 25, replace=False)} for q in queries}
    given = {q: {str(d): float(rng.random()) for d in rng.choice(ids, 120, replace=False)} for q in queries}
    given.pop("q7")  # forgotten: it scores 0 and counts
    found = run(GivenRun(given, INFO), make(queries, qrels, corpus), top_k=120)
    names = {"ndcg_cut_10": "ndcg@10", "map_cut_100": "map@100", "recall_10": "recall@10", "recall_100": "recall@100"}
    names |= {"P_10": "precision@10", "success_10": "hit@10"}
    evaluator = pytrec_eval.RelevanceEvaluator(
        qrels, {"ndcg_cut.10", "map_cut.100", "recall.10,100", "P.10", "success.10"}
    )
    theirs = evaluator.evaluate(given)
    for their, ours in names.items():
        wanted = [theirs[q][their] if q in theirs else 0.0 for q in queries]
        np.testing.assert_allclose(found.columns[ours], wanted, atol=1e-6, err_msg=ours)
    assert found.counts["queries_without_results"] == 1


def test_metrics_that_look_further_than_top_k_are_left_out() -> None:
    found = run(Words(), ROWS, top_k=50)
    assert "recall@10" in found.columns
    assert "recall@100" not in found.columns


def test_all_ties_are_not_perfect() -> None:
    corpus = {f"d{i}": f"text {i}" for i in range(100)}
    rows = make({"q": "x"}, {"q": {"d0": 1}}, corpus)
    found = run(GivenRun({"q": dict.fromkeys(corpus, 1.0)}, INFO), rows)
    assert found.columns["hit@10"].tolist() == pytest.approx([0.1])
    assert found.counts["results_tied"] == 100


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", ["encoder", "run", "bm25"])
def test_ties_at_the_cut_do_not_depend_on_the_order_of_the_corpus(kind: str, reverse: bool) -> None:
    """300 equal documents, one relevant: a place among the first 100 has a chance of 1/3, whatever `top_k` is."""
    ids = [f"d{i}" for i in range(300)]
    corpus = dict.fromkeys(ids[::-1] if reverse else ids, "red wine")
    rows = make({"q": "red wine", "r": "wine"}, {"q": {"d7": 1}, "r": {"d7": 2, "d299": 1, "d9": 0}}, corpus)
    model: Any = {
        "encoder": Same(),
        "bm25": bm25.load(Source("bm25", "bm25", None), ModelOptions()),
        "run": GivenRun({query: dict.fromkeys(ids, 1.0) for query in "qr"}, INFO),
    }[kind]
    cut, all_of_it = run(model, rows), run(model, rows, top_k=300)
    assert cut.columns["recall@100"].tolist() == pytest.approx([1 / 3, 1 / 3])
    for name, values in all_of_it.columns.items():
        np.testing.assert_allclose(cut.columns[name], values, rtol=1e-12, err_msg=name)
    assert len(cut.details["results"]["rank"]) == cut.counts["results"] == 200
    assert cut.counts["queries_tied_at_cut"] == 2
    assert any("2 queries have further documents that tie with the last of their 100 results" in n for n in cut.notes)


class Same(Words):
    """All red wines are equal, and nothing else is said of them."""

    def encode(self, texts: Sequence[str], **asked: Any) -> np.ndarray:
        vectors = super().encode(texts, **asked)
        vectors[0] += np.float32(0.5) * (len(texts) == 2)  # queries differ, or the model is dead
        return vectors


def test_a_second_stage_leaves_a_tie_at_the_cut_as_it_was() -> None:
    ids = [f"d{i}" for i in range(50)]
    rows = make({"q": "x"}, {"q": {"d40": 1}}, {id: f"text {id}" for id in ids})
    first = GivenRun({"q": dict.fromkeys(ids, 1.0)}, INFO)

    class Tenth(Words):
        def score(self, pairs: Sequence[tuple[str, str]], *, progress: object = SILENT) -> np.ndarray:
            return np.arange(len(pairs), dtype=np.float32)

    found = run(TwoStage(first, Tenth()), rows, top_k=20, rerank_k=5)
    assert found.columns["base_recall@10"].tolist() == pytest.approx([10 / 50])
    # d40 is not among the first 5: the 5 places that are left among the first 10 go to 45 documents.
    assert found.columns["recall@10"].tolist() == pytest.approx([5 / 45])
    everything = run(TwoStage(first, Tenth()), rows, top_k=10)
    assert everything.columns["recall@10"].tolist() == [0.0]
    for outcomes, k in ((found, 5), (everything, 10)):
        words = f"1 queries have further documents that tie with the last of the {k} that are reranked"
        assert any(words in note for note in outcomes.notes)
    whole = run(TwoStage(first, Tenth()), rows, top_k=50, rerank_k=50)
    assert not any("that are reranked" in note for note in whole.notes)


def test_ties_as_trec_eval_equal_pytrec_eval() -> None:
    import pytrec_eval

    rng = np.random.default_rng(5)
    corpus = {f"d{i}": f"text {i}" for i in range(200)}
    queries = {f"q{i}": f"query {i}" for i in range(20)}
    qrels = {q: {str(d): int(rng.integers(0, 3)) for d in rng.choice(list(corpus), 60, replace=False)} for q in queries}
    given = {q: {d: float(rng.integers(0, 9)) + 1e-9 * float(rng.random()) for d in corpus} for q in queries}
    rows = make(queries, qrels, corpus)
    found = run(GivenRun(given, INFO), rows, ties="trec_eval")
    names = {"ndcg_cut_10": "ndcg@10", "map_cut_100": "map@100", "recall_100": "recall@100", "success_10": "hit@10"}
    theirs = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10", "map_cut.100", "recall.100", "success.10"}).evaluate(
        given
    )
    for their, ours in names.items():
        np.testing.assert_allclose(found.columns[ours], [theirs[q][their] for q in queries], atol=1e-6, err_msg=ours)
    expected = run(GivenRun(given, INFO), rows)
    assert not np.allclose(expected.columns["ndcg@10"], found.columns["ndcg@10"])
    tied = run(GivenRun({q: dict.fromkeys(corpus, 1.0) for q in queries}, INFO), rows)
    assert any("2000 results of the run are tied" in note and "ties=trec_eval" in note for note in tied.notes)


# --- a document with the id of its query -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "asked", "mrr"),
    [
        ("made", None, 0.5),
        ("made", True, 1.0),
        ("./data/arguana/", None, 1.0),
        ("mteb/fiqa", None, 1.0),
        ("mteb/arguana", False, 0.5),
        ("mteb/scifact", None, 0.5),
    ],
)
def test_a_document_with_the_id_of_its_query_is_left_out_where_mteb_does(
    path: str, asked: bool | None, mrr: float
) -> None:
    rows = make({"a": "red wine glass", "z": "green tea"}, {"a": {"e": 1}, "z": {"d": 1}})
    given = GivenRun({"a": {"a": 3.0, "e": 2.0, "b": 1.0}, "z": {"d": 1.0}}, INFO)
    found = run(given, replace(rows, source=DataSource(path)), ignore_identical_ids=asked)
    assert found.columns["mrr@10"].tolist() == [mrr, 1.0]
    options = retrieval.settle_options(
        RetrievalOptions(ignore_identical_ids=asked), replace(rows, source=DataSource(path))
    )
    assert options.ignore_identical_ids is (mrr == 1.0)
    assert any("with the id of its query is left out" in note for note in found.notes) is (mrr == 1.0)


def test_leaving_a_document_out_does_not_shorten_the_results_nor_change_a_tie() -> None:
    ids = [f"d{i}" for i in range(30)]
    rows = make({"d3": "x"}, {"d3": {"d29": 1}}, {id: f"text {id}" for id in ids})
    found = run(GivenRun({"d3": dict.fromkeys(ids, 1.0)}, INFO), rows, top_k=10, ignore_identical_ids=True)
    assert found.details["results"]["document"].tolist() == ["d0", "d1", "d2", *(f"d{i}" for i in range(4, 11))]
    assert found.columns["recall@10"].tolist() == pytest.approx([10 / 29])
    encoded = run(
        Words(), make({"a": "red wine", "q": "tea"}, {"a": {"e": 1}, "q": {"d": 1}}), ignore_identical_ids=True
    )
    assert encoded.details["results"]["document"][:4].tolist() == ["e", "c", "b", "d"]


# --- prompts and refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "asked", "query", "passage"),
    [
        ({}, {}, "", ""),
        ({}, {"query_prompt": "Q "}, "Q ", ""),
        ({"prompt": "text: "}, {}, "text: ", "text: "),
        ({"prompt": "text: "}, {"query_prompt": "Q ", "passage_prompt": ""}, "Q ", ""),
        ({"prompt": "text: ", "prompts": {"query": "query: "}}, {}, "query: ", "text: "),
        ({"prompt": "text: ", "prompts": {"query": "", "document": ""}}, {}, "", ""),
        ({"prompts": {"query": "query: ", "corpus": "c: ", "passage": "passage: "}}, {}, "query: ", "passage: "),
        ({"prompts": {"query": "query: ", "passage": "passage: "}}, {"passage_prompt": "P "}, "query: ", "P "),
    ],
)
def test_prompts_are_those_asked_for_else_the_models_named_ones_else_its_default(
    settings: dict[str, Any], asked: dict[str, str], query: str, passage: str
) -> None:
    model = Words(**settings)
    run(model, ROWS, **asked)
    assert (model.seen[0], model.seen[-1]) == (f"{query}red wine", f"{passage}wine wine wine")


@pytest.mark.parametrize("value", [0.0, np.nan], ids=["zero", "NaN"])
def test_dead_vectors_are_invalid_with_ids(value: float) -> None:
    class Dead(Words):
        def encode(self, texts: Sequence[str], **asked: Any) -> np.ndarray:
            vectors = super().encode(texts, **asked)
            vectors[["tea" in text for text in texts]] = value
            return vectors

    with pytest.raises(InvalidOutput, match="1 of 2 queries") as caught:
        run(Dead(), ROWS)
    assert caught.value.rows == ("2",)


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(DataError, match="judges no document relevant"):
        retrieval.check(make({"1": "x"}, {"1": {"a": 0}}))
    with pytest.raises(DataError, match="the run names 1 documents that the corpus lacks: zz"):
        run(GivenRun({"1": {"zz": 1.0}}, INFO), ROWS)
    lexical = bm25.load(Source("bm25", "bm25", None), ModelOptions())
    for model in (lexical, GivenRun({}, replace(INFO, model_id="bm25.trec"))):
        with pytest.raises(RequestError, match="`query_prompt` does not apply to bm25"):
            run(model, ROWS, query_prompt="query: ")
    assert [RetrievalOptions(top_k=20, rerank_k=k).reranked for k in (None, 100, 7)] == [20, 20, 7]
    many: tuple[dict[str, Any], ...] = ({"top_k": 20, "rerank_k": 500}, {"ties": "random"})
    for options in ({"top_k": 5}, {"rerank_k": 0}, {"similarity": "l1"}, {"relevant_from": 0}, *many):
        with pytest.raises(RequestError):
            RetrievalOptions(**options)  # type: ignore[arg-type]


def test_a_run_without_a_result_for_any_query_is_refused() -> None:
    for given in ({}, {"other": {"a": 1.0}}):
        with pytest.raises(DataError, match="the run has no result for any of the 2 queries: it has the queries"):
            run(GivenRun(given, INFO), ROWS)


def test_a_search_that_finds_nothing_scores_0_and_says_so() -> None:
    lexical = bm25.load(Source("bm25", "bm25", None), ModelOptions())
    found = run(lexical, make({"1": "zebra"}, {"1": {"a": 1}}))
    assert found.columns["ndcg@10"].tolist() == [0.0]
    assert found.counts["results_tied"] == 0
    assert "no query has a result: every figure is 0" in found.notes


def test_a_blank_document_takes_a_place_in_a_run() -> None:
    rows = make({"1": "red wine"}, {"1": {"blank": 1, "a": 1}})
    stored = [*((id, {"text": text}) for id, text in GROUPS.items()), ("blank", {"text": " "})]
    corpus = replace(rows.tables["corpus"], read_again=lambda: iter(stored))
    rows = replace(rows, tables={"corpus": corpus})
    found = run(GivenRun({"1": {"blank": 3.0, "b": 2.0, "a": 1.0}}, INFO), rows)
    assert found.details["results"]["document"].tolist() == ["blank", "b", "a"]
    assert found.columns["recall@10"].tolist() == [1.0]
    assert found.columns["map@100"].tolist() == pytest.approx([(1 + 2 / 3) / 2])
    with pytest.raises(DataError, match="the corpus lacks: zz"):
        run(GivenRun({"1": {"zz": 3.0}}, INFO), rows)


def test_a_grade_that_no_document_reaches_is_refused() -> None:
    with pytest.raises(DataError, match="`relevant_from` is 5, and the highest grade is 2"):
        retrieval.settle_options(RetrievalOptions(relevant_from=5), ROWS)


def test_stored_vectors_are_found_by_the_ids_of_both_sides(tmp_path: Path) -> None:
    ids = [f"{q}/query" for q in ROWS.ids] + [f"{d}/document" for d in GROUPS]
    np.save(tmp_path / "v.npy", Words().encode([*ROWS.columns["query"], *GROUPS.values()]))
    (tmp_path / "v.ids").write_text("\n".join(ids))
    model: Any = models.load(models.find(str(tmp_path / "v.npy")), ModelOptions())
    found = run(model.bind(retrieval.text_ids(ROWS)), ROWS)
    np.testing.assert_array_equal(found.columns["ndcg@10"], run(Words(), ROWS).columns["ndcg@10"])
    with pytest.raises(RequestError, match=r"a prompt does not apply to .*v\.npy: its vectors are already computed"):
        run(model.bind(retrieval.text_ids(ROWS)), ROWS, query_prompt="query: ")


def test_a_run_file_gives_the_same_figures_again(tmp_path: Path) -> None:
    first = run(Words(), ROWS)
    trec.write_run(tmp_path / "run.txt", retrieval.results_of(first))
    again = run(GivenRun(trec.read_run(tmp_path / "run.txt"), INFO), ROWS)
    for name, values in first.columns.items():
        np.testing.assert_array_equal(again.columns[name], values)


# --- two stages ------------------------------------------------------------------------------------------------


def test_two_stages_by_hand() -> None:
    """The first stage buries c at rank 11 and never finds x; the second lifts c and drops p9 out of the ten."""
    corpus = {**{f"p{i}": f"red filler {i}" for i in range(10)}, "c": "red wine", "x": "red wine too", "p10": "nothing"}
    given = {"1": {**{f"p{i}": 20.0 - i for i in range(10)}, "c": 5.0, "p10": 4.0}}
    rows = make({"1": "red wine"}, {"1": {"c": 1, "x": 1, "p9": 1}}, corpus)
    found = run(TwoStage(GivenRun(given, INFO), Words()), rows, rerank_k=11)
    results = found.details["results"]
    assert results["document"].tolist() == ["c", *(f"p{i}" for i in range(10)), "p10"]
    assert results["base_rank"].tolist() == [11, *range(1, 11), 12]
    assert (np.diff(results["score"]) <= 0).all()
    assert {name: found.counts[name] for name in ("lost_by_first", "put_right", "pushed_out")} == {
        "lost_by_first": 1,
        "put_right": 1,
        "pushed_out": 1,
    }
    assert found.columns["base_mrr@10"].tolist() == pytest.approx([1 / 10])
    assert found.columns["mrr@10"].tolist() == pytest.approx([1.0])
    assert found.columns["recall@100"].tolist() == found.columns["base_recall@100"].tolist() == pytest.approx([2 / 3])


def test_a_second_stage_that_agrees_changes_nothing() -> None:
    class Agrees(Words):
        def score(self, pairs: Sequence[tuple[str, str]], *, progress: object = SILENT) -> np.ndarray:
            return -np.arange(len(pairs), dtype=np.float32)

    found = run(TwoStage(Words(), Agrees()), ROWS, rerank_k=2)
    plain = run(Words(), ROWS)
    for name, values in plain.columns.items():
        np.testing.assert_array_equal(found.columns[f"base_{name}"], values)
        np.testing.assert_array_equal(found.columns[name], values)
    assert found.details["results"]["document"].tolist() == plain.details["results"]["document"].tolist()


def test_two_stages_know_both_models() -> None:
    info = TwoStage(GivenRun({}, INFO), Words(pooling="none")).info
    assert info.model_id == "test + words"
    assert info.settings["rerank"]["fingerprint"] == "sha256:1"
    assert info.fingerprint not in ("sha256:0", "sha256:1")


def test_two_stages_warn_of_both_models() -> None:
    second = Words()
    second.info = replace(second.info, notes=("padding moves it",))
    info = TwoStage(GivenRun({}, replace(INFO, notes=("first",))), second).info
    assert info.notes == ("first", "the reranker: padding moves it")


def write_folder(folder: Path) -> Path:
    (folder / "qrels").mkdir(parents=True)
    write_jsonl(folder / "corpus.jsonl", [{"_id": d, "title": "", "text": f"text {d}"} for d in ("a", "b")])
    write_jsonl(folder / "queries.jsonl", [{"_id": q, "text": f"query {q}"} for q in ("1", "2")])
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n1\ta\t1\n2\tb\t1\n")
    return folder


def test_a_run_says_how_long_it_searched_and_at_what_rate(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "data")
    np.save(tmp_path / "v.npy", np.eye(4, dtype=np.float32))
    (tmp_path / "v.ids").write_text("1/query\n2/query\na/document\nb/document")
    options = ModelOptions(threads=1)
    timing = calipers.evaluate(
        str(tmp_path / "v.npy"), task="retrieval", dataset=str(folder), resamples=100, model_options=options
    ).timing
    assert 0 < timing["search_seconds"] < timing["inference_seconds"]
    assert 0 <= timing["search_share"] < 1


RUN = "1 Q0 a 1 2 x\n1 Q0 b 2 1 x\n2 Q0 a 1 1 x\n2 Q0 b 2 1 x\n"


@pytest.mark.parametrize("option", ["pooling", "prompt", "max_length", "normalize", "dtype", "batch_size"])
def test_a_run_file_refuses_the_options_of_a_model(tmp_path: Path, option: str) -> None:
    values = {
        "pooling": "cls",
        "prompt": "q: ",
        "max_length": 9,
        "normalize": True,
        "dtype": "float16",
        "batch_size": 3,
    }
    (tmp_path / "run.txt").write_text(RUN)
    asked = ModelOptions(**{option: values[option]})  # type: ignore[arg-type]
    with pytest.raises(RequestError, match=f"`{option}` is not supported for a run file"):
        calipers.evaluate(
            f"run:{tmp_path / 'run.txt'}",
            task="retrieval",
            dataset=str(write_folder(tmp_path / "beir")),
            model_options=asked,
        )


def test_a_run_file_in_the_home_folder_has_a_name_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "run.txt").write_text(RUN)
    found = calipers.evaluate(
        "run:~/run.txt",
        task="retrieval",
        dataset=str(write_folder(tmp_path / "quora")),
        model_options=ModelOptions(model_id="theirs"),
        resamples=20,
    )
    assert found.model.model_id == "theirs"
    assert found.metrics["mrr@10"] == pytest.approx(0.875)
    assert found.options["ignore_identical_ids"] is True  # settled by the data, and in the record
    assert found.options["rerank_k"] == 100


@pytest.mark.parametrize("first", ["run", "bm25"])
def test_behind_a_run_or_bm25_the_options_are_the_rerankers(tmp_path: Path, minilm: Path, first: str) -> None:
    (tmp_path / "run.txt").write_text(RUN)
    reference = "bm25" if first == "bm25" else f"run:{tmp_path / 'run.txt'}"
    scorer = tiny(tmp_path / "scorer", minilm)
    found = calipers.evaluate(
        reference,
        task="retrieval",
        dataset=str(write_folder(tmp_path / "beir")),
        rerank=str(scorer),
        model_options=ModelOptions(max_length=7, batch_size=1),
        resamples=20,
    )
    assert found.model.settings["rerank"]["max_length"] == 7
    with pytest.raises(RequestError, match="`pooling` is not supported"):
        calipers.evaluate(
            reference,
            task="retrieval",
            dataset=str(tmp_path / "beir"),
            rerank=str(scorer),
            model_options=ModelOptions(pooling="cls"),
        )


def test_a_run_file_is_known_by_its_content(tmp_path: Path) -> None:
    """Same name, another order: another fingerprint and another figure."""
    folder = write_folder(tmp_path / "beir")
    found = []
    for order in ("ab", "ba"):
        lines = [f"{q} Q0 {d} {i + 1} {2 - i} x\n" for q in "12" for i, d in enumerate(order if q == "1" else "ba")]
        (tmp_path / "run.txt").write_text("".join(lines))
        asked = {"task": "retrieval", "dataset": str(folder), "resamples": 20}
        found.append(calipers.evaluate(f"run:{tmp_path / 'run.txt'}", **asked))
    assert found[0].model.fingerprint != found[1].model.fingerprint
    assert [result.metrics["mrr@10"] for result in found] == pytest.approx([1.0, 0.75])


# --- similarities ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cosine", "dot", "euclidean", "manhattan"])
def test_the_similarity_that_the_files_name_gives_the_figures_of_sentence_transformers(
    name: str, tmp_path: Path
) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

    from tests.support.architectures import make_tiny

    folder = tmp_path / "saved"
    tiny_bert = make_tiny("bert", "encode", tmp_path / "plain")
    SentenceTransformer(str(tiny_bert), device="cpu", similarity_fn_name=name).save(str(folder))
    words = ["dog", "cat", "child", "run", "sleep", "park", "house", "street", "garden", "slow"]
    corpus = {f"{a}{b}": f"the {a} {b}" for a in words for b in words if a != b}
    queries = {word: f"a {word}" for word in words}
    qrels = {word: {id: 1.0 for id in corpus if id.endswith(word)} for word in words}
    outcomes = run(models.load(models.find(str(folder)), ModelOptions()), make(queries, qrels, corpus))
    theirs = SentenceTransformer(str(folder), device="cpu")
    evaluator = InformationRetrievalEvaluator(queries, corpus, {q: set(ids) for q, ids in qrels.items()})
    figures = evaluator(theirs)
    assert theirs.similarity_fn_name == name
    for metric in ("ndcg@10", "mrr@10", "map@100"):
        assert outcomes.columns[metric].mean() == pytest.approx(figures[f"{name}_{metric}"], abs=1e-6)


def test_a_similarity_that_is_none_is_refused_unless_the_option_names_one() -> None:
    model = Words(similarity_fn_name="hamming")
    with pytest.raises(RequestError, match="name the similarity 'hamming': set `similarity` to one of cosine, dot"):
        run(model, ROWS)
    assert run(model, ROWS, similarity="dot").columns["ndcg@10"] is not None
