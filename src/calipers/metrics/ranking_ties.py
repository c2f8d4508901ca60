"""Ragged rankings as sorted places and groups of tied documents, for all queries at once.

The documents of query i are places offsets[i]:offsets[i + 1]. A *group* is the documents of one query that share one
score; a document whose score nobody shares is a group of one. Only groups that hold a document of interest (a relevant
one) are looked at after the sort, so what follows costs as much as there are relevant documents, not documents.

Memory: the sort needs four or five arrays of at most 2 m numbers (m documents; 1 m if all queries have equally many),
and keeps one or two of m.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from calipers.metrics.arrays import Array, Bools, Floats, Ints, slices

_CELLS = 1 << 18  # of a table of rows

Gain = Literal["linear", "exponential"]


@dataclass(frozen=True, eq=False)
class Order:
    """All documents, query by query, from the highest score to the lowest: `documents` int64[m] are indices of the
    input, `firsts` int64[g] the places where a group begins, or None where every document stands alone. `beyond`
    int64[q] are further documents, none of interest, in the last group of a query."""

    offsets: Ints
    documents: Ints
    firsts: Ints | None
    beyond: Ints | None = None


@dataclass(frozen=True, eq=False)
class TieGroups:
    """The groups that hold a document of interest, by query and then by place: `query`, `start` (documents of the query
    before the group) and `size` int64[g]; `documents` int64[p] of interest, and `group` int64[p], the group of each."""

    query: Ints
    start: Ints
    size: Ints
    documents: Ints
    group: Ints

    def total(self, values: Array) -> Floats:
        """Sums over the groups, float64[g], of a value per document of interest."""
        return _per_query(self.group, values, len(self.query))


@dataclass(frozen=True)
class TieShare:
    """Share of the documents that share their score with another one of their query, and of the queries that have
    such documents; 0 to 1, NaN where there are none at all."""

    documents: float
    queries: float


def check_ragged(name: str, offsets: Ints, length: int) -> None:
    """Refuse offsets that do not cut `length` elements into queries."""
    rises = offsets.ndim == 1 and len(offsets) > 0 and (np.diff(offsets) >= 0).all()
    if not rises or offsets[0] != 0 or offsets[-1] != length:
        raise ValueError(f"{name} must rise from 0 to {length}, one more than there are queries; found {offsets}")


def query_of(offsets: Ints, places: Ints) -> Ints:
    """The query that each place belongs to; queries without documents own none."""
    return np.searchsorted(offsets, places, side="right") - 1


def count(offsets: Ints, chosen: Bools) -> Ints:
    """How many elements of each query are chosen, int64[q].

    >>> count(np.array([0, 2, 2, 3]), np.array([True, True, False]))
    array([2, 0, 0])
    """
    return np.bincount(query_of(offsets, np.flatnonzero(chosen)), minlength=len(offsets) - 1)


def sort_with_ties(offsets: Ints, scores: Array, beyond: Ints | None = None) -> Order:
    """Highest score first; tied documents are one group, in no particular order.

    >>> order = sort_with_ties(np.array([0, 3, 3, 5]), np.array([1.0, 7, 1, 2, 3]))
    >>> order.documents[:1], order.documents[3:], order.firsts
    (array([1]), array([4, 3]), array([0, 1, 3, 4]))
    """
    documents = descending(offsets, scores)
    ordered = scores[documents]
    new = np.ones(len(documents), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    new[offsets[:-1][np.diff(offsets) > 0]] = True
    return Order(offsets, documents, None if new.all() else np.flatnonzero(new), beyond)


def sort_by_id(offsets: Ints, scores: Array, rank_ids: Callable[[Ints], Ints]) -> Order:
    """As trec_eval: highest score first, in single precision, and among equals the highest document id first.
    `rank_ids` gives the places of documents in the order of their ids; it is called for tied ones only."""
    # trec_eval reads scores as C floats, so scores that differ after the seventh digit tie.
    with np.errstate(over="ignore"):
        order = sort_with_ties(offsets, scores.astype(np.float32))
    if order.firsts is None:
        return order
    group = np.repeat(np.arange(len(order.firsts)), _sizes(order))
    tied = np.flatnonzero(np.repeat(_sizes(order) > 1, _sizes(order)))
    documents = order.documents.copy()
    documents[tied] = documents[tied][np.lexsort((-rank_ids(documents[tied]), group[tied]))]
    return Order(offsets, documents, None)


def sort_as_numpy(offsets: Ints, scores: Array) -> Order:
    """np.argsort(scores)[::-1] of every query: how ties fall is numpy's affair, and depends on the dtype. The sort is
    not stable, so only queries of exactly the same length are sorted together."""
    lengths = np.diff(offsets)
    documents = np.empty(len(scores), dtype=np.int64)
    for length in np.unique(lengths[lengths > 0]):
        places = offsets[:-1][lengths == length][:, None] + np.arange(length)
        best_first = np.argsort(scores[places], axis=1)[:, ::-1]
        documents[places] = places[:, :1] + best_first
    return Order(offsets, documents, None)


def descending(offsets: Ints, values: Array) -> Ints:
    """Indices that sort the values of every query from high to low, int64[m]; values must not be NaN."""
    lengths = np.diff(offsets)
    documents = np.empty(len(values), dtype=np.int64)
    # Padding goes last. Infinity sorts three times faster than NaN, but a score of -inf would mix with it.
    padding = np.nan if np.isneginf(values).any() else np.inf
    for rows, width in size_classes(lengths):
        starts = offsets[rows][:, None]
        places = starts + np.arange(width)
        if (lengths[rows] == width).all():
            documents[places] = starts + np.argsort(-values[places], axis=1)
            continue
        real = np.arange(width) < lengths[rows][:, None]
        table = np.full(places.shape, padding, dtype=values.dtype)
        table[real] = -values[places[real]]
        documents[places[real]] = (starts + np.argsort(table, axis=1))[real]
    return documents


def size_classes(lengths: Ints) -> Iterator[tuple[Ints, int]]:
    """Rows whose lengths are alike, with the longest: a table of them is at most twice as large as what it holds. Of
    many they come a few at a time.

    Empty rows are in no class.

    >>> [(rows.tolist(), width) for rows, width in size_classes(np.array([3, 0, 4, 9, 1]))]
    [([4], 1), ([0, 2], 4), ([3], 9)]
    """
    classes = np.where(lengths > 0, np.ceil(np.log2(np.maximum(lengths, 1))), -1)
    for number in np.unique(classes[classes >= 0]):
        rows = np.flatnonzero(classes == number)
        width = int(lengths[rows].max())
        yield from ((rows[part], width) for part in slices(len(rows), _CELLS // width))


def groups_of(order: Order, interest: Bools) -> TieGroups:
    """The groups that hold a document of interest (bool[m], by document)."""
    places = np.flatnonzero(interest[order.documents])
    if order.firsts is None:
        firsts, size, group = places, np.ones(len(places), dtype=np.int64), np.arange(len(places))
    else:
        number = np.searchsorted(order.firsts, places, side="right") - 1
        holding, group = np.unique(number, return_inverse=True)
        firsts, size = order.firsts[holding], _sizes(order)[holding]
    query = query_of(order.offsets, firsts)
    if order.beyond is not None:
        is_last = firsts + size == order.offsets[query + 1]
        size = size + np.where(is_last, order.beyond[query], 0)
    return TieGroups(query, firsts - order.offsets[query], size, order.documents[places], group)


def _sizes(order: Order) -> Ints:
    assert order.firsts is not None
    return np.diff(order.firsts, append=len(order.documents))


def share_of_ties(order: Order) -> TieShare:
    """How much of an order from `sort_with_ties` is tied."""
    documents, queries = len(order.documents), len(order.offsets) - 1
    sizes = np.ones(documents) if order.firsts is None else _sizes(order)
    firsts = np.arange(documents) if order.firsts is None else order.firsts
    touched = np.unique(query_of(order.offsets, firsts[sizes > 1]))
    return TieShare(
        documents=float(sizes[sizes > 1].sum() / documents) if documents else float("nan"),
        queries=len(touched) / queries if queries else float("nan"),
    )


def reach(groups: TieGroups, cut: Ints | None) -> Ints:
    """How many places of each group lie before the cut-off of its query (int64[q]; None is no cut-off), int64[g]."""
    return groups.size if cut is None else np.clip(cut[groups.query] - groups.start, 0, groups.size)


def expected_in_cut(groups: TieGroups, values: Floats, cut: Ints | None, queries: int) -> Floats:
    """Expected sum of the values before the cut-off, float64[q]; `values` float64[g] are the sums of the groups, each
    of which gives its share: its documents are equally likely in every place of it."""
    return _per_query(groups.query, values * (reach(groups, cut) / groups.size), queries)


def expected_dcg(groups: TieGroups, grades: Floats, cut: Ints | None, queries: int, gain: Gain) -> Floats:
    """Expected DCG, float64[q]: each place of a group has the group's mean gain; the discount is log2(place + 1)."""
    group, position = _slots(groups, cut)
    mean_gain = groups.total(_gains(grades[groups.documents], gain)) / groups.size
    return _per_query(groups.query[group], mean_gain[group] / np.log2(position + 2), queries)


def _gains(grades: Floats, gain: Gain) -> Floats:
    if gain == "linear":
        return grades
    if gain != "exponential":
        raise ValueError(f"gain must be linear or exponential; found {gain!r}")
    # Sums of such gains come near the end of float64; such grades are no levels but scores of some kind.
    if grades.max(initial=0.0) > 512:
        raise ValueError(f"the exponential gain of grade {grades.max():g} is too large: use the linear gain")
    return np.asarray(np.exp2(grades) - 1)


def expected_precisions(groups: TieGroups, relevant: Floats, cut: Ints | None, queries: int) -> Floats:
    """Expected sum of the precisions at the relevant documents before the cut-off, float64[q].

    McSherry and Najork (2008): of a group of t documents with r relevant ones and R before it, the place j = 0 … t - 1
    is relevant with probability r / t, and then R + 1 + j (r - 1) / (t - 1) relevant documents are expected up to it.
    """
    group, position = _slots(groups, cut)
    others = (relevant - 1) / np.maximum(groups.size - 1, 1)
    hits = _before(groups, relevant, queries)[group] + 1 + (position - groups.start[group]) * others[group]
    terms = (relevant / groups.size)[group] * hits / (position + 1)
    return _per_query(groups.query[group], terms, queries)


def whole_group_precisions(groups: TieGroups, relevant: Floats, queries: int) -> Floats:
    """As scikit-learn: every relevant document of a group has the precision at the end of the group, float64[q]."""
    precision = (_before(groups, relevant, queries) + relevant) / (groups.start + groups.size)
    return _per_query(groups.query, relevant * precision, queries)


def _per_query(query: Ints, terms: Floats, queries: int) -> Floats:
    """Sums of terms over queries (or over groups), float64[q]; 0 where there is no term."""
    return np.bincount(query, weights=terms, minlength=queries).astype(np.float64, copy=False)


def _slots(groups: TieGroups, cut: Ints | None) -> tuple[Ints, Ints]:
    """Every place before the cut-off that a group covers: its group and its position (from 0) in the query."""
    reached = reach(groups, cut)
    group = np.repeat(np.arange(len(reached)), reached)
    within = np.arange(len(group)) - np.repeat(np.cumsum(reached) - reached, reached)
    return group, groups.start[group] + within


def _before(groups: TieGroups, relevant: Floats, queries: int) -> Floats:
    """Relevant documents of the query before each group, float64[g]: whole numbers, so the running sum is exact."""
    per_query = _per_query(groups.query, relevant, queries)
    return np.cumsum(relevant) - relevant - (np.cumsum(per_query) - per_query)[groups.query]


def expected_first(
    groups: TieGroups, relevant: Floats, cut: Ints | None, queries: int, weight: Callable[[Ints], Floats]
) -> Floats:
    """Expected weight of the position (from 0) of the first relevant document, 0 behind the cut-off; float64[q].

    Only the first group with a relevant document matters. Of t documents, r of them relevant, the first j are all
    irrelevant with probability Π (t - r - i) / (t - i) over i < j, and then the next is relevant with r / (t - j).
    """
    holding = np.flatnonzero(relevant)
    query, places = np.unique(groups.query[holding], return_index=True)
    first = holding[places]
    start, size, hits = groups.start[first], groups.size[first], relevant[first].astype(np.int64)
    # The last place that can be the first relevant one is t - r: the relevant documents all come last.
    reached = np.minimum(reach(groups, cut)[first], size - hits + 1)
    values = np.zeros(queries)
    for rows, width in size_classes(reached):
        j = np.arange(width)
        t, r = size[rows, None], hits[rows, None]
        left = np.maximum(t - j, 1)
        missed = np.cumprod(np.maximum(left - r, 0) / left, axis=1)
        chance = r / left
        chance[:, 1:] *= missed[:, :-1]
        chance[j >= reached[rows, None]] = 0.0
        values[query[rows]] = (chance * weight(start[rows, None] + j)).sum(axis=1)
    return values
