"""What decides a model's answers, read from its files without loading it: a run stored under it need not be repeated.

Options that are not resolved here are taken as they are, and whole files are hashed where it is not certain what is
read of them: the worst result is a run too many.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path

from calipers.models import bm25, hub, onnx, onnx_files, onnx_session, static, torch_weights
from calipers.models.layout import Layout, prompt_settings, read_layout, settle
from calipers.models.options import ModelOptions
from calipers.models.source import Source
from calipers.models.tokenizer_files import read_json

Facts = dict[str, object]

_WEIGHTS = ("*.safetensors", "*.bin", "*.index.json", "config.json", "*.py")
_TOKENIZER = ("*token*.json", "vocab*", "merges.txt", "*.model", "*.codes", "*.tiktoken", "*.jinja", "chat_template*")
_SETTINGS = ("modules.json", "*config*.json")


def identity(source: Source, options: ModelOptions, ability: str) -> Facts | None:
    """The facts that decide the answers, by name; None where they are hidden: an endpoint may change unseen."""
    read = _READERS.get(source.backend)
    facts = read(source, options, ability) if read else None
    if facts is None:
        return None
    # These change no answer; the content of folders and graphs is among the facts, whatever the requested revision.
    left_out = {"threads", "model_id"} | ({"revision"} if source.backend in ("torch", "onnx", "static") else set())
    kept = {name: value for name, value in asdict(options).items() if name not in left_out}
    return {"backend": source.backend, "ability": ability, **kept, **facts}


def names(source: Source, options: ModelOptions) -> tuple[str, str | None]:
    """The model's id and path as its backend reports them in ModelInfo."""
    if source.backend == "bm25":
        return options.model_id or "bm25", None
    place = _place(source, options)
    if source.path is None:
        return options.model_id or source.reference, str(place)
    in_folder = {"torch": place.name, "static": place.resolve().name, "onnx": onnx_files.folder_name(place)}
    return options.model_id or in_folder.get(source.backend, place.stem), str(place)


def _place(source: Source, options: ModelOptions) -> Path:
    """The folder or file that the backend loads."""
    finders = {"torch": torch_weights.find_folder, "static": static.find_folder, "onnx": onnx_files.graph_file}
    find = finders.get(source.backend)
    return find(source, options) if find else source.path or Path(source.reference)


def _torch(source: Source, options: ModelOptions, ability: str) -> Facts | None:
    folder = _place(source, options)
    layout = read_layout(folder)
    if "--" in str(read_json(layout.transformer / "config.json").get("auto_map")):
        return None  # its code lies in another repository
    return {
        **_contents(folder, layout, "weights", "tokenizer", "settings"),
        **_settled(layout, options, ability),
        "batching": str(torch_weights.choose_batching(options)),
    }


def _onnx(source: Source, options: ModelOptions, ability: str) -> Facts:
    file = _place(source, options)
    layout = read_layout(folder := onnx_files.settings_folder(file, options))
    return {
        "weights": hub.fingerprint(onnx_files.weight_files(file)),
        **_contents(folder, layout, "tokenizer", "settings"),
        **_settled(layout, options, ability),
        # A requested pooling also decides which output is read, even if it is the same as the default.
        "pooling_asked": options.pooling,
        "provider": onnx_session.provider_name(options),
        "batching": str(onnx.free_batching(file, options)),  # a fixed shape is a fact of the graph
    }


def _static(source: Source, options: ModelOptions, ability: str) -> Facts:
    folder = _place(source, options)
    layout = read_layout(folder)
    return {
        **_contents(folder, layout, "weights", "tokenizer", "settings"),
        "prompts": prompt_settings(layout, settle(layout, options), options),
        "prompt": None,
        "prompt_name": None,
    }


def _vectors(source: Source, options: ModelOptions, ability: str) -> Facts:
    file = _place(source, options)
    keys = [file.with_suffix(suffix) for suffix in (".txt", ".ids")] if file.suffix == ".npy" else []
    return {"weights": _digest(file.parent, [file, *(p for p in keys if p.exists())], named_after=file.stem)}


_READERS: dict[str, Callable[[Source, ModelOptions, str], Facts | None]] = {
    "torch": _torch,
    "onnx": _onnx,
    "static": _static,
    "vectors": _vectors,
    "bm25": lambda source, options, ability: {"weights": bm25.settle(source)[1]},
}


def _settled(layout: Layout, options: ModelOptions, ability: str) -> Facts:
    """What the model's files and the options come to, by the functions that the backends call."""
    if ability == "fill-mask":
        return {"max_length": options.max_length or layout.longest}
    settings = settle(layout, options)
    facts = asdict(settings)
    del facts["pooling_assumed"]  # the same pooling, whoever said so
    # Where sentence-transformers runs the model, and for scorers, these are refused: the options' values stay.
    if layout.further or ability not in ("encode", "retrieve"):
        del facts["pooling"], facts["normalize"]
    return {**facts, "prompts": prompt_settings(layout, settings, options), "prompt_name": None}


def _contents(folder: Path, layout: Layout, *kinds: str) -> Facts:
    """Digests of the folder's files, its transformer's among them: of all where sentence-transformers may read any."""
    settings = (*_SETTINGS, "*.json", "*.txt") if layout.further else _SETTINGS
    patterns = {"weights": _WEIGHTS, "tokenizer": _TOKENIZER, "settings": settings}
    searches = [folder.rglob] if layout.further else [folder.glob, layout.transformer.glob]
    files = {kind: [p for search in searches for name in patterns[kind] for p in search(name)] for kind in kinds}
    return {kind: _digest(folder, filter(Path.is_file, paths)) for kind, paths in files.items()}


def _digest(root: Path, files: Iterable[Path], *, named_after: str = "") -> str:
    """SHA-256 over the paths below `root` and the content of the files, each once. Neither the place of `root` matters
    nor `named_after`, a stem that the files share."""
    total = hashlib.sha256()
    for place, path in sorted({p.relative_to(root).as_posix(): p for p in files}.items()):
        with path.open("rb") as file:
            total.update(place.removeprefix(named_after).encode() + b"\0")
            total.update(hashlib.file_digest(file, "sha256").digest())
    return f"sha256:{total.hexdigest()}"
