"""BM25, the lexical baseline: a search by shared words, without vectors (package bm25s).

The defaults are Lucene's formula (Kamphuis et al. 2020) with its k1 = 1.2 and b = 0.75, and bm25s' tokens: two or more
word characters, lower-cased, without English stop words, not stemmed. `bm25:k1=0.9,b=0.4,stopwords=none` changes them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from calipers.core import SILENT, ModelError, ModelInfo, Progress, RequestError
from calipers.core.files import package_versions
from calipers.metrics.arrays import Ints, Vectors
from calipers.models.options import ModelOptions
from calipers.models.source import Source

_TOKEN = r"(?u)\b\w\w+\b"
_METHODS = ("lucene", "robertson", "atire", "bm25+", "bm25l")


@dataclass(frozen=True)
class Settings:
    k1: float = 1.2
    b: float = 0.75
    method: str = "lucene"
    stopwords: str = "en"  # a language that bm25s has a list for, or none

    def __post_init__(self) -> None:
        if self.k1 < 0 or not 0 <= self.b <= 1:
            raise RequestError(f"BM25 needs k1 ≥ 0 and 0 ≤ b ≤ 1, found k1={self.k1:g}, b={self.b:g}")
        if self.method not in _METHODS:
            raise RequestError(f"the method of BM25 must be one of {', '.join(_METHODS)}, found {self.method!r}")


def load(source: Source, options: ModelOptions) -> BM25:
    """`source.reference` is `bm25`, or has settings behind a colon; the word before the colon may be missing."""
    options.refuse_others("BM25", "model_id")
    settings, facts = settle(source)
    fingerprint = f"sha256:{hashlib.sha256(json.dumps(facts).encode()).hexdigest()}"
    return BM25(settings, ModelInfo("bm25", options.model_id or "bm25", None, "cpu", fingerprint, facts))


def settle(source: Source) -> tuple[Settings, dict[str, object]]:
    """The settings, and all that decides the result of a search."""
    version = package_versions("bm25s").get("bm25s")
    if version is None:
        raise ModelError("BM25 needs the package bm25s: pip install bm25s")
    settings = parse(source.reference.removeprefix("bm25").removeprefix(":"))
    return settings, {**asdict(settings), "tokens": _TOKEN, "bm25s": version}


def parse(text: str) -> Settings:
    """
    >>> parse("k1=0.9,b=0.4")
    Settings(k1=0.9, b=0.4, method='lucene', stopwords='en')
    """
    values: dict[str, Any] = {}
    kinds = {"k1": float, "b": float, "method": str, "stopwords": str}
    for part in filter(None, text.split(",")):
        key, _, value = part.partition("=")
        if key not in kinds:
            raise RequestError(f"BM25 has no setting {key!r}: it has {', '.join(kinds)}, written bm25:k1=0.9,b=0.4")
        try:
            values[key] = kinds[key](value)
        except ValueError:
            raise RequestError(f"the setting {key} of BM25 must be a number, found {value!r}") from None
    return Settings(**values)


@dataclass(frozen=True, eq=False)
class BM25:
    settings: Settings
    info: ModelInfo

    def search(
        self, queries: Sequence[str], documents: Sequence[str], k: int, *, progress: Progress = SILENT
    ) -> tuple[Vectors, Ints]:
        """Scores float32[q, k] and documents int64[q, k], best first, among equals the earlier document.

        Places that no document with a word of the query fills are -1, with the score 0.
        """
        import bm25s  # type: ignore[import-untyped]

        scores = np.zeros((len(queries), k), dtype=np.float32)
        best = np.full((len(queries), k), -1, dtype=np.int64)
        tokens = self._tokens(documents, ids=True)
        if not any(map(len, tokens.ids)):  # bm25s divides by the mean length
            return scores, best
        index = bm25s.BM25(k1=self.settings.k1, b=self.settings.b, method=self.settings.method)
        index.index(tokens, show_progress=False)
        progress.start("Searching", len(queries))
        for row, words in enumerate(self._tokens(queries, ids=False)):
            indexed = [word for word in words if word in index.vocab_dict]
            if indexed:
                all_scores = index.get_scores(indexed)
                top = _best(all_scores, k)
                scores[row, : len(top)], best[row, : len(top)] = all_scores[top], top
            progress.advance(1)
        return scores, best

    def _tokens(self, texts: Sequence[str], *, ids: bool) -> Any:
        import bm25s

        stopwords = None if self.settings.stopwords == "none" else self.settings.stopwords
        try:
            return bm25s.tokenize(
                list(texts), token_pattern=_TOKEN, stopwords=stopwords, return_ids=ids, show_progress=False
            )
        except ValueError as error:
            raise RequestError(f"bm25s has no stop words for {stopwords!r}: {error}") from error


def _best(scores: Vectors, k: int) -> Ints:
    """Up to k documents with a score above 0, best first, among equals the earlier one.

    >>> _best(np.array([0, 2, 1, 2, 1], np.float32), 3)
    array([1, 3, 2])
    """
    least = np.partition(scores, len(scores) - k)[len(scores) - k] if k < len(scores) else 0.0
    among = np.flatnonzero((scores >= least) & (scores > 0))
    return among[np.argsort(-scores[among], kind="stable")[:k]]
