"""The shape of a cloud of vectors on the unit sphere: alignment, uniformity, anisotropy, and where its variance lies.

Vectors are float[n, d], in memory or mapped from a file; they are normalised window by window, so memory is a window
and not the file. No row may be zero or non-finite: `norms` finds those.

Every figure is an `Estimate`: its value, its standard error, and the *influence* of single examples. To first order a
figure is the mean of "value + influence" over the examples (the infinitesimal jackknife; Efron 1982), so the standard
error, over other texts drawn from where these came from, is the spread of the influences over √n, and a bootstrap over
examples has a plain mean to resample. Where a figure was computed on a sample, it covers the sampling as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from calipers.metrics.arrays import Array, Floats, Ints, Vectors, slices
from calipers.metrics.threads import on_threads, permitted_threads

F = TypeVar("F", np.float32, np.float64)

_WINDOW = 8192  # rows in hand at a time: 12 MB of float32 at 384 dimensions
_BLOCK = 2048  # rows that are scaled at a time, or of one side of a block of pairs: 16 MB of products
_SAFE = {4: (1e-15, 1e15), 8: (1e-140, 1e140)}  # by bytes of a number: lengths whose squares lose no digit
_PAIRED = 500  # examples whose pairs are looked at
_MOST_EXCESS = 6.0  # an even cloud has a true error 2.4 times below the plain one
_NO_VARIANCE = 1e-9  # of the largest; what float32 rounding leaves in a direction that is not used is below 1e-12


@dataclass(frozen=True, eq=False)
class Estimate:
    """A figure with what is needed to say how sure it is.

    `count` examples went into it; `rows` int64[r] are those whose `influence` float64[r] was worked out (all, or a
    sample of them). `exact` is False where it stands for more examples than it was computed on.
    """

    value: float
    count: int
    rows: Ints
    influence: Floats
    exact: bool = True

    @property
    def standard_error(self) -> float:
        """NaN for fewer than two examples."""
        if not self.count or len(self.influence) < 2:
            return np.nan
        return float(self.influence.std(ddof=1) / np.sqrt(self.count))

    @property
    def contributions(self) -> Floats:
        """float64[r] whose mean is the value and whose spread over √r is the standard error."""
        centred = self.influence - self.influence.mean() if len(self.influence) else self.influence
        return np.asarray(self.value + centred * np.sqrt(len(self.rows) / max(1, self.count)))

    @classmethod
    def unknown(cls, count: int, rows: Ints, *, exact: bool = True) -> Estimate:
        """NaN, with no influence of any of the rows."""
        return cls(np.nan, count, rows, np.zeros(len(rows)), exact)

    def only(self, rows: Ints) -> Estimate:
        """The same figure, with the influence of these examples alone."""
        kept = np.isin(self.rows, rows)
        return Estimate(self.value, self.count, self.rows[kept], self.influence[kept], self.exact)


def mean_estimate(values: Floats) -> Estimate:
    """The mean over the examples for which there is a value; NaN where there is none.

    >>> mean_estimate(np.array([1.0, np.nan, 3.0])).value
    2.0
    """
    rows = np.flatnonzero(np.isfinite(values))
    finite = values[rows]
    mean = float(finite.mean()) if len(finite) else np.nan
    return Estimate(mean, len(finite), rows, finite - mean)


def ratio_estimate(part: Floats, whole: Floats) -> Estimate:
    """Σ part / Σ whole over examples; the examples are those whose whole is above 0, NaN where there is none.

    >>> ratio_estimate(np.array([1.0, 3.0, 0.0]), np.array([4.0, 4.0, 0.0])).value
    0.5
    """
    rows = np.flatnonzero(whole > 0)
    if not len(rows):
        return Estimate.unknown(0, rows)
    ratio = float(part[rows].sum() / whole[rows].sum())
    return Estimate(ratio, len(rows), rows, (part[rows] - ratio * whole[rows]) / whole[rows].mean())


# --- rows --------------------------------------------------------------------------------------------------------
#
# Unit vectors are made in three ways that add squares in different orders, and so differ in the last bit: `unit` for
# searches and figures of a space, `unit_or_zero` for codecs, `unit_like` for models and the scores of pairs. All three
# and `norms` take lengths by way of `_measure`, which no magnitude overflows.


class _Measured(NamedTuple):
    rows: Array  # [n, d], those of a length that is not safe times 2 ** −exponents
    lengths: Array  # of these rows, [n]; 0 or non-finite for one that has no direction
    exponents: Ints


def _measure(rows: Array, kind: DTypeLike, length: Callable[[Array], Array]) -> _Measured:
    """Rows in a type of float with their lengths. Where squares overflow it or vanish in it, the row is scaled first,
    by a power of two: its direction keeps every bit."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        converted = np.asarray(rows, dtype=kind)
        lengths = length(converted)
    least, most = _SAFE[converted.dtype.itemsize]
    odd = np.flatnonzero(~((lengths > least) & (lengths < most)))
    exponents = np.zeros(len(lengths), np.int64)
    if len(odd):
        converted = np.array(converted)
        scaled, exponents[odd] = in_reach(rows[odd])
        converted[odd] = scaled
        with np.errstate(over="ignore", invalid="ignore"):
            lengths[odd] = length(converted[odd])
    return _Measured(converted, lengths, exponents)


def in_reach(rows: Array) -> tuple[Floats, Ints]:
    """Rows, float64, whose largest number is between 0.5 and 1, and the power of two that each was divided by. A row of
    zeros and one with a non-finite number stay as they are.

    >>> in_reach(np.array([[3.0, 4.0], [0.0, 0.0]]))
    (array([[0.375, 0.5  ],
           [0.   , 0.   ]]), array([3, 0]))
    """
    values = np.asarray(rows, dtype=np.float64)
    largest = np.abs(values).max(axis=-1, initial=0.0)
    exponents = np.where(np.isfinite(largest), np.frexp(largest)[1], 0).astype(np.int64)
    return np.ldexp(values, -exponents[..., None]), exponents


def _by_einsum(rows: Array) -> Array:
    """In float64: lengths that are rounded to float32 move every figure of unit vectors by some 1e-7 in one way."""
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64)))


def _by_vecdot(rows: Array) -> Array:
    return np.asarray(np.sqrt(np.vecdot(rows, rows)))


def _by_norm(rows: Array) -> Array:
    return np.asarray(np.linalg.norm(rows, axis=1))


def unit(rows: Array, out: Vectors | None = None) -> Vectors:
    """Rows of length 1, float32, a new array or the first rows of `out`; a row of zeros becomes NaN."""
    scaled = np.empty(rows.shape, np.float32) if out is None else out[: len(rows)]

    def scale(block: slice) -> None:
        part = _measure(rows[block], np.float32, _by_einsum)
        np.divide(part.rows, part.lengths[:, None], out=scaled[block])

    on_threads(scale, list(slices(len(rows), _BLOCK)), permitted_threads())
    return scaled


def unit_or_zero(vectors: Array) -> Vectors:
    """Rows of length 1, float32; zero where a row has no direction (zero, NaN, infinite)."""
    rows, lengths, _ = _measure(vectors, np.float32, _by_vecdot)
    alive = (lengths > 0) & (lengths < np.inf)
    if alive.all():
        return np.asarray(rows / lengths[:, None])
    with np.errstate(invalid="ignore"):
        return np.where(alive[:, None], rows / np.where(alive, lengths, 1)[:, None], np.float32(0))


def unit_like(vectors: NDArray[F]) -> NDArray[F]:
    """Rows of length 1 in their own type of float. A row of zeros stays zero: a caller must see that it is dead.

    >>> unit_like(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    scaled = np.empty(vectors.shape, vectors.dtype)
    for block in slices(len(vectors), _BLOCK):
        rows, lengths, _ = _measure(vectors[block], vectors.dtype, _by_norm)
        np.divide(rows, np.where(lengths > 0, lengths, 1.0)[:, None], out=scaled[block], casting="same_kind")
    return scaled


def cosines_at(queries: Array, vectors: Array, rows: Ints) -> Floats:
    """The cosine of each query and the rows int64[q, k] of `vectors` that are its own, float64[q, k]; NaN for -1."""
    cosines = np.full(rows.shape, np.nan)
    for part in slices(len(rows), max(1, _WINDOW // max(1, rows.shape[1]))):
        here, place = np.nonzero(rows[part] >= 0)
        gap = unit(vectors[rows[part][here, place]]).astype(np.float64) - unit(queries[part])[here]
        cosines[part][here, place] = 1 - np.einsum("ij,ij->i", gap, gap) / 2
    return cosines


def windows(vectors: Array, rows: int = _WINDOW) -> Iterator[Vectors]:
    """All rows as unit vectors, `rows` of them at a time."""
    return (unit(vectors[window]) for window in slices(len(vectors), rows))


def norms(vectors: Array) -> Floats:
    """The length of each row, float64[n]: 0 or non-finite for one that has no direction. One that no float holds is the
    largest float."""
    lengths = np.empty(len(vectors))
    for window in slices(len(vectors), _WINDOW):
        part = _measure(vectors[window], np.float32, _by_norm)
        scaled = part.lengths.astype(np.float64)
        with np.errstate(over="ignore"):
            whole = np.ldexp(scaled, part.exponents)
        lengths[window] = np.where(np.isfinite(scaled) & np.isinf(whole), np.finfo(np.float64).max, whole)
    return lengths


def sample(population: int, size: int, *, seed: int) -> Ints:
    """Rows drawn without replacement, in the order of the draw: a smaller sample is the beginning of a larger one.

    >>> len(sample(5, 9, seed=0)), sample(100, 3, seed=1).tolist() == sample(100, 7, seed=1)[:3].tolist()
    (5, True)
    """
    return np.random.default_rng(seed).permutation(population)[:size]


def alignment(left: Array, right: Array, *, alpha: float = 2.0) -> Estimate:
    """Mean of |x − y|^alpha over positive pairs of unit vectors (Wang & Isola 2020): 0 is best, 2^alpha the most.

    >>> alignment(np.eye(2), np.eye(2)[::-1]).value
    2.0
    """
    distances = np.empty(len(left))
    for part in slices(len(left), _WINDOW):
        gap = unit(left[part]).astype(np.float64) - unit(right[part])
        distances[part] = np.einsum("ij,ij->i", gap, gap)
    return mean_estimate(distances ** (alpha / 2))


def uniformity(vectors: Array, *, t: float = 2.0, rows: Ints | None = None) -> Estimate:
    """log of the mean of exp(−t |x − y|²) over distinct pairs of unit vectors (Wang & Isola 2020).

    0 where all vectors are one, the less the more evenly they are spread; NaN for fewer than two. `rows` takes all
    pairs of a sample. Work n²/2 products; memory 50 MB. The influence of a vector is twice the influence of its
    mean over the others, since it stands in a pair on either side (Hájek's projection of a U-statistic).

    >>> uniformity(np.eye(4)).value
    -4.0
    """
    chosen = np.arange(len(vectors)) if rows is None else rows
    count = len(chosen)
    if count < 2:
        return Estimate.unknown(count, chosen, exact=rows is None)
    sums, shift = _kernel_sums(vectors, chosen, t)
    value = float(np.log(sums.mean() / (count - 1)) + shift)
    return Estimate(value, count, chosen, 2 * (sums / sums.mean() - 1), rows is None)


def _kernel_sums(vectors: Array, rows: Ints, t: float) -> tuple[Floats, float]:
    """For each row Σ exp(−t |x − y|² − shift) over the other rows, float64[rows], and the shift (the largest seen). A
    block beside the diagonal gives the sums of its rows and of its columns."""
    sums, shift = np.zeros(len(rows)), -np.inf
    for i in range(0, len(rows), _BLOCK):
        left = unit(vectors[rows[i : i + _BLOCK]])
        for j in range(i, len(rows), _BLOCK):
            right = left if i == j else unit(vectors[rows[j : j + _BLOCK]])
            block = left @ right.T
            if i == j:
                np.fill_diagonal(block, -np.inf)
            block -= 1.0
            block *= 2.0 * t
            highest = float(block.max())
            if highest > shift:
                sums *= np.exp(shift - highest)
                shift = highest
            np.exp(np.subtract(block, np.float32(shift), out=block), out=block)
            sums[i : i + len(left)] += block.sum(axis=1, dtype=np.float64)
            if i != j:
                sums[j : j + len(right)] += block.sum(axis=0, dtype=np.float64)
    return sums, shift


@dataclass(frozen=True, eq=False)
class Moments:
    """What one pass over unit vectors leaves: their number, their sum float64[d], the sum of their squared lengths, and
    the principal directions: variances float64[d], the largest first, and unit columns float64[d, d]."""

    count: int
    total: Floats
    squares: float
    variances: Floats
    directions: Floats

    @property
    def mean(self) -> Floats:
        return np.asarray(self.total / self.count)


def moments(vectors: Array) -> Moments:
    """One pass in float64, n·d² work; memory a window and d × d."""
    d = vectors.shape[1]
    total, second, squares = np.zeros(d), np.zeros((d, d)), 0.0
    for part in windows(vectors):
        rows = part.astype(np.float64)
        total += rows.sum(axis=0)
        second += rows.T @ rows
        squares += float(np.einsum("ij,ij->", rows, rows))
    mean = total / len(vectors)
    variances, directions = np.linalg.eigh(second / len(vectors) - np.outer(mean, mean))
    return Moments(len(vectors), total, squares, np.maximum(variances[::-1], 0.0), directions[:, ::-1])


def anisotropy(vectors: Array, cloud: Moments, rows: Ints) -> Estimate:
    """Mean cosine over i ≠ j (Ethayarajh 2019), exactly: (|Σx|² − Σ|x|²) / (n (n − 1)). 0 is even, 1 is one direction.
    `rows` are those whose influence is worked out."""
    n = cloud.count
    if n < 2:
        return Estimate.unknown(n, rows)
    return _mean_cosine(cloud.total, cloud.squares, n, unit(vectors[rows]), rows)


def centred_anisotropy(vectors: Array, cloud: Moments, rows: Ints) -> Estimate:
    """The mean cosine that is left when the mean vector is taken off every vector; a second pass. A vector that equals
    the mean is left out. NaN where fewer than two are left."""
    total, count = np.zeros(len(cloud.total)), 0
    for part in windows(vectors):
        turned = _turned(part, cloud.mean)
        total += turned.sum(axis=0)
        count += int(turned.any(axis=1).sum())
    if count < 2:
        return Estimate.unknown(count, rows)
    return _mean_cosine(total, count, count, _turned(unit(vectors[rows]), cloud.mean), rows)


def _mean_cosine(total: Floats, squares: float, count: int, chosen: Array, rows: Ints) -> Estimate:
    """Over i ≠ j, from the sum and the squared lengths of all unit vectors, and the vectors of `rows`."""
    value = float((total @ total - squares) / (count * (count - 1)))
    return Estimate(value, count, rows, 2 * ((chosen @ total - 1.0) / (count - 1) - value))


def _turned(rows: Vectors, mean: Floats) -> Floats:
    """Unit vectors of what is left without the mean; zero where that is rounding only."""
    moved = rows - mean
    length = np.linalg.norm(moved, axis=1, keepdims=True)
    return np.asarray(np.where(length > 1e-6, moved / np.maximum(length, 1e-6), 0.0))


def principal_share(vectors: Array, cloud: Moments, rows: Ints, *, top: int) -> Estimate:
    """Share of the variance around the mean that lies in the first `top` principal directions; NaN without variance."""
    whole = cloud.variances.sum()
    if not whole > _NO_VARIANCE:
        return Estimate.unknown(cloud.count, rows)
    share = float(cloud.variances[:top].sum() / whole)
    moved = unit(vectors[rows]) - cloud.mean
    places = moved @ cloud.directions
    inside = (places[:, :top] ** 2).sum(axis=1)
    influence = (inside - share * (moved**2).sum(axis=1)) / whole
    excess = _second_order(places[:_PAIRED], cloud, top) / max(float(influence.var()) / cloud.count, 1e-300)
    return Estimate(share, cloud.count, rows, influence / np.sqrt(1 + min(excess, _MOST_EXCESS)))


def _second_order(places: Floats, cloud: Moments, top: int) -> float:
    """What pairs of examples add to the jackknife's variance of a share, Σ over i < j of (second difference)², from the
    places of some examples along the principal directions.

    Where variances are close to each other, their directions turn with every example, and the influence of single ones
    is too large: the jackknife counts this part twice (Efron & Stein 1981). By simulation the error of
    variance / (1 + excess) is 1.07 times the true one for two equal variances, 1.2 for clusters and 1.4 for an even
    cloud, where the plain error was 1.25, 1.4 and 2.4 times as wide.
    """
    products = np.zeros((len(places), len(places)))
    for first in range(min(top, len(cloud.variances) - 1)):
        gaps = np.maximum(cloud.variances[first] - cloud.variances[top:], _NO_VARIANCE * cloud.variances[0])
        others = places[:, top:] / np.sqrt(gaps)
        products += np.outer(places[:, first], places[:, first]) * (others @ others.T)
    np.fill_diagonal(products, 0.0)
    share = cloud.count / max(1, len(places))
    return float(2 * share**2 * np.square(products).sum() / (cloud.count**4 * cloud.variances.sum() ** 2))


def used_directions(cloud: Moments) -> int:
    """In how many directions the vectors vary at all: the rank of their covariance."""
    return int((cloud.variances > _NO_VARIANCE * cloud.variances[0]).sum()) if cloud.variances[0] > 0 else 0
