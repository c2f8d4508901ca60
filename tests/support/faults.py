"""Small encoders whose every stage is sound, and the faults that tests and benchmarks plant in one of them.

The gold scores are the model's own cosines (or scores), so that the PyTorch stage is perfect and a fault shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
import transformers
from onnx import numpy_helper

from calipers import models
from calipers.artifacts import api as artifacts
from calipers.artifacts.calibrate import Ranges, collect_ranges
from calipers.artifacts.export import ExportSource
from calipers.artifacts.graphs import FloatGraph, load_graph, save_proto
from calipers.artifacts.inputs import Rows
from calipers.artifacts.quantize import quantize
from calipers.artifacts.recipe import Recipe
from calipers.artifacts.records import BuildOptions
from calipers.attribution import api, parts
from calipers.attribution.graph_view import GraphView, view
from calipers.attribution.records import Attribution, AttributionOptions
from calipers.core import Thresholds
from calipers.models import ModelOptions
from calipers.runs.protocol import Protocol
from calipers.runs.store import Store
from tests.support.masked_models import DISTIL, PIECES, SMALL, make_tokenizer
from tests.support.samples import write_jsonl

_SIZE = {"hidden_size": 64, "num_hidden_layers": 3, "intermediate_size": 128, "initializer_range": 0.12}
FAMILIES: dict[str, dict[str, Any]] = {
    "bert": {**SMALL, **_SIZE},
    "roberta": {**SMALL, **_SIZE, "type_vocab_size": 1},
    "albert": {**SMALL, **_SIZE, "embedding_size": 32},
    "distilbert": {**DISTIL, "dim": 64, "n_layers": 3, "hidden_dim": 128, "initializer_range": 0.12},
}


@dataclass(frozen=True)
class Sound:
    """A model with sound float stages, and how to quantise it soundly."""

    family: str
    folder: Path  # the PyTorch model
    task: str
    data: Path
    exported: Path
    optimized: Path
    floats: FloatGraph
    ranges: Ranges
    recipe: Recipe
    graph: GraphView  # of the optimised graph
    where: parts.PartMap
    store: Store
    source: ExportSource
    rows: Rows

    def node(self, layer: int | None, role: str, kind: str = "MatMul", which: int = 0) -> str:
        """The name of a node by where it stands."""
        weighted = [
            n.name
            for n in self.graph.nodes
            if self.where.places[n.name] == (layer, role)
            and n.op_type == kind
            and (kind != "MatMul" or n.inputs[1] in self.graph.weights)
        ]
        return weighted[which]

    def inputs_of(self, node: str) -> tuple[str, ...]:
        return next(n.inputs for n in self.graph.nodes if n.name == node)


def make_sound(family: str, place: Path, *, task: str = "sentence-similarity", rows: int = 160) -> Sound:
    folder = make_encoder(family, place / "model", scores=task != "sentence-similarity")
    data = write_pairs(folder, place / "pairs.jsonl", task, rows)
    options = BuildOptions(task=task, calibration=str(data), keep_stages=True)
    built = artifacts.build(str(folder), place / "float", recipe=Recipe("fp32"), options=options)
    plan = artifacts.plan(str(folder), place / "unused", Recipe("w8a8"), options)
    assert plan.calibration is not None
    floats = load_graph(Path(built.stage("optimized").path))
    seen = view(floats.proto)
    where = parts.locate(seen)
    ranges = collect_ranges(floats, plan.calibration, Recipe("w8a8"))
    kinds = ("Add", "Softmax", "Where", "Mul")
    masked = [n for n in seen.nodes if where.masked & {*n.outputs, *n.inputs} and n.op_type in kinds]
    exclude = tuple(n.name for n in masked if where.places[n.name][1] != "mask")
    recipe = Recipe("w8a8", unsigned=True, reduce_range=True, per_channel=True, exclude=exclude)
    return Sound(
        family=family,
        folder=folder,
        task=task,
        data=data,
        exported=Path(built.stage("exported").path),
        optimized=Path(built.stage("optimized").path),
        floats=floats,
        ranges=ranges,
        recipe=recipe,
        graph=seen,
        where=where,
        store=Store(place / "store"),
        source=plan.source,
        rows=plan.rows,
    )


def make_encoder(family: str, folder: Path, *, scores: bool) -> Path:
    config = transformers.AutoConfig.for_model(family, **FAMILIES[family], num_labels=1)
    torch.manual_seed(1)
    kind = transformers.AutoModelForSequenceClassification if scores else transformers.AutoModel
    model = kind.from_config(config)
    for module in model.modules():  # channels of different size, as trained models have them
        if isinstance(module, torch.nn.Linear) and module.out_features > 1:
            module.weight.data *= torch.exp(0.4 * torch.randn(module.out_features, 1))
    for parameter in model.parameters():
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, mean=1.0 if parameter.mean() > 0.5 else 0.0, std=0.1)
    model.save_pretrained(folder)
    make_tokenizer(folder)
    return folder


def write_pairs(folder: Path, path: Path, task: str, count: int) -> Path:
    rng = np.random.default_rng(3)
    words = [piece for piece in PIECES if not piece.startswith("##")]
    sides = [[" ".join(rng.choice(words, size=rng.integers(2, 16))) for _ in range(count)] for _ in range(2)]
    ability = "encode" if task == "sentence-similarity" else "score"
    loaded: Any = models.load(models.find(str(folder)), ModelOptions(), ability)
    if ability == "encode":
        a, b = (loaded.encode(side) for side in sides)
        gold = (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    else:
        gold = loaded.score(list(zip(*sides, strict=True)))
    rows = [
        {"id": f"p{i}", "sentence1": x, "sentence2": y, "score": float(z)}
        for i, (x, y, z) in enumerate(zip(*sides, gold, strict=True))
    ]
    return write_jsonl(path, rows)


# --- faults ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """A stage made wrong. `expected` says whether a culprit's layer and role are where the fault was planted."""

    name: str
    stage: str
    family: str
    make: Callable[[Sound, Path], None]
    expected: Callable[[int | None, str], bool]
    task: str = "sentence-similarity"


def quantized(sound: Sound, target: Path, recipe: Recipe | None = None) -> Any:
    quantize(sound.floats, target, recipe or sound.recipe, sound.ranges, masks=())
    return onnx.load(target)


def weight_of(proto: Any, node: str) -> tuple[Any, dict[str, Any]]:
    """The DequantizeLinear before a node's weight, and the initializers of the graph."""
    held = {i.name: i for i in proto.graph.initializer}
    made = {n.output[0]: n for n in proto.graph.node}
    reads = next(n for n in proto.graph.node if n.name == node).input
    found = next(made[name] for name in reads if name in made and made[name].input[0] in held)
    return found, held


def rescale(sound: Sound, target: Path, node: str, factor: float) -> None:
    proto = quantized(sound, target)
    dequantize, held = weight_of(proto, node)
    scale = held[dequantize.input[1]]
    scale.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(scale) * np.float32(factor), scale.name))
    save_proto(proto, target)


def few_levels(sound: Sound, target: Path, nodes: list[str], bits: int) -> None:
    """Weights rounded to 2^bits levels over their range."""
    proto = quantized(sound, target)
    for node in nodes:
        dequantize, held = weight_of(proto, node)
        weight = held[dequantize.input[0]]
        q = numpy_helper.to_array(weight).astype(np.float64)
        step = 2.0 * np.abs(q).max() / (2**bits - 1)
        rounded = np.clip((np.floor(q / step) + 0.5) * step, -127, 127)
        weight.CopyFrom(numpy_helper.from_array(np.rint(rounded).astype(np.int8), weight.name))
    save_proto(proto, target)


def ranged(sound: Sound, target: Path, tensor: str, factor: float) -> None:
    """Another calibration range for one tensor."""
    low, high = sound.ranges.tensors[tensor]
    ranges = {tensor: (factor * low, factor * high)}
    quantized(sound, target, replace(sound.recipe, ranges=ranges))


def wrong_axis(sound: Sound, target: Path, node: str) -> None:
    """Integers by a scale for each row of a square weight, read back by a scale for each column.

    A wrong `axis` at the DequantizeLinear alone would do nothing: onnxruntime's fused product takes columns anyway.
    """
    proto = quantized(sound, target)
    dequantize, held = weight_of(proto, node)
    name = sound.inputs_of(node)[1]
    original = next(numpy_helper.to_array(i) for i in sound.floats.proto.graph.initializer if i.name == name)
    scale = (np.abs(original).max(axis=1) / 63).astype(np.float32)  # 7 bits, as the recipe has them
    integers = np.rint(original / scale[:, None]).astype(np.int8)
    for place, values in ((0, integers), (1, scale)):
        initializer = held[dequantize.input[place]]
        initializer.CopyFrom(numpy_helper.from_array(values, initializer.name))
    save_proto(proto, target)


def mask_rounded(sound: Sound, target: Path) -> None:
    """The mask constant in the range of the masked scores."""
    names = [name for name in sound.where.masked if name in sound.ranges.tensors]
    ranges = {name: (-3.4e38, max(1.0, sound.ranges.tensors[name][1])) for name in names}
    quantized(sound, target, replace(sound.recipe, exclude=(), ranges=ranges))


def swapped(sound: Sound, target: Path) -> None:
    """The weights of layers 1 and 2 in each other's place."""
    proto = onnx.load(sound.optimized)
    held = {i.name: i for i in proto.graph.initializer}
    nodes = {n.name: n for n in proto.graph.node}
    for role in ("attention input", "attention output", "feed-forward"):
        sides = [[n.name for n in sound.graph.nodes if sound.where.places[n.name] == (layer, role)] for layer in (1, 2)]
        for one, two in zip(*sides, strict=True):
            for a, b in zip(nodes[one].input, nodes[two].input, strict=True):
                if a in held and b in held and a != b:
                    first, second = (numpy_helper.to_array(held[name]) for name in (a, b))
                    held[a].CopyFrom(numpy_helper.from_array(second, a))
                    held[b].CopyFrom(numpy_helper.from_array(first, b))
    save_proto(proto, target)


def drop_mask(sound: Sound, target: Path) -> None:
    """As the exporter does with an example whose mask is all ones: it takes the mask for a constant."""
    proto = onnx.load(sound.exported)
    mask = next(i.name for i in proto.graph.input if "mask" in i.name)
    ids = next(i.name for i in proto.graph.input if "input_ids" in i.name)
    one = numpy_helper.from_array(np.array(1, np.int64), "one")
    ones = [
        onnx.helper.make_node("Shape", [ids], ["ids_shape"], name="shape_of_ids"),
        onnx.helper.make_node("Expand", ["one", "ids_shape"], ["all_ones"], name="all_ones"),
    ]
    for node in proto.graph.node:
        node.input[:] = ["all_ones" if name == mask else name for name in node.input]
    _put(proto, [*ones, *proto.graph.node], one)
    save_proto(proto, target)


def leave_dropout(sound: Sound, target: Path, share: float = 0.1) -> None:
    """Random zeros behind every normalisation and attention. onnxruntime would take Dropout nodes out by itself."""
    proto = onnx.load(sound.exported)
    helper, nodes = onnx.helper, []
    for i, node in enumerate(list(proto.graph.node)):
        nodes.append(node)
        if node.op_type not in ("LayerNormalization", "Softmax"):
            continue
        whole, out = f"{node.output[0]}_whole", node.output[0]
        node.output[0] = whole
        nodes += [
            helper.make_node("RandomUniformLike", [whole], [f"drawn_{i}"], name=f"drawn_{i}", seed=float(i)),
            helper.make_node("Greater", [f"drawn_{i}", "share"], [f"kept_{i}"], name=f"kept_{i}"),
            helper.make_node("Cast", [f"kept_{i}"], [f"factor_{i}"], name=f"factor_{i}", to=onnx.TensorProto.FLOAT),
            helper.make_node("Mul", [whole, f"factor_{i}"], [f"some_{i}"], name=f"some_{i}"),
            helper.make_node("Div", [f"some_{i}", "rest"], [out], name=f"dropout_{i}"),
        ]
    constants = [("share", share), ("rest", 1 - share)]
    _put(proto, nodes, *(numpy_helper.from_array(np.array(value, np.float32), name) for name, value in constants))
    save_proto(proto, target)


def _put(proto: Any, nodes: list[Any], *weights: Any) -> None:
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del proto.graph.node[:]
    proto.graph.node.extend(copies)
    proto.graph.initializer.extend(weights)
    del proto.graph.value_info[:]


def at(layer: int | None, *roles: str) -> Callable[[int | None, str], bool]:
    return lambda found, role: found == layer and (not roles or role in roles)


def _read_by(sound: Sound, layer: int, role: str, which: int = 0) -> str:
    """The activation that a product reads."""
    return sound.inputs_of(sound.node(layer, role, which=which))[0]


def _layer(sound: Sound, layer: int) -> list[str]:
    """Every product with weights in a layer."""
    counts = (("attention input", 3), ("attention output", 1), ("feed-forward", 2))
    return [sound.node(layer, role, which=i) for role, count in counts for i in range(count)]


def _head(sound: Sound) -> list[str]:
    here = [n for n in sound.graph.nodes if sound.where.places[n.name] == (None, "head")]
    return [n.name for n in here if n.op_type in ("MatMul", "Gemm") and n.inputs[1] in sound.graph.weights]


# name, stage, family, how it is planted, where it must be found
FAULTS: tuple[Fault, ...] = (
    Fault(
        "a scale off by 4",
        "quantized",
        "bert",
        lambda s, t: rescale(s, t, s.node(1, "feed-forward"), 4),
        at(1, "feed-forward"),
    ),
    Fault(
        "an outlier of 300 times in a range",
        "quantized",
        "roberta",
        lambda s, t: ranged(s, t, _read_by(s, 1, "feed-forward", 1), 300),
        at(1, "feed-forward"),
    ),
    Fault("the mask rounded with the scores", "quantized", "bert", mask_rounded, at(None, "mask")),
    Fault(
        "a layer's weights in 2 bits",
        "quantized",
        "distilbert",
        lambda s, t: few_levels(s, t, _layer(s, 2), 2),
        at(2),
    ),
    Fault("dropout left on in export", "exported", "bert", leave_dropout, at(None, "dropout")),
    Fault("a dropped attention mask", "exported", "roberta", drop_mask, at(None, "mask")),
    Fault(
        "a wrong axis of scales",
        "quantized",
        "bert",
        lambda s, t: wrong_axis(s, t, s.node(0, "attention input", which=2)),
        at(0, "attention input"),
    ),
    Fault("swapped layers in optimisation", "optimized", "distilbert", swapped, at(1, "attention input")),
    Fault(
        "a head in 4 bits",
        "quantized",
        "roberta",
        lambda s, t: few_levels(s, t, _head(s), 4),
        at(None, "head"),
        task="pair-correlation",
    ),
    Fault(
        "a truncated calibration range",
        "quantized",
        "albert",
        lambda s, t: ranged(s, t, _read_by(s, 1, "attention input"), 0.05),
        at(1, "attention input"),
    ),
)


def attribute(
    sound: Sound,
    fault: Fault | None,
    place: Path,
    *,
    fix: bool = True,
    budget: int = 24,
    recipe_out: Path | None = None,
) -> Attribution:
    """Plant the fault (None: none) and attribute what it lost."""
    place.mkdir(parents=True, exist_ok=True)
    points = {"spearman": Thresholds(0.02, 0.04, relative=False)}  # as strict as for cosine_spearman
    given: dict[str, Path] = {"exported": sound.exported, "optimized": sound.optimized}
    wrong = place / "wrong.onnx"
    stage = fault.stage if fault else "quantized"
    if fault:
        fault.make(sound, wrong)
    else:
        quantized(sound, wrong)
    if stage == "exported":
        given = {"exported": wrong}
    else:
        given[stage] = wrong
    work = sound.folder.parent / "work"  # shared: sound stages are made once
    return api.attribute(
        str(sound.folder),
        recipe=sound.recipe if stage == "quantized" else Recipe("fp32"),
        protocol=Protocol(task=sound.task, dataset=str(sound.data)),
        build=BuildOptions(stages=given, optimize=stage != "exported"),
        options=AttributionOptions(
            fix=fix, budget=budget, thresholds=points, resamples=1_000, work=work, recipe_out=recipe_out
        ),
        store=sound.store,
    )
