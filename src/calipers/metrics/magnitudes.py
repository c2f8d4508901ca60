"""Vectors in float32, whatever their magnitude: float64 beyond its range would become infinite or zero.

All vectors of a table are divided by one power of two, which changes no direction, no order of products or distances,
and no bit. Only a row that still does not fit, beside others that are 2 ** 200 times larger, is scaled by itself.
"""

from __future__ import annotations

import numpy as np

from calipers.metrics.arrays import Array, Vectors, slices
from calipers.metrics.geometry import in_reach

_SAFE = 100  # powers of two: float32 holds numbers of 2 ** -100 to 2 ** 100 and some that are smaller with all digits
_WINDOW = 8192  # rows in hand at a time


def common_power(table: Array) -> int:
    """The power of two that all vectors of a table are to be divided by; 0 where they fit as they are.

    >>> common_power(np.array([[1e300, 3.0]])), common_power(np.array([[1.0, 3.0]])), common_power(np.zeros((2, 2)))
    (997, 0, 0)
    """
    if table.dtype.itemsize <= 4:
        return 0
    largest = 0.0
    for rows in slices(len(table), _WINDOW):
        values = np.abs(np.asarray(table[rows], np.float64))
        largest = max(largest, float(values.max(initial=0.0, where=np.isfinite(values))))
    power = int(in_reach(np.array([[largest]]))[1][0])
    return power if abs(power) > _SAFE else 0


def single(vectors: Array, power: int = 0) -> Vectors:
    """Vectors float[n, d] divided by a power of two, float32[n, d]. What is NaN or infinite stays so.

    >>> single(np.array([[3e200, 4e200], [0.0, 1.0]]))
    array([[0.48990756, 0.6532101 ],
           [0.        , 1.        ]], dtype=float32)
    """
    if vectors.dtype.itemsize <= 4 or vectors.ndim != 2:
        return np.asarray(vectors, dtype=np.float32)
    values = np.asarray(vectors, np.float64)
    with np.errstate(over="ignore", under="ignore"):
        scaled = np.ldexp(values, -power) if power else values
        converted = scaled.astype(np.float32)
    largest = np.abs(scaled).max(axis=1, initial=0.0)
    odd = np.flatnonzero((largest > 0) & ((largest > 2.0**_SAFE) | (largest < 2.0**-_SAFE)) & np.isfinite(largest))
    vanished = np.flatnonzero(~scaled.any(axis=1) & values.any(axis=1)) if power else odd[:0]
    for rows in (odd, vanished):
        converted[rows] = in_reach(values[rows])[0].astype(np.float32)
    return converted
