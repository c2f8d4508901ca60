"""What `trust` answers, and the document that programs read."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.core import Dataset
from calipers.reliability.records import TrustScores
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
    rows: NDArray[np.int64]  # [q, k], -1 for none
    cosines: NDArray[np.float64]  # [q, k]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        decisions = Counter(self.scores.decision.tolist())
        return f"TrustAnswer({self.model_id}, {len(self.corpus)} documents, {dict(decisions)})"

    def to_dict(self) -> dict[str, Any]:
        """The document that `calipers trust --json` prints."""
        trust = self.trust
        return {
            "schema": SCHEMA,
            "model_id": self.model_id,
            "corpus": {
                "path": self.corpus.source.path,
                "documents": len(self.corpus),
                "fingerprint": self.corpus.fingerprint,
            },
            "codec": trust.codec.name,
            "k": trust.k,
            "calibrated": trust.calibrated,
            "map": trust.method if trust.calibrated else None,
            "thresholds": vars(trust.thresholds),
            **trust.report,
            "about": trust.about,
            "queries": [self.query(row) for row in range(len(self.queries))],
            "warnings": self.notes,
        }

    def query(self, row: int) -> dict[str, Any]:
        """One query: its decision, its numbers and its neighbours."""
        scores = self.scores
        return {
            "query": self.queries[row],
            "decision": str(scores.decision[row]),
            "reason": self.trust.reason(scores, row),
            "probability": float(scores.probability[row]),
            **{name: float(values[row]) for name, values in vars(scores.parts).items()},
            "odd": {kind: bool(flags[row]) for kind, flags in scores.odd.items()},
            "neighbours": self._neighbours(row),
        }

    def _neighbours(self, row: int) -> list[dict[str, Any]]:
        texts = self.corpus.columns["text"]
        return [
            {
                "rank": rank,
                "id": self.corpus.ids[document],
                "cosine": float(self.cosines[row, rank - 1]),
                "text": texts[document],
            }
            for rank, document in enumerate(self.rows[row].tolist(), start=1)
            if document >= 0
        ]
