"""Rewrite an ONNX graph with a vocabulary projection so that it reads one position per row.

From the logits backwards to the projection, a MatMul with a constant, where a GatherND keeps one position. As far as
every step treats positions alike, the gathering moves upwards, to the last attention output where positions mix.
Whether the result is exact is for the caller to check. A graph with a fixed shape can be freed of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper

# Steps that treat every position alike when their other inputs are constant, or activations of the same kind.
_ELEMENTWISE = {
    "Add", "Sub", "Mul", "Div", "Pow", "Sqrt", "Erf", "Tanh", "Gelu", "Relu", "Sigmoid", "Neg", "Reciprocal", "Exp",
    "Softplus", "Cast", "Identity", "QuantizeLinear", "DequantizeLinear", "Where", "Max", "Min", "Clip",
    "FastGelu", "BiasGelu", "QuickGelu", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization",
}  # fmt: skip
_LAST_AXIS = {"LayerNormalization", "SimplifiedLayerNormalization", "RMSNormalization"}
_REDUCTIONS = {"ReduceMean", "ReduceSum", "ReduceMax"}


def read_at_position(file: Path, logits: str, positions: str) -> Iterator[tuple[str, bytes]]:
    """Rewritten graphs, the most saving first, each with the name of the place from which on one position is left."""
    model = onnx.load(file, load_external_data=False)
    if max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=0) < 12:
        return  # GatherND has no batch_dims before
    walk = _Walk(model)
    head = walk.projection(logits)
    deeper = walk.grow(*head) if head else None
    if deeper:
        yield "the last layer's attention", _rewritten(model, logits, positions, *deeper)
    if head:
        yield "the vocabulary projection", _rewritten(model, logits, positions, *head)


def free_shape(file: Path) -> bytes:
    """The graph with inputs of any shape. Whether it then runs is for the caller to try: an export may have frozen its
    shape further inside."""
    model = onnx.load(file, load_external_data=False)
    for value in (*model.graph.input, *model.graph.output):
        for axis, dimension in enumerate(value.type.tensor_type.shape.dim[:2]):
            dimension.dim_param = f"free_{axis}"
    del model.graph.value_info[:]
    return bytes(model.SerializeToString())


def coarsest(file: Path) -> str:
    """The number type of the coarsest floating-point weights in a graph."""
    kinds = {tensor.data_type for tensor in onnx.load(file, load_external_data=False).graph.initializer}
    half = {TensorProto.BFLOAT16: "bfloat16", TensorProto.FLOAT16: "float16"}
    return next((name for kind, name in half.items() if kind in kinds), "float32")


class _Walk:
    """The graph seen from its end."""

    def __init__(self, model: ModelProto) -> None:
        graph = model.graph
        self._constants = {i.name: tuple(i.dims) for i in graph.initializer}
        self._producer = {output: i for i, node in enumerate(graph.node) for output in node.output}
        self._consumers: dict[str, set[int]] = {}
        for i, node in enumerate(graph.node):
            for name in node.input:
                self._consumers.setdefault(name, set()).add(i)
        self._ends = {output.name for output in graph.output}
        self._nodes = list(graph.node)
        self._ranks = _ranks(model)
        for node in self._nodes:  # in topological order: what follows from constants alone is constant
            if node.op_type == "Constant" or (node.input and all(self.constant(name) for name in node.input)):
                self._constants |= dict.fromkeys(node.output, None)

    def constant(self, name: str) -> bool:
        return not name or name in self._constants

    def projection(self, logits: str) -> tuple[set[int], set[str]] | None:
        """The nodes from the last MatMul with a constant to the logits, and the activation that goes into it."""
        nodes: set[int] = set()
        name = logits
        while name in self._producer:
            number = self._producer[name]
            node = self._nodes[number]
            moving = self._moving(node)
            if len(moving) != 1 or (name != logits and self._used_elsewhere(node, nodes)):
                return None
            nodes.add(number)
            if node.op_type == "MatMul" and self.constant(node.input[1]):
                return (nodes, {moving[0]}) if self._ranks.get(moving[0]) == 3 else None
            if not self._alike(node):
                return None
            name = moving[0]
        return None

    def grow(self, nodes: set[int], gathered: set[str]) -> tuple[set[int], set[str]] | None:
        """Move the gathering upwards while positions are treated alike and nobody else wants what is gathered."""
        before, nodes, gathered = len(nodes), set(nodes), set(gathered)
        waiting = gathered & set(self._producer)
        while waiting:
            name = max(waiting, key=self._producer.__getitem__)
            waiting.remove(name)
            number = self._producer[name]
            node = self._nodes[number]
            if not self._alike(node) or self._used_elsewhere(node, nodes):
                continue
            moving = set(self._moving(node))
            nodes.add(number)
            gathered = (gathered - set(node.output)) | moving
            waiting = (waiting & gathered) | (moving & set(self._producer))
        return (nodes, gathered) if len(nodes) > before and all(self._ranks.get(n) == 3 for n in gathered) else None

    def _moving(self, node: NodeProto) -> list[str]:
        return [name for name in node.input if not self.constant(name)]

    def _used_elsewhere(self, node: NodeProto, nodes: set[int]) -> bool:
        return any(
            output in self._ends or not self._consumers.get(output, set()) <= nodes for output in node.output if output
        )

    def _alike(self, node: NodeProto) -> bool:
        moving = self._moving(node)
        if not moving or any(self._ranks.get(i) != 3 for i in moving):
            return False
        if node.op_type == "MatMul":
            return self.constant(node.input[1]) and len(moving) == 1
        if node.op_type in _LAST_AXIS:
            return _attribute(node, "axis", -1) in (-1, 2)
        if node.op_type in _REDUCTIONS:
            return bool(_attribute(node, "keepdims", 1))
        return node.op_type in _ELEMENTWISE and all(self._flat(i) for i in node.input if self.constant(i))

    def _flat(self, name: str) -> bool:
        """Whether a constant is the same for every position: a scalar, a row, or a table of one row."""
        shape = self._constants.get(name)
        return not name or shape is None or len(shape) < 2 or shape[-2] == 1


def _ranks(model: ModelProto) -> dict[str, int]:
    try:
        inferred = onnx.shape_inference.infer_shapes(model).graph
    except Exception:  # a graph that cannot be inferred keeps what it declares
        inferred = model.graph
    values = (*inferred.value_info, *inferred.input, *inferred.output)
    return {v.name: len(v.type.tensor_type.shape.dim) for v in values if v.type.tensor_type.HasField("shape")}


def _attribute(node: NodeProto, name: str, default: int) -> int:
    return next((a.i for a in node.attribute if a.name == name), default)


def _rewritten(model: ModelProto, logits: str, positions: str, nodes: set[int], gathered: set[str]) -> bytes:
    copy = ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    kept = {name: f"{name}__at_position" for name in gathered}
    for number in nodes:
        node = graph.node[number]
        for i, name in enumerate(node.input):
            if name in kept:
                node.input[i] = kept[name]
    first = {name: i + 1 for i, node in enumerate(graph.node) for name in node.output if name in kept}
    body = list(graph.node)
    for name in sorted(kept, key=lambda n: -first.get(n, 0)):  # from the end, so that the places stay right
        gather = helper.make_node("GatherND", [name, positions], [kept[name]], batch_dims=1)
        body.insert(first.get(name, 0), gather)
    del graph.node[:]
    graph.node.extend(body)
    del graph.value_info[:]
    graph.input.append(helper.make_tensor_value_info(positions, TensorProto.INT64, [None, 1, 1]))
    for output in graph.output:
        if output.name == logits:
            output.type.tensor_type.shape.dim[1].Clear()
            output.type.tensor_type.shape.dim[1].dim_value = 1
    return bytes(copy.SerializeToString())
