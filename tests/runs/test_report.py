"""report: runs in memory or in a store, in the formats of others."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pyarrow.parquet
import pytest
import yaml

from calipers import cli, evaluate
from calipers.core import DataSource, ModelInfo, RequestError, Result
from calipers.rendering import mteb_json
from calipers.rendering.variants import variant
from calipers.runs.report import eval_results_files, load_runs, mteb_files, mteb_folder, report
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
    write(tmp_path, mteb_folder([made.result("enc/model.onnx")], mteb_task="STSBenchmark"))
    (found,) = mteb.ResultCache(tmp_path).load_results(include_remote=False).model_results
    assert found.model_name == "calipers/enc"
    assert [one.task_name for one in found.task_results] == ["STSBenchmark"]
    assert found.task_results[0].get_score() == pytest.approx(0.8205)
    assert (
        mteb.ResultCache(tmp_path).load_results(tasks=["STSBenchmark"], include_remote=False).to_dataframe() is not None
    )


@pytest.mark.filterwarnings("ignore")  # mteb's own imports
def test_variants_of_a_model_stand_under_its_experiments(tmp_path: Path) -> None:
    mteb = pytest.importorskip("mteb")
    runs = [variant_of("enc/model.onnx"), variant_of("enc/model_int8.onnx", 80.0), variant_of("enc", 70.0, size=64)]
    files = mteb_folder(runs, mteb_task="STSBenchmark")
    folders = sorted({str(Path(name).parent) for name in files})
    usual = folders[0]
    assert re.fullmatch("results/calipers__enc/[0-9a-f]{40}", usual)
    assert folders[1:] == [f"{usual}/experiments/precision_int8", f"{usual}/experiments/truncate_dim_64"]
    assert all(f"{folder}/{name}" in files for folder in folders for name in ("model_meta.json", "STSBenchmark.json"))
    write(tmp_path, files)
    cache = mteb.ResultCache(tmp_path)
    assert len(cache.load_results(include_remote=False).model_results) == 1
    every = cache.load_results(include_remote=False, load_experiments="match_name").model_results
    assert sorted(one.task_results[0].get_score() for one in every) == pytest.approx([0.7, 0.8, 0.8205])
    revision = usual.rpartition("/")[2]
    found = cache.load_task_result("STSBenchmark", "calipers/enc", revision, experiment_name="precision_int8")
    assert found.get_score() == pytest.approx(0.8)


@pytest.mark.filterwarnings("ignore")  # mteb's own imports
def test_the_folder_of_a_variant_has_the_name_that_mteb_gives_it() -> None:
    pytest.importorskip("mteb")
    from mteb.models.model_meta import _serialize_experiment_kwargs_to_name as mtebs_name

    info = variant_of("enc/model_fp16.onnx", size=32).model
    assert mteb_json.experiment_name(info) == mtebs_name(variant(info)) == "precision_float16__truncate_dim_32"


def test_a_variant_alone_has_no_revision_but_the_commit_that_was_requested() -> None:
    (name, _) = mteb_folder([variant_of("enc/model_int8.onnx")], mteb_task="STSBenchmark")
    assert name.startswith("results/calipers__enc/no_revision_available/experiments/precision_int8/")
    (name, _) = mteb_folder([variant_of("org/enc", dtype="float16", revision="a" * 40)], mteb_task="STSBenchmark")
    assert name.startswith(f"results/org__enc/{'a' * 40}/experiments/precision_float16/")


def variant_of(name: str, score: float = 82.05, size: int | None = None, **settings: str) -> Result:
    cut = {} if size is None else {"truncate_dim": size}
    backend = "onnx" if name.endswith(".onnx") else "torch"
    info = ModelInfo(backend, name, name, "cpu", f"sha256:{name}{size}", {"dtype": "float32", **settings, **cut})
    run_id = re.sub(r"\W", "-", f"run-{name}-{size}")
    return made.result(name, model=info, run_id=run_id, metrics={"cosine_spearman": score})


def write(folder: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")


# --- .eval_results of the hub -----------------------------------------------------------------------------------


def test_each_precision_is_a_file_that_the_hubs_own_package_reads() -> None:
    hub = pytest.importorskip("huggingface_hub")
    if not hasattr(hub, "parse_eval_result_entries"):
        pytest.skip("this huggingface_hub is older than .eval_results")
    runs = [variant_of("enc/model.onnx"), variant_of("enc/onnx/model_int8.onnx", 80.0), variant_of("enc", size=64)]
    files = eval_results_files(runs)
    names = ["calipers_float32.yaml", "calipers_int8.yaml", "calipers_float32_64d.yaml"]
    assert list(files) == [f".eval_results/{name}" for name in names]
    for content, value in zip(files.values(), (82.05, 80.0, 82.05), strict=True):
        rows = yaml.safe_load(content)
        (entry,) = hub.parse_eval_result_entries(rows)
        assert (entry.dataset_id, entry.task_id, entry.value) == ("mteb/stsbenchmark-sts", "default", value)
        assert entry.notes.startswith("cosine_spearman, 95% interval 80.1000 to 83.9000, 3 pairs, split test, ")
        assert hub.eval_result_entries_to_yaml([entry]) == rows
    assert "int8, ONNX, Calipers 0.1.0" in yaml.safe_load(files[".eval_results/calipers_int8.yaml"])[0]["notes"]


def test_the_command_writes_the_folder_of_the_hub(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(tmp_path / "store")
    runs = [variant_of("enc/model.onnx"), variant_of("enc/model_int8.onnx", 80.0)]
    for run in runs:
        store.save(run)
    line = ["report", *(run.run_id for run in runs), "--store", str(store.folder), "--format", "eval-results"]
    assert cli.run([*line, "-o", f"{tmp_path}/repo/"]) == 0
    files = sorted(path.name for path in (tmp_path / "repo" / ".eval_results").iterdir())
    assert files == ["calipers_float32.yaml", "calipers_int8.yaml"]
    capsys.readouterr()
    assert cli.run(line) == 2
    assert "these runs are of 2 precisions" in capsys.readouterr().err


def test_data_that_are_not_on_the_hub_are_refused_with_what_to_do() -> None:
    run = made.result(dataset=DataSource("./eval/pairs.csv"))
    with pytest.raises(RequestError, match=r"is on pairs.csv, and .eval_results names datasets .*`mteb_task`"):
        report([run], format="eval-results")
    assert "id: mteb/stsbenchmark-sts" in report([run], format="eval-results", mteb_task="STSBenchmark")
    with pytest.raises(RequestError, match="two runs of float32 measure mteb/stsbenchmark-sts, default"):
        report([made.result(), made.result(run_id="other")], format="eval-results")
    with pytest.raises(RequestError, match="of one model, and these runs are of a, b"):
        report([made.result("a"), made.result("b", run_id="other")], format="eval-results")


def test_what_cannot_be_reported_is_one_sentence() -> None:
    result = made.result()
    formats = "markdown, json, mteb, model-index, eval-results"
    with pytest.raises(RequestError, match=f"`format` must be one of {formats}, found 'pdf'"):
        report([result], format="pdf")
    with pytest.raises(RequestError, match="`mteb_task` is for the formats mteb, model-index and eval-results"):
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
