"""How many characters two texts have in common: Jaccard over sets of character bigrams, for many pairs at once.

A text is put into NFKC and case-folded, runs of white space become one space, and what stands around it is dropped; its
bigrams are every two neighbouring characters, spaces included. A text of fewer than two characters has none. Bigrams
need no words, so Japanese and English are treated alike.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calipers.metrics.arrays import Floats, Ints, share

_LOOKED_UP = 1 << 22  # bigrams that are looked up at a time: 32 MB each of a few arrays


@dataclass(frozen=True, eq=False)
class Bigrams:
    """The distinct bigrams of text i are `keys[offsets[i] : offsets[i + 1]]`. A key is the number of the bigram among
    all that occur plus `vocabulary` times i, so that all keys ascend."""

    offsets: Ints
    keys: Ints
    vocabulary: int

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> Ints:
        return np.diff(self.offsets)


def normalise(text: str) -> str:
    """The text as it is compared.

    >>> normalise(" ＬＡＰＴＯＰ\\n 15ｲﾝﾁ ")
    'laptop 15インチ'
    """
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def bigrams(texts: Sequence[str]) -> Bigrams:
    """Memory: some 50 bytes a character of all texts together."""
    plain = [normalise(text) for text in texts]
    lengths = np.array([len(text) for text in plain], np.int64)
    # A lone surrogate, which JSON can hold, is a character like any other.
    letters = np.frombuffer("".join(plain).encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(np.int64)
    row = np.repeat(np.arange(len(plain)), lengths)
    inside = np.flatnonzero(row[1:] == row[:-1])  # the pair over the end of a text is none
    codes = letters[inside] << 21 | letters[inside + 1]  # Unicode has fewer than 2²¹ characters
    vocabulary, gram = np.unique(codes, return_inverse=True)
    keys = np.unique(row[inside] * len(vocabulary) + gram)
    starts = np.arange(len(plain) + 1) * len(vocabulary)
    return Bigrams(np.searchsorted(keys, starts), keys, len(vocabulary))


def jaccard(sets: Bigrams, left: Ints, right: Ints) -> Floats:
    """|A ∩ B| / |A ∪ B| of texts `left[i]` and `right[i]`, float64[n] from 0 to 1; NaN where neither has a bigram.

    >>> jaccard(bigrams(["night", "nacht", ""]), np.array([0, 0, 2]), np.array([1, 0, 2])).round(4)
    array([0.1429, 1.    ,    nan])
    """
    shared = common(sets, left, right)
    return share(shared, sets.sizes[left] + sets.sizes[right] - shared)


def containment(sets: Bigrams, left: Ints, right: Ints) -> Floats:
    """|A ∩ B| / |A|: what share of the left text the right one has, float64[n]; NaN where the left has no bigram.

    >>> containment(bigrams(["night", "a night"]), np.array([0, 1]), np.array([1, 0])).round(4)
    array([1.    , 0.6667])
    """
    return share(common(sets, left, right), sets.sizes[left])


def common(sets: Bigrams, left: Ints, right: Ints) -> Ints:
    """|A ∩ B| of each pair, int64[n]. Work: the smaller set of a pair is looked up in the larger."""
    left, right = np.asarray(left, np.int64), np.asarray(right, np.int64)
    sizes = sets.sizes
    swap = sizes[left] > sizes[right]
    small, large = np.where(swap, right, left), np.where(swap, left, right)
    shared = np.empty(len(left), np.int64)
    ends = np.cumsum(sizes[small])
    start = 0
    while start < len(left):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + _LOOKED_UP, side="right")))
        shared[start:stop] = _common(sets, small[start:stop], large[start:stop])
        start = stop
    return shared


def _common(sets: Bigrams, small: Ints, large: Ints) -> Ints:
    """How many keys of each small set the large one has."""
    counts = sets.sizes[small]
    pair = np.repeat(np.arange(len(small)), counts)
    place = np.arange(len(pair)) - np.repeat(np.cumsum(counts) - counts, counts) + sets.offsets[small][pair]
    wanted = sets.keys[place] + (large - small)[pair] * sets.vocabulary
    at = np.minimum(np.searchsorted(sets.keys, wanted), max(0, len(sets.keys) - 1))
    shared = sets.keys[at] == wanted if len(sets.keys) else np.zeros(0, np.bool_)
    return np.bincount(pair[shared], minlength=len(small))
