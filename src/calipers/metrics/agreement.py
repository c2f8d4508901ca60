"""How far two models agree about the same texts, without knowing what is right."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.metrics.arrays import Floats, Ints, slices
from calipers.metrics.geometry import in_reach, unit_like

Embeddings = NDArray[np.floating[Any]]

_CELLS = 1 << 22  # similarities in hand at a time


def cosine_drift(a: Embeddings, b: Embeddings) -> Floats:
    """1 − cosine of each text's two vectors, float64[n]; 0 is no drift, 2 the opposite. The widths must be equal.

    >>> cosine_drift(np.array([[1.0, 0.0], [2.0, 0.0]]), np.array([[0.0, 3.0], [1.0, 0.0]]))
    array([1., 0.])
    """
    return np.asarray(0.5 * np.square(_unit64(a) - _unit64(b)).sum(axis=1))


def neighbour_overlap(a: Embeddings, b: Embeddings, k: int) -> Floats:
    """Share of a text's k nearest others, by cosine, that both spaces have, float64[n]; needs more than k + 1 texts.
    Memory: the similarities of a block of texts to all."""
    n = len(a)
    if n < k + 2:
        raise ValueError(f"expected at least {k + 2} texts for {k} neighbours that could differ, found {n}")
    a, b = (_unit64(v).astype(np.float32) for v in (a, b))
    shared = np.empty(n)
    for part in slices(n, _CELLS // n):
        rows = np.arange(n)[part]
        near_a, near_b = (_nearest(v, rows, k) for v in (a, b))
        shared[rows] = (near_a[:, :, None] == near_b[:, None, :]).any(axis=2).mean(axis=1)
    return shared


def cka(a: Embeddings, b: Embeddings) -> Floats:
    """Contributions of each text to the linear CKA of two spaces, float64[n]: their mean is the CKA, 1 where one space
    is a rotation of the other, and their spread is the spread of the CKA. NaN where a space is one point."""
    a, b = (_centred(v) for v in (a, b))
    ab, aa, bb = a.T @ b, a.T @ a, b.T @ b
    cross, square_a, square_b = (np.square(m).sum() for m in (ab, aa, bb))
    if not (square_a > 0 and square_b > 0):
        return np.full(len(a), np.nan)
    value = cross / np.sqrt(square_a * square_b)
    if cross == 0:
        return np.zeros(len(a))
    grow_ab, grow_aa, grow_bb = (
        np.einsum("ij,ij->i", left @ m, right) / total
        for left, m, right, total in ((a, ab, b, cross), (a, aa, a, square_a), (b, bb, b, square_b))
    )
    return np.asarray(value + len(a) * value * (2 * grow_ab - grow_aa - grow_bb))


def _centred(vectors: Embeddings) -> Floats:
    """Around their mean, and scaled so that their fourth powers neither overflow nor vanish."""
    centred = np.asarray(vectors, np.float64) - np.mean(vectors, axis=0, dtype=np.float64)
    return in_reach(centred.reshape(1, -1))[0].reshape(centred.shape)


def divergence(baseline: Embeddings, candidate: Embeddings) -> Floats:
    """KL divergence of candidate from baseline, in nats, of log-probabilities float[n, v]; 0 where they are equal.

    >>> divergence(np.log([[0.5, 0.5]]), np.log([[0.5, 0.5]]))
    array([0.])
    """
    weights = np.exp(baseline)
    with np.errstate(invalid="ignore"):
        terms = np.where(weights > 0, weights * (baseline - candidate), 0.0)
    return np.asarray(np.maximum(terms.sum(axis=1, dtype=np.float64), 0.0))


def _unit64(vectors: Embeddings) -> Floats:
    return unit_like(np.asarray(vectors, np.float64))


def _nearest(vectors: Embeddings, rows: Ints, k: int) -> Ints:
    similarity = vectors[rows] @ vectors.T
    similarity[np.arange(len(rows)), rows] = -np.inf
    return np.argpartition(-similarity, k, axis=1)[:, :k]
