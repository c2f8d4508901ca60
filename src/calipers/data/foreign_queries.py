"""Queries that a corpus has no answer to: of bundled domains that it does not speak of.

Which these are is told by words alone, never by the model that is measured: they are the same for every model, and
none chooses what it is good at.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

_FILE = Path(__file__).parent / "sample" / "foreign_queries.txt"
_TEXTS = 20_000  # that are looked through, evenly taken
_DOMAINS = 3  # of five
_OFTEN = 0.1  # of the real queries: a language in fewer of them is not spoken
_WORD = re.compile(r"[a-z]{4,}|[ァ-ヺー]{2,}|[一-龯々]{2,}")  # what carries meaning, without a tokenizer
_PLAIN = {"after", "before", "does", "from", "should", "their", "them", "there", "this"}
_PLAIN |= {"what", "when", "which", "while", "with", "without", "your"}
_CHARACTERS = {"en": re.compile("[A-Za-z]{2}"), "ja": re.compile("[ぁ-ヺ一-龯]")}


@dataclass(frozen=True)
class Foreign:
    """Queries, and the domains that they come from."""

    domains: tuple[str, ...]
    queries: tuple[str, ...]


def find(texts: Sequence[str], real: Sequence[str]) -> Foreign:
    """Queries of the three bundled domains that the texts (at least one) speak of least, in the languages of the real
    queries: the largest share of a query's words in one text, the mean over the queries of a domain, is lowest.
    A query of which one text holds all words is left out.

    >>> find(["boil the eggs with butter and flour", "docker image for a database"], ["soft eggs"]).domains
    ('medicine', 'law', 'shopping')
    """
    domains = _read(tuple(_languages(real)))
    step = -(-len(texts) // _TEXTS)
    shares = _held([query for queries in domains.values() for query in queries], texts[::step])
    ends = np.cumsum([len(queries) for queries in domains.values()])
    each = dict(zip(domains, np.split(shares, ends[:-1]), strict=True))
    least = sorted(domains, key=lambda name: float(each[name].mean()))[:_DOMAINS]
    chosen = tuple(name for name in domains if name in least)
    return Foreign(chosen, tuple(q for name in chosen for q, h in zip(domains[name], each[name], strict=True) if h < 1))


def words(text: str) -> set[str]:
    """
    >>> sorted(words("What to do with leftover Roast")), sorted(words("肉じゃがの作り方、ホットケーキ"))
    (['leftover', 'roast'], ['ホットケーキ'])
    """
    return set(_WORD.findall(unicodedata.normalize("NFKC", text).lower())) - _PLAIN


def _languages(real: Sequence[str]) -> list[str]:
    """Those that a tenth of the queries or more are written in; English where none is.

    >>> _languages(["red mug", "赤い マグカップ", "blue mug"]), _languages(["42"])
    (['en', 'ja'], ['en'])
    """
    shares = {name: np.mean([bool(has.search(query)) for query in real]) for name, has in _CHARACTERS.items() if real}
    return [name for name, share in shares.items() if share >= _OFTEN] or ["en"]


@cache
def _read(languages: tuple[str, ...]) -> Mapping[str, tuple[str, ...]]:
    """The bundled queries by domain, read only: callers share the record."""
    queries: dict[str, list[str]] = {}
    domain = language = ""
    for line in _FILE.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            domain, language = line.strip("[]").split()
        elif not line.startswith("#") and language in languages:
            queries.setdefault(domain, []).append(line)
    return MappingProxyType({domain: tuple(lines) for domain, lines in queries.items()})


def _held(queries: Sequence[str], texts: Sequence[str]) -> NDArray[np.float32]:
    """Of each query the largest share of its words that one text holds, float32[q]; 0 for a query without words."""
    asked = [words(query) for query in queries]
    place = {word: i for i, word in enumerate(sorted(set().union(*asked)))}
    inside = np.zeros((len(texts), len(place)), np.float32)
    for row, text in enumerate(texts):
        inside[row, [place[word] for word in words(text) if word in place]] = 1
    wanted = np.zeros((len(queries), len(place)), np.float32)
    for row, own in enumerate(asked):
        wanted[row, [place[word] for word in own]] = 1 / max(1, len(own))
    return np.asarray(np.round((inside @ wanted.T).max(axis=0), 5))
