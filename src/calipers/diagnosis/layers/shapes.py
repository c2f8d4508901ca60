"""Tables that pictures of a space are drawn from: the cone of its cosines, points of reference for alignment and
uniformity, and a map in two dimensions."""

from __future__ import annotations

import numpy as np

from calipers.core import Columns
from calipers.diagnosis.layer import judged_pairs
from calipers.metrics import geometry, search
from calipers.metrics.arrays import Array, Floats, Ints
from calipers.metrics.codecs import cosines
from calipers.runs.space import Space

_PAIRS = 20_000  # random ones, and positive ones at most
_BINS = 40  # of cosines between -1 and 1
_CENTRED = 2000  # documents that stand for all with the mean removed
_ON_MAP, _MAPPED_QUERIES = 1000, 500
_NEIGHBOURS = 10
_ANGLES = 20_000  # steps of an integral over the sphere


def tables(space: Space, *, alpha: float, t: float, seed: int) -> dict[str, Columns]:
    """`cone`: how many random pairs of documents and how many positive pairs have a cosine from each `low` on.
    `references`: alignment and uniformity of spaces that a reader knows, by name."""
    left, right = _positives(space, seed)
    return {
        "cone": _cone(space.corpus.vectors, left, right, seed),
        "references": _references(space.corpus.vectors, left, right, alpha=alpha, t=t, seed=seed),
    }


def _positives(space: Space, seed: int) -> tuple[Array, Array]:
    """The vectors of the two sides of pairs that belong together, float[n, d] each; n may be 0."""
    if space.pairs is not None:
        rows = geometry.sample(len(space.pairs.ids), _PAIRS, seed=seed)
        return space.pairs.left[rows], space.pairs.right[rows]
    query, document, grade = judged_pairs(space)
    rows = np.flatnonzero(grade >= 1)
    rows = rows[geometry.sample(len(rows), _PAIRS, seed=seed)]
    if space.queries is None or not len(rows):
        return (np.empty((0, space.corpus.vectors.shape[1])),) * 2
    return space.queries.vectors[query[rows]], space.corpus.vectors[document[rows]]


def _cone(vectors: Array, left: Array, right: Array, seed: int) -> Columns:
    rng = np.random.default_rng(seed)
    one, step = rng.integers(0, len(vectors), _PAIRS), rng.integers(1, len(vectors), _PAIRS)
    other = (one + step) % len(vectors)
    edges = np.linspace(-1, 1, _BINS + 1)
    return {
        "low": edges[:-1],
        "random": np.histogram(cosines(vectors[one], vectors[other]), edges)[0],
        "positive": np.histogram(cosines(left, right), edges)[0] if len(left) else np.zeros(_BINS, np.int64),
    }


def _references(vectors: Array, left: Array, right: Array, *, alpha: float, t: float, seed: int) -> Columns:
    drawn = geometry.unit(vectors[np.sort(geometry.sample(len(vectors), _CENTRED, seed=seed))])
    mean = drawn.mean(axis=0)
    rows = [("all at one point", 0.0, 0.0), ("random directions", *_at_random(vectors.shape[1], alpha, t))]
    if len(left):
        sides = [geometry.unit_or_zero(geometry.unit_or_zero(side) - mean) for side in (left, right)]
        centred = geometry.unit_or_zero(drawn - mean)
        spread = geometry.uniformity(centred[centred.any(axis=1)], t=t, rows=None).value
        rows.append(("mean removed", spread, float((np.linalg.norm(sides[0] - sides[1], axis=1) ** alpha).mean())))
    names, uniformity, alignment = zip(*rows, strict=True)
    return {"name": np.array(names), "uniformity": np.array(uniformity), "alignment": np.array(alignment)}


def _at_random(dimensions: int, alpha: float, t: float) -> tuple[float, float]:
    """Uniformity and alignment of directions that are drawn evenly: an integral over the angle, whose density is
    sin(θ)^(d − 2). In one dimension there are two directions.

    >>> [round(value, 2) for value in _at_random(384, 2.0, 2.0)]
    [-3.98, 2.0]
    """
    angles = (np.arange(_ANGLES) + 0.5) / _ANGLES * np.pi
    if dimensions == 1:
        angles = np.array([0.0, np.pi])
    weights = np.sin(angles) ** (dimensions - 2) if dimensions > 1 else np.ones(2)
    weights /= weights.sum()
    squared = 2 - 2 * np.cos(angles)
    return float(np.log(np.sum(weights * np.exp(-t * squared)))), float(np.sum(weights * squared ** (alpha / 2)))


def project(documents: Array, queries: Array, succeeds: Floats, seed: int) -> tuple[Columns, float]:
    """A map of documents and queries by the two strongest principal directions of the documents: `kind` (document,
    succeeds, fails, or query where nothing is judged), `x` and `y`. Beside it the share of the ten nearest documents
    of a document that are among its ten nearest on the map, too: what a reader may believe of it. NaN for a corpus too
    small to have others.

    `succeeds` is 1 or 0 for each query, NaN where it is not judged. At most 1,000 documents are drawn, and 500
    queries.
    """
    drawn = np.sort(geometry.sample(len(documents), _ON_MAP, seed=seed))
    chosen = np.sort(geometry.sample(len(queries), _MAPPED_QUERIES, seed=seed))
    rows, others = geometry.unit(documents[drawn]), geometry.unit(queries[chosen])
    mean = rows.mean(axis=0)
    _, _, directions = np.linalg.svd(rows - mean, full_matrices=False)
    first = directions[:2] if len(directions) > 1 else np.vstack([directions[:1], np.zeros_like(mean)])
    flat, placed = (rows - mean) @ first.T, (others - mean) @ first.T
    names = ["query" if np.isnan(value) else "succeeds" if value else "fails" for value in succeeds[chosen].tolist()]
    table = {
        "kind": np.array(["document"] * len(drawn) + names),
        "x": np.concatenate([flat[:, 0], placed[:, 0]]).astype(np.float64),
        "y": np.concatenate([flat[:, 1], placed[:, 1]]).astype(np.float64),
    }
    return table, _kept_neighbours(rows, flat)


def _kept_neighbours(rows: Array, flat: Array) -> float:
    k = min(_NEIGHBOURS, (len(rows) - 1) // 2)
    if k < 1:
        return float("nan")
    near = search.nearest_own(rows, np.arange(len(rows)), k)[1]
    apart = np.square(flat[:, None, :] - flat[None, :, :]).sum(axis=2)
    np.fill_diagonal(apart, np.inf)
    on_map = _smallest(apart, k)
    shared = [len(set(a) & set(b)) for a, b in zip(near.tolist(), on_map.tolist(), strict=True)]
    return float(np.mean(shared) / k)


def _smallest(distances: Array, k: int) -> Ints:
    return np.asarray(np.argsort(distances, axis=1, kind="stable")[:, :k])
