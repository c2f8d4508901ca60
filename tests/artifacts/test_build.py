"""`calipers build`: stages that are checked, kept and found again, on a small real model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calipers.artifacts import api as artifacts
from calipers.artifacts import stages
from calipers.artifacts.check import StageRefused
from calipers.artifacts.export import head_of
from calipers.artifacts.manifest import read_manifest
from calipers.artifacts.recipe import Recipe, write_recipe
from calipers.artifacts.records import BuildOptions, Manifest
from calipers.cli import run as command
from calipers.core import CalipersError, ModelError, RequestError
from calipers.models import ModelOptions
from calipers.runs import api
from tests.support import build_models as small


def stage_names(found: Manifest) -> list[str]:
    return [stage.name for stage in found.stages]


def perplexity(model: str, few_texts: Path) -> float:
    options = ModelOptions(batch_size=1)
    result = api.evaluate(model, task="fill-mask", dataset=str(few_texts), model_options=options, resamples=2)
    return result.metrics["pseudo_perplexity"]


def test_every_stage_is_there_checked_and_measured(built: Path) -> None:
    found = read_manifest(built)
    assert stage_names(found) == ["torch", "exported", "optimized", "quantized"]
    for stage in found.stages[1:]:
        assert Path(stage.path).is_file()
        assert stage.difference is not None
        assert stage.difference.cases == 19
    exported, quantized = found.stage("exported"), found.stage("quantized")
    assert exported.difference is not None
    assert exported.difference.largest is not None
    assert exported.difference.largest < 1e-4
    assert quantized.size < exported.size
    assert all(0 < stage.latency.p50 <= stage.latency.p95 for stage in found.stages)
    assert found.calibration is not None
    assert found.calibration["ids"] == ["0", "1", "2", "3", "4"]
    assert found.calibration["fingerprint"].startswith("sha256:")
    assert json.loads((built / "manifest.json").read_text())["versions"]["onnxruntime"]


def test_the_stages_are_measured_like_the_model_that_they_are_made_of(
    tiny_bert: Path, built: Path, few_texts: Path
) -> None:
    plain = perplexity(f"torch:{tiny_bert}", few_texts)
    assert perplexity(f"onnx:{built}/exported/model.onnx", few_texts) == pytest.approx(plain, rel=1e-5)
    assert perplexity(f"onnx:{built}/optimized/model.onnx", few_texts) == pytest.approx(plain, rel=1e-5)
    assert perplexity(f"onnx:{built}", few_texts) == pytest.approx(plain, rel=0.2)


def test_a_finished_build_is_found_again_without_loading_the_model(
    tiny_bert: Path, built: Path, few_texts: Path
) -> None:
    plan = artifacts.plan(str(tiny_bert), built, Recipe("w8a8"), BuildOptions(calibration=str(few_texts)))

    def fail() -> None:
        raise AssertionError("the model was loaded")

    again = stages.make(replace(plan, source=replace(plan.source, load=fail)))
    assert all(stage.reused for stage in again.stages)


def test_another_precision_makes_only_its_own_stage(
    tiny_bert: Path, built: Path, few_texts: Path, tmp_path: Path
) -> None:
    folder = small.copy_build(built, tmp_path / "out")
    for precision in ("int8-dynamic", "w8a16", "int4", "fp16"):
        found = small.run(tiny_bert, folder, precision, few_texts)
        assert [stage.reused for stage in found.stages] == [True, True, True, False], precision
        assert (folder / f"quantized-{precision}" / "model.onnx").samefile(folder / "model.onnx")


def test_what_a_killed_build_left_is_not_taken_for_a_stage(
    tiny_bert: Path, built: Path, few_texts: Path, tmp_path: Path
) -> None:
    folder = small.copy_build(built, tmp_path / "out")
    half = folder / ".optimized.123.part"
    half.mkdir()
    (half / "model.onnx").write_bytes(b"half")
    cut = folder / "optimized" / "model.onnx"
    cut.write_bytes(cut.read_bytes()[:1000])
    found = small.run(tiny_bert, folder, "w8a8", few_texts)
    assert not half.exists()
    assert [stage.reused for stage in found.stages] == [True, True, False, True]


def test_a_build_that_fails_leaves_no_stage(tiny_bert: Path, few_texts: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(b"nothing")
    with pytest.raises(ModelError, match=r"bad\.onnx"):
        small.run(tiny_bert, tmp_path / "out", "fp32", few_texts, stages={"exported": bad})
    assert not (tmp_path / "out" / "exported").exists()
    assert not (tmp_path / "out" / "model.onnx").exists()


def test_an_export_from_a_mask_of_ones_is_refused_with_the_figures(
    tiny_bert: Path, few_texts: Path, tmp_path: Path
) -> None:
    bad = small.careless_export(tiny_bert, tmp_path / "bad.onnx", mask_of_ones=True)
    with pytest.raises(StageRefused, match=r"exported graph is refused.*padded.*attention mask") as caught:
        small.run(tiny_bert, tmp_path / "out", "fp32", few_texts, stages={"exported": bad})
    found = caught.value.difference
    assert found.is_padded
    assert found.padded is not None
    assert found.unpadded is not None
    assert found.padded > 1e-3 > 1e-4 > found.unpadded
    assert not (tmp_path / "out" / "exported").exists()
    kept = small.run(
        tiny_bert,
        tmp_path / "out",
        "fp32",
        few_texts,
        stages={"exported": bad},
        accept_differences=True,
        optimize=False,
    )
    assert "attention mask" in " ".join(kept.stage("exported").notes)


def test_dropout_that_was_left_on_is_refused(tiny_bert: Path, built: Path, few_texts: Path, tmp_path: Path) -> None:
    """onnxruntime's own optimisation takes such a dropout out, so the graph is also run as it stands."""
    bad = small.with_dropout(built / "exported" / "model.onnx", tmp_path / "bad.onnx")
    with pytest.raises(StageRefused, match="exported graph is refused") as caught:
        small.run(tiny_bert, tmp_path / "out", "fp32", few_texts, stages={"exported": bad})
    assert caught.value.difference.as_it_stands


@pytest.mark.slow
def test_dropout_that_an_export_left_on_is_refused(tiny_bert: Path, few_texts: Path, tmp_path: Path) -> None:
    bad = small.careless_export(tiny_bert, tmp_path / "bad.onnx", training=True)
    with pytest.raises(StageRefused, match="exported graph is refused"):
        small.run(tiny_bert, tmp_path / "out", "fp32", few_texts, stages={"exported": bad})


def test_a_graph_made_elsewhere_stands_for_a_stage(
    tiny_bert: Path, built: Path, few_texts: Path, tmp_path: Path
) -> None:
    folder = small.copy_build(built, tmp_path / "out")
    given = {"optimized": built / "exported" / "model.onnx"}
    found = small.run(tiny_bert, folder, "int8-dynamic", few_texts, stages=given)
    assert found.stage("optimized").notes == (f"given: {given['optimized']}",)
    assert found.stage("optimized").sha256 == found.stage("exported").sha256


def test_a_graph_alone_can_be_quantised(built: Path, few_texts: Path, tmp_path: Path) -> None:
    graph = built / "exported" / "model.onnx"
    found = small.run(Path(f"onnx:{graph}"), tmp_path / "out", "int8-dynamic", few_texts)
    assert stage_names(found) == ["exported", "optimized", "quantized"]
    assert found.stage("exported").difference is None


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (["--precision", "w8a8", "--static-shape", "512"], "--static-shape must be ROWSxLENGTH"),
        (["--precision", "fp32", "--static-shape", "1x900"], "the model takes 2 to 64 tokens"),
        (["--precision", "fp32", "--opset", "9"], "--opset must be 18 to 23"),
        (["--precision", "int4", "--per-channel"], "--per-channel does not apply to the precision int4"),
        (
            ["--precision", "fp32", "--stage", "best=x.onnx"],
            "--stage must be among exported, optimized, quantized",
        ),
        (["--precision", "fp32", "--stage", "exported=none.onnx"], "there is no such file"),
        (["--precision", "fp32", "--pooled", "--task", "fill-mask"], "--pooled is for encoders"),
        (["--precision", "fp32", "--ep", "qnn"], "QNNExecutionProvider is not in this build"),
        ([], "--precision is missing"),
    ],
)
def test_a_wrong_request_is_one_sentence(
    tiny_bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], line: list[str], expected: str
) -> None:
    assert command(["build", str(tiny_bert), "-o", str(tmp_path / "out"), *line]) == 2
    assert expected in capsys.readouterr().err


def test_a_folder_of_other_things_is_left_alone(tiny_bert: Path, few_texts: Path, tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("mine")
    with pytest.raises(RequestError, match="was not made by a build"):
        small.run(tiny_bert, tmp_path, "fp32", few_texts)


def test_the_command_prints_a_line_for_each_stage(
    tiny_bert: Path, built: Path, few_texts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["build", str(tiny_bert), "--precision", "w8a8", "--calibration", str(few_texts), "-o", str(built)]
    assert command(line) == 0
    shown = capsys.readouterr().out
    assert "nothing: every stage was there" in shown
    assert [word in shown for word in ("torch", "exported", "optimized", "quantized")] == [True] * 4
    assert command([*line, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["precision"] == "w8a8"


def test_architectures_without_a_head_of_ours_are_named() -> None:
    with pytest.raises(CalipersError, match="T5ForConditionalGeneration cannot be built"):
        head_of("T5ForConditionalGeneration")


def test_a_recipe_file_is_what_the_flags_are(tiny_bert: Path, built: Path, few_texts: Path, tmp_path: Path) -> None:
    folder = small.copy_build(built, tmp_path / "out")
    file = tmp_path / "recipe.yaml"
    write_recipe(Recipe("w8a8", exclude=("op:Softmax",)), file)
    line = ["build", str(tiny_bert), "--recipe", str(file), "--calibration", str(few_texts), "-o", str(folder)]
    assert command(line) == 0
    found = read_manifest(folder)
    assert found.recipe["exclude"] == ["op:Softmax"]
    assert "1 nodes kept in float" in " ".join(found.stage("quantized").notes)
    assert len(list((folder / "calibration").iterdir())) == 1  # the ranges were found again


def test_zero_texts_are_refused(tiny_bert: Path, few_texts: Path, tmp_path: Path) -> None:
    plan = artifacts.plan(str(tiny_bert), tmp_path, Recipe("fp32"))
    with pytest.raises(RequestError, match="at least one real text"):
        replace(plan, rows=plan.rows.take(0))
    assert np.all([len(row.ids) for row in plan.rows.tokens])


def test_ranges_come_from_rows_that_are_not_measured_where_there_are_any(tiny_bert: Path, few_texts: Path) -> None:
    def ids(excluded: set[str]) -> set[str]:
        options = BuildOptions(calibration=str(few_texts), excluded_ids=frozenset(excluded))
        plan = artifacts.plan(str(tiny_bert), few_texts.parent / "unused", Recipe("w8a8"), options)
        assert plan.calibration is not None
        return set(plan.calibration.ids)

    assert ids({"1", "3"}) == {"0", "2", "4"}
    assert ids({"0", "1", "2", "3", "4"}) == {"0", "1", "2", "3", "4"}


def test_a_build_that_is_repeated_leaves_nothing_beside_its_result(
    tiny_bert: Path, built: Path, few_texts: Path, tmp_path: Path
) -> None:
    folder = small.copy_build(built, tmp_path / "out")
    for _ in range(2):
        small.run(tiny_bert, folder, "w8a8", few_texts)
    assert list(folder.glob(".*.part")) == []
