"""What nearest neighbours tell about a space: copies, its intrinsic dimension, and its hubs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calipers.metrics.arrays import Array, Bools, Floats, Ints, share, slices
from calipers.metrics.geometry import Estimate, sample, unit
from calipers.metrics.own_neighbours import two_nearest_as_it_grows, two_nearest_others
from calipers.metrics.search import nearest_own

_COPIES = 6  # neighbours beyond two, for rows with copies that are equal up to rounding only
_MANY = 1 << 27  # pairs of rows from which on a search by bounds is worth its preparations
_CELLS = 1 << 18  # numbers of an intermediate array: 2 MB in float64, which the caches hold
_DIRECTIONS, _CELL, _ROUNDS = 6, 7e-6, 16  # of the search for copies; the edges of grids are 1e-6 apart
_ODD = 2 * np.random.default_rng(1).integers(1 << 62, size=_DIRECTIONS) + 1  # of a hash
_SAMPLED_QUERIES, _LEAST_SHARE = 100, 0.2  # of the correction of the errors of hubness
# Of second and third differences, for figures with kinks. Of a Poisson count the indicator of 0 has the variance
# e^−λ (λ − λ²/2 + λ³/6 − …); these weights give it within 4 % up to λ = 3, with hardly any noise of high counts.
_KINKED = (0.8, 0.35)
SAME = 1e-5  # unit vectors nearer than this are one: float32 leaves some 1e-7, another batch of a network some 1e-6


def first_copies(vectors: Array) -> Ints:
    """For each row the first row of the same direction: int64[n]; a row without a copy is its own.

    Directions are the same where unit vectors are nearer than `SAME`; all that differ by rounding alone (a tenth of it)
    are recognised. Work: linear in the rows, unless many crowd within `SAME` of each other without being copies.

    >>> first_copies(np.array([[1.0, 2.0], [3.0, 4.0], [3.0, 6.0]])).tolist()
    [0, 1, 0]
    """
    places = _projections(vectors)
    first = np.arange(len(vectors))
    # In each direction two rows lie in one cell unless an edge is between them. The edges of the grids are further
    # apart than what rounding leaves, so that each direction can spoil one grid, and one more grid remains.
    for grid in range(_DIRECTIONS + 1):
        left = np.flatnonzero((first == np.arange(len(first))) & np.isfinite(places[:, 0]))
        cells = np.floor(places[left] / _CELL + grid / (_DIRECTIONS + 1)).astype(np.int64)
        _join(vectors, left, (cells * _ODD).sum(axis=1), first)
    while (again := first[first] != first).any():
        first[again] = first[first[again]]
    return first


def _projections(vectors: Array) -> Floats:
    """Where the unit vectors lie along a few directions drawn at random, float64[n, directions]."""
    drawn = np.random.default_rng(0).normal(size=(_DIRECTIONS, vectors.shape[1]))
    directions = unit(drawn).T.astype(np.float64)
    places = np.empty((len(vectors), _DIRECTIONS))
    for part in slices(len(vectors), _CELLS // vectors.shape[1]):
        with np.errstate(invalid="ignore"):
            places[part] = unit(vectors[part]).astype(np.float64) @ directions
    return places


def _join(vectors: Array, rows: Ints, cells: Ints, first: Ints) -> None:
    """Point each row at the first row of its cell, in place, where the two are one. Those of a cell that are not are
    compared among themselves, a few times over. An equal number of a cell is a hint, an equal direction the proof."""
    for _ in range(_ROUNDS):
        _, cell, sizes = np.unique(cells, return_inverse=True, return_counts=True)
        shared = np.flatnonzero(sizes[cell] > 1)
        if not len(shared):
            return
        rows, cells, cell = rows[shared], cells[shared], cell[shared]
        leader = np.full(len(sizes), len(first))
        np.minimum.at(leader, cell, rows)
        others = np.flatnonzero(leader[cell] != rows)
        same = _are_one(vectors, rows[others], leader[cell[others]])
        first[rows[others[same]]] = leader[cell[others[same]]]
        rows, cells = rows[others[~same]], cells[others[~same]]


def _are_one(vectors: Array, one: Ints, other: Ints) -> Bools:
    """Which rows have the direction of their counterparts, bool[n]."""
    same = np.empty(len(one), np.bool_)
    for part in slices(len(one), _CELLS // vectors.shape[1]):
        gap = unit(vectors[one[part]]).astype(np.float64) - unit(vectors[other[part]])
        same[part] = np.linalg.norm(gap, axis=1) <= SAME
    return same


def two_nearest(vectors: Array, rows: Ints, allowed: Bools) -> Floats:
    """Distances to the first and the second neighbour that are no copies, float64[m, 2]; NaN where there are not two.

    `allowed` leaves out all but one of equal rows; what is nearer than `SAME`, to the row or to its first neighbour,
    counts as a copy as well. Distances under 3e-4 are at the limit of float32 products.
    """
    if len(rows) * int(allowed.sum()) < _MANY or not allowed[rows].all():
        return _two_of_several(vectors, rows, allowed)
    return _without_copies(vectors, rows, allowed, *two_nearest_others(vectors, rows, allowed))


def _without_copies(vectors: Array, rows: Ints, allowed: Bools, distances: Floats, sure: Bools) -> Floats:
    """Distances to two others, found where they are `sure`, as those to two that are no copies."""
    clear = sure.copy()
    clear[sure] = (distances[sure, 0] > SAME) & (distances[sure, 1] - distances[sure, 0] > SAME)
    distances[~clear] = _two_of_several(vectors, rows[~clear], allowed)
    return distances


def _two_of_several(vectors: Array, rows: Ints, allowed: Bools) -> Floats:
    """The same from more neighbours, among which copies are skipped."""
    distances, neighbours = nearest_own(vectors, rows, 2 + _COPIES, allowed=allowed)
    first = (distances <= SAME).sum(axis=1)
    second = _second(vectors, distances, neighbours, first)
    last = distances.shape[1] - 1
    places = np.stack([np.minimum(first, last), np.minimum(second, last)], axis=1)
    pair = np.take_along_axis(distances, places, axis=1)
    full = (second <= last) & np.isfinite(pair).all(axis=1)
    return np.where(full[:, None], pair, np.nan)


def _second(vectors: Array, distances: Floats, neighbours: Ints, first: Ints) -> Ints:
    """The place of the next neighbour behind the first that is no copy of it, int64[m]."""
    second = first + 1
    doubtful = np.arange(len(first))
    while True:
        doubtful = doubtful[second[doubtful] < distances.shape[1]]
        here, there = (doubtful, first[doubtful]), (doubtful, second[doubtful])
        with np.errstate(invalid="ignore"):
            tied = (distances[there] - distances[here] <= SAME) & np.isfinite(distances[there])
        doubtful = doubtful[tied]
        if not len(doubtful):
            return second
        doubtful = doubtful[_are_one(vectors, neighbours[here][tied], neighbours[there][tied])]
        second[doubtful] += 1


def two_nn(distances: Floats, rows: Ints | None = None) -> Estimate:
    """Intrinsic dimension n / Σ ln(r₂/r₁) (Facco et al. 2017), from distances float64[n, 2]; NaN for fewer than two.

    Rows with NaN, or whose first neighbour is at distance 0, are left out.

    >>> two_nn(np.array([[1.0, np.e], [2.0, 2 * np.e]])).value
    1.0
    """
    ratios, kept = _log_ratios(distances, rows)
    total = ratios.sum()
    if len(ratios) < 2 or total <= 0:
        return Estimate.unknown(len(ratios), kept)
    value = float(len(ratios) / total)
    return Estimate(value, len(ratios), kept, value * (1 - value * ratios))


def facco_fit(distances: Floats, rows: Ints | None = None, *, discard: float = 0.1) -> Estimate:
    """The slope through the origin of −ln(1 − F) over ln(r₂/r₁), without the largest share `discard` of the ratios.

    These are where the assumption of even density fails first. The influence follows from a ratio of L-statistics:
    through F it reaches every ratio between an example's own and the cut.
    """
    ratios, kept = _log_ratios(distances, rows)
    n, most = len(ratios), int(len(ratios) * (1 - discard))
    if most < 2:
        return Estimate.unknown(n, kept)
    order = np.argsort(ratios, kind="stable")
    x = ratios[order[:most]]
    shares = np.arange(1, most + 1) / n
    y = -np.log1p(-shares)
    squares = float(x @ x)
    if squares <= 0:
        return Estimate.unknown(n, kept)
    value = float(x @ y) / squares
    pull = (y[:-1] - 2 * value * x[:-1]) * np.diff(x)  # between two neighbouring ratios F is constant
    behind = np.concatenate([np.cumsum(pull[::-1])[::-1], np.zeros(n - most + 1)])
    influence = np.empty(n)
    influence[order] = (pull @ shares[:-1] - behind) / (squares / n)
    return Estimate(value, n, kept, influence)


def _log_ratios(distances: Floats, rows: Ints | None) -> tuple[Floats, Ints]:
    usable = np.flatnonzero(np.isfinite(distances).all(axis=1) & (distances[:, 0] > 0))
    ratios = np.log(distances[usable, 1] / distances[usable, 0])
    return ratios, usable if rows is None else rows[usable]


class ScalePoint(NamedTuple):
    """The intrinsic dimension among `size` vectors."""

    size: int
    dimension: Estimate


def scale_curve(
    vectors: Array, rows: Ints, allowed: Bools, *, least: int = 500, seed: int = 42
) -> tuple[ScalePoint, ...]:
    """The dimension of ever smaller sub-samples, each half of the one before: what a dimension says depends on how far
    apart neighbours are. Where the curve does not level off, it holds for this size only.

    `rows`, as many as fit into memory, look for their neighbours in every sub-sample. Work: at most as much as the
    search among all of `allowed`.
    """
    draw = np.empty(len(vectors))
    draw[sample(len(vectors), len(vectors), seed=seed + 1)] = np.arange(len(vectors)) / max(1, len(vectors))
    drawn, share = [], 0.5
    while allowed.sum() * share >= least:
        drawn.append(allowed & (draw < share))
        share /= 2
    pairs = _two_nearest_in_each(vectors, rows, drawn)
    return tuple(ScalePoint(int(one.sum()), two_nn(pair, rows)) for one, pair in zip(drawn, pairs, strict=True))


def _two_nearest_in_each(vectors: Array, rows: Ints, drawn: Sequence[Bools]) -> list[Floats]:
    """`two_nearest` in samples of which each holds the next; large ones are searched once, in the opposite order."""
    large = [one for one in drawn if len(rows) * int(one.sum()) >= _MANY]
    grown = two_nearest_as_it_grows(vectors, rows, large[::-1])[::-1] if large else []
    pairs = [_without_copies(vectors, rows, one, *pair) for one, pair in zip(large, grown, strict=True)]
    return pairs + [_two_of_several(vectors, rows, one) for one in drawn[len(large) :]]


# --- hubness -----------------------------------------------------------------------------------------------------
#
# How unevenly a search spreads its results over the documents (Radovanović et al. 2010). `results` is int64[q, k]: the
# documents that each query retrieves, -1 where there are fewer. The corpus is fixed and the queries are the sample: the
# influence of a query is what the figure loses without it (the jackknife), worked out for all queries at once. A
# bootstrap of queries would be wrong here: a query that is drawn twice makes hubs of all that it retrieves.


def retrieval_counts(results: Ints, documents: int) -> Ints:
    """By how many queries each document is retrieved, int64[documents].

    >>> retrieval_counts(np.array([[0, 2], [2, -1]]), 4).tolist()
    [1, 0, 2, 0]
    """
    return np.bincount(results[results >= 0], minlength=documents)


def count_table(results: Ints, documents: int) -> dict[str, Ints]:
    """How many documents are retrieved by how many queries: `times` ascending, and `documents`.

    >>> count_table(np.array([[0, 2], [2, -1]]), 4)
    {'times': array([0, 1, 2]), 'documents': array([2, 1, 1])}
    """
    times, several = np.unique(retrieval_counts(results, documents), return_counts=True)
    return {"times": times, "documents": several}


def skewness(counts: Array) -> float:
    """Third standardised moment over all documents, without correction for size; NaN where all counts are equal.

    >>> round(skewness(np.array([0, 0, 0, 4])), 4)
    1.1547
    """
    c = counts.astype(np.float64)
    return float(_skewness(c.sum(), (c**2).sum(), (c**3).sum(), len(c)))


def _skewness(first: Any, second: Any, third: Any, n: int) -> Any:
    """From the sums of counts, of their squares and of their cubes."""
    mean = first / n
    variance = second / n - mean**2
    moment = third / n - 3 * mean * second / n + 2 * mean**3
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(variance > 1e-12 * (second / n), moment / np.abs(variance) ** 1.5, np.nan)


def gini(counts: Array) -> float:
    """Σ|cᵢ − cⱼ| / (2 n Σc): 0 where all documents are retrieved alike, near 1 where few have it all; NaN for none.

    >>> gini(np.array([0, 0, 0, 4]))
    0.75
    """
    ordered = np.sort(counts)
    n, total = len(ordered), float(ordered.sum())
    return float((2 * np.arange(1, n + 1) - n - 1) @ ordered / (n * total)) if total else np.nan


def never_retrieved(counts: Array) -> float:
    """Share of documents that no query retrieves.

    >>> never_retrieved(np.array([0, 0, 0, 4]))
    0.75
    """
    return float((counts == 0).mean()) if len(counts) else np.nan


def chance_skewness(queries: int, k: int, documents: int) -> float:
    """The skewness of a search that retrieves k documents at random, that of a binomial count: a large corpus and few
    queries are skewed without any hub."""
    share = min(k, documents) / documents
    spread = queries * share * (1 - share)
    return float((1 - 2 * share) / np.sqrt(spread)) if spread > 0 else np.nan


def hubness(results: Ints, documents: int, *, exact: bool = True) -> tuple[Estimate, Estimate, Estimate]:
    """Skewness, Gini coefficient and share never retrieved, over all documents."""
    counts = retrieval_counts(results, documents)
    there = results >= 0
    reached = np.where(there, counts[results], 0)  # 0 where there is no result: it changes nothing below
    skewed = _jackknife(skewness(counts), _skewness_without(counts, reached, there), exact)
    uneven = _jackknife(gini(counts), _gini_without(counts, reached, there), exact)
    unseen = ((counts == 0).sum() + (reached == 1).sum(axis=1)) / documents
    never = _jackknife(never_retrieved(counts), unseen, exact)
    differences = _skewness_differences(counts), _gini_differences(counts), (counts == 2, counts == 3)
    second, third = (np.stack(kind, axis=1) for kind in zip(*differences, strict=True))
    (skewed_excess, uneven_excess, never_excess) = _higher_differences(results, second, third)
    return (
        _without_excess(skewed, skewed_excess, (1.0, 1.0)),
        _without_excess(uneven, uneven_excess, _KINKED),
        # Of independent documents the variance is at most the number of those never retrieved, and about that if few.
        _without_excess(
            never, never_excess / documents**2, _KINKED, most=max(1, (counts == 0).sum()) / max(1, (counts == 1).sum())
        ),
    )


def _jackknife(value: float, without: Floats, exact: bool) -> Estimate:
    """`without` float64[q] is the figure when one query is taken away."""
    influence = (len(without) - 1) * (without.mean() - without)
    return Estimate(value, len(without), np.arange(len(without)), np.asarray(influence), exact)


def _without_excess(estimate: Estimate, excess: Floats, weights: tuple[float, float], *, most: float = 1.0) -> Estimate:
    """A jackknife counts what pairs of queries do together twice and what triples do three times (Efron & Stein 1981);
    retrieval counts hardly depend on single queries, so that its error is 1.1 to 2.1 times too wide. The variance is
    Σ (first differences)² − Σ (second)² + Σ (third)² − …; the skewness, linear in Σ c² and Σ c³, has no others. Where
    there are others, `weights` of the second and the third make up for them. `most` of the plain variance is kept."""
    plain = estimate.standard_error**2
    if not plain > 0:
        return estimate
    share = np.clip((plain - weights[0] * excess[0] + weights[1] * excess[1]) / plain, _LEAST_SHARE, 1.0)
    return replace(estimate, influence=estimate.influence * np.sqrt(min(share, most)))


def _skewness_differences(counts: Ints) -> tuple[Floats, Floats]:
    """By how much the skewness changes because two, or three, queries find a document together, float64[documents]."""
    n, c = len(counts), counts.astype(np.float64)
    mean, square = c.mean(), (c**2).mean()
    variance = square - mean**2
    if not variance > 0:
        return np.zeros(n), np.zeros(n)
    moment = (c**3).mean() - 3 * mean * square + 2 * mean**3
    of_squares = -(3 * mean / variance**1.5 + 1.5 * moment / variance**2.5) / n
    of_cubes = 1 / (n * variance**1.5)
    return 2 * of_squares + 6 * of_cubes * (c - 1), np.full(n, 6 * of_cubes)


def _gini_differences(counts: Ints) -> tuple[Floats, Floats]:
    """The same of the Gini coefficient: of Σ over others of |c − other count|, the slope changes where there are
    documents with one count less."""
    n, total = len(counts), max(1, int(counts.sum()))
    having = np.append(np.bincount(counts), [0, 0])  # the last ones are for counts below 0
    one_less, two_less = having[counts - 1], having[counts - 2]
    return 2 * one_less / (n * total), 2 * (one_less - two_less) / (n * total)


def _higher_differences(results: Ints, second: Floats, third: Floats) -> Floats:
    """Σ over pairs of queries of the squared second difference, and over triples of the third, float64[figures, 2]:
    from a sample of the queries with all others. `second` and `third`, float64[documents, figures], are what a document
    adds that two, or three, queries find together."""
    place = np.full(len(second) + 1, -1)  # the last is for what is not there
    rows = sample(len(results), _SAMPLED_QUERIES, seed=0)
    sums = np.zeros((second.shape[1], 2))
    for row in rows.tolist():
        own = np.unique(results[row][results[row] >= 0])
        place[own] = np.arange(len(own))
        query, column = np.nonzero(place[results] >= 0)
        shares = np.zeros((len(results), len(own)))
        shares[query, place[results[query, column]]] = 1.0
        shares[row] = 0.0
        place[own] = -1
        sums[:, 0] += np.square(shares @ second[own]).sum(axis=0) / 2
        three = np.einsum("df,de,ef->f", third[own], np.square(shares.T @ shares), third[own])
        sums[:, 1] += (three - np.square(shares @ third[own]).sum(axis=0)) / 6
    return sums * len(results) / max(1, len(rows))


def _skewness_without(counts: Ints, reached: Ints, there: NDArray[np.bool_]) -> Floats:
    c = counts.astype(np.float64)
    first = c.sum() - there.sum(axis=1)
    second = (c**2).sum() - np.where(there, 2 * reached - 1, 0).sum(axis=1)
    third = (c**3).sum() - np.where(there, 3 * reached**2 - 3 * reached + 1, 0).sum(axis=1)
    return np.asarray(_skewness(first, second, third, len(counts)))


def _gini_without(counts: Ints, reached: Ints, there: NDArray[np.bool_]) -> Floats:
    """A document that goes from c to c − 1 comes 1 nearer to those below c, and 1 further from all others; two that
    had the same count and both lose one stay equal."""
    n, ordered = len(counts), np.sort(counts)
    differences = float((2 * np.arange(1, n + 1) - n - 1) @ ordered)  # Σ over i < j
    below = np.searchsorted(ordered, reached)
    change = np.where(there, n - 1 - 2 * below, 0).sum(axis=1)
    row = np.sort(np.where(there, reached, -1 - np.arange(reached.shape[1])), axis=1)  # those missing equal nothing
    equal = sum(((row[:, step:] == row[:, :-step]).sum(axis=1) for step in range(1, row.shape[1])), np.zeros(len(row)))
    left = counts.sum() - there.sum(axis=1)
    return share(differences + change - 2 * equal, n * left)


def invaded(results: Ints, documents: Ints) -> list[Ints]:
    """For each of these documents the queries that retrieve it.

    >>> [rows.tolist() for rows in invaded(np.array([[0, 2], [2, 1]]), np.array([2, 1]))]
    [[0, 1], [1]]
    """
    return [np.flatnonzero((results == document).any(axis=1)) for document in documents]
