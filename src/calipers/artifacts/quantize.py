"""A float graph to a quantised one, by onnxruntime's quantiser, from ranges that are already taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calipers.artifacts.calibrate import Ranges
from calipers.artifacts.graphs import FloatGraph, copy_proto, quiet, save_proto
from calipers.artifacts.masks import mask_nodes
from calipers.artifacts.recipe import Recipe, arguments
from calipers.artifacts.smooth import smooth, smooth_nodes
from calipers.core import ModelError, RequestError, name_some
from calipers.models.tokenizer_files import first_line

if TYPE_CHECKING:
    from onnx import ModelProto

Keywords = dict[str, Any]  # of a Call

# Operators that a quantised graph has and its float graph lacks.
QUANTISED = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "MatMulNBits")
_HUGE = 1e30  # no activation is as large; a mask of −3.4e38 is


@dataclass(frozen=True)
class Quantized:
    """A quantised graph, what was done to it and what was left out."""

    path: Path
    operators: Mapping[str, int]  # quantising operators in it, counted
    excluded: tuple[str, ...]  # nodes kept in float by the recipe


def quantize(
    graph: FloatGraph,
    target: Path,
    recipe: Recipe,
    ranges: Ranges | None = None,
    *,
    masks: Sequence[str] | None = None,
) -> Quantized:
    """Write the quantised graph to `target`. `graph` and `ranges` can be used again, with another recipe.

    The `ranges` of the recipe replace these. What carries an attention mask stays in float where ranges are fixed: see
    `artifacts/masks.py`. `masks` are these nodes, where they are not to be located here.
    """
    masks = mask_nodes(graph) if masks is None else masks
    if ranges is not None and ranges.smoothing:
        graph = smooth(graph, ranges.smoothing)
        masks = (*masks, *smooth_nodes(graph))
    if recipe.needs_ranges and ranges is None:
        raise RequestError(f"{recipe.precision} needs calibration ranges")
    keywords = dict(arguments(recipe, graph.kinds, masks).keywords)
    if (recipe.precision == "w8a16" or recipe.wide) and graph.opset < 21:
        # ONNX has 16-bit quantisation from opset 21 on, onnxruntime its own operators for it before.
        keywords["extra_options"]["UseQDQContribOps"] = True
    if recipe.calibrated and ranges and (missing := [name for name in graph.tensors if name not in ranges.tensors]):
        raise RequestError(
            f"the recipe has no range of {name_some(missing)}: it was made for another graph (other options or "
            "weights); without its ranges and calibrated they are taken anew"
        )
    wide = _wide_tensors(graph, recipe)
    try:
        with quiet():
            proto = _quantized(copy_proto(graph.proto), recipe, keywords, ranges, wide)
    except Exception as error:  # the quantisers raise ValueError, RuntimeError, AssertionError, KeyError …
        raise ModelError(
            f"onnxruntime cannot quantise {graph.path} to {recipe.precision}: {first_line(error)}"
        ) from error
    kinds = [node.op_type for node in proto.graph.node]
    operators = {name: kinds.count(name) for name in QUANTISED if name in kinds}
    if not operators and recipe.precision != "fp16":
        raise RequestError(
            f"nothing of {graph.path} was quantised to {recipe.precision}: "
            + ("every node that could be is excluded" if recipe.exclude else "it has no node that could be")
        )
    save_proto(proto, target)
    return Quantized(target, operators, tuple(recipe.excluded(graph.kinds)))


def drowned(graph: FloatGraph, ranges: Ranges, recipe: Recipe) -> str:
    """A warning where the constant of a mask takes the whole scale of a quantised tensor; else ""."""
    huge = [name for name, ends in ranges.tensors.items() if max(map(abs, ends)) > _HUGE and name not in recipe.ranges]
    types, kept = recipe.op_types or quantizable_types(), {*recipe.excluded(graph.kinds), *mask_nodes(graph)}
    kinds = dict(graph.kinds)
    nodes = [name for name in graph.touching(huge) if kinds[name] in types and name not in kept]
    if not nodes:
        return ""
    return f"the tensors of {name_some(nodes)} have the range of a mask, ±1e30 and more: exclude these nodes"


def _quantized(
    proto: ModelProto, recipe: Recipe, keywords: Keywords, ranges: Ranges | None, wide: Sequence[str]
) -> ModelProto:
    precision = recipe.precision
    if precision == "fp16":
        from onnxruntime.transformers.float16 import convert_float_to_float16

        half: ModelProto = convert_float_to_float16(proto, **keywords)
        return half
    if precision == "int4":
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

        _split_products(proto)
        quantizer = MatMulNBitsQuantizer(proto, **keywords)
        quantizer.process()
    else:
        quantizer = (
            _dynamic(proto, keywords) if precision == "int8-dynamic" else _static(proto, recipe, keywords, ranges, wide)
        )
        quantizer.quantize_model()
    quantized: ModelProto = quantizer.model.model
    return quantized


def _split_products(proto: ModelProto) -> None:
    """Gemm as MatMul and Add, where it is all that there is: a fixed shape lets onnxruntime fuse them, and blocks of 4
    bits are for MatMul only."""
    from onnx import helper, numpy_helper

    held = {tensor.name: tensor for tensor in proto.graph.initializer}
    if any(node.op_type == "MatMul" and node.input[1] in held for node in proto.graph.node):
        return
    for node in [n for n in proto.graph.node if n.op_type == "Gemm" and n.input[1] in held]:
        settings = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        if settings.get("alpha", 1.0) != 1 or settings.get("beta", 1.0) != 1 or settings.get("transA", 0):
            continue
        data, weight, *bias = node.input
        if settings.get("transB", 0):
            values = numpy_helper.to_array(held[weight]).T.copy()
            weight = f"{node.name}_weight"
            proto.graph.initializer.append(numpy_helper.from_array(values, weight))
        name, out = node.name, node.output[0]
        product = f"{out}_product" if bias else out
        node.CopyFrom(helper.make_node("MatMul", [data, weight], [product], name=name))
        if bias:
            proto.graph.node.append(helper.make_node("Add", [product, *bias], [out], name=f"{name}_bias"))


def _dynamic(proto: ModelProto, keywords: Keywords) -> Any:
    from onnxruntime.quantization import QuantType
    from onnxruntime.quantization.onnx_quantizer import ONNXQuantizer
    from onnxruntime.quantization.quant_utils import QuantizationMode
    from onnxruntime.quantization.registry import IntegerOpsRegistry

    return ONNXQuantizer(
        proto,
        keywords["per_channel"],
        keywords["reduce_range"],
        QuantizationMode.IntegerOps,
        False,
        QuantType.QInt8,
        QuantType.QUInt8,  # the only one for dynamic activations
        None,
        [],
        keywords["nodes_to_exclude"],
        keywords["op_types_to_quantize"] or list(IntegerOpsRegistry),
        {"MatMulConstBOnly": True},
    )


def _wide_tensors(graph: FloatGraph, recipe: Recipe) -> list[str]:
    """The activations that the `wide` nodes compute and read."""
    nodes, computed = set(recipe.widened(graph.kinds)), set(graph.tensors)
    names = [name for node in graph.nodes if node.name in nodes for name in (*node.inputs, *node.outputs)]
    return [name for name in dict.fromkeys(names) if name in computed]


def _wider(recipe: Recipe) -> Any:
    from onnxruntime.quantization import QuantType

    return QuantType.QUInt16 if recipe.unsigned else QuantType.QInt16


def _static(proto: ModelProto, recipe: Recipe, keywords: Keywords, ranges: Ranges | None, wide: Sequence[str]) -> Any:
    import numpy as np
    from onnxruntime.quantization.calibrate import CalibrationMethod, TensorData, TensorsData
    from onnxruntime.quantization.qdq_quantizer import QDQQuantizer

    assert ranges is not None
    tensors = {
        name: TensorData(lowest=np.array(low, np.float32), highest=np.array(high, np.float32))
        for name, (low, high) in {**ranges.tensors, **recipe.ranges}.items()
    }
    extra = {name: value for name, value in keywords["extra_options"].items() if name != "TensorQuantOverrides"}
    if wide:
        extra["TensorQuantOverrides"] = {name: [{"quant_type": _wider(recipe)}] for name in wide}
    return QDQQuantizer(
        proto,
        keywords["per_channel"],
        keywords["reduce_range"],
        keywords["weight_type"],
        keywords["activation_type"],
        TensorsData(CalibrationMethod.MinMax, tensors),  # the method is not used once ranges are taken
        [],
        keywords["nodes_to_exclude"],
        keywords["op_types_to_quantize"] or quantizable_types(),
        extra,
    )


def quantizable_types() -> list[str]:
    """The operators that onnxruntime's static quantiser quantises by default."""
    from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry

    return sorted({*QLinearOpsRegistry, *QDQRegistry})
