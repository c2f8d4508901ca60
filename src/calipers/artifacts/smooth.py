"""SmoothQuant: scales moved from the channels of an activation into the weights that it is multiplied with.

X·W = (X / s)·(s·W) for any scale of each channel. A channel with outliers takes the whole range of an activation; moved
in part into the weights, which have a scale for each column, it does not (Xiao et al., 2023). Scales are powers of two,
so that float arithmetic gives the same bits with and without them, and a recipe can name them as whole numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from calipers.artifacts.graphs import FloatGraph, Node, copy_proto
from calipers.metrics.arrays import Floats, Vectors

Smoothing = Mapping[str, tuple[int, ...]]  # activation → for each of its channels, the power of two that leaves it

_SUFFIX = "_smooth"
_MOST = 6  # powers of two that a channel is moved by


@dataclass(frozen=True)
class MatrixProduct:
    """A product of an activation with a constant matrix [channels, columns]."""

    node: str
    activation: str
    weight: str


def products(graph: FloatGraph) -> list[MatrixProduct]:
    matrices = {t.name for t in graph.proto.graph.initializer if len(t.dims) == 2 and t.data_type == 1}
    computed = set(graph.tensors)
    return [
        MatrixProduct(node.name, node.inputs[0], node.inputs[1])
        for node in graph.nodes
        if node.op_type == "MatMul" and node.inputs[0] in computed and node.inputs[1] in matrices
    ]


def choose(graph: FloatGraph, largest: Mapping[str, Vectors], alpha: float) -> dict[str, tuple[int, ...]]:
    """The powers of two by s = max|X|^α / max|W|^(1−α), for each activation whose channels' `largest` values are known.

    Activations that share a weight share its scales: a weight that several layers use stays one weight.
    """
    weights = {t.name: t for t in graph.proto.graph.initializer}
    scales: dict[str, tuple[int, ...]] = {}
    for group in _groups(products(graph)):
        names = {product.activation for product in group}
        if not names <= largest.keys():
            continue
        activation = np.max([largest[name] for name in names], axis=0).astype(np.float64)
        matrix = np.max([_rows(weights[name]) for name in {product.weight for product in group}], axis=0)
        scales |= dict.fromkeys(names, _powers(activation, matrix, alpha))
    return {name: powers for name, powers in scales.items() if any(powers)}


def _powers(activation: Floats, matrix: Floats, alpha: float) -> tuple[int, ...]:
    """
    >>> _powers(np.array([1.0, 1.0, 64.0]), np.array([1.0, 1.0, 1.0]), 0.5)
    (-1, -1, 2)
    """
    tiny = 1e-5
    logs = alpha * np.log2(np.maximum(activation, tiny)) - (1 - alpha) * np.log2(np.maximum(matrix, tiny))
    return tuple(int(n) for n in np.clip(np.rint(logs - logs.mean()), -_MOST, _MOST))


def _rows(tensor: object) -> Floats:
    from onnx import numpy_helper

    return np.asarray(np.abs(numpy_helper.to_array(tensor)).max(axis=1), dtype=np.float64)  # type: ignore[arg-type]


def _groups(members: Sequence[MatrixProduct]) -> list[list[MatrixProduct]]:
    """Products that are connected by a common activation or weight."""
    groups: list[tuple[set[str], list[MatrixProduct]]] = []
    for product in members:
        names, group = {product.activation, product.weight}, [product]
        apart = []
        for others, content in groups:
            if others & names:
                names, group = names | others, [*content, *group]
            else:
                apart.append((others, content))
        groups = [*apart, (names, group)]
    return [group for _, group in groups]


def smooth(graph: FloatGraph, smoothing: Smoothing) -> FloatGraph:
    """The graph with the scales moved: the same outputs, by one multiplication for each activation more. A graph that
    is smoothed already stays as it is."""
    from onnx import TensorProto, helper, numpy_helper

    chosen = [p for p in products(graph) if p.activation in smoothing]
    if not chosen:
        return graph
    proto = copy_proto(graph.proto)
    nodes = {node.name: node for node in proto.graph.node}
    weights = {tensor.name: tensor for tensor in proto.graph.initializer}
    for name in {p.weight: p for p in chosen}:
        powers = smoothing[next(p.activation for p in chosen if p.weight == name)]
        values = np.ldexp(numpy_helper.to_array(weights[name]), np.array(powers)[:, None]).astype(np.float32)
        weights[name].CopyFrom(numpy_helper.from_array(values, name))
    added = []
    for name in dict.fromkeys(p.activation for p in chosen):
        scale = np.ldexp(np.float32(1), -np.array(smoothing[name])).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(scale, f"{name}{_SUFFIX}_factor"))
        added.append(
            helper.make_node("Mul", [name, f"{name}{_SUFFIX}_factor"], [f"{name}{_SUFFIX}"], name=f"{name}{_SUFFIX}")
        )
        proto.graph.value_info.append(helper.make_tensor_value_info(f"{name}{_SUFFIX}", TensorProto.FLOAT, None))
    for product in chosen:
        nodes[product.node].input[0] = f"{product.activation}{_SUFFIX}"
    proto.graph.node.extend(added)
    listed = tuple(Node(n.name, n.op_type, tuple(n.input), tuple(n.output)) for n in proto.graph.node)
    tensors = (*graph.tensors, *(node.output[0] for node in added))
    return replace(graph, proto=proto, nodes=listed, tensors=tensors)


def smooth_nodes(graph: FloatGraph) -> tuple[str, ...]:
    """The multiplications that `smooth` added, which stay in float."""
    return tuple(node.name for node in graph.nodes if node.op_type == "Mul" and node.name.endswith(_SUFFIX))
