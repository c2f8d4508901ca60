"""PyTorch weights from a folder or the hub, safely; and how their work is spread over the cores."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calipers.core import ModelError, ModelInfo, RequestError
from calipers.models import batching, hub
from calipers.models.layout import read_layout
from calipers.models.options import ModelOptions
from calipers.models.source import Source
from calipers.models.tokenizer import first_line, read_json

_WEIGHTS = ("*.safetensors", "*.safetensors.index.json", "*/*.safetensors")
_PICKLED = ("*.bin", "*.bin.index.json", "*/*.bin")
_BATCH_TOKENS = 2048  # fastest of 256 … 4096 for a 6 × 384 BERT on two cores (bench/similarity.py)


_KINDS = {
    "AutoModel": "an encoder",
    "AutoModelForMaskedLM": "a masked language model",
    "AutoModelForSequenceClassification": "a cross-encoder",
}


def fetch_folder(source: Source, options: ModelOptions) -> Path:
    """The model's folder, and PyTorch ready to load from it."""
    folder = find_folder(source, options)
    import_torch()
    return folder


def find_folder(source: Source, options: ModelOptions) -> Path:
    """The model's folder on this machine, once it is clear that loading it runs no code that nobody asked for."""
    folder = source.path or hub.fetch(
        source.reference,
        revision=options.revision,
        patterns=[*hub.SETTINGS, *_WEIGHTS, "*.py", *(_PICKLED if options.allow_pickle else ())],
    )
    if not folder.is_dir():
        raise ModelError(f"a PyTorch model is a folder or a hub id, found the file {folder}")
    transformer = read_layout(folder).transformer
    for part in {transformer, *(p.parent for p in folder.glob("*/*.bin"))}:
        _refuse_pickle(part, options)
    _refuse_remote_code(source, transformer, options)
    return folder


def load_weights(kind: str, folder: Path, options: ModelOptions) -> Any:
    """A model of the transformers class `kind`, in float32 unless asked otherwise."""
    import torch
    import transformers

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model, report = getattr(transformers, kind).from_pretrained(
                str(folder),
                dtype=getattr(torch, options.dtype),
                use_safetensors=None if options.allow_pickle else True,
                trust_remote_code=options.trust_remote_code,
                output_loading_info=True,
            )
    except Exception as error:
        raise ModelError(f"PyTorch cannot load {folder}: {first_line(error)}") from error
    # A pooler is used nowhere here; anything else that the weights lack would be random numbers.
    missing = [key for key in report["missing_keys"] if "pooler" not in key]
    if missing:
        raise ModelError(
            f"the weights in {folder} are not those of {_KINDS.get(kind, kind)}: they lack {len(missing)} tensors, "
            f"{missing[0]!r} among them"
        )
    return model.to(options.device).eval()


@dataclass(frozen=True)
class Work:
    """How the rows are batched and on what they run."""

    batching: batching.Batching
    workers: int
    device: str


def work(options: ModelOptions) -> Work:
    import torch

    try:
        torch.empty(1, device=options.device)
    except Exception as error:
        raise RequestError(f"PyTorch cannot use the device {options.device!r} here: {first_line(error)}") from error
    return Work(choose_batching(options), options.workers if options.device == "cpu" else 1, options.device)


def choose_batching(options: ModelOptions) -> batching.Batching:
    return batching.Batching(
        tokens=None if options.batch_size else options.batch_tokens or _BATCH_TOKENS,
        rows=options.batch_size,
        why="as asked" if options.batch_size or options.batch_tokens else "",
    )


def single_threaded(work: Work) -> AbstractContextManager[None]:
    """Each worker computes its batch on one core: less waiting than one batch on all cores. A GPU is left as it is."""
    return torch_threads(1) if work.device == "cpu" else nullcontext()


class _ThreadSetting:
    """Who holds PyTorch's number of threads, a setting of the process: the first to enter saves it, the last to leave
    puts it back, so that models used by several threads at once cannot leave each other's number behind."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.holders = 0
        self.before = 0


_THREAD_SETTING = _ThreadSetting()


@contextmanager
def torch_threads(number: int) -> Iterator[None]:
    import torch

    with _THREAD_SETTING.lock:
        if not _THREAD_SETTING.holders:
            _THREAD_SETTING.before = torch.get_num_threads()
        _THREAD_SETTING.holders += 1
        torch.set_num_threads(number)
    try:
        yield
    finally:
        with _THREAD_SETTING.lock:
            _THREAD_SETTING.holders -= 1
            if not _THREAD_SETTING.holders:
                torch.set_num_threads(_THREAD_SETTING.before)


def model_info(source: Source, folder: Path, options: ModelOptions) -> ModelInfo:
    """What every PyTorch model says of itself; the settings of its kind come on top."""
    files = [p for pattern in (*_WEIGHTS, *_PICKLED, "tokenizer.json", "*.model") for p in folder.glob(pattern)]
    return ModelInfo(
        backend="torch",
        model_id=options.model_id or (folder.name if source.path else source.reference),
        path=str(folder),
        device=options.device,
        fingerprint=hub.fingerprint(f for f in files if f.is_file()),
        settings={"dtype": options.dtype, "revision": options.revision},
    )


def import_torch() -> None:
    try:
        import torch  # noqa: F401
        import transformers
    except ImportError as error:
        raise ModelError(f"PyTorch models need {error.name}: pip install 'calipers[torch]'") from error
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()


def _refuse_pickle(folder: Path, options: ModelOptions) -> None:
    if options.allow_pickle or any(folder.glob("*.safetensors")):
        return
    pickled = [p.name for pattern in ("*.bin", "*.pt", "*.pth") for p in folder.glob(pattern)]
    if pickled:
        raise ModelError(
            f"the weights in {folder} are pickled ({pickled[0]}), and unpickling can run code: "
            "convert them to safetensors, or pass --allow-pickle if you trust them"
        )
    raise ModelError(f"there are no weights in {folder}: expected model.safetensors")


def _refuse_remote_code(source: Source, folder: Path, options: ModelOptions) -> None:
    config = read_json(folder / "config.json")
    if "auto_map" not in config:
        return
    if not options.trust_remote_code:
        raise ModelError(
            f"{source.reference} brings its own Python code: read it, then pass --trust-remote-code"
            + ("" if source.path else " with --model-revision COMMIT")
        )
    elsewhere = any("--" in str(target) for target in config["auto_map"].values())
    if (source.path is None or elsewhere) and not hub.is_commit(options.revision):
        raise ModelError(
            f"{source.reference} brings its own Python code from the hub: "
            "pin it with --model-revision and a full commit hash of 40 digits"
        )
