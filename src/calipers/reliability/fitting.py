"""From vectors and judgements to the maps, detectors and thresholds of a trust score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from calipers.core import DataError, RequestError, name_some
from calipers.metrics import assessment, codecs, geometry, predictors, search
from calipers.metrics import trust as metrics
from calipers.metrics.arrays import Array, Bools, Floats, Ints
from calipers.metrics.assessment import Assessment, Detection
from calipers.metrics.codecs import Codec
from calipers.metrics.predictors import Columns, CorpusStatistics
from calipers.metrics.trust import TrustParts
from calipers.reliability import mapping
from calipers.reliability.mapping import FittedInput, JudgedQueries
from calipers.reliability.records import METHODS, DecisionThresholds, Detector, Success
from calipers.tasks import outputs

_BACKGROUND = 1000  # documents that stand in for queries where there are none
_FALL_BACK = 0.025  # quantile of R_q where nothing is calibrated
_ACTS = 0.8  # a detector decides where the whole interval of its AUROC is above this
LEAST = 3  # documents
SCORE_FEATURES = ("top_score", "margin", "gap", "spread")  # that a detector reads where there are scores alone
LEAST_QUERIES = 40  # that set thresholds on R_q: 2.5 % of fewer are not even one

# 29 answered queries without a failure show 10 % with 95 % confidence, and half of the judged ones make the map.
ENOUGH = "about 100 judged queries calibrate it, some 300 let it promise"

Qrels = Sequence[Mapping[str, float]] | Mapping[str, Mapping[str, float]]
_SHAPE = "qrels are a mapping, document id → grade, for each query in order, or query id → such a mapping"


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """A corpus, queries with their neighbours in it, int64[q, k], and the parts of their scores."""

    corpus: Array
    queries: Array | None
    codec: Codec
    k: int
    seed: int
    rows: Ints
    parts: TrustParts
    similarity: str = "cosine"

    def columns(self, background: CorpusStatistics, extra: Columns) -> dict[str, Floats]:
        """All predictors of the queries, with those in `extra` that vectors alone do not give."""
        assert self.queries is not None
        assert self.parts.cosines is not None
        near = self.rows
        deep = predictors.deep_rows(self.queries, self.corpus, self.similarity)
        return {
            **predictors.score_columns(self.parts.cosines),
            **predictors.vector_columns(
                self.parts, self.queries, lambda part: self.corpus[np.maximum(near[part], 0)], background
            ),
            **predictors.corpus_columns(self.queries, self.corpus, deep, self.k),
            **extra,
        }

    def parts_of(self, queries: Array) -> TrustParts:
        rows = search.nearest_rows(queries, self.corpus, self.k, similarity=self.similarity)
        return metrics.parts_in(queries, self.corpus, rows, self.codec)


def look_around(
    corpus: Array, queries: Array | None, codec: Codec, *, k: int, seed: int, similarity: str = "cosine"
) -> Neighbourhood:
    """Find the neighbours. Without queries, a sample of the documents stands in, each without itself."""
    own = None if queries is not None else _stand_ins(len(corpus), seed)
    asking = corpus[own] if queries is None else queries
    rows = search.nearest_rows(asking, corpus, k, similarity=similarity, exclude=own)
    parts = metrics.parts_in(asking, corpus, rows, codec)
    return Neighbourhood(corpus, queries, codec, k, seed, rows, parts, similarity)


def _stand_ins(documents: int, seed: int) -> Ints:
    """Rows of documents that take the place of queries: the end of the permutation whose beginning the codec was fitted
    on, because a query is nothing that the codec has seen."""
    return np.sort(geometry.sample(documents, documents, seed=seed)[-_BACKGROUND:])


def check(
    corpus: Array, queries: Array | None, odd: Mapping[str, Array], codec: str, wanted: mapping.MapRequest
) -> None:
    if codec not in codecs.CODECS:
        raise RequestError(f"there is no codec {codec!r}: expected {', '.join(codecs.CODECS)}")
    if wanted.k < 2:
        raise RequestError(f"`k` must be at least 2, found {wanted.k}: one neighbour has nothing to agree with")
    for name, share in (("error", wanted.error), ("confidence", wanted.confidence)):
        if not 0 < share < 1:
            raise RequestError(f"`{name}` must be between 0 and 1, found {share:g}")
    if wanted.method not in METHODS:
        raise RequestError(f"there is no map {wanted.method!r}: expected {' or '.join(METHODS)}")
    if corpus.ndim != 2 or len(corpus) < LEAST:
        raise DataError(f"a trust score needs a corpus of at least {LEAST} vectors, found {list(corpus.shape)}")
    sides = {"documents": corpus, **({} if queries is None else {"queries": queries}), **odd}
    d = corpus.shape[1]
    for what, vectors in sides.items():
        if vectors.ndim != 2 or vectors.shape[1] != d:
            raise DataError(f"the vectors of {what} are {list(vectors.shape)}: expected [n, {d}] as in the corpus")
        length = geometry.norms(vectors)
        dead = ~np.isfinite(length) | (length == 0)
        outputs.refuse_rows(dead, list(map(str, range(len(dead)))), "zero vectors, NaN or infinite numbers", what)
    outputs.refuse_constant(corpus, list(map(str, range(len(corpus)))), "the same vector", "documents")


class JudgedBy(NamedTuple):
    """As Trust.fit takes them."""

    qrels: Qrels | None
    ids: Sequence[str] | None  # of the documents
    query_ids: Sequence[str] | None


def labels_of(near: Neighbourhood, labels: Array | None, judgements: JudgedBy, success: Success) -> Floats | None:
    """float64[q], as `labels` of Trust.fit; None where there are neither labels nor judgements."""
    qrels, ids, query_ids = judgements
    if labels is None and qrels is None:
        return None
    if labels is not None and qrels is not None:
        raise RequestError("`labels` and `qrels` are mutually exclusive: set one of them")
    count = 0 if near.queries is None else len(near.queries)
    grades = None if qrels is None else _in_order(qrels, query_ids, count)
    given = len(labels) if labels is not None else len(grades or ())
    if given != count:
        raise DataError(f"{count} queries have {given} labels or judgements: expected one each")
    if grades is None:
        values = np.asarray(labels, np.float64)
        strange = values[np.isfinite(values) & (values != 0) & (values != 1)]
        if len(strange):
            raise DataError(f"labels are 0, 1 or NaN, found {strange[0]:g}")
        return values
    if ids is None or len(ids) != len(near.corpus):
        raise DataError(f"judgements need an id for each of {len(near.corpus)} documents, found {len(ids or ())}")
    _refuse_strangers(grades, ids)
    return success.labels(near.rows, grades, ids)


def _in_order(qrels: Qrels, query_ids: Sequence[str] | None, count: int) -> list[Mapping[str, float]]:
    """A mapping for each query; an empty one, which nobody judged, for a query that a mapping by id does not hold."""
    rows: list[Any] = [] if isinstance(qrels, Mapping) else list(qrels)
    if isinstance(qrels, Mapping):
        if query_ids is None:
            raise RequestError("qrels by query id say nothing about the order of the vectors: give query_ids= as well")
        if len(query_ids) != count:
            raise DataError(f"{count} queries have {len(query_ids)} query_ids: expected one each")
        rows = [qrels.get(id, {}) for id in query_ids]
        if count and not any(rows):
            raise DataError(
                f"qrels judge none of the queries: they have {name_some(list(map(str, qrels)), 3) or 'none'}, "
                f"and query_ids {name_some(list(map(str, query_ids)), 3)}"
            )
    strange = next((grades for grades in rows if not isinstance(grades, Mapping)), None)
    if strange is not None:
        raise RequestError(f"{_SHAPE}; found {type(strange).__name__} instead of document id → grade")
    return rows


def _refuse_strangers(qrels: Sequence[Mapping[str, float]], ids: Sequence[str]) -> None:
    judged = {document: None for grades in qrels for document in grades}
    if judged and not judged.keys() & set(ids):
        raise DataError(
            f"the corpus holds none of the {len(judged)} judged documents: qrels have "
            f"{name_some(list(map(str, judged)), 3)}, and corpus_ids {name_some(list(map(str, ids)), 3)}"
        )


def stages_of(near: Neighbourhood, reranked: Ints | None, judgements: JudgedBy) -> tuple[Floats, Floats] | None:
    """nDCG@10 of the first stage and of a reranker's order, float64[q] each; None without a reranker."""
    qrels, ids, query_ids = judgements
    if reranked is None:
        return None
    count = 0 if near.queries is None else len(near.queries)
    if near.queries is None or qrels is None or ids is None:
        raise RequestError("`reranked` needs `query_vectors`, `qrels` and `corpus_ids`: its order is judged by them")
    if reranked.ndim != 2 or len(reranked) != count or reranked.max(initial=-1) >= len(near.corpus):
        raise DataError(
            f"`reranked` must hold rows of the corpus [{count}, n], found {list(reranked.shape)} up to "
            f"{reranked.max(initial=-1)}"
        )
    grades = _in_order(qrels, query_ids, count)
    first = predictors.deep_rows(near.queries, near.corpus, near.similarity)[:, : reranked.shape[1]]
    return metrics.ndcg_of(first, grades, ids), metrics.ndcg_of(reranked, grades, ids)


def judged_queries(
    near: Neighbourhood,
    labels: Floats,
    background: CorpusStatistics,
    extra: Columns,
    stages: tuple[Floats, Floats] | None,
    wanted: mapping.MapRequest,
) -> tuple[JudgedQueries, Ints]:
    """The judged queries that have every predictor, and their rows."""
    columns = near.columns(background, extra)
    usable = near.parts.complete & np.isfinite(labels)
    for kind in predictors.INPUTS:
        for name in predictors.PREDICTORS[kind]:
            usable &= np.isfinite(columns[name]) if name in columns else True
    rows = np.flatnonzero(usable)
    taken = {name: column[rows] for name, column in columns.items()}
    both = (stages[0][rows], stages[1][rows]) if stages else None
    return JudgedQueries(taken, labels[rows], mapping.split(labels[rows], wanted), stages=both), rows


def flag(parts: TrustParts, detectors: Mapping[str, Detector]) -> Bools:
    """Which queries a detector that decides calls odd."""
    flagged = np.zeros(len(parts), np.bool_)
    for detector in detectors.values():
        if detector.acts:
            flagged |= detector.calls({**parts.columns, **predictors.score_columns(_cosines(parts))})
    return flagged


def thresholds(
    near: Neighbourhood, assessed: Assessment | None, fitted: Mapping[str, FittedInput]
) -> DecisionThresholds:
    """Those of the map that knows most; by what is usual on this corpus where there is none."""
    if not fitted:
        return _usual(near, assessed.reason if assessed else None)
    return list(fitted.values())[-1].map.thresholds


def _usual(near: Neighbourhood, reason: str | None) -> DecisionThresholds:
    """Nothing is answered on R_q alone, which does not show which queries fail; the lowest fall back."""
    usable = near.parts.reliability[near.parts.complete]
    if near.queries is not None and len(usable) < LEAST_QUERIES:
        count = "1 query" if len(usable) == 1 else f"{len(usable)} queries"
        few = f"only {count}: fewer than {LEAST_QUERIES} set no thresholds"
        alone = look_around(near.corpus, None, near.codec, k=near.k, seed=near.seed)
        return _usual(alone, f"{reason}; {few}" if reason else few)
    related = usable[usable > 0]
    who = f"{len(usable)} queries"
    if near.queries is None:
        who = f"{len(usable)} documents used as queries (natural queries score differently)"
    why = f"not calibrated: R_q is neither a probability nor a promise, so nothing is answered on it; {ENOUGH}; "
    if not len(related):
        return DecisionThresholds("reliability", None, 1.0, f"{why}it is 0 for all {who}")
    # An R_q of 0 says "no relation", however usual it is on this corpus: it is below the threshold.
    low = max(float(np.quantile(usable, _FALL_BACK)), float(related.min()))
    shares = f"{(usable < low).mean():.1%} of {who} fall back"
    return DecisionThresholds("reliability", None, low, f"{why}{shares}{f' ({reason})' if reason else ''}")


def detect(near: Neighbourhood, odd: Mapping[str, Array], folds: int, rows: Ints | None) -> list[list[Detection]]:
    """A detector of each kind, by all parts and by the scores alone, against the real queries (those of `rows`)."""
    if odd and near.queries is None:
        raise RequestError("odd queries are separated from real ones: `query_vectors` is missing")
    real = near.parts if rows is None else near.parts.take(rows)
    strange = {kind: near.parts_of(vectors) for kind, vectors in odd.items()}
    return [
        [
            assessment.detect(kind, parts, real, folds=folds, seed=near.seed, read=read)
            for kind, parts in strange.items()
        ]
        for read in (lambda parts: parts.features, _read_scores)
    ]


def _read_scores(parts: TrustParts) -> Floats:
    return predictors.matrix(predictors.score_columns(_cosines(parts)), SCORE_FEATURES)


def _cosines(parts: TrustParts) -> Floats:
    assert parts.cosines is not None
    return parts.cosines


def detectors(detections: Sequence[Detection], features: tuple[str, ...]) -> dict[str, Detector]:
    return {d.kind: Detector(d.map, d.threshold, acts(d), features) for d in detections if d.map}


def reference(near: Neighbourhood, names: Sequence[str]) -> dict[str, Floats]:
    """The predictors of the real queries that have all of these; empty without queries."""
    if near.queries is None:
        return {}
    columns = {**near.parts.columns, **predictors.score_columns(_cosines(near.parts))}
    usable = near.parts.complete & np.isfinite(predictors.matrix(columns, names)).all(axis=1)
    return {name: columns[name][usable] for name in names}


def norm_facts(near: Neighbourhood) -> dict[str, str]:
    """The lowest and the highest length of the corpus's vectors and of the queries'."""
    sides = {"document": near.corpus, **({} if near.queries is None else {"query": near.queries})}
    lengths = {side: geometry.norms(vectors) for side, vectors in sides.items()}
    return {f"{side}_norms": f"{norms.min():.6g} {norms.max():.6g}" for side, norms in lengths.items()}


def acts(detection: Detection) -> bool:
    """Whether a detector may decide: the whole interval of its AUROC is above 0.8."""
    return detection.auroc.interval is not None and detection.auroc.interval[0] > _ACTS


def report(
    assessed: Assessment | None,
    detections: Sequence[Detection],
    judged: JudgedQueries | None,
    fitted: Mapping[str, FittedInput],
    seed: int,
) -> dict[str, Any]:
    summary = assessment.summary(assessed) if assessed else None
    if summary is not None and judged is not None and fitted:
        summary["predictors"] = mapping.survey(judged.columns, judged.labels, seed=seed)
        summary["maps"] = mapping.report(fitted)
    return {
        "calibration": summary,
        "detectors": [
            {
                "kind": d.kind,
                "queries": d.count,
                "real_queries": d.real,
                **{key: vars(getattr(d, key)) for key in ("auroc", "by_reliability", "by_top_score")},
                "threshold": d.threshold,
                "found": d.found,
                "acts": acts(d),
                "reason": d.reason,
            }
            for d in detections
        ],
    }
