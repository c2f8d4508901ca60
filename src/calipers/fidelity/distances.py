"""How far two sets of vectors are apart. A gap is |û - v̂| of unit vectors: float32 rounds at 1e-6, float16 at 1e-3."""

from __future__ import annotations

import numpy as np

from calipers.core import InvalidOutput
from calipers.metrics.arrays import Array, Floats, Vectors


def gaps(left: Array, right: Array) -> Floats:
    """float64[n]; over the numbers that both have. Two zero vectors are equal, a zero vector is √2 from any other.

    >>> gaps(np.array([[3.0, 4.0], [1.0, 0.0]]), np.array([[0.6, 0.8], [0.0, 2.0]])).round(3).tolist()
    [0.0, 1.414]
    """
    size = min(left.shape[1], right.shape[1])
    a, b = (_unit(rows[:, :size]) for rows in (left, right))
    apart = np.linalg.norm(a - b, axis=1)
    one_zero = a.any(axis=1) != b.any(axis=1)
    return np.asarray(np.where(one_zero, np.sqrt(2.0), apart))


def cosines(apart: Floats) -> Floats:
    return 1.0 - apart**2 / 2.0


def lengths(vectors: Array) -> Floats:
    return np.asarray(np.linalg.norm(vectors.astype(np.float64), axis=1))


def refuse_invalid(vectors: Vectors, who: str) -> None:
    bad = ~np.isfinite(vectors).all(axis=1)
    if bad.any():
        raise InvalidOutput(f"{who} gives NaN or infinity for {int(bad.sum())} of {len(vectors)} texts", ())


def _unit(rows: Array) -> Floats:
    wide = rows.astype(np.float64)
    norms = np.linalg.norm(wide, axis=1, keepdims=True)
    return np.asarray(np.divide(wide, norms, out=np.zeros_like(wide), where=norms > 0))
