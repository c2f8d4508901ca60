"""What may tell before anyone judged it whether a query's results are good: predictors, by what they need to know.

- scores: the K cosines alone, as a vector database returns them. The top score; the margin s₁ − s_K; the gap s₁ − s₂;
  their spread σ (σ of the top K: Pérez-Iglesias and Araujo 2010) and σ · s₁; and the sorted scores themselves.
- vectors: the query, its K neighbours and a sample of the corpus. Stability and coherence; NQC, σ over the query's mean
  cosine with the corpus (Shtok et al. 2012; one product with the corpus mean); the top score standardised by the
  query's cosines with the sample; the top score and gap with hubs discounted (CSLS: Conneau et al. 2018).
- corpus: the corpus at hand. σ of the first 50 and 100 results; how many of the first K stay when the query is noised,
  or half of the dimensions are dropped.
- texts: BM25 on the same corpus. How many results both have among the first 10 and 100; BM25's top score and gap.
- reranker: its top score, and how many of its first results are the first stage's.

Each kind of input has all that stands before it. A column is float64[q], NaN where it is not defined.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from calipers.metrics import geometry, search
from calipers.metrics.arrays import Array, Floats, Ints, Vectors, slices
from calipers.metrics.search import Hits
from calipers.metrics.trust import TrustParts

INPUTS = ("scores", "vectors", "corpus", "texts", "reranker")
PREDICTORS: Mapping[str, tuple[str, ...]] = {
    "scores": ("top_score", "margin", "gap", "spread", "spread_top"),
    "vectors": ("stability", "coherence", "nqc", "standard_top", "csls_top", "csls_gap"),
    "corpus": ("spread_50", "spread_100", "noise_overlap", "halves_overlap"),
    "texts": ("bm25_overlap_10", "bm25_overlap_100", "bm25_top", "bm25_gap"),
    "reranker": ("rerank_top", "rerank_agreement"),
}
DEPTH = 100  # results that the corpus's predictors look at
_BACKGROUND = 256  # documents in the sample
_HUB = 10  # nearest documents of the sample whose mean cosine discounts a hub
_RANKS = 10  # sorted scores that a map reads, evenly taken
_NOISE, _DRAWS = 0.5, 4  # length of the noise beside a query of length 1; how often it is drawn
_CELLS = 1 << 22

Columns = Mapping[str, Floats]


@dataclass(frozen=True, eq=False)
class CorpusStatistics:
    """What a score remembers of its corpus, all of length 1 before: the mean float32[d], and a sample float16[n, d]."""

    mean: Vectors
    sample: Array

    @classmethod
    def fit(cls, corpus: Array, *, seed: int) -> CorpusStatistics:
        rows = np.sort(geometry.sample(len(corpus), min(_BACKGROUND, len(corpus)), seed=seed + 1))
        total = sum(geometry.unit(window).sum(axis=0, dtype=np.float64) for window in geometry.windows(corpus))
        return cls(np.asarray(total / len(corpus), np.float32), geometry.unit(corpus[rows]).astype(np.float16))


def names_for(given: str) -> tuple[str, ...]:
    """The predictors of a kind of input, with those of the kinds before it.

    >>> names_for("scores")
    ('top_score', 'margin', 'gap', 'spread', 'spread_top')
    """
    return tuple(name for kind in INPUTS[: INPUTS.index(given) + 1] for name in PREDICTORS[kind])


def sorted_names(k: int) -> tuple[str, ...]:
    """The columns that hold the sorted scores.

    >>> sorted_names(3)
    ('score_1', 'score_2', 'score_3')
    """
    return tuple(f"score_{rank}" for rank in np.unique(np.linspace(1, k, min(k, _RANKS)).round().astype(int)))


def score_columns(cosines: Floats) -> dict[str, Floats]:
    """From the cosines float64[q, K] of each query's results, in any order, NaN for none."""
    ordered = -np.sort(-cosines, axis=1)  # NaN last
    count = np.isfinite(ordered).sum(axis=1)
    k = ordered.shape[1]
    top = ordered[:, 0] if k else np.full(len(ordered), np.nan)
    last = np.take_along_axis(ordered, np.maximum(count - 1, 0)[:, None], axis=1)[:, 0] if k else top
    spread = _spread(ordered)
    columns = {
        "top_score": top,
        "margin": np.where(count > 1, top - last, np.nan),
        "gap": top - ordered[:, 1] if k > 1 else np.full(len(ordered), np.nan),
        "spread": spread,
        "spread_top": spread * top,
    }
    return columns | {name: ordered[:, int(name.removeprefix("score_")) - 1] for name in sorted_names(k)}


def _spread(scores: Floats) -> Floats:
    """The standard deviation of the scores of each query, NaN for fewer than two."""
    there = np.isfinite(scores)
    count = there.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(there, scores, 0.0).sum(axis=1) / count
        squares = np.where(there, (scores - mean[:, None]) ** 2, 0.0).sum(axis=1) / count
    return np.where(count > 1, np.sqrt(squares), np.nan)


def vector_columns(
    parts: TrustParts,
    queries: Array,
    neighbours: Callable[[slice], Array],
    background: CorpusStatistics | None,
    wanted: Collection[str] | None = None,
) -> dict[str, Floats]:
    """From vectors float[q, d], those of their neighbours float[q, K, d], a few at a time, and the corpus's sample.
    Only the `wanted` ones that cost much are computed; None: all."""
    columns = {"stability": parts.stability, "coherence": parts.coherence}
    costly = ("nqc", "standard_top", "csls_top", "csls_gap")
    if background is None or not _needs(wanted, *costly):
        return columns
    unit = geometry.unit_or_zero(queries)
    assert parts.cosines is not None
    spread = _spread(parts.cosines)
    with np.errstate(invalid="ignore", divide="ignore"):
        if _needs(wanted, "nqc"):
            # a mean cosine near 0 would say nothing and divide by nothing; 0.05 is beside the noise of a mean
            columns["nqc"] = spread / np.maximum(np.abs(unit @ background.mean), 0.05)
        if _needs(wanted, "standard_top"):
            usual = unit @ background.sample.astype(np.float32).T
            columns["standard_top"] = (parts.top_score - usual.mean(axis=1)) / usual.std(axis=1)
    if _needs(wanted, "csls_top", "csls_gap"):
        columns |= _csls(parts.cosines, unit, neighbours, background)
    return columns


def _needs(wanted: Collection[str] | None, *names: str) -> bool:
    return wanted is None or any(name in wanted for name in names)


def _csls(
    cosines: Floats, queries: Vectors, neighbours: Callable[[slice], Array], background: CorpusStatistics
) -> dict[str, Floats]:
    """2 cos(q, d) − r(q) − r(d): r(q) is the mean cosine of the query with its K results, r(d) of a result with its 10
    nearest of the sample. The gap is between the first and the last result in this order."""
    sample = background.sample.astype(np.float32)
    near = min(_HUB, len(sample))
    k, d = cosines.shape[1], queries.shape[1]
    corrected = np.full(cosines.shape, np.nan)
    for rows in slices(len(queries), max(1, _CELLS // max(1, k * max(d, len(sample))))):
        others = geometry.unit_or_zero(neighbours(rows).reshape(-1, d))
        hubs = np.partition(others @ sample.T, len(sample) - near, axis=1)[:, -near:].mean(axis=1).reshape(-1, k)
        own = np.einsum("qkd,qd->qk", others.reshape(-1, k, d), queries[rows])
        corrected[rows] = 2 * own - hubs
    there = np.isfinite(cosines)
    count = there.sum(axis=1)
    top = np.where(there, corrected, -np.inf).max(axis=1, initial=-np.inf)
    last = np.where(there, corrected, np.inf).min(axis=1, initial=np.inf)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(there, cosines, 0.0).sum(axis=1) / count
        return {
            "csls_top": np.where(count > 0, top - mean, np.nan),
            "csls_gap": np.where(count > 1, top - last, np.nan),
        }


def corpus_columns(queries: Array, corpus: Array, deep: Ints, k: int, *, seed: int = 42) -> dict[str, Floats]:
    """From the first 100 results of each query, rows int64[q, 100] of the corpus, -1 for none. Overlaps are the share
    of the first K that stay first among these results."""
    noise, halves = (np.full(len(queries), np.nan) for _ in range(2))
    cosines = np.full(deep.shape, np.nan)
    d = corpus.shape[1]
    rng = np.random.default_rng(seed)
    draws = geometry.unit(rng.normal(size=(_DRAWS, d)))
    half = rng.permutation(d) < d // 2
    unit = geometry.unit_or_zero(queries)
    for rows in slices(len(queries), max(1, _CELLS // max(1, deep.shape[1] * d))):
        there = deep[rows] >= 0
        near = geometry.unit_or_zero(corpus[np.maximum(deep[rows], 0)].reshape(-1, d)).reshape(*there.shape, d)
        near *= there[:, :, None]
        own = np.where(there, np.einsum("qkd,qd->qk", near, unit[rows]), -np.inf)
        moved = [unit[rows] + _NOISE * draw for draw in draws]
        noise[rows] = _kept(own, [np.einsum("qkd,qd->qk", near, q) for q in moved], there, k)
        halves[rows] = _kept(own, [_half_cosines(near, unit[rows], chosen) for chosen in (half, ~half)], there, k)
        cosines[rows] = np.where(there, own, np.nan)
    return {
        **{f"spread_{depth}": _spread(cosines[:, :depth]) for depth in (50, 100)},
        "noise_overlap": noise,
        "halves_overlap": halves,
    }


def _half_cosines(near: Vectors, queries: Vectors, chosen: Array) -> Vectors:
    part = near[:, :, chosen]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.einsum("qkd,qd->qk", part, queries[:, chosen]) / np.sqrt(np.vecdot(part, part)))


def _kept(own: Floats, others: Sequence[Array], there: Array, k: int) -> Floats:
    """The mean share of a query's first k results that are among the first k by the other scores as well."""
    first = _first(own, there, k)
    size = np.maximum(first.sum(axis=1), 1)
    return np.asarray(np.mean([(first & _first(scores, there, k)).sum(axis=1) / size for scores in others], axis=0))


def _first(scores: Array, there: Array, k: int) -> Array:
    """Which columns are the k highest of their row, bool[q, n]."""
    order = np.argsort(-np.where(there & np.isfinite(scores), scores, -np.inf), axis=1, kind="stable")[:, :k]
    chosen = np.zeros(there.shape, np.bool_)
    np.put_along_axis(chosen, order, True, axis=1)
    return chosen & there


def text_columns(deep: Ints, lexical: Hits) -> dict[str, Floats]:
    """From the first 100 results of each query, rows int64[q, 100], and BM25's. A query without a word that the corpus
    has scores 0 throughout."""
    count = len(deep)
    rank = lexical.ranks
    rows = search_table(lexical, count)
    shared = {depth: _shared(deep[:, :depth], rows[:, :depth]) / depth for depth in (10, DEPTH)}
    best = np.zeros((count, 10))
    first = rank <= 10
    best[lexical.queries[first], rank[first] - 1] = lexical.scores[first]
    return {
        "bm25_overlap_10": shared[10],
        "bm25_overlap_100": shared[DEPTH],
        "bm25_top": best[:, 0],
        "bm25_gap": best[:, 0] - best[:, -1],
    }


def search_table(hits: Hits, queries: int, depth: int = DEPTH) -> Ints:
    """The first documents of each query, int64[q, depth], -2 for none."""
    table = np.full((queries, depth), -2)
    first = hits.ranks <= depth
    table[hits.queries[first], hits.ranks[first] - 1] = hits.documents[first]
    return table


def _shared(left: Ints, right: Ints) -> Floats:
    """How many numbers two rows have in common; each row holds a number once."""
    return np.asarray((left[:, :, None] == right[:, None, :]).sum(axis=(1, 2)), np.float64)


def reranker_columns(scores: Floats, k: int) -> dict[str, Floats]:
    """From a reranker's scores float64[q, n] of the first results, in the first stage's order, NaN for none. Agreement
    is the share of its first half of K that the first stage has in its first half."""
    there = np.isfinite(scores)
    half = max(1, k // 2)
    before = np.where(there, -np.arange(scores.shape[1]), -np.inf)
    return {
        "rerank_top": np.where(
            there.any(axis=1), np.where(there, scores, -np.inf).max(axis=1, initial=-np.inf), np.nan
        ),
        "rerank_agreement": _kept(before, [scores], there, half),
    }


def reordered(rows: Ints, scores: Floats) -> Ints:
    """Rows int64[q, n] in the order of a reranker's scores float64[q, n], the highest first; ties stay, NaN is last.

    >>> reordered(np.array([[7, 8, 9]]), np.array([[0.1, np.nan, 0.5]]))
    array([[9, 7, 8]])
    """
    order = np.argsort(-np.where(np.isfinite(scores), scores, -np.inf), axis=1, kind="stable")
    return np.take_along_axis(rows, order, axis=1)


def matrix(columns: Columns, names: Sequence[str]) -> Floats:
    """float64[q, f]."""
    return np.stack([columns[name] for name in names], axis=1) if names else np.empty((0, 0))


def deep_rows(queries: Array, corpus: Array, similarity: str) -> Ints:
    """The first 100 results, int64[q, 100], -1 for none or for a query whose vector is zero."""
    rows = np.full((len(queries), DEPTH), -1)
    alive = np.flatnonzero(geometry.norms(queries) > 0)
    if len(alive):
        rows[alive] = search.nearest_rows(queries[alive], corpus, DEPTH, similarity=similarity)
    return rows
