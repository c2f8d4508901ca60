"""The token embeddings inside an ONNX graph with a head: what its trunk ends with, before the head's first weights.

A trunk ends with a residual sum: it adds tensors that differ in how many weights they have passed. Behind the last one
stand at most a normalisation and what selects or masks tokens, then the weights of the head. Which of these tensors is
[batch, length, d] is for the caller to see in a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import onnx
from onnx import GraphProto, NodeProto, helper

_PRODUCTS = ("MatMul", "Gemm", "Conv", "Einsum", "Attention")  # words in the names of operators that apply weights
_SUMS = ("Add", "Sum", "QLinearAdd")


def find_states(file: Path, head: Sequence[str]) -> list[str]:
    """Tensors that may be the token embeddings, the likeliest first; `head` are the graph's outputs."""
    graph = onnx.load(file, load_external_data=False).graph
    needed = _ancestors(graph, head)
    depth = _depths(graph)
    sums = [i for i in sorted(needed) if _is_residual(graph.node[i], depth)]
    if not sums:
        return []
    last = graph.node[sums[-1]]
    reached, behind = set(last.output), [last]
    for i in sorted(needed):
        node = graph.node[i]
        if i > sums[-1] and reached.intersection(node.input) and depth[node.output[0]] == depth[last.output[0]]:
            reached.update(node.output)
            behind.append(node)
    behind.sort(key=lambda node: node.op_type != "DequantizeLinear")  # a rounded copy of what stands before it
    return [name for node in reversed(behind) for name in node.output[:1]]


def with_outputs(file: Path, names: Iterable[str]) -> bytes:
    """The graph with these tensors as its outputs and no others."""
    model = onnx.load(file, load_external_data=False)
    del model.graph.output[:]
    model.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    return bytes(model.SerializeToString())


def _ancestors(graph: GraphProto, outputs: Sequence[str]) -> set[int]:
    """The nodes that the outputs depend on. Nodes are in topological order, as ONNX demands."""
    wanted, nodes = set(outputs), set()
    for i in range(len(graph.node) - 1, -1, -1):
        if wanted.intersection(graph.node[i].output):
            nodes.add(i)
            wanted.update(graph.node[i].input)
    return nodes


def _depths(graph: GraphProto) -> dict[str, int]:
    """How many weights each tensor has passed, at most; constants are left out."""
    depths = {value.name: 0 for value in graph.input} | {"": 0}
    for constant in graph.initializer:
        depths.pop(constant.name, None)
    for node in graph.node:
        moving = [depths[name] for name in node.input if name and name in depths]
        if moving:
            weighs = any(word in node.op_type for word in _PRODUCTS) and len(moving) < sum(map(bool, node.input))
            depths |= dict.fromkeys(node.output, max(moving) + weighs)
    return depths


def _is_residual(node: NodeProto, depth: dict[str, int]) -> bool:
    if node.op_type.startswith("Skip"):  # onnxruntime's fusion of a sum and a normalisation
        return True
    return node.op_type in _SUMS and len({depth[name] for name in node.input if name in depth}) > 1
