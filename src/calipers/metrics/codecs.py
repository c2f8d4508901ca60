"""Codecs: how an index stores vectors in fewer bits, and how much of a vector's direction is left after it.

Vectors are float[n, d] and are scaled to length 1 first, as an index for cosines has them. A codec is fitted on the
vectors of a corpus (at most 20,000 of them, a seeded sample):

- fp16: half precision; nothing is fitted.
- int8, int4: each dimension has 256 (16) even levels between the 0.1 (1) and the 99.9 (99) percentile of the corpus;
  beyond is clipped. In int4 two dimensions share a byte.
- binary: the sign of each dimension, eight to a byte; it decodes to the mean of the corpus on that side of 0.
- pq: product quantisation; parts of 8 dimensions (or of the largest divisor of d below) have 256 centroids each, fewer
  for a corpus of less than 256 (k-means on at most 8,192 vectors, 10 rounds).

A vector without a direction (zero, NaN) has codes like any other, but no stability.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calipers.metrics.arrays import Array, Floats, Vectors, slices
from calipers.metrics.geometry import unit_or_zero

Codes = Array
Tables = Mapping[str, Array]

_CALIBRATED = 20_000  # vectors of the corpus that are looked at
_WIDE = 4.0  # the step of a dimension that is constant on the corpus: what differs by 2 at most is all level 0
_PART = 8  # dimensions of a part of pq
_TRAINED, _ROUNDS = 8192, 10  # vectors and rounds of its k-means
_CELLS = 1 << 21  # numbers of an intermediate array: 8 MB in float32
_IN_CACHE = 1 << 17  # the same where ten arrays of this size are in use by turns: half a MB each


@dataclass(frozen=True, eq=False)
class Codec:
    """A way of storing vectors of `dimensions` numbers; `tables` is what was fitted on the corpus."""

    name: str
    dimensions: int
    tables: Tables

    def encode(self, vectors: Array) -> Codes:
        """One row for each vector: float16[n, d] or uint8[n, m] with m = d, ⌈d/2⌉, ⌈d/8⌉ or the number of parts."""
        return CODECS[self.name].encode(unit_or_zero(vectors), self.tables)

    def decode(self, codes: Codes) -> Vectors:
        """float32[n, d]; not of length 1."""
        return CODECS[self.name].decode(codes, self.tables, self.dimensions)

    @property
    def bits(self) -> float:
        """Bits that a stored vector takes for each dimension."""
        row = self.encode(np.ones((1, self.dimensions), np.float32))
        return 8 * row.nbytes / self.dimensions


@dataclass(frozen=True)
class CodecMethod:
    """How a codec of one name is fitted, encodes and decodes."""

    about: str
    fit: Callable[[Vectors, int], dict[str, Array]]
    encode: Callable[[Vectors, Tables], Codes]
    decode: Callable[[Codes, Tables, int], Vectors]


def fit(name: str, vectors: Array, *, seed: int = 42) -> Codec:
    """A codec for vectors like these, float[n, d]; rows without a direction are left out, and one must remain."""
    if name not in CODECS:
        raise ValueError(f"there is no codec {name!r}: expected {', '.join(CODECS)}")
    rows = np.random.default_rng(seed).permutation(len(vectors))[:_CALIBRATED]
    drawn = unit_or_zero(vectors[np.sort(rows)])
    drawn = drawn[drawn.any(axis=1)]
    if not len(drawn):
        raise ValueError("a codec needs at least one vector that has a direction")
    return Codec(name, vectors.shape[1], CODECS[name].fit(drawn, seed))


def stability(vectors: Array, codec: Codec) -> Floats:
    """G_q = cos(x, Q(x)), float64[n] in -1–1: 1 where the codec loses nothing. NaN where either has no direction.

    >>> half = Codec("fp16", 2, {})
    >>> stability(np.array([[3.0, 4.0], [0.0, 0.0]]), half).round(6)
    array([ 1., nan])
    """
    stabilities = np.empty(len(vectors))
    for part in slices(len(vectors), max(1, _IN_CACHE // max(1, vectors.shape[1]))):
        rows = unit_or_zero(vectors[part])
        stabilities[part] = cosines(rows, codec.decode(CODECS[codec.name].encode(rows, codec.tables)))
    return stabilities


def cosines(left: Array, right: Array) -> Floats:
    """Of each row with its counterpart, in float64; NaN where a side has no direction."""
    a, b = np.asarray(left, np.float64), np.asarray(right, np.float64)
    lengths = np.vecdot(a, a) * np.vecdot(b, b)
    ratios = np.vecdot(a, b) / np.sqrt(np.where(lengths > 0, lengths, np.nan))
    return np.asarray(np.minimum(np.maximum(ratios, -1.0), 1.0))


def _fit_range(vectors: Vectors, levels: int, clipped: float) -> dict[str, Array]:
    """`levels` steps between two percentiles; `clipped` percent of the values at either end lie outside."""
    low, high = np.percentile(vectors, [clipped, 100 - clipped], axis=0)
    step = ((high - low) / levels).astype(np.float32)
    return {"low": low.astype(np.float32), "step": np.where(step > 0, step, np.float32(_WIDE))}


def _levels(vectors: Vectors, tables: Tables, most: int) -> NDArray[np.uint8]:
    level = vectors - tables["low"]
    level /= tables["step"]
    return np.clip(np.rint(level, out=level), 0, most, out=level).astype(np.uint8)


def _values(levels: Codes, tables: Tables) -> Vectors:
    values: Vectors = np.multiply(levels, tables["step"], dtype=np.float32)
    values += tables["low"]
    return values


def _encode_int4(vectors: Vectors, tables: Tables) -> Codes:
    levels = _levels(vectors, tables, 15)
    even = np.pad(levels, ((0, 0), (0, levels.shape[1] % 2)))
    return np.asarray(even[:, ::2] << 4 | even[:, 1::2])


def _decode_int4(codes: Codes, tables: Tables, dimensions: int) -> Vectors:
    return _values(np.stack([codes >> 4, codes & 15], axis=2).reshape(len(codes), -1)[:, :dimensions], tables)


def _fit_sides(vectors: Vectors, seed: int) -> dict[str, Array]:
    """The mean of each dimension above 0 and of what is not; a side that the corpus lacks mirrors the other one."""
    above = vectors > 0
    counts = np.stack([(~above).sum(axis=0), above.sum(axis=0)])
    sums = np.stack([np.where(above, 0, vectors).sum(axis=0), np.where(above, vectors, 0).sum(axis=0)])
    means = sums / np.maximum(counts, 1)
    return {"sides": np.where(counts > 0, means, -means[::-1]).astype(np.float32)}


def _decode_sides(codes: Codes, tables: Tables, dimensions: int) -> Vectors:
    above = np.unpackbits(codes, axis=1, count=dimensions).astype(bool)
    return np.asarray(np.where(above, tables["sides"][1], tables["sides"][0]), dtype=np.float32)


def _fit_centroids(vectors: Vectors, seed: int) -> dict[str, Array]:
    """k-means in all parts at once, from rows drawn at random: float32[parts, centroids, dimensions of a part].

    A centroid that nothing is nearest to stays. FAISS's own k-means takes minutes where others use the cores.
    """
    d = vectors.shape[1]
    width = next(size for size in range(min(_PART, d), 0, -1) if d % size == 0)
    rows = vectors[np.random.default_rng(seed).permutation(len(vectors))[:_TRAINED]]
    centroids = rows[:256].reshape(-1, d // width, width).transpose(1, 0, 2).copy()
    for _ in range(_ROUNDS):
        centroids = _move(centroids, rows, _encode_centroids(rows, {"centroids": centroids}))
    return {"centroids": centroids}


def _move(centroids: Vectors, rows: Vectors, codes: Codes) -> Vectors:
    """Every centroid to the mean of what is nearest to it."""
    parts, k, width = centroids.shape
    place = (codes + np.arange(parts) * k).ravel()
    counts = np.bincount(place, minlength=parts * k)
    columns = rows.reshape(-1, width).T
    sums = np.stack([np.bincount(place, column, minlength=parts * k) for column in columns], axis=1)
    means = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centroids.reshape(-1, width))
    return means.reshape(centroids.shape).astype(np.float32)


def _encode_centroids(vectors: Vectors, tables: Tables) -> Codes:
    """The nearest centroid of each part: |x − c|² falls as x·c − |c|²/2 rises."""
    centroids = tables["centroids"]
    parts, _, width = centroids.shape
    half = np.einsum("pkd,pkd->pk", centroids, centroids)[:, None] / np.float32(2)
    turned = np.ascontiguousarray(centroids.transpose(0, 2, 1))
    codes = np.empty((len(vectors), parts), np.uint8)
    for part in slices(len(vectors), _CELLS // (parts * centroids.shape[1])):
        rows = vectors[part].reshape(-1, parts, width)
        near = np.ascontiguousarray(rows.transpose(1, 0, 2)) @ turned
        near -= half
        codes[part] = near.argmax(axis=2).T
    return codes


def _decode_centroids(codes: Codes, tables: Tables, dimensions: int) -> Vectors:
    centroids = tables["centroids"]
    return np.asarray(centroids[np.arange(len(centroids)), codes].reshape(len(codes), -1))


CODECS: dict[str, CodecMethod] = {
    "fp16": CodecMethod(
        "half precision",
        lambda vectors, seed: {},
        lambda vectors, tables: vectors.astype(np.float16),
        lambda codes, tables, d: codes.astype(np.float32),
    ),
    "int8": CodecMethod(
        "256 levels in each dimension",
        lambda vectors, seed: _fit_range(vectors, 255, 0.1),
        lambda vectors, tables: _levels(vectors, tables, 255),
        lambda codes, tables, d: _values(codes, tables),
    ),
    "int4": CodecMethod(
        "16 levels in each dimension", lambda vectors, seed: _fit_range(vectors, 15, 1.0), _encode_int4, _decode_int4
    ),
    "binary": CodecMethod(
        "the sign of each dimension",
        _fit_sides,
        lambda vectors, tables: np.packbits(vectors > 0, axis=1),
        _decode_sides,
    ),
    "pq": CodecMethod(
        "the nearest of 256 centroids for every 8 dimensions", _fit_centroids, _encode_centroids, _decode_centroids
    ),
}
