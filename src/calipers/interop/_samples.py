"""The samples of a reranking evaluator, and their figures: with all that could have been found, or as
sentence-transformers has them.

By default a text counts once in a query: a repeated document at its first place, a repeated positive once, a negative
that is also a positive as a positive. The candidates keep the order of the documents and the positives that are missing
from them come last, if they are ranked at all, so that the base list and the list to rerank are one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from calipers.core import Outcomes
from calipers.interop._asking import Scores, one_score, refuse_dead
from calipers.metrics.ranking import mean_over_queries
from calipers.tasks import reranking
from calipers.tasks.reranking import Candidates, RerankingOptions

_NAME = "CrossEncoderRerankingEvaluator"
_NOTHING = Candidates([], [], 0, [])


@dataclass(frozen=True)
class Sample:
    """A query, the documents to score for it, the list that it came with (none without `documents`), and two counts."""

    id: str
    query: str
    candidates: Candidates
    base: Candidates | None
    positives: int
    negatives: int

    @property
    def pairs(self) -> list[tuple[str, str]]:
        return [(self.query, text) for text in self.candidates.texts]


def read(samples: Sequence[Mapping[str, Any]], options: RerankingOptions) -> list[Sample]:
    """In compat mode a sample that sentence-transformers fails on is a ValueError that says so."""
    return [_read(row, sample, options) for row, sample in enumerate(samples)]


def _read(row: int, sample: Mapping[str, Any], options: RerankingOptions) -> Sample:
    _check(row, sample)
    positives = [sample["positive"]] if isinstance(sample["positive"], str) else list(sample["positive"] or [])
    documents = list(sample["documents"] or []) if "documents" in sample else None
    negatives = list(sample.get("negative") or [])
    lists = _their_lists if options.compat else _our_lists
    candidates, base = lists(positives, documents, negatives, options.always_rerank_positives)
    if options.compat:
        _refuse_their_failures(row, candidates, base, documents)
    relevant = sum(grade > 0 for grade in candidates.relevance)
    return Sample(
        id=str(sample.get("query-id", row)),
        query=sample["query"],
        # Without a relevant candidate no order of them changes a figure, so nothing need be scored.
        candidates=candidates if relevant else replace(candidates, texts=[], relevance=[], found=0),
        base=base,
        positives=len(positives if options.compat else set(positives)),
        negatives=len(candidates.texts) - relevant,
    )


def _check(row: int, sample: Mapping[str, Any]) -> None:
    for key in ("query", "positive"):
        if key not in sample:
            raise ValueError(f"{_NAME} requires a {key!r} key in each sample: sample {row} has {', '.join(sample)}.")
    if ("negative" in sample) == ("documents" in sample):
        raise ValueError(
            f"{_NAME} requires exactly one of 'negative' and 'documents' in each sample: "
            f"sample {row} has {'both' if 'negative' in sample else 'neither'}."
        )


def _our_lists(
    positives: list[str], documents: list[str] | None, negatives: list[str], always: bool
) -> tuple[Candidates, Candidates | None]:
    wanted = dict.fromkeys(positives)
    if documents is None:
        others = [text for text in dict.fromkeys(negatives) if text not in wanted]
        return Candidates([*wanted, *others], [1.0] * len(wanted) + [0.0] * len(others), 0, []), None
    texts = list(dict.fromkeys(documents))
    grades = [float(text in wanted) for text in texts]
    known = set(texts)
    absent = [text for text in wanted if text not in known]
    ones = [1.0] * len(absent)
    if always:
        candidates = Candidates([*texts, *absent], [*grades, *ones], len(texts), [])
    else:
        candidates = Candidates(texts, grades, len(texts), ones)
    return candidates, candidates


def _their_lists(
    positives: list[str], documents: list[str] | None, negatives: list[str], always: bool
) -> tuple[Candidates, Candidates | None]:
    """Positives first, repeats kept; the base has its missing positives last, counted and not looked for."""
    wanted = set(positives)
    grades = [float(text in wanted) for text in documents or []]
    if documents is not None and not always:
        candidates = Candidates(documents, grades, len(documents), [])
    else:
        others = [text for text in documents if text not in wanted] if documents is not None else negatives
        candidates = Candidates([*positives, *others], [1.0] * len(positives) + [0.0] * len(others), 0, [])
    if documents is None:
        return candidates, None
    missing = len(positives) - int(sum(grades))
    tail = [1.0] * missing if any(grades) else []
    return candidates, Candidates([*documents, *[""] * len(tail)], [*grades, *tail], len(documents), [])


def _refuse_their_failures(row: int, candidates: Candidates, base: Candidates | None, documents: Any) -> None:
    alone = any(found and found.relevance == [1.0] for found in (candidates, base))
    if alone or documents == []:
        why = "has one document, a positive, and nothing to rank it against" if alone else "has no documents"
        raise ValueError(
            f"sample {row} {why}: sentence-transformers fails here and so does compat; leave compat out for a figure"
        )


def measure(samples: Sequence[Sample], scores: Scores, options: RerankingOptions) -> Outcomes:
    """Outcomes per query: `map`, `mrr@k`, `ndcg@k` and, where there are documents, `base_…` of them (NaN elsewhere);
    per document its score and grade. `scores` are those of the pairs of all samples, one after the other."""
    sizes = [len(sample.candidates.texts) for sample in samples]
    owners = np.repeat(np.arange(len(samples)), sizes)
    values = one_score(scores, "reranking")
    refuse_dead(values, [samples[i].id for i in owners.tolist()])
    # The scores keep their type of float: it decides the order of ties in compat mode.
    typed = cast("NDArray[np.float64]", values)
    reranked = reranking.measure([sample.candidates for sample in samples], typed, options)
    return Outcomes(
        ids=tuple(sample.id for sample in samples),
        columns={**_in_their_order(reranked), **_base(samples, options)},
        texts={"query": tuple(sample.query for sample in samples)},
        details={
            "documents": {
                "example": owners,
                "score": values,
                "relevance": np.array([grade for sample in samples for grade in sample.candidates.relevance]),
            }
        },
        counts={
            "queries": len(samples),
            "pairs": len(values),
            "without_relevant": int(np.isnan(reranked["map"]).sum()),
        },
    )


def _base(samples: Sequence[Sample], options: RerankingOptions) -> dict[str, NDArray[np.float64]]:
    rows = [i for i, sample in enumerate(samples) if sample.base is not None]
    if not rows:
        return {}
    found = reranking.base([samples[i].base or _NOTHING for i in rows], options)
    columns = {f"base_{name}": np.full(len(samples), np.nan) for name in _in_their_order(found)}
    for name, values in found.items():
        columns[f"base_{name}"][rows] = values
    return columns


def _in_their_order(columns: Mapping[str, Any]) -> dict[str, Any]:
    return dict(sorted(columns.items()))  # map, mrr@k, ndcg@k


def means(outcomes: Outcomes, k: int) -> dict[str, float]:
    """The mean of each column over the queries that have a value; without samples NaN, and no base."""
    if not len(outcomes):
        return {"map": np.nan, f"mrr@{k}": np.nan, f"ndcg@{k}": np.nan}
    return {name: mean_over_queries(values).value for name, values in outcomes.columns.items()}
