"""Queries that deserve no answer: gibberish, terms too vague to search for, and questions of other domains.

Questions of other domains are bundled. Which of them a corpus has no answer to is decided by words alone, never by the
model that is measured: they are the same for every model, and no model chooses what it is good at.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

_LETTERS = np.array(list("abcdefghijklmnopqrstuvwxyz0123456789"))
_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")  # a key of one row touches those of the next at its place and before it
_PLACES = {key: (row, column) for row, keys in enumerate(_ROWS) for column, key in enumerate(keys)}
_ANY_WORD = re.compile(r"[^\W\d_]{3,}")
_FILE = Path(__file__).parent / "sample" / "foreign_queries.txt"
_TEXTS = 20_000  # texts that are searched at most, evenly taken
_DOMAINS = 3  # of five are taken
_OFTEN = 0.1  # a language in a smaller share of the real queries does not count
_WORD = re.compile(r"[a-z]{4,}|[ァ-ヺー]{2,}|[一-龯々]{2,}")  # what carries meaning, without a tokenizer
_PLAIN = {"after", "before", "does", "from", "should", "their", "them", "there", "this"}
_PLAIN |= {"what", "when", "which", "while", "with", "without", "your"}
_CHARACTERS = {"en": re.compile("[A-Za-z]{2}"), "ja": re.compile("[ぁ-ヺ一-龯]")}


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
        held.update(set(_ANY_WORD.findall(text.lower())))
    usable = [(-number, word) for word, number in held.items() if number * 2 <= len(texts)]
    return [word for _, word in sorted(usable)[:count]]


@dataclass(frozen=True)
class Foreign:
    """Queries of other domains, and the names of these."""

    domains: tuple[str, ...]
    queries: tuple[str, ...]


def foreign(texts: Sequence[str], real: Sequence[str]) -> Foreign:
    """Queries of the three bundled domains that the texts (at least one) speak of least, in the languages of the real
    queries: the largest share of a query's words in one text, the mean over the queries of a domain, is lowest.
    A query whose words all stand in one text is left out.

    >>> foreign(["boil the eggs with butter and flour", "docker image for a database"], ["soft eggs"]).domains
    ('medicine', 'law', 'shopping')
    """
    domains = bundled(tuple(_languages(real)))
    step = -(-len(texts) // _TEXTS)
    text_words = [words(text) for text in texts[::step]]
    each = {name: _held(queries, text_words) for name, queries in domains.items()}
    least = sorted(domains, key=lambda name: float(each[name].mean()))[:_DOMAINS]
    chosen = tuple(name for name in domains if name in least)
    return Foreign(chosen, tuple(q for name in chosen for q, h in zip(domains[name], each[name], strict=True) if h < 1))


def words(text: str) -> set[str]:
    """The words that carry meaning, in lower case.

    >>> sorted(words("What to do with leftover Roast")), sorted(words("肉じゃがの作り方、ホットケーキ"))
    (['leftover', 'roast'], ['ホットケーキ'])
    """
    return set(_WORD.findall(unicodedata.normalize("NFKC", text).lower())) - _PLAIN


def _languages(real: Sequence[str]) -> list[str]:
    """The languages of at least a tenth of the queries; English where there is none.

    >>> _languages(["red mug", "赤い マグカップ", "blue mug"]), _languages(["42"])
    (['en', 'ja'], ['en'])
    """
    shares = {name: np.mean([bool(has.search(query)) for query in real]) for name, has in _CHARACTERS.items() if real}
    return [name for name, share in shares.items() if share >= _OFTEN] or ["en"]


@cache
def bundled(languages: tuple[str, ...]) -> Mapping[str, tuple[str, ...]]:
    """The bundled queries by domain, read-only: callers share the mapping."""
    queries: dict[str, list[str]] = {}
    domain = language = ""
    for line in _FILE.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            domain, language = line.strip("[]").split()
        elif not line.startswith("#") and language in languages:
            queries.setdefault(domain, []).append(line)
    return MappingProxyType({domain: tuple(lines) for domain, lines in queries.items()})


def _held(queries: Sequence[str], text_words: Sequence[set[str]]) -> NDArray[np.float32]:
    """The largest share of each query's words that one text holds, float32[q]; 0 for a query without words."""
    query_words = [words(query) for query in queries]
    place = {word: i for i, word in enumerate(sorted(set().union(*query_words)))}
    inside = np.zeros((len(text_words), len(place)), np.float32)
    for row, several in enumerate(text_words):
        inside[row, [place[word] for word in several if word in place]] = 1
    wanted = np.zeros((len(queries), len(place)), np.float32)
    for row, several in enumerate(query_words):
        wanted[row, [place[word] for word in several]] = 1 / max(1, len(several))
    return np.asarray(np.round((inside @ wanted.T).max(axis=0), 5))
