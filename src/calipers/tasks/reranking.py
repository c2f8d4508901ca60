"""Reranking: how much better a cross-encoder orders the documents of a query than they came.

A row is a query with its `documents`, in the order of the first stage: texts, or objects with text and relevance; which
of them are relevant may also be said by `positive` texts. Without `documents`, `positive` and `negative` texts are
ranked. Positives that the first stage did not find count in the ideal ranking, so a perfect reranker of a bad first
stage is not perfect, and one that changes nothing changes no figure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.core import (
    Column,
    Columns,
    DataError,
    Dataset,
    DefaultData,
    Document,
    Metric,
    Outcomes,
    PairScorer,
    Progress,
    RequestError,
    Statistic,
    Task,
)
from calipers.metrics import ranking
from calipers.metrics.means import mean_statistic
from calipers.tasks import pair_scores

COMPAT = "sentence-transformers"


@dataclass(frozen=True)
class RerankingOptions:
    at_k: int = 10
    always_rerank_positives: bool = True  # add the positives that the first stage did not find
    relevant_from: float | None = None  # grades from here on are relevant, alike; None: grades as they are
    compat: str | None = None  # "sentence-transformers": its figures, faults included

    def __post_init__(self) -> None:
        if self.at_k < 1:
            raise RequestError(f"--at-k must be at least 1, found {self.at_k}")
        if self.compat not in (None, COMPAT):
            raise RequestError(f"--compat must be {COMPAT}, found {self.compat!r}")


@dataclass(frozen=True)
class Candidates:
    """The documents of one query: `found` of them came from the first stage, the others were added to be ranked."""

    texts: list[str]
    relevance: list[float]
    found: int
    missing: list[float]  # grades of positives that are not among the texts


def check(dataset: Dataset) -> None:
    for row in range(len(dataset)):
        documents, positives = dataset.columns["documents_column"][row], dataset.columns["positive_column"][row]
        graded = any(d.relevance is not None for d in documents or [])
        if not graded and not positives:
            raise DataError(
                f"the query {dataset.ids[row]!r} of {dataset.source.path} says of no document that it is relevant: "
                "expected a relevance in its documents, or positive texts"
            )
        negatives = dataset.columns["negative_column"][row]
        if bool(negatives) == bool(documents) and not (documents == [] and not negatives):
            raise DataError(
                f"the query {dataset.ids[row]!r} of {dataset.source.path} needs either documents or negatives"
            )


def text_ids(dataset: Dataset) -> Mapping[str, Sequence[str]]:
    return {}


def run(model: PairScorer, dataset: Dataset, options: RerankingOptions, progress: Progress) -> Outcomes:
    """Outcomes per query: the metrics before (`base_…`) and after; per document its score, grade and first place."""
    rows = [_candidates(dataset, row, options) for row in range(len(dataset))]
    queries = dataset.columns["query_column"]
    pairs = [(query, text) for query, row in zip(queries, rows, strict=True) for text in row.texts]
    owners = [id for id, row in zip(dataset.ids, rows, strict=True) for _ in row.texts]
    scores = pair_scores.one_score(pair_scores.ask(model, pairs, owners, progress), "reranking")
    reranked = measure(rows, scores, options)
    based = {f"base_{name}": values for name, values in base(rows, options).items()} if _has_base(dataset) else {}
    sizes = [len(row.texts) for row in rows]
    return Outcomes(
        ids=dataset.ids,
        columns={**reranked, **based},
        texts={"query": tuple(queries)},
        details={
            "documents": {
                "example": np.repeat(np.arange(len(rows)), sizes),
                "place": np.concatenate([np.arange(n) for n in sizes]),
                "score": scores,
                "relevance": np.array([grade for row in rows for grade in row.relevance]),
            }
        },
        counts={
            "queries": len(rows),
            "documents": len(pairs),
            "without_relevant": int(np.isnan(reranked["map"]).sum()),
            "positives_not_found": sum(len(row.missing) + len(row.texts) - row.found for row in rows) if based else 0,
        },
    )


def measure(rows: Sequence[Candidates], scores: NDArray[np.floating[Any]], options: RerankingOptions) -> dict[str, Any]:
    """Each metric for each query, float64[q]."""
    compatible = options.compat is not None
    ideal = [row.relevance + ([] if compatible else row.missing) for row in rows]
    return _metrics(_rankings([row.relevance for row in rows], scores, ideal, compatible), options)


def base(rows: Sequence[Candidates], options: RerankingOptions) -> dict[str, Any]:
    """The same for the order in which the documents came; positives that were not found come last."""
    scores = np.concatenate([np.arange(len(row.texts), 0.0, -1.0) for row in rows])
    ideal = [row.relevance + row.missing for row in rows]
    compatible = options.compat is not None
    return _metrics(_rankings([row.relevance for row in rows], scores, ideal, compatible), options)


def _candidates(dataset: Dataset, row: int, options: RerankingOptions) -> Candidates:
    documents: list[Document] | None = dataset.columns["documents_column"][row]
    positives = list(dict.fromkeys(dataset.columns["positive_column"][row] or []))
    if not documents and dataset.columns["negative_column"][row]:
        negatives = [text for text in dict.fromkeys(dataset.columns["negative_column"][row]) if text not in positives]
        return Candidates([*positives, *negatives], [1.0] * len(positives) + [0.0] * len(negatives), 0, [])
    found = documents or []
    grades = [_grade(document, positives, options) for document in found]
    texts = [document.text for document in found]
    absent = [text for text in positives if text not in set(texts)]
    if options.always_rerank_positives:
        return Candidates([*texts, *absent], [*grades, *[1.0] * len(absent)], len(texts), [])
    return Candidates(texts, grades, len(texts), [1.0] * len(absent))


def _grade(document: Document, positives: Sequence[str], options: RerankingOptions) -> float:
    if document.relevance is None:
        return float(document.text in positives)
    if options.relevant_from is not None:
        return float(document.relevance >= options.relevant_from)
    return max(document.relevance, 0.0)


def _has_base(dataset: Dataset) -> bool:
    return any(documents for documents in dataset.columns["documents_column"])


def _rankings(
    relevance: Sequence[Sequence[float]],
    scores: NDArray[np.floating[Any]],
    ideal: Sequence[Sequence[float]],
    zero: bool,
) -> ranking.Rankings:
    best = [[grade for grade in row if grade > 0] for row in ideal]
    return ranking.Rankings(
        offsets=np.cumsum([0, *map(len, relevance)]),
        scores=scores,
        relevance=np.array([grade for row in relevance for grade in row], dtype=np.float64),
        ideal_offsets=np.cumsum([0, *map(len, best)]),
        ideal_relevance=np.array([grade for row in best for grade in row], dtype=np.float64),
        empty_queries="zero" if zero else "nan",
    )


def _metrics(rankings: ranking.Rankings, options: RerankingOptions) -> dict[str, NDArray[np.float64]]:
    ties: ranking.Ties = "sentence-transformers" if options.compat else "expected"
    return {
        f"ndcg@{options.at_k}": ranking.ndcg(rankings, options.at_k, ties=ties),
        f"mrr@{options.at_k}": ranking.mrr(rankings, options.at_k, ties=ties),
        "map": ranking.average_precision(rankings, ties=ties),
    }


def metrics_for(options: RerankingOptions) -> tuple[Metric, ...]:
    k = options.at_k
    kinds = {f"ndcg@{k}": "gain of the first documents", f"mrr@{k}": "1 / place of the first hit", "map": "mean AP"}
    after = [Metric(name, f"{about}, reranked", _mean(name), digits=4) for name, about in kinds.items()]
    before = [
        Metric(f"base_{name}", f"{about}, as they came", _mean(f"base_{name}"), digits=4, needs=(f"base_{name}",))
        for name, about in kinds.items()
    ]
    return (*after, *before)


def _mean(column: str) -> Callable[[Columns], Statistic]:
    return lambda columns: mean_statistic(columns[column])


TASK = Task(
    name="reranking",
    aliases=("text-ranking",),
    about="how much better a cross-encoder orders a query's documents than they came",
    ability="score",
    unit="query",
    columns=(
        Column("query_column", "query", "text", "the query"),
        Column("documents_column", "documents", "documents", "in the order of the first stage", optional=True),
        Column("positive_column", "positive", "texts", "relevant texts", optional=True),
        Column("negative_column", "negative", "texts", "other texts, instead of documents", optional=True),
    ),
    default_data=DefaultData("mteb/AskUbuntuDupQuestions", None, "test"),
    metrics=metrics_for(RerankingOptions()),
    check=check,
    text_ids=text_ids,
    run=run,
    options=RerankingOptions,
    metrics_for=metrics_for,
)
