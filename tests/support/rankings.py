"""Rankings from the dictionaries that pytrec_eval takes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from calipers.metrics import ranking_ties as tied
from calipers.metrics.arrays import Floats, Ints
from calipers.metrics.ranking import EmptyQueries, Rankings


def from_runs(
    run: Mapping[str, Mapping[str, float]],
    qrels: Mapping[str, Mapping[str, float]],
    *,
    relevant_from: float | None = None,
    empty_queries: EmptyQueries = "nan",
) -> Rankings:
    """Rankings of all queries of the qrels, in their order: query id → {document id: grade}; grades below 0 are 0.

    A query that the run lacks has no documents, and so scores 0.
    """
    hits = [run.get(query, {}) for query in qrels]
    grades = [row.get(name, np.nan) for row, result in zip(qrels.values(), hits, strict=True) for name in result]
    positive = [[g for g in judgements.values() if not g <= 0] for judgements in qrels.values()]
    return Rankings(
        offsets=np.cumsum([0, *map(len, hits)]),
        scores=np.array([score for result in hits for score in result.values()], dtype=np.float64),
        relevance=np.fmax(np.array(grades, dtype=np.float64), 0.0),
        ideal_offsets=np.cumsum([0, *map(len, positive)]),
        ideal_relevance=np.array([g for grades in positive for g in grades], dtype=np.float64),
        judged=~np.isnan(np.array(grades, dtype=np.float64)),
        documents=np.array([name for result in hits for name in result], dtype=np.object_),
        queries=tuple(qrels),
        relevant_from=relevant_from,
        empty_queries=empty_queries,
    )


def ideal_of_retrieved(offsets: Ints, relevance: Floats) -> tuple[Ints, Floats]:
    """The `ideal_offsets` and `ideal_relevance` that know only what was retrieved."""
    positive = np.asarray(relevance) > 0
    counts = tied.count(np.asarray(offsets), positive)
    return np.concatenate([[0], np.cumsum(counts)]), np.asarray(relevance, np.float64)[positive]
