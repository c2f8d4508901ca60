"""Scales moved into weights: the same float outputs, smaller outliers; and the other ways to lose less."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from calipers.artifacts.calibrate import Ranges, collect_ranges
from calipers.artifacts.graphs import FloatGraph, load_graph, save_proto
from calipers.artifacts.inputs import Rows
from calipers.artifacts.quantize import quantize
from calipers.artifacts.recipe import TARGETS, Recipe, for_target, read_recipe, write_recipe
from calipers.artifacts.smooth import choose, products, smooth
from calipers.cli import run as command
from calipers.core import RequestError, choices
from tests.support import build_models as small


def outlying(folder: Path) -> Path:
    """A table with one channel of outliers, times two weights; the second product shares the weight with a third."""
    rng = np.random.default_rng(0)
    table = rng.normal(size=(100, 16))
    table[:, 3] *= 80
    weights = {"table": table, "one": rng.normal(size=(16, 8)), "two": rng.normal(size=(8, 8))}
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["x"], name="lookup"),
        helper.make_node("MatMul", ["x", "one"], ["a"], name="first"),
        helper.make_node("MatMul", ["a", "two"], ["b"], name="second"),
        helper.make_node("MatMul", ["b", "two"], ["logits"], name="third"),
    ]
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["b", "s"])
    out = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["b", "s", 8])
    held = [numpy_helper.from_array(values.astype(np.float32), name) for name, values in weights.items()]
    graph = helper.make_graph(nodes, "g", [ids], [out], held)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), folder / "model.onnx"
    )
    return folder / "model.onnx"


def error(graph: FloatGraph, rows: Rows, recipe: Recipe, folder: Path) -> float:
    """RMS of the difference from float, as a share."""
    made = quantize(graph, folder / "m.onnx", recipe, collect_ranges(graph, rows, recipe)).path
    onnx.checker.check_model(onnx.load(made), full_check=True)
    save_proto(graph.proto, folder / "float.onnx")
    one, other = small.logits(folder / "float.onnx", rows), small.logits(made, rows)
    return float(np.sqrt(np.square(one - other).mean() / np.square(one).mean()))


def test_the_smoothed_graph_gives_the_same_bits(tmp_path: Path, rows: Rows) -> None:
    graph = load_graph(outlying(tmp_path))
    assert [p.node for p in products(graph)] == ["first", "second", "third"]
    largest = {"x": np.abs(rng_channels(16, 3)), "a": np.ones(8), "b": np.ones(8)}
    powers = choose(graph, largest, 0.5)
    assert powers["x"][3] == max(powers["x"]) > 1
    assert powers.get("a") == powers.get("b")  # one weight, one set of scales
    moved = smooth(graph, powers)
    assert smooth(moved, powers) is moved
    save_proto(moved.proto, tmp_path / "moved.onnx")
    np.testing.assert_array_equal(
        small.logits(tmp_path / "moved.onnx", rows), small.logits(tmp_path / "model.onnx", rows)
    )


def rng_channels(count: int, outlier: int) -> np.ndarray:
    values = np.ones(count)
    values[outlier] = 80
    return values


def test_an_outlying_channel_costs_less_when_it_is_smoothed(tmp_path: Path, rows: Rows) -> None:
    graph = load_graph(outlying(tmp_path))
    recipe = Recipe("w8a8", exclude=("lookup",), float_outputs=True, per_channel=True)
    plain = error(graph, rows, recipe, tmp_path)
    assert error(graph, rows, replace(recipe, smooth=0.5), tmp_path) < 0.9 * plain


def test_results_in_float_and_wide_activations_lose_less(graph: FloatGraph, rows: Rows, tmp_path: Path) -> None:
    plain = error(graph, rows, Recipe("w8a8"), tmp_path)
    assert error(graph, rows, Recipe("w8a8", float_outputs=True), tmp_path) < plain
    wide = error(graph, rows, Recipe("w8a8", wide=("op:MatMul", "op:Add")), tmp_path)
    assert wide < plain
    kinds = {t.data_type for t in onnx.load(tmp_path / "m.onnx").graph.initializer}
    assert {TensorProto.INT8, TensorProto.INT16} <= kinds  # both in one graph
    with pytest.raises(RequestError, match="`wide` 'node_x' matches no node"):
        error(graph, rows, Recipe("w8a8", wide=("node_x",)), tmp_path)


def test_a_recipe_keeps_its_scales(tmp_path: Path, graph: FloatGraph, rows: Rows, ranges: Ranges) -> None:
    taken = collect_ranges(graph, rows, Recipe("w8a8", smooth=0.5))
    recipe = Recipe("w8a8", smooth=0.5, smoothing=taken.smoothing)
    write_recipe(recipe, tmp_path / "r.yaml")
    assert read_recipe(tmp_path / "r.yaml") == recipe
    assert replace(taken, smoothing={}).tensors != ranges.tensors


def test_a_target_is_a_set_of_settings_that_flags_override(tiny_bert: Path, few_texts: Path, tmp_path: Path) -> None:
    assert tuple(TARGETS) == choices.TARGETS
    with pytest.raises(RequestError, match="`target` has no effect on the precision int4"):
        for_target("int4", "x86-avx2")
    assert for_target("int8-dynamic", "x86-avx2") == {"per_channel": True, "reduce_range": True}
    line = ["build", str(tiny_bert), "--precision", "w8a8", "--calibration", str(few_texts), "-o", str(tmp_path / "o")]
    assert command([*line, "--target", "x86-avx2", "--full-range", "--smooth", "0.5"]) == 0
    from calipers.artifacts.manifest import read_manifest

    recipe = read_manifest(tmp_path / "o").recipe
    settings = ("per_channel", "unsigned", "reduce_range", "float_outputs", "smooth")
    assert [recipe[name] for name in settings] == [True, True, False, True, 0.5]
    assert recipe["smoothing"]
