"""What one query shows before anyone judged its results: the parts of a trust score.

- Stability, G_q = cos(f(x), Q(f(x))): how much of the query's direction a codec keeps (metrics.codecs).
- Coherence, I_q: the mean cosine between any two of its K neighbours. For unit vectors that is
  (|Σx|² − K) / (K (K − 1)), so no pair is ever looked at.
- Reliability, R_q: the harmonic mean of the two.
- Top score: the highest cosine of the query with a neighbour. Margin: the highest less the lowest among the K.

NaN: stability of a query without a direction (zero, NaN); coherence and margin of fewer than two neighbours, or with a
neighbour without a direction; reliability where a part is NaN. A part that is 0 or below, which says "no relation",
makes the reliability 0. None of these is a probability; see metrics.calibration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from calipers.metrics import codecs, ranking
from calipers.metrics.arrays import Array, Bools, Floats, Ints, slices
from calipers.metrics.codecs import Codec
from calipers.metrics.geometry import in_reach

CONFIDENT = 0.8  # R_q above it is high confidence, by the method; below, the query had better fall back
K = 10
FEATURES = ("stability", "coherence", "top_score", "margin")
PARTS = ("stability", "coherence", "reliability", "top_score", "margin")
_CELLS = 1 << 19  # numbers of neighbours in hand at a time: 4 MB in float64, which stay in the cache


@dataclass(frozen=True, eq=False)
class TrustParts:
    """float64[q] each, one entry per query; and the cosines of each query with its K neighbours, float64[q, K], NaN for
    none."""

    stability: Floats
    coherence: Floats
    reliability: Floats
    top_score: Floats
    margin: Floats
    cosines: Floats | None = None

    def __len__(self) -> int:
        return len(self.stability)

    @property
    def features(self) -> Floats:
        """float64[q, 4]: stability, coherence, top score, margin."""
        return np.stack([getattr(self, name) for name in FEATURES], axis=1)

    @property
    def complete(self) -> Bools:
        """bool[q]: which queries have all parts."""
        return np.asarray(np.isfinite(self.features).all(axis=1))

    @property
    def columns(self) -> dict[str, Floats]:
        """What is one number for each query, by name."""
        return {name: getattr(self, name) for name in PARTS}

    def take(self, rows: Array) -> TrustParts:
        cosines = None if self.cosines is None else self.cosines[rows]
        return TrustParts(**{name: values[rows] for name, values in self.columns.items()}, cosines=cosines)


def parts(queries: Array, neighbours: Array, codec: Codec, *, present: Bools | None = None) -> TrustParts:
    """The parts of each query from its vector float[q, d] and those of its neighbours float[q, K, d], of any length and
    in any order. `present` bool[q, K] is False where a query has fewer neighbours than K."""

    def gather(rows: slice) -> tuple[Array, Bools | None]:
        return neighbours[rows], None if present is None else present[rows]

    return _parts(queries, codec, neighbours.shape[1], gather)


def parts_in(queries: Array, corpus: Array, rows: Ints, codec: Codec) -> TrustParts:
    """The same where neighbours are rows of a corpus, int64[q, K], -1 for none; they are gathered a few at a time."""

    def gather(part: slice) -> tuple[Array, Bools | None]:
        present = rows[part] >= 0
        return corpus[np.maximum(rows[part], 0)], None if present.all() else present

    return _parts(queries, codec, rows.shape[1], gather)


def coherence(neighbours: Array, present: Bools | None = None) -> Floats:
    """I_q: the mean cosine over the pairs of neighbours float[q, K, d]; float64[q] from -1/(K - 1) to 1.

    >>> coherence(np.array([[[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]]])).round(6)  # cosines 0, 1, 0
    array([0.333333])
    """
    values = np.empty(len(neighbours))
    for rows in slices(len(neighbours), _step(*neighbours.shape[1:])):
        part = neighbours[rows]
        any_query = np.ones((len(part), part.shape[2]))
        values[rows] = _neighbourhood(any_query, part, None if present is None else present[rows])[0]
    return values


def reliability(stability: Floats, coherence: Floats) -> Floats:
    """R_q = 2 G I / (G + I); 0 where a part is 0 or below, NaN where one is NaN.

    >>> reliability(np.array([1.0, 0.9, np.nan]), np.array([0.5, -0.1, 0.5])).round(6)
    array([0.666667, 0.      ,      nan])
    """
    g, i = np.maximum(stability, 0.0), np.maximum(coherence, 0.0)
    both = g + i
    return np.asarray(2 * g * i / np.where(both == 0, 1.0, both))


def success(
    rows: Ints, qrels: Sequence[Mapping[str, float]], ids: Sequence[str], *, relevant_from: float = 1
) -> Floats:
    """1 where a relevant document is among a query's rows int64[q, K], 0 where none is, NaN where nobody judged.

    A document without a judgement counts as not relevant. A judged query fails if the corpus holds none of its relevant
    documents: that is what its user sees.

    >>> success(np.array([[0, 1], [0, 1], [0, 1]]), [{"b": 2}, {"c": 1}, {}], ["a", "b", "c"])
    array([ 1.,  0., nan])
    """
    labels = np.full(len(rows), np.nan)
    for query, (results, grades) in enumerate(zip(rows.tolist(), qrels, strict=True)):
        if grades:
            labels[query] = any(row >= 0 and grades.get(ids[row], 0.0) >= relevant_from for row in results)
    return labels


def first_success(
    rows: Ints, qrels: Sequence[Mapping[str, float]], ids: Sequence[str], *, relevant_from: float = 1
) -> Floats:
    """As `success`, of the first result alone."""
    return success(rows[:, :1], qrels, ids, relevant_from=relevant_from)


def graded_success(rows: Ints, qrels: Sequence[Mapping[str, float]], ids: Sequence[str], *, bar: float) -> Floats:
    """1 where nDCG@10 of a query's rows int64[q, K], best first, is at least the bar; NaN where nobody judged. A query
    without a relevant document fails.

    >>> graded_success(np.array([[0, 1], [0, 1]]), [{"a": 1, "b": 2}, {"b": 1}], ["a", "b"], bar=0.8)
    array([1., 0.])
    """
    judged = [row for row, grades in enumerate(qrels) if grades]
    labels = np.full(len(rows), np.nan)
    labels[judged] = ndcg_of(rows[judged], [qrels[row] for row in judged], ids) >= bar
    return labels


def ndcg_of(rows: Ints, qrels: Sequence[Mapping[str, float]], ids: Sequence[str], k: int = 10) -> Floats:
    """nDCG@k of results in their order, rows int64[q, n] of `ids`, -1 for none; 0 without a relevant document."""
    best = [sorted((grade for grade in grades.values() if grade > 0), reverse=True) for grades in qrels]
    grades = [
        [max(0.0, judged.get(ids[row], 0.0)) for row in results if row >= 0]
        for results, judged in zip(rows.tolist(), qrels, strict=True)
    ]
    places = [float(-place) for results in grades for place in range(len(results))]
    rankings = ranking.Rankings(
        offsets=np.cumsum([0, *map(len, grades)]),
        scores=np.array(places),
        relevance=np.array([grade for results in grades for grade in results]),
        ideal_offsets=np.cumsum([0, *map(len, best)]),
        ideal_relevance=np.array([grade for ideal in best for grade in ideal]),
        empty_queries="zero",
    )
    return ranking.ndcg(rankings, k)


def _parts(queries: Array, codec: Codec, k: int, gather: Callable[[slice], tuple[Array, Bools | None]]) -> TrustParts:
    stability = codecs.stability(queries, codec)
    coherence, cosines = np.empty(len(queries)), np.empty((len(queries), k))
    absent = np.zeros(cosines.shape, np.bool_)
    step = min(len(queries), _step(k, queries.shape[1]))
    room = np.empty((step, k, queries.shape[1]))  # fresh pages for every slice would cost a tenth
    for rows in slices(len(queries), max(1, step)):
        near, present = gather(rows)
        coherence[rows], cosines[rows] = _neighbourhood(queries[rows], near, present, room)
        if present is not None:
            absent[rows] = ~present
    top_score, margin = _extremes(cosines, None if not absent.any() else ~absent)
    return TrustParts(stability, coherence, reliability(stability, coherence), top_score, margin, cosines)


def _step(k: int, d: int) -> int:
    return max(1, _CELLS // max(1, k * d))


def _wide(vectors: Array, room: Floats | None = None) -> Floats:
    """In float64, which holds the square of every float32, in the first rows of `room`; larger types are scaled."""
    if vectors.dtype.itemsize > 4:
        return in_reach(vectors)[0]
    wide = np.empty(vectors.shape) if room is None else room[: len(vectors)]
    np.copyto(wide, vectors)
    return wide


def _neighbourhood(
    queries: Array, neighbours: Array, present: Bools | None, room: Floats | None = None
) -> tuple[Floats, Floats]:
    """Coherence float64[q], and the cosines of query and neighbours float64[q, K], NaN for those not present."""
    queries, x = _wide(queries), _wide(neighbours, room)
    count: Ints = np.full(len(x), x.shape[1])
    if present is not None:
        x, count = np.where(present[:, :, None], x, 0.0), present.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        weights = 1.0 / np.sqrt(np.vecdot(x, x))
        cosines = np.vecdot(x, queries[:, None]) * weights / np.sqrt(np.vecdot(queries, queries))[:, None]
        if present is not None:
            weights, cosines = np.where(present, weights, 0.0), np.where(present, cosines, np.nan)
        total = np.matmul(weights[:, None, :], x)[:, 0]
        pairs = (np.vecdot(total, total) - count) / np.where(count > 1, count * (count - 1), np.nan)
        together = np.minimum(np.maximum(pairs, -1.0 / np.maximum(count - 1, 1)), 1.0)
        np.minimum(np.maximum(cosines, -1.0, out=cosines), 1.0, out=cosines)
    return together, cosines


def _extremes(cosines: Floats, present: Bools | None) -> tuple[Floats, Floats]:
    """The highest cosine of each query, and how far the lowest lies below it."""
    if present is None and cosines.shape[1] > 1:
        top = cosines.max(axis=1)
        return top, top - cosines.min(axis=1)
    there = np.ones(cosines.shape, np.bool_) if present is None else present
    count = there.sum(axis=1)
    highest = np.where(there, cosines, -np.inf).max(axis=1, initial=-np.inf)
    lowest = np.where(there, cosines, np.inf).min(axis=1, initial=np.inf)
    top = np.where(count > 0, highest, np.nan)
    return top, np.where(count > 1, top - lowest, np.nan)
