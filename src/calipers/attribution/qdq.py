"""Graphs of Q/DQ pairs: chosen tensors put back to float, for good or by a switch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.artifacts import Batch, FloatGraph, Graph
from calipers.artifacts.graphs import session_of
from calipers.attribution.view import Rounded, View

SWITCHES = "calipers_switches"


@dataclass(frozen=True)
class Weights:
    """Initializers by name, of a quantised graph and of the float graph that it was made from, if that is known."""

    quantized: Mapping[str, Any]
    floats: Mapping[str, Any]
    originals: Mapping[str, str]  # DequantizeLinear's output → the float weight that it stands for


def weights_of(proto: Any, graph: View, floats: FloatGraph | None) -> Weights:
    """Where the float graph has a node of the same name, what it reads in the same place is the original."""
    held = {i.name: i for i in floats.proto.graph.initializer} if floats else {}
    nodes = {node.name: node for node in floats.nodes} if floats else {}
    ends = {end for rounded in graph.rounded if rounded.weight for end in rounded.ends}
    originals: dict[str, str] = {}
    for node in proto.graph.node:
        own = nodes.get(node.name)
        if own is None or own.op_type != node.op_type or len(own.inputs) != len(node.input):
            continue
        pairs = zip(node.input, own.inputs, strict=True)
        originals |= {end: name for end, name in pairs if end in ends and name in held}
    return Weights({i.name: i for i in proto.graph.initializer}, held, originals)


def float_value(end: str, proto: Any, weights: Weights) -> Any:
    """The weight behind a DequantizeLinear as a float tensor: the original, else what the integers stand for.

    It gets a name of its own: onnxruntime calls a rounded bias what the float one was called.
    """
    import onnx

    if end in weights.originals:
        value = onnx.TensorProto()
        value.CopyFrom(weights.floats[weights.originals[end]])
    else:
        node = next(n for n in proto.graph.node if end in n.output)
        value = onnx.numpy_helper.from_array(dequantize(node, weights.quantized))
    value.name = f"{weights.originals.get(end, end)}_float"
    return value


def dequantize(node: Any, initializers: Mapping[str, Any]) -> NDArray[np.float32]:
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


def restore(proto: Any, graph: View, tensors: Iterable[str], weights: Weights) -> Any:
    """A copy in which these tensors are not rounded. What nobody reads any more is left out."""
    import onnx

    chosen = set(tensors)
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    plain: dict[str, str] = {}
    for rounded in graph.rounded:
        if rounded.name in chosen:
            for end in rounded.ends:
                plain[end] = _original(rounded, end, copy, weights) if rounded.weight else rounded.name
    for node in copy.graph.node:
        node.input[:] = [plain.get(name, name) for name in node.input]
    # An output of the graph keeps its name: it is copied from the tensor before rounding.
    for output in copy.graph.output:
        if output.name in plain:
            _rename_output(copy, output.name, plain[output.name])
    _drop_unread(copy)
    return copy


def _original(rounded: Rounded, end: str, copy: Any, weights: Weights) -> str:
    """The name of the float weight, which is put into the graph unless it is there already."""
    held = {i.name for i in copy.graph.initializer}
    if rounded.name in held and end not in weights.originals:
        return rounded.name
    value = float_value(end, copy, weights)
    if value.name not in held:
        copy.graph.initializer.append(value)
    return str(value.name)


def _rename_output(copy: Any, name: str, source: str) -> None:
    import onnx

    for node in copy.graph.node:
        node.output[:] = [f"{name}_rounded" if out == name else out for out in node.output]
    copy.graph.node.append(onnx.helper.make_node("Identity", [source], [name], name=f"{name}_restored"))


def _drop_unread(copy: Any) -> None:
    """Nodes that no output hangs on, then weights. Quantisers append nodes anywhere, so their order tells nothing."""
    made = {name: node for node in copy.graph.node for name in node.output}
    wanted: set[str] = set()
    waiting = [output.name for output in copy.graph.output]
    while waiting:
        name = waiting.pop()
        if name in wanted:
            continue
        wanted.add(name)
        if name in made:
            waiting += _read_by(made[name])
    for field, kept in (
        (copy.graph.node, [node for node in copy.graph.node if wanted.intersection(node.output)]),
        (copy.graph.initializer, [i for i in copy.graph.initializer if i.name in wanted]),
    ):
        copies = [type(entry).FromString(entry.SerializeToString()) for entry in kept]
        del field[:]
        field.extend(copies)


def _read_by(node: Any) -> list[str]:
    """With what the graphs inside it read from outside."""
    inner = [name for a in node.attribute for n in a.g.node for name in _read_by(n)]
    return [*node.input, *inner]


class Switchboard:
    """A quantised graph in which every rounded tensor has a switch: one session answers for any set of restored ones.

    It runs the graph as it is written, in float between the pairs. Kernels on integers round the same way, but for
    saturation (u8·s8 products on x86 without VNNI), which only a measurement of the real graph shows.
    """

    def __init__(self, proto: Any, graph: View, weights: Weights, output: str | None) -> None:
        self.names = [rounded.name for rounded in graph.rounded]
        self.output = output
        board = _with_switches(proto, graph, weights)
        self._graph = _Fed(session_of(board, "the quantised graph"), "the quantised graph")
        if self.output not in self._graph.outputs:
            self.output = next(iter(self._graph.outputs))

    def run(self, batch: Batch, restored: Iterable[str]) -> NDArray[np.float64]:
        """The output with these tensors in float."""
        chosen = set(restored)
        self._graph.switches = np.array([name in chosen for name in self.names], dtype=bool)
        assert self.output is not None
        return np.asarray(self._graph.run(batch, [self.output])[self.output], dtype=np.float64)


class _Fed(Graph):
    """A graph with one input more."""

    def __init__(self, session: Any, name: str) -> None:
        self.switches: NDArray[np.bool_] = np.zeros(0, dtype=bool)
        super().__init__(_Without(session), name)

    def feeds(self, batch: Batch) -> dict[str, NDArray[Any]]:
        return super().feeds(batch) | {SWITCHES: self.switches}


class _Without:
    """A session that does not tell of the switches."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def get_inputs(self) -> list[Any]:
        return [i for i in self._session.get_inputs() if i.name != SWITCHES]


def _with_switches(proto: Any, graph: View, weights: Weights) -> Any:
    """Behind every pair a Where that gives the rounded tensor or the one before it."""
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    helper = onnx.helper
    count = len(graph.rounded)
    copy.graph.input.append(helper.make_tensor_value_info(SWITCHES, onnx.TensorProto.BOOL, [count]))
    chosen: dict[str, str] = {}
    extra: dict[str, list[Any]] = {}
    first: list[Any] = []
    for i, rounded in enumerate(graph.rounded):
        place = f"{SWITCHES}_{i}"
        copy.graph.initializer.append(helper.make_tensor(place, onnx.TensorProto.INT64, [], [i]))
        first.append(helper.make_node("Gather", [SWITCHES, place], [f"{place}_on"], name=f"{place}_gather"))
        for j, end in enumerate(rounded.ends):
            plain = _original(rounded, end, copy, weights) if rounded.weight else rounded.name
            chosen[end] = f"{place}_{j}"
            extra[end] = [helper.make_node("Where", [f"{place}_on", plain, end], [chosen[end]], name=f"{place}_{j}")]
    nodes = list(first)
    for node in copy.graph.node:
        node.input[:] = [chosen.get(name, name) for name in node.input]
        nodes.append(node)
        for name in node.output:
            nodes += extra.get(name, [])
    copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del copy.graph.node[:]
    copy.graph.node.extend(copies)
    for output in copy.graph.output:
        output.name = chosen.get(output.name, output.name)
    return copy


def damage(found: NDArray[np.float64], true: NDArray[np.float64], batch: Batch) -> float:
    """Root mean square of the difference at real tokens, as a share of that of the true output. Infinite where dead."""
    real = batch.mask.astype(bool) if found.ndim == 3 and found.shape[:2] == batch.mask.shape else ...
    a, b = found[real], true[real]
    if not np.isfinite(a).all():
        return float("inf")
    size = float(np.sqrt(np.square(b).mean()))
    return float(np.sqrt(np.square(a - b).mean())) / size if size > 0 else float("inf")


def suspicions(board: Switchboard, sets: Sequence[Iterable[str]], batch: Batch) -> list[float]:
    """For each set of tensors: the damage to the output when they alone are rounded and all others are in float."""
    everything = set(board.names)
    true = board.run(batch, everything)
    return [damage(board.run(batch, everything - set(chosen)), true, batch) for chosen in sets]
