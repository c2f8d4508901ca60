"""An ONNX graph as it would be without quantisation: its operators, and which of their tensors are rounded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from calipers.artifacts import Node, quantizable_types

QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
# Operators in which a quantised graph differs from its float graph, where it is no graph of Q/DQ pairs.
INTEGER = (
    "DynamicQuantizeLinear",
    "MatMulInteger",
    "ConvInteger",
    "MatMulNBits",
    "QLinearMatMul",
    "QGemm",
    "QAttention",
)
_SUFFIXES = ("_DequantizeLinear_Output", "_dequantized", "_quantized")


@dataclass(frozen=True)
class Rounded:
    """A tensor that is rounded to integers on its way. It is in float again when none of its owners is quantised."""

    name: str  # as the float graph calls it
    weight: bool
    owners: tuple[str, ...]  # quantised nodes that make or read it
    ends: tuple[str, ...] = ()  # what DequantizeLinear calls it, once for each
    scale: str = ""  # names of the initializers
    zero_point: str = ""


@dataclass(frozen=True)
class View:
    """The operators in the order of the file, which is that of the work; none of them quantises."""

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
        found: dict[str, list[Node]] = defaultdict(list)
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                found[name].append(node)
        return {name: tuple(nodes) for name, nodes in found.items()}

    @cached_property
    def named(self) -> Mapping[str, Node]:
        return {node.name: node for node in self.nodes}

    def restored_by(self, nodes: Iterable[str]) -> frozenset[str]:
        """The tensors that are in float when these nodes are."""
        chosen = set(nodes)
        return frozenset(r.name for r in self.rounded if chosen.issuperset(r.owners))

    def owners_of(self, tensors: Iterable[str]) -> frozenset[str]:
        """The nodes to keep in float so that these tensors are."""
        chosen = set(tensors)
        return frozenset(node for r in self.rounded if r.name in chosen for node in r.owners)


def view(proto: Any) -> View:
    """Look through the Q/DQ pairs of a graph. One without any is seen as it stands, with nothing rounded."""
    constants = {i.name for i in proto.graph.initializer}
    constants |= {n.output[0] for n in proto.graph.node if n.op_type == "Constant"}
    pairs, alias = _pairs(proto, constants)
    gone = _gone(proto, alias)
    nodes: Sequence[Node] = [
        Node(n.name, n.op_type, tuple(alias.get(name, name) for name in n.input), tuple(n.output))
        for n in proto.graph.node
        if n.op_type != "Constant" and n.output[0] not in gone
    ]
    nodes = in_order(nodes)
    inputs = tuple(i.name for i in proto.graph.input if i.name not in constants)
    outputs = tuple(alias.get(o.name, o.name) for o in proto.graph.output)
    weights = frozenset(constants | {pair.name for pair in pairs if pair.weight})
    bare = View(nodes, inputs, outputs, weights, ())
    return View(nodes, inputs, outputs, weights, tuple(_owned(bare, pairs)))


def kind_of(proto: Any) -> str:
    """How a graph is quantised: "qdq", "integer" (operators on integers, or weights in blocks), "half" or "float"."""
    kinds = {n.op_type for n in proto.graph.node}
    if kinds & set(INTEGER):  # first: a dynamically quantised graph looks its embeddings up in DequantizeLinear
        return "integer"
    if {QUANTIZE, DEQUANTIZE} & kinds:
        return "qdq"
    half = sum(i.data_type == 10 for i in proto.graph.initializer)  # TensorProto.FLOAT16
    return "half" if half else "float"


def in_order(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Each node behind those that it reads from, else as they stand: a file may have them in any order.

    >>> [n.name for n in in_order([Node("b", "Add", ("x",), ("y",)), Node("a", "Add", ("i",), ("x",))])]
    ['a', 'b']
    """
    made = {name: node for node in nodes for name in node.outputs if name}
    done: dict[int, Node] = {}
    for start in nodes:
        waiting = [start]
        while waiting:
            node = waiting[-1]
            before = [made[name] for name in node.inputs if name in made and id(made[name]) not in done]
            before = [other for other in before if other not in waiting]
            if before:
                waiting += before[:1]
            else:
                done.setdefault(id(waiting.pop()), node)
    return tuple(done.values())


@dataclass(frozen=True)
class _Pair:
    name: str
    weight: bool
    end: str
    scale: str
    zero_point: str


def _pairs(proto: Any, constants: set[str]) -> tuple[list[_Pair], dict[str, str]]:
    """Every DequantizeLinear behind a QuantizeLinear or a weight, and what its output stands for."""
    quantized = {n.output[0]: n for n in proto.graph.node if n.op_type == QUANTIZE}
    pairs: list[_Pair] = []
    alias: dict[str, str] = {}
    for node in proto.graph.node:
        if node.op_type != DEQUANTIZE:
            continue
        source, end = node.input[0], node.output[0]
        zero = node.input[2] if len(node.input) > 2 else ""
        if source in quantized:
            # a pair behind a pair (x → Q/DQ → Q/DQ) rounds the same tensor twice
            name = alias.get(quantized[source].input[0], quantized[source].input[0])
            pairs.append(_Pair(name, name in constants, end, node.input[1], zero))
        elif source in constants:
            name = _plain(source)
            pairs.append(_Pair(name, True, end, node.input[1], zero))
        else:
            continue
        alias[end] = name
    return pairs, alias


def _gone(proto: Any, alias: Mapping[str, str]) -> set[str]:
    """What the operators of pairs give: every DequantizeLinear that was looked through, and what only these read."""
    read_elsewhere = {name for n in proto.graph.node if n.output[0] not in alias for name in n.input}
    halves = {n.output[0] for n in proto.graph.node if n.op_type == QUANTIZE}
    return set(alias) | (halves - read_elsewhere)


def _plain(name: str) -> str:
    """
    >>> _plain("encoder.weight_quantized")
    'encoder.weight'
    """
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    return name


def _owned(bare: View, pairs: Sequence[_Pair]) -> Iterator[Rounded]:
    """One entry for each tensor. Owners are operators that onnxruntime quantises; where none is, all that touch it."""
    kinds = set(quantizable_types())
    by_name: dict[str, list[_Pair]] = defaultdict(list)
    for pair in pairs:
        by_name[pair.name].append(pair)
    for name, found in by_name.items():
        touching = [*([bare.maker[name]] if name in bare.maker else []), *bare.readers.get(name, ())]
        owners = [node.name for node in touching if node.op_type in kinds] or [node.name for node in touching]
        ends = tuple(pair.end for pair in found)
        yield Rounded(name, found[0].weight, tuple(dict.fromkeys(owners)), ends, found[0].scale, found[0].zero_point)
