"""Static embeddings (model2vec): a text is the mean of its tokens' vectors. No network is run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calipers.core import SILENT, ModelError, ModelInfo, Progress
from calipers.metrics.arrays import Vectors
from calipers.metrics.geometry import unit_like
from calipers.models import hub
from calipers.models.layout import prompt_settings, read_layout, settle
from calipers.models.options import ModelOptions
from calipers.models.source import Source
from calipers.models.tokenizer import Tokenizer, first_line, load_backend, read_json, unknown_id

_WINDOW = 8192  # texts whose token ids are held at a time
_MAX_LENGTH = 512  # where model2vec cuts by default


def load(source: Source, options: ModelOptions) -> StaticEncoder:
    folder = find_folder(source, options)
    file = folder / "model.safetensors"
    if not file.exists() or not (folder / "tokenizer.json").exists():
        raise ModelError(f"{folder} is not a model2vec model: expected model.safetensors and tokenizer.json")
    options.refuse_others("a static model", "model_id", "revision", "normalize", "prompt", "prompt_name", "max_length")
    layout = read_layout(folder)
    settings = settle(layout, options)
    own = settings.normalize or bool(read_json(folder / "config.json").get("normalize"))
    normalize = own if options.normalize is None else options.normalize
    length = options.max_length or _MAX_LENGTH
    backend = load_backend(folder)
    tokenizer = Tokenizer(backend, max_length=length, pad_id=0)
    prompts = prompt_settings(layout, settings, options)
    reported = {"pooling": "mean", "normalize": normalize, **prompts, "max_length": length}
    model_id = options.model_id or (folder.resolve().name if source.path else source.reference)
    fingerprint = hub.fingerprint([file, folder / "tokenizer.json"])
    info = ModelInfo("static", model_id, str(folder), "cpu", fingerprint, reported)
    return StaticEncoder(_token_vectors(file), tokenizer, unknown_id(backend), normalize, settings.prompt, info)


def find_folder(source: Source, options: ModelOptions) -> Path:
    patterns = [*hub.SETTINGS, "*.safetensors"]
    return source.path or hub.fetch(source.reference, revision=options.revision, patterns=patterns)


@dataclass(frozen=True, eq=False)
class StaticEncoder:
    vectors: Vectors
    tokenizer: Tokenizer
    unknown: int | None  # the id of the token that stands for unknown ones
    normalize: bool
    prompt: str
    info: ModelInfo

    def encode(self, texts: Sequence[str], *, prompt: str | None = None, progress: Progress = SILENT) -> Vectors:
        """A text without a token of the vocabulary is a zero vector."""
        prompt = self.prompt if prompt is None else prompt
        progress.start("Encoding", len(texts))
        vectors = np.zeros((len(texts), self.vectors.shape[1]), dtype=np.float32)
        for start in range(0, len(texts), _WINDOW):
            window = [prompt + text for text in texts[start : start + _WINDOW]]
            for i, tokens in enumerate(self.tokenizer.encode(window, special_tokens=False), start):
                ids = tokens.ids if self.unknown is None else tokens.ids[tokens.ids != self.unknown]
                if len(ids):
                    vectors[i] = self.vectors[ids].mean(axis=0)
            progress.advance(len(window))
        return unit_like(vectors) if self.normalize else vectors

    def pieces(self, words: Sequence[str]) -> list[list[str | None]]:
        """The sub-words of each word, for a look at the tokenizer; see Tokenizer.pieces."""
        return self.tokenizer.pieces(words)


def _token_vectors(file: Path) -> Vectors:
    """float32[vocabulary, d]: what model2vec stores as embeddings, token weights and a mapping to shared rows."""
    from safetensors.numpy import load_file

    try:
        tensors = load_file(file)
    except Exception as error:
        raise ModelError(f"{file} cannot be read: {first_line(error)}") from error
    vectors = tensors.get("embeddings", tensors.get("embedding.weight"))
    if vectors is None or vectors.ndim != 2:
        raise ModelError(f"{file} holds no table of embeddings: it has {', '.join(sorted(tensors)) or 'nothing'}")
    vectors = vectors.astype(np.float32)
    if "mapping" in tensors:
        vectors = vectors[tensors["mapping"]]
    if "weights" in tensors:
        vectors = vectors * tensors["weights"].astype(np.float32)[:, None]
    return vectors
