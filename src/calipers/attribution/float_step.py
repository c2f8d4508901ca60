"""A float stage that is not the same model as the stage before it: where the two part, and what can be seen there."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from calipers.artifacts import Batch, load_graph
from calipers.attribution import divergence, groups, reasons
from calipers.attribution.records import Culprit, Divergence
from calipers.attribution.view import view

Forward = Callable[[Batch], Any]

# Words in the path of a PyTorch module, and the role that they mean; the first that fits.
_ROLES = (
    (r"(^|\.)(pooler|cls|lm_head|classifier|predictions|vocab_\w+|pre_classifier|head)(\.|$)", "head"),
    (r"\b(query|key|value|q_lin|k_lin|v_lin|Wqkv|qkv|q_proj|k_proj|v_proj|in_proj)\b", "attention input"),
    (r"(attention|attn)\S*\b(dense|out_lin|Wo|o_proj|output|out_proj)\b|sa_layer_norm", "attention output"),
    (r"attention\.LayerNorm$", "attention output"),
    (r"attention|attn", "attention scores"),
    (r"embed", "embeddings"),
    (r"layer|block|ffn|mlp|intermediate|output", "feed-forward"),
)


Found = tuple[list[Culprit], list[Divergence]]


def between_graphs(before: Path, after: Path, batch: Batch, *, padded_only: bool) -> Found:
    """The first tensor of the graph before that the graph after it has no longer."""
    first, second = load_graph(before), load_graph(after)
    old = divergence.tensors_of(first.proto, first.tensors, batch, str(before))
    new = divergence.tensors_of(second.proto, second.tensors, batch, str(after))
    lost = divergence.first_lost(old, new, batch)
    seen = view(first.proto)
    where = groups.locate(seen)
    told = reasons.of_float_graph(second.proto)
    if lost is None:
        return _mask_or_nothing(told, padded_only), []
    node = seen.maker[lost]
    layer, role = where.places.get(node.name, (None, "graph"))
    culprit = _with_mask(Culprit(_name(layer, role), layer, role, (node.name,), (lost,), None), told, padded_only)
    return [culprit], [Divergence(lost, node.name, culprit.name, None)]


def from_torch(model: Any, forward: Forward, after: Path, batch: Batch, *, padded_only: bool) -> Found:
    """The first module of the PyTorch model whose output the graph has no longer."""
    second = load_graph(after)
    old = divergence.torch_outputs(model, forward, batch)
    new = divergence.tensors_of(second.proto, second.tensors, batch, str(after))
    lost = divergence.first_lost(old, new, batch)
    told = reasons.of_float_graph(second.proto)
    if lost is None:
        return _mask_or_nothing(told, padded_only), []
    layer, role = module_place(lost)
    culprit = _with_mask(Culprit(_name(layer, role), layer, role, (), (lost,), None), told, padded_only)
    return [culprit], [Divergence(lost, lost, culprit.name, None)]


def module_place(name: str) -> tuple[int | None, str]:
    """Layer and role by the path of a PyTorch module; NAME#3 is the third turn of a shared one.

    >>> module_place("encoder.layer.3.attention.self.query"), module_place("embeddings.LayerNorm")
    ((3, 'attention input'), (None, 'embeddings'))
    >>> module_place("encoder.albert_layer_groups.0.albert_layers.0.ffn#4")
    (3, 'feed-forward')
    >>> module_place("transformer.layer.1.sa_layer_norm")
    (1, 'attention output')
    """
    path, _, turn = name.partition("#")
    role = next((role for pattern, role in _ROLES if re.search(pattern, path)), "graph")
    if role in ("embeddings", "head"):
        return None, role
    numbers = re.findall(r"\.(\d+)(?:\.|$)", path)
    shared = "groups" in path
    layer = int(turn or 1) - 1 if shared else int(numbers[0]) if numbers else None
    return layer, role


def _with_mask(culprit: Culprit, told: list[str], padded_only: bool) -> Culprit:
    """What shows on padded rows only, in attention, is the mask's doing; random numbers are nobody else's."""
    if any("dropout" in reason.lower() for reason in told):
        return replace(culprit, name="dropout", layer=None, role="dropout", reasons=tuple(told))
    masks = [reason for reason in told if "mask" in reason]
    if masks or (padded_only and "attention" in culprit.role):
        more = () if masks else ("padded rows differ and unpadded ones do not: the attention mask is not what it was",)
        return replace(culprit, name="mask", layer=None, role="mask", reasons=(*told, *more))
    return replace(culprit, reasons=tuple(told))


def _mask_or_nothing(told: list[str], padded_only: bool) -> list[Culprit]:
    """No tensor is lost for sure; what can be seen in the graph is told all the same."""
    if not told and not padded_only:
        return []
    words = " ".join(told).lower()
    role = "dropout" if "dropout" in words else "mask" if padded_only or "mask" in words else "graph"
    return [Culprit(role, None, role, (), (), None, reasons=tuple(told))]


def _name(layer: int | None, role: str) -> str:
    return role if layer is None else f"layer {layer} {role}"
