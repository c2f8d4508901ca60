"""Queries that deserve no answer: gibberish, and terms too vague to search for."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

_LETTERS = np.array(list("abcdefghijklmnopqrstuvwxyz0123456789"))
_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")  # a key of one row touches those of the next at its place and before it
_PLACES = {key: (row, column) for row, keys in enumerate(_ROWS) for column, key in enumerate(keys)}
_WORD = re.compile(r"[^\W\d_]{3,}")


def gibberish(count: int, *, seed: int = 42) -> list[str]:
    """By turns random strings (letters and digits, one to four of 3 to 10) and walks over a QWERTY keyboard.

    >>> gibberish(2)
    ['xpp4dzhds', 'frfdfdrf xzszsawqw gbgbnjki zxdedsxzx']
    """
    rng = np.random.default_rng(seed)
    makers = (_string, _walk)
    return [
        " ".join(makers[i % 2](int(length), rng) for length in rng.integers(3, 11, size=rng.integers(1, 5)))
        for i in range(count)
    ]


def _string(length: int, rng: np.random.Generator) -> str:
    return "".join(rng.choice(_LETTERS, size=length).tolist())


def _walk(length: int, rng: np.random.Generator) -> str:
    keys = [str(rng.choice(list(_PLACES)))]
    while len(keys) < length:
        keys.append(str(rng.choice(_beside(keys[-1]))))
    return "".join(keys)


def _beside(key: str) -> list[str]:
    """The keys that touch a key.

    >>> "".join(_beside("s"))
    'weadzx'
    """
    row, column = _PLACES[key]
    near = ((-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0))
    at = {place: key for key, place in _PLACES.items()}
    return [at[row + r, column + c] for r, c in near if (row + r, column + c) in at]


def vague(texts: Sequence[str], count: int) -> list[str]:
    """The words (three letters or more, lower case) that most texts hold, but no more than half of them, the most
    frequent first: single terms that fit too much. Fewer than `count` where there are not so many.

    >>> vague(["Red wine, red.", "red tea", "old wine", "tea"], 5)
    ['red', 'tea', 'wine', 'old']
    """
    held: Counter[str] = Counter()
    for text in texts:
        held.update(set(_WORD.findall(text.lower())))
    usable = [(-number, word) for word, number in held.items() if number * 2 <= len(texts)]
    return [word for _, word in sorted(usable)[:count]]
