"""Trust: fitted once on a corpus, kept in one file, used for every query; and what `trust` answers with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.core import RequestError
from calipers.core.inputs import expand
from calipers.metrics import assessment, calibration, codecs, predictors
from calipers.metrics import trust as metrics
from calipers.metrics.arrays import Array, Bools, Floats, Ints
from calipers.metrics.codecs import Codec
from calipers.metrics.predictors import Columns, CorpusStatistics
from calipers.metrics.trust import TrustParts
from calipers.reliability import file, fitting, mapping
from calipers.reliability.records import (
    AT_MOST_HEDGE,
    DECISIONS,
    DecisionThresholds,
    Detector,
    InputMap,
    Method,
    Success,
    TrustScores,
)

_DECISIONS = np.array(DECISIONS)
_ROUNDING = 1e-3  # how far above 1 a database may round a cosine


REFERENCE = ("top_score", "margin", "gap", "spread", "stability", "coherence")  # what is remembered of real queries


@dataclass(frozen=True, eq=False)
class Trust:
    """A codec, maps to a probability, detectors and thresholds. There is a map for each kind of input: scores, vectors,
    the corpus at hand, texts, a reranker's scores. `thresholds` are those of the map that knows most.

    `report` holds what the calibration found, in numbers and sentences; `about` where it came from. `reference` are
    the predictors of the real queries, float64[q] by name: what later traffic is compared with.
    """

    codec: Codec
    k: int
    thresholds: DecisionThresholds
    method: Method = "logistic"
    maps: Mapping[str, InputMap] = field(default_factory=dict)
    detectors: Mapping[str, Detector] = field(default_factory=dict)
    score_detectors: Mapping[str, Detector] = field(default_factory=dict)
    background: CorpusStatistics | None = None
    reference: Columns = field(default_factory=dict)
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
        extra: Columns | None = None,
        reranked: Ints | None = None,
        success: Success | str = "relevant",
        codec: str = "int8",
        k: int = metrics.K,
        error: float = 0.1,
        confidence: float = 0.95,
        method: Method = "logistic",
        folds: int = calibration.FOLDS,
        seed: int = 42,
        similarity: str = "cosine",
        about: Mapping[str, str] | None = None,
    ) -> Trust:
        """From vectors float[n, d] of a corpus; to calibrate, from those of queries with `labels` or `qrels` as well.

        `labels` float[q]: 1 where a query is answered well, 0 where not, NaN where nobody knows. `qrels`, with
        `corpus_ids`: for each query in order a mapping, document id → grade, or, with `query_ids`, query id → such a
        mapping, as BEIR has it; a query without an entry is not judged. `success` says when a judged query is answered
        well: a relevant result among the k nearest documents (grade 1 or above), or what `Success` states.
        Fewer than 40 queries set no thresholds on R_q: documents do then. Vectors that are all the same are INVALID.
        `similarity` is how a search compares vectors: cosine, dot, euclidean or manhattan.
        `error` is the share of failures that may be among what is answered, with probability `confidence` over sets of
        judged queries. `odd` are vectors of queries that deserve no answer, by kind ("gibberish", "out_of_domain",
        "vague", …): each kind gets a detector against the queries. `extra` are predictors of the queries that vectors
        do not give (`metrics.predictors`: texts, reranker), float64[q] by name. `reranked` are the first results of the
        queries in a reranker's order, int64[q, n] rows of the corpus, -1 for none: with `qrels` they tell which queries
        are worth a second stage (`rerank`).
        """
        wanted = mapping.MapRequest(k, method, error, confidence, folds, seed)
        fitting.check(corpus_vectors, query_vectors, odd or {}, codec, wanted)
        fitted = codecs.fit(codec, corpus_vectors, seed=seed)
        near = fitting.look_around(corpus_vectors, query_vectors, fitted, k=k, seed=seed, similarity=similarity)
        measure = success if isinstance(success, Success) else Success(success)
        judgements = fitting.JudgedBy(qrels, corpus_ids, query_ids)
        succeeded = fitting.labels_of(near, labels, judgements, measure)
        background = CorpusStatistics.fit(corpus_vectors, seed=seed)
        stages = fitting.stages_of(near, reranked, judgements)
        notes = {**(about or {}), "success": str(measure)}
        return cls._fitted(near, succeeded, background, extra or {}, odd or {}, stages, wanted, notes)

    @classmethod
    def _fitted(
        cls,
        near: fitting.Neighbourhood,
        labels: Floats | None,
        background: CorpusStatistics,
        extra: Columns,
        odd: Mapping[str, Array],
        stages: tuple[Floats, Floats] | None,
        wanted: mapping.MapRequest,
        about: Mapping[str, str],
    ) -> Trust:
        assessed = judged = rows = None
        if labels is not None:
            assessed = assessment.assess(near.parts, labels, folds=wanted.folds, seed=wanted.seed)
            if not assessed.reason:
                judged, rows = fitting.judged_queries(near, labels, background, extra, stages, wanted)
        makes = rows[judged.makes] if judged is not None and rows is not None else None
        by_parts, by_scores = fitting.detect(near, odd, wanted.folds, makes)
        deciding = fitting.detectors(by_parts, metrics.FEATURES)
        fitted: dict[str, mapping.FittedInput] = {}
        if judged is not None and rows is not None:
            judged = replace(judged, flagged=fitting.flag(near.parts.take(rows), deciding))
            fitted = mapping.fit_inputs(judged, wanted)
        return cls(
            codec=near.codec,
            k=near.k,
            thresholds=fitting.thresholds(near, assessed, fitted),
            method=wanted.method,
            maps={kind: one.map for kind, one in fitted.items()},
            detectors=deciding,
            score_detectors=fitting.detectors(by_scores, fitting.SCORE_FEATURES),
            background=background,
            reference=fitting.reference(near, REFERENCE),
            report=fitting.report(assessed, by_parts, judged, fitted, wanted.seed),
            about={
                **about,
                **(
                    {"error": f"{wanted.error:g}", "confidence": f"{wanted.confidence:g}"} if labels is not None else {}
                ),
                **fitting.norm_facts(near),
                "similarity": near.similarity,
            },
        )

    @property
    def similarity(self) -> str:
        """How a search compares vectors."""
        return self.about.get("similarity", "cosine")

    @property
    def calibrated(self) -> bool:
        return bool(self.maps)

    @property
    def promise(self) -> Mapping[str, Any] | None:
        """What the map that knows most can promise; None where nothing is calibrated or too little is judged."""
        return self.promise_of(list(self.maps)[-1]) if self.maps else None

    def promise_of(self, kind: str | None) -> Mapping[str, Any] | None:
        """The same of the map of a kind of input."""
        maps = (self.report.get("calibration") or {}).get("maps") or {}
        return (maps.get(kind) or {}).get("promise")

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
        parts = metrics.parts(query_vectors, neighbour_vectors, self.codec, present=present)
        return self._judge_vectors(parts, query_vectors, neighbour_vectors.__getitem__, "vectors")

    def score_scores(self, scores: Array) -> TrustScores:
        """From the cosines of each query with its k nearest documents alone, float[q, k] in any order, as a vector
        database returns them; NaN for a query that has fewer. Parts that need vectors are NaN."""
        cosines = np.asarray(scores, np.float64)
        if cosines.ndim != 2:
            raise RequestError(f"this trust score takes scores [q, {self.k}], found {list(cosines.shape)}")
        self.refuse_k(cosines.shape[1])
        if (np.abs(cosines) > 1 + _ROUNDING).any():
            raise RequestError(
                f"scores must be cosines, from -1 to 1, found {cosines[np.abs(cosines) > 1 + _ROUNDING][0]:g}: "
                "turn distances or inner products into cosines first"
            )
        columns = predictors.score_columns(cosines)
        unknown = np.full(len(cosines), np.nan)
        parts = TrustParts(unknown, unknown, unknown, columns["top_score"], columns["margin"], cosines)
        return self._judge(parts, columns, "scores")

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

    def score_in(self, query_vectors: Array, corpus: Array, rows: Ints, *, extra: Columns | None = None) -> TrustScores:
        """The same where the neighbours are rows of a corpus, int64[q, k], -1 for none. With the whole corpus the map
        knows more; `extra` are predictors of texts or of a reranker, as in `fit`."""
        self.refuse_k(rows.shape[1])
        parts = metrics.parts_in(query_vectors, corpus, rows, self.codec)
        kind = self.richest(extra or {})
        columns = dict(extra or {})
        if kind is not None and any(name in predictors.PREDICTORS["corpus"] for name in self.maps[kind].features):
            deep = predictors.deep_rows(query_vectors, corpus, self.similarity)
            columns |= predictors.corpus_columns(query_vectors, corpus, deep, self.k)
        return self._judge_vectors(
            parts, query_vectors, lambda part: corpus[np.maximum(rows[part], 0)], kind or "corpus", columns
        )

    def richest(self, extra: Collection[str]) -> str | None:
        """The kind of input with most predictors whose map reads none that the corpus or `extra` does not give. That of
        a reranker is for queries that have been reranked."""
        beyond = {*predictors.PREDICTORS["texts"], *predictors.PREDICTORS["reranker"]} - set(extra)
        reranked = set(predictors.PREDICTORS["reranker"]) <= set(extra)
        kinds = {kind: one for kind, one in self.maps.items() if kind != "reranker" or reranked}
        usable = [kind for kind, one in kinds.items() if not beyond & set(one.features)]
        return usable[-1] if usable else None

    def _judge_vectors(
        self,
        parts: TrustParts,
        queries: Array,
        neighbours: Callable[[slice], Array],
        kind: str,
        extra: Columns | None = None,
    ) -> TrustScores:
        """With the predictors that the map of this kind of input, or of a poorer one, reads."""
        assert parts.cosines is not None
        chosen = self._map_for(kind)
        wanted = self.maps[chosen].features if chosen else ()
        columns = {
            **predictors.score_columns(parts.cosines),
            **predictors.vector_columns(parts, queries, neighbours, self.background, wanted),
            **(extra or {}),
        }
        return self._judge(parts, columns, kind)

    def _map_for(self, kind: str) -> str | None:
        place = predictors.INPUTS.index(kind)
        return next((name for name in reversed(predictors.INPUTS[: place + 1]) if name in self.maps), None)

    def judge(self, parts: TrustParts) -> TrustScores:
        """From parts to probability, oddities and decision, by the map of scores alone."""
        assert parts.cosines is not None
        return self._judge(parts, predictors.score_columns(parts.cosines), "scores")

    def _judge(self, parts: TrustParts, columns: Columns, kind: str) -> TrustScores:
        columns = {**columns, "stability": parts.stability, "coherence": parts.coherence}
        chosen = self._map_for(kind)
        probability = np.full(len(parts), np.nan)
        thresholds, score = self.thresholds, parts.reliability
        if chosen is not None:
            thresholds = self.maps[chosen].thresholds
            score = probability = self.maps[chosen](columns, self.method)
        elif self.calibrated:  # a file of an earlier version, which has no map for scores alone
            thresholds, score = DecisionThresholds("probability", None, 0.5, ""), probability
        detectors = self.score_detectors if kind == "scores" else self.detectors
        odd = {name: detector.calls(columns) for name, detector in detectors.items()}
        decision = self._decide(thresholds, score, odd, detectors)
        for name, called in odd.items():
            if detectors[name].acts:
                probability = np.where(called, np.nan, probability)
        return TrustScores(parts, probability, odd, decision, chosen, columns)

    def _decide(
        self,
        thresholds: DecisionThresholds,
        score: Floats,
        odd: Mapping[str, Bools],
        detectors: Mapping[str, Detector],
    ) -> NDArray[np.str_]:
        level = ((score >= thresholds.fall_back) & (score > 0)).astype(np.intp)
        if thresholds.rerank is not None:
            level[score < thresholds.rerank] = DECISIONS.index("rerank")
        if thresholds.answer is not None:
            level[(score >= thresholds.answer) & (score > 0)] = DECISIONS.index("answer")
        for kind, called in odd.items():
            if detectors[kind].acts:
                level = np.where(called, np.minimum(level, int(kind in AT_MOST_HEDGE)), level)
        return _DECISIONS[level]

    def reason(self, scores: TrustScores, row: int) -> str:
        """The one reason that decided, in words."""
        detectors = self.score_detectors if scores.map == "scores" else self.detectors
        for kind in ("gibberish", "out_of_domain", *scores.odd):
            if kind in scores.odd and scores.odd[kind][row] and kind in detectors and detectors[kind].acts:
                return f"it looks {kind.replace('_', ' ')}"
        thresholds = self.maps[scores.map].thresholds if scores.map else self.thresholds
        calibrated = thresholds.on == "probability"
        value = float((scores.probability if calibrated else scores.parts.reliability)[row])
        if not math.isfinite(value):
            return "there is no score: it has fewer than two neighbours, or a vector without a direction"
        if not calibrated:
            side = "above" if value > metrics.CONFIDENT else "not above"
            return f"R_q is {value:.3f}, {side} {metrics.CONFIDENT:g} (the method's high confidence); not calibrated"
        stated = f"the probability of a good answer is {value:.3f}"
        if thresholds.answer is not None and value >= thresholds.answer:
            return f"{stated}, at least {thresholds.answer:.3f}"
        if thresholds.rerank is not None and value < thresholds.rerank:
            return f"{stated}, below {thresholds.rerank:.3f}: a second stage is worth its call"
        if value < thresholds.fall_back:
            return f"{stated}, below {thresholds.fall_back:.3f}"
        if thresholds.answer is None:
            return f"{stated}, and no probability keeps the requested error"
        return f"{stated}, below {thresholds.answer:.3f}, from which on the requested error is kept"

    def save(self, path: Path | str) -> None:
        """One safetensors file with a JSON header; moved in place when it is whole."""
        file.write(expand(path), vars(self))

    @classmethod
    def load(cls, path: Path | str) -> Trust:
        """Nothing in the file is executed; what does not fit is refused with one sentence."""
        return cls(**file.read(expand(path)))
