"""Where two stages diverge: their tensors on the same real rows, by signal to noise or by which are still there."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calipers.artifacts import export
from calipers.artifacts.graphs import load_graph, session_of, with_outputs
from calipers.artifacts.inputs import FixedShape, Rows
from calipers.attribution import parts, reasons
from calipers.attribution.case import Case
from calipers.attribution.graph_view import view
from calipers.attribution.records import Culprit, Divergence
from calipers.metrics.arrays import Array, Floats
from calipers.models.batching import Batch, Forward, pad
from calipers.models.onnx_session import Graph

if TYPE_CHECKING:
    from onnx import ModelProto
    from transformers import PreTrainedModel

Arrays = dict[str, Array]  # tensors by name, in the order in which they are computed

_SAME = 1e-3  # relative: rounding alone stays a hundred times below it
_LARGE = 1e30  # a mask constant, which would drown every other value
_LONGEST = 64
_ROWS = 6
_SKETCH = 12  # random sums that stand for a tensor
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


def look_at(rows: Rows, shape: FixedShape | None = None) -> Batch:
    """A padded batch of a few real rows, cut to a length at which all tensors of a graph fit into memory."""
    count, length = shape or (None, None)
    tokens = [rows.tokens[i % len(rows)] for i in range(count or min(_ROWS, len(rows)))]
    return pad(tokens, rows, length=length or min(_LONGEST, max(len(row.ids) for row in tokens)))


def tensors_of(proto: ModelProto, names: Iterable[str], batch: Batch, what: str) -> Arrays:
    """These tensors of a graph, run without optimisation; names that it does not have are left out."""
    wanted = set(names)
    held = [name for node in proto.graph.node for name in node.output if name and name in wanted]
    if not held:
        return {}
    return Graph(session_of(with_outputs(proto, held), what), what).run(batch, held)


def torch_outputs(model: PreTrainedModel, forward: Forward, batch: Batch) -> Arrays:
    """The output of every module of a PyTorch model, in the order of the calls; NAME#2 is a module's second call."""
    import torch

    outputs: Arrays = {}
    calls: Counter[str] = Counter()

    def keep(name: str, module: Any, inputs: Any, output: Any) -> None:
        value = output[0] if isinstance(output, (tuple, list)) and output else output
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            calls[name] += 1
            key = name if calls[name] == 1 else f"{name}#{calls[name]}"
            outputs[key] = value.detach().float().numpy().copy()

    handles = [module.register_forward_hook(partial(keep, name)) for name, module in model.named_modules() if name]
    try:
        forward(batch)
    finally:
        for handle in handles:
            handle.remove()
    return outputs


def real_part(values: Array, batch: Batch) -> Floats:
    """The values at real tokens, flat, without padding. Mask constants become 0."""
    real = batch.mask.astype(bool)
    if values.ndim >= 2 and values.shape[:2] == real.shape:
        values = values[real]
    elif values.ndim == 4 and (values.shape[0], values.shape[2]) == real.shape:
        values = values.transpose(0, 2, 1, 3)[real]
    flat = np.asarray(values, dtype=np.float64).ravel()
    return np.where(np.abs(flat) < _LARGE, flat, 0.0)


def sqnr(true: Array, other: Array, batch: Batch) -> float | None:
    """Signal to quantisation noise in dB: infinite without noise, None where the other tensor is not finite.

    >>> batch = Batch(*(np.ones((1, 2), np.int64),) * 3, rows=1)
    >>> sqnr(np.array([[1.0, 1.0]]), np.array([[1.1, 0.9]]), batch)
    20.0
    """
    if true.shape != other.shape or not np.isfinite(other).all():
        return None
    a, b = real_part(true, batch), real_part(other, batch)
    signal, noise = float(np.square(a).sum()), float(np.square(a - b).sum())
    if noise == 0:
        return math.inf
    return round(10 * math.log10(signal / noise), 6) if signal > 0 else -math.inf


def first_lost(before: Arrays, after: Arrays, batch: Batch) -> str | None:
    """The first tensor of the earlier stage that the later stage lacks, together with all tensors after it.

    Tensors are compared by value: an optimiser renames. What a fusion removed is missing too, but not what follows it.
    """
    sketches: dict[int, list[Floats]] = {}
    for size, sketch in _sketches(after, batch).values():
        sketches.setdefault(size, []).append(sketch)
    lost: str | None = None
    for name, (size, sketch) in _sketches(before, batch).items():
        if size in sketches and _is_among(sketch, np.stack(sketches[size])):
            lost = None
        elif lost is None:
            lost = name
    return lost


def _sketches(tensors: Arrays, batch: Batch) -> dict[str, tuple[int, Floats]]:
    """Number of values and a few random sums of hidden states, [batch, length, …], that are finite and not constant:
    two tensors of the same size are as far apart as their sums."""
    sketches = {}
    for name, values in tensors.items():
        if values.ndim < 3 or values.shape[:2] != batch.mask.shape or not np.issubdtype(values.dtype, np.floating):
            continue
        flat = real_part(values, batch)
        if np.isfinite(flat).all() and flat.std() > 0:
            signs = np.random.default_rng(flat.size).choice([-1.0, 1.0], size=(flat.size, _SKETCH))
            sums = flat @ signs / math.sqrt(flat.size)
            sketches[name] = flat.size, np.append(sums, np.sqrt(np.square(flat).mean()))
    return sketches


def _is_among(sketch: Floats, others: Floats) -> bool:
    gaps = np.sqrt(np.square(others[:, :-1] - sketch[:-1]).mean(axis=1))
    return bool((gaps <= _SAME * max(sketch[-1], 1e-9)).any())


def compare_floats(case: Case) -> tuple[tuple[Culprit, ...], tuple[Divergence, ...]]:
    """The first tensor of a stage, or module of the PyTorch model, that the guilty stage lacks."""
    plan = case.plan
    batch = look_at(plan.rows, plan.shape)
    case.begin("Looking for the first tensor that differs")
    padded_only = any("attention mask" in note for note in case.guilty.notes)
    before = load_graph(Path(case.before.path)) if case.before.stage != "torch" else None
    after = load_graph(Path(case.guilty.path))
    if before:
        tensors = tensors_of(before.proto, before.tensors, batch, str(before.path))
    else:
        assert plan.source.load is not None
        model = plan.source.load().eval()
        tensors = torch_outputs(model, export.reference(model, plan.source, pooled=False), batch)
    lost = first_lost(tensors, tensors_of(after.proto, after.tensors, batch, str(after.path)), batch)
    seen = reasons.of_float_graph(after.proto)
    if lost is None:  # for certain; what the graph shows is reported all the same
        unknown = Culprit("graph", None, "graph", (), (), None)
        return ((_explained(unknown, seen, padded_only),) if seen or padded_only else ()), ()
    (layer, role), nodes = _node_place(before.proto, lost) if before else (module_place(lost), ())
    culprit = Culprit(parts.place_name(layer, role), layer, role, nodes, (lost,), None)
    culprit = _explained(culprit, seen, padded_only)
    return (culprit,), (Divergence(lost, nodes[0] if nodes else lost, culprit.name, None),)


def _node_place(proto: ModelProto, tensor: str) -> tuple[parts.Place, tuple[str, ...]]:
    """The place of the node that computes a tensor, and the node."""
    graph = view(proto)
    node = graph.maker[tensor].name
    return parts.locate(graph).places.get(node, (None, "graph")), (node,)


def module_place(name: str) -> parts.Place:
    """Layer and role by the path of a PyTorch module; NAME#3 is the third call of a shared one.

    >>> module_place("encoder.layer.3.attention.self.query"), module_place("embeddings.LayerNorm")
    ((3, 'attention input'), (None, 'embeddings'))
    >>> module_place("encoder.albert_layer_groups.0.albert_layers.0.ffn#4")
    (3, 'feed-forward')
    >>> module_place("transformer.layer.1.sa_layer_norm")
    (1, 'attention output')
    """
    path, _, call = name.partition("#")
    role = next((role for pattern, role in _ROLES if re.search(pattern, path)), "graph")
    if role in ("embeddings", "head"):
        return None, role
    if "groups" in path:
        return int(call or 1) - 1, role
    number = re.search(r"\.(\d+)(?:\.|$)", path)
    return int(number[1]) if number else None, role


def _explained(culprit: Culprit, seen: list[str], padded_only: bool) -> Culprit:
    """Random numbers come from dropout; a difference on padded rows alone from the mask, unless outside attention."""
    words = " ".join(seen).lower()
    if "dropout" in words:
        return replace(culprit, name="dropout", layer=None, role="dropout", reasons=tuple(seen))
    attention = "attention" in culprit.role
    if "mask" not in words and not (padded_only and (attention or not culprit.tensors)):
        return replace(culprit, reasons=tuple(seen))
    if attention and "mask" not in words:
        seen = [*seen, "padded rows differ and unpadded ones do not: the attention mask has changed"]
    return replace(culprit, name="mask", layer=None, role="mask", reasons=tuple(seen))
