"""A quantised graph under suspicion: its parts, how much each hurts by itself, and how any of them is put back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from calipers.artifacts import Batch, FloatGraph, Ranges, Recipe, load_graph, open_graph, quantize
from calipers.artifacts.graphs import read_proto, save_proto
from calipers.attribution import divergence, groups, qdq, reasons
from calipers.attribution.groups import Group
from calipers.attribution.records import Divergence
from calipers.attribution.view import Rounded, View, kind_of, view
from calipers.core import RequestError

_WORST = 3  # tensors of a culprit whose reasons are told


@dataclass(frozen=True)
class Scene:
    """Everything the search asks about. `put_back` writes the graph with some tensors in float and says which nodes.

    `graph` shows what is rounded: tensors between Q/DQ pairs, else whole nodes, each by its first output.
    """

    quantized: Path
    proto: Any
    floats: FloatGraph
    kind: str  # see view.kind_of
    graph: View
    where: groups.Map
    parts: tuple[Group, ...]
    batch: Batch
    output: str | None
    put_back: Callable[[frozenset[str], Path], tuple[str, ...]] | None  # None where it cannot be done

    @cached_property
    def weights(self) -> qdq.Weights:
        return qdq.weights_of(self.proto, self.graph, self.floats)

    @cached_property
    def board(self) -> qdq.Switchboard:
        return qdq.Switchboard(self.proto, self.graph, self.weights, self.output)

    @cached_property
    def ratios(self) -> dict[str, float | None]:
        """Signal to noise of every float tensor, in the order of the work."""
        names = [name for node in self.graph.nodes for name in node.outputs]
        wanted = set(names) & set(self.floats.tensors)
        true = divergence.tensors_of(self.floats.proto, wanted, self.batch, str(self.floats.path))
        found = divergence.tensors_of(self.proto, wanted, self.batch, str(self.quantized))
        return divergence.profile(true, found, self.batch)

    def damages(self, sets: Sequence[Iterable[str]]) -> list[float]:
        """How much the output suffers from each set by itself; the largest is the first suspect."""
        if self.kind == "qdq":
            return qdq.suspicions(self.board, sets, self.batch)
        added = self._noise_added()
        return [max((added.get(name, 0.0) for name in chosen), default=0.0) for chosen in sets]

    def _noise_added(self) -> dict[str, float]:
        """For graphs without switches: the noise of a node's output less the largest of its inputs', as shares."""
        noise = {name: 10 ** (-r / 20) if r is not None else float("inf") for name, r in self.ratios.items()}
        return {
            node.outputs[0]: noise.get(node.outputs[0], 0.0)
            - max((noise.get(i, 0.0) for i in node.inputs), default=0.0)
            for node in self.graph.nodes
            if node.outputs[0] in noise
        }

    def place_of(self, node: str) -> str:
        layer, role = self.where.places.get(node, (None, ""))
        return role if layer is None else f"layer {layer} {role}"

    def first_divergence(self) -> list[Divergence]:
        """The first tensor that is clearly another one, then the last tensor of every part up to the end."""
        ratios = {name: r for name, r in self.ratios.items() if name in self.graph.maker}
        first = divergence.first_below(ratios)
        last = {self.place_of(self.graph.maker[name].name): name for name in ratios}
        shown = [*([first] if first else []), *(name for name in last.values() if name != first)]
        return [
            Divergence(name, node.name, self.place_of(node.name), _finite(ratios[name]))
            for name, node in ((name, self.graph.maker[name]) for name in shown)
        ]

    def reasons_for(self, tensors: Sequence[str]) -> list[str]:
        """What can be seen of the tensors that hurt most, worst first."""
        if self.kind != "qdq":
            return []
        hurts = self.damages([[name] for name in tensors])
        order = sorted(zip(hurts, tensors, strict=True), key=lambda pair: -pair[0])[:_WORST]
        rounded = {r.name: r for r in self.graph.rounded}
        chosen = [rounded[name] for hurt, name in order if hurt > 0.1 * order[0][0]]
        values = self._values([r.name for r in chosen if not r.weight])
        return [told for r in chosen for told in self._reasons(r, values)]

    def _reasons(self, rounded: Rounded, values: Mapping[str, Any]) -> list[str]:
        if rounded.weight:
            return reasons.of_weight(rounded, self.proto, self.weights)
        return reasons.of_activation(rounded, values[rounded.name], self.weights) if rounded.name in values else []

    def _values(self, names: Sequence[str]) -> divergence.Arrays:
        """What the tensors hold on real rows: in the float graph, or where it lacks the name, before the rounding."""
        found = divergence.tensors_of(self.floats.proto, names, self.batch, str(self.floats.path))
        rest = [name for name in names if name not in found]
        return found | divergence.tensors_of(self.proto, rest, self.batch, str(self.quantized))

    def kernel_reasons(self) -> list[str]:
        """Whether integer kernels answer otherwise than the graph as it is written."""
        if self.kind != "qdq":
            return []
        everything = self.board.names
        true, written = self.board.run(self.batch, everything), self.board.run(self.batch, ())
        graph = open_graph(self.quantized)
        own = self.board.output
        name = own if own is not None and own in graph.outputs else next(iter(graph.outputs))
        real = graph.run(self.batch, [name])[name].astype(float)
        if real.shape != written.shape:
            return []
        gap = qdq.damage(real, true, self.batch) - qdq.damage(written, true, self.batch)
        return reasons.of_kernels(gap, 0.1 * qdq.damage(written, true, self.batch), vnni=reasons.has_vnni())


def _finite(ratio: float | None) -> float | None:
    return None if ratio is None else max(-300.0, min(300.0, ratio))


def open_scene(
    quantized: Path,
    before: Path,
    batch: Batch,
    *,
    output: str | None,
    recipe: Recipe | None,
    ranges: Ranges | None,
) -> Scene:
    """`recipe` and `ranges` are how the graph was quantised here; without a recipe it was made elsewhere.

    A graph in which nothing is quantised is a RequestError.
    """
    floats = load_graph(before)
    proto = read_proto(quantized)
    kind = kind_of(proto)
    graph = view(proto) if kind == "qdq" else _by_nodes(view(floats.proto), floats, proto, kind)
    if not graph.rounded:
        raise RequestError(
            f"no node of {quantized} is quantised: what it lost cannot be put down to any part of the graph"
        )
    where = groups.locate(graph)
    scene = Scene(
        quantized, proto, floats, kind, graph, where, tuple(groups.group(graph, where)), batch, output, put_back=None
    )
    return replace(scene, put_back=_putter(scene, recipe, ranges))


def _by_nodes(graph: View, floats: FloatGraph, proto: Any, kind: str) -> View:
    """Nodes of the float graph that the quantised one has no longer; of half precision, every node."""
    there = {(n.name, n.op_type) for n in proto.graph.node}
    changed = [n for n in graph.nodes if kind == "half" or (n.name, n.op_type) not in there]
    known = set(floats.tensors)
    pieces = [Rounded(n.outputs[0], False, (n.name,)) for n in changed if n.outputs[0] in known]
    return replace(graph, rounded=tuple(pieces))


def _putter(
    scene: Scene, recipe: Recipe | None, ranges: Ranges | None
) -> Callable[[frozenset[str], Path], tuple[str, ...]] | None:
    if recipe is not None:
        return lambda tensors, target: requantize(scene, recipe, ranges, tensors, target)
    if scene.kind != "qdq":
        return None

    def repair(tensors: frozenset[str], target: Path) -> tuple[str, ...]:
        save_proto(qdq.restore(scene.proto, scene.graph, tensors, scene.weights), target)
        return tuple(sorted(scene.graph.owners_of(tensors)))

    return repair


def requantize(
    scene: Scene, recipe: Recipe, ranges: Ranges | None, tensors: frozenset[str], target: Path
) -> tuple[str, ...]:
    """The graph quantised again with the owners of these tensors in float."""
    nodes = tuple(sorted(scene.graph.owners_of(tensors)))
    wanted = replace(recipe, exclude=tuple(dict.fromkeys((*recipe.exclude, *nodes))))
    quantize(scene.floats, target, wanted, ranges)
    return nodes
