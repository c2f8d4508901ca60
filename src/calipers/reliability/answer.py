"""What `trust` answers: for each query a decision, its reason, the numbers behind it and its neighbours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from calipers.core import Dataset
from calipers.metrics import trust as metrics
from calipers.metrics.arrays import Floats, Ints
from calipers.reliability.records import DECISIONS, TrustScores
from calipers.reliability.trust import Trust

SCHEMA = "calipers/trust/1"


@dataclass(frozen=True, eq=False)
class TrustAnswer:
    """The trust score, and for each query its scores and its neighbours in the corpus."""

    trust: Trust
    model_id: str
    corpus: Dataset
    queries: tuple[str, ...]
    scores: TrustScores
    rows: Ints  # [q, k], -1 for none
    cosines: Floats  # [q, k]
    unread: tuple[str | None, ...] = ()  # the script of a query that the model cannot read
    notes: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the model: what files and options come to

    def __repr__(self) -> str:
        decisions = Counter(self.scores.decision.tolist())
        return f"TrustAnswer({self.model_id}, {len(self.corpus)} documents, {dict(decisions)})"

    def to_dict(self) -> dict[str, Any]:
        """The document that `calipers trust --json` prints."""
        trust, corpus = self.trust, self.corpus
        return {
            "schema": SCHEMA,
            "model_id": self.model_id,
            "settings": dict(self.settings),
            "corpus": {"path": corpus.source.path, "documents": len(corpus), "fingerprint": corpus.fingerprint},
            "codec": trust.codec.name,
            "k": trust.k,
            "similarity": trust.similarity,
            "calibrated": trust.calibrated,
            "map": trust.method if trust.calibrated else None,
            "inputs": list(trust.maps),
            "promise": trust.promise,
            "thresholds": vars(trust.thresholds),
            **trust.report,
            "about": trust.about,
            "queries": [self.query(row) for row in range(len(self.queries))],
            "warnings": self.notes,
        }

    def query(self, row: int) -> dict[str, Any]:
        """One query: its decision, its numbers and its neighbours."""
        scores, texts = self.scores, self.corpus.columns["text"]
        nearest = zip(self.rows[row].tolist(), self.cosines[row].tolist(), strict=True)
        return {
            "query": self.queries[row],
            **describe(self.trust, scores, row, self.unread[row] if self.unread else None),
            "neighbours": [
                {"rank": rank, "id": self.corpus.ids[document], "cosine": cosine, "text": texts[document]}
                for rank, (document, cosine) in enumerate(nearest, start=1)
                if document >= 0
            ],
        }


def describe(trust: Trust, scores: TrustScores, row: int, unread: str | None = None) -> dict[str, Any]:
    """One query: what is decided and why, the numbers behind it, and the map that gave them."""
    reliability = float(scores.parts.reliability[row])
    return {
        "decision": str(scores.decision[row]),
        "reason": f"it is in {unread}, a script that the model cannot read" if unread else trust.reason(scores, row),
        "probability": float(scores.probability[row]),
        "map": scores.map,
        "high_confidence": reliability > metrics.CONFIDENT if reliability == reliability else None,
        **{name: float(values[row]) for name, values in scores.parts.columns.items()},
        "odd": {kind: bool(flags[row]) for kind, flags in scores.odd.items()},
    }


def without_unread(scores: TrustScores, unread: Sequence[str | None]) -> TrustScores:
    """A query that the model cannot read falls back and has no probability."""
    blind = np.array([script is not None for script in unread], np.bool_)
    return replace(
        scores,
        probability=np.where(blind, np.nan, scores.probability),
        decision=np.where(blind, DECISIONS[0], scores.decision),
    )
