"""What is wrong with a request, as far as it shows before a model is loaded and exported, which takes many seconds."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from calipers.artifacts.graphs import read_proto
from calipers.artifacts.manifest import read_builds
from calipers.artifacts.quantize import QUANTISED, quantizable_types
from calipers.artifacts.recipe import Recipe
from calipers.artifacts.records import BuildOptions
from calipers.core import ModelError, RequestError

# What names the nodes of a graph made here: torch's exporter, and onnxruntime's fusions, which begin with an operator.
_OURS = ("node_",)
_FLOAT, _HALF = 1, 10  # of onnx.TensorProto.DataType
_FUSED = re.compile(r"[A-Z][A-Za-z]*_|[A-Z]")


def refuse_missing(stages: Mapping[str, Path]) -> None:
    """A file in the place of a stage that is not there."""
    for name, path in stages.items():
        if not path.is_file():
            raise RequestError(f"`stages` {name}={path}: there is no such file")


def refuse_quantised(stages: Mapping[str, Path]) -> None:
    """A graph in the place of a float stage that is quantised already cannot be quantised again."""
    for name, path in stages.items():
        if name == "quantized":
            continue
        graph = read_proto(path, weights=False).graph
        kinds = [node.op_type for node in graph.node]
        counts = [f"{kinds.count(kind)} {kind}" for kind in QUANTISED if kind in kinds]
        matrices = [tensor.data_type for tensor in graph.initializer if len(tensor.dims) > 1]
        if _HALF in matrices and _FLOAT not in matrices:
            counts.append(f"{matrices.count(_HALF)} weights in float16")
        if counts:
            raise RequestError(
                f"{path} is already quantised ({', '.join(counts)}): give the float graph or the PyTorch model that it "
                f"was made of, and this file as `stages` quantized={path} where it is to be examined"
            )


def refuse_unknown_nodes(recipe: Recipe, options: BuildOptions, folder: Path, source: str) -> None:
    """Entries of `exclude` and `wide` that can match no node: operators that do not exist, and names that the float
    graph does not have, where it is there, or that no graph made here has."""
    graph = _float_graph(options, folder, source)
    entries = [("exclude", pattern) for pattern in recipe.exclude] + [("wide", pattern) for pattern in recipe.wide]
    nodes = _nodes(graph) if graph and entries else []
    if nodes:
        recipe.excluded(nodes)
        recipe.widened(nodes)
        return
    for name, pattern in entries:
        if pattern.startswith("op:"):
            _refuse_operator(name, pattern)
        elif "exported" not in options.stages and "optimized" not in options.stages and not _may_be_ours(pattern):
            raise RequestError(
                f"`{name}` {pattern!r} matches no node: those of an exported graph are called node_MatMul_118, "
                "node_softmax_2, SkipLayerNorm_0, …; `calipers attribute` names them, op:TYPE is all of a type"
            )


def _nodes(graph: Path) -> list[tuple[str, str]]:
    """Names and operators; none of a file that cannot be read, such as a killed build leaves: it is made again."""
    try:
        return [(node.name, node.op_type) for node in read_proto(graph, weights=False).graph.node]
    except ModelError:
        return []


def _float_graph(options: BuildOptions, folder: Path, source: str) -> Path | None:
    """The graph that would be quantised, where it is there before the build."""
    name = "optimized" if options.optimize or "optimized" in options.stages else "exported"
    if name in options.stages:
        return options.stages[name] if options.stages[name].is_file() else None
    if options.stages:
        return None
    shape = list(options.static_shape) if options.static_shape else None
    expected = {"source": source, "opset": options.opset, "static_shape": shape, "pooled": options.pooled, "given": {}}
    same = [b for b in read_builds(folder).values() if all(b.settings.get(key) == v for key, v in expected.items())]
    results = [Path(b.model) for b in same if b.precision == "fp32" and b.settings.get("optimize") == options.optimize]
    kept = [folder / name / "model.onnx"] if same else []
    return next((path for path in (*kept, *results) if path.is_file()), None)


def _refuse_operator(option_name: str, pattern: str) -> None:
    from onnx import defs

    names = {schema.name for schema in defs.get_all_schemas()} | set(quantizable_types())
    names |= {"SkipLayerNormalization", "BiasGelu", "FastGelu", "Attention", "EmbedLayerNormalization", "FusedMatMul"}
    if not any(fnmatchcase(name, pattern[3:]) for name in names):
        near = difflib.get_close_matches(pattern[3:], names, n=1, cutoff=0.5)
        hint = f"; the nearest is op:{near[0]}" if near else ""
        raise RequestError(f"`{option_name}` {pattern!r} names no operator of ONNX{hint}")


def _may_be_ours(pattern: str) -> bool:
    """
    >>> [_may_be_ours(name) for name in ("node_MatMul_1", "no*", "SkipLayerNorm_*", "*", "encoder/MatMul", "layer.0")]
    [True, True, True, True, False, False]
    """
    start = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
    whole = start == pattern
    if _FUSED.match(start) and "/" not in start and "." not in start:
        return True
    return any(start.startswith(ours) or (not whole and ours.startswith(start)) for ours in _OURS)
