"""What must hold of a model's folder before a library opens any file of it: no code, no pickle, no pipe.

The libraries that load a model import classes that its files name, unpickle weights that an index names, and look into
folders of any depth. So every file of the folder is checked, at any depth, not only those that a plain model has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from calipers.core import ModelError
from calipers.core.errors import quote
from calipers.core.inputs import below, files_below, load_json
from calipers.models.heads import find_activation
from calipers.models.layout import known_class
from calipers.models.options import ModelOptions
from calipers.models.source import Source
from calipers.models.tokenizer_files import read_json

_ACTIVATIONS = ("activation_function", "activation_fn", "sbert_ce_default_activation_function")
# Weights that transformers, sentence-transformers and peft read by themselves, and what they read in their place.
_PICKLED = re.compile(r"(pytorch_model|adapter_model).*\.bin")
_SAFE = {"pytorch_model": "model", "adapter_model": "adapter_model"}
# What a network repeats: transformers builds so many modules before it looks at a weight.
_REPEATED = re.compile(r"(?:\w+_)?(?:layers?|groups|blocks|experts|stages)|inner_group_num|depth")
_MOST_REPEATED = 2_000
_COMMIT = re.compile("[0-9a-f]{40}")


def check_folder(source: Source, folder: Path, options: ModelOptions) -> None:
    """Refuse a folder of PyTorch weights that would run code, unpickle or block, unless the options allow it."""
    files = files_below(folder, ModelError)
    settings = [file for file in files if file.name.endswith("config.json")]
    if not options.trust_remote_code:
        for place, kind in _named_classes(files):
            if known_class(kind) is None:
                raise ModelError(f"{place} names {kind[:100]}, code of its own: read it, then set `trust_remote_code`")
        for file in settings:
            _refuse_activation(file)
    for file in settings:
        if file.name == "config.json":
            _refuse_remote_code(source, file, options)
            _refuse_repetition(read_json(file), file)
    if not options.allow_pickle:
        _refuse_pickles(files)


def _named_classes(files: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """Every class that a list of modules or a Router names, after the file that names it."""
    for file in files:
        if file.name == "modules.json":
            rows = load_json(file, ModelError)
            for row in rows if isinstance(rows, list) else []:
                yield file, str(row.get("type")) if isinstance(row, dict) else str(row)
        elif file.name == "router_config.json":
            kinds = read_json(file).get("types")
            for name, kind in (kinds if isinstance(kinds, dict) else {}).items():
                below(file.parent, name, ModelError, file)
                yield file, str(kind)


def _refuse_activation(file: Path) -> None:
    """sentence-transformers imports the activation that a file names."""
    config = read_json(file)
    nested = config.get("sentence_transformers")
    for entries in (config, nested if isinstance(nested, dict) else {}):
        for name in _ACTIVATIONS:
            if isinstance(entries.get(name), str) and "." in entries[name]:
                find_activation(entries[name], file)


def _refuse_remote_code(source: Source, file: Path, options: ModelOptions) -> None:
    config = read_json(file)
    if "auto_map" not in config:
        return
    if not options.trust_remote_code:
        raise ModelError(
            f"{source.reference} brings its own Python code: read it, then set `trust_remote_code`"
            + ("" if source.path else " and `ModelOptions.revision`, a commit")
        )
    targets = config["auto_map"]
    elsewhere = any("--" in str(target) for target in (targets.values() if isinstance(targets, dict) else [targets]))
    if (source.path is None or elsewhere) and not _COMMIT.fullmatch(options.revision or ""):
        raise ModelError(
            f"{source.reference} brings its own Python code from the hub: "
            "pin it with a full commit hash of 40 digits as `ModelOptions.revision`"
        )


def _refuse_repetition(config: Mapping[str, Any], file: Path) -> None:
    for name, value in config.items():
        if isinstance(value, dict):
            _refuse_repetition(value, file)
        elif isinstance(value, (int, float)) and value > _MOST_REPEATED and _REPEATED.fullmatch(name):
            raise ModelError(f"{file}: {name} is {quote(value)}, expected at most {_MOST_REPEATED:,}")


def _refuse_pickles(files: Sequence[Path]) -> None:
    for file in files:
        if match := _PICKLED.fullmatch(file.name):
            stem = _SAFE[match[1]]
            safe = (f"{stem}.safetensors", f"{stem}.safetensors.index.json")
            if not any((file.parent / name).is_file() for name in safe):
                raise pickled(file.parent, file.name)
        elif file.name.endswith(".index.json"):
            shards = read_json(file).get("weight_map")
            for shard in set(map(str, shards.values() if isinstance(shards, dict) else ())):
                below(file.parent, shard, ModelError, file)
                if "safetensors" in file.name and not shard.endswith(".safetensors"):
                    raise pickled(file.parent, shard)


def pickled(folder: Path, name: str) -> ModelError:
    return ModelError(
        f"the weights in {folder} are pickled ({name}), and unpickling can run code: "
        "convert them to safetensors, or set `allow_pickle` if you trust them"
    )
