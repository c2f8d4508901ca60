"""Word-order sensitivity: how far a vector moves when the words of its text are put in another order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.core import Encoder, InvalidOutput, Progress, name_some
from calipers.diagnosis.layers.words import split
from calipers.metrics.geometry import unit
from calipers.runs.space import Texts

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class WordOrder:
    """`moved` float64[n] is the mean of 1 − cosine over the shuffled versions of each text, NaN where there is none;
    `example` is one of them. `without` counts the texts whose words have one order only."""

    moved: Floats
    example: tuple[str, ...]
    without: int


def shuffles(text: str, *, permutations: int, seed: Sequence[int], how: str = "auto") -> list[str]:
    """The text with its words in other orders, each different from the original; none where there is only one order.

    >>> shuffles("b a", permutations=2, seed=[0]), shuffles("a a a", permutations=2, seed=[0])
    (['a b', 'a b'], [])
    """
    words, joint = split(text, how)
    if len(set(words)) < 2:
        return []
    rng = np.random.default_rng(seed)
    found: list[str] = []
    while len(found) < permutations:
        order = [words[i] for i in rng.permutation(len(words))]
        if order != words:  # at least half of all permutations are another sequence, so this ends
            found.append(joint.join(order))
    return found


@dataclass(frozen=True)
class Wish:
    """How often to shuffle, by which seed, and what a word is."""

    permutations: int
    seed: int
    how: str = "auto"


def measure(model: Encoder, texts: Texts, rows: Ints, wish: Wish, progress: Progress) -> WordOrder:
    """Encodes up to `permutations` × rows texts. The originals have their vectors already."""
    versions = [
        shuffles(texts.texts[int(i)], permutations=wish.permutations, seed=[wish.seed, int(i)], how=wish.how)
        for i in rows
    ]
    whose = np.repeat(np.arange(len(rows)), [len(v) for v in versions])
    moved = np.full(len(rows), np.nan)
    if len(whose):
        vectors, alive = _encode(model, texts, versions, rows, progress)
        whose = whose[alive]
        gap = unit(vectors[alive]).astype(np.float64)
        gap -= unit(texts.vectors[rows])[whose]
        distances = np.einsum("ij,ij->i", gap, gap) / 2  # 1 − cosine of unit vectors
        has = np.bincount(whose, minlength=len(rows))
        moved = np.where(has > 0, np.bincount(whose, distances, minlength=len(rows)) / np.maximum(has, 1), np.nan)
    return WordOrder(moved, tuple(v[0] if v else "" for v in versions), sum(not v for v in versions))


def _encode(
    model: Encoder, texts: Texts, versions: Sequence[Sequence[str]], rows: Ints, progress: Progress
) -> tuple[NDArray[Any], Ints]:
    """Vectors of all versions, and the rows that have a direction: in other surroundings a word may be unknown."""
    asked = [text for several in versions for text in several]
    vectors = model.encode(asked, prompt=texts.prompt, progress=progress)
    length = np.linalg.norm(vectors, axis=1)
    dead = np.flatnonzero(~np.isfinite(length))
    if len(dead):
        ids = [texts.ids[i] for i, several in zip(rows, versions, strict=True) for _ in several]
        named = list(dict.fromkeys(ids[i] for i in dead))
        raise InvalidOutput(f"the model gives non-finite vectors for shuffled versions of {name_some(named)}", named)
    return vectors, np.flatnonzero(length > 0)
