"""Quantisation from ranges that are taken once, against the quantiser of onnxruntime."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from calipers.artifacts import check, inputs
from calipers.artifacts.calibrate import Ranges, collect_ranges
from calipers.artifacts.graphs import FloatGraph, load_graph, quiet
from calipers.artifacts.inputs import Rows
from calipers.artifacts.masks import mask_nodes
from calipers.artifacts.quantize import drowned, quantize
from calipers.artifacts.recipe import Recipe, arguments
from calipers.core import RequestError
from calipers.models.onnx_session import open_graph
from tests.support import build_models as small


def feeds(rows: Rows) -> list[dict[str, np.ndarray]]:
    return [{"input_ids": b.ids, "attention_mask": b.mask, "token_type_ids": b.type_ids} for b in inputs.single(rows)]


class Reader:
    """What onnxruntime's own calibration reads."""

    def __init__(self, rows: Rows) -> None:
        self._feeds = iter(feeds(rows))

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._feeds, None)


def error(graph: FloatGraph, path: Path, rows: Rows, shape: tuple[int, int] | None = None) -> float:
    """Root mean square of the difference, as a share of the float graph's."""
    batches = check.cases(rows, shape)
    forwards = [open_graph(p).forward("logits") for p in (graph.path, path)]
    one, other = ([forward(batch) for batch in batches] for forward in forwards)
    found = check.compare(one, other, batches, against="float", bound=None)
    assert found.relative is not None
    return found.relative


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe("w8a8"),
        Recipe("w8a8", per_channel=True, symmetric=True, unsigned=True, exclude=("op:Softmax",)),
        Recipe("w8a16", ranges={"logits": (-3.0, 3.0)}),
    ],
)
def test_the_result_is_that_of_onnxruntimes_own_quantiser(
    graph: FloatGraph, rows: Rows, ranges: Ranges, tmp_path: Path, recipe: Recipe
) -> None:
    from onnxruntime.quantization import quantize_static

    ours = quantize(graph, tmp_path / "ours.onnx", recipe, ranges)
    call = arguments(recipe, graph.kinds, mask_nodes(graph))
    assert call.function.endswith("quantize_static")
    with quiet():
        quantize_static(graph.path, tmp_path / "theirs.onnx", Reader(rows), **call.keywords)
    mine, yours = onnx.load(ours.path).graph, onnx.load(tmp_path / "theirs.onnx").graph
    assert sorted(n.name for n in mine.node) == sorted(n.name for n in yours.node)
    np.testing.assert_allclose(small.logits(ours.path, rows), small.logits(tmp_path / "theirs.onnx", rows), atol=1e-6)


def test_an_excluded_node_reads_no_quantised_tensor(graph: FloatGraph, ranges: Ranges, tmp_path: Path) -> None:
    last = next(node for node in graph.nodes if "logits" in node.outputs)
    found = quantize(graph, tmp_path / "m.onnx", Recipe("w8a8", exclude=(last.name,)), ranges)
    nodes = onnx.load(found.path).graph.node
    assert found.excluded == (last.name,)
    kept = next(node for node in nodes if node.name == last.name)
    assert not [name for name in kept.output if "Quantize" in name]
    assert len(nodes) < len(onnx.load(quantize(graph, found.path, Recipe("w8a8"), ranges).path).graph.node)


def test_a_mask_stays_in_float_whatever_its_range(
    graph: FloatGraph, rows: Rows, ranges: Ranges, tmp_path: Path
) -> None:
    """−3.4e38 in the range of the scores: rounded with it, nothing is left of them."""
    recipe = Recipe("w8a8")
    masked = [name for node in graph.nodes if node.op_type == "Softmax" for name in node.inputs]
    drowning = replace(ranges, tensors={**ranges.tensors, **dict.fromkeys(masked, (-3.4e38, 1.0))})
    elsewhere = quantize(graph, tmp_path / "elsewhere.onnx", recipe, drowning, masks=())
    ours = quantize(graph, tmp_path / "ours.onnx", recipe, drowning)
    assert drowned(graph, drowning, recipe) == ""
    assert error(graph, elsewhere.path, rows) > 2 * error(graph, ours.path, rows)


def test_padding_is_left_out_of_ranges(graph: FloatGraph, rows: Rows, ranges: Ranges) -> None:
    """Of a fixed shape: what stands at padding is read by no real token."""
    padded = collect_ranges(graph, rows, Recipe("w8a8"), shape=(2, 24)).tensors
    assert not [name for name, (low, _) in padded.items() if low < -1e30]
    hidden = [name for node in graph.nodes if node.op_type == "MatMul" for name in node.outputs]
    assert hidden
    for name in hidden:
        np.testing.assert_allclose(padded[name], ranges.tensors[name], rtol=1e-4, atol=1e-5)


def test_nothing_left_to_quantise_is_said(graph: FloatGraph, ranges: Ranges, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="every node that could be is excluded"):
        quantize(graph, tmp_path / "m.onnx", Recipe("int8-dynamic", exclude=("*",)))
    with pytest.raises(RequestError, match="`exclude` 'node_x' matches no node of the graph"):
        quantize(graph, tmp_path / "m.onnx", Recipe("w8a8", exclude=("node_x",)), ranges)
    with pytest.raises(RequestError, match="w8a8 needs calibration ranges"):
        quantize(graph, tmp_path / "m.onnx", Recipe("w8a8"))


def test_a_classifiers_gemm_is_quantised_though_its_weights_shape_is_written_down(tmp_path: Path) -> None:
    """torch's exporter notes the shapes of weights, and onnxruntime's quantiser transposes those of a Gemm."""
    rng, kinds = np.random.default_rng(0), onnx.TensorProto
    weights = {"table": (9, 8), "weight": (3, 8), "bias": (3,)}
    nodes = [
        onnx.helper.make_node("Gather", ["table", "input_ids"], ["tokens"]),
        onnx.helper.make_node("ReduceMax", ["tokens", "axes"], ["pooled"], keepdims=0),
        onnx.helper.make_node("Gemm", ["pooled", "weight", "bias"], ["logits"], transB=1),
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "classifier",
        [onnx.helper.make_tensor_value_info("input_ids", kinds.INT64, ["b", "s"])],
        [onnx.helper.make_tensor_value_info("logits", kinds.FLOAT, ["b", 3])],
        [
            *(onnx.numpy_helper.from_array(rng.normal(size=n).astype(np.float32), k) for k, n in weights.items()),
            onnx.numpy_helper.from_array(np.array([1]), "axes"),
        ],
        value_info=[onnx.helper.make_tensor_value_info("weight", kinds.FLOAT, [3, 8])],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, tmp_path / "float.onnx")
    found = quantize(load_graph(tmp_path / "float.onnx"), tmp_path / "m.onnx", Recipe("int8-dynamic"))
    assert found.operators["MatMulInteger"] == 1
