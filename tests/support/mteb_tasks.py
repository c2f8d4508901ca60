"""mteb tasks over local data, one per type that the tests compare with ours."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

# mteb makes the folder of its results when it is imported: not in the home of whoever runs the tests.
os.environ.setdefault("MTEB_CACHE", tempfile.mkdtemp(prefix="mteb-"))

import mteb
import numpy as np
from datasets import Dataset, DatasetDict
from mteb.abstasks import AbsTask, AbsTaskRetrieval
from mteb.abstasks.sts import AbsTaskSTS
from mteb.abstasks.task_metadata import TaskMetadata

Rows = Sequence[Mapping[str, Any]]


def metadata(name: str, type_: str, main_score: str) -> TaskMetadata:
    return TaskMetadata(
        name=name,
        description="local rows",
        type=type_,
        main_score=main_score,
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        dataset={"path": "local/rows", "revision": "1"},
    )


def sts(name: str, rows: Rows) -> AbsTask:
    """Rows with sentence1, sentence2 and score."""

    class Local(AbsTaskSTS):
        min_score, max_score = 0, 5

        def load_data(self, *_: Any, **__: Any) -> None:
            self.dataset = DatasetDict({"test": Dataset.from_list([dict(row) for row in rows])})
            self.data_loaded = True

    Local.metadata = metadata(name, "STS", "cosine_spearman")
    return Local()


def retrieval(
    name: str,
    queries: Rows,
    corpus: Rows,
    relevant: Mapping[str, Mapping[str, int]],
    candidates: Mapping[str, list[str]] | None = None,
) -> AbsTask:
    """Rows with id and text; the main score is nDCG@10 as pytrec_eval has it for each query. mteb rounds its own to
    five digits. With `candidates` (query id → document ids) these are reranked."""

    class Local(AbsTaskRetrieval):
        def load_data(self, *_: Any, **__: Any) -> None:
            parts = {
                "queries": Dataset.from_list([dict(row) for row in queries]),
                "corpus": Dataset.from_list([dict(row) for row in corpus]),
                "relevant_docs": {query: dict(grades) for query, grades in relevant.items()},
                "top_ranked": candidates,
            }
            self.dataset = {"default": {"test": parts}}
            self.data_loaded = True

        def task_specific_scores(self, scores: Any, *_: Any, **__: Any) -> dict[str, float]:
            return {"exact_ndcg": float(np.mean([query["ndcg_cut_10"] for query in scores.values()]))}

    Local.metadata = metadata(name, "Reranking" if candidates else "Retrieval", "exact_ndcg")
    return Local()


__all__ = ["mteb", "retrieval", "sts"]
