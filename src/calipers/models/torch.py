"""PyTorch encoders: a hub id or a folder, plain transformers where that is enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.core import SILENT, InferenceError, ModelError, ModelInfo, Progress, RequestError
from calipers.models import batching
from calipers.models.layout import EncoderSettings, Layout, read_layout, settle, told_prompts
from calipers.models.options import ModelOptions
from calipers.models.pooling import pool, unit
from calipers.models.source import Source
from calipers.models.tokenizer import USUAL_LIMIT, Tokenizer, first_line, pad_id, read_json, transformers_backend
from calipers.models.torch_weights import fetch_folder, load_weights, model_info, single_threaded, work


def load(source: Source, options: ModelOptions) -> TorchEncoder | ModulesEncoder:
    used = ("model_id", "revision", "pooling", "normalize", "prompt", "prompt_name", "max_length", "dtype", "device")
    options.refuse_others("PyTorch", *used, "batch_tokens", "batch_size", "allow_pickle", "trust_remote_code")
    folder = fetch_folder(source, options)
    layout = read_layout(folder)
    settings = settle(layout, options)
    if settings.max_length is None:
        settings = replace(settings, max_length=USUAL_LIMIT)
    info = _info(model_info(source, folder, options), layout, settings, options)
    make = ModulesEncoder if layout.further else TorchEncoder
    return make(folder, layout, settings, options, info)


class TorchEncoder:
    """transformers' AutoModel, with pooling and normalisation of our own."""

    def __init__(
        self, folder: Path, layout: Layout, settings: EncoderSettings, options: ModelOptions, info: ModelInfo
    ) -> None:
        self.info = info
        self._settings = settings
        self._work = work(options)
        self._model = load_weights("AutoModel", layout.transformer, options)
        _, backend = transformers_backend(layout.transformer, trust_remote_code=options.trust_remote_code)
        self._tokenizer = Tokenizer(
            backend,
            max_length=settings.max_length,
            pad_id=pad_id(layout.transformer, backend),
            lower_case=settings.lower_case,
        )

    def encode(
        self, texts: Sequence[str], *, prompt: str | None = None, progress: Progress = SILENT
    ) -> NDArray[np.float32]:
        prompt = self._settings.prompt if prompt is None else prompt
        skip = self._settings.tokens_to_skip(prompt, self._tokenizer)
        with single_threaded(self._work):
            return batching.encode(
                [prompt + text for text in texts],
                tokenizer=self._tokenizer,
                forward=partial(self._forward, skip=skip),
                batching=self._work.batching,
                workers=self._work.workers,
                progress=progress,
            )

    def pieces(self, words: Sequence[str]) -> list[list[str | None]]:
        """The sub-words of each word, for a look at the tokenizer; see Tokenizer.pieces."""
        return self._tokenizer.pieces(words)

    def _forward(self, batch: batching.Batch, skip: int = 0) -> NDArray[np.float32]:
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
        vectors = pool(hidden.float().cpu().numpy(), batch.mask, self._settings.pooling, skip=skip)
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

    def encode(
        self, texts: Sequence[str], *, prompt: str | None = None, progress: Progress = SILENT
    ) -> NDArray[np.float32]:
        prompt = self._settings.prompt if prompt is None else prompt
        distinct = sorted(dict.fromkeys(texts), key=len, reverse=True)
        progress.start("Encoding", len(distinct))
        parts = []
        for start in range(0, len(distinct), self._rows):
            rows = distinct[start : start + self._rows]
            parts.append(self._encode_rows(rows, prompt))
            progress.advance(len(rows))
        position = {text: i for i, text in enumerate(distinct)}
        return np.concatenate(parts)[[position[text] for text in texts]]

    def _encode_rows(self, rows: list[str], prompt: str) -> NDArray[np.float32]:
        try:  # "" is no prompt, where None would be the model's default
            vectors = self._model.encode(rows, batch_size=len(rows), prompt=prompt, show_progress_bar=False)
        except Exception as error:
            raise InferenceError(f"sentence-transformers failed on {len(rows)} texts: {first_line(error)}") from error
        return np.asarray(vectors, dtype=np.float32)


def _info(info: ModelInfo, layout: Layout, settings: EncoderSettings, options: ModelOptions) -> ModelInfo:
    told = {
        "through": "sentence-transformers" if layout.further else "transformers",
        "pooling": "+".join(layout.further) if layout.further else settings.pooling,
        "pooling_assumed": settings.pooling_assumed,
        "normalize": settings.normalize,
        **told_prompts(layout, settings, options),
        "max_length": settings.max_length,
        "batching": f"{options.batch_size or 32} rows a batch" if layout.further else str(work(options).batching),
    }
    return replace(info, settings={**info.settings, **told}, notes=_doubts(layout))


def _doubts(layout: Layout) -> tuple[str, ...]:
    """A model that was trained for something else gives vectors too, and a score that means little."""
    made = str((read_json(layout.transformer / "config.json").get("architectures") or [""])[0])
    if layout.pooling is None and made.endswith(("ForMaskedLM", "ForSequenceClassification")):
        return (f"the weights are those of a {made}: an embedding model was expected",)
    return ()


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
