"""Exact nearest neighbours in bounded memory, and the intrinsic dimension that their distances tell.

FAISS proposes in float32; distances and order are then worked out in float64 from the proposed rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.metrics.geometry import Estimate, sample, unit

Floats = NDArray[np.float64]
Vectors = NDArray[np.float32]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_WINDOW = 32_768  # documents whose vectors are in hand: 50 MB at 384 dimensions
_ASKING = 16_384  # vectors that look for neighbours at a time
_BLOCK = 2_048  # of both sides, in one matrix product
_SPARE = 13  # proposals beyond those asked for, among which rounding cannot hide the right ones
_COPIES = 6  # neighbours beyond two, for rows with copies that are equal up to rounding only
_CELLS = 1 << 18  # numbers of an intermediate array: 2 MB in float64, which the caches hold
SAME = 1e-5  # unit vectors nearer than this are one: float32 leaves some 1e-7, another batch of a network some 1e-6


def nearest(
    asking: NDArray[Any], vectors: NDArray[Any], k: int, *, own: Ints | None = None, allowed: Bools | None = None
) -> tuple[Floats, Ints]:
    """The k nearest rows of `vectors` for each vector that asks, by the distance of unit vectors: float64[m, k] and
    int64[m, k], nearest first, among equals the earlier row; inf and -1 where there are no more.

    `own` int64[m] are the rows that the asking ones have in `vectors` themselves: no row is its own neighbour.
    `allowed` bool[n] are the rows that may be found. Memory: about 250 MB, whatever the sizes, plus the results.
    Distances are right to 1e-12; where more than 13 rows lie within rounding (1e-7 in the cosine) of the k-th, which of
    them is taken is FAISS's choice.

    >>> nearest(np.eye(2), np.array([[1.0, 0.0], [0.6, 0.8]]), 1)[1].tolist()
    [[0], [1]]
    """
    parts = [
        _nearest(unit(asking[part]), vectors, k, None if own is None else own[part], allowed)
        for part in _slices(len(asking))
    ]
    return _join(parts, k)


def nearest_own(vectors: NDArray[Any], rows: Ints, k: int, *, allowed: Bools | None = None) -> tuple[Floats, Ints]:
    """The same for rows of `vectors` themselves, which are taken out of it part by part."""
    parts = [_nearest(unit(vectors[rows[part]]), vectors, k, rows[part], allowed) for part in _slices(len(rows))]
    return _join(parts, k)


def _slices(size: int) -> list[slice]:
    return [slice(start, start + _ASKING) for start in range(0, size, _ASKING)]


def _join(parts: list[tuple[Floats, Ints]], k: int) -> tuple[Floats, Ints]:
    if not parts:
        return np.empty((0, k)), np.empty((0, k), np.int64)
    return np.concatenate([d for d, _ in parts]), np.concatenate([i for _, i in parts])


def _nearest(
    asking: Vectors, vectors: NDArray[Any], k: int, own: Ints | None, allowed: Bools | None
) -> tuple[Floats, Ints]:
    wide = k + (own is not None) + _SPARE
    best = np.full((len(asking), wide), -np.inf, np.float32)
    found = np.full((len(asking), wide), -1, np.int64)
    buffer = np.empty((min(_WINDOW, len(vectors)), asking.shape[1]), np.float32)  # one for all: fresh pages cost time
    for start in range(0, len(vectors), _WINDOW):
        rows = np.arange(start, min(start + _WINDOW, len(vectors)))
        if allowed is not None:
            rows = rows[allowed[rows]]
        whole = len(rows) == min(_WINDOW, len(vectors) - start)
        window = unit(vectors[start : start + _WINDOW] if whole else vectors[rows], buffer)
        if len(rows):
            _propose(asking, window, rows, best, found)
    doubtful = _within_rounding(best, k + (own is not None), asking.shape[1])
    if own is not None:
        found[found == own[:, None]] = -1
    return _settle(asking, vectors, np.where(doubtful, found, -1), k)


def _propose(asking: Vectors, window: Vectors, rows: Ints, best: Vectors, found: Ints) -> None:
    """Put the best rows of the window among those found before, in place."""
    import faiss

    wide = best.shape[1]
    # Blocks that fit the caches of a small machine: a tenth faster than FAISS's 4,096 × 1,024, and the same results.
    faiss.cvar.distance_compute_blas_query_bs = faiss.cvar.distance_compute_blas_database_bs = _BLOCK
    scores, places = faiss.knn(asking, window, min(wide, len(rows)), metric=faiss.METRIC_INNER_PRODUCT)
    both = np.concatenate([best, scores], axis=1)
    rows_of_both = np.concatenate([found, rows[places]], axis=1)
    kept = np.argpartition(-both, wide - 1, axis=1)[:, :wide]
    best[:] = np.take_along_axis(both, kept, axis=1)
    found[:] = np.take_along_axis(rows_of_both, kept, axis=1)


def _within_rounding(best: Vectors, k: int, dimensions: int) -> Bools:
    """Which proposals may be among the k best: a float32 product of unit vectors is off by d · 2⁻²⁴ at most, and so is
    the one that it competes with (Higham 2002, section 3.1)."""
    last = np.partition(best, best.shape[1] - k, axis=1)[:, best.shape[1] - k]
    return np.asarray(best >= last[:, None] - np.float32(2 * dimensions * 2.0**-24))


def _settle(asking: Vectors, vectors: NDArray[Any], found: Ints, k: int) -> tuple[Floats, Ints]:
    """Distances in float64 of the proposed rows, and the k nearest of them."""
    who, place = np.nonzero(found >= 0)
    distances = np.full(found.shape, np.inf)
    step = max(1, _CELLS // asking.shape[1])
    for start in range(0, len(who), step):
        here = who[start : start + step], place[start : start + step]
        gap = unit(vectors[found[here]]).astype(np.float64)
        gap -= asking[here[0]]
        distances[here] = np.sqrt(np.einsum("ij,ij->i", gap, gap))
    order = np.lexsort((found, distances), axis=1)[:, :k]
    distances = np.take_along_axis(distances, order, axis=1)
    return distances, np.where(np.isfinite(distances), np.take_along_axis(found, order, axis=1), -1)


def first_copies(vectors: NDArray[Any]) -> Ints:
    """For each row the first row that equals it, bit for bit in float32: int64[n]; a row without a copy is its own.

    >>> first_copies(np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]])).tolist()
    [0, 1, 0]
    """
    keys = _row_keys(vectors)
    order = np.argsort(keys, kind="stable")
    starts = np.flatnonzero(np.diff(keys[order], prepend=~keys[order[:1]]) != 0)
    first = np.arange(len(keys))
    first[order] = np.repeat(order[starts], np.diff(starts, append=len(keys)))
    copies = np.flatnonzero(first != np.arange(len(keys)))
    for start in range(0, len(copies), _WINDOW):  # equal keys are a hint, equal rows the proof
        some = copies[start : start + _WINDOW]
        equal = (np.float32(vectors[some]) == np.float32(vectors[first[some]])).all(axis=1)
        first[some[~equal]] = some[~equal]
    return first


def _row_keys(vectors: NDArray[Any]) -> NDArray[np.uint64]:
    """A 64-bit key of each row: its bits times random odd numbers, summed modulo 2⁶⁴."""
    odd = np.random.default_rng(0).integers(0, 1 << 63, vectors.shape[1], dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    keys = np.empty(len(vectors), np.uint64)
    step = max(1, _CELLS // vectors.shape[1])
    for start in range(0, len(vectors), step):
        part = np.ascontiguousarray(vectors[start : start + step], dtype=np.float32) + np.float32(0)  # −0 is 0
        keys[start : start + step] = np.einsum("ij,j->i", part.view(np.uint32), odd, dtype=np.uint64, casting="unsafe")
    return keys


# --- intrinsic dimension -----------------------------------------------------------------------------------------


def two_nearest(vectors: NDArray[Any], rows: Ints, allowed: Bools) -> Floats:
    """Distances to the first and the second neighbour that are no copies, float64[m, 2]; NaN where there are not two.

    `allowed` leaves out all but one of equal rows; what is nearer than `SAME`, to the row or to its first neighbour,
    counts as a copy as well. Distances under 3e-4 are at the limit of what float32 products can put in order.
    """
    distances, found = nearest_own(vectors, rows, 2 + _COPIES, allowed=allowed)
    first = (distances <= SAME).sum(axis=1)
    second = _second(vectors, distances, found, first)
    last = distances.shape[1] - 1
    places = np.stack([np.minimum(first, last), np.minimum(second, last)], axis=1)
    pair = np.take_along_axis(distances, places, axis=1)
    full = (second <= last) & np.isfinite(pair).all(axis=1)
    return np.where(full[:, None], pair, np.nan)


def _second(vectors: NDArray[Any], distances: Floats, found: Ints, first: Ints) -> Ints:
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
        one, other = found[here][tied], found[there][tied]
        gap = unit(vectors[one]).astype(np.float64) - unit(vectors[other])
        doubtful = doubtful[np.linalg.norm(gap, axis=1) <= SAME]
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
        return Estimate(np.nan, len(ratios), kept, np.zeros(len(ratios)))
    value = float(len(ratios) / total)
    return Estimate(value, len(ratios), kept, value * (1 - value * ratios))


def facco_fit(distances: Floats, rows: Ints | None = None, *, discard: float = 0.1) -> Estimate:
    """The slope through the origin of −ln(1 − F) over ln(r₂/r₁), without the largest share `discard` of the ratios.

    The largest ratios are where the assumption of even density fails first. The influence is that of a ratio of
    L-statistics: through F it reaches every ratio between an example's own and the cut.
    """
    ratios, kept = _log_ratios(distances, rows)
    n, most = len(ratios), int(len(ratios) * (1 - discard))
    if most < 2:
        return Estimate(np.nan, n, kept, np.zeros(n))
    order = np.argsort(ratios, kind="stable")
    x = ratios[order[:most]]
    shares = np.arange(1, most + 1) / n
    y = -np.log1p(-shares)
    squares = float(x @ x)
    if squares <= 0:
        return Estimate(np.nan, n, kept, np.zeros(n))
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


@dataclass(frozen=True, eq=False)
class ScalePoint:
    """The intrinsic dimension among `size` vectors."""

    size: int
    dimension: Estimate


def scale_curve(
    vectors: NDArray[Any], rows: Ints, allowed: Bools, *, least: int = 500, seed: int = 42
) -> tuple[ScalePoint, ...]:
    """The dimension of ever smaller sub-samples, each half of the one before: what a dimension says depends on how far
    apart neighbours are. A curve that does not level off means that the figure is one of this size only.

    `rows` look for their neighbours in every sub-sample. Work: as much as the search among all of `allowed`.
    """
    points = []
    draw = np.empty(len(vectors))
    draw[sample(len(vectors), len(vectors), seed=seed + 1)] = np.arange(len(vectors)) / max(1, len(vectors))
    share = 0.5
    while allowed.sum() * share >= least:
        some = allowed & (draw < share)
        points.append(ScalePoint(int(some.sum()), two_nn(two_nearest(vectors, rows, some), rows)))
        share /= 2
    return tuple(points)
