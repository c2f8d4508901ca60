"""Texts written another way: harmless edits of a query, which keep its meaning, and words in another order.

Each edit gives another text, or None where there is nothing to edit (no letters that have a case, one word, …).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence

import numpy as np

from calipers.diagnosis.layers.words import split

_WIDE = {code: code + 0xFEE0 for code in range(ord("!"), ord("~") + 1)}
_SHORTEST = 4  # letters of a word that a slip is put into


def other_case(text: str, rng: np.random.Generator) -> str | None:
    """Lower case, or upper case where it is lower already.

    >>> rng = np.random.default_rng(0)
    >>> other_case("USB hub", rng), other_case("hub", rng), other_case("犬", rng)
    ('usb hub', 'HUB', None)
    """
    edited = text.lower() if text != text.lower() else text.upper()
    return edited if edited != text else None


def other_spacing(text: str, rng: np.random.Generator) -> str | None:
    """Two spaces between words and one behind the last.

    >>> other_spacing("a b", np.random.default_rng(0))
    'a  b '
    """
    return f"{'  '.join(text.split())} "


def other_width(text: str, rng: np.random.Generator) -> str | None:
    """Full-width letters and digits to plain ones, half-width kana to plain ones; else plain letters to full-width.

    >>> rng = np.random.default_rng(0)
    >>> other_width("ｕｓｂ", rng), other_width("usb 3", rng), other_width("犬", rng)
    ('usb', 'ｕｓｂ ３', None)
    """
    plain = unicodedata.normalize("NFKC", text)
    edited = plain if plain != text else text.translate(_WIDE)
    return edited if edited != text else None


def slip(text: str, rng: np.random.Generator) -> str | None:
    """Two neighbouring letters of a word swapped, not the first; the word is drawn among those of four letters or more.

    >>> slip("red chair", np.random.default_rng(1)), slip("tv", np.random.default_rng(1))
    ('red chiar', None)
    """
    words = text.split(" ")
    places = [
        (w, i)
        for w, word in enumerate(words)
        if len(word) >= _SHORTEST
        for i in range(1, len(word) - 1)
        if word[i].isalpha() and word[i + 1].isalpha() and word[i] != word[i + 1]
    ]
    if not places:
        return None
    w, i = places[int(rng.integers(len(places)))]
    word = words[w]
    words[w] = f"{word[:i]}{word[i + 1]}{word[i]}{word[i + 2 :]}"
    return " ".join(words)


EDITS: dict[str, Callable[[str, np.random.Generator], str | None]] = {
    "case": other_case,
    "spacing": other_spacing,
    "width": other_width,
    "typo": slip,
}


def edit(texts: Sequence[str], kind: str, *, seed: int) -> list[str | None]:
    """Each text edited; the same seed gives the same edit of a text in the same place."""
    return [EDITS[kind](text, np.random.default_rng([seed, place])) for place, text in enumerate(texts)]


def shuffles(text: str, *, permutations: int, seed: Sequence[int], how: str = "auto") -> list[str]:
    """The text with its words in other orders, each different from the original, and with the spaces where they were.

    None where there is only one order.

    >>> shuffles("b a", permutations=2, seed=[0]), shuffles("a a a", permutations=2, seed=[0])
    (['a b', 'a b'], [])
    """
    whole = split(text, how)
    words = list(whole.words)
    if len(set(words)) < 2:
        return []
    rng = np.random.default_rng(seed)
    versions: list[str] = []
    while len(versions) < permutations:
        order = [words[i] for i in rng.permutation(len(words))]
        if order != words:  # at least half of all permutations are another sequence, so this ends
            versions.append(whole.join(order))
    return versions
