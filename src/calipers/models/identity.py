"""What decides a model's answers, read from its files without loading it: the one identity of a model.

`fingerprint` is over the content of every file that a model reads; ModelInfo holds it. `identity` adds the options and
what files and options come to: the keys of runs and of vectors are made of it, builds and trust scores use both.

Options that are not resolved here are taken as they are, and whole files are hashed where it is not certain what is
read of them: the worst result is a run too many.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from calipers.core import ModelError, ModelInfo
from calipers.core.errors import boundary
from calipers.models import hybrid, onnx_files
from calipers.models.layout import Layout, prompt_settings, read_layout, read_modules, settle
from calipers.models.options import ModelOptions
from calipers.models.source import Source, encoder_of

Facts = dict[str, object]

# Settings that say how a model is run, or where something comes from.
_RUNNING = ("batching", "batch_dependence", "shape", "provider", "revision", "pooling_assumed", "through", "short_cut")
_WEIGHTS = ("*.safetensors", "*.bin", "*.index.json", "config.json", "*.py")
_SAFE, _PICKLED = ("*.safetensors",), ("*.bin", "*.pt", "*.pth")
_TOKENIZER = ("*token*.json", "vocab*", "merges.txt", "*.model", "*.codes", "*.tiktoken", "*.jinja", "chat_template*")
_SETTINGS = ("modules.json", "*config*.json")


def identity(source: Source, options: ModelOptions, ability: str) -> Facts | None:
    """The facts that decide the answers, by name; None where they are hidden: an endpoint may change unseen."""
    if source.backend == "hybrid":
        fusion, lexical = hybrid.settle(source)
        encoder = identity(encoder_of(source), options, ability)
        return None if encoder is None else {**encoder, "fusion": asdict(fusion), "bm25": _lexical(lexical)}
    read = _READERS.get(source.backend)
    with boundary(ModelError, f"the files of {source.reference} cannot be read"):
        facts = read(source, options, ability) if read else None
    if facts is None:
        return None
    # These change no answer; the content of folders and graphs is among the facts, whatever the requested revision.
    left_out = {"threads", "model_id", "sandbox"} | (
        {"revision"} if source.backend in ("torch", "onnx", "static") else set()
    )
    kept = {name: value for name, value in asdict(options).items() if name not in left_out}
    return {"backend": source.backend, "ability": ability, **kept, **facts}


def fingerprint(source: Source, options: ModelOptions) -> str | None:
    """SHA-256 over the content of the model's files, wherever they are; None where they are not on this machine."""
    read = _FILES.get(source.backend)
    if read is None:
        return None
    with boundary(ModelError, f"the files of {source.reference} cannot be read"):
        files = read(source, options)
    total = hashlib.sha256("\0".join(f"{name} {digest}" for name, digest in files.items()).encode())
    return f"sha256:{total.hexdigest()}"


def size(source: Source, options: ModelOptions) -> int:
    """Bytes of the weights, 0 where they are not on this machine."""
    place = _place(source, options)
    files = onnx_files.weight_files(place) if source.backend == "onnx" else place.rglob("*.safetensors")
    return sum(file.stat().st_size for file in files)


def sign(model: Any, source: Source, options: ModelOptions) -> Any:
    """The model with its fingerprint and its size in `info`; an endpoint's fingerprint is its address."""
    digest = fingerprint(source, options)
    if digest is None:
        return model
    return replace(model, info=replace(model.info, fingerprint=digest, size=_size(source, options)))


def _size(source: Source, options: ModelOptions) -> int | None:
    """Bytes of the weights on disk: of a graph with its external data, or of the files that a folder is loaded from."""
    if source.backend == "bm25":
        return None
    place = _place(source, options)
    if source.backend == "onnx":
        files = onnx_files.weight_files(place)
    elif place.is_file():
        files = [place]
    else:
        folders = {place, *(place / module.path for module in read_modules(place))}
        each = [[p for name in names for f in folders for p in f.glob(name)] for names in (_SAFE, _PICKLED)]
        files = next(filter(None, each), [])
    return sum(file.stat().st_size for file in dict.fromkeys(path.resolve() for path in files))


def vector_settings(info: ModelInfo) -> Facts:
    """The settings of a loaded model that decide its vectors, whatever the machine and the batches."""
    return {name: value for name, value in info.settings.items() if name not in _RUNNING}


def names(source: Source, options: ModelOptions) -> tuple[str, str | None]:
    """The model's id and path as its backend reports them in ModelInfo."""
    if source.backend == "hybrid":
        name, path = names(encoder_of(source), options)
        return f"{name} + bm25", path
    if source.backend == "bm25":
        return options.model_id or "bm25", None
    place = _place(source, options)
    if source.path is None:
        return options.model_id or source.reference, str(place)
    in_folder = {"torch": place.name, "static": place.resolve().name, "onnx": onnx_files.folder_name(place)}
    return options.model_id or in_folder.get(source.backend, place.stem), str(place)


# Backends that need `model_id` to find settings, or the model behind an address; for the others it is a name.
_NEEDS_ID = ("onnx", "http")


def baseline_options(source: Source, options: ModelOptions) -> ModelOptions:
    """The options for the baseline of a candidate: `model_id` names the candidate, not both of them."""
    return options if source.backend in _NEEDS_ID else replace(options, model_id=None)


def under_own_name(model: Any, source: Source, options: ModelOptions) -> Any:
    """The model with the name that it has without `model_id`."""
    name, _ = names(source, replace(options, model_id=None))
    return replace(model, info=replace(model.info, model_id=name))


def _place(source: Source, options: ModelOptions) -> Path:
    """The folder or file that the backend loads."""
    if source.backend == "torch":
        from calipers.models.torch_weights import find_folder

        return find_folder(source, options)
    if source.backend == "static":
        from calipers.models import static

        return static.find_folder(source, options)
    if source.backend == "onnx":
        return onnx_files.graph_file(source, options)
    return source.path or Path(source.reference)


def _torch(source: Source, options: ModelOptions, ability: str) -> Facts | None:
    from calipers.models.torch_weights import choose_batching

    layout = read_layout(_place(source, options))
    if "--" in str(layout.config.get("auto_map")):
        return None  # its code lies in another repository
    batching = str(choose_batching(options))
    return {**_folder_files(source, options), **_settled(layout, options, ability), "batching": batching}


def _onnx(source: Source, options: ModelOptions, ability: str) -> Facts:
    from calipers.models import onnx, onnx_session

    file = _place(source, options)
    return {
        **_onnx_files(source, options),
        **_settled(read_layout(onnx_files.settings_folder(file, options)), options, ability),
        # A requested pooling also decides which output is read, even if it is the same as the default.
        "pooling_asked": options.pooling,
        "provider": onnx_session.provider_name(options),
        "batching": str(onnx.free_batching(file, options)),  # a fixed shape is a fact of the graph
    }


def _static(source: Source, options: ModelOptions, ability: str) -> Facts:
    layout = read_layout(_place(source, options))
    prompts = prompt_settings(layout, settle(layout, options), options)
    return {**_folder_files(source, options), "prompts": prompts, "prompt": None, "prompt_name": None}


def _folder_files(source: Source, options: ModelOptions) -> dict[str, str]:
    return _contents(_place(source, options), "weights", "tokenizer", "settings")


def _onnx_files(source: Source, options: ModelOptions) -> dict[str, str]:
    file = _place(source, options)
    weights = _digest(file.parent, onnx_files.weight_files(file), named_after=file.stem)
    return {"weights": weights, **_contents(onnx_files.settings_folder(file, options), "tokenizer", "settings")}


def _vectors_files(source: Source, options: ModelOptions) -> dict[str, str]:
    file = _place(source, options)
    keys = [file.with_suffix(suffix) for suffix in (".txt", ".ids")] if file.suffix == ".npy" else []
    files = [file, *[p for p in keys if p.exists()][:1]]  # a table has one file of keys
    return {"weights": _digest(file.parent, files, named_after=file.stem)}


def _bm25_files(source: Source, options: ModelOptions) -> dict[str, str]:
    return {"weights": hashlib.sha256(json.dumps(_lexical(source)).encode()).hexdigest()}


def _lexical(source: Source) -> dict[str, Any]:
    from calipers.models import bm25

    return bm25.settle(source)[1]


_FILES: dict[str, Callable[[Source, ModelOptions], dict[str, str]]] = {
    "torch": _folder_files,
    "onnx": _onnx_files,
    "static": _folder_files,
    "vectors": _vectors_files,
    "bm25": _bm25_files,
}
_READERS: dict[str, Callable[[Source, ModelOptions, str], Facts | None]] = {
    "torch": _torch,
    "onnx": _onnx,
    "static": _static,
    "vectors": lambda source, options, ability: {**_vectors_files(source, options)},
    "bm25": lambda source, options, ability: {**_bm25_files(source, options)},
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


def _contents(folder: Path, *kinds: str) -> dict[str, str]:
    """Digests of the files of a folder and of its modules: of all below it where sentence-transformers may read any."""
    everything = bool(read_layout(folder).further)
    settings = (*_SETTINGS, "*.json", "*.txt") if everything else _SETTINGS
    patterns = {"weights": _WEIGHTS, "tokenizer": _TOKENIZER, "settings": settings}
    places = {folder, *(folder / module.path for module in read_modules(folder))}
    searches = [folder.rglob] if everything else [place.glob for place in places]
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
