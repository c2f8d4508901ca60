"""What decides a model's answers, read from its files without loading it.

Two models with the same identity give the same answers on the same rows with the same code; so a run that is stored
under it need not be made again. Whatever is not settled here is taken as it was asked, and whole files are hashed where
it is not sure what is read of them: the worst that can come of that is a run too many.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from calipers.models import hub
from calipers.models.layout import Layout, prompt_settings, read_layout, settle
from calipers.models.options import ModelOptions
from calipers.models.source import Source
from calipers.models.tokenizer import longest_input, read_json

Facts = dict[str, Any]

_WEIGHTS = ("*.safetensors", "*.bin", "*.index.json", "config.json", "*.py")
_TOKENIZER = (
    "*token*.json",
    "vocab*",
    "merges.txt",
    "*.model",
    "*.codes",
    "*.tiktoken",
    "*.jinja",
    "chat_template*",
)
_SETTINGS = ("modules.json", "*config*.json")


def identity(source: Source, options: ModelOptions, ability: str) -> Facts | None:
    """The facts that decide the answers, by name; None where they cannot be known: an endpoint may change unseen.

    Threads, names and places are left out: they change no answer.
    """
    read = _READERS.get(source.backend)
    found = read(source, options, ability) if read else None
    if found is None:
        return None
    # Folders and graphs are known by their content, whatever revision that was asked for.
    left_out = {"threads", "model_id"} | ({"revision"} if source.backend in ("torch", "onnx", "static") else set())
    asked = {name: value for name, value in asdict(options).items() if name not in left_out}
    return {"backend": source.backend, "ability": ability, **asked, **found}


def names(source: Source, options: ModelOptions) -> tuple[str, str | None]:
    """The model's id and path as its backend tells them in ModelInfo."""
    if source.backend == "bm25":
        return options.model_id or "bm25", None
    place = _place(source, options)
    if source.path is None:
        return options.model_id or source.reference, str(place)
    if source.backend == "onnx":
        from calipers.models.onnx_files import folder_name

        return options.model_id or folder_name(place), str(place)
    own = {"torch": place.name, "static": place.resolve().name}.get(source.backend, place.stem)
    return options.model_id or own, str(place)


def _place(source: Source, options: ModelOptions) -> Path:
    """The folder or file that the backend loads."""
    if source.backend == "torch":
        from calipers.models.torch_weights import find_folder

        return find_folder(source, options)
    if source.backend == "static":
        from calipers.models.static import find_folder as find_static

        return find_static(source, options)
    if source.backend == "onnx":
        from calipers.models.onnx_files import graph_file

        return graph_file(source, options)
    return source.path or Path(source.reference)


def _torch(source: Source, options: ModelOptions, ability: str) -> Facts | None:
    from calipers.models.torch_weights import choose_batching

    folder = _place(source, options)
    layout = read_layout(folder)
    if "--" in str(read_json(layout.transformer / "config.json").get("auto_map")):
        return None  # its code lies in another repository
    return {
        "weights": _digest(folder, _among(folder, layout, _WEIGHTS)),
        **_own_words(folder, layout),
        **_settled(layout, options, ability),
        "batching": str(choose_batching(options)),
    }


def _onnx(source: Source, options: ModelOptions, ability: str) -> Facts:
    from calipers.models import onnx, onnx_files, onnx_session

    file = _place(source, options)
    layout = read_layout(folder := onnx_files.settings_folder(file, options))
    return {
        "weights": hub.fingerprint(onnx_files.weight_files(file)),
        **_own_words(folder, layout),
        **_settled(layout, options, ability),
        # A pooling that was asked for also decides which output is read, were it the same as the default.
        "pooling_asked": options.pooling,
        "provider": onnx_session.provider_name(options),
        "batching": str(onnx.free_batching(file, options)),  # a fixed shape is a fact of the graph
    }


def _static(source: Source, options: ModelOptions, ability: str) -> Facts:
    folder = _place(source, options)
    layout = read_layout(folder)
    return {
        "weights": _digest(folder, _among(folder, layout, _WEIGHTS)),
        **_own_words(folder, layout),
        "prompts": prompt_settings(layout, settle(layout, options), options),
        "prompt": None,
        "prompt_name": None,
    }


def _vectors(source: Source, options: ModelOptions, ability: str) -> Facts:
    file = _place(source, options)
    beside = [file.with_suffix(suffix) for suffix in (".txt", ".ids")] if file.suffix == ".npy" else []
    return {"weights": _digest(file.parent, [file, *(p for p in beside if p.exists())], named_after=file.stem)}


def _bm25(source: Source, options: ModelOptions, ability: str) -> Facts:
    from calipers.models import bm25

    return {"weights": bm25.settle(source)[1]}


_READERS: dict[str, Callable[[Source, ModelOptions, str], Facts | None]] = {
    "torch": _torch,
    "onnx": _onnx,
    "static": _static,
    "vectors": _vectors,
    "bm25": _bm25,
}


def _settled(layout: Layout, options: ModelOptions, ability: str) -> Facts:
    """What the model's files and the user's wishes come to, by the functions that the backends call."""
    if ability == "fill-mask":
        return {"max_length": options.max_length or longest_input(layout.transformer)}
    settings = settle(layout, options)
    told = asdict(settings)
    del told["pooling_assumed"]  # the same pooling, whoever said so
    # Where sentence-transformers runs the model, and for scorers, these are refused: they stay as they were asked.
    if layout.further or ability not in ("encode", "retrieve"):
        del told["pooling"], told["normalize"]
    return {**told, "prompts": prompt_settings(layout, settings, options), "prompt_name": None}


def _own_words(folder: Path, layout: Layout) -> Facts:
    """What the folder holds besides weights."""
    settings = (*_SETTINGS, "*.json", "*.txt") if layout.further else _SETTINGS
    return {
        "tokenizer": _digest(folder, _among(folder, layout, _TOKENIZER)),
        "settings": _digest(folder, _among(folder, layout, settings)),
    }


def _among(folder: Path, layout: Layout, patterns: Iterable[str]) -> list[Path]:
    """Files of the folder and of its transformer; all below it where modules of sentence-transformers may read any."""
    patterns = list(patterns)
    if layout.further:
        found = [path for pattern in patterns for path in folder.rglob(pattern)]
    else:
        found = [path for place in {folder, layout.transformer} for p in patterns for path in place.glob(p)]
    return [path for path in found if path.is_file()]


def _digest(root: Path, files: Iterable[Path], *, named_after: str = "") -> str:
    """SHA-256 over the places below `root` and the content of the files, each once; where `root` lies does not matter.

    With `named_after` the files are called after another one, whose name does not matter either.
    """
    total = hashlib.sha256()
    for place, path in sorted({p.relative_to(root).as_posix(): p for p in files}.items()):
        with path.open("rb") as file:
            total.update(place.removeprefix(named_after).encode() + b"\0")
            total.update(hashlib.file_digest(file, "sha256").digest())
    return f"sha256:{total.hexdigest()}"
