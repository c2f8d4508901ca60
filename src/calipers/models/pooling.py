"""Token embeddings to one vector per text, and the encoder that every transformer backend shares."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.core import SILENT, Progress
from calipers.metrics.arrays import Vectors
from calipers.metrics.geometry import unit_like
from calipers.models.batching import Batch, BatchedModel
from calipers.models.layout import EncoderSettings


@dataclass(frozen=True, eq=False)
class PooledEncoder(BatchedModel, ABC):
    """A transformer whose token embeddings are pooled. A backend says how a batch is computed."""

    settings: EncoderSettings

    @abstractmethod
    def embed(self, batch: Batch) -> Vectors:
        """Token embeddings float32[b, s, d], or pooled vectors float32[b, d]."""

    def encode(self, texts: Sequence[str], *, prompt: str | None = None, progress: Progress = SILENT) -> Vectors:
        prompt = self.settings.prompt if prompt is None else prompt
        forward = partial(self._vectors, skip=self.tokens_to_skip(prompt))
        return self.compute("Encoding", [prompt + text for text in texts], self.tokenizer.encode, forward, progress)

    def pieces(self, words: Sequence[str]) -> list[list[str | None]]:
        """The sub-words of each word, for a look at the tokenizer; see Tokenizer.pieces."""
        return self.tokenizer.pieces(words)

    def tokens_to_skip(self, prompt: str) -> int:
        """How many tokens at the head of a text pooling leaves out, the special token before the prompt included."""
        return 0 if self.settings.include_prompt or not prompt else self.tokenizer.prompt_length(prompt)

    def _vectors(self, batch: Batch, skip: int) -> Vectors:
        vectors = self.embed(batch)
        if vectors.ndim == 3:
            vectors = pool(vectors, batch.mask, self.settings.pooling, skip=skip)
        return unit_like(vectors) if self.settings.normalize else vectors


def pool(tokens: Vectors, mask: NDArray[np.integer[Any]], mode: str, *, skip: int = 0) -> Vectors:
    """tokens float32[b, s, d], mask int[b, s] (1 for real tokens), to float32[b, d].

    `skip` tokens at the head of every row are left out: those of a prompt that a model was trained to leave out. The
    mean of no tokens is zero.

    >>> pool(np.array([[[2.0], [4.0], [9.0]]], np.float32), np.array([[1, 1, 0]]), "mean")
    array([[3.]], dtype=float32)
    """
    if skip:
        mask = np.where(np.arange(mask.shape[1]) < skip, 0, mask)
    if mode == "cls":
        pooled = tokens[np.arange(len(tokens)), np.argmax(mask > 0, axis=1)]  # the first that is not left out
    elif mode == "last":
        # The last real token: right-padded rows end at their count, left-padded ones at the end.
        last = mask.shape[1] - 1 - np.argmax(mask[:, ::-1], axis=1)
        pooled = tokens[np.arange(len(tokens)), last]
    elif mode == "max":
        pooled = np.where(mask[:, :, None] > 0, tokens, -np.inf).max(axis=1)
    else:
        weights = mask.astype(np.float32)
        pooled = np.matmul(weights[:, None, :], tokens)[:, 0] / np.maximum(weights.sum(axis=1, keepdims=True), 1.0)
    return np.asarray(pooled, dtype=np.float32)
