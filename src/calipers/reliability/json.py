"""What `calipers trust --json` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calipers.reliability.api import TrustAnswer

SCHEMA = "calipers/trust/1"


def document(answer: TrustAnswer) -> dict[str, Any]:
    trust = answer.trust
    return {
        "schema": SCHEMA,
        "model_id": answer.model_id,
        "corpus": {
            "path": answer.corpus.source.path,
            "documents": len(answer.corpus),
            "fingerprint": answer.corpus.fingerprint,
        },
        "codec": trust.codec.name,
        "k": trust.k,
        "calibrated": trust.calibrated,
        "map": trust.method if trust.calibrated else None,
        "thresholds": vars(trust.thresholds),
        **trust.report,
        "about": trust.about,
        "queries": [query(answer, row) for row in range(len(answer.queries))],
        "warnings": answer.notes,
    }


def query(answer: TrustAnswer, row: int) -> dict[str, Any]:
    """One query: its decision, its numbers and its neighbours."""
    scores = answer.scores
    return {
        "query": answer.queries[row],
        "decision": str(scores.decision[row]),
        "reason": answer.trust.reason(scores, row),
        "probability": float(scores.probability[row]),
        **{name: float(values[row]) for name, values in vars(scores.parts).items()},
        "odd": {kind: bool(flags[row]) for kind, flags in scores.odd.items()},
        "neighbours": _neighbours(answer, row),
    }


def _neighbours(answer: TrustAnswer, row: int) -> list[dict[str, Any]]:
    texts = answer.corpus.columns["text"]
    return [
        {
            "rank": rank,
            "id": answer.corpus.ids[document],
            "cosine": float(answer.cosines[row, rank - 1]),
            "text": texts[document],
        }
        for rank, document in enumerate(answer.rows[row].tolist(), start=1)
        if document >= 0
    ]
