"""The samples of a reranking evaluator, and their figures: with all that could have been found, or as
sentence-transformers has them. What is ranked, and how it is measured, is the task's own (`tasks.reranking`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calipers.core import Document, Outcomes
from calipers.interop._asking import Scores, one_score, refuse_dead
from calipers.metrics.ranking import mean_over_queries
from calipers.tasks import reranking
from calipers.tasks.reranking import Given, Lists, RerankingOptions

_NAME = "CrossEncoderRerankingEvaluator"


@dataclass(frozen=True)
class Sample:
    """A query, the documents to score for it, the list that it came with (none without `documents`), and two counts."""

    id: str
    query: str
    lists: Lists
    positives: int
    negatives: int

    @property
    def pairs(self) -> list[tuple[str, str]]:
        return [(self.query, text) for text in self.lists.ranked.texts]


def read(samples: Sequence[Mapping[str, Any]], options: RerankingOptions) -> list[Sample]:
    """In compat mode a sample that sentence-transformers fails on is a ValueError that says so."""
    return [_read(row, sample, options) for row, sample in enumerate(samples)]


def _read(row: int, sample: Mapping[str, Any], options: RerankingOptions) -> Sample:
    _check(row, sample)
    positives = [sample["positive"]] if isinstance(sample["positive"], str) else list(sample["positive"] or [])
    documents = [Document(text) for text in sample["documents"] or []] if "documents" in sample else None
    given = Given(positives, documents, list(sample.get("negative") or []))
    lists = reranking.make_lists(given, options)
    if options.compat and (why := reranking.their_failure(given, lists)):
        raise ValueError(
            f"sample {row} {why}: sentence-transformers fails here and so does compat; leave compat out for a figure"
        )
    return Sample(
        id=str(sample.get("query-id", row)),
        query=sample["query"],
        lists=lists if lists.relevant else _unscored(lists),
        positives=len(positives if options.compat else set(positives)),
        negatives=len(lists.ranked.texts) - lists.relevant,
    )


def _unscored(lists: Lists) -> Lists:
    """Without a relevant candidate no order of them changes a figure, so nothing need be scored."""
    return replace(lists, ranked=replace(lists.ranked, texts=[], relevance=[], found=0))


def _check(row: int, sample: Mapping[str, Any]) -> None:
    for key in ("query", "positive"):
        if key not in sample:
            raise ValueError(f"{_NAME} requires a {key!r} key in each sample: sample {row} has {', '.join(sample)}.")
    if ("negative" in sample) == ("documents" in sample):
        raise ValueError(
            f"{_NAME} requires exactly one of 'negative' and 'documents' in each sample: "
            f"sample {row} has {'both' if 'negative' in sample else 'neither'}."
        )


def measure(samples: Sequence[Sample], scores: Scores, options: RerankingOptions) -> Outcomes:
    """Outcomes per query: `map`, `mrr@k`, `ndcg@k` and, where there are documents, `base_…` of them (NaN elsewhere);
    per document its score and grade. `scores` are those of the pairs of all samples, one after the other."""
    lists, values = [sample.lists for sample in samples], one_score(scores, "reranking")
    table = reranking.details(lists, values)
    refuse_dead(values, [samples[i].id for i in table["example"].tolist()])
    columns = reranking.measure(lists, values, options)
    return Outcomes(
        ids=tuple(sample.id for sample in samples),
        columns={name: columns[name] for name in sorted(columns, key=_their_order)},
        texts={"query": tuple(sample.query for sample in samples)},
        details={"documents": table},
        counts={
            "queries": len(samples),
            "pairs": len(values),
            "without_relevant": int(np.isnan(columns["map"]).sum()),
        },
    )


def _their_order(name: str) -> tuple[bool, str]:
    return name.startswith("base_"), name  # map, mrr@k, ndcg@k, then the base


def means(outcomes: Outcomes, k: int) -> dict[str, float]:
    """The mean of each column over the queries that have a value; without samples NaN, and no base."""
    if not len(outcomes):
        return {"map": np.nan, f"mrr@{k}": np.nan, f"ndcg@{k}": np.nan}
    return {name: mean_over_queries(values).value for name, values in outcomes.columns.items()}
