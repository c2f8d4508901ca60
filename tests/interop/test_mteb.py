"""Our models in mteb: its own mock tasks, and local tasks beside ours on the same data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import CrossEncoder
from threadpoolctl import threadpool_limits

from calipers import models
from calipers.core import DataError, InvalidOutput, ModelInfo, RequestError
from calipers.interop.mteb import as_mteb, find_tasks, measure, run
from calipers.models import ModelOptions
from calipers.runs import api
from tests.support import mteb_tasks
from tests.support.cross_encoders import tiny
from tests.support.mteb_tasks import mteb

Named = Callable[[str], Path]

pytestmark = [
    # mteb itself: torch.tensor() of a tensor in its bitext miner, and a precision of labels that nobody predicted
    pytest.mark.filterwarnings("ignore:To copy construct from a tensor:UserWarning"),
    pytest.mark.filterwarnings("ignore:Precision is ill-defined"),
]


@pytest.fixture(scope="module")
def potion(model: Named) -> Any:
    return models.load(models.find(str(model("potion-base-4m-int8"))), ModelOptions())


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory, minilm: Path) -> Any:
    folder = tiny(tmp_path_factory.mktemp("one"), minilm, labels=1)
    return models.load(models.find(str(folder)), ModelOptions(), "score")


class Fixed:
    """Vectors that a test makes up."""

    def __init__(self, answer: Callable[[Sequence[str]], Any], **settings: Any) -> None:
        self.info = ModelInfo("static", "fixed", None, "cpu", "sha256:0", settings)
        self.answer = answer
        self.prompt: Any = "not asked"

    def encode(self, texts: Sequence[str], *, prompt: str | None = None, progress: Any = None) -> np.ndarray:
        self.prompt = prompt
        return np.asarray(self.answer(texts), np.float32)


def ask(wrapped: Any, texts: Sequence[str], side: str | None = None) -> np.ndarray:
    told = mteb_tasks.metadata("JSTS", "STS", "cosine_spearman")
    kind = None if side is None else mteb.types.PromptType(side)
    return wrapped.encode(
        [{"text": list(texts)}], task_metadata=told, hf_split="test", hf_subset="ja", prompt_type=kind
    )


def split(results: Any) -> tuple[dict[str, float], dict[str, str]]:
    """Main scores of the tasks that ran, and what stopped the others."""
    failed = {name: status.exception for name, status in results.items() if hasattr(status, "exception")}
    return {name: status.get_score() for name, status in results.items() if hasattr(status, "scores")}, failed


def test_an_encoder_passes_the_mock_tasks_of_mteb(potion: Any) -> None:
    with threadpool_limits(1):  # k-means of four sentences on all cores is waiting and nothing else
        scores, failed = split(mteb.mock_run(as_mteb(potion)))
    assert failed == {}
    assert len(scores) == 28  # every text task of the grid: those with pictures and sounds are not for this model


def test_a_cross_encoder_passes_the_mock_tasks_that_mtebs_own_passes(reranker: Any) -> None:
    """mteb gives a cross-encoder nothing to rerank in a retrieval task, whoever wrapped it."""
    theirs = mteb.models.CrossEncoderWrapper(CrossEncoder(reranker.info.path))
    scores, failed = split(mteb.mock_run(as_mteb(reranker)))
    assert (scores, failed) == split(mteb.mock_run(theirs))
    assert len(scores) == 4
    assert set(failed.values()) == {"CrossEncoder search requires top_ranked documents for reranking."}


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def part_of_scifact(source: Path, folder: Path) -> Path:
    """Sixty queries, all that is relevant to them, and 700 other documents."""
    queries = read_lines(source / "queries.jsonl")
    qrels = [line.split("\t") for line in (source / "qrels" / "test.tsv").read_text().splitlines()]
    chosen = list(dict.fromkeys(row[0] for row in qrels[1:]))[:60]
    relevant = {row[1] for row in qrels[1:] if row[0] in chosen}
    documents = read_lines(source / "corpus.jsonl")
    kept = [d for i, d in enumerate(documents) if d["_id"] in relevant or i < 700]
    (folder / "qrels").mkdir(parents=True)
    for name, rows in (("queries", [q for q in queries if q["_id"] in chosen]), ("corpus", kept)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    lines = [qrels[0], *(row for row in qrels[1:] if row[0] in chosen)]
    (folder / "qrels" / "test.tsv").write_text("".join("\t".join(row) + "\n" for row in lines))
    return folder


def test_a_local_retrieval_task_gives_what_our_own_gives(potion: Any, data: Named, tmp_path: Path) -> None:
    folder = part_of_scifact(data("scifact"), tmp_path / "part")
    ours = api.evaluate(potion, task="retrieval", dataset=str(folder), resamples=10)
    queries, corpus = (read_lines(folder / f"{name}.jsonl") for name in ("queries", "corpus"))
    relevant: dict[str, dict[str, int]] = {}
    for query, document, grade in (x.split() for x in (folder / "qrels" / "test.tsv").read_text().splitlines()[1:]):
        relevant.setdefault(query, {})[document] = int(grade)
    task = mteb_tasks.retrieval(
        "Part",
        [{"id": q["_id"], "text": q["text"]} for q in queries],
        [{"id": d["_id"], "title": d["title"], "text": d["text"]} for d in corpus],
        relevant,
    )
    (theirs,) = mteb.evaluate(as_mteb(potion), task, cache=None, show_progress_bar=False).task_results
    assert len(ours.outcomes) == 60
    assert 0.3 < ours.metrics["ndcg@10"] < 0.99
    assert theirs.get_score() == pytest.approx(ours.metrics["ndcg@10"], abs=1e-6)
    assert theirs.scores["test"][0]["ndcg_at_10"] == pytest.approx(ours.metrics["ndcg@10"], abs=5.1e-6)


def test_a_local_sts_task_gives_what_our_own_gives(potion: Any, data: Named, tmp_path: Path) -> None:
    """Without the pairs whose cosines differ by less than mteb's float32 can tell: they tie there and not here."""
    rows = read_lines(data("stsb/dev.jsonl"))[:300]
    first, second = (potion.encode([row[k] for row in rows]).astype(np.float64) for k in ("sentence1", "sentence2"))
    cosines = (first * second).sum(axis=1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
    rows = [rows[i] for i in np.unique(np.round(cosines, 6), return_index=True)[1]]
    path = tmp_path / "part.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    ours = api.evaluate(potion, dataset=str(path), resamples=10)
    (score,) = run(potion, [mteb_tasks.sts("LocalSTS", rows)], cache=None)
    assert 100 * score.main_score == pytest.approx(ours.metrics["cosine_spearman"], abs=1e-4)
    assert (score.id, score.type, score.dataset_revision) == ("LocalSTS/test/default", "STS", "1")


def test_a_cross_encoder_reranks_in_mteb_as_in_our_own_task(reranker: Any, data: Named, tmp_path: Path) -> None:
    rows = read_lines(data("trec-dl/dl19-bm25-top100.jsonl"))[:6]
    rows = [{**row, "documents": row["documents"][:12]} for row in rows]
    path = tmp_path / "part.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    ours = api.evaluate(reranker, task="reranking", dataset=str(path), resamples=10)
    corpus = {d["id"]: {"id": d["id"], "text": d["text"]} for row in rows for d in row["documents"]}
    task = mteb_tasks.retrieval(
        "LocalReranking",
        [{"id": row["query_id"], "text": row["query"]} for row in rows],
        list(corpus.values()),
        {row["query_id"]: {d["id"]: int(d["relevance"]) for d in row["documents"]} for row in rows},
        {row["query_id"]: [d["id"] for d in row["documents"]] for row in rows},
    )
    (score,) = run(reranker, [task], cache=None)
    assert score.main_score == pytest.approx(ours.metrics["ndcg@10"], abs=1e-6)


def test_prompts_are_chosen_by_task_type_and_side() -> None:
    prompts = {"query": "q: ", "passage": "p: ", "STS-query": "s: "}
    model = Fixed(lambda texts: np.ones((len(texts), 2)), prompts=prompts)
    for side, expected in ((None, None), ("query", "s: "), ("document", "p: ")):
        ask(as_mteb(model), ["a"], side)
        assert model.prompt == expected
    ask(as_mteb(model, prompts={}), ["a"], "query")
    assert model.prompt is None


def test_a_prompt_reaches_a_real_model(potion: Any) -> None:
    wrapped = as_mteb(potion, prompts={"query": "zebra "})
    assert np.array_equal(ask(wrapped, ["a dog"], "query"), potion.encode(["zebra a dog"]))
    assert np.array_equal(ask(wrapped, ["a dog"], "document"), potion.encode(["a dog"]))


def test_the_revision_follows_the_content_the_settings_and_the_prompts() -> None:
    def who(**settings: Any) -> tuple[str, str]:
        meta = as_mteb(Fixed(np.ones, **settings)).mteb_model_meta
        return meta.name, meta.revision

    assert who() == who() == ("calipers/fixed", who()[1])
    assert len({who(), who(pooling="cls"), who(pooling="mean"), who(prompts={"query": "q: "})}) == 4
    assert as_mteb(Fixed(np.ones), similarity="dot").mteb_model_meta.revision != who()[1]


def test_similarity_is_the_one_of_the_models_files(potion: Any, model: Named, tmp_path: Path) -> None:
    folder = tmp_path / "dotted"
    folder.mkdir()
    for file in model("potion-base-4m-int8").iterdir():
        (folder / file.name).symlink_to(file)
    (folder / "config_sentence_transformers.json").write_text('{"similarity_fn_name": "dot"}')
    dotted = as_mteb(str(folder))
    first, second = np.array([[3.0, 4.0]]), np.array([[1.0, 0.0]])
    assert float(dotted.similarity(first, second)[0, 0]) == pytest.approx(3)
    assert float(dotted.similarity_pairwise(first, second)[0]) == pytest.approx(3)
    assert float(as_mteb(potion).similarity(first, second)[0, 0]) == pytest.approx(0.6)
    (folder / "config_sentence_transformers.json").write_text('{"similarity_fn_name": "euclidean"}')
    with pytest.raises(RequestError, match="euclidean"):
        as_mteb(str(folder))


def test_dead_vectors_are_invalid_and_named() -> None:
    texts = [f"text {i}" for i in range(10)]
    with pytest.raises(InvalidOutput, match="1 of 10") as caught:
        ask(as_mteb(Fixed(lambda t: np.where(np.arange(len(t)) == 3, np.nan, 1.0)[:, None])), texts)
    assert caught.value.rows == ("JSTS/test/ja#3",)
    with pytest.raises(InvalidOutput, match="same answer"):
        ask(as_mteb(Fixed(lambda t: np.ones((len(t), 2)))), texts)
    assert ask(as_mteb(Fixed(lambda t: np.ones((len(t), 2)))), texts[:2]).shape == (2, 2)
    assert ask(as_mteb(Fixed(np.ones)), []).shape == (0, 0)


def test_few_scores_have_no_interval_and_zero_vectors_are_told(potion: Any, data: Named) -> None:
    rows = [*read_lines(data("stsb/dev.jsonl"))[:20], {"sentence1": "", "sentence2": "a dog", "score": 1.0}]
    result = measure(potion, [mteb_tasks.sts("LocalSTS", rows)], cache=None)
    assert (result.task, result.intervals) == ("mteb", {"mean_main_score": None, "mean_by_type": None})
    assert any("at least 8 are needed and 1 found" in w for w in result.warnings)
    assert any("zero vector: 1, in LocalSTS/test/default" in w for w in result.warnings)
    assert result.outcomes.ids == ("LocalSTS/test/default",)


def test_benchmarks_and_tasks_go_by_their_names() -> None:
    names = [task.metadata.name for task in find_tasks(["JMTEB-lite(v1)", "JSTS", "STS12"])]
    assert len(names) == 29
    assert {"JSTS", "STS12"} <= set(names)
    with pytest.raises(RequestError, match=r"no benchmark and no task named 'JSTZ': is it .*JSTS"):
        find_tasks("JSTZ")
    with pytest.raises(RequestError, match="no mteb task was named"):
        find_tasks([])


def test_what_cannot_be_run_says_so(potion: Any, reranker: Any) -> None:
    with pytest.raises(DataError, match="data of the mteb task STS12 are not available"):
        run(potion, "STS12", cache=None)  # there is no hub here
    with pytest.raises(RequestError, match="cross-encoder can retrieve and rerank"):
        run(reranker, ["STS12"], cache=None)
    with pytest.raises(RequestError, match="cannot be an mteb model"):
        as_mteb(object_with_info())


def object_with_info() -> Any:
    class Searcher:
        info = ModelInfo("bm25", "bm25", None, "cpu", "sha256:0")

    return Searcher()


def test_finished_results_are_found_again_under_the_models_name(potion: Any, data: Named, tmp_path: Path) -> None:
    """mteb's own files are also what the import reads."""
    from calipers.interop.mteb import import_results

    task = mteb_tasks.sts("LocalSTS", read_lines(data("stsb/dev.jsonl"))[:50])
    cache = mteb.ResultCache(tmp_path)
    mteb.evaluate(as_mteb(potion), task, cache=cache, show_progress_bar=False)
    (imported,) = import_results([tmp_path / "results"])
    measured = measure(potion, [task], cache=None)
    assert imported.metrics["mean_main_score"] == measured.metrics["mean_main_score"]
    assert imported.fingerprint == measured.fingerprint
    assert imported.model.model_id == "calipers/potion-base-4m-int8"


def test_a_finished_task_of_mteb_is_not_run_again(potion: Any, tmp_path: Path) -> None:
    meta = as_mteb(potion).mteb_model_meta
    folder = tmp_path / "results" / meta.name.replace("/", "__") / meta.revision
    folder.mkdir(parents=True)
    row = {"main_score": 0.625, "hf_subset": "default", "languages": ["eng-Latn"]}
    content = {"dataset_revision": "r", "task_name": "STS12", "mteb_version": "2.26.24", "evaluation_time": 1.0}
    (folder / "STS12.json").write_text(json.dumps({**content, "scores": {"test": [row]}}))
    (score,) = run(potion, "STS12", cache=tmp_path)  # its data are not here
    assert (score.main_score, score.type) == (0.625, "STS")


def test_without_the_extra_one_sentence_says_what_to_install(model: Named) -> None:
    code = (
        "import sys; sys.modules['mteb'] = None\n"
        "from calipers.interop.mteb import as_mteb, import_results\n"
        "try:\n    as_mteb('static:x')\nexcept Exception as e:\n    print(type(e).__name__, e)\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    needs = "pip install mteb datasets (in a checkout: pip install '.[mteb]')"
    assert found.stdout == f"RequestError mteb tasks need the package mteb: {needs}\n"
