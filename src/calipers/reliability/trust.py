"""Trust: fitted once on a corpus, kept in one file, used for every query; and what `trust` answers with it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.core import Dataset, RequestError
from calipers.metrics import assessment, calibration, codecs
from calipers.metrics import trust as metrics
from calipers.metrics.arrays import Array, Bools, Floats, Ints
from calipers.metrics.calibration import Map
from calipers.metrics.codecs import Codec
from calipers.metrics.trust import TrustParts
from calipers.reliability import file, fitting
from calipers.reliability.records import AT_MOST_HEDGE, DECISIONS, DecisionThresholds, Detector, Method, TrustScores

SCHEMA = "calipers/trust/1"
_DECISIONS = np.array(DECISIONS)


@dataclass(frozen=True, eq=False)
class Trust:
    """A codec, maps to a probability, detectors and thresholds. The isotonic map takes the logistic map's output.

    `report` holds what the calibration found, in numbers and sentences; `about` where it came from.
    """

    codec: Codec
    k: int
    thresholds: DecisionThresholds
    method: Method = "logistic"
    maps: Mapping[str, Map] = field(default_factory=dict)
    detectors: Mapping[str, Detector] = field(default_factory=dict)
    report: Mapping[str, Any] = field(default_factory=dict)
    about: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def fit(
        cls,
        corpus_vectors: Array,
        *,
        query_vectors: Array | None = None,
        labels: Array | None = None,
        qrels: fitting.Qrels | None = None,
        query_ids: Sequence[str] | None = None,
        corpus_ids: Sequence[str] | None = None,
        odd: Mapping[str, Array] | None = None,
        codec: str = "int8",
        k: int = metrics.K,
        error: float = 0.1,
        method: Method = "logistic",
        folds: int = calibration.FOLDS,
        seed: int = 42,
        similarity: str = "cosine",
        about: Mapping[str, str] | None = None,
    ) -> Trust:
        """From vectors float[n, d] of a corpus; to calibrate, from those of queries with `labels` or `qrels` as well.

        `labels` float[q]: 1 where a relevant result is among the k nearest documents, 0 where none is, NaN where
        nobody knows. `qrels`, with `corpus_ids`: for each query in order a mapping, document id → grade (relevant from
        1 on), or, with `query_ids`, query id → such a mapping, as BEIR has it; a query without an entry is not judged.
        Fewer than 40 queries set no thresholds on R_q: documents do then. Vectors that are all the same are INVALID.
        `similarity` is how a search compares vectors: cosine, dot, euclidean or manhattan.
        `error` is the share of failures that may be among what is answered. `odd` are vectors of queries that deserve
        no answer, by kind ("gibberish", "out_of_domain", "vague", …): each kind gets a detector against the queries.
        """
        fitting.check(corpus_vectors, query_vectors, odd or {}, codec=codec, k=k, error=error, method=method)
        fitted = codecs.fit(codec, corpus_vectors, seed=seed)
        neighbourhood = fitting.look_around(
            corpus_vectors, query_vectors, fitted, k=k, seed=seed, similarity=similarity
        )
        labels = fitting.labels_of(neighbourhood, labels, qrels, corpus_ids, query_ids)
        assessed = None
        if labels is not None:
            assessed = assessment.assess(neighbourhood.parts, labels, folds=folds, seed=seed)
        detections = fitting.detect(neighbourhood, odd or {}, folds)
        return cls(
            codec=fitted,
            k=k,
            thresholds=fitting.thresholds(neighbourhood, assessed, method, error),
            method=method,
            maps=fitting.maps(neighbourhood, labels, assessed),
            detectors={d.kind: Detector(d.map, d.threshold, fitting.acts(d)) for d in detections if d.map},
            report=fitting.report(assessed, detections),
            about={**(about or {}), "similarity": similarity},
        )

    @property
    def similarity(self) -> str:
        """How a search compares vectors."""
        return self.about.get("similarity", "cosine")

    @property
    def calibrated(self) -> bool:
        return bool(self.maps)

    def score(
        self,
        query_vectors: Array,
        neighbour_vectors: Array,
        *,
        present: Bools | None = None,
        fingerprint: str | None = None,
    ) -> TrustScores:
        """From float[q, d] and float[q, k, d]: the nearest documents of each query, in any order, as many as the score
        was fitted with (`k`).

        `present` bool[q, k] is False where a query has fewer. What cannot be scored (NaN, a zero vector) falls back.
        `fingerprint` is the model's, if it is at hand: vectors of another model are refused.
        """
        self.refuse_other(fingerprint)
        d, queries, others = self.codec.dimensions, query_vectors.shape, neighbour_vectors.shape
        if len(queries) != 2 or len(others) != 3 or queries[1] != d or others[::2] != queries:
            raise RequestError(
                f"this trust score takes queries [q, {d}] and their neighbours [q, k, {d}], "
                f"found {list(queries)} and {list(others)}"
            )
        self.refuse_k(others[1])
        if present is not None and present.shape != others[:2]:
            raise RequestError(f"`present` has the shape {list(present.shape)}: expected {list(others[:2])}")
        return self.judge(metrics.parts(query_vectors, neighbour_vectors, self.codec, present=present))

    def refuse_other(self, fingerprint: str | None = None, corpus: str | None = None) -> None:
        """Refuse the fingerprint of another model or corpus than the score was fitted for; None is not checked."""
        for what, given in (("model", fingerprint), ("corpus", corpus)):
            fitted = self.about.get(f"{what}_fingerprint")
            if given is not None and fitted and given != fitted:
                name = self.about.get(what, f"another {what}")
                raise RequestError(
                    f"the trust score was fitted for the {what} {name} ({fitted}), found {given}: fit it again for "
                    f"this {what}, or use the one that it was fitted for"
                )

    def refuse_k(self, k: int) -> None:
        """Parts, maps and thresholds all change with the number of neighbours."""
        if k != self.k:
            raise RequestError(
                f"the trust score was fitted with the {self.k} nearest documents of a query, found {k}: "
                f"give {self.k}, or fit it again with `k` = {k}"
            )

    def score_in(self, query_vectors: Array, corpus: Array, rows: Ints) -> TrustScores:
        """The same where the neighbours are rows of a corpus, int64[q, k], -1 for none."""
        self.refuse_k(rows.shape[1])
        return self.judge(metrics.parts_in(query_vectors, corpus, rows, self.codec))

    def judge(self, parts: TrustParts) -> TrustScores:
        """From parts to probability, oddities and decision."""
        features = parts.features if self.maps or self.detectors else np.empty((0, 0))
        probability = np.full(len(parts), np.nan)
        if self.calibrated:
            probability = self.maps["logistic"](features)
            if self.method == "isotonic":
                probability = self.maps["isotonic"](probability)
        odd = {kind: detector.map(features) >= detector.threshold for kind, detector in self.detectors.items()}
        return TrustScores(parts, probability, odd, self._decide(parts, probability, odd))

    def _decide(self, parts: TrustParts, probability: Floats, odd: Mapping[str, Bools]) -> NDArray[np.str_]:
        score = probability if self.thresholds.on == "probability" else parts.reliability
        level = ((score >= self.thresholds.fall_back) & (score > 0)).astype(np.intp)
        if self.thresholds.answer is not None:
            level += (score >= self.thresholds.answer) & (level > 0)
        for kind, called in odd.items():
            if self.detectors[kind].acts:
                level = np.where(called, np.minimum(level, int(kind in AT_MOST_HEDGE)), level)
        return _DECISIONS[level]

    def reason(self, scores: TrustScores, row: int) -> str:
        """Why this query got its decision, in words."""
        calibrated = self.thresholds.on == "probability"
        value = float((scores.probability if calibrated else scores.parts.reliability)[row])
        if not math.isfinite(value):
            return "there is no score: it has fewer than two neighbours, or a vector without a direction"
        name = "the probability of a relevant result" if calibrated else "R_q"
        sentence = f"{name} is {value:.3f} ({self.thresholds})"
        called = [kind for kind, flags in scores.odd.items() if flags[row] and self.detectors[kind].acts]
        return f"it looks {' and '.join(called).replace('_', ' ')}; {sentence}" if called else sentence

    def save(self, path: Path | str) -> None:
        """One safetensors file with a JSON header; moved in place when it is whole."""
        file.write(Path(path).expanduser(), vars(self))

    @classmethod
    def load(cls, path: Path | str) -> Trust:
        """Nothing in the file is executed; what does not fit is refused with one sentence."""
        return cls(**file.read(Path(path).expanduser()))


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
            "decision": str(scores.decision[row]),
            "reason": self.trust.reason(scores, row),
            "probability": float(scores.probability[row]),
            **{name: float(values[row]) for name, values in vars(scores.parts).items()},
            "odd": {kind: bool(flags[row]) for kind, flags in scores.odd.items()},
            "neighbours": [
                {"rank": rank, "id": self.corpus.ids[document], "cosine": cosine, "text": texts[document]}
                for rank, (document, cosine) in enumerate(nearest, start=1)
                if document >= 0
            ],
        }
