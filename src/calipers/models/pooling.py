"""Token embeddings to one vector per text."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.metrics.geometry import unit_like

Floats = NDArray[np.float32]


def pool(tokens: Floats, mask: NDArray[np.integer[Any]], mode: str, *, skip: int = 0) -> Floats:
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


def unit(vectors: Floats) -> Floats:
    """Rows scaled to norm 1. A zero row stays zero: whoever measures it must see that it is dead."""
    return np.asarray(unit_like(vectors), dtype=np.float32)
