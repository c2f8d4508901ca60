"""report: runs in memory or in a store, in the formats of others."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow.parquet
import pytest

from calipers import cli, evaluate
from calipers.core import RequestError
from calipers.runs.report import load_runs, mteb_files, mteb_folder, report
from calipers.runs.store import Store
from tests.support import verdicts as made


def test_a_run_is_a_result_or_its_id(tmp_path: Path) -> None:
    result, store = made.result(), Store(tmp_path)
    store.save(result)
    assert report([result]) == report([result.run_id], store=store) == report(["latest"], store=store)
    assert len(load_runs(["latest", result.run_id[:12], result], store)) == 1


def test_each_format_is_a_text() -> None:
    result = made.result()
    assert report([result]).startswith("## `all-MiniLM-L6-v2`: sentence-similarity")
    assert json.loads(report([result], format="json"))["run"] == result.run_id
    both = [result, made.result(run_id="20261001-120000-abc124")]
    assert len(json.loads(report(both, format="json"))) == 2
    assert json.loads(report([result], format="mteb", mteb_task="STSBenchmark"))["task_name"] == "STSBenchmark"
    assert report([result], format="model-index").startswith("---\n")
    assert list(mteb_files([result], mteb_task="STSBenchmark")) == ["STSBenchmark"]


@pytest.mark.filterwarnings("ignore")  # mteb's own imports
def test_mtebs_result_cache_finds_the_files_of_a_folder(tmp_path: Path) -> None:
    mteb = pytest.importorskip("mteb")
    for name, content in mteb_folder([made.result("enc/model_int8.onnx")], mteb_task="STSBenchmark").items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    (found,) = mteb.ResultCache(tmp_path).load_results(include_remote=False).model_results
    assert found.model_name == "calipers/enc-model_int8"
    assert [one.task_name for one in found.task_results] == ["STSBenchmark"]
    assert found.task_results[0].get_score() == pytest.approx(0.8205)
    assert (
        mteb.ResultCache(tmp_path).load_results(tasks=["STSBenchmark"], include_remote=False).to_dataframe() is not None
    )


def test_what_cannot_be_reported_is_one_sentence() -> None:
    result = made.result()
    with pytest.raises(RequestError, match="`format` must be one of markdown, json, mteb, model-index, found 'pdf'"):
        report([result], format="pdf")
    with pytest.raises(RequestError, match="`mteb_task` is for the formats mteb and model-index"):
        report([result], mteb_task="STSBenchmark")
    with pytest.raises(RequestError, match="name at least one run"):
        report([])
    with pytest.raises(RequestError, match="these runs are of 2 models"):
        report([result, made.result("other", run_id="x")], format="mteb")


def test_outcomes_are_written_as_a_table(tmp_path: Path, tiny_bert: Path, few_texts: Path) -> None:
    place = Store(tmp_path / "store")
    result = evaluate(str(tiny_bert), task="fill-mask", dataset=str(few_texts), store=place)
    files = {name: tmp_path / name for name in ("o.csv", "o.parquet", "tokens.csv")}
    line = ["runs", "show", result.run_id, "--store", str(place.folder), "--outcomes"]
    for name, file in files.items():
        assert cli.run([*line, str(file), *(["--details", "tokens"] if name == "tokens.csv" else [])]) == 0
    rows = list(csv.DictReader(files["o.csv"].read_text("utf-8").splitlines()))
    table = pyarrow.parquet.read_table(files["o.parquet"]).to_pylist()
    assert [row["id"] for row in rows] == [row["id"] for row in table] == list(result.outcomes.ids)
    assert [float(row["log_likelihood"]) for row in rows] == [row["log_likelihood"] for row in table]
    tokens = list(csv.DictReader(files["tokens.csv"].read_text("utf-8").splitlines()))
    vocabulary = json.loads((tiny_bert / "tokenizer.json").read_text())["model"]["vocab"]
    assert len(tokens) == result.outcomes.counts["tokens"]
    assert all(vocabulary[row["string"]] == int(row["token"]) for row in tokens)
    for words in ([str(files["o.csv"])], [str(tmp_path / "o.txt")], [str(tmp_path / "p.csv"), "--details", "none"]):
        assert cli.run([*line, *words]) == 2
