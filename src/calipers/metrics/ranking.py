"""Ranking measures of many queries at once, on ragged lists with graded relevance; higher is better for all.

Each measure gives float64[q], one value per query. Tied scores have one policy by default, `ties="expected"`: the exact
expected value over all orders of the tied documents, so that neither the order of the input nor the names of documents
change a number. `"trec_eval"` breaks ties as that program does (scores in single precision, then the higher document id
first). `"sentence-transformers"` has the conventions of its rerankers: nDCG expected, average precision by whole groups
of ties (scikit-learn's), and every other measure in the order of `np.argsort(scores)[::-1]`, in the scores' own dtype.

The ideal of a query counts every positive grade judged for it, retrieved or not. A query without documents scores 0. A
query without relevant documents has no value: NaN, or 0 with `empty_queries="zero"`.

Each sort is kept on the record. Memory beyond the record, measured: 35 bytes per retrieved document while sorting (75
if lengths differ most awkwardly), 14 kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from calipers.metrics import ranking_ties as tied
from calipers.metrics.arrays import Array, Bools, Floats, Ints, share
from calipers.metrics.ranking_ties import Gain, Order, TieGroups, TieShare

Ties = Literal["expected", "trec_eval", "sentence-transformers"]
EmptyQueries = Literal["nan", "zero"]


@dataclass(frozen=True, eq=False)
class Rankings:
    """What was retrieved for q queries, m documents in all, and what could have been.

    Documents of query i are offsets[i]:offsets[i + 1], in any order; none is allowed. `scores` stay float32 or
    float64 as given, and may be infinite but not NaN. Grades are finite and ≥ 0; `ideal_relevance` has all positive
    grades judged for the query in ideal_offsets[i]:ideal_offsets[i + 1]. A document is relevant if its grade is
    > 0, or ≥ `relevant_from` if that is given (nDCG always uses the grades). `documents` (ids) or `id_rank` (their
    places in ascending order) are needed to break ties as trec_eval does. `beyond` int64[q] are further documents of
    grade 0 that tie with the lowest score of the query: a search that cuts its results counts what it cut.
    """

    offsets: Ints
    scores: NDArray[np.floating[Any]]
    relevance: Floats
    ideal_offsets: Ints
    ideal_relevance: Floats
    judged: Bools | None = None
    documents: NDArray[np.object_] | None = None
    id_rank: Ints | None = None
    queries: tuple[str, ...] | None = None
    relevant_from: float | None = None
    empty_queries: EmptyQueries = "nan"
    beyond: Ints | None = None

    def __post_init__(self) -> None:
        for dtype, names in _DTYPES.items():
            for name in names:
                if (values := getattr(self, name)) is not None:
                    object.__setattr__(self, name, np.asarray(values, dtype=dtype))
        single = getattr(self.scores, "dtype", None) == np.float32
        object.__setattr__(self, "scores", np.asarray(self.scores, dtype=np.float32 if single else np.float64))
        _check(self)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def relevant(self) -> Ints:
        """How many relevant documents were judged for each query, retrieved or not, int64[q]."""
        return tied.count(self.ideal_offsets, self.is_relevant(self.ideal_relevance))

    @property
    def without_relevant(self) -> tuple[str, ...]:
        """Ids (or indices) of the queries that have no relevant document to be found."""
        return self._ids(self.relevant == 0)

    @property
    def forgotten(self) -> tuple[str, ...]:
        """Ids (or indices) of the queries for which nothing was retrieved; they score 0 and count."""
        return self._ids(np.diff(self.offsets) == 0)

    def is_relevant(self, grades: Floats) -> Bools:
        return grades > 0 if self.relevant_from is None else grades >= self.relevant_from

    def _ids(self, chosen: Bools) -> tuple[str, ...]:
        return tuple(str(i) if self.queries is None else self.queries[i] for i in np.flatnonzero(chosen).tolist())

    @cached_property
    def _tied(self) -> _Sorted:
        return _Sorted(tied.sort_with_ties(self.offsets, self.scores, self.beyond), self.relevance > 0)

    @cached_property
    def _by_id(self) -> _Sorted:
        return _Sorted(tied.sort_by_id(self.offsets, self.scores, self._rank_ids), self.relevance > 0)

    @cached_property
    def _by_numpy(self) -> _Sorted:
        return _Sorted(tied.sort_as_numpy(self.offsets, self.scores), self.relevance > 0)

    @cached_property
    def _ideal(self) -> _Sorted:
        best_first = tied.descending(self.ideal_offsets, self.ideal_relevance)
        return _Sorted(Order(self.ideal_offsets, best_first, None), self.ideal_relevance > 0)

    def _rank_ids(self, documents: Ints) -> Ints:
        if self.id_rank is not None:
            return self.id_rank[documents]
        if self.documents is None:
            raise ValueError('ties="trec_eval" orders tied documents by their ids: pass `documents` or `id_rank`')
        # Python orders strings by code points, which is the order of their UTF-8 bytes, as in trec_eval's strcmp.
        return np.unique(self.documents[documents], return_inverse=True)[1].astype(np.int64)


_DTYPES: dict[type, tuple[str, ...]] = {
    np.int64: ("offsets", "ideal_offsets", "id_rank", "beyond"),
    np.float64: ("relevance", "ideal_relevance"),
    np.bool_: ("judged",),
    np.object_: ("documents",),
}


def _check(rankings: Rankings) -> None:
    """Refuse what no measure could make sense of, with the ids (or indices) where it is."""
    r, m = rankings, len(rankings.scores)
    tied.check_ragged("offsets", r.offsets, m)
    tied.check_ragged("ideal_offsets", r.ideal_offsets, len(r.ideal_relevance))
    sizes = {"relevance": m, "judged": m, "documents": m, "id_rank": m, "queries": len(r), "beyond": len(r)}
    wrong = [name for name, size in sizes.items() if (x := getattr(r, name)) is not None and len(x) != size]
    if wrong or len(r.ideal_offsets) != len(r.offsets):
        raise ValueError(f"{len(r)} queries, {m} scores, but another length of {', '.join(wrong) or 'ideal_offsets'}")
    if r.relevant_from is not None and not r.relevant_from > 0:
        raise ValueError(f"relevant_from must be above 0, the grade of irrelevant documents; found {r.relevant_from}")
    if r.empty_queries not in get_args(EmptyQueries):
        raise ValueError(f"empty_queries must be nan or zero; found {r.empty_queries!r}")
    _refuse(r, np.isnan(r.scores), "has the score NaN, which has no place in a ranking")
    _refuse(r, ~(np.isfinite(r.relevance) & (r.relevance >= 0)), "has a grade that is not a finite number from 0 up")
    if odd := r._ids(tied.count(r.ideal_offsets, ~(np.isfinite(r.ideal_relevance) & (r.ideal_relevance >= 0))) > 0):
        raise ValueError(f"query {odd[0]!r}: ideal_relevance has a grade that is not a finite number from 0 up")
    if unknown := r._ids(tied.count(r.offsets, r.is_relevant(r.relevance)) > r.relevant):
        raise ValueError(f"query {unknown[0]!r}: more relevant documents were retrieved than ideal_relevance has")


def _refuse(rankings: Rankings, wrong: Bools, why: str) -> None:
    if wrong.any():
        place, more = int(np.argmax(wrong)), int(wrong.sum()) - 1
        query = rankings._ids(tied.count(rankings.offsets, wrong) > 0)[0]
        document = place if rankings.documents is None else rankings.documents[place]
        others = f" (and {more} more documents)" if more else ""
        raise ValueError(f"query {query!r}, document {str(document)!r} {why}{others}")


@dataclass(frozen=True, eq=False)
class _Sorted:
    """An order of all documents, and the groups of it with a positive grade."""

    order: Order
    positive: Bools = field(repr=False)

    @cached_property
    def groups(self) -> TieGroups:
        return tied.groups_of(self.order, self.positive)


@dataclass(frozen=True)
class Mean:
    """Mean over the `count` queries that have a value (NaN if none has); `skipped` have none."""

    value: float
    count: int
    skipped: int


def ndcg(rankings: Rankings, k: int | None = None, *, gain: Gain = "linear", ties: Ties = "expected") -> Floats:
    """Discounted gain of the first k documents, over the gain of the ideal's first k; 0 to 1, float64[q].

    The gain is the grade, or 2^grade - 1; the discount log2(place + 1). NaN only where no grade is positive.

    >>> ndcg(Rankings([0, 2], [0.9, 0.1], [0, 1], [0, 1], [1])).round(4)
    array([0.6309])
    """
    chosen = _sorted(rankings, "expected" if ties == "sentence-transformers" else ties)
    cut = _cut(rankings, k)
    gained = tied.expected_dcg(chosen.groups, rankings.relevance, cut, len(rankings), gain)
    ideal = tied.expected_dcg(rankings._ideal.groups, rankings.ideal_relevance, cut, len(rankings), gain)
    return _ratio(gained, ideal, rankings.empty_queries)


def mrr(rankings: Rankings, k: int | None = None, *, ties: Ties = "expected") -> Floats:
    """1 / place of the first relevant document, 0 if it is not among the first k; float64[q].

    >>> mrr(Rankings([0, 2], [0.5, 0.5], [0, 1], [0, 1], [1]))
    array([0.75])
    """
    return _first(rankings, k, ties, lambda position: 1 / (position + 1))


def hit(rankings: Rankings, k: int | None = None, *, ties: Ties = "expected") -> Floats:
    """1 if a relevant document is among the first k, else 0 (success@k); with ties its probability; float64[q].

    >>> hit(Rankings([0, 4], [1, 1, 1, 1], [0, 1, 0, 1], [0, 2], [1, 1]), 2).round(4)
    array([0.8333])
    """
    return _first(rankings, k, ties, lambda position: np.ones(position.shape))


def average_precision(rankings: Rankings, k: int | None = None, *, ties: Ties = "expected") -> Floats:
    """Sum of the precisions at the relevant documents among the first k, over all relevant ones judged; float64[q].

    Its mean is MAP or MAP@k, with trec_eval's denominator. sentence-transformers has no MAP@k.

    >>> average_precision(Rankings([0, 3], [3, 2, 1], [1, 0, 1], [0, 3], [1, 1, 1])).round(4)
    array([0.5556])
    """
    whole_groups = ties == "sentence-transformers"
    if whole_groups and k is not None:
        raise ValueError('ties="sentence-transformers" has no average precision at k: leave out `k` or change `ties`')
    groups = _sorted(rankings, "expected" if whole_groups else ties).groups
    relevant, queries = _relevant(rankings, groups), len(rankings)
    if whole_groups:
        precisions = tied.whole_group_precisions(groups, relevant, queries)
    else:
        precisions = tied.expected_precisions(groups, relevant, _cut(rankings, k), queries)
    return _ratio(precisions, rankings.relevant, rankings.empty_queries)


def recall(rankings: Rankings, k: int | None = None, *, ties: Ties = "expected") -> Floats:
    """Share of the relevant documents judged that are among the first k; 0 to 1, float64[q].

    >>> recall(Rankings([0, 3], [3, 2, 1], [1, 0, 1], [0, 4], [1, 1, 1, 1]), 2)
    array([0.25])
    """
    return _ratio(_hits_in_cut(rankings, _cut(rankings, k), ties), rankings.relevant, rankings.empty_queries)


def precision(rankings: Rankings, k: int, *, ties: Ties = "expected") -> Floats:
    """Relevant documents among the first k, over k (also where fewer were retrieved); 0 to 1, float64[q].

    >>> precision(Rankings([0, 3], [3, 2, 1], [1, 0, 1], [0, 2], [1, 1]), 2)
    array([0.5])
    """
    return _settled(_hits_in_cut(rankings, _cut(rankings, k), ties) / k, rankings)


def r_precision(rankings: Rankings, *, ties: Ties = "expected") -> Floats:
    """Precision at as many documents as there are relevant ones judged; 0 to 1, float64[q].

    >>> r_precision(Rankings([0, 3], [3, 2, 1], [1, 0, 1], [0, 2], [1, 1]))
    array([0.5])
    """
    return _ratio(_hits_in_cut(rankings, rankings.relevant, ties), rankings.relevant, rankings.empty_queries)


def judged(rankings: Rankings, k: int | None = None, *, ties: Ties = "expected") -> Floats:
    """Share of the first k documents (of all, if fewer) that have a judgement; NaN without documents; float64[q]. It
    says how far the others can be trusted, so queries without relevant documents count too."""
    if rankings.judged is None:
        raise ValueError("judged@k needs `judged`: of every retrieved document, whether it has a judgement")
    cut, groups = _cut(rankings, k), tied.groups_of(_sorted(rankings, ties).order, rankings.judged)
    shown = np.diff(rankings.offsets) if cut is None else np.minimum(cut, np.diff(rankings.offsets))
    everyone = groups.total(np.ones(len(groups.documents)))
    return _ratio(tied.expected_in_cut(groups, everyone, cut, len(rankings)), shown, "nan")


def tie_share(rankings: Rankings) -> TieShare:
    """How many documents and queries the tie policy can touch.

    >>> tie_share(Rankings([0, 2, 4], [1, 1, 2, 1], [1, 0, 1, 0], [0, 1, 2], [1, 1]))
    TieShare(documents=0.5, queries=0.5)
    """
    return tied.share_of_ties(rankings._tied.order)


def mean_over_queries(values: Floats) -> Mean:
    """The mean of the queries that have a value.

    >>> mean_over_queries(np.array([1.0, 0.5, np.nan]))
    Mean(value=0.75, count=2, skipped=1)
    """
    defined = values[~np.isnan(values)]
    value = float(defined.mean()) if len(defined) else float("nan")
    return Mean(value, len(defined), len(values) - len(defined))


def _sorted(rankings: Rankings, ties: Ties) -> _Sorted:
    if ties not in get_args(Ties):
        raise ValueError(f"ties must be one of {', '.join(get_args(Ties))}; found {ties!r}")
    return rankings._tied if ties == "expected" else rankings._by_id if ties == "trec_eval" else rankings._by_numpy


def _cut(rankings: Rankings, k: int | None) -> Ints | None:
    if k is None:
        return None
    if k < 1 or k != int(k):
        raise ValueError(f"the cut-off k must be a whole number from 1 up; found {k!r}")
    return np.full(len(rankings), k, dtype=np.int64)


def _relevant(rankings: Rankings, groups: TieGroups) -> Floats:
    """Relevant documents in each group, float64[g]: whole numbers."""
    return groups.total(rankings.is_relevant(rankings.relevance[groups.documents]))


def _hits_in_cut(rankings: Rankings, cut: Ints | None, ties: Ties) -> Floats:
    groups = _sorted(rankings, ties).groups
    return tied.expected_in_cut(groups, _relevant(rankings, groups), cut, len(rankings))


def _first(rankings: Rankings, k: int | None, ties: Ties, weight: Callable[[Ints], Floats]) -> Floats:
    groups = _sorted(rankings, ties).groups
    weights = tied.expected_first(groups, _relevant(rankings, groups), _cut(rankings, k), len(rankings), weight)
    return _settled(weights, rankings)


def _settled(values: Floats, rankings: Rankings) -> Floats:
    """What a query without relevant documents is given instead of a value."""
    return np.where(rankings.relevant == 0, 0.0 if rankings.empty_queries == "zero" else np.nan, values)


def _ratio(part: Floats, whole: Array, empty_queries: EmptyQueries) -> Floats:
    return np.where(whole == 0, 0.0 if empty_queries == "zero" else np.nan, share(part, whole))
