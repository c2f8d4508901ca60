"""Graphs of Q/DQ pairs: chosen tensors restored to float, in a new graph or by a switch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from calipers.artifacts.graphs import FloatGraph, copy_proto, reach, replace_entries, session_of
from calipers.artifacts.inputs import at_tokens, output_name
from calipers.attribution.graph_view import GraphView, Rounded
from calipers.metrics.arrays import Floats, Vectors
from calipers.models.batching import Batch
from calipers.models.onnx_session import Graph

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

_SWITCHES = "calipers_switches"  # an input, bool[rounded tensors]


@dataclass(frozen=True)
class Weights:
    """Initializers by name, of a quantised graph and of the float graph that it was made from, where there is one."""

    quantized: Mapping[str, TensorProto]
    floats: Mapping[str, TensorProto]
    originals: Mapping[str, str]  # DequantizeLinear's output → the float weight that it stands for


def weights_of(proto: ModelProto, graph: GraphView, floats: FloatGraph | None) -> Weights:
    """Where the float graph has a node of the same name, the original is its input in the same place."""
    held = {i.name: i for i in floats.proto.graph.initializer} if floats else {}
    nodes = {node.name: node for node in floats.nodes} if floats else {}
    ends = {end for rounded in graph.rounded if rounded.weight for end in rounded.ends}
    originals: dict[str, str] = {}
    for node in proto.graph.node:
        same = nodes.get(node.name)
        if same is None or same.op_type != node.op_type or len(same.inputs) != len(node.input):
            continue
        pairs = zip(node.input, same.inputs, strict=True)
        originals |= {end: name for end, name in pairs if end in ends and name in held}
    return Weights({i.name: i for i in proto.graph.initializer}, held, originals)


def dequantize(node: NodeProto, initializers: Mapping[str, TensorProto]) -> Vectors:
    """(q − zero point) · scale, along the node's axis where there is one scale for each channel."""
    import onnx

    values = [onnx.numpy_helper.to_array(initializers[name]) for name in node.input if name]
    q, scale = values[0].astype(np.float32), values[1].astype(np.float32)
    zero = values[2].astype(np.float32) if len(values) > 2 else np.zeros_like(scale)
    if scale.ndim == 1 and scale.size > 1:
        axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
        shape = [-1 if i == axis % q.ndim else 1 for i in range(q.ndim)]
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    return np.asarray((q - zero) * scale, dtype=np.float32)


def restore(proto: ModelProto, graph: GraphView, tensors: Iterable[str], weights: Weights) -> ModelProto:
    """A copy in which these tensors are not rounded. Nodes and weights that nothing reads any more are removed."""
    import onnx

    chosen = set(tensors)
    copy = copy_proto(proto)
    plain: dict[str, str] = {}
    for rounded in graph.rounded:
        if rounded.name in chosen:
            for end in rounded.ends:
                plain[end] = _original(rounded, end, copy, weights) if rounded.weight else rounded.name
    for node in copy.graph.node:
        node.input[:] = [plain.get(name, name) for name in node.input]
    for name in [output.name for output in copy.graph.output if output.name in plain]:
        # An output of the graph keeps its name: it is copied from the tensor before rounding.
        for node in copy.graph.node:
            node.output[:] = [f"{name}_rounded" if out == name else out for out in node.output]
        copy.graph.node.append(onnx.helper.make_node("Identity", [plain[name]], [name], name=f"{name}_restored"))
    _drop_unread(copy)
    return copy


def _original(rounded: Rounded, end: str, copy: ModelProto, weights: Weights) -> str:
    """The name of the float weight behind a DequantizeLinear, added to the graph unless it is there: the original, else
    the value of the integers. The name is new: onnxruntime gives a rounded bias that of the float one."""
    import onnx

    held = {i.name for i in copy.graph.initializer}
    if rounded.name in held and end not in weights.originals:
        return rounded.name
    name = f"{weights.originals.get(end, end)}_float"
    if name not in held:
        if end in weights.originals:
            copy.graph.initializer.append(weights.floats[weights.originals[end]])
        else:
            node = next(n for n in copy.graph.node if end in n.output)
            copy.graph.initializer.append(onnx.numpy_helper.from_array(dequantize(node, weights.quantized)))
        copy.graph.initializer[-1].name = name
    return name


def _drop_unread(copy: ModelProto) -> None:
    """Remove nodes that no output depends on, then weights. Quantisers append nodes in any order."""
    made = {name: node for node in copy.graph.node for name in node.output}
    read = reach((o.name for o in copy.graph.output), lambda name: _read_by(made[name]) if name in made else ())
    replace_entries(copy.graph.node, [node for node in copy.graph.node if read.intersection(node.output)])
    replace_entries(copy.graph.initializer, [i for i in copy.graph.initializer if i.name in read])


def _read_by(node: NodeProto) -> list[str]:
    """The inputs of a node, with those of the graphs inside it."""
    inner = [name for a in node.attribute for n in a.g.node for name in _read_by(n)]
    return [*node.input, *inner]


class Switchboard:
    """A quantised graph in which every rounded tensor has a switch: one session runs any set of restored tensors.

    It runs in float between the pairs. Integer kernels round the same way but may saturate (u8·s8 on x86 without VNNI).
    """

    def __init__(self, proto: ModelProto, graph: GraphView, weights: Weights, output: str | None) -> None:
        self.names = [rounded.name for rounded in graph.rounded]
        session = session_of(_with_switches(proto, graph, weights), "the quantised graph")
        self._graph = Graph(session, "the quantised graph", extra=(_SWITCHES,))
        self.output = output_name(self._graph, output)

    def run(self, batch: Batch, restored: Iterable[str]) -> Floats:
        """The output with these tensors in float."""
        chosen = set(restored)
        switches = np.array([name in chosen for name in self.names], dtype=bool)
        values = self._graph.run(batch, [self.output], {_SWITCHES: switches})
        return np.asarray(values[self.output], dtype=np.float64)


def _with_switches(proto: ModelProto, graph: GraphView, weights: Weights) -> ModelProto:
    """A copy with a Where behind every pair, which gives the rounded tensor or the one before rounding."""
    import onnx

    copy = copy_proto(proto)
    helper = onnx.helper
    copy.graph.input.append(helper.make_tensor_value_info(_SWITCHES, onnx.TensorProto.BOOL, [len(graph.rounded)]))
    chosen: dict[str, str] = {}
    switches: dict[str, NodeProto] = {}
    nodes: list[NodeProto] = []
    for i, rounded in enumerate(graph.rounded):
        place = f"{_SWITCHES}_{i}"
        copy.graph.initializer.append(helper.make_tensor(place, onnx.TensorProto.INT64, [], [i]))
        nodes.append(helper.make_node("Gather", [_SWITCHES, place], [f"{place}_on"], name=f"{place}_gather"))
        for j, end in enumerate(rounded.ends):
            plain = _original(rounded, end, copy, weights) if rounded.weight else rounded.name
            chosen[end] = f"{place}_{j}"
            switches[end] = helper.make_node("Where", [f"{place}_on", plain, end], [chosen[end]], name=chosen[end])
    for node in copy.graph.node:
        node.input[:] = [chosen.get(name, name) for name in node.input]
        nodes += [node, *(switches[name] for name in node.output if name in switches)]
    replace_entries(copy.graph.node, nodes)
    for output in copy.graph.output:
        output.name = chosen.get(output.name, output.name)
    return copy


def damage(output: Floats, true: Floats, batch: Batch) -> float:
    """RMS of the difference at real tokens divided by the RMS of the true output; infinite where not finite."""
    a, b = at_tokens(output, batch), at_tokens(true, batch)
    if not np.isfinite(a).all():
        return float("inf")
    size = float(np.sqrt(np.square(b).mean()))
    return float(np.sqrt(np.square(a - b).mean())) / size if size > 0 else float("inf")


def suspicions(board: Switchboard, sets: Sequence[Iterable[str]], batch: Batch) -> list[float]:
    """For each set of tensors: the damage to the output when they alone are rounded and all others are in float."""
    everything = set(board.names)
    true = board.run(batch, everything)
    return [damage(board.run(batch, everything - set(chosen)), true, batch) for chosen in sets]
