"""The calibration that is served: a trust file, read again when it changes, and what it says of queries."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from calipers.core import CalipersError, RequestError
from calipers.metrics import predictors
from calipers.metrics.arrays import Floats
from calipers.metrics.drift import Martingale
from calipers.reliability import Trust, TrustScores
from calipers.reliability.answer import describe
from calipers.reliability.searching import TrustedSearch
from calipers.reliability.trust import REFERENCE
from calipers.service.bodies import ScoreRequest

_LEAST = 10  # real queries that traffic can be compared with


@dataclass(eq=False)
class Served:
    """A trust score with its id, and the bets on its traffic, by kind of input."""

    trust: Trust
    id: str
    changed: tuple[int, int]
    bets: dict[str, Martingale] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)  # of the bets: several threads score

    @classmethod
    def read(cls, path: Path) -> Served:
        facts = path.stat() if path.is_file() else None
        trust = Trust.load(path)
        name = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        assert facts is not None
        served = cls(trust, name, (facts.st_mtime_ns, facts.st_size))
        for kind, names in _WATCHED.items():
            if set(names) <= set(trust.reference) and len(trust.reference[names[0]]) >= _LEAST:
                served.bets[kind] = Martingale.fit(predictors.matrix(trust.reference, names))
        return served

    @property
    def void(self) -> bool:
        """Whether traffic has left what was calibrated on, so that no promise holds."""
        return any(bet.alarm for bet in self.bets.values())

    def watch(self, kind: str, columns: dict[str, Floats], row: int) -> None:
        names = _WATCHED.get(kind, _WATCHED["vectors"])
        bet = self.bets.get("scores" if kind == "scores" else "vectors")
        if bet is not None and all(name in columns for name in names):
            values = np.array([columns[name][row] for name in names])
            with self.lock:
                bet.add(values)


_WATCHED = {
    "scores": ("top_score", "margin", "gap", "spread"),
    "vectors": REFERENCE,
}


@dataclass(eq=False)
class Calibration:
    """The served score. `search` answers texts, where a model and a corpus are loaded."""

    path: Path
    served: Served
    search: TrustedSearch | None = None

    @property
    def model_id(self) -> str | None:
        """Of the model that texts are scored with."""
        return self.search.embed.model.info.model_id if self.search else None

    def reload(self) -> str | None:
        """Take a changed file; a sentence where it cannot be used, and the old one stays. None: nothing happened."""
        try:
            facts = self.path.stat()
            if (facts.st_mtime_ns, facts.st_size) == self.served.changed:
                return None
            fresh = Served.read(self.path)
            if self.search is not None:
                fresh.trust.refuse_other(
                    self.search.embed.model.info.fingerprint, corpus=self.search.documents.fingerprint
                )
                if fresh.trust.codec.dimensions != self.search.vectors.shape[1]:
                    raise RequestError("its dimensions are not the model's")
        except (CalipersError, OSError) as error:
            return f"{self.path} cannot be used, the calibration {self.served.id} stays: {error}"
        before, self.served = self.served.id, fresh
        return f"the calibration {fresh.id} takes the place of {before}"

    def score(self, queries: Sequence[ScoreRequest]) -> list[dict[str, Any]]:
        """What is decided of queries with scores or vectors, in their order."""
        served = self.served
        answers: list[dict[str, Any]] = [{} for _ in queries]
        for kind in ("scores", "vectors"):
            rows = [row for row, query in enumerate(queries) if query.kind == kind]
            if rows:
                scores = _score(served.trust, kind, [queries[row] for row in rows])
                for place, row in enumerate(rows):
                    answers[row] = self._answer(served, kind, scores, place)
        return answers

    def score_texts(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """The same of texts, with their neighbours."""
        assert self.search is not None
        served = self.served
        answer = _with_trust(self.search, served.trust).ask(texts)
        return [
            {
                **self._answer(served, "vectors", answer.scores, row, answer.unread[row]),
                "neighbours": answer.query(row)["neighbours"],
            }
            for row in range(len(texts))
        ]

    def _answer(
        self, served: Served, kind: str, scores: TrustScores, row: int, unread: str | None = None
    ) -> dict[str, Any]:
        served.watch(kind, dict(scores.columns), row)
        facts = describe(served.trust, scores, row, unread)
        promise = served.trust.promise_of(scores.map)
        return {
            **{key: facts.pop(key) for key in ("decision", "reason", "probability", "map")},
            "parts": {name: facts[name] for name in scores.parts.columns},
            "odd": facts["odd"],
            "predictors": {name: float(scores.columns[name][row]) for name in REFERENCE if name in scores.columns},
            "promise": None if not promise or promise.get("threshold") is None else "void" if served.void else "holds",
            "calibration": served.id,
        }


def _score(trust: Trust, kind: str, queries: Sequence[ScoreRequest]) -> TrustScores:
    if kind == "scores":
        return trust.score_scores(np.stack([query.scores for query in queries if query.scores is not None]))
    vectors = np.stack([query.vector for query in queries if query.vector is not None])
    return trust.score(vectors, np.stack([query.neighbours for query in queries if query.neighbours is not None]))


def _with_trust(search: TrustedSearch, trust: Trust) -> TrustedSearch:
    if search.trust is trust:
        return search
    return TrustedSearch(search.embed, search.documents, search.vectors, trust, search.lexicon, search.notes)
