"""How alike two lists of results are, and how well one list agrees with graded judgements.

Lists are tables int[q, k] of documents, best first, -1 where there is none; each gives one value per query.
"""

from __future__ import annotations

import numpy as np

from calipers.metrics.arrays import Array, Floats, Ints, share

CHURNED = 0.5  # a query of whose results less than this share stays has other results


def jaccard(left: Array, right: Array) -> Floats:
    """|A ∩ B| / |A ∪ B| of the two lists of each query, float64[q] in 0–1; the order within a list does not matter.

    No document stands twice in a list. Two empty lists are NaN; an empty one beside another is 0.

    >>> jaccard(np.array([[1, 2, 3], [4, -1, -1]]), np.array([[3, 1, 9], [-1, -1, -1]]))
    array([0.5, 0. ])
    """
    shared = _in_both(left, right)
    union = (left >= 0).sum(axis=1) + (right >= 0).sum(axis=1) - shared
    return share(shared, union)


def churned(left: Array, right: Array) -> Floats:
    """1 where fewer than half of the results stay, of the longer of the two lists of a query, else 0: float64[q].

    Two empty lists are NaN. With ten results, a query has churned when at most four are in both lists.

    >>> churned(np.array([[1, 2, 3, 4], [1, 2, 3, 4]]), np.array([[1, 2, 8, 9], [1, 7, 8, 9]]))
    array([0., 1.])
    """
    longer = np.maximum((left >= 0).sum(axis=1), (right >= 0).sum(axis=1))
    stay = share(_in_both(left, right), longer)
    return np.where(np.isnan(stay), np.nan, (stay < CHURNED).astype(np.float64))


def _in_both(left: Array, right: Array) -> Ints:
    """How many documents are in both lists of a query: sorted, each stands twice. Memory q · k, not q · k²."""
    both = np.sort(np.concatenate([left, right], axis=1), axis=1)
    return np.asarray(((both[:, 1:] == both[:, :-1]) & (both[:, 1:] >= 0)).sum(axis=1))


def reversals(scores: Floats, grades: Floats) -> Floats:
    """The share of pairs of different grades in which the lower grade stands above, float64[q] in 0–1.

    `scores` and `grades` float[q, k], best first, grades NaN where a result is not judged or there is none. A pair
    with equal scores stands either way and counts half. NaN for a query without two different grades. 0.5 is what
    a random order gives.

    >>> reversals(np.array([[3.0, 2.0, 1.0]]), np.array([[0.0, 2.0, 1.0]])).round(3)
    array([0.667])
    """
    grades, scores = _judged_first(grades, scores)
    bad, pairs = np.zeros(len(grades)), np.zeros(len(grades))
    for apart in range(1, grades.shape[1]):  # all pairs so many places apart: memory q · k, not q · k²
        upper, lower = grades[:, :-apart], grades[:, apart:]
        with np.errstate(invalid="ignore"):
            differ = np.abs(upper - lower) > 0
            tied = differ & (scores[:, :-apart] == scores[:, apart:])
            wrong = differ & ~tied & (upper < lower)
        bad += wrong.sum(axis=1) + 0.5 * tied.sum(axis=1)
        pairs += differ.sum(axis=1)
    return share(bad, pairs)


def _judged_first(grades: Floats, scores: Floats) -> tuple[Floats, Floats]:
    """Both without the places that no query has judged, when what is judged moves to the front in its order."""
    unjudged = np.isnan(grades)
    order = np.argsort(unjudged, axis=1, kind="stable")[:, : int((~unjudged).sum(axis=1).max(initial=0))]
    return np.take_along_axis(grades, order, axis=1), np.take_along_axis(scores, order, axis=1)


def above(grades: Floats, low: float, high: float) -> Floats:
    """1 where a result of grade `low` stands above every result of grade `high`, else 0: float64[q].

    NaN for a query whose list does not have both. Grades as in `reversals`.

    >>> above(np.array([[1.0, 3.0], [3.0, 1.0], [3.0, 0.0]]), 1, 3)
    array([ 1.,  0., nan])
    """
    places = np.arange(grades.shape[1])

    def first(grade: float) -> Ints:
        return np.asarray(np.where(grades == grade, places, grades.shape[1]).min(axis=1, initial=grades.shape[1]))

    one, other = first(low), first(high)
    both = (one < grades.shape[1]) & (other < grades.shape[1])
    return np.where(both, (one < other).astype(np.float64), np.nan)


def table(example: Ints, rank: Ints, values: Array, *, queries: int, k: int, missing: float) -> Array:
    """Loose results to [q, k]: `rank` counts from 1, those behind k are left out.

    >>> table(np.array([0, 1, 1]), np.array([1, 2, 1]), np.array([5, 6, 7]), queries=2, k=2, missing=-1)
    array([[ 5, -1],
           [ 7,  6]])
    """
    rows = np.full((queries, k), missing, dtype=np.result_type(values.dtype, np.min_scalar_type(missing)))
    kept = rank <= k
    rows[example[kept], rank[kept] - 1] = values[kept]
    return rows
