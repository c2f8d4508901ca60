"""An ONNX graph as it would be without quantisation: its operators, and which of their tensors are rounded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from calipers.artifacts.form import in_order
from calipers.artifacts.graphs import Node
from calipers.artifacts.quantize import quantizable_types

if TYPE_CHECKING:
    from onnx import ModelProto

_QUANTIZE, _DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
# Operators in which a quantised graph without Q/DQ pairs differs from its float graph.
_INTEGER = {
    *("DynamicQuantizeLinear", "MatMulInteger", "ConvInteger", "MatMulNBits"),
    *("QLinearMatMul", "QGemm", "QAttention"),
}
_SUFFIXES = ("_DequantizeLinear_Output", "_dequantized", "_quantized")  # of a weight, behind its name in float


@dataclass(frozen=True)
class Rounded:
    """A tensor that is rounded to integers. It stays in float when none of its owners is quantised."""

    name: str  # as the float graph calls it
    weight: bool
    owners: tuple[str, ...]  # quantised nodes that compute or read it
    ends: tuple[str, ...] = ()  # its names behind each DequantizeLinear
    scale: str = ""  # names of the initializers
    zero_point: str = ""


@dataclass(frozen=True)
class GraphView:
    """The operators in the order in which they run; none of them quantises."""

    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: frozenset[str]  # constant tensors
    rounded: tuple[Rounded, ...]

    @cached_property
    def maker(self) -> Mapping[str, Node]:
        """Tensor → the node that computes it."""
        return {name: node for node in self.nodes for name in node.outputs if name}

    @cached_property
    def readers(self) -> Mapping[str, tuple[Node, ...]]:
        readers: dict[str, list[Node]] = defaultdict(list)
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                readers[name].append(node)
        return {name: tuple(nodes) for name, nodes in readers.items()}

    def restored_by(self, nodes: Iterable[str]) -> frozenset[str]:
        """The tensors that are in float when these nodes are."""
        chosen = set(nodes)
        return frozenset(r.name for r in self.rounded if chosen.issuperset(r.owners))

    def owners_of(self, tensors: Iterable[str]) -> frozenset[str]:
        """The nodes to keep in float so that these tensors are."""
        chosen = set(tensors)
        return frozenset(node for r in self.rounded if r.name in chosen for node in r.owners)


def view(proto: ModelProto) -> GraphView:
    """Look through the Q/DQ pairs of an onnx.ModelProto. A graph without pairs has no rounded tensors."""
    constants = {i.name for i in proto.graph.initializer}
    constants |= {n.output[0] for n in proto.graph.node if n.op_type == "Constant"}
    pairs, alias = _pairs(proto, constants)
    # What quantises is left out: every DequantizeLinear in a pair, and the QuantizeLinear that only these read.
    read_elsewhere = {name for n in proto.graph.node if n.output[0] not in alias for name in n.input}
    gone = alias.keys() | {n.output[0] for n in proto.graph.node if n.op_type == _QUANTIZE} - read_elsewhere
    nodes = [
        Node(n.name, n.op_type, tuple(alias.get(name, name) for name in n.input), tuple(n.output))
        for n in proto.graph.node
        if n.op_type != "Constant" and n.output[0] not in gone
    ]
    inputs = tuple(i.name for i in proto.graph.input if i.name not in constants)
    outputs = tuple(alias.get(o.name, o.name) for o in proto.graph.output)
    weights = frozenset(constants | {pair.name for pair in pairs if pair.weight})
    ordered = in_order(nodes, lambda node: node.inputs, lambda node: node.outputs)
    bare = GraphView(tuple(ordered), inputs, outputs, weights, ())
    return replace(bare, rounded=tuple(_owned(bare, pairs)))


def kind_of(proto: ModelProto) -> str:
    """How a graph is quantised: "qdq", "integer" (operators on integers, or weights in blocks), "half" or "float"."""
    kinds = {n.op_type for n in proto.graph.node}
    if kinds & _INTEGER:  # first: a dynamically quantised graph has DequantizeLinear behind its embeddings
        return "integer"
    if {_QUANTIZE, _DEQUANTIZE} & kinds:
        return "qdq"
    return "half" if any(i.data_type == 10 for i in proto.graph.initializer) else "float"  # TensorProto.FLOAT16


def _pairs(proto: ModelProto, constants: set[str]) -> tuple[list[Rounded], dict[str, str]]:
    """An entry without owners for every DequantizeLinear of a pair or weight, and the tensor its output stands for."""
    quantized = {n.output[0]: n for n in proto.graph.node if n.op_type == _QUANTIZE}
    pairs: list[Rounded] = []
    alias: dict[str, str] = {}
    for node in proto.graph.node:
        if node.op_type != _DEQUANTIZE:
            continue
        source, end = node.input[0], node.output[0]
        zero = node.input[2] if len(node.input) > 2 else ""
        if source in quantized:
            # a pair behind a pair (x → Q/DQ → Q/DQ) rounds the same tensor twice
            name = alias.get(quantized[source].input[0], quantized[source].input[0])
        elif source in constants:
            name = source
            for suffix in _SUFFIXES:
                name = name.removesuffix(suffix)
        else:
            continue
        weight = source in constants or name in constants
        pairs.append(Rounded(name, weight, (), (end,), node.input[1], zero))
        alias[end] = name
    return pairs, alias


def _owned(bare: GraphView, pairs: Sequence[Rounded]) -> Iterator[Rounded]:
    """One entry for each tensor. Owners are operators that onnxruntime quantises; without any, all that touch it."""
    kinds = set(quantizable_types())
    by_name: dict[str, list[Rounded]] = defaultdict(list)
    for pair in pairs:
        by_name[pair.name].append(pair)
    for name, same in by_name.items():
        touching = [*([bare.maker[name]] if name in bare.maker else []), *bare.readers.get(name, ())]
        owners = [node.name for node in touching if node.op_type in kinds] or [node.name for node in touching]
        ends = tuple(end for pair in same for end in pair.ends)
        yield replace(same[0], owners=tuple(dict.fromkeys(owners)), ends=ends)
