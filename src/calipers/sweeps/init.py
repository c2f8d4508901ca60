"""`calipers sweep --init`: a commented registry from the models that a folder holds."""

from __future__ import annotations

from pathlib import Path

from calipers import models, tasks
from calipers.core import CalipersError, ModelError, RequestError
from calipers.models import ModelOptions
from calipers.sweeps.abilities import abilities, applies

_DEEPEST = 3
# Every folder of a model has one of these; one without them may be a folder of models.
_OWN = ("config.json", "modules.json", "*.safetensors", "*.bin", "*.onnx", "onnx/*.onnx")
_HEAD = """# A registry of calipers sweep. `calipers sweep FILE --check` reads it, `--dry-run` says what it would do.
# `calipers schema sweep` prints every key.

defaults:
  samples: 200            # rows of each dataset

models:
"""
_TAIL = """
# Cells to leave out: MODEL/TASK/PRECISION, with globs.
# exclude:
#   - "*/*/w8a8"

# How much worse passes, and from where on it is a regression; by default those of each metric.
# thresholds:
#   cosine_spearman: 2.0,4.0
#   pseudo_perplexity: 5%,10%
"""


def models_in(folder: Path) -> list[tuple[Path, models.Source]]:
    """The models of a folder and of the folders in it, each once; a folder that is a model is not looked into."""
    if not folder.is_dir():
        raise RequestError(f"{folder} is no folder: `init` writes a registry from the models in one")
    places: list[tuple[Path, models.Source]] = []
    _walk(folder, places, _DEEPEST)
    if not places:
        raise RequestError(f"there is no model in {folder}: expected folders with model.safetensors or .onnx files")
    return places


def _walk(folder: Path, places: list[tuple[Path, models.Source]], depth: int) -> None:
    for place in sorted(folder.iterdir()):
        if place.name.startswith(".") or not (place.is_dir() or place.suffix == ".onnx"):
            continue
        try:
            if place.is_dir() and not any(any(place.glob(pattern)) for pattern in _OWN):
                raise ModelError(f"{place} has no file of a model")  # but may hold folders that are models
            places.append((place, models.find(str(place))))
        except CalipersError:
            if place.is_dir() and depth > 1:
                _walk(place, places, depth - 1)


def make_registry(folder: Path) -> str:
    """The text of a registry: every model with what can be done with it, every task that applies to one of them."""
    lines, wanted = [_HEAD], set()
    for place, source in models_in(folder):
        able = abilities(source, ModelOptions())
        wanted |= {task.name for task in tasks.TASKS if applies(task, able)}
        lines.append(f"  - id: {_quote(place.stem if place.is_file() else place.name)}\n")
        lines.append(
            f"    reference: {_quote(str(place.absolute()))}    # {source.backend}, {', '.join(sorted(able))}\n"
        )
        built = source.backend == "torch"
        lines.append(f"    {'' if built else '# '}precisions: [int8-dynamic{'' if built else ', w8a8'}]\n")
    lines.append("\ntasks:\n")
    for task in tasks.TASKS:
        if task.name in wanted:
            lines.append(f"  - id: {task.name}\n    task: {task.name}    # {task.about}\n")
            lines.append(f"    # dataset: FILE    # default: {task.default_data.path}\n")
    return "".join([*lines, _TAIL])


def _quote(text: str) -> str:
    """A text as YAML reads it back, whatever is in it."""
    import json

    return json.dumps(text, ensure_ascii=False)
