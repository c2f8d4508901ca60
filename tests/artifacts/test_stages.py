"""The stages of a build on a small real model: checked, measured, kept and reused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from calipers.artifacts import api as artifacts
from calipers.artifacts import export, stages
from calipers.artifacts.calibrate import collect_ranges
from calipers.artifacts.graphs import FloatGraph, load_graph
from calipers.artifacts.manifest import read_builds, read_manifest
from calipers.artifacts.recipe import Recipe
from calipers.artifacts.records import FILES, BuildOptions, Manifest
from calipers.core import SILENT, RequestError
from calipers.models import ModelOptions
from calipers.rendering import numbers
from calipers.runs import api
from tests.support import build_models as small
from tests.support.exporting import fix_shape

pytestmark = pytest.mark.usefixtures("known_exports")


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
    floats = found.stage("optimized")
    assert floats.speedup == 1
    for stage in found.stages:  # by processor time, against the float graph that is quantised
        assert stage.speedup == pytest.approx(floats.latency.cpu / stage.latency.cpu, abs=1e-3)
        assert found.rows()[found.stages.index(stage)]["speed"] == numbers.times(stage.speedup)
    assert found.calibration is not None
    assert found.calibration["ids"] == ["0", "1", "2", "3", "4"]
    assert found.calibration["fingerprint"].startswith("sha256:")
    assert json.loads((built / "manifest.json").read_text())["precisions"]["w8a8"]["versions"]["onnxruntime"]


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
        assert (folder / f"quantized-{precision}" / "model.onnx").samefile(folder / FILES[precision])
    assert sorted(file.name for file in folder.glob("*.onnx")) == sorted(set(FILES.values()) - {"model.onnx"})
    assert set(read_builds(folder)) == set(FILES) - {"fp32"}


def test_only_the_result_stays_unless_stages_are_to_be_kept(tiny_bert: Path, few_texts: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    built = small.run(tiny_bert, folder, "w8a8", few_texts, keep_stages=False)
    assert [path.name for path in folder.iterdir() if path.is_dir()] == []
    assert [Path(stage.path).name for stage in built.stages[1:]] == ["", "", "model_w8a8.onnx"]
    content = (folder / "manifest.json").read_text()
    assert str(tmp_path) not in content
    assert str(few_texts.parent.parent) not in content
    again = small.run(tiny_bert, folder, "w8a8", few_texts, keep_stages=False)
    assert all(stage.reused for stage in again.stages)
    kept = small.run(tiny_bert, folder, "w8a8", few_texts)
    assert all(Path(stage.path).is_file() for stage in kept.stages[1:])
    assert kept.stages[-1].sha256 == built.stages[-1].sha256


def test_the_float_graph_of_a_folder_is_not_made_again_for_another_precision(
    tiny_bert: Path, built: Path, few_texts: Path, tmp_path: Path
) -> None:
    """Without stages that are kept, too: model.onnx is the optimised one, as long as it is as it was made."""
    folder = tmp_path / "out"
    small.run(tiny_bert, folder, "fp32", few_texts, keep_stages=False)
    found = small.run(tiny_bert, folder, "w8a8", few_texts, keep_stages=False)
    assert [(stage.name, stage.reused) for stage in found.stages] == [("optimized", True), ("quantized", False)]
    assert found.stages[-1].sha256 == read_manifest(built).stages[-1].sha256
    assert all(stage.latency.rows for stage in found.stages)
    assert not [path for path in folder.iterdir() if path.is_dir()]
    (folder / "model.onnx").write_bytes((built / "exported" / "model.onnx").read_bytes())
    for options in ({}, {"optimize": False}, {"opset": 20}):
        other = small.run(tiny_bert, folder, "int4", few_texts, keep_stages=False, force=True, **options)
        assert other.stages[0].name == "torch"


def test_all_stages_of_a_table_are_timed_on_the_same_texts(
    tiny_bert: Path, built: Path, few_texts: Path, tmp_path: Path
) -> None:
    folder = small.copy_build(built, tmp_path / "out")
    (tmp_path / "long.txt").write_text("the dog runs near the house and the cat sleeps in the big old park\n" * 2)
    found = small.run(tiny_bert, folder, "int8-dynamic", tmp_path / "long.txt")
    assert [stage.reused for stage in found.stages] == [True, True, True, False]
    assert len({(stage.latency.tokens, stage.latency.rows) for stage in found.stages}) == 1


def test_a_graph_made_elsewhere_stands_for_a_stage(
    tiny_bert: Path, built: Path, few_texts: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    given = {"optimized": built / "exported" / "model.onnx"}
    found = small.run(tiny_bert, folder, "int8-dynamic", few_texts, stages=given)
    assert found.stage("optimized").notes == ("given: model.onnx",)
    assert found.stage("optimized").sha256 == found.stage("exported").sha256


def test_a_graph_alone_can_be_quantised(built: Path, few_texts: Path, tmp_path: Path) -> None:
    graph = built / "exported" / "model.onnx"
    found = small.run(Path(f"onnx:{graph}"), tmp_path / "out", "int8-dynamic", few_texts)
    assert stage_names(found) == ["exported", "optimized", "quantized"]
    assert found.stage("exported").difference is None


def test_a_change_of_the_config_makes_every_stage_anew(tmp_path: Path, few_texts: Path) -> None:
    model = small.make_bert(tmp_path / "m")
    small.run(model, tmp_path / "out", "fp32", few_texts)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "hidden_act": "relu"}))
    with pytest.raises(RequestError, match=r"holds model\.onnx of another model"):
        small.run(model, tmp_path / "out", "fp32", few_texts)
    manifest = small.run(model, tmp_path / "out", "fp32", few_texts, force=True)
    assert not any(stage.reused for stage in manifest.stages[1:])
    plain = perplexity(f"torch:{model}", few_texts)
    assert perplexity(f"onnx:{tmp_path / 'out'}", few_texts) == pytest.approx(plain, rel=1e-4)


def test_ranges_are_taken_anew_for_other_tokens_of_the_same_rows(
    tiny_bert: Path, built: Path, few_texts: Path, tmp_path: Path
) -> None:
    folder = small.copy_build(built, tmp_path / "out")
    other: dict[str, Any] = {"model_options": ModelOptions(prompt="big old street ")}
    with pytest.raises(RequestError, match=r"model_w8a8\.onnx is there already, made with other settings"):
        small.run(tiny_bert, folder, "w8a8", few_texts, **other)
    small.run(tiny_bert, folder, "w8a8", few_texts, force=True, **other)
    assert len(list((folder / "calibration").iterdir())) == 2
    again = small.run(tiny_bert, folder, "w8a8", few_texts, **other)
    assert all(stage.reused for stage in again.stages)
    assert len(list((folder / "calibration").iterdir())) == 2


def test_ranges_belong_to_the_graph_that_they_were_taken_of(
    tiny_bert: Path, graph: FloatGraph, few_texts: Path, tmp_path: Path
) -> None:
    """Three sets of weights at one path: each gets ranges of its own."""
    (tmp_path / "out").mkdir()
    path, options = tmp_path / "model.onnx", BuildOptions(calibration=str(few_texts))
    plan = artifacts.plan(str(tiny_bert), tmp_path / "out", Recipe("w8a8"), options)
    assert plan.calibration is not None
    for scale in (1.0, 1.5, 2.0):
        proto = onnx.load(graph.path)
        for tensor in proto.graph.initializer:
            if tensor.data_type == onnx.TensorProto.FLOAT and len(tensor.dims) == 2:
                values = onnx.numpy_helper.to_array(tensor)
                tensor.CopyFrom(onnx.numpy_helper.from_array(values * np.float32(scale), tensor.name))
        onnx.save(proto, path)
        one = load_graph(path)
        assert plan.ranges(one, plan.recipe, SILENT) == collect_ranges(one, plan.calibration, plan.recipe)


@pytest.mark.parametrize(("rows", "length"), [(2, None), (None, 12), (2, 12)])
def test_a_graph_whose_shape_is_fixed_in_part_can_be_built(
    rows: int | None, length: int | None, built: Path, few_texts: Path, tmp_path: Path
) -> None:
    fixed = fix_shape(built / "exported" / "model.onnx", tmp_path / "fixed", rows=rows, length=length)
    export.copy_settings(built, fixed.parent)
    manifest = small.run(fixed, tmp_path / "out", "w8a8", few_texts)
    assert stage_names(manifest) == ["exported", "optimized", "quantized"]
    result = api.evaluate(f"onnx:{tmp_path / 'out'}", task="fill-mask", dataset=str(few_texts), resamples=2)
    assert result.metrics["pseudo_perplexity"] > 1


def test_weights_beside_a_graph_are_named_after_the_result(built: Path, few_texts: Path, tmp_path: Path) -> None:
    (tmp_path / "g" / "data").mkdir(parents=True)
    export.copy_settings(built, tmp_path / "g")
    proto = onnx.load(built / "exported" / "model.onnx")
    place = {"save_as_external_data": True, "location": "data/weights.bin", "size_threshold": 100}
    onnx.save(proto, tmp_path / "g" / "model.onnx", **place)
    small.run(tmp_path / "g" / "model.onnx", tmp_path / "out", "fp32", few_texts, optimize=False)
    assert (tmp_path / "out" / "model.onnx.data").exists()
    assert perplexity(f"onnx:{tmp_path / 'out'}", few_texts) == pytest.approx(
        perplexity(f"onnx:{built / 'exported' / 'model.onnx'}", few_texts), rel=1e-5
    )
