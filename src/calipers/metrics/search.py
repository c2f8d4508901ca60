"""Exact search, in an amount of memory that a window bounds. float32 proposes, float64 decides.

`exact_search` takes any vectors and ranks by a measure of `measures`; the corpus streams by. Ties are in the order of
the documents (the earlier one first); those that a cut leaves out are counted, and neither the size of a window nor the
number of threads changes a result.

`nearest` takes unit vectors in hand and ranks by distance. Its work is bounded however many vectors are equal, as they
are in a collapsed space; in return float32 chooses among more than 13 rows that tie with the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

import numpy as np

from calipers.metrics.arrays import Array, Bools, Floats, Ints, Vectors, slices
from calipers.metrics.geometry import unit
from calipers.metrics.magnitudes import common_power, single
from calipers.metrics.measures import INNER_PRODUCT, MEASURES, Measure, Proposals, rounding
from calipers.metrics.products import largest_products
from calipers.metrics.search_timing import exact_part
from calipers.metrics.threads import on_threads, permitted_threads

WINDOW = 50_000  # documents whose vectors are in hand at a time, in `exact_search`
_VIEWED = 250_000  # of a table that is searched as it lies: a view takes no memory, and fewer windows mean fewer scores
_PROPOSALS = 28  # candidates beyond k, so that those that differ by rounding from the last one are among them
_RESULTS = 1 << 17  # of queries that are searched together, or of one query
_CELLS = 1 << 22  # numbers of an intermediate array: 16 MB in float32, 32 MB in float64

_NEAREST_WINDOW = 32_768  # documents whose vectors are in hand: 50 MB at 384 dimensions
_QUERIES = 16_384  # queries at a time
_NEAREST_PROPOSALS = 13  # beyond k, among which rounding cannot hide the right ones
_NEAREST_CELLS = 1 << 18  # numbers of an intermediate array: 2 MB in float64, which the caches hold
_UNEVEN = 4  # cells of a table for each result: beyond it results are sorted without one
_TABLE = 1 << 20  # cells of one at most: 8 MB in float64
_NO_ROW = np.iinfo(np.int64).max  # behind every document


@dataclass(frozen=True, eq=False)
class Hits:
    """What a search found: the results of query i are offsets[i]:offsets[i + 1], best first; `documents` int64[n] are
    rows of the corpus, `scores` float64[n] fall within a query. `beyond` int64[q] are the documents that tie with the
    last result of a query and were left out when its results were cut; None is none."""

    offsets: Ints
    documents: Ints
    scores: Floats
    beyond: Ints | None = None

    @property
    def queries(self) -> Ints:
        """The query of each result, int64[n]."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    @property
    def ranks(self) -> Ints:
        """1 for the best result of its query, int64[n].

        >>> Hits(np.array([0, 2, 2, 3]), np.array([4, 1, 0]), np.array([2.0, 1.0, 5.0])).ranks
        array([1, 2, 1])
        """
        ranks = np.arange(1, len(self.documents) + 1)
        ranks -= np.repeat(self.offsets[:-1], np.diff(self.offsets))
        return ranks

    @property
    def left_out(self) -> Ints:
        """`beyond`, zeros for None."""
        return np.zeros(len(self.offsets) - 1, np.int64) if self.beyond is None else self.beyond

    def take(self, chosen: Bools, beyond: Ints | None = None) -> Hits:
        """The chosen results, bool[n]."""
        if chosen.all():
            return replace(self, beyond=beyond)
        offsets = np.concatenate([[0], np.cumsum(chosen)])[self.offsets]
        return Hits(offsets, self.documents[chosen], self.scores[chosen], beyond)


@dataclass(frozen=True, eq=False)
class Wanted:
    """Pairs of a query and a document that a cut through a tie must not lose: those that are judged. With them, and
    the number of the others (`Hits.beyond`), expected values over the orders of a tie are exact."""

    query: Ints
    document: Ints

    def holds(self, query: Ints, document: Ints) -> Bools:
        """Which of these pairs are wanted, bool[n]."""
        if not len(self.query) or not len(query):
            return np.zeros(len(query), np.bool_)
        width = int(max(self.document.max(), document.max())) + 1
        return np.isin(query * width + document, self.query * width + self.document)

    def of(self, query: int) -> Wanted:
        """Those of one query, as the pairs of a search for it alone."""
        documents = self.document[self.query == query]
        return Wanted(np.zeros(len(documents), np.int64), documents)

    def within(self, part: slice) -> Wanted:
        """Those of consecutive queries, as the pairs of a search for these."""
        mine = (self.query >= part.start) & (self.query < part.stop)
        return Wanted(self.query[mine] - part.start, self.document[mine])

    def among(self, queries: Ints, documents: Ints) -> Wanted:
        """The same pairs where only these queries and documents, in ascending order, are searched."""
        kept = np.isin(self.query, queries) & np.isin(self.document, documents)
        return Wanted(np.searchsorted(queries, self.query[kept]), np.searchsorted(documents, self.document[kept]))


NOTHING_WANTED = Wanted(np.empty(0, np.int64), np.empty(0, np.int64))
NO_HITS = Hits(np.zeros(2, np.int64), np.empty(0, np.int64), np.empty(0))  # of one query


def sort_hits(query: Ints, document: Ints, score: Floats, *, queries: int) -> Hits:
    """Loose results to Hits: best first, among equals the earlier document."""
    counts = np.bincount(query, minlength=queries)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    width = int(counts.max(initial=0))
    if queries * width > min(_TABLE, _UNEVEN * len(query)) or np.isnan(score).any():
        order = np.lexsort((document, -score, query))
        return Hits(offsets, document[order], score[order])
    # Queries with about as many results each: rows of a table, the more in order the faster they are sorted.
    together = np.argsort(query, kind="stable")
    there = np.arange(width) < counts[:, None]
    falling, rows = np.full((queries, width), np.inf), np.full((queries, width), _NO_ROW)
    falling[there], rows[there] = -score[together], document[together]
    places = np.argsort(falling, axis=1, kind="stable")
    hits = _from_table(falling, rows, places, there, offsets)
    tied = np.flatnonzero(hits.scores[1:] == hits.scores[:-1])
    tied = tied[hits.documents[tied + 1] < hits.documents[tied]]
    if not np.isin(tied + 1, offsets).all():  # within a query
        hits = _from_table(falling, rows, np.lexsort((rows, falling), axis=1), there, offsets)
    return hits


def _from_table(falling: Floats, rows: Ints, places: Ints, there: Bools, offsets: Ints) -> Hits:
    documents = np.take_along_axis(rows, places, axis=1)[there]
    return Hits(offsets, documents, -np.take_along_axis(falling, places, axis=1)[there])


def cut_hits(hits: Hits, k: int, wanted: Wanted = NOTHING_WANTED) -> Hits:
    """The first k results of each query, then the wanted ones that tie with the k-th; the others that do are counted.

    >>> hits = Hits(np.array([0, 4]), np.array([7, 1, 2, 3]), np.array([9.0, 5.0, 5.0, 5.0]))
    >>> cut = cut_hits(hits, 2, Wanted(np.array([0]), np.array([3])))
    >>> cut.documents, cut.beyond
    (array([7, 1, 3]), array([1]))
    """
    last = last_scores(hits, k)
    if np.diff(hits.offsets).max(initial=0) <= k:
        return replace(hits, beyond=np.where(last <= _lowest(hits), hits.left_out, 0))
    query, ranks = hits.queries, hits.ranks
    tied = (ranks > k) & (hits.scores == last[query])
    kept = ranks <= k
    kept[tied] = wanted.holds(query[tied], hits.documents[tied])
    # Those that an earlier cut left out tie with the lowest score.
    still_tied = last <= np.minimum.reduceat(np.append(hits.scores, np.inf), hits.offsets[:-1])
    beyond = np.bincount(query[tied & ~kept], minlength=len(last)) + np.where(still_tied, hits.left_out, 0)
    return hits.take(kept, beyond)


def _lowest(hits: Hits) -> Floats:
    """The score of the last result of each query, inf where there is none, float64[q]."""
    lowest = np.full(len(hits.offsets) - 1, np.inf)
    filled = np.diff(hits.offsets) > 0
    lowest[filled] = hits.scores[hits.offsets[1:][filled] - 1]
    return lowest


def spread_hits(hits: Hits, queries_of: Ints, documents_of: Ints, *, queries: int) -> Hits:
    """A search of some queries among some documents, both in ascending order, as one of all: the other queries have no
    result.

    >>> spread_hits(Hits(np.array([0, 1]), np.array([1]), np.array([0.5])), np.array([1]), np.array([4, 7]), queries=2)
    Hits(offsets=array([0, 0, 1]), documents=array([7]), scores=array([0.5]), beyond=array([0, 0]))
    """
    beyond = np.zeros(queries, np.int64)
    beyond[queries_of] = hits.left_out
    if len(queries_of) == queries and np.array_equal(documents_of, np.arange(len(documents_of))):
        return replace(hits, beyond=beyond)
    rows, documents = queries_of[hits.queries], documents_of[hits.documents]
    return replace(sort_hits(rows, documents, hits.scores, queries=queries), beyond=beyond)


def last_scores(hits: Hits, k: int) -> Floats:
    """The score of the k-th result of each query, -inf where there are fewer, float64[q]."""
    full = np.diff(hits.offsets) >= k
    last = np.full(len(full), -np.inf)
    last[full] = hits.scores[hits.offsets[:-1][full] + k - 1]
    return last


def exact_search(
    queries: Vectors,
    windows: Iterable[Array],
    k: int,
    wanted: Wanted = NOTHING_WANTED,
    measure: Measure = INNER_PRODUCT,
    first: int = 0,
) -> Hits:
    """The k documents with the highest inner product (or another measure) for each query, best first, and those wanted
    that tie with the last one; further documents that do are counted.

    queries float32[q, d]; windows float32[n, d], any number of them, together the corpus in its order, or a range of it
    that begins with the row `first` (`merge_hits` joins the hits of several); all finite.
    Memory: one window (none, where it is a view of a mapped file), q × k results of 16 bytes, twice at the end, the
    wanted pairs, and about 200 MB, however many documents tie.

    >>> exact_search(np.eye(2, dtype=np.float32), [np.eye(2), np.ones((2, 2))], 3).documents
    array([0, 2, 3, 1, 2, 3])
    """
    queries = np.ascontiguousarray(queries, dtype=np.float32)
    threads, seen = permitted_threads(), first
    groups = [_Group(queries[rows], wanted.within(rows), threads) for rows in slices(len(queries), _RESULTS // k)]
    for vectors in windows:
        with exact_part(len(queries), *vectors.shape):
            window = np.ascontiguousarray(vectors, dtype=np.float32)
            for group in groups if len(window) else ():
                group.search(window, seen, k, measure)
        seen += len(window)
    return stack_hits([part.best for group in groups for part in group.parts])


class _Group:
    """Queries that are searched together, a part of them on each thread."""

    def __init__(self, queries: Vectors, wanted: Wanted, threads: int) -> None:
        self.queries, self.threads = queries, threads
        self.parts = [
            _Part(part, _join([], len(queries[part])), wanted.within(part))
            for part in slices(len(queries), -(-len(queries) // threads))
        ]

    def search(self, window: Vectors, first: int, k: int, measure: Measure) -> None:
        """The best results so far with those of a window."""
        last = np.concatenate([last_scores(part.best, k) for part in self.parts])
        above = _look_through(self.queries, window, k, last, measure)
        self.parts = on_threads(partial(_decide, above, self.queries, window, first, k), self.parts, self.threads)


def windows_of(vectors: Array, power: int = 0) -> Iterator[Vectors]:
    """The rows of a table in their order, divided by a power of two, float32: as views where they lie so already."""
    as_it_lies = vectors.dtype == np.float32 and vectors.flags.c_contiguous
    return (single(vectors[part], power) for part in slices(len(vectors), _VIEWED if as_it_lies else WINDOW))


@dataclass(frozen=True, eq=False)
class _Part:
    """Some of the queries, and what was found for them: a thread decides on them."""

    rows: slice
    best: Hits
    wanted: Wanted


@dataclass(frozen=True, eq=False)
class _Above:
    """The proposals of a window, and the score from which on a document may be among the k best or tie with the last of
    them, float64[q]."""

    measure: Measure
    proposals: Proposals
    floor: Floats

    def candidates(self, part: slice) -> Iterator[tuple[Ints, Ints]]:
        """Every (query of the part, document of the window) above the floor; the pairs of a query are together."""
        floor, window = self.floor[part, None], self.proposals.window
        near = self.proposals.scores[part] >= floor
        crowded = near[:, -1] & (near.shape[1] < len(window))  # there may be more that are as good as the last proposal
        near[crowded] = False
        query, place = np.nonzero(near)
        yield query, self.proposals.documents[part][query, place].astype(np.int64)
        rows = np.flatnonzero(crowded)  # queries at whose cut many documents tie: all documents above the floor
        for few in slices(len(rows), _CELLS // permitted_threads() // len(window)):
            scores = self.measure.score_all(self.proposals.queries[part][rows[few]], window)
            place, above = np.nonzero(scores >= floor[rows[few]])
            yield rows[few][place], above


def _look_through(queries: Vectors, window: Vectors, k: int, last: Floats, measure: Measure) -> _Above:
    """`last` float64[q] is the k-th best score of earlier windows."""
    proposals = measure.propose(queries, window, last, min(k + _PROPOSALS, len(window)))
    reached = np.maximum(proposals.last, proposals.scores[:, k - 1]) if len(window) >= k else proposals.last
    return _Above(measure, proposals, reached - proposals.slack)


def _decide(above: _Above, queries: Vectors, window: Vectors, first: int, k: int, part: _Part) -> _Part:
    """The best results of a part with those of a window, whose scores float64 gives."""
    mine, pieces = queries[part.rows], [part.best]
    for query, document in above.candidates(part.rows):
        score = above.measure.exact(mine, window, query, document)
        if len(pieces) == 1:  # the proposals, few of each query: sorted and cut with the earlier ones
            counts = np.bincount(query, minlength=len(mine))
            pieces.append(Hits(np.concatenate([[0], np.cumsum(counts)]), document + first, score))
        else:
            hits = sort_hits(query, document + first, score, queries=len(mine))
            pieces.append(cut_hits(hits, k, part.wanted))
    return replace(part, best=_merge_hits(pieces, k, part.wanted))


def merge_hits(parts: Iterable[Hits], k: int, wanted: Wanted = NOTHING_WANTED) -> Hits:
    """Searches of the same queries in ranges of a corpus, in any order, as one search of all of it: the same bits.

    >>> first, second = (exact_search(np.eye(2), [vectors], 1, first=i) for i, vectors in enumerate(np.eye(2)[:, None]))
    >>> merge_hits([first, second], 1).documents
    array([0, 1])
    """
    return reduce(lambda best, part: _merge_hits([best, part], k, wanted), parts)


def stack_hits(pieces: Sequence[Hits]) -> Hits:
    """Searches of some queries each, one after the other, as one search of all."""
    sizes = np.concatenate([[0], *(np.diff(piece.offsets) for piece in pieces)])
    return Hits(
        np.cumsum(sizes, dtype=np.int64),
        np.concatenate([np.empty(0, np.int64), *(piece.documents for piece in pieces)]),
        np.concatenate([np.empty(0), *(piece.scores for piece in pieces)]),
        np.concatenate([np.empty(0, np.int64), *(piece.left_out for piece in pieces)]),
    )


def _join(pieces: Sequence[Hits], queries: int) -> Hits:
    """Pieces of which each has all results of its queries as one."""
    none = np.empty(0, np.int64)
    hits = sort_hits(
        np.concatenate([none, *(piece.queries for piece in pieces)]),
        np.concatenate([none, *(piece.documents for piece in pieces)]),
        np.concatenate([np.empty(0), *(piece.scores for piece in pieces)]),
        queries=queries,
    )
    return replace(hits, beyond=sum((piece.left_out for piece in pieces), np.zeros(queries, np.int64)))


def _merge_hits(parts: Sequence[Hits], k: int, wanted: Wanted) -> Hits:
    """The best of all, cut again. What one has left out still ties where its own cut is the cut of all."""
    both = cut_hits(replace(_join(parts, len(parts[0].offsets) - 1), beyond=None), k, wanted)
    last = last_scores(both, k)
    left_out = (np.where(last_scores(part, k) == last, part.beyond, 0) for part in parts if part.beyond is not None)
    return replace(both, beyond=sum(left_out, both.left_out))


def nearest(
    queries: Array, vectors: Array, k: int, *, exclude: Ints | None = None, allowed: Bools | None = None
) -> tuple[Floats, Ints]:
    """The k nearest rows of `vectors` for each query, by the distance of unit vectors: float64[m, k] and int64[m, k],
    nearest first, among equals the earlier row; inf and -1 where there are no more.

    `exclude` int64[m] are rows that the queries must not find: their own, where they are among `vectors`.
    `allowed` bool[n] marks the rows that may be found. Memory: about 250 MB, whatever the sizes, plus the results.
    Distances are right to 1e-12; where more than 13 rows lie within rounding (1e-7 in the cosine) of the k-th, those
    that float32 puts first are taken.

    >>> nearest(np.eye(2), np.array([[1.0, 0.0], [0.6, 0.8]]), 1)[1].tolist()
    [[0], [1]]
    """
    return _by_parts(queries.__getitem__, len(queries), vectors, k, exclude, allowed)


def nearest_rows(queries: Array, vectors: Array, k: int, *, similarity: str, exclude: Ints | None = None) -> Ints:
    """The rows of the k best vectors by a measure of `measures.MEASURES` for each query, int64[m, k], best first; -1
    where there are no more. `exclude` is that of `nearest`, which finds them by the cosine.

    >>> nearest_rows(np.eye(2), np.array([[1.0, 0.0], [9.0, 2.0]]), 1, similarity="dot").tolist()
    [[1], [1]]
    """
    if similarity == "cosine":
        return nearest(queries, vectors, k, exclude=exclude)[1]
    power = common_power(vectors) or common_power(queries)
    wide = k + (exclude is not None)
    hits = exact_search(single(queries, power), windows_of(vectors, power), wide, measure=MEASURES[similarity])
    if exclude is not None:
        hits = hits.take(hits.documents != exclude[hits.queries])
    return first_rows(hits, k)


def first_rows(hits: Hits, k: int) -> Ints:
    """The first k results of each query as a table int64[q, k], -1 where there are no more.

    >>> first_rows(Hits(np.array([0, 2, 2]), np.array([4, 1]), np.array([2.0, 1.0])), 2).tolist()
    [[4, 1], [-1, -1]]
    """
    rows = np.full((len(hits.offsets) - 1, k), -1, np.int64)
    first = hits.ranks <= k
    rows[hits.queries[first], hits.ranks[first] - 1] = hits.documents[first]
    return rows


def nearest_own(vectors: Array, rows: Ints, k: int, *, allowed: Bools | None = None) -> tuple[Floats, Ints]:
    """The same for rows of `vectors` themselves, which are read part by part."""
    return _by_parts(lambda part: vectors[rows[part]], len(rows), vectors, k, rows, allowed)


def _by_parts(
    queries: Callable[[slice], Array], size: int, vectors: Array, k: int, exclude: Ints | None, allowed: Bools | None
) -> tuple[Floats, Ints]:
    distances, nearest_rows = np.empty((size, k)), np.empty((size, k), np.int64)
    for part in slices(size, _QUERIES):
        rows, searched = unit(queries(part)), len(vectors) if allowed is None else int(allowed.sum())
        with exact_part(len(rows), searched, rows.shape[1]):
            proposals = _propose(rows, vectors, k, None if exclude is None else exclude[part], allowed)
            distances[part], nearest_rows[part] = settle_nearest(rows, vectors, proposals, k)
    return distances, nearest_rows


def _propose(queries: Vectors, vectors: Array, k: int, exclude: Ints | None, allowed: Bools | None) -> Ints:
    """Rows that may be among the k nearest, for all that float32 can tell: int64[m, k and more], -1 for none."""
    best_of = k + (exclude is not None)
    wide = best_of + _NEAREST_PROPOSALS
    best = np.full((len(queries), wide), -np.inf, np.float32)
    proposals = np.full((len(queries), wide), -1, np.int64)
    size = min(_NEAREST_WINDOW, len(vectors))
    buffer = np.empty((size, queries.shape[1]), np.float32)  # one for all: fresh pages cost time
    for start in range(0, len(vectors), _NEAREST_WINDOW):
        rows = np.arange(start, min(start + _NEAREST_WINDOW, len(vectors)))
        kept = rows if allowed is None else rows[allowed[rows]]
        window = unit(vectors[start : start + len(rows)] if len(kept) == len(rows) else vectors[kept], buffer)
        if len(kept):
            _merge(queries, window, kept, best, proposals)
    last = np.partition(best, wide - best_of, axis=1)[:, wide - best_of]
    possible = best >= last[:, None] - np.float32(rounding(queries.shape[1]))
    if exclude is not None:
        possible &= proposals != exclude[:, None]
    return np.where(possible, proposals, -1)


def _merge(queries: Vectors, window: Vectors, rows: Ints, best: Vectors, proposals: Ints) -> None:
    """Put the best rows of the window among the earlier proposals, in place; of equal ones the earlier rows stay."""
    wide = best.shape[1]
    scores, places, _ = largest_products(queries, window, min(wide, len(rows)), above=best[:, -1].copy())

    def merge(part: slice) -> None:
        both = np.concatenate([best[part], scores[part]], axis=1)
        rows_of_both = np.concatenate([proposals[part], np.where(places[part] < 0, -1, rows[places[part]])], axis=1)
        kept = np.argsort(-both, axis=1, kind="stable")[:, :wide]  # both are in order, and rows of the window are later
        best[part] = np.take_along_axis(both, kept, axis=1)
        proposals[part] = np.take_along_axis(rows_of_both, kept, axis=1)

    _in_parts(merge, len(queries))


def settle_nearest(queries: Vectors, vectors: Array, proposals: Ints, k: int) -> tuple[Floats, Ints]:
    """Distances in float64 of the proposed rows, and the k nearest of them."""
    distances, rows = np.empty((len(queries), k)), np.empty((len(queries), k), np.int64)

    def settle(part: slice) -> None:
        distances[part], rows[part] = _nearest_proposals(queries[part], vectors, proposals[part], k)

    _in_parts(settle, len(queries))
    return distances, rows


def _in_parts(work: Callable[[slice], None], queries: int) -> None:
    threads = permitted_threads()
    on_threads(work, list(slices(queries, -(-queries // threads))), threads)


def _nearest_proposals(queries: Vectors, vectors: Array, proposals: Ints, k: int) -> tuple[Floats, Ints]:
    query, place = np.nonzero(proposals >= 0)
    distances = np.full(proposals.shape, np.inf)
    for part in slices(len(query), _NEAREST_CELLS // queries.shape[1]):
        here = query[part], place[part]
        gap = unit(vectors[proposals[here]]).astype(np.float64)
        gap -= queries[query[part]]
        distances[here] = np.sqrt(np.einsum("ij,ij->i", gap, gap))
    order = np.lexsort((proposals, distances), axis=1)[:, :k]
    distances = np.take_along_axis(distances, order, axis=1)
    return distances, np.where(np.isfinite(distances), np.take_along_axis(proposals, order, axis=1), -1)
