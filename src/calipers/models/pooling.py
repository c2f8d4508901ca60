"""Token embeddings to one vector per text."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def pool(tokens: Floats, mask: NDArray[np.integer[Any]], mode: str) -> Floats:
    """tokens float32[b, s, d], mask int[b, s] (1 for real tokens), to float32[b, d].

    >>> pool(np.array([[[2.0], [4.0], [9.0]]], np.float32), np.array([[1, 1, 0]]), "mean")
    array([[3.]], dtype=float32)
    """
    if mode == "cls":
        return tokens[:, 0]
    if mode == "last":
        # The last real token: right-padded rows end at their count, left-padded ones at the end.
        last = mask.shape[1] - 1 - np.argmax(mask[:, ::-1], axis=1)
        return tokens[np.arange(len(tokens)), last]
    if mode == "max":
        return np.where(mask[:, :, None] > 0, tokens, -np.inf).max(axis=1)
    weights = mask.astype(np.float32)
    total = np.matmul(weights[:, None, :], tokens)[:, 0]
    return total / np.maximum(weights.sum(axis=1, keepdims=True), 1.0)


def unit(vectors: Floats) -> Floats:
    """Rows scaled to norm 1. A zero row stays zero: whoever measures it must see that it is dead."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(norms > 0, norms, 1.0)
