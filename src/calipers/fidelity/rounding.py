"""Numbers of another type: which one explains gaps that are as small as rounding?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from calipers.fidelity.distances import gaps
from calipers.metrics.arrays import Floats, Vectors

TYPES = ("float16", "bfloat16")
_ALIKE = 4.0  # the factor between two sizes of rounding that may be one
Compute = Callable[[str], Vectors | None]


class NumberType(NamedTuple):
    """A type that explains the gaps: `apart` are those that are left with it. `is_measured` is False where only the
    size of the gaps says so."""

    name: str
    apart: Floats
    is_measured: bool


def find_type(ours: Vectors, theirs: Vectors, compute: Compute, tolerance: float) -> NumberType | None:
    """`ours` in float32, `theirs` near them; `compute` gives ours in a type, None where it cannot."""
    size = min(ours.shape[1], theirs.shape[1])
    held = next((name for name in TYPES[::-1] if np.array_equal(round_to(theirs, name), theirs)), None)
    apart = np.median(gaps(ours, theirs))
    trials = list(_trials(ours[:, :size], compute))
    left = {(trial.name, i): gaps(trial.vectors, theirs) for i, trial in enumerate(trials)}
    for (name, _), rest in left.items():
        if rest.max() <= tolerance:
            return NumberType(name, rest, True)
    if held:
        return NumberType(held, min((rest for (name, _), rest in left.items() if name == held), key=np.max), True)
    near = []
    for number, (name, vectors, is_computed) in enumerate(trials):
        own = float(np.median(gaps(vectors, ours)))
        rest = left[name, number]
        # Weights are rounded alike wherever they run: the same type comes nearer, unless only vectors can be rounded.
        nearer = np.median(rest) < apart if is_computed else not any(trial.is_computed for trial in trials)
        if own > 0 and nearer and 1 / _ALIKE <= apart / own <= _ALIKE:
            near.append((abs(np.log(apart / own)), NumberType(name, rest, False)))
    return min(near, key=lambda pair: pair[0], default=(0.0, None))[1]


class _Trial(NamedTuple):
    name: str
    vectors: Vectors
    is_computed: bool


def _trials(ours: Vectors, compute: Compute) -> Iterator[_Trial]:
    """The reference computed in each type, and its vectors rounded to it."""
    for name in TYPES:
        computed = compute(name)
        if computed is not None:
            yield _Trial(name, computed, True)
        yield _Trial(name, round_to(ours, name), False)


def round_to(vectors: Vectors, name: str) -> Vectors:
    """
    >>> [round_to(np.array([[0.1]], np.float32), name).item() for name in TYPES]
    [0.0999755859375, 0.10009765625]
    """
    if name == "float16":
        return vectors.astype(np.float16).astype(np.float32)
    bits = np.ascontiguousarray(vectors, np.float32).view(np.uint32)
    even = (bits >> np.uint32(16)) & np.uint32(1)  # ties go to even numbers
    return ((bits + np.uint32(0x7FFF) + even) & np.uint32(0xFFFF0000)).view(np.float32)
