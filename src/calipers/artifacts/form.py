"""The form in which graphs are saved, so that other tools accept them: nodes in the order in which they run, only the
operator domains that are used, dimensions called batch and sequence, and nothing of the machine that made them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

BATCH, SEQUENCE = "batch", "sequence"
_PREFIX = "pkg."  # of what torch's exporter notes about nodes: its modules, and traces with paths of the machine

T = TypeVar("T")


def tidy(proto: ModelProto) -> ModelProto:
    """Bring a graph into its form, in place. What it computes stays the same."""
    graph = proto.graph
    ordered = in_order(list(graph.node), _reads, lambda node: node.output)
    for node in ordered:
        _forget_origin(node)
    copies = [type(node).FromString(node.SerializeToString()) for node in ordered]
    del graph.node[:]
    graph.node.extend(copies)
    for noted in (proto, graph, *graph.value_info, *graph.input, *graph.output, *graph.initializer):
        _forget_origin(noted)
    _drop_unread(graph)
    _name_dimensions(graph)
    used = _domains(proto)
    imports = [entry for entry in proto.opset_import if _plain(entry.domain) in used]
    versions = {_plain(entry.domain): entry.version for entry in imports}
    del proto.opset_import[:]
    for domain, version in versions.items():
        proto.opset_import.add(domain=domain, version=version)
    return proto


def in_order(
    nodes: Sequence[T], inputs: Callable[[T], Iterable[str]], outputs: Callable[[T], Iterable[str]]
) -> list[T]:
    """Each node behind those that it reads from, else in the given order: a file may have any order.

    >>> in_order(["by", "ab"], lambda n: n[0], lambda n: n[1])
    ['ab', 'by']
    """
    made = {name: i for i, node in enumerate(nodes) for name in outputs(node) if name}
    done: dict[int, None] = {}
    for start in range(len(nodes)):
        waiting, entered = [start], {start}
        while waiting:
            here = waiting[-1]
            before = [made[name] for name in inputs(nodes[here]) if name in made]
            missing = next((i for i in before if i not in done and i not in entered), None)
            if missing is None:
                done.setdefault(waiting.pop())
            else:
                waiting.append(missing)
                entered.add(missing)
    return [nodes[i] for i in done]


def _reads(node: NodeProto) -> Iterator[str]:
    """The tensors that a node reads, those that only its subgraphs read among them."""
    yield from node.input
    for graph in _subgraphs(node):
        for inner in graph.node:
            yield from _reads(inner)


def _subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _drop_unread(graph: GraphProto) -> None:
    """Constants that nothing reads any more."""
    read = {name for node in graph.node for name in _reads(node)} | {value.name for value in graph.output}
    for i in reversed(range(len(graph.initializer))):
        if graph.initializer[i].name not in read:
            del graph.initializer[i]


def _forget_origin(entry: Any) -> None:
    """Remove what an exporter noted about the origin of a model, graph, node or tensor."""
    entry.ClearField("doc_string")
    kept = [note for note in entry.metadata_props if not note.key.startswith(_PREFIX)]
    if len(kept) < len(entry.metadata_props):
        del entry.metadata_props[:]
        entry.metadata_props.extend(kept)


def _domains(proto: ModelProto) -> set[str]:
    def used(nodes: Iterable[NodeProto]) -> Iterator[str]:
        for node in nodes:
            yield _plain(node.domain)
            for graph in _subgraphs(node):
                yield from used(graph.node)

    inside = {domain for function in proto.functions for domain in used(function.node)}
    return {"", *inside, *used(proto.graph.node)}


def _plain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _name_dimensions(graph: GraphProto) -> None:
    """The axes of token inputs are batch and sequence, under whatever symbols; symbols that stand for neither go."""
    names: dict[str, str] = {}
    constants = {tensor.name for tensor in graph.initializer}
    for value in graph.input:
        dimensions = value.type.tensor_type.shape.dim
        if value.name in constants or len(dimensions) != 2:
            continue
        for dimension, name in zip(dimensions, (BATCH, SEQUENCE), strict=True):
            if not dimension.HasField("dim_value"):
                if dimension.dim_param:
                    names.setdefault(dimension.dim_param, name)
                dimension.dim_param = name
    for value in (*graph.output, *graph.value_info):
        _rename(value.type.tensor_type.shape.dim, names)


def _rename(dimensions: Iterable[Any], names: Mapping[str, str]) -> None:
    for dimension in dimensions:
        if dimension.dim_param in names:
            dimension.dim_param = names[dimension.dim_param]
        elif dimension.dim_param not in ("", BATCH, SEQUENCE):
            dimension.ClearField("dim_param")
