"""The two nearest others of many rows of a space, for about half of the multiplications that all products take.

Turned to the principal directions of the space, a unit vector is a head, which holds most of it, and a tail. The
product of two is that of their heads and that of their tails, and the latter is at most the product of the lengths of
the tails (Cauchy and Schwarz; LEMP, Teflioudi et al. 2015, and FEXIPRO, Li et al. 2017, skip by it). With the length of
the tail as one more number of the head this bound is a product itself. Only where it reaches the second-best product so
far are the tails multiplied, and float64 decides among what is left. Rows that search are also rows that are found: one
product of two heads serves both.

Nothing is lost. A row whose neighbours cannot be separated that way, as in a collapsed space, is left to another
search, and so are all of them where the bounds would not pay.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from calipers.metrics.arrays import Array, Bools, Floats, Ints, Vectors, slices
from calipers.metrics.geometry import unit
from calipers.metrics.search import settle_nearest
from calipers.metrics.search_timing import exact_part
from calipers.metrics.threads import on_threads, permitted_threads

_HELD = 1 << 24  # numbers of the rows that search at a time (43,690 at 384 dimensions): 64 MB
_WINDOW = 16_384  # other rows in hand: 25 MB
_QUERIES, _ROWS = 512, 1_024  # of one product of heads: 2 MB
_PAIRS = 4_096  # whose tails are multiplied at a time: 3 MB of each side, for half of 384 dimensions
_SEED = 8_192  # rows that give a first floor: 16 MB of bounds on each thread
_DRAWN, _SPECTRUM, _PILOTS = 32_768, 8_192, 64  # rows that stand for all, for the directions, and for those that search
_FETCHED = 40  # products of whole vectors that take as long as that of two tails, which are fetched one by one
_WORTH = 0.85  # of the work of all products: above it they are taken
_LOOKED, _LOOKED_SHARE = 1_024, 8  # tails that are multiplied for a row before it is left to another search
_KEPT, _CLOSE = 1 << 19, 32  # pairs in hand (10 MB), and those of one row that rounding cannot order


class Turned(NamedTuple):
    """Unit vectors: `heads` float32[n, h + 1], of which the last number is the length of the tail, and `tails`
    float32[n, d − h]. A product of heads is the bound of that of the vectors."""

    heads: Vectors
    tails: Vectors

    def products(self, mine: Ints, others: Turned, theirs: Ints, bounds: Vectors) -> Vectors:
        """Products of some of these with some of others, float32[n], given their bounds."""
        tails = np.take(self.tails, mine, axis=0), np.take(others.tails, theirs, axis=0)
        beside = self.heads[mine, -1] * others.heads[theirs, -1]
        return np.asarray(bounds - beside + np.einsum("ij,ij->i", *tails))


class Turn(NamedTuple):
    """Principal directions float32[d, d], the one with most variance first, and how many of them are the head."""

    directions: Vectors
    head: int

    def of(self, vectors: Array, rows: Ints) -> Turned:
        """Rows of the vectors."""
        d, head = vectors.shape[1], self.head
        turned = Turned(np.empty((len(rows), head + 1), np.float32), np.empty((len(rows), d - head), np.float32))

        def fill(part: slice) -> None:
            whole = unit(vectors[rows[part]]) @ self.directions
            turned.heads[part, :head], turned.tails[part] = whole[:, :head], whole[:, head:]
            turned.heads[part, head] = _lengths(turned.tails[part])

        on_threads(fill, list(slices(len(rows), 2 * _QUERIES)), permitted_threads())
        return turned


def _margin(d: int) -> np.float32:
    """By how much two products of turned rows may be in the wrong order. With γ = d · 2⁻²⁴ each number of a turned row
    is off by γ at most, so the row by γ√d, and a product of two by 2γ√d + 3γ (Higham 2002, section 3.1)."""
    return np.float32(2 * d * 2.0**-24 * (2 * d**0.5 + 3))


def _lengths(rows: Vectors) -> Vectors:
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", rows, rows)))


def two_nearest_others(vectors: Array, rows: Ints, allowed: Bools) -> tuple[Floats, Bools]:
    """Distances of `rows` to the two nearest others that are `allowed`, float64[m, 2], and for which of them this
    search has found these, bool[m]. `rows` are different ones and are allowed themselves.

    The distances are those that `search.nearest_own` gives. Memory: about 200 MB at 384 dimensions, whatever the sizes.
    """
    distances, sure = np.full((len(rows), 2), np.nan), np.zeros(len(rows), np.bool_)
    everyone = np.flatnonzero(allowed)
    turn = choose_turn(vectors, everyone)
    if turn is None:
        return distances, sure
    for part in slices(len(rows), max(_QUERIES, _HELD // vectors.shape[1])):
        group = rows[part]
        with exact_part(len(group), len(everyone), turn.head + 1):
            search = PairSearch(vectors, group, turn, most=len(everyone))
            others = allowed.copy()
            others[group] = False
            search.among(np.flatnonzero(others))
            search.among_own()
            distances[part], sure[part] = search.settle()
    return distances, sure


def two_nearest_as_it_grows(vectors: Array, rows: Ints, levels: Sequence[Bools]) -> list[tuple[Floats, Bools]]:
    """The same among the rows bool[n] of each level, of which each holds the one before; `rows`, as many as fit into
    memory, need not be of any. The work is that of the last level alone."""
    everyone = np.flatnonzero(levels[-1])
    turn = choose_turn(vectors, everyone)
    if turn is None:
        return [(np.full((len(rows), 2), np.nan), np.zeros(len(rows), np.bool_)) for _ in levels]
    search = PairSearch(vectors, rows, turn, most=len(everyone))
    before, distances = np.zeros(len(vectors), np.bool_), []
    for level in levels:
        new = np.flatnonzero(level & ~before)
        with exact_part(len(rows), len(new), turn.head + 1):
            search.among(new)
            distances.append(search.settle())
        before = level
    return distances


def choose_turn(vectors: Array, rows: Ints) -> Turn | None:
    """The length of heads that makes a search among these rows shortest; None where all products take no longer."""
    most = min(_DRAWN, _HELD // vectors.shape[1])
    drawn = unit(vectors[rows[:: max(1, -(-len(rows) // most))]])
    sample = drawn[:: max(1, -(-len(drawn) // _SPECTRUM))]
    if len(drawn) < 3 or not np.isfinite(sample).all():
        return None
    directions = np.linalg.eigh((sample.T @ sample).astype(np.float64))[1][:, ::-1].astype(np.float32)
    work = _work_by_head(drawn @ directions, share=len(drawn) / len(rows))
    best = min(work, key=work.__getitem__)
    return Turn(directions, best) if work[best] < _WORTH else None


def _work_by_head(turned: Vectors, share: float) -> dict[int, float]:
    """For several lengths of heads the work of a search, as a share of that of all products: the heads, and the tails
    that have to be multiplied. `turned` are a `share` of the rows."""
    d, step = turned.shape[1], max(1, len(turned) // _PILOTS)
    own = np.arange(0, len(turned), step)
    pilots = turned[own]
    products = pilots @ turned.T
    products[np.arange(len(own)), own] = -np.inf
    rank = max(1, round(2 * share))  # among so many fewer, the place of what is the second of all
    reached = np.partition(products, -rank, axis=1)[:, -rank, None] - _margin(d)
    work = {}
    for head in sorted({max(1, d * sixteenths // 16) for sixteenths in range(1, 16)}):
        bounds = pilots[:, :head] @ turned[:, :head].T
        bounds += np.outer(_lengths(pilots[:, head:]), _lengths(turned[:, head:]))
        work[head] = (head + 1) / d + _FETCHED * float((bounds >= reached).mean())
    return work


class _Pairs(NamedTuple):
    """Pairs of a row that searches and another, and their products or bounds of these."""

    query: Ints
    row: Ints
    product: Vectors

    def only(self, which: Bools | Ints | slice) -> _Pairs:
        return _Pairs(self.query[which], self.row[which], self.product[which])


def _joined(pieces: list[_Pairs]) -> _Pairs:
    if not pieces:
        return _Pairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))
    return _Pairs(*(np.concatenate(kind) for kind in zip(*pieces, strict=True)))


class PairSearch:
    """The two nearest others of some rows of a space, among more and more of its rows; none may come twice."""

    def __init__(self, vectors: Array, rows: Ints, turn: Turn, *, most: int) -> None:
        """`most` are the rows that it will be among."""
        self.vectors, self.rows, self.turn = vectors, rows, turn
        self.margin, self.patience = _margin(len(turn.directions)), max(_LOOKED, most // _LOOKED_SHARE)
        self.queries = turn.of(vectors, rows)
        self.best = np.full((2, len(rows)), -np.inf, np.float32)  # the largest products so far, and the second largest
        self.floor = np.full(len(rows), -np.inf, np.float32)  # what a product must exceed; inf where we give up
        self.looked = np.zeros(len(rows), np.int64)
        self.seen = 0  # rows that all of them have met
        self.kept: list[_Pairs] = []
        self.pairs = 0  # of these
        self.lock = threading.Lock()

    def among_own(self) -> None:
        """They find each other."""
        parts = list(slices(len(self.rows), _QUERIES))
        if self.seen < _SEED:
            on_threads(partial(self._first_bounds, self.queries, self.rows), parts, permitted_threads())
        on_threads(self._among_later, parts, permitted_threads())

    def among(self, rows: Ints) -> None:
        """They find these rows."""
        for part in slices(len(rows), _WINDOW):
            window = self.turn.of(self.vectors, rows[part])
            look = partial(self._among_window, window, rows[part])
            on_threads(look, list(slices(len(self.rows), _QUERIES)), permitted_threads())
            self.seen += len(window.heads)

    def settle(self) -> tuple[Floats, Bools]:
        """Distances to the two nearest of all so far, float64[m, 2], and where they are known, bool[m]."""
        self._thin()
        pairs = _joined(self.kept)
        pairs = pairs.only(np.argsort(pairs.query, kind="stable"))
        counts = np.bincount(pairs.query, minlength=len(self.rows))
        proposals = np.full((len(self.rows), max(2, counts.max(initial=0))), -1, np.int64)
        proposals[pairs.query, np.arange(len(pairs.query)) - (np.cumsum(counts) - counts)[pairs.query]] = pairs.row
        distances = np.empty((len(self.rows), 2))
        for part in slices(len(self.rows), _PAIRS):
            queries = unit(self.vectors[self.rows[part]])
            distances[part] = settle_nearest(queries, self.vectors, proposals[part], 2)[0]
        return distances, counts >= 2

    # --- looking -----------------------------------------------------------------------------------------------------

    def _among_later(self, part: slice) -> None:
        """Some of the rows and those behind them find each other."""
        candidates = _Candidates(self, self.queries, self.rows)
        for start, bounds in self._bounds(part, self.queries, part.start):
            candidates.add(bounds, self.floor[part], part.start, start)
            behind = max(start, part.start + bounds.shape[1])
            if behind < start + len(bounds):
                floor = self.floor[behind : start + len(bounds)]
                candidates.add(bounds[behind - start :].T, floor, behind, part.start)
        candidates.look()

    def _among_window(self, window: Turned, ids: Ints, part: slice) -> None:
        candidates = _Candidates(self, window, ids)
        first = np.empty((0, 0), np.float32) if self.seen else self._first_bounds(window, ids, part)
        for block in slices(len(first), _ROWS):
            candidates.add(first[block], self.floor[part], part.start, block.start)
        for start, bounds in self._bounds(part, window, len(first)):
            candidates.add(bounds, self.floor[part], part.start, start)
        candidates.look()

    def _bounds(self, part: slice, rows: Turned, start: int) -> Iterator[tuple[int, Vectors]]:
        """Bounds of the products of consecutive rows from `start` on and some that search, float32[n, q], and the first
        of these rows; the memory is used again."""
        columns = np.ascontiguousarray(self.queries.heads[part].T)
        memory = np.empty((_ROWS, columns.shape[1]), np.float32)
        for block in range(start, len(rows.heads), _ROWS):
            few = rows.heads[block : block + _ROWS]
            yield block, np.matmul(few, columns, out=memory[: len(few)])

    def _first_bounds(self, rows: Turned, ids: Ints, part: slice) -> Vectors:
        """Bounds of the products with the first rows, float32[n, q], after those with the highest have given a first
        floor: the second-best product with some of them."""
        mine = np.arange(part.start, min(part.stop, len(self.rows)))
        bounds: Vectors = np.matmul(rows.heads[:_SEED], np.ascontiguousarray(self.queries.heads[part].T))
        second = first = np.full(len(mine), -np.inf, np.float32)
        for block in slices(len(bounds), _QUERIES):
            row = _highest(bounds[block]) + block.start
            products = self.queries.products(mine, rows, row, bounds[row, mine - part.start])
            products[np.isnan(products) | (self.rows[mine] == ids[row])] = -np.inf
            first, second = np.maximum(first, products), np.maximum(second, np.minimum(first, products))
        self.floor[part] = np.maximum(self.floor[part], second - self.margin)
        return bounds

    # --- keeping -----------------------------------------------------------------------------------------------------

    def keep(self, pairs: _Pairs) -> None:
        """Pairs with their products, where these are among the two best so far or as good as that."""
        with self.lock:
            self.looked += np.bincount(pairs.query, minlength=len(self.looked))
            pairs = pairs.only((pairs.product > self.floor[pairs.query]) & (self.rows[pairs.query] != pairs.row))
            pairs = pairs.only(np.lexsort((-pairs.product, pairs.query)))
            self._improve(pairs)
            self.floor[self.looked > self.patience] = np.inf
            self.kept.append(pairs)
            self.pairs += len(pairs.query)
            if self.pairs > _KEPT:
                self._thin()

    def _improve(self, pairs: _Pairs) -> None:
        """The two best with these pairs, which are in order."""
        starts = np.flatnonzero(np.diff(pairs.query, prepend=-1))
        query, products = pairs.query[starts], np.append(pairs.product, np.float32(-np.inf))
        alone = np.diff(starts, append=len(pairs.query)) == 1
        best, next_best = products[starts], np.where(alone, np.float32(-np.inf), products[starts + 1])
        first, second = self.best[:, query]
        second = np.maximum(np.minimum(first, best), np.maximum(second, next_best))
        self.best[:, query] = np.maximum(first, best), second
        self.floor[query] = np.maximum(self.floor[query], second - self.margin)

    def _thin(self) -> None:
        """Forget what is no longer good enough, and rows with too many that are about as good."""
        pairs = _joined(self.kept)
        pairs = pairs.only(pairs.product > self.floor[pairs.query])
        many = np.bincount(pairs.query, minlength=len(self.rows)) > _CLOSE
        self.floor[many] = np.inf
        self.kept = [pairs.only(~many[pairs.query])]
        self.pairs = len(self.kept[0].query)


def _highest(bounds: Vectors) -> Ints:
    """Where each column is largest, int64[q]: argmax takes four times as long."""
    where = np.zeros(bounds.shape[1], np.int64)
    row, column = np.divmod(np.flatnonzero(bounds == bounds.max(axis=0)), bounds.shape[1])
    where[column] = row
    return where


class _Candidates:
    """Pairs that one thread has found to be looked at, with rows that are `ids` of the space."""

    def __init__(self, search: PairSearch, rows: Turned, ids: Ints) -> None:
        self.search, self.rows, self.ids = search, rows, ids
        self.pieces: list[_Pairs] = []
        self.pairs = 0  # of these
        self.above = np.empty(_ROWS * _QUERIES, np.bool_)

    def add(self, bounds: Vectors, floor: Vectors, query: int, row: int) -> None:
        """Those of the bounds [n, q] that exceed the floor [q]; the first of the queries and of the rows are given."""
        above = self.above[: bounds.size]
        if bounds.flags.c_contiguous:
            np.greater(bounds, floor, out=above.reshape(bounds.shape))
            there, who = np.divmod(np.flatnonzero(above), bounds.shape[1])
        else:  # the transpose of such
            np.greater(bounds.T, floor[:, None], out=above.reshape(bounds.T.shape))
            who, there = np.divmod(np.flatnonzero(above), bounds.shape[0])
        self.pieces.append(_Pairs(who + query, there + row, bounds[there, who]))
        self.pairs += len(who)
        if self.pairs >= _PAIRS:
            self.look()

    def look(self) -> None:
        """Take the products, of few pairs at a time: each time less is above the floor."""
        pairs = _joined(self.pieces)
        self.pieces, self.pairs = [], 0
        for part in slices(len(pairs.query), _PAIRS):
            few = pairs.only(part)
            few = few.only(few.product > self.search.floor[few.query])
            products = self.search.queries.products(few.query, self.rows, few.row, few.product)
            self.search.keep(_Pairs(few.query, self.ids[few.row], products))
