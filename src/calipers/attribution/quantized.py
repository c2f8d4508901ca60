"""A quantised graph under suspicion: its parts, the damage of each by itself, and how any of them is restored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from calipers.artifacts.calibrate import Ranges
from calipers.artifacts.graphs import FloatGraph, load_graph, read_proto, save_proto
from calipers.artifacts.inputs import output_name
from calipers.artifacts.quantize import quantize
from calipers.artifacts.recipe import Recipe
from calipers.artifacts.smooth import smooth
from calipers.attribution import divergence, parts, qdq, reasons
from calipers.attribution.graph_view import GraphView, Rounded, kind_of, view
from calipers.attribution.records import Divergence
from calipers.core import RequestError
from calipers.models.batching import Batch
from calipers.models.onnx_session import open_graph

if TYPE_CHECKING:
    from onnx import ModelProto

_WORST = 3  # tensors of a culprit whose reasons are reported
_CLEAR = 20.0  # dB: an error of a tenth of the signal

T = TypeVar("T")


@dataclass(frozen=True)
class QuantizedGraph:
    """`view` shows what is rounded: tensors between Q/DQ pairs, else whole nodes, each by its first output.

    `recipe` and `ranges` are how the graph was quantised here; without a recipe it was made elsewhere.
    """

    path: Path
    proto: ModelProto
    floats: FloatGraph
    kind: str  # see graph_view.kind_of
    view: GraphView
    where: parts.PartMap
    parts: tuple[parts.Part, ...]
    batch: Batch
    output: str | None
    recipe: Recipe | None
    ranges: Ranges | None

    @cached_property
    def weights(self) -> qdq.Weights:
        floats = smooth(self.floats, self.ranges.smoothing) if self.ranges else self.floats
        return qdq.weights_of(self.proto, self.view, floats)

    @cached_property
    def board(self) -> qdq.Switchboard:
        return qdq.Switchboard(self.proto, self.view, self.weights, self.output)

    @cached_property
    def ratios(self) -> dict[str, float | None]:
        """Signal to noise of every float tensor, in the order in which they are computed."""
        wanted = {name for node in self.view.nodes for name in node.outputs} & set(self.floats.tensors)
        true = divergence.tensors_of(self.floats.proto, wanted, self.batch, str(self.floats.path))
        rounded = divergence.tensors_of(self.proto, wanted, self.batch, str(self.path))
        return {name: divergence.sqnr(true[name], rounded[name], self.batch) for name in true if name in rounded}

    def damages(self, sets: Sequence[Iterable[str]]) -> list[float]:
        """The damage to the output from each set of tensors by itself."""
        if self.kind == "qdq":
            return qdq.suspicions(self.board, sets, self.batch)
        # Without switches: the noise of a node's output less the largest of its inputs', as shares.
        noise = {name: 10 ** (-r / 20) if r is not None else float("inf") for name, r in self.ratios.items()}
        added = {
            node.outputs[0]: noise[node.outputs[0]] - max((noise.get(i, 0.0) for i in node.inputs), default=0.0)
            for node in self.view.nodes
            if node.outputs[0] in noise
        }
        return [max((added.get(name, 0.0) for name in chosen), default=0.0) for chosen in sets]

    def by_damage(self, items: Sequence[T], sets: Sequence[Iterable[str]]) -> tuple[list[T], list[float]]:
        """The items and the damages of their sets, the largest first."""
        damages = self.damages(sets)
        order = sorted(range(len(damages)), key=lambda i: -damages[i])
        return [items[i] for i in order], [damages[i] for i in order]

    def first_divergence(self) -> list[Divergence]:
        """The first tensor that clearly differs, then the last tensor of every part up to the end."""
        ratios = {name: ratio for name, ratio in self.ratios.items() if name in self.view.maker}
        nodes = {name: self.view.maker[name].name for name in ratios}
        places = {name: parts.place_name(*self.where.places.get(node, (None, ""))) for name, node in nodes.items()}
        first = [name for name, ratio in ratios.items() if ratio is None or ratio < _CLEAR][:1]
        last = {place: name for name, place in places.items()}
        shown = dict.fromkeys((*first, *last.values()))
        finite = {name: None if r is None else max(-300.0, min(300.0, r)) for name, r in ratios.items()}
        return [Divergence(name, nodes[name], places[name], finite[name]) for name in shown]

    @property
    def restorable(self) -> bool:
        """False for a graph that was made elsewhere and has no Q/DQ pairs."""
        return self.recipe is not None or self.kind == "qdq"

    def put_back(self, tensors: frozenset[str], target: Path) -> tuple[str, ...]:
        """Write the graph with these tensors in float; returns the nodes that it keeps in float."""
        if self.recipe is not None:
            return self.requantize(self.recipe, self.ranges, tensors, target)
        save_proto(qdq.restore(self.proto, self.view, tensors, self.weights), target)
        return tuple(sorted(self.view.owners_of(tensors)))

    def requantize(
        self, recipe: Recipe, ranges: Ranges | None, tensors: frozenset[str], target: Path
    ) -> tuple[str, ...]:
        """Write the graph quantised again with the owners of these tensors in float; returns these nodes."""
        nodes = tuple(sorted(self.view.owners_of(tensors)))
        quantize(self.floats, target, recipe.excluding(nodes), ranges)
        return nodes

    def reasons_for(self, tensors: Sequence[str]) -> list[str]:
        """What the tensors with the largest damage show, worst first."""
        if self.kind != "qdq":
            return []
        order, damages = self.by_damage(tensors, [[name] for name in tensors])
        rounded = {r.name: r for r in self.view.rounded}
        worst = zip(order[:_WORST], damages, strict=False)
        chosen = [rounded[name] for name, damage in worst if damage > 0.1 * damages[0]]
        values = self._values([r.name for r in chosen if not r.weight])
        lines: list[str] = []
        for r in chosen:
            if r.weight:
                lines += reasons.of_weight(r, self.proto, self.weights)
            elif r.name in values:
                lines += reasons.of_activation(r, values[r.name], self.weights)
        return lines

    def _values(self, names: Sequence[str]) -> divergence.Arrays:
        """The tensors on real rows: of the float graph, or where it lacks the name, before the rounding."""
        floats = divergence.tensors_of(self.floats.proto, names, self.batch, str(self.floats.path))
        rest = [name for name in names if name not in floats]
        return floats | divergence.tensors_of(self.proto, rest, self.batch, str(self.path))

    def kernel_reasons(self) -> list[str]:
        """Whether integer kernels give another output than the graph as it is written."""
        if self.kind != "qdq":
            return []
        true, written = self.board.run(self.batch, self.board.names), self.board.run(self.batch, ())
        graph = open_graph(self.path)
        name = output_name(graph, self.board.output)
        real = graph.run(self.batch, [name])[name].astype(float)
        if real.shape != written.shape:
            return []
        noise = qdq.damage(written, true, self.batch)
        return reasons.of_kernels(qdq.damage(real, true, self.batch) - noise, 0.1 * noise)


def open_quantized(
    path: Path, before: Path, batch: Batch, *, output: str | None, recipe: Recipe | None, ranges: Ranges | None
) -> QuantizedGraph:
    """A graph in which nothing is quantised is a RequestError."""
    floats = load_graph(before)
    proto = read_proto(path)
    kind = kind_of(proto)
    graph = view(proto) if kind == "qdq" else _by_nodes(floats, proto, kind)
    if not graph.rounded:
        raise RequestError(f"no node of {path} is quantised: its loss cannot be attributed to any part of the graph")
    where = parts.locate(graph)
    members = tuple(parts.group(graph, where))
    return QuantizedGraph(path, proto, floats, kind, graph, where, members, batch, output, recipe, ranges)


def _by_nodes(floats: FloatGraph, proto: ModelProto, kind: str) -> GraphView:
    """Nodes of the float graph that the quantised one lacks; of half precision, every node."""
    graph = view(floats.proto)
    there = {(n.name, n.op_type) for n in proto.graph.node}
    changed = [n for n in graph.nodes if kind == "half" or (n.name, n.op_type) not in there]
    computed = set(floats.tensors)
    pieces = [Rounded(n.outputs[0], False, (n.name,)) for n in changed if n.outputs[0] in computed]
    return replace(graph, rounded=tuple(pieces))
