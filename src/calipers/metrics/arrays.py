"""What all metrics share: types of arrays, rows a few at a time, shares, ties, and the statistic of one sample.

A *statistic* is a function of how often each example counts, int[n, r] to float64[r]: many resamples at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]  # of any type of number
Floats = NDArray[np.float64]
Vectors = NDArray[np.float32]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Counts = NDArray[np.number[Any]]
Statistic = Callable[[Counts], Floats]

_MANY = 100_000  # rows, from which on memory counts for more than the time that a narrow number takes


def slices(size: int, step: int) -> Iterator[slice]:
    """Consecutive slices of `step`, or of 1 at least, that cover `size` rows.

    >>> list(slices(5, 3)), list(slices(2, 0))
    ([slice(0, 3, None), slice(3, 6, None)], [slice(0, 1, None), slice(1, 2, None)])
    """
    step = max(1, step)
    return (slice(start, start + step) for start in range(0, size, step))


def narrow(whole: Array, below: int) -> Array:
    """The same whole numbers, all from 0 to less than `below`: many of them in as few bits as hold them, few as numpy
    takes rows by them fastest.

    >>> narrow(np.arange(200_000) % 3, 3).dtype, narrow(np.array([0, 2]), 3).dtype
    (dtype('uint8'), dtype('int64'))
    """
    kind = np.min_scalar_type(max(0, below - 1)) if len(whole) > _MANY else np.int64
    return whole.astype(kind, copy=False)


def once(statistic: Statistic, examples: int) -> float:
    """The statistic of the sample itself, in which every example counts once."""
    return float(statistic(np.ones((examples, 1), dtype=np.int64))[0])


class Later:
    """A statistic that is prepared when it is first called, by one thread."""

    def __init__(self, prepare: Callable[[], Statistic]) -> None:
        self._prepare, self._lock = prepare, Lock()
        self._statistic: Statistic | None = None

    def __call__(self, counts: Counts) -> Floats:
        with self._lock:
            if self._statistic is None:
                self._statistic = self._prepare()
        return self._statistic(counts)


def share(part: Array, whole: Array) -> Floats:
    """part / whole, float64; NaN where the whole is 0."""
    return np.asarray(np.divide(part, whole, out=np.full(np.shape(part), np.nan), where=whole > 0))


def tie_starts(ordered: Array) -> Ints:
    """Where each group of equal neighbours begins.

    >>> tie_starts(np.array([2.0, 2.0, 5.0]))
    array([0, 2])
    """
    return np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)])


def refuse_rows(bad: Bools, problem: str) -> None:
    """A ValueError that names the first bad rows, if there are any."""
    if bad.any():
        rows = np.flatnonzero(bad)
        more = f" and {len(rows) - 10} more" if len(rows) > 10 else ""
        raise ValueError(f"{problem} in rows {rows[:10].tolist()}{more}, counted from 0")
