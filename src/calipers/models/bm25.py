"""BM25, the lexical baseline: a search by shared words, without vectors (package bm25s).

The defaults are Lucene's formula (Kamphuis et al. 2020) with its k1 = 1.2 and b = 0.75, and bm25s' tokens: two or more
word characters, lower-cased, without English stop words, not stemmed. `bm25:k1=0.9,b=0.4,stopwords=none` changes them.

Japanese and Chinese have no spaces between words: their runs are indexed by every two neighbouring characters and by
each character (`analyser=bigrams`), chosen by measurement (docs/retrieval.md). `analyser=words` leaves them to the
pattern. A text in Latin letters has the same tokens either way.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from calipers.core import SILENT, ModelError, ModelInfo, Progress, RequestError
from calipers.core.datasets import Listed
from calipers.core.errors import quote
from calipers.core.files import package_versions
from calipers.metrics.arrays import Floats, Ints
from calipers.metrics.search import NO_HITS, NOTHING_WANTED, Hits, Wanted, cut_hits, sort_hits, stack_hits
from calipers.models.options import ModelOptions
from calipers.models.source import Source

_NO_SPACES = r"\u3041-\u3096\u30a1-\u30fa\u30fc-\u30fe\u3005\u3400-\u4dbf\u4e00-\u9fff\uff66-\uff9f"  # kana and kanji
_RUN = re.compile(f"[{_NO_SPACES}]+")
_EAST_ASIAN = re.compile(f"[{_NO_SPACES}\uff01-\uff5e]")  # and full-width letters
_TOKENS = {"bigrams": rf"(?u)\b\w\w+\b|[{_NO_SPACES}]", "words": r"(?u)\b\w\w+\b"}  # by analyser
_METHODS = ("lucene", "robertson", "atire", "bm25+", "bm25l")


@dataclass(frozen=True)
class Settings:
    k1: float = 1.2
    b: float = 0.75
    method: str = "lucene"
    stopwords: str = "en"  # a language that bm25s has a list for, or none
    analyser: str = "bigrams"

    def __post_init__(self) -> None:
        if not 0 <= self.k1 < math.inf or not 0 <= self.b <= 1:
            raise RequestError(f"BM25 needs k1 ≥ 0 and 0 ≤ b ≤ 1, found k1={self.k1:g}, b={self.b:g}")
        if self.method not in _METHODS:
            raise RequestError(f"the method of BM25 must be one of {', '.join(_METHODS)}, found {self.method!r}")
        if self.analyser not in _TOKENS:
            raise RequestError(f"the analyser of BM25 must be one of {', '.join(_TOKENS)}, found {self.analyser!r}")


def load(source: Source, options: ModelOptions) -> BM25:
    """`source.reference` is `bm25`, or has settings behind a colon; the word before the colon may be missing."""
    options.refuse_others("BM25", "model_id")
    settings, facts = settle(source)
    return BM25(settings, ModelInfo("bm25", options.model_id or "bm25", None, "cpu", "", facts))


def settle(source: Source) -> tuple[Settings, dict[str, object]]:
    """The settings, and all that decides the result of a search."""
    version = package_versions("bm25s").get("bm25s")
    if version is None:
        raise ModelError("BM25 needs the package bm25s: pip install bm25s")
    settings = parse(source.reference.removeprefix("bm25").removeprefix(":"))
    return settings, {**asdict(settings), "tokens": _TOKENS[settings.analyser], "bm25s": version}


def parse(text: str) -> Settings:
    """
    >>> parse("k1=0.9,b=0.4")
    Settings(k1=0.9, b=0.4, method='lucene', stopwords='en', analyser='bigrams')
    """
    values: dict[str, Any] = {}
    kinds = {"k1": float, "b": float, "method": str, "stopwords": str, "analyser": str}
    for part in filter(None, text.split(",")):
        key, _, value = part.partition("=")
        if key not in kinds:
            raise RequestError(
                f"BM25 has no setting {quote(key)}: it has {', '.join(kinds)}, written bm25:k1=0.9,b=0.4"
            )
        if key in values:
            raise RequestError(f"the setting {key} of BM25 is given twice")
        try:
            values[key] = kinds[key](value)
        except ValueError:
            raise RequestError(f"the setting {key} of BM25 must be a number, found {quote(value)}") from None
    return Settings(**values)


@dataclass(frozen=True, eq=False)
class BM25:
    settings: Settings
    info: ModelInfo
    _last: list[tuple[Sequence[str], BM25Index]] = field(default_factory=list, repr=False)  # the documents ranked last

    def rank(
        self, queries: Listed, corpus: Listed, k: int, *, wanted: Wanted = NOTHING_WANTED, progress: Progress = SILENT
    ) -> Hits:
        """The k best documents of each query among those that have a word of it, whatever the word weighs."""
        if not self._last or self._last[0][0] is not corpus.texts:
            self._last[:] = [(corpus.texts, self.index(corpus.texts))]
        return self._last[0][1].search(queries.texts, k, wanted=wanted, progress=progress)

    def index(self, documents: Sequence[str]) -> BM25Index:
        """The documents, ready for any number of searches."""
        import bm25s  # type: ignore[import-untyped]

        tokens = self.tokens(documents, ids=True)
        if not any(map(len, tokens.ids)):  # bm25s divides by the mean length
            return BM25Index(self, None)
        index = bm25s.BM25(k1=self.settings.k1, b=self.settings.b, method=self.settings.method)
        index.index(tokens, show_progress=False)
        return BM25Index(self, index)

    def tokens(self, texts: Sequence[str], *, ids: bool) -> Any:
        import bm25s

        stopwords = None if self.settings.stopwords == "none" else self.settings.stopwords
        pattern = _TOKENS[self.settings.analyser]
        spelled = [spell_out(text) for text in texts] if self.settings.analyser == "bigrams" else list(texts)
        settings: dict[str, Any] = {"token_pattern": pattern, "stopwords": stopwords, "show_progress": False}
        try:
            return bm25s.tokenize(spelled, return_ids=ids, **settings)
        except ValueError as error:
            raise RequestError(f"bm25s has no stop words for {stopwords!r}: {error}") from error


@dataclass(frozen=True, eq=False)
class BM25Index:
    """Documents by their words; `index` is bm25s', None where no document has a word."""

    model: BM25
    index: Any

    def search(
        self, queries: Sequence[str], k: int, *, wanted: Wanted = NOTHING_WANTED, progress: Progress = SILENT
    ) -> Hits:
        """As `BM25.search`."""
        index = self.index
        if index is None:
            return stack_hits([NO_HITS] * len(queries))
        progress.start("Searching", len(queries))
        pieces = []
        for row, words in enumerate(self.model.tokens(queries, ids=False)):
            indexed = [word for word in words if word in index.vocab_dict]
            if indexed:
                scores = index.get_scores(indexed).astype(np.float64)
                best = _best(scores, _having(index, indexed), k)
                hits = sort_hits(np.zeros(len(best), np.int64), best, scores[best], queries=1)
                pieces.append(cut_hits(hits, k, wanted.of(row)))
            else:
                pieces.append(NO_HITS)
            progress.advance(1)
        return stack_hits(pieces)


def spell_out(text: str) -> str:
    """Runs of kana and kanji by their bigrams and characters, in NFKC; a text without East Asian characters as it is.

    >>> spell_out("赤い靴 USB-C"), spell_out("USB-C")
    ('赤い い靴 赤 い 靴  USB-C', 'USB-C')
    """
    if not _EAST_ASIAN.search(text):
        return text

    def spell(match: re.Match[str]) -> str:
        run = match[0]
        return f" {' '.join((*map(''.join, pairwise(run)), *run))} "

    return _RUN.sub(spell, unicodedata.normalize("NFKC", text)).strip()


def _having(index: Any, words: Sequence[str]) -> Ints:
    """The documents that have one of the words, int64[n] ascending. A score does not tell: in bm25+ and bm25l absent
    words score too, and in robertson and atire a word that every document has scores 0."""
    starts, documents = index.scores["indptr"], index.scores["indices"]
    rows = [documents[starts[i] : starts[i + 1]] for i in (index.vocab_dict[word] for word in words)]
    return np.unique(np.concatenate(rows)).astype(np.int64)


def _best(scores: Floats, among: Ints, k: int) -> Ints:
    """Those of `among` that are the k best, or tie with the last of them.

    >>> _best(np.array([0.0, 2, 1, 2, 1]), np.array([1, 2, 3, 4]), 3)
    array([1, 2, 3, 4])
    """
    if k >= len(among):
        return among
    least = np.partition(scores[among], len(among) - k)[len(among) - k]
    return np.asarray(among[scores[among] >= least])
