"""Result files that mteb reads, and model cards that the hub reads: held against mteb and huggingface_hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from calipers.core import DataSource, RequestError, Result
from calipers.rendering import document, model_card, mteb_json
from tests.support import verdicts as made

RETRIEVAL = {
    "task": "retrieval",
    "dataset": DataSource("/tmp/data/scifact", split="test"),
    "metrics": {"ndcg@10": 0.645082, "recall@100": 0.925, "hit@10": 0.79},
    "intervals": {"ndcg@10": (0.6, 0.69), "recall@100": None, "hit@10": None},
}
RERANKING = {
    "task": "reranking",
    "dataset": DataSource("mteb/AskUbuntuDupQuestions", split="test"),
    "metrics": {"ndcg@10": 0.7, "map": 0.63},
    "intervals": {"ndcg@10": None, "map": None},
}


def loaded(result: Result, tmp_path: Path, name: str | None = None) -> Any:
    results = pytest.importorskip("mteb.results")
    file = tmp_path / "result.json"
    task = mteb_json.find_task(result, name)
    file.write_text(document.to_json(mteb_json.document(result, task)), encoding="utf-8")
    return results.TaskResult.from_disk(file)


@pytest.mark.filterwarnings("ignore")  # mteb's own imports
@pytest.mark.parametrize(
    ("result", "task", "main_score"),
    [
        (made.result(), "STSBenchmark", 0.8205),
        (made.result(**RETRIEVAL), "SciFact", 0.645082),
        (made.result(**RERANKING), "AskUbuntuDupQuestions", 0.63),
    ],
)
def test_mteb_reads_the_file_back(result: Result, task: str, main_score: float, tmp_path: Path) -> None:
    found = loaded(result, tmp_path)
    assert (found.task_name, found.eval_splits, found.languages) == (task, ["test"], ["eng"])
    assert found.get_score() == pytest.approx(main_score, abs=1e-12)
    assert found.validate_and_filter_scores().get_score() == pytest.approx(main_score, abs=1e-12)
    assert found.date.timestamp() == pytest.approx(1790848800.0)
    again = tmp_path / "again.json"
    found.to_disk(again)
    ours = json.loads((tmp_path / "result.json").read_text())
    assert json.loads(again.read_text()) == ours
    assert list(ours) == list(json.loads(again.read_text()))


@pytest.mark.filterwarnings("ignore")
def test_our_table_says_what_mteb_says() -> None:
    mteb = pytest.importorskip("mteb")
    for task in mteb_json.TASKS:
        known = mteb.get_task(task.name).metadata
        assert (known.dataset["path"], known.main_score) == (task.path, task.main_score)
        assert tuple(known.hf_subsets_to_langscripts["default"]) == task.languages


@pytest.mark.filterwarnings("ignore")
def test_a_task_that_only_mteb_knows_is_looked_up_there(tmp_path: Path) -> None:
    pytest.importorskip("mteb")
    some = made.result(dataset=DataSource("mteb/sts17-crosslingual-sts", name="en-de", split="test"))
    assert loaded(some, tmp_path, "STS17").scores["test"][0]["languages"] == ["eng-Latn", "deu-Latn"]
    with pytest.raises(RequestError, match="has no subset 'default'"):
        mteb_json.find_task(made.result(), "STS17")
    with pytest.raises(RequestError, match="mteb has no task 'STSBenchmrk'"):
        mteb_json.find_task(made.result(), "STSBenchmrk")


def test_scores_have_mtebs_names_and_scale() -> None:
    assert mteb_json.scores(made.result()) == {
        "cosine_spearman": 0.8205, "cosine_pearson": 0.817, "dot_spearman": 0.8205,
    }  # fmt: skip
    beside = mteb_json.document(made.result(), mteb_json.TASKS[0])["scores"]["test"][0]["calipers"]
    assert beside["intervals"]["cosine_spearman"] == [0.801, 0.839]
    assert set(mteb_json.scores(made.result(**RETRIEVAL))) == {"ndcg_at_10", "recall_at_100", "hit_rate_at_10"}


def test_nothing_is_claimed_of_the_data_that_nobody_checked() -> None:
    task = mteb_json.TASKS[0]
    assert mteb_json.document(made.result(), task)["dataset_revision"] == "sha256:0123456789abcdef"
    pinned = made.result(dataset=DataSource("mteb/stsbenchmark-sts", split="test", revision="b0fddb5"))
    assert mteb_json.document(pinned, task)["dataset_revision"] == "b0fddb5"
    few = made.result(dataset=DataSource("x.jsonl", requested=3))
    assert "3 chosen rows" in mteb_json.warnings(few)[0]
    assert mteb_json.warnings(made.result()) == []


def test_the_task_is_known_by_the_data_and_the_kind_of_run() -> None:
    assert mteb_json.find_task(made.result(dataset=DataSource("hub:mteb/JSTS"))).languages == ("jpn-Jpan",)
    scores = made.result(task="pair-correlation")
    with pytest.raises(RequestError, match="which MTEB does not have"):
        mteb_json.find_task(scores)
    assert mteb_json.known_task(scores) is None
    with pytest.raises(RequestError, match="`mteb_task`"):
        mteb_json.find_task(made.result(dataset=DataSource("pairs.csv")))
    with pytest.raises(RequestError, match="judged by ndcg_at_10"):
        mteb_json.find_task(made.result(), "SciFact")


@pytest.mark.parametrize(
    ("path", "split"),
    [("stsb/dev.jsonl", "dev"), ("stsb/test.jsonl", "test"), ("pairs.csv", "test"), ("train.tsv", "train")],
)
def test_the_split_of_a_file_is_told_by_its_name(path: str, split: str) -> None:
    assert mteb_json.split(made.result(dataset=DataSource(path))) == split


def test_splits_of_one_task_become_one_file() -> None:
    task = mteb_json.TASKS[0]
    test, dev = (
        mteb_json.document(
            made.result(dataset=DataSource("mteb/stsbenchmark-sts", split=s), fingerprint=f"sha256:{s}"), task
        )
        for s in ("test", "validation")
    )
    merged = mteb_json.merge([test, dev])
    assert list(merged["scores"]) == ["test", "validation"]
    assert merged["evaluation_time"] == 25.0
    assert list(test["scores"]) == ["test"]
    with pytest.raises(RequestError, match="two runs measure STSBenchmark, split test"):
        mteb_json.merge([test, test])


def card(*results: Result, **more: Any) -> Any:
    from huggingface_hub import ModelCard

    return ModelCard(model_card.model_index(results, **more) + "\n# A card\n").data


def test_the_hub_reads_the_card_back() -> None:
    data = card(made.result(), made.result(**RETRIEVAL))
    assert data.model_name == "all-MiniLM-L6-v2"
    first = data.eval_results[0]
    assert (first.task_type, first.dataset_name, first.dataset_type) == (
        "sentence-similarity", "MTEB STSBenchmark", "mteb/stsbenchmark-sts",
    )  # fmt: skip
    assert (first.metric_type, first.metric_value, first.dataset_split) == ("cosine_spearman", 82.05, "test")
    assert first.metric_args == {"interval": [80.1, 83.9], "confidence": 0.95}
    assert first.dataset_args == {"examples": 3, "fingerprint": "sha256:0123456789abcdef"}
    assert {e.metric_type for e in data.eval_results if e.task_type == "information-retrieval"} == set(
        RETRIEVAL["metrics"]
    )


def test_a_private_path_stays_private() -> None:
    text = model_card.model_index([made.result("/tmp/secret/mine", dataset=DataSource("/tmp/data/pairs.csv"))])
    assert "/tmp" not in text
    assert "name: mine" in text
    assert "pairs.csv" in text


def test_odd_names_are_yaml_strings() -> None:
    name = "a: b\n- c # {x} 'y' \"z\""
    assert card(made.result(name, dataset=DataSource("*odd: [1]"))).model_name == "a: b - c # {x} 'y' \"z\""


def test_a_card_is_about_one_model_and_each_measurement_once() -> None:
    with pytest.raises(RequestError, match="about one model"):
        model_card.model_index([made.result("a"), made.result("b")])
    with pytest.raises(RequestError, match="measure the same"):
        model_card.model_index([made.result(), made.result()])
