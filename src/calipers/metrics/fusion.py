"""Two rankings of the same corpus as one: by reciprocal ranks, or by a weighted sum of scaled scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calipers.metrics.arrays import Floats, Ints
from calipers.metrics.search import Hits, sort_hits


@dataclass(frozen=True)
class Fusion:
    """How two rankings become one. `weight` is the first one's share of a sum of scores, each scaled to 0–1 among the
    results of its query; without it, ranks count: the sum of 1 / (constant + rank) (Cormack et al. 2009). Only the
    first `depth` results of each ranking count; a document that a ranking lacks has 0 there."""

    weight: float | None = None
    constant: float = 60.0
    depth: int = 1_000


def fuse(first: Hits, second: Hits, fusion: Fusion) -> Hits:
    """All documents that either has, best first. Equal sums are in the order of the corpus, by scores that differ in
    their last digits: no two results of a query tie.

    >>> one = Hits(np.array([0, 2]), np.array([7, 3]), np.array([0.9, 0.8]))
    >>> two = Hits(np.array([0, 2]), np.array([3, 5]), np.array([12.0, 4.0]))
    >>> fuse(one, two, Fusion()).documents, fuse(one, two, Fusion(weight=0.7)).documents
    (array([3, 7, 5]), array([7, 3, 5]))
    """
    lists = [hits.take(hits.ranks <= fusion.depth) for hits in (first, second)]
    if fusion.weight is None:
        parts = [1 / (fusion.constant + hits.ranks) for hits in lists]
    else:
        parts = [share * _scaled(hits) for share, hits in zip((fusion.weight, 1 - fusion.weight), lists, strict=True)]
    query, document, score = _add_up(lists, parts)
    hits = sort_hits(query, document, score, queries=len(first.offsets) - 1)
    return Hits(hits.offsets, hits.documents, _untied(hits))


def _add_up(lists: Sequence[Hits], parts: Sequence[Floats]) -> tuple[Ints, Ints, Floats]:
    """Each pair of a query and a document once, with the sum of its parts."""
    queries, documents = (np.concatenate([getattr(h, name) for h in lists]) for name in ("queries", "documents"))
    width = int(documents.max(initial=0)) + 1
    keys, place = np.unique(queries * width + documents, return_inverse=True)
    sums = np.zeros(len(keys))
    np.add.at(sums, place, np.concatenate(parts))
    return keys // width, keys % width, sums


def _scaled(hits: Hits) -> Floats:
    """Scores from 0 for the last result of a query to 1 for its first; 1 where all are equal."""
    full = np.flatnonzero(np.diff(hits.offsets))
    highest, lowest = np.zeros(len(hits.offsets) - 1), np.zeros(len(hits.offsets) - 1)
    highest[full], lowest[full] = hits.scores[hits.offsets[full]], hits.scores[hits.offsets[full + 1] - 1]
    span = (highest - lowest)[hits.queries]
    above = hits.scores - lowest[hits.queries]
    return np.divide(above, span, out=np.ones(len(span)), where=span > 0)


def _untied(hits: Hits) -> Floats:
    """Scores that fall strictly within a query: an equal one is lowered to the next number below its predecessor."""
    scores = hits.scores.copy()
    starts = set(hits.offsets.tolist())
    equal = np.flatnonzero(np.diff(scores) >= 0) + 1
    for row in equal.tolist():
        while row not in starts and row < len(scores) and scores[row] >= scores[row - 1]:
            scores[row] = np.nextafter(scores[row - 1], -np.inf)
            row += 1
    return scores
