"""NanoBEIR's sets as samples of a reranking evaluator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from calipers.core import CalipersError
from calipers.data import nanobeir
from calipers.interop._reports import logger
from calipers.tasks.nanobeir import SETS


def check_names(names: Sequence[str]) -> None:
    if not names:
        raise ValueError("dataset_names cannot be empty: leave it out (None) for the usual sets.")
    unknown = [name for name in names if name.lower() not in SETS]
    if unknown:
        raise ValueError(f"{', '.join(unknown)}: no NanoBEIR dataset; expected some of {', '.join(SETS)}.")


def samples(dataset_id: str, split: str, rerank_k: int, *, compat: bool) -> list[dict[str, Any]]:
    """One sample for each query that BM25 ranked: `query-id`, `query`, `positive` and the first `rerank_k` documents.

    Positives come in the order of the judgements; in compat mode in that of a Python set, which decides ties there.
    """
    try:
        found = nanobeir.read_set(dataset_id, split, rerank_k)
    except CalipersError as error:
        raise ValueError(str(error)) from error
    for note in found.notes:
        logger.warning(note)
    return [
        {
            "query-id": row.id,
            "query": row.query,
            "positive": _in_their_order(row.positives) if compat else list(row.positives.values()),
            "documents": list(row.documents),
        }
        for row in found.rows
    ]


def _in_their_order(positives: Mapping[str, str]) -> list[str]:
    # iter: a set that grows as theirs does has the same order; one made of a mapping is sized beforehand.
    return [positives[id] for id in set(iter(positives))]
