"""Models for pairs of texts that need no weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from calipers.core import SILENT, ModelInfo


class Card:
    """The metrics that a model card got last."""

    def set_evaluation_metrics(self, evaluator: Any, metrics: dict[str, Any], epoch: float, steps: int) -> None:
        self.metrics = metrics


class FixedCrossEncoder:
    """A CrossEncoder whose scores of pairs are given."""

    def __init__(self, scores: dict[tuple[str, str], Any], num_labels: int = 1, dtype: Any = np.float32) -> None:
        self.scores, self.num_labels, self.dtype = scores, num_labels, dtype
        self.model_card_data, self.calls = Card(), []

    def predict(self, pairs: Sequence[Sequence[str]], **_: Any) -> np.ndarray:
        self.calls.append([tuple(pair) for pair in pairs])
        return np.array([self.scores[a, b] for a, b in pairs], dtype=self.dtype)


class FixedScorer:
    """One of our PairScorers, with scores that are given."""

    info = ModelInfo("test", "given", None, "cpu", "sha256:0")

    def __init__(self, score: Callable[[str, str], Any]) -> None:
        self._score = score

    def score(self, pairs: Sequence[tuple[str, str]], *, progress: Any = SILENT) -> np.ndarray:
        progress.start("pairs", len(pairs))
        progress.advance(len(pairs))
        return np.array([self._score(a, b) for a, b in pairs], dtype=np.float32)


class Lexical:
    """A real scorer that needs no weights: the share of the query's words that a document holds."""

    def __init__(self, outputs: Callable[[float], Any] = lambda s: s, **settings: Any) -> None:
        self.info = ModelInfo("test", "lexical", None, "cpu", "sha256:0", settings)
        self._outputs = outputs

    def score(self, pairs: Sequence[tuple[str, str]], *, progress: Any = SILENT) -> np.ndarray:
        shares = [len({*a.split()} & {*b.split()}) / len({*a.split()}) for a, b in pairs]
        return np.array([self._outputs(share) for share in shares], dtype=np.float32)


class InOrder(Lexical):
    """An identity reranker: documents keep the order in which they come."""

    def score(self, pairs: Sequence[tuple[str, str]], *, progress: Any = SILENT) -> np.ndarray:
        return -np.arange(len(pairs), dtype=np.float32)


GRADED = {
    "query": "red winter coat",
    "documents": [
        {"id": "x", "text": "blue summer hat", "relevance": 0},
        {"id": "y", "text": "red coat", "relevance": 1},
        {"id": "z", "text": "red winter coat", "relevance": 3},
    ],
}
