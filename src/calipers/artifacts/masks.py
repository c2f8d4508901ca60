"""Where a graph hides padding: the nodes that carry a mask to a softmax, which stay in float.

A mask of −3.4e38 (or −10,000) that is rounded with the scores either takes their whole scale, or, where calibration saw
no padding, is cut to the lowest score that it did see: attention then reaches the padding. All that carries a mask is
small and has no weights, so float costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from calipers.artifacts.graphs import FloatGraph, reach

if TYPE_CHECKING:
    from onnx import ModelProto

    from calipers.artifacts.graphs import Node

_HUGE = 5_000  # no score is as large; the constant of every mask is
_FEW = 65_536  # values: a constant with more of them is a weight, not a mask
# What a mask passes through unchanged in meaning: element by element, or by moving elements.
_CARRIERS = frozenset(
    {
        *("Cast", "Not", "And", "Or", "Xor", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "IsInf"),
        *("Add", "Sub", "Mul", "Div", "Neg", "Where", "Max", "Min", "Clip", "Sum", "Mean", "BitwiseAnd", "BitwiseNot"),
        *("Unsqueeze", "Squeeze", "Reshape", "Flatten", "Expand", "Tile", "Transpose", "Slice", "Split", "Concat"),
        *("Identity", "Pad", "Trilu", "CumSum", "Gather", "GatherND", "GatherElements", "ScatterND"),
    }
)
# Where a mask has done its work: what comes out is bounded by what was not masked.
_ENDS = frozenset({"Softmax", "LogSoftmax", "ReduceMax", "ReduceMin", "ReduceLogSumExp", "BiasSoftmax", "Sigmoid"})
_BY_PLACE = frozenset({"Gather", "GatherND", "GatherElements", "ScatterND"})  # their second input is places, not values


def mask_nodes(graph: FloatGraph) -> tuple[str, ...]:
    """The nodes on the ways from a mask to where it takes effect, both ends included; empty without a mask."""
    readers: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for i, name in enumerate(node.inputs):
            if name and not (i == 1 and node.op_type in _BY_PLACE):
                readers.setdefault(name, []).append(node)

    def onward(tensor: str) -> list[str]:
        return [name for node in readers.get(tensor, ()) if node.op_type in _CARRIERS for name in node.outputs]

    carried = reach(_seeds(graph.proto), onward)
    return tuple(
        node.name
        for node in graph.nodes
        if (node.op_type in _CARRIERS or node.op_type in _ENDS)
        and any(name in carried and not (i == 1 and node.op_type in _BY_PLACE) for i, name in enumerate(node.inputs))
    )


def _seeds(proto: ModelProto) -> Iterator[str]:
    """The inputs that are masks, and constants that only a mask has."""
    yield from (value.name for value in proto.graph.input if "mask" in value.name.lower())
    for name, values in _constants(proto):
        if values.size <= _FEW and values.dtype.kind == "f" and values.size and float(np.abs(values).max()) > _HUGE:
            yield name


def _constants(proto: ModelProto) -> Iterator[tuple[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]]]:
    from onnx import numpy_helper

    for tensor in proto.graph.initializer:
        if np.prod(tensor.dims, dtype=np.int64) <= _FEW:
            yield tensor.name, numpy_helper.to_array(tensor)
    for node in proto.graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
            yield node.output[0], numpy_helper.to_array(node.attribute[0].t)
