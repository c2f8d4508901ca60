"""PyTorch encoders: a hub id or a folder, plain transformers where that is enough."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.core import SILENT, InferenceError, ModelError, ModelInfo, Progress, RequestError
from calipers.models import batching, hub
from calipers.models.layout import EncoderSettings, Layout, read_layout, settle
from calipers.models.options import ModelOptions
from calipers.models.pooling import pool, unit
from calipers.models.source import Source
from calipers.models.tokenizer import USUAL_LIMIT, Tokenizer, first_line, pad_id, read_json, transformers_backend

_WEIGHTS = ("*.safetensors", "*.safetensors.index.json", "*/*.safetensors")
_PICKLED = ("*.bin", "*.bin.index.json", "*/*.bin")
_BATCH_TOKENS = 2048  # fastest of 256 … 4096 for a 6 × 384 BERT on two cores (bench/similarity.py)


def load(source: Source, options: ModelOptions) -> TorchEncoder | ModulesEncoder:
    used = ("model_id", "revision", "pooling", "normalize", "prompt", "prompt_name", "max_length", "dtype", "device")
    options.refuse_others("PyTorch", *used, "batch_tokens", "batch_size", "allow_pickle", "trust_remote_code")
    folder = source.path or hub.fetch(
        source.reference,
        revision=options.revision,
        patterns=[*hub.SETTINGS, *_WEIGHTS, "*.py", *(_PICKLED if options.allow_pickle else ())],
    )
    if not folder.is_dir():
        raise ModelError(f"a PyTorch model is a folder or a hub id, found the file {folder}")
    layout = read_layout(folder)
    for part in {layout.transformer, *(p.parent for p in folder.glob("*/*.bin"))}:
        _refuse_pickle(part, options)
    _refuse_remote_code(source, layout.transformer, options)
    _import_torch()
    settings = settle(layout, options)
    if settings.max_length is None:
        settings = replace(settings, max_length=USUAL_LIMIT)
    info = _info(source, folder, layout, settings, options)
    make = ModulesEncoder if layout.further else TorchEncoder
    return make(folder, layout, settings, options, info)


@dataclass(frozen=True)
class Work:
    """How the rows are batched and on what they run."""

    batching: batching.Batching
    workers: int
    device: str


class TorchEncoder:
    """transformers' AutoModel, with pooling and normalisation of our own."""

    def __init__(
        self, folder: Path, layout: Layout, settings: EncoderSettings, options: ModelOptions, info: ModelInfo
    ) -> None:
        self.info = info
        self._settings = settings
        self._work = _work(options)
        self._model = _load_automodel(layout.transformer, options)
        _, backend = transformers_backend(layout.transformer, trust_remote_code=options.trust_remote_code)
        self._tokenizer = Tokenizer(
            backend,
            max_length=settings.max_length,
            pad_id=pad_id(layout.transformer, backend),
            lower_case=settings.lower_case,
        )

    def encode(self, texts: Sequence[str], *, progress: Progress = SILENT) -> NDArray[np.float32]:
        with _SingleThreaded(self._work):
            return batching.encode(
                [self._settings.prompt + text for text in texts],
                tokenizer=self._tokenizer,
                forward=self._forward,
                batching=self._work.batching,
                workers=self._work.workers,
                progress=progress,
            )

    def _forward(self, batch: batching.Batch) -> NDArray[np.float32]:
        import torch

        inputs = {"input_ids": batch.ids, "attention_mask": batch.mask}
        if self._takes_type_ids and batch.type_ids.any():
            inputs["token_type_ids"] = batch.type_ids
        try:
            with torch.inference_mode():
                tensors = {name: torch.from_numpy(a).to(self._work.device) for name, a in inputs.items()}
                hidden = self._model(**tensors).last_hidden_state
        except Exception as error:
            raise InferenceError(f"the model failed on a batch of {batch.ids.shape}: {first_line(error)}") from error
        vectors = pool(hidden.float().cpu().numpy(), batch.mask, self._settings.pooling)
        return unit(vectors) if self._settings.normalize else vectors

    @property
    def _takes_type_ids(self) -> bool:
        return bool(getattr(self._model.config, "type_vocab_size", 0))


class ModulesEncoder:
    """A model with modules beyond transformer, pooling and normalisation: sentence-transformers runs it."""

    def __init__(
        self, folder: Path, layout: Layout, settings: EncoderSettings, options: ModelOptions, info: ModelInfo
    ) -> None:
        if options.pooling or options.normalize is not None:
            raise RequestError(
                f"--pooling and --normalize do not apply to {folder}: it brings its own modules {list(layout.further)}"
            )
        self.info = info
        self._settings = settings
        self._rows = options.batch_size or 32
        self._model = _load_sentence_transformer(folder, settings, options)

    def encode(self, texts: Sequence[str], *, progress: Progress = SILENT) -> NDArray[np.float32]:
        distinct = sorted(dict.fromkeys(texts), key=len, reverse=True)
        progress.start("Encoding", len(distinct))
        parts = []
        for start in range(0, len(distinct), self._rows):
            rows = distinct[start : start + self._rows]
            parts.append(self._encode_rows(rows))
            progress.advance(len(rows))
        position = {text: i for i, text in enumerate(distinct)}
        return np.concatenate(parts)[[position[text] for text in texts]]

    def _encode_rows(self, rows: list[str]) -> NDArray[np.float32]:
        try:
            vectors = self._model.encode(
                rows, batch_size=len(rows), prompt=self._settings.prompt or None, show_progress_bar=False
            )
        except Exception as error:
            raise InferenceError(f"sentence-transformers failed on {len(rows)} texts: {first_line(error)}") from error
        return np.asarray(vectors, dtype=np.float32)


class _SingleThreaded:
    """Each worker computes its batch on one core: less waiting than one batch on all of them.

    The setting is the process's own, so it is put back afterwards. On a GPU nothing is changed.
    """

    def __init__(self, work: Work) -> None:
        self._on = work.device == "cpu"

    def __enter__(self) -> None:
        import torch

        self._before = torch.get_num_threads()
        if self._on:
            torch.set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        import torch

        torch.set_num_threads(self._before)


def _import_torch() -> None:
    try:
        import torch  # noqa: F401
        import transformers
    except ImportError as error:
        raise ModelError(f"PyTorch models need {error.name}: pip install 'calipers[torch]'") from error
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()


def _work(options: ModelOptions) -> Work:
    import torch

    try:
        torch.empty(1, device=options.device)
    except Exception as error:
        raise RequestError(f"PyTorch cannot use the device {options.device!r} here: {first_line(error)}") from error
    size = batching.Batching(
        tokens=None if options.batch_size else options.batch_tokens or _BATCH_TOKENS,
        rows=options.batch_size,
        why="as asked" if options.batch_size or options.batch_tokens else "",
    )
    return Work(size, options.workers if options.device == "cpu" else 1, options.device)


def _info(source: Source, folder: Path, layout: Layout, settings: EncoderSettings, options: ModelOptions) -> ModelInfo:
    files = [p for pattern in (*_WEIGHTS, *_PICKLED, "tokenizer.json", "*.model") for p in folder.glob(pattern)]
    through = "sentence-transformers" if layout.further else "transformers"
    return ModelInfo(
        backend="torch",
        model_id=options.model_id or (folder.name if source.path else source.reference),
        path=str(folder),
        device=options.device,
        fingerprint=hub.fingerprint(f for f in files if f.is_file()),
        settings={
            "through": through,
            "pooling": "+".join(layout.further) if layout.further else settings.pooling,
            "normalize": settings.normalize,
            "prompt": settings.prompt,
            "max_length": settings.max_length,
            "dtype": options.dtype,
            "revision": options.revision,
            "batching": f"{options.batch_size or 32} rows a batch" if layout.further else str(_work(options).batching),
        },
    )


def _load_automodel(folder: Path, options: ModelOptions) -> Any:
    import torch
    from transformers import AutoModel

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model, report = AutoModel.from_pretrained(
                str(folder),
                dtype=getattr(torch, options.dtype),
                use_safetensors=None if options.allow_pickle else True,
                trust_remote_code=options.trust_remote_code,
                output_loading_info=True,
            )
    except Exception as error:
        raise ModelError(f"PyTorch cannot load {folder}: {first_line(error)}") from error
    # A pooler is not used here; anything else that the weights lack would be random numbers.
    missing = [key for key in report["missing_keys"] if "pooler" not in key]
    if missing:
        raise ModelError(f"the weights in {folder} lack {len(missing)} tensors, {missing[0]!r} among them")
    return model.to(options.device).eval()


def _load_sentence_transformer(folder: Path, settings: EncoderSettings, options: ModelOptions) -> Any:
    import torch

    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise ModelError(f"{folder} has modules that need it: pip install sentence-transformers") from error
    arguments = {
        "dtype": getattr(torch, options.dtype),
        "use_safetensors": None if options.allow_pickle else True,
    }
    try:
        model = SentenceTransformer(
            str(folder),
            device=options.device,
            trust_remote_code=options.trust_remote_code,
            model_kwargs=arguments,
            local_files_only=True,
        ).to(arguments["dtype"])
    except Exception as error:
        raise ModelError(f"sentence-transformers cannot load {folder}: {first_line(error)}") from error
    if settings.max_length:
        model.max_seq_length = settings.max_length
    return model.eval()


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
