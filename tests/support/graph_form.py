"""What other tools demand of a graph: onnx's checker with strict shape inference, and only domains that are used."""

from __future__ import annotations

from pathlib import Path

import onnx

DOMAINS = {"", "com.microsoft"}


def check_form(path: Path) -> onnx.ModelProto:
    """The graph of a file that another tool would accept."""
    proto = onnx.load(path)
    onnx.checker.check_model(proto, full_check=True)
    onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True, data_prop=True)
    used = {node.domain for node in proto.graph.node}
    assert {entry.domain for entry in proto.opset_import} == used | {""}
    assert used <= DOMAINS
    return proto


def dimensions(proto: onnx.ModelProto) -> list[list[str | int]]:
    values = (*proto.graph.input, *proto.graph.output)
    return [[d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim] for value in values]
