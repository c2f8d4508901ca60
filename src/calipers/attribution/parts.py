"""The parts of a text encoder, from the structure of its graph alone: no model family or exporter is assumed.

Layers are counted along the chain of attentions (Softmax or a fused operator). Between two of them the normalisations
divide the nodes: up to the first it is the attention's output, up to the second the feed-forward, then the projections
of the next attention. The embeddings come before the first attention, the head after the last layer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from calipers.artifacts.graphs import Node, reach
from calipers.attribution.graph_view import GraphView, Rounded

ATTENTION = ("Softmax", "Attention", "MultiHeadAttention", "PackedAttention", "QAttention", "GroupQueryAttention")
_NORMS = (
    *("LayerNormalization", "SkipLayerNormalization", "EmbedLayerNormalization"),
    *("SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization", "RMSNormalization"),
)
_CHUNKS = 12  # pieces of a graph without attention


@dataclass(frozen=True)
class Part:
    """Rounded tensors that belong together, and the nodes that must stay in float to restore them all."""

    role: str
    layer: int | None  # counted from 0; None where the role has no layer
    tensors: tuple[str, ...]
    nodes: tuple[str, ...]

    @property
    def name(self) -> str:
        return place_name(self.layer, self.role)


Place = tuple[int | None, str]  # layer and role


def place_name(layer: int | None, role: str) -> str:
    """
    >>> place_name(3, "feed-forward"), place_name(None, "mask")
    ('layer 3 feed-forward', 'mask')
    """
    return role if layer is None else f"layer {layer} {role}"


@dataclass(frozen=True)
class PartMap:
    """The layer and role of every node. `understood` is False for a graph without attention to count layers by."""

    places: Mapping[str, Place]  # node name → layer and role
    masked: frozenset[str]  # tensors that are scores with the mask in them, and the mask itself
    understood: bool


def locate(graph: GraphView) -> PartMap:
    """The layer and role of every node. Linear in the size of the graph."""
    hidden = _descendants(graph, _embeddings(graph))
    depth, norms = _depths(graph, hidden)
    layers = max(depth.values(), default=0)
    if not layers:
        return PartMap({}, frozenset(), understood=False)
    scores = _scores(graph, hidden)
    masked = _masked(graph, hidden, scores)
    places = {
        node.name: _place(node, depth.get(node.name, 0), norms.get(node.name, 0), layers, node.name in scores)
        if node.name in hidden
        else (None, "mask" if masked & set(node.outputs) else "embeddings")
        for node in graph.nodes
    }
    return PartMap(places, frozenset(masked), understood=True)


def group(graph: GraphView, where: PartMap) -> list[Part]:
    """Every rounded tensor in one part, in the order in which they run. A graph without attention is cut in pieces."""
    if not where.understood:
        return _chunks(graph)
    order = {node.name: i for i, node in enumerate(graph.nodes)}
    members: dict[Place, list[Rounded]] = defaultdict(list)
    for rounded in graph.rounded:
        members[_home(rounded, graph, where)].append(rounded)
    parts = [_part(role, layer, tensors) for (layer, role), tensors in members.items()]
    return sorted(parts, key=lambda part: min((order[name] for name in part.nodes), default=0))


def _part(role: str, layer: int | None, tensors: Sequence[Rounded]) -> Part:
    nodes = dict.fromkeys(name for rounded in tensors for name in rounded.owners)
    return Part(role, layer, tuple(r.name for r in tensors), tuple(nodes))


def _home(rounded: Rounded, graph: GraphView, where: PartMap) -> Place:
    """The place of its readers, if they share one: a quantised input is theirs. Else the place of its maker."""
    if rounded.name in where.masked:
        return None, "mask"
    readers = {where.places[node.name] for node in graph.readers.get(rounded.name, ()) if node.name in rounded.owners}
    if len(readers) == 1:
        place = next(iter(readers))
        if rounded.weight or rounded.name not in graph.maker or place[1] != "attention output":
            return place
    if rounded.name in graph.maker:
        return where.places[graph.maker[rounded.name].name]
    roles = {role for _, role in readers}
    return (None, roles.pop()) if len(roles) == 1 else (None, "shared weights")


def _chunks(graph: GraphView) -> list[Part]:
    """Pieces of about the same number of tensors, one behind the other."""
    size = max(1, -(-len(graph.rounded) // _CHUNKS))
    chunks = []
    for start in range(0, len(graph.rounded), size):
        piece = graph.rounded[start : start + size]
        first, last = (r.owners[0] if r.owners else r.name for r in (piece[0], piece[-1]))
        chunks.append(_part(f"nodes {first} to {last}", None, piece))
    return chunks


def _embeddings(graph: GraphView) -> list[Node]:
    """Lookups of token ids in a table of weights, or the fused operator for that."""
    lookups = _descendants(graph, [n for n in graph.nodes if set(n.inputs) & set(graph.inputs)], only_light=True)
    gathers = [n for n in graph.nodes if n.op_type in ("Gather", "GatherBlockQuantized") and n.name in lookups]
    fused = [n for n in graph.nodes if n.op_type == "EmbedLayerNormalization"]
    return [*fused, *(node for node in gathers if node.inputs[0] in graph.weights)]


_LIGHT = ("Gather", "Slice", "Cast", "Shape", "Reshape", "Unsqueeze", "Squeeze", "CumSum", "Mul", "Add", "Not", "Equal")


def _descendants(graph: GraphView, roots: Sequence[Node], *, only_light: bool = False) -> set[str]:
    """The roots and every node that reads from them, by name."""
    names = {node.name for node in roots}
    tensors = {name for node in roots for name in node.outputs}
    for node in graph.nodes:
        if not tensors.isdisjoint(node.inputs) and (not only_light or node.op_type in _LIGHT):
            names.add(node.name)
            tensors.update(node.outputs)
    return names


def _depths(graph: GraphView, hidden: set[str]) -> tuple[dict[str, int], dict[str, int]]:
    """For every hidden node: the attentions on the longest path to it, and the normalisations since the last one."""
    depth: dict[str, int] = {}
    norms: dict[str, int] = {}
    for node in graph.nodes:
        if node.name not in hidden:
            continue
        before = [graph.maker[name].name for name in node.inputs if name in graph.maker]
        before = [name for name in before if name in hidden]
        top = max((depth[name] for name in before), default=0)
        count = max((norms[name] for name in before if depth[name] == top), default=0)
        if node.op_type in ATTENTION and not _is_last(node, graph):
            top, count = top + 1, 0
        elif _is_norm(node, graph):
            count += 1
        depth[node.name], norms[node.name] = top, count
    return depth, norms


def _is_last(node: Node, graph: GraphView) -> bool:
    """A Softmax whose result is an output of the graph makes probabilities, not attention."""
    read = any(name in graph.readers for name in node.outputs)
    return not read or not set(node.outputs).isdisjoint(graph.outputs)


def _is_norm(node: Node, graph: GraphView) -> bool:
    """A normalisation, or the root of the variance where an exporter wrote it as single operators."""
    if node.op_type in _NORMS:
        return True
    if node.op_type not in ("Sqrt", "Rsqrt"):
        return False
    added = graph.maker.get(node.inputs[0])
    mean = graph.maker.get(added.inputs[0]) if added and added.op_type == "Add" else added
    return mean is not None and mean.op_type == "ReduceMean"


def _scores(graph: GraphView, hidden: set[str]) -> set[str]:
    """Nodes from the product of queries and keys up to the Softmax, itself included."""

    def onward(node: Node) -> list[Node]:
        if node.op_type in ("MatMul", "Einsum", "Gemm"):
            return []  # the product: what it reads are the projections
        makers = (graph.maker[name] for name in node.inputs if name in graph.maker)
        return [maker for maker in makers if maker.name in hidden]

    tops = [n for n in graph.nodes if n.op_type == "Softmax" and n.name in hidden and not _is_last(n, graph)]
    return {node.name for node in reach(tops, onward)}


def _masked(graph: GraphView, hidden: set[str], scores: set[str]) -> set[str]:
    """Tensors computed from the mask that are no hidden states, and the scores that the mask was added to."""
    roots = [n for n in graph.nodes if any("mask" in name.lower() for name in n.inputs if name in graph.inputs)]
    masks = _descendants(graph, roots) - hidden
    tensors = {name for node in graph.nodes if node.name in masks for name in node.outputs}
    sums = [n for n in graph.nodes if n.name in scores and n.op_type in ("Add", "Where", "Sub", "Mul")]
    return tensors | {name for node in sums if not tensors.isdisjoint(node.inputs) for name in node.outputs}


def _place(node: Node, depth: int, norms: int, layers: int, in_scores: bool) -> Place:
    if in_scores or node.op_type in ATTENTION:
        return (depth if in_scores and node.op_type != "Softmax" else depth - 1), "attention scores"
    norms -= node.op_type in _NORMS and norms > 0  # a normalisation is the end of what it normalises
    if depth == 0:
        return (None, "embeddings") if norms == 0 else (0, "attention input")
    if norms < 2:
        return depth - 1, ("attention output", "feed-forward")[norms]
    return (depth, "attention input") if depth < layers else (None, "head")
