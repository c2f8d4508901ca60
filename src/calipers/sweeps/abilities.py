"""What a model of a registry can do and how large it is, read from its files without loading it."""

from __future__ import annotations

from pathlib import Path

from calipers import models
from calipers.artifacts.export import head_of
from calipers.core import CalipersError, Task
from calipers.models import ModelOptions, Source, layout, onnx_files, torch_weights

ALL = frozenset(models.ABILITIES)


def abilities(source: Source, options: ModelOptions) -> frozenset[str]:
    """The abilities that a model was made for; all of them where its files do not say."""
    fixed = {"static": "encode", "vectors": "encode", "bm25": "retrieve", "hybrid": "retrieve"}
    if source.backend in fixed:
        return frozenset((fixed[source.backend],))
    try:
        if source.backend == "torch":
            return frozenset((_head(torch_weights.find_folder(source, options)),))
        if source.backend == "onnx":
            return frozenset((_graph_ability(onnx_files.graph_file(source, options), options),))
    except (CalipersError, OSError):
        pass
    return ALL


def _head(folder: Path) -> str:
    files = layout.read_layout(folder)
    if files.pooling is not None or files.further:
        return "encode"
    return head_of(str((files.config.get("architectures") or [""])[0]))


def _graph_ability(file: Path, options: ModelOptions) -> str:
    """By the outputs of the graph: logits of a few labels, logits at every token, else vectors."""
    from calipers.models.onnx_session import open_graph

    try:
        files = layout.read_layout(onnx_files.settings_folder(file, options))
        if files.pooling is not None:
            return "encode"
        if architecture := (files.config.get("architectures") or [""])[0]:
            return head_of(str(architecture))
    except CalipersError:
        pass
    graph = open_graph(file)
    outputs = [(output.name, output.shape) for output in graph.session.get_outputs()]
    if any("logits" in name and len(shape) == 3 for name, shape in outputs):
        return "fill-mask"
    return "score" if any("logits" in name for name, _ in outputs) else "encode"


def applies(task: Task[object], able: frozenset[str]) -> bool:
    """Whether a model with these abilities can be measured on the task: an encoder can retrieve."""
    return task.ability in able or (task.ability == "retrieve" and "encode" in able)


def head_for(task: Task[object]) -> str:
    """The ability that a build needs for a task."""
    return "encode" if task.ability == "retrieve" else task.ability


def weight_size(source: Source, options: ModelOptions) -> int | None:
    """Bytes of the weights on this disk; None where they are elsewhere."""
    try:
        if source.backend == "onnx":
            files = onnx_files.weight_files(onnx_files.graph_file(source, options))
        elif source.backend in ("torch", "static"):
            folder = source.path or torch_weights.find_folder(source, options)
            files = [f for pattern in ("*.safetensors", "*.bin", "*/*.safetensors") for f in folder.glob(pattern)]
        else:
            files = [source.path] if source.path else []
        return sum(file.stat().st_size for file in files) if files else None
    except (CalipersError, OSError):
        return None
