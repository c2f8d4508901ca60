"""Reranking: how much better a cross-encoder orders the documents of a query than they came.

A row is a query with its `documents` in the order of the first stage: texts, or objects with text and relevance;
`positive` texts also say what is relevant. Without `documents`, `positive` and `negative` texts are ranked. `qrels`, by
the ids of documents, replace what the rows say.

Relevant documents that the first stage did not find count in the ideal ranking: a perfect reranker of a bad first stage
is not perfect, and one that changes nothing changes no figure. A document counts once in a query, by its id or else its
text, at its first place and with its highest grade. A query without relevant documents is left out of the means.

With `compat` the lists, figures and failures are those of sentence-transformers 6.2.0, which knows texts only: a graded
document is a positive or it is not. Dead scores (all equal, or not finite) stay errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from calipers.core.choices import COMPATIBLE
from calipers.core.datasets import Column, Dataset, Document
from calipers.core.errors import DataError, RequestError, name_some
from calipers.core.models import PairScorer, Progress
from calipers.core.options import Options, option
from calipers.core.outcomes import Columns, Outcomes
from calipers.core.results import DefaultData, Metric, Task
from calipers.metrics import ranking
from calipers.metrics.arrays import Array, Floats
from calipers.metrics.means import mean_of
from calipers.tasks import outputs
from calipers.tasks.columns import QUERY

(COMPAT,) = COMPATIBLE
QRELS = "qrels"  # the column of judgements, {document id: grade}, where there is one
_ROW = ("positive_column", "documents_column", "negative_column")


@dataclass(frozen=True)
class ListOptions(Options):
    """What every task that reranks lists of documents takes."""

    at_k: int = option(10, "Cut-off of MRR and nDCG.", group="Task", metavar="K", at_least=1)
    always_rerank_positives: bool = option(
        True,
        "Also rank positive texts that the first stage did not retrieve. Default: yes.",
        group="Task",
        off="--no-always-rerank-positives",
    )
    compat: str | None = option(None, "The figures of that package, faults included.", group="Task", choices=COMPATIBLE)


@dataclass(frozen=True)
class RerankingOptions(ListOptions):
    relevant_from: float | None = option(
        None,
        "Grades from here on are relevant, all alike. Default: grades as they are.",
        group="Task",
        metavar="GRADE",
        above=0,
    )
    qrels: str | None = option(
        None,
        "Judgements of all documents by id (TREC or BEIR), instead of what the rows say; judged documents that were "
        "not retrieved count in the ideal.",
        group="Task",
        metavar="FILE",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.compat and self.qrels:
            raise RequestError(f"`qrels` and `compat` are mutually exclusive: {COMPAT} has no judgements but texts")


@dataclass(frozen=True)
class QueryRow:
    """What the data say of one query: `documents` or, where they are None, `negatives`; `qrels` by document id."""

    positives: Sequence[str]
    documents: Sequence[Document] | None
    negatives: Sequence[str] = ()
    qrels: Mapping[str, float] | None = None


@dataclass(frozen=True)
class Candidates:
    """Documents of one query, and the grades of its relevant documents that are not among them."""

    texts: list[str]
    relevance: list[float]
    missing: Sequence[float] = ()


@dataclass(frozen=True)
class Lists:
    """What is ranked for one query, the list it came with (if any), and how many relevant documents that list lacks."""

    ranked: Candidates
    base: Candidates | None
    not_found: int

    @property
    def relevant(self) -> int:
        """How many of the ranked documents are."""
        return sum(grade > 0 for grade in self.ranked.relevance)


# --- what is ranked --------------------------------------------------------------------------------------------


def make_lists(row: QueryRow, options: RerankingOptions) -> Lists:
    return _their_lists(row, options) if options.compat else _our_lists(row, options)


def _our_lists(row: QueryRow, options: RerankingOptions) -> Lists:
    wanted = dict.fromkeys(row.positives)
    if row.documents is None:
        others = [text for text in dict.fromkeys(row.negatives) if text not in wanted]
        return Lists(_in_two(list(wanted), others), None, 0)
    graded = _once(row, wanted, options)
    texts, grades = [text for text, _ in graded.values()], [grade for _, grade in graded.values()]
    retrieved = set(texts)
    judged = [_cut(grade, options) for id, grade in (row.qrels or {}).items() if (id, "") not in graded]
    missing = [grade for grade in judged if grade > 0]
    absent = [text for text in wanted if text not in retrieved]
    ones = [1.0] * len(absent)
    if options.always_rerank_positives:
        both = Candidates([*texts, *absent], [*grades, *ones], missing)
    else:
        both = Candidates(texts, grades, [*missing, *ones])
    return Lists(both, both, len(missing) + len(absent))


def _once(
    row: QueryRow, wanted: Mapping[str, None], options: RerankingOptions
) -> dict[tuple[str | None, str], tuple[str, float]]:
    """(id, "") or (None, text) of each document → text and grade, in the order of the first stage."""
    graded: dict[tuple[str | None, str], tuple[str, float]] = {}
    for document in row.documents or ():
        if row.qrels is not None:
            grade = _cut(row.qrels.get(document.id or "", 0.0), options)
        elif document.relevance is not None:
            grade = _cut(document.relevance, options)
        else:
            grade = float(document.text in wanted)
        key = (None, document.text) if document.id is None else (document.id, "")
        text, before = graded.get(key, (document.text, grade))
        graded[key] = text, max(before, grade)
    return graded


def _their_lists(row: QueryRow, options: RerankingOptions) -> Lists:
    """Positives first, repeats kept; the base has its missing positives last, counted and not looked for."""
    stated = set(row.positives)
    graded = [d for d in row.documents or () if d.relevance is not None and _cut(d.relevance, options) > 0]
    positives = [*row.positives, *(d.text for d in graded if d.text not in stated)]
    if row.documents is None:
        return Lists(_in_two(positives, list(row.negatives)), None, 0)
    wanted, texts = set(positives), [document.text for document in row.documents]
    grades = [float(text in wanted) for text in texts]
    if options.always_rerank_positives:
        ranked = _in_two(positives, [text for text in texts if text not in wanted])
    else:
        ranked = Candidates(texts, grades)
    missing = max(len(positives) - int(sum(grades)), 0)
    tail = [1.0] * missing if any(grades) else []
    return Lists(ranked, Candidates([*texts, *[""] * len(tail)], [*grades, *tail]), missing)


def _in_two(positives: list[str], others: list[str]) -> Candidates:
    return Candidates([*positives, *others], [1.0] * len(positives) + [0.0] * len(others))


def _cut(grade: float, options: RerankingOptions) -> float:
    return max(grade, 0.0) if options.relevant_from is None else float(grade >= options.relevant_from)


def their_failure(row: QueryRow, lists: Lists) -> str | None:
    """Why sentence-transformers raises an exception for this query, if it does."""
    if any(candidates and candidates.relevance == [1.0] for candidates in (lists.ranked, lists.base)):
        return "has one document, a positive, and nothing to rank it against"
    return "has no documents" if row.documents is not None and not row.documents else None


# --- the task --------------------------------------------------------------------------------------------------


def check(dataset: Dataset) -> None:
    columns = (dataset.columns[name] for name in _ROW)
    for id, row, positives, documents, negatives in zip(dataset.ids, read(dataset), *columns, strict=True):
        place = f"the query {id!r} of {dataset.source.path}"
        if (documents and negatives) or (documents is None and negatives is None):
            raise DataError(f"{place} needs either documents or negatives")
        if row.qrels is not None and (row.positives or row.documents is None):
            raise DataError(f"{place} names relevant texts, and `qrels` names relevant documents: expected one of them")
        if row.qrels is not None and any(document.id is None for document in row.documents or ()):
            raise DataError(f"{place} has documents without an id, by which `qrels` names them")
        if row.qrels is None and positives is None and all(d.relevance is None for d in documents or ()):
            raise DataError(
                f"{place} names no document as relevant: expected a relevance in its documents, or positive texts"
            )


def read(dataset: Dataset) -> Iterator[QueryRow]:
    """Row by row. Where both are empty or null, a row has documents, none of them."""
    rows = zip(*(dataset.columns.get(name, [None] * len(dataset)) for name in (*_ROW, QRELS)), strict=True)
    for positives, documents, negatives, judged in rows:
        yield QueryRow(positives or (), None if not documents and negatives else documents, negatives or (), judged)


def run(model: PairScorer, dataset: Dataset, options: RerankingOptions, progress: Progress) -> Outcomes:
    """Outcomes per query: the metrics before (`base_…`) and after; per document its score, grade and first place."""
    rows = [make_lists(row, options) for row in read(dataset)]
    _refuse(rows, dataset, options)
    queries = dataset.columns["query_column"]
    pairs = [(query, text) for query, row in zip(queries, rows, strict=True) for text in row.ranked.texts]
    owners = [id for id, row in zip(dataset.ids, rows, strict=True) for _ in row.ranked.texts]
    scores = outputs.score_once(model, pairs, owners, progress, "reranking")
    return Outcomes(
        ids=dataset.ids,
        columns=measure(rows, scores, options),
        texts={"query": tuple(queries)},
        details={"documents": details(rows, scores)},
        counts={
            **dataset.counts,
            "queries": len(rows),
            "documents": len(pairs),
            "without_relevant": sum(not row.relevant and not row.not_found for row in rows),
            "positives_not_found": sum(row.not_found for row in rows),
        },
        notes=dataset.notes,
    )


def _refuse(rows: Sequence[Lists], dataset: Dataset, options: RerankingOptions) -> None:
    """Queries that cannot give a figure under these options, before anything is scored."""
    path = dataset.source.path
    if options.compat:
        for id, row, lists in zip(dataset.ids, read(dataset), rows, strict=True):
            if why := their_failure(row, lists):
                raise DataError(
                    f"the query {id!r} of {path} {why}: {COMPAT} fails here and so does `compat`; "
                    "leave it out for a figure"
                )
    elif not any(lists.relevant or lists.ranked.missing for lists in rows):
        cut = f" from {options.relevant_from:g} on" if options.relevant_from is not None else ""
        raise DataError(f"{path} has no query with a relevant document{cut} (queries {name_some(dataset.ids)})")
    if not any(lists.ranked.texts for lists in rows):
        raise DataError(f"{path} has no document to rank (queries {name_some(dataset.ids)})")


def details(rows: Sequence[Lists], scores: Array) -> Columns:
    """One row per ranked document: its query, its place before (from 0), its score and its grade."""
    sizes = np.array([len(row.ranked.texts) for row in rows], dtype=np.int64)
    return {
        "example": np.repeat(np.arange(len(rows)), sizes),
        "place": np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes),
        "score": scores,
        "relevance": np.array([grade for row in rows for grade in row.ranked.relevance]),
    }


# --- measuring -------------------------------------------------------------------------------------------------


def measure(rows: Sequence[Lists], scores: Array, options: RerankingOptions) -> dict[str, Floats]:
    """Each metric for each query, float64[q], and `base_…` of it where any query came with documents (else NaN).
    `scores` are those of the ranked documents of all queries, one after the other."""
    reranked = _measure([row.ranked for row in rows], scores, options)
    bases = {i: row.base for i, row in enumerate(rows) if row.base is not None}
    if not bases:
        return reranked
    places = np.concatenate([np.arange(len(base.texts), 0.0, -1.0) for base in bases.values()])
    columns = {f"base_{name}": np.full(len(rows), np.nan) for name in reranked}
    for name, values in _measure(list(bases.values()), places, options).items():
        columns[f"base_{name}"][list(bases)] = values
    return reranked | columns


def _measure(lists: Sequence[Candidates], scores: Array, options: RerankingOptions) -> dict[str, Floats]:
    best = [[grade for grade in (*row.relevance, *row.missing) if grade > 0] for row in lists]
    rankings = ranking.Rankings(
        offsets=np.cumsum([0, *(len(row.relevance) for row in lists)]),
        scores=scores,
        relevance=np.array([grade for row in lists for grade in row.relevance], dtype=np.float64),
        ideal_offsets=np.cumsum([0, *map(len, best)]),
        ideal_relevance=np.array([grade for row in best for grade in row], dtype=np.float64),
        empty_queries="zero" if options.compat else "nan",
    )
    ties: ranking.Ties = "sentence-transformers" if options.compat else "expected"
    return {
        f"ndcg@{options.at_k}": ranking.ndcg(rankings, options.at_k, ties=ties),
        f"mrr@{options.at_k}": ranking.mrr(rankings, options.at_k, ties=ties),
        "map": ranking.average_precision(rankings, ties=ties),
    }


def columns_at(k: int) -> dict[str, str]:
    """Outcome column → what it is, the primary one first."""
    measures = {f"ndcg@{k}": "gain of the first documents", f"mrr@{k}": "1 / place of the first hit", "map": "mean AP"}
    after = {name: f"{about}, reranked" for name, about in measures.items()}
    return after | {f"base_{name}": f"{about}, as they came" for name, about in measures.items()}


def metrics_for(options: RerankingOptions) -> tuple[Metric, ...]:
    columns = columns_at(options.at_k).items()
    return tuple(Metric(name, about, mean_of(name), digits=4, needs=(name,)) for name, about in columns)


TASK = Task(
    name="reranking",
    aliases=("text-ranking",),
    about="how much better a cross-encoder orders a query's documents than they came",
    ability="score",
    unit="query",
    columns=(
        QUERY,
        Column("documents_column", "documents", "documents", "in the order of the first stage", optional=True),
        Column("positive_column", "positive", "texts", "relevant texts", optional=True),
        Column("negative_column", "negative", "texts", "other texts, instead of documents", optional=True),
    ),
    default_data=DefaultData("mteb/AskUbuntuDupQuestions", None, "test"),
    metrics=metrics_for(RerankingOptions()),
    check=check,
    run=run,
    options=RerankingOptions,
    metrics_for=metrics_for,
)
