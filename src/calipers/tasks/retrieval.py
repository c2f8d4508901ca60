"""Retrieval: how well a search finds the documents that were judged relevant to a query.

The model is an Encoder (exact search among all documents by cosine or dot product), a Retriever such as BM25, a
`GivenRun` of another system, or a `TwoStage` of one of these and a cross-encoder, measured before (`base_…`) and after.

A judged document that the corpus lacks stays in the ideal ranking; an unjudged result is not relevant. Tied scores have
their expected value over all orders (`metrics.ranking`). A query without a relevant document counts as 0, as in
trec_eval and BEIR, so that figures agree with published ones; `empty_queries="nan"` leaves it out of the means.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from calipers.core.choices import EMPTY_QUERIES, SIMILARITIES
from calipers.core.datasets import Dataset
from calipers.core.errors import DataError, RequestError, name_some
from calipers.core.models import SILENT, Encoder, ModelInfo, PairScorer, Progress
from calipers.core.options import Options, option
from calipers.core.outcomes import Columns, Outcomes
from calipers.core.results import DefaultData, Metric, Task
from calipers.metrics import ranking
from calipers.metrics.arrays import Array, Bools, Floats, Ints, Vectors, slices
from calipers.metrics.geometry import unit_like
from calipers.metrics.means import mean_of
from calipers.metrics.ranking import Rankings
from calipers.metrics.search import WINDOW, Hits, exact_search, sort_hits
from calipers.tasks import outputs
from calipers.tasks.columns import ids_by_side

SHOWN = 10  # results that a user sees: a stage puts a document right by lifting it among them
PASSAGE_PROMPTS = ("document", "passage", "corpus")  # the order in which sentence-transformers looks for them


@dataclass(frozen=True)
class RetrievalOptions(Options):
    top_k: int = option(100, "How many results a query gets.", group="Task", metavar="K", at_least=SHOWN)
    query_prompt: str | None = option(
        None, "Put before every query. Default: the model's own.", group="Task", metavar="TEXT"
    )
    passage_prompt: str | None = option(
        None, "Put before every passage. Default: the model's own.", group="Task", metavar="TEXT"
    )
    similarity: str = option("cosine", "Of vectors.", group="Task", choices=SIMILARITIES)
    relevant_from: float = option(
        1.0,
        "Grades from here on are relevant; nDCG uses the grades as they are.",
        group="Task",
        metavar="GRADE",
        above=0,
    )
    empty_queries: str = option(
        "zero", "What a query without relevant documents counts.", group="Task", choices=EMPTY_QUERIES
    )
    rerank_k: int = option(100, "How many results are reranked.", group="Task", metavar="K", at_least=1)


class Retriever(Protocol):
    """A model that searches by itself, such as BM25."""

    @property
    def info(self) -> ModelInfo: ...

    def search(
        self, queries: Sequence[str], documents: Sequence[str], k: int, *, progress: Progress = SILENT
    ) -> tuple[Vectors, Ints]:
        """Scores float32[q, k] and documents int64[q, k], best first; -1 stands where there is no further document."""
        ...


@dataclass(frozen=True)
class GivenRun:
    """Results of another system, query id → {document id: score}, measured like those of a model."""

    run: Mapping[str, Mapping[str, float]]
    info: ModelInfo


@dataclass(frozen=True)
class TwoStage:
    """A first stage that finds documents and a cross-encoder that orders the best of them again."""

    first: Encoder | Retriever | GivenRun
    second: PairScorer

    @property
    def info(self) -> ModelInfo:
        first, second = self.first.info, self.second.info
        both = hashlib.sha256(f"{first.fingerprint} {second.fingerprint}".encode()).hexdigest()
        reranker = {"model_id": second.model_id, "backend": second.backend, "fingerprint": second.fingerprint}
        return replace(
            first,
            model_id=f"{first.model_id} + {second.model_id}",
            fingerprint=f"sha256:{both}",
            settings={**first.settings, "rerank": {**reranker, **second.settings}},
        )


def check(dataset: Dataset) -> None:
    if "corpus" not in dataset.tables:
        raise DataError(f"{dataset.source.path} has no corpus: retrieval needs a folder with corpus, queries and qrels")
    if not any(grade > 0 for grades in dataset.columns["qrels"] for grade in grades.values()):
        raise DataError(f"{dataset.source.path} judges no document relevant to any of {len(dataset)} queries")


def text_ids(dataset: Dataset) -> Mapping[str, Sequence[str]]:
    """Vectors may be stored under `ID/query` and `ID/document`: the two are numbered apart."""
    corpus = dataset.tables["corpus"]
    queries = ("query", dataset.ids, dataset.columns["query"])
    return ids_by_side(queries, ("document", corpus.ids, corpus.columns["text"]))


def run(
    model: Encoder | Retriever | GivenRun | TwoStage, dataset: Dataset, options: RetrievalOptions, progress: Progress
) -> Outcomes:
    """Outcomes per query: every metric; per result its rank, document, score and grade (NaN where not judged)."""
    judgements = read_judgements(dataset)
    hits = search(model.first if isinstance(model, TwoStage) else model, dataset, options, progress)
    base: dict[str, Floats] = {}
    staged: dict[str, Ints] = {}
    base_rank = None
    if isinstance(model, TwoStage):
        base = measure(rank(hits, judgements, options), options)
        hits, base_rank = rerank(model.second, dataset, hits, options.rerank_k, progress)
        staged = stages(hits, base_rank, judgements, options)
    rankings = rank(hits, judgements, options)
    return Outcomes(
        ids=dataset.ids,
        columns=measure(rankings, options) | {f"base_{name}": values for name, values in base.items()} | staged,
        texts={"query": tuple(dataset.columns["query"])},
        details={"results": _details(hits, judgements, dataset, base_rank)},
        counts={
            **dataset.counts,
            "queries": len(dataset),
            "queries_without_relevant": len(rankings.without_relevant),
            "queries_without_results": len(rankings.forgotten),
            "relevant": int(rankings.relevant.sum()),
            "results": len(hits.documents),
            "results_tied": round(ranking.tie_share(rankings).documents * len(hits.documents)),
            **{name: int(counts.sum()) for name, counts in staged.items()},
        },
    )


# --- searching -------------------------------------------------------------------------------------------------


def search(
    model: Encoder | Retriever | GivenRun, dataset: Dataset, options: RetrievalOptions, progress: Progress
) -> Hits:
    """The `top_k` best documents of every query."""
    if not isinstance(model, GivenRun) and not hasattr(model, "search"):
        return _nearest(model, dataset, options, progress)
    for name in ("query_prompt", "passage_prompt", "similarity"):
        if getattr(options, name) != getattr(RetrievalOptions(), name):
            raise RequestError(f"`{name}` does not apply to {model.info.model_id}, which has no vectors")
    if isinstance(model, GivenRun):
        return _given(model.run, dataset, options)
    texts = dataset.tables["corpus"].columns["text"]
    return from_table(*model.search(dataset.columns["query"], texts, options.top_k, progress=progress))


def _nearest(model: Encoder, dataset: Dataset, options: RetrievalOptions, progress: Progress) -> Hits:
    query_prompt, passage_prompt = prompts(model.info, options)
    corpus = dataset.tables["corpus"]

    def encode(texts: Sequence[str], prompt: str | None, ids: Sequence[str], unit: str) -> Vectors:
        vectors = model.encode(texts, prompt=prompt, progress=progress)
        outputs.refuse_dead_vectors(vectors, ids, texts, unit)
        return unit_like(vectors) if options.similarity == "cosine" else vectors

    def windows() -> Iterator[Vectors]:
        for rows in slices(len(corpus), WINDOW):
            yield encode(corpus.columns["text"][rows], passage_prompt, corpus.ids[rows], "documents")

    queries = encode(dataset.columns["query"], query_prompt, dataset.ids, "queries")
    return from_table(*exact_search(queries, windows(), options.top_k))


def from_table(scores: Array, documents: Array) -> Hits:
    """[q, k] arrays, -1 where there is no document, to ragged ones.

    >>> from_table(np.array([[3.0, 1.0], [2.0, 0.0]]), np.array([[7, 5], [6, -1]])).offsets
    array([0, 2, 3])
    """
    present = documents >= 0
    offsets = np.concatenate([[0], np.cumsum(present.sum(axis=1))])
    return Hits(offsets, documents[present].astype(np.int64), scores[present].astype(np.float64))


def prompts(info: ModelInfo, options: RetrievalOptions) -> tuple[str | None, str | None]:
    """Before queries and passages: the option's, else the model's own of that name, else None: its default, if any."""
    offered = info.settings.get("prompts") or {}
    query = offered.get("query")
    passage = next((offered[name] for name in PASSAGE_PROMPTS if name in offered), None)
    return (
        query if options.query_prompt is None else options.query_prompt,
        passage if options.passage_prompt is None else options.passage_prompt,
    )


def _given(results: Mapping[str, Mapping[str, float]], dataset: Dataset, options: RetrievalOptions) -> Hits:
    rows = [(q, d, score) for q, id in enumerate(dataset.ids) for d, score in results.get(id, {}).items()]
    place = _places(dataset, {d for _, d, _ in rows})
    if missing := sorted({d for _, d, _ in rows} - place.keys()):
        raise DataError(f"the run names {len(missing)} documents that the corpus lacks: {name_some(missing)}")
    query = np.array([q for q, _, _ in rows], dtype=np.int64)
    document = np.array([place[d] for _, d, _ in rows], dtype=np.int64)
    score = np.array([s for _, _, s in rows], dtype=np.float64)
    return sort_hits(query, document, score, queries=len(dataset), k=options.top_k)


def _places(dataset: Dataset, wanted: set[str]) -> dict[str, int]:
    """Document id → its row in the corpus, for the wanted ones that are there."""
    return {id: row for row, id in enumerate(dataset.tables["corpus"].ids) if id in wanted}


# --- measuring -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Judgements:
    """All grades of all queries: `query` int64[j] ascending, `document` int64[j] (a row of the corpus, -1 if it is not
    there), `grade` float64[j] from 0 up (TREC's negative grades are 0)."""

    query: Ints
    document: Ints
    grade: Floats
    queries: int
    documents: int

    def look_up(self, query: Ints, document: Ints) -> Floats:
        """The grade of each pair, NaN where it has none."""
        present = self.document >= 0
        keys = self.query[present] * self.documents + self.document[present]
        order = np.argsort(keys)
        keys, grades = np.append(keys[order], -1), np.append(self.grade[present][order], np.nan)
        wanted = query * self.documents + document
        place = np.searchsorted(keys[:-1], wanted)
        return np.where(keys[place] == wanted, grades[place], np.nan)


def read_judgements(dataset: Dataset) -> Judgements:
    qrels: Sequence[Mapping[str, float]] = dataset.columns["qrels"]
    place = _places(dataset, {id for grades in qrels for id in grades})
    grade = np.array([g for grades in qrels for g in grades.values()], dtype=np.float64)
    return Judgements(
        query=np.repeat(np.arange(len(qrels)), [len(grades) for grades in qrels]),
        document=np.array([place.get(id, -1) for grades in qrels for id in grades], dtype=np.int64),
        grade=np.maximum(grade, 0.0),
        queries=len(qrels),
        documents=len(dataset.tables["corpus"]),
    )


def rank(hits: Hits, judgements: Judgements, options: RetrievalOptions) -> Rankings:
    """The ideal has all judged documents, found or not."""
    grades = judgements.look_up(hits.queries, hits.documents)
    positive = judgements.grade > 0
    return Rankings(
        offsets=hits.offsets,
        scores=hits.scores,
        relevance=np.nan_to_num(grades, nan=0.0),
        ideal_offsets=np.searchsorted(judgements.query[positive], np.arange(judgements.queries + 1)),
        ideal_relevance=judgements.grade[positive],
        judged=~np.isnan(grades),
        relevant_from=options.relevant_from,
        empty_queries=options.empty_queries,  # type: ignore[arg-type]
    )


def measure(rankings: Rankings, options: RetrievalOptions) -> dict[str, Floats]:
    """Each metric for each query, float64[q]; those that look further than `top_k` are left out."""
    return {f"{name}@{k}": measure(rankings, k) for name, k, measure, _ in _MEASURES if k <= options.top_k}


# --- two stages ------------------------------------------------------------------------------------------------


def rerank(scorer: PairScorer, dataset: Dataset, hits: Hits, k: int, progress: Progress) -> tuple[Hits, Ints]:
    """The first k results of each query ordered by the scorer, and the rank that each result had before. The others
    follow with their scores shifted below the scorer's lowest, so that ties remain ties."""
    top = hits.ranks <= k
    texts, queries = dataset.tables["corpus"].columns["text"], dataset.columns["query"]
    first = list(zip(hits.queries[top].tolist(), hits.documents[top].tolist(), strict=True))
    pairs = [(queries[q], texts[d]) for q, d in first]
    scores = hits.scores.copy()
    if pairs:
        scores[top] = outputs.score_once(scorer, pairs, [dataset.ids[q] for q, _ in first], progress, "reranking")
    lowest, highest = np.full(len(dataset), np.inf), np.full(len(dataset), -np.inf)
    np.minimum.at(lowest, hits.queries[top], scores[top])
    np.maximum.at(highest, hits.queries[~top], scores[~top])
    scores[~top] += (lowest - highest)[hits.queries[~top]] - 1.0
    order = np.lexsort((hits.ranks, -scores, hits.queries))
    return Hits(hits.offsets, hits.documents[order], scores[order]), hits.ranks[order]


def stages(hits: Hits, base_rank: Ints, judgements: Judgements, options: RetrievalOptions) -> dict[str, Ints]:
    """Relevant documents per query, int64[q], that the first stage lost (not among those reranked), and that the
    second put right (lifted among the first 10) or pushed out of them."""
    relevant = np.nan_to_num(judgements.look_up(hits.queries, hits.documents), nan=0.0) >= options.relevant_from

    def count(which: Bools) -> Ints:
        return np.bincount(hits.queries[relevant & which], minlength=judgements.queries)

    judged = np.bincount(judgements.query[judgements.grade >= options.relevant_from], minlength=judgements.queries)
    before, after = base_rank <= SHOWN, hits.ranks <= SHOWN
    return {
        "lost_by_first": judged - count(base_rank <= options.rerank_k),
        "put_right": count(~before & after),
        "pushed_out": count(before & ~after),
    }


def _details(hits: Hits, judgements: Judgements, dataset: Dataset, base_rank: Ints | None) -> Columns:
    ids = np.array(dataset.tables["corpus"].ids, dtype=object)
    table: dict[str, Array] = {
        "example": hits.queries.astype(np.int32),
        "rank": hits.ranks.astype(np.int32),
        "document": ids[hits.documents],
        "score": hits.scores,
        "grade": judgements.look_up(hits.queries, hits.documents),
    }
    return table if base_rank is None else {**table, "base_rank": base_rank.astype(np.int32)}


def results_of(outcomes: Outcomes) -> Iterator[tuple[str, str, float]]:
    """(query id, document id, score) of every result, best first: what a TREC run file holds."""
    table = outcomes.details["results"]
    for example, document, score in zip(table["example"], table["document"], table["score"], strict=True):
        yield outcomes.ids[example], str(document), float(score)


# --- metrics ---------------------------------------------------------------------------------------------------

_MEASURES: tuple[tuple[str, int, Callable[[Rankings, int], Floats], str], ...] = (
    ("ndcg", 10, ranking.ndcg, "discounted gain of the first 10 over that of the ideal order"),
    ("mrr", 10, ranking.mrr, "1 / rank of the first relevant document, 0 behind 10"),
    ("map", 100, ranking.average_precision, "mean of the precisions at the relevant documents among the first 100"),
    ("recall", 10, ranking.recall, "share of the relevant documents among the first 10"),
    ("recall", 100, ranking.recall, "share of the relevant documents among the first 100"),
    ("precision", 10, ranking.precision, "share of relevant documents among the first 10"),
    ("hit", 10, ranking.hit, "share of queries with a relevant document among the first 10"),
)


METRICS = tuple(
    Metric(column, f"{stage}{about}", mean_of(column), digits=4, needs=(column,))
    for prefix, stage in (("", ""), ("base_", "before reranking: "))
    for column, about in ((f"{prefix}{name}@{k}", about) for name, k, _, about in _MEASURES)
)

TASK = Task(
    name="retrieval",
    aliases=("search", "information-retrieval"),
    about="how well a search finds the documents judged relevant, in BEIR data",
    ability="retrieve",
    unit="query",
    columns=(),
    default_data=DefaultData("mteb/scifact", None, "test"),
    metrics=METRICS,
    check=check,
    text_ids=text_ids,
    run=run,
    options=RetrievalOptions,
    data="beir",
)
