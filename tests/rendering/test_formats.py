"""Result files that mteb reads, and model cards that the hub reads: held against mteb and huggingface_hub."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calipers.core import DataSource, RequestError, Result
from calipers.rendering import document, model_card, mteb_json
from tests.support import verdicts as made

STSB, SCIFACT = (next(t.fingerprints[0] for t in mteb_json.TASKS if t.name == n) for n in ("STSBenchmark", "SciFact"))
RETRIEVAL = {
    "task": "retrieval",
    "dataset": DataSource("/tmp/data/scifact", split="test"),
    "fingerprint": SCIFACT,
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
        (made.result(fingerprint=STSB), "STSBenchmark", 0.8205),
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
        assert known.eval_splits == [task.split]
        ignores = getattr(mteb.get_task(task.name), "ignore_identical_ids", False)
        assert bool(ignores) is task.ignores_identical_ids
        stated = (known.descriptive_stats or {}).get(task.split, {})
        sizes = {0, stated.get("num_queries"), stated.get("num_samples"), None if task.name != "Touche2020" else 49}
        assert task.examples in sizes
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
    assert "3 chosen rows" in mteb_json.warnings(few, task)[0]
    assert mteb_json.warnings(made.result(fingerprint=STSB), task) == []
    assert (
        "not known to be of MTEB's own data of STSBenchmark (3 of 1,379 pairs)"
        in mteb_json.warnings(made.result(), task)[0]
    )


def test_the_task_is_known_by_the_data_and_the_kind_of_run() -> None:
    whole = made.outcomes(1457)
    japanese = made.result(dataset=DataSource("hub:mteb/JSTS", split="validation"), outcomes=whole)
    assert mteb_json.find_task(japanese).languages == ("jpn-Jpan",)
    scores = made.result(task="pair-correlation")
    with pytest.raises(RequestError, match="which MTEB does not have"):
        mteb_json.find_task(scores)
    assert mteb_json.official_task(scores) is None
    with pytest.raises(RequestError, match="`mteb_task`"):
        mteb_json.find_task(made.result(dataset=DataSource("pairs.csv")))
    with pytest.raises(RequestError, match="judged by ndcg_at_10"):
        mteb_json.find_task(made.result(), "SciFact")


@pytest.mark.parametrize(
    ("path", "split"),
    [
        ("stsb/dev.jsonl", "dev"),
        ("stsb/test.jsonl", "test"),
        ("pairs.csv", None),
        ("train.tsv", "train"),
        ("valid.jsonl", "validation"),
    ],
)
def test_a_split_is_told_by_the_name_of_a_file_and_never_invented(path: str, split: str | None) -> None:
    result = made.result(dataset=DataSource(path))
    assert mteb_json.split(result) == split
    assert (card(result).eval_results[0].dataset_split or None) == split


def test_the_split_of_a_task_has_its_own_name() -> None:
    task = next(task for task in mteb_json.TASKS if task.name == "JSTS")
    for path in ("valid.jsonl", "dev.tsv", "pairs.csv"):
        assert list(mteb_json.document(made.result(dataset=DataSource(path)), task)["scores"]) == ["validation"]


# --- whose data they are -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"fingerprint": "sha256:60"},  # a folder of that name
        {"fingerprint": "sha256:60", "dataset": DataSource("mteb/scifact", split="test")},  # 3 queries of 300
        {"fingerprint": "sha256:60", "dataset": DataSource("mteb/scifact", split="test", requested=3, rows_read=300)},
        {"options": {"ignore_identical_ids": True}},
    ],
)
def test_data_that_only_have_the_name_of_a_task_do_not_carry_its_name(changes: dict[str, Any]) -> None:
    result = made.result(**{**RETRIEVAL, **changes})
    assert mteb_json.official_task(result) is None
    with pytest.raises(RequestError, match=r"has the name of MTEB's SciFact.*3 of 300 .*`mteb_task`"):
        mteb_json.find_task(result)
    shown = card(result).eval_results[0]
    assert "MTEB" not in shown.dataset_name
    if result.dataset.requested:
        assert shown.dataset_name == "mteb/scifact (3 of 300 rows)"
    named = card(result, mteb_task="SciFact").eval_results[0]
    assert (named.dataset_name, named.dataset_type) == ("MTEB SciFact (3 of 300 pairs)", "mteb/scifact")
    assert (
        mteb_json.document(result, mteb_json.find_task(result, "SciFact"))["scores"]["test"][0]["calipers"]
        | {
            "examples": 3,
            "official_data": False,
        }
        == mteb_json.document(result, mteb_json.find_task(result, "SciFact"))["scores"]["test"][0]["calipers"]
    )


def test_the_hub_id_with_the_official_size_is_enough() -> None:
    result = made.result(dataset=DataSource("mteb/stsbenchmark-sts", split="test"), outcomes=made.outcomes(1379))
    assert card(result).eval_results[0].dataset_name == "MTEB STSBenchmark"
    dev = made.result(dataset=DataSource("mteb/stsbenchmark-sts", split="train"), outcomes=made.outcomes(1379))
    assert mteb_json.official_task(dev) is None


def test_a_figure_that_counts_identical_ids_is_not_arguanas() -> None:
    options = {"ignore_identical_ids": False}
    source = DataSource("mteb/arguana", split="test")
    result = made.result(
        **{**RETRIEVAL, "dataset": source, "outcomes": made.outcomes(1406), "options": options, "fingerprint": ""}
    )
    assert mteb_json.official_task(result) is None
    assert mteb_json.official_task(replace(result, options={"ignore_identical_ids": True})) is not None
    task = mteb_json.find_task(result, "ArguAna")
    assert any("which MTEB's ArguAna leaves out" in line for line in mteb_json.warnings(result, task))


def test_models_with_one_name_and_two_fingerprints_are_two() -> None:
    first = made.result(fingerprint=STSB)
    info = replace(first.model, fingerprint="sha256:11", path="b/all-MiniLM-L6-v2")
    second = made.result(**RETRIEVAL, model=info, run_id="20261001-120000-abc124")
    with pytest.raises(RequestError, match="two models with the name all-MiniLM-L6-v2"):
        model_card.model_index([first, second])


def test_data_of_one_name_stay_apart_on_a_card() -> None:
    both = [
        made.result(dataset=DataSource(f"{x}/test.jsonl"), fingerprint=f"sha256:{x * 8}99", run_id=x)
        for x in ("a", "b")
    ]
    names = {(one.dataset_name, one.dataset_type) for one in card(*both).eval_results}
    assert names == {("test.jsonl (aaaaaaaa)",) * 2, ("test.jsonl (bbbbbbbb)",) * 2}


@pytest.mark.parametrize(
    ("model_id", "shown", "in_mteb"),
    [
        ("enc/model_quantized.onnx", "enc-model_quantized", "calipers/enc-model_quantized"),
        ("enc/model.onnx", "enc", "calipers/enc"),
        ("./x/enc/onnx/model_int8.onnx", "enc-model_int8", "calipers/enc-model_int8"),
        ("BAAI/bge-small-en-v1.5", "BAAI/bge-small-en-v1.5", "BAAI/bge-small-en-v1.5"),
    ],
)
def test_a_graph_is_called_after_its_model(model_id: str, shown: str, in_mteb: str) -> None:
    assert card(made.result(model_id)).model_name == shown
    assert mteb_json.model_name(model_id) == in_mteb


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
    data = card(made.result(fingerprint=STSB), made.result(**RETRIEVAL))
    assert data.model_name == "all-MiniLM-L6-v2"
    first = data.eval_results[0]
    assert (first.task_type, first.dataset_name, first.dataset_type) == (
        "sentence-similarity", "MTEB STSBenchmark", "mteb/stsbenchmark-sts",
    )  # fmt: skip
    assert (first.metric_type, first.metric_value, first.dataset_split) == ("cosine_spearman", 82.05, "test")
    assert first.metric_args == {"interval": [80.1, 83.9], "confidence": 0.95}
    assert first.dataset_args == {"examples": 3, "fingerprint": STSB}
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
