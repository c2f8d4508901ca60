"""Retrieval: how well a search finds the documents that were judged relevant to a query.

The model is an Encoder (exact search among all documents by its similarity), a Ranker (BM25, the `GivenRun` of another
system), a hybrid of an encoder and BM25, or a `TwoStage` of one of these and a cross-encoder, measured before
(`base_…`) and after.

A judged document that the corpus lacks stays in the ideal ranking; an unjudged result is not relevant. Tied scores have
their expected value over all orders (`metrics.ranking`), or trec_eval's order with `ties`. A query without a relevant
document counts as 0, as in trec_eval and BEIR, so that figures agree with published ones; `empty_queries="nan"` leaves
it out of the means.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from calipers.core.datasets import Dataset
from calipers.core.errors import DataError, RequestError
from calipers.core.models import SILENT, ModelInfo, PairScorer, Progress, truncated_by
from calipers.core.outcomes import WITHOUT_VECTOR, Columns, Outcomes
from calipers.core.results import DefaultData, Metric, Task
from calipers.core.room import give_back
from calipers.core.text_ids import Side, TextIds
from calipers.metrics import ranking
from calipers.metrics.arrays import Array, Bools, Floats, Ints, slices
from calipers.metrics.means import mean_of
from calipers.metrics.ranking import Rankings
from calipers.metrics.search import Hits, Wanted, last_scores
from calipers.tasks import outputs
from calipers.tasks.rankers import FirstStage, Fused, GivenRun, Ranker, prompts, similarity_of
from calipers.tasks.retrieval_options import SHOWN, RetrievalOptions
from calipers.tasks.search import IDENTICAL, document_ids, id_ranks, places, search, settle, with_blank_documents
from calipers.tasks.sizes import Remembered, at_sizes

__all__ = ["TASK", "GivenRun", "Ranker", "RetrievalOptions", "TwoStage", "prompts", "search", "similarity_of"]

_FEW_EMPTY = 0.1  # share of queries that BM25 may find nothing for without a note
_MANY = 1 << 18  # results, from which on what they took is given back
_PAIRS = 1 << 16  # of queries and documents that are looked up at a time


@dataclass(frozen=True)
class TwoStage:
    """A first stage that finds documents and a cross-encoder that orders the best of them again."""

    first: FirstStage
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
            notes=(*first.notes, *(f"the reranker: {note}" for note in second.notes)),
            size=None if first.size is None or second.size is None else first.size + second.size,
        )


def check(dataset: Dataset) -> None:
    if "corpus" not in dataset.tables:
        raise DataError(f"{dataset.source.path} has no corpus: retrieval needs a folder with corpus, queries and qrels")
    if not any(grade > 0 for grades in dataset.columns["qrels"] for grade in grades.values()):
        raise DataError(f"{dataset.source.path} judges no document relevant to any of {len(dataset)} queries")


def text_ids(dataset: Dataset) -> TextIds:
    return TextIds(*text_sides(dataset))


def text_sides(dataset: Dataset) -> tuple[Side, Side]:
    """Vectors may be stored under `ID/query` and `ID/document`: the two are numbered apart."""
    corpus = dataset.tables["corpus"]
    return ("query", dataset.ids, dataset.columns["query"]), ("document", corpus.ids, corpus.columns["text"])


def settle_options(options: RetrievalOptions, dataset: Dataset) -> RetrievalOptions:
    """The options with what the data decide. A grade from which on documents are relevant, and none is, is refused."""
    highest = max((grade for grades in dataset.columns["qrels"] for grade in grades.values()), default=0.0)
    if highest < options.relevant_from:
        raise DataError(
            f"{dataset.source.path} judges no document relevant: `relevant_from` is {options.relevant_from:g}, and the "
            f"highest grade is {highest:g}"
        )
    return settle(options, dataset)


def run(model: FirstStage | TwoStage, dataset: Dataset, options: RetrievalOptions, progress: Progress) -> Outcomes:
    """Outcomes per query: every metric; per result its rank, document, score and grade (NaN where not judged)."""
    options = settle(options, dataset)
    first = model.first if isinstance(model, TwoStage) else model
    if isinstance(first, GivenRun):
        dataset = with_blank_documents(dataset, first)
    judgements = read_judgements(dataset)
    many = len(dataset) * options.top_k > _MANY
    if options.dimensions:
        first = _remember(model)
    hits, unread = search(first, dataset, options, progress, judgements.wanted)
    if many:
        give_back()
    base: dict[str, Floats] = {}
    staged: dict[str, Ints] = {}
    base_rank, cut = None, 0
    notes = [*_notes(first, hits, options), *unread.notes(dataset)]
    if isinstance(model, TwoStage):
        base = measure(rank(hits, judgements, options, dataset), options)
        tied, before = _tied_at_rerank(hits, options.reranked), truncated_by(model.second)
        if tied:
            notes.append(
                f"{tied} queries have further documents that tie with the last of the {options.reranked} that are "
                "reranked: the order of the corpus decides which are"
            )
        hits, base_rank = rerank(model.second, dataset, hits, options.reranked, progress)
        cut = truncated_by(model.second) - before
        staged = stages(hits, base_rank, judgements, options)
    rankings = rank(hits, judgements, options, dataset)
    details = _details(hits, judgements, dataset, base_rank, options.top_k)
    if many:
        give_back()
    return Outcomes(
        ids=dataset.ids,
        columns={
            **measure(rankings, options),
            **{f"base_{name}": values for name, values in base.items()},
            **staged,
            **_by_size(first, dataset, options, judgements),
            **({WITHOUT_VECTOR: unread.queries} if unread.queries.any() else {}),
        },
        texts={"query": tuple(dataset.columns["query"])},
        details={"results": details, **_cut_ties(hits, judgements, options.top_k)},
        counts={
            **dataset.counts,
            "queries": len(dataset),
            "queries_without_relevant": len(rankings.without_relevant),
            "queries_without_results": len(rankings.forgotten),
            "queries_tied_at_cut": int((_beyond_cut(hits, options) > 0).sum()),
            "relevant": int(rankings.relevant.sum()),
            "results": len(details["rank"]),
            "results_tied": _tied_results(hits, options),
            **{name: int(counts.sum()) for name, counts in staged.items()},
            **unread.counts(),
            **({"reranked_pairs_truncated": cut} if cut else {}),
        },
        notes=(*dataset.notes, *notes),
    )


def _remember(model: FirstStage | TwoStage) -> FirstStage:
    """The model with its vectors kept in memory, for several searches in parts of them."""
    if isinstance(model, TwoStage):
        raise RequestError("`truncate_dim` takes several sizes without `rerank` only: the reranker reads texts")
    if isinstance(model, Fused):
        raise RequestError("`truncate_dim` takes several sizes for models that give vectors, not for a hybrid search")
    return model if isinstance(model, Ranker) else Remembered(model)


def _by_size(
    model: FirstStage, dataset: Dataset, options: RetrievalOptions, judgements: Judgements
) -> dict[str, Floats]:
    """Each metric for each query in the first numbers of the vectors, as `METRIC/SIZE`."""
    columns: dict[str, Floats] = {}
    for size in options.dimensions:
        assert isinstance(model, Remembered)
        hits, _ = search(replace(model, size=size), dataset, options, SILENT, judgements.wanted)
        values = measure(rank(hits, judgements, options, dataset), options)
        columns |= {f"{name}/{size}": column for name, column in values.items()}
    return columns


def _beyond_cut(hits: Hits, options: RetrievalOptions) -> Ints:
    """How many documents beyond the first `top_k` tie with the last of them, kept or counted, int64[q]."""
    kept = np.maximum(np.diff(hits.offsets) - options.top_k, 0)
    return np.asarray(kept + hits.left_out)


def _tied_at_rerank(hits: Hits, k: int) -> int:
    """How many queries have a document that is not reranked and ties with the last of the k that are."""
    first, sizes = hits.offsets[:-1], np.diff(hits.offsets)
    more = first[sizes > k]
    within = int((hits.scores[more + k - 1] == hits.scores[more + k]).sum())
    return within + int(((sizes == k) & (hits.left_out > 0)).sum())


def _tied_results(hits: Hits, options: RetrievalOptions) -> int:
    """How many of the first `top_k` results share their score with another document of their query."""
    first = hits.ranks <= options.top_k
    above, below = np.zeros(len(first), np.bool_), np.zeros(len(first), np.bool_)
    above[1:] = (hits.scores[1:] == hits.scores[:-1]) & (hits.queries[1:] == hits.queries[:-1])
    below[:-1] = above[1:]
    below[hits.offsets[1:][hits.left_out > 0] - 1] = True
    return int((first & (above | below)).sum())


def _notes(first: FirstStage, hits: Hits, options: RetrievalOptions) -> list[str]:
    """What a reader should know of the results of the first stage."""
    notes = []
    if not len(hits.documents):
        notes.append("no query has a result: every figure is 0")
    empty = int((np.diff(hits.offsets) == 0).sum())
    if first.info.backend == "bm25" and empty > _FEW_EMPTY * (len(hits.offsets) - 1):
        analyser = first.info.settings["analyser"]
        notes.append(
            f"{empty} of {len(hits.offsets) - 1} queries have no term that a document has: BM25 says little about them "
            f"(analyser {analyser}; bigrams is for scripts without spaces)"
        )
    if options.ignore_identical_ids:
        notes.append(IDENTICAL)
    ties = _tied_results(hits, options)
    if options.ties == "trec_eval":
        return notes
    if ties and isinstance(first, GivenRun):
        notes.append(
            f"{ties} results of the run are tied: figures are expected values over their orders, which can differ from "
            "trec_eval's (its order: ties=trec_eval)"
        )
    if crowded := int((_beyond_cut(hits, options) > 0).sum()):
        notes.append(
            f"{crowded} queries have further documents that tie with the last of their {options.top_k} results: "
            "figures count all of them, and lists of results have the first ones in the order of the corpus"
        )
    return notes


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

    @property
    def wanted(self) -> Wanted:
        """The judged pairs that the corpus has: a cut through a tie must not lose them."""
        present = self.document >= 0
        return Wanted(self.query[present], self.document[present])

    def look_up(self, query: Ints, document: Ints) -> Floats:
        """The grade of each pair, NaN where it has none."""
        present = self.document >= 0
        keys = self.query[present] * self.documents + self.document[present]
        order = np.argsort(keys)
        keys, grades = np.append(keys[order], -1), np.append(self.grade[present][order], np.nan)
        known_grades = np.empty(len(query))
        for part in slices(len(query), _PAIRS):
            wanted = query[part] * self.documents + document[part]
            place = np.searchsorted(keys[:-1], wanted)
            known_grades[part] = np.where(keys[place] == wanted, grades[place], np.nan)
        return known_grades


def read_judgements(dataset: Dataset) -> Judgements:
    qrels: Sequence[Mapping[str, float]] = dataset.columns["qrels"]
    place = places(dataset, {id for grades in qrels for id in grades})
    grade = np.array([g for grades in qrels for g in grades.values()], dtype=np.float64)
    return Judgements(
        query=np.repeat(np.arange(len(qrels)), [len(grades) for grades in qrels]),
        document=np.array([place.get(id, -1) for grades in qrels for id in grades], dtype=np.int64),
        grade=np.maximum(grade, 0.0),
        queries=len(qrels),
        documents=len(dataset.tables["corpus"]),
    )


def rank(hits: Hits, judgements: Judgements, options: RetrievalOptions, dataset: Dataset) -> Rankings:
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
        id_rank=id_ranks(hits, dataset) if options.ties == "trec_eval" else None,
        beyond=hits.beyond,
    )


def measure(rankings: Rankings, options: RetrievalOptions) -> dict[str, Floats]:
    """Each metric for each query, float64[q]; those that look further than `top_k` are left out."""
    measures = [(f"{name}@{k}", k, measure) for name, k, measure, _ in _MEASURES if k <= options.top_k]
    return {name: measure(rankings, k, ties=options.ties) for name, k, measure in measures}


# --- two stages ------------------------------------------------------------------------------------------------


def rerank(scorer: PairScorer, dataset: Dataset, hits: Hits, k: int, progress: Progress) -> tuple[Hits, Ints]:
    """The first k results of each query ordered by the scorer, and the rank that each result had before. The others
    follow with their scores shifted below the scorer's lowest, so that ties remain ties; documents that tie with the
    last of them and were only counted still do, unless all results of the query were ordered."""
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
    rest = np.bincount(hits.queries[~top], minlength=len(dataset)) > 0
    beyond = None if hits.beyond is None else np.where(rest, hits.beyond, 0)
    return Hits(hits.offsets, hits.documents[order], scores[order], beyond), hits.ranks[order]


def stages(hits: Hits, base_rank: Ints, judgements: Judgements, options: RetrievalOptions) -> dict[str, Ints]:
    """Relevant documents per query, int64[q], that the first stage lost (not among those reranked), and that the
    second put right (lifted among the first 10) or pushed out of them."""
    relevant = np.nan_to_num(judgements.look_up(hits.queries, hits.documents), nan=0.0) >= options.relevant_from

    def count(which: Bools) -> Ints:
        return np.bincount(hits.queries[relevant & which], minlength=judgements.queries)

    judged = np.bincount(judgements.query[judgements.grade >= options.relevant_from], minlength=judgements.queries)
    before, after = base_rank <= SHOWN, hits.ranks <= SHOWN
    return {
        "lost_by_first": judged - count(base_rank <= options.reranked),
        "put_right": count(~before & after),
        "pushed_out": count(before & ~after),
    }


def _details(hits: Hits, judgements: Judgements, dataset: Dataset, base_rank: Ints | None, k: int) -> Columns:
    """The first k results of each query."""
    shown = hits.ranks <= k
    base_rank = base_rank if base_rank is None else base_rank[shown]
    hits = hits.take(shown)
    table: dict[str, Array] = {
        "example": hits.queries.astype(np.int32),
        "rank": hits.ranks.astype(np.int32),
        "document": document_ids(hits, dataset),
        "score": hits.scores,
        "grade": judgements.look_up(hits.queries, hits.documents),
    }
    return table if base_rank is None else {**table, "base_rank": base_rank.astype(np.int32)}


def _cut_ties(hits: Hits, judgements: Judgements, k: int) -> dict[str, Columns]:
    """What ties with the last of k results and is not among them: one row for each judged document, and one with the
    number of the others, as the table `cut_ties`; no table where nothing does."""
    more = hits.take((hits.ranks > k) & (hits.scores == last_scores(hits, k)[hits.queries]))
    others = np.flatnonzero(hits.left_out)
    if not len(more.documents) and not len(others):
        return {}
    grades = judgements.look_up(more.queries, more.documents)
    return {
        "cut_ties": {
            "example": np.concatenate([more.queries, others]).astype(np.int32),
            "grade": np.concatenate([grades, np.full(len(others), np.nan)]),
            "documents": np.concatenate([np.ones(len(grades), np.int64), hits.left_out[others]]),
        }
    }


def with_cut_ties(
    outcomes: Outcomes, example: Ints, scores: Floats, grades: Floats
) -> tuple[Ints, Floats, Floats, Ints]:
    """Results (their query, ascending, score and grade) with the judged documents that tie with the last one of their
    query, and the number of further ones for each query: what `Rankings` needs for exact expected values."""
    beyond = np.zeros(len(outcomes), np.int64)
    table = outcomes.details.get("cut_ties")
    if table is None:
        return example, scores, grades, beyond
    query, judged = np.asarray(table["example"], np.int64), ~np.isnan(table["grade"])
    np.add.at(beyond, query[~judged], table["documents"][~judged])
    last = scores[np.searchsorted(example, query[judged], side="right") - 1]
    every = np.concatenate([example, query[judged]])
    order = np.argsort(every, kind="stable")
    return (
        every[order],
        np.concatenate([scores, last])[order],
        np.concatenate([grades, table["grade"][judged]])[order],
        beyond,
    )


def results_of(outcomes: Outcomes) -> Iterator[tuple[str, str, float]]:
    """(query id, document id, score) of every result, best first: what a TREC run file holds."""
    table = outcomes.details["results"]
    for example, document, score in zip(table["example"], table["document"], table["score"], strict=True):
        yield outcomes.ids[example], str(document), float(score)


# --- metrics ---------------------------------------------------------------------------------------------------

_MEASURES: tuple[tuple[str, int, Callable[..., Floats], str], ...] = (
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


def metrics_for(options: RetrievalOptions) -> tuple[Metric, ...]:
    own = [metric for metric in METRICS if not metric.name.startswith("base_")]
    return (*METRICS, *at_sizes(own, options.dimensions))


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
    settle=settle_options,
    text_ids=text_ids,
    run=run,
    options=RetrievalOptions,
    data="beir",
    metrics_for=metrics_for,
)
