"""Random whole numbers as `Generator.integers` of a PCG64 gives them, the same ones, in half the time or less.

numpy makes 32 bits at a time and maps each to a number below `high` as Lemire (2019, arXiv:1805.10941) does: the upper
half of 32 bits × high, drawn anew where the lower half falls below 2³² mod high. Here whole arrays are multiplied.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from calipers.metrics.arrays import Floats, Ints

_RARE = 2**31  # above it more than half a number is drawn anew on average: numpy draws all


def _words(rng: np.random.Generator, size: int) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    """32 random bits each: the lower half of what the generator gives at once comes first."""
    both = rng.integers(0, np.iinfo(np.uint64).max, size=-(-size // 2), dtype=np.uint64, endpoint=True)
    return both.astype("<u8", copy=False).view("<u4")[:size]


def even_parts(size: int, step: int) -> list[slice]:
    """Consecutive parts of about `step`, an even number but for the last: of a part, no half of 64 bits is left over.

    >>> even_parts(5, 3)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    even = max(2, step & ~1)
    return [slice(start, min(start + even, size)) for start in range(0, size, even)]


def whole_numbers(rng: np.random.Generator, high: int, shapes: Sequence[tuple[int, ...]]) -> Iterator[Ints]:
    """rng.integers(0, high, shape) for each of the shapes, of which all but the last hold an even number, for a
    generator of which nothing else was or will be drawn.

    >>> first, second = (np.random.default_rng(1) for _ in range(2))
    >>> next(whole_numbers(first, 1_000, [(4,)])).tolist() == second.integers(0, 1_000, 4).tolist()
    True
    """
    refused = 2**32 % high
    anew = refused * sum(map(math.prod, shapes)) > _RARE
    for shape in shapes:
        if anew:
            yield rng.integers(0, high, size=shape)
            continue
        before = rng.bit_generator.state
        products = _words(rng, math.prod(shape)).astype(np.uint64)
        products *= np.uint64(high)
        if products.astype(np.uint32).min(initial=2**32 - 1) >= refused:
            products >>= np.uint64(32)
            yield products.view(np.int64).reshape(shape)
        else:  # some are to be drawn anew, and half of 64 bits may be left over
            rng.bit_generator.state, anew = before, True
            yield rng.integers(0, high, size=shape)


def fair_coins(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """0 or 1 with the same chance each, of a random bit each.

    >>> fair_coins(np.random.default_rng(4), (2, 3)).tolist()
    [[0.0, 1.0, 0.0], [0.0, 1.0, 1.0]]
    """
    size = math.prod(shape)
    coins = np.unpackbits(np.frombuffer(rng.bytes(-(-size // 8)), np.uint8), count=size)
    return coins.reshape(shape).astype(np.float64)
