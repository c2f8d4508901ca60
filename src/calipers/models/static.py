"""Static embeddings: a text is the mean of its tokens' vectors. No network is run.

A folder of model2vec and one of sentence-transformers' StaticEmbedding have different rules: model2vec cuts texts, at
512 tokens unless its config.json says otherwise, and leaves unknown tokens out; StaticEmbedding does neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from calipers.core import SILENT, ModelError, ModelInfo, Progress
from calipers.core.errors import boundary
from calipers.core.inputs import refuse_irregular
from calipers.metrics.arrays import Vectors
from calipers.metrics.geometry import unit_like
from calipers.metrics.magnitudes import common_power, single
from calipers.metrics.threads import tokenizer_threads
from calipers.models import hub
from calipers.models.batching import CountsTruncated
from calipers.models.layout import prompt_settings, read_layout, read_modules, settle, vector_settings
from calipers.models.options import ModelOptions
from calipers.models.shortening import Shortening
from calipers.models.source import Source
from calipers.models.tokenizer import NO_LIMIT, Tokenizer, unknown_id
from calipers.models.tokenizer_files import Prepared, first_line, load_backend, read_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

_WINDOW = 8192  # texts whose token ids are held at a time
_MAX_LENGTH = 512  # where model2vec cuts by default


def load(source: Source, options: ModelOptions) -> StaticEncoder:
    folder = find_folder(source, options)
    place = _embedding_folder(folder)
    file = place / "model.safetensors"
    for name in ("model.safetensors", "tokenizer.json"):
        refuse_irregular(place / name, ModelError)
    if not file.exists() or not (place / "tokenizer.json").exists():
        raise ModelError(f"{folder} is not a static model: expected model.safetensors and tokenizer.json in {place}")
    used = ("model_id", "revision", "normalize", "prompt", "prompt_name", "max_length", "truncate_dim")
    options.refuse_others("a static model", *used)
    layout = read_layout(folder)
    settings = settle(layout, options)
    own = settings.normalize or bool(read_json(folder / "config.json").get("normalize"))
    normalize = own if options.normalize is None else options.normalize
    rules, vectors = _read_rules(folder, load_backend(place), options), _token_vectors(file)
    if (tokens := rules.tokenizer.last_id + 1) > len(vectors):
        raise ModelError(f"{file} has {len(vectors):,} vectors, and the tokenizer has {tokens:,} tokens")
    prompts = prompt_settings(layout, settings, options)
    length = rules.tokenizer.max_length
    limit = length if length < NO_LIMIT else None
    cut = vector_settings(layout, settings)
    reported = {"pooling": "mean", "normalize": normalize, **cut, **prompts, "max_length": limit}
    model_id = options.model_id or (folder.resolve().name if source.path else source.reference)
    info = ModelInfo("static", model_id, str(folder), "cpu", "", reported)
    return StaticEncoder(vectors, rules, normalize, settings.prompt, settings.shortening, info)


def _embedding_folder(folder: Path) -> Path:
    """Where the table is: model2vec's is in the folder itself, a module's in its own."""
    modules = read_modules(folder)
    if others := [m.kind for m in modules if m.kind not in ("StaticEmbedding", "Normalize")]:
        raise ModelError(
            f"{folder} is more than static embeddings ({', '.join(others)}): sentence-transformers runs it as torch:"
        )
    return folder / next((m.path for m in modules if m.kind == "StaticEmbedding"), "")


@dataclass(frozen=True, eq=False)
class _Rules:
    """How a text becomes the ids of its tokens."""

    tokenizer: Tokenizer
    unknown: int | None = None  # left out of the mean
    characters: int | None = None  # where a text is cut before it is tokenized
    threads: int = 1

    def ids(self, texts: Sequence[str]) -> tuple[list[NDArray[np.int32]], set[str]]:
        """Of each text, and the texts that are cut, at a character or at a token."""
        with tokenizer_threads(self.threads):
            rows = self.tokenizer.encode([text[: self.characters] for text in texts])
        pairs = zip(rows, texts, strict=True)
        cut = {text for row, text in pairs if row.cut or len(text) > (self.characters or len(text))}
        return [row.ids if self.unknown is None else row.ids[row.ids != self.unknown] for row in rows], cut


def _read_rules(folder: Path, backend: Backend, options: ModelOptions) -> _Rules:
    config, cut = read_json(folder / "config.json"), backend.truncation or {}
    if config.get("model_type") != "model2vec":
        length = options.max_length or cut.get("max_length", NO_LIMIT)
        return _Rules(_tokenizer(backend, length, str(cut.get("direction", "right"))), threads=options.workers)
    length = options.max_length or config.get("max_length", _MAX_LENGTH)
    tokenizer = _tokenizer(backend, NO_LIMIT if length is None else length, "right")  # refuses what is no length
    median = int(np.median([len(token) for token in backend.get_vocab(with_added_tokens=True)]))
    characters = None if length is None else length * median
    return _Rules(tokenizer, unknown_id(backend), characters, options.workers)


def _tokenizer(backend: Backend, length: object, side: str) -> Tokenizer:
    if not isinstance(length, int) or length < 1:
        raise ModelError(f"the model's config.json has max_length {length!r}: expected a whole number from 1 on")
    prepared = Prepared(backend, truncation_side=side, type_ids=False)
    return Tokenizer(prepared, max_length=length, pad_id=0, special_tokens=False)


def find_folder(source: Source, options: ModelOptions) -> Path:
    patterns = [*hub.SETTINGS, "*.safetensors"]
    return source.path or hub.fetch(source.reference, revision=options.revision, patterns=patterns)


@dataclass(frozen=True, eq=False)
class StaticEncoder(CountsTruncated):
    vectors: Vectors
    rules: _Rules
    normalize: bool
    prompt: str
    shortening: Shortening
    info: ModelInfo

    def encode(self, texts: Sequence[str], *, prompt: str | None = None, progress: Progress = SILENT) -> Vectors:
        """A text without a token of the vocabulary is a zero vector."""
        prompt = self.prompt if prompt is None else prompt
        progress.start("Encoding", len(texts))
        vectors = np.zeros((len(texts), self.vectors.shape[1]), dtype=np.float32)
        for start in range(0, len(texts), _WINDOW):
            window = [prompt + text for text in texts[start : start + _WINDOW]]
            rows, cut = self.rules.ids(window)
            self.tally.count += len(cut)
            for i, ids in enumerate(rows, start):
                if len(ids):
                    vectors[i] = self.vectors[ids].mean(axis=0)
            progress.advance(len(window))
        return self.shortening.apply(unit_like(vectors) if self.normalize else vectors)

    def pieces(self, words: Sequence[str]) -> list[list[str | None]]:
        """The sub-words of each word, for a look at the tokenizer; see Tokenizer.pieces."""
        return self.rules.tokenizer.pieces(words)


def _token_vectors(file: Path) -> Vectors:
    """float32[vocabulary, d]: what model2vec stores as embeddings, token weights and a mapping to shared rows."""
    from safetensors.numpy import load, load_file

    is_utf8 = not any("\ud800" <= character <= "\udfff" for character in str(file))
    try:
        tensors = load_file(file) if is_utf8 else load(file.read_bytes())
    except Exception as error:
        raise ModelError(f"{file} cannot be read: {first_line(error)}") from error
    vectors = tensors.get("embeddings", tensors.get("embedding.weight"))
    if vectors is None or vectors.ndim != 2:
        raise ModelError(f"{file} holds no table of embeddings: it has {', '.join(sorted(tensors)) or 'nothing'}")
    with boundary(ModelError, f"the tensors in {file} do not fit each other"):
        vectors = single(vectors, common_power(vectors))
        if "mapping" in tensors:
            vectors = vectors[_indexes(tensors["mapping"], len(vectors), file)]
        if "weights" in tensors:
            vectors = vectors * tensors["weights"].astype(np.float32)[:, None]
    return vectors


def _indexes(mapping: NDArray[np.generic], rows: int, file: Path) -> NDArray[np.int64]:
    """The row of the table for each token."""
    if mapping.ndim != 1 or not np.issubdtype(mapping.dtype, np.integer):
        raise ModelError(
            f"{file}: the mapping is {mapping.dtype} {list(mapping.shape)}, expected one row number a token"
        )
    if len(mapping) and not 0 <= int(mapping.min()) <= int(mapping.max()) < rows:
        raise ModelError(f"{file}: the mapping names a row beyond the {rows:,} of the table")
    return mapping.astype(np.int64)
