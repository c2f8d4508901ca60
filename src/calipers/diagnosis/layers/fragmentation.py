"""Tokenizer fragmentation: into how many sub-words the words of a domain fall apart.

A model shows its tokenizer by an optional method, `pieces(words) -> list[list[str | None]]`: the sub-words of each
word as it stands inside a text, without special tokens, None for one that the vocabulary does not have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from calipers.diagnosis.layers.words import plain_words

Floats = NDArray[np.float64]


@runtime_checkable
class ShowsPieces(Protocol):
    def pieces(self, words: Sequence[str]) -> list[list[str | None]]: ...


@dataclass(frozen=True)
class Term:
    """A word, its sub-words, and in how many texts it is."""

    word: str
    pieces: tuple[str | None, ...]
    texts: int

    @property
    def shown(self) -> str:
        """The sub-words as a reader sees them; � is one that the vocabulary does not have."""
        return " ".join("�" if piece is None else piece for piece in self.pieces)


@dataclass(frozen=True, eq=False)
class Fragmentation:
    """Per text, float64[n]: words, sub-words, words of more than one sub-word, words with an unknown one."""

    words: Floats
    pieces: Floats
    split: Floats
    unknown: Floats
    worst: tuple[Term, ...]


def measure(model: ShowsPieces, texts: Iterable[str], *, how: str = "auto", most: int = 10) -> Fragmentation:
    """Every distinct word is tokenised once. The worst are those with unknown sub-words, then with the most of them,
    then in the most texts; a word of a single text comes last, being rather a serial number than a term."""
    words = [plain_words(text, how) for text in texts]
    within = Counter(word for several in words for word in set(several))
    distinct = list(within)
    pieces = [tuple(found) for found in model.pieces(distinct)]
    place = {word: i for i, word in enumerate(distinct)}
    size = np.array([len(p) for p in pieces], np.float64)
    unknown = np.array([None in p for p in pieces], np.float64)
    rows = np.repeat(np.arange(len(words)), [len(several) for several in words])
    whole = np.array([place[word] for several in words for word in several], np.int64)

    def total(values: Floats) -> Floats:
        return np.asarray(np.bincount(rows, values[whole], minlength=len(words)), np.float64)

    return Fragmentation(
        words=total(np.ones(len(distinct))),
        pieces=total(size),
        split=total((size > 1).astype(np.float64)),
        unknown=total(unknown),
        worst=_worst([Term(w, p, within[w]) for w, p in zip(distinct, pieces, strict=True)], most),
    )


def _worst(terms: list[Term], most: int) -> tuple[Term, ...]:
    broken = [term for term in terms if len(term.pieces) > 1 or None in term.pieces]
    broken.sort(key=lambda t: (t.texts == 1, None not in t.pieces, -len(t.pieces), -t.texts, t.word))
    return tuple(broken[:most])
