"""The first stage of retrieval: an Encoder, a Retriever or a run of another system to the results of every query.

Documents that tie with the last result of a query are not cut by their order in the corpus: those that are judged stay,
the others are counted (`metrics.search`), so that expected values over the orders of the tie are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from calipers.core.benchmarks import ignores_identical_ids
from calipers.core.choices import EMPTY_QUERIES, SIMILARITIES, TIES
from calipers.core.datasets import Dataset
from calipers.core.errors import DataError, RequestError, name_some
from calipers.core.models import (
    SILENT,
    Arrays,
    DividesSearches,
    Encoder,
    ModelInfo,
    Progress,
    on_side,
    truncated_by,
)
from calipers.core.options import option
from calipers.metrics.arrays import Array, Bools, Ints, Vectors
from calipers.metrics.geometry import unit_like
from calipers.metrics.magnitudes import common_power
from calipers.metrics.measures import MEASURES
from calipers.metrics.search import (
    NOTHING_WANTED,
    WINDOW,
    Hits,
    Wanted,
    cut_hits,
    exact_search,
    merge_hits,
    sort_hits,
    spread_hits,
)
from calipers.tasks import outputs
from calipers.tasks.sizes import SizeOptions

SHOWN = 10  # results that a user sees: a stage puts a document right by lifting it among them
PASSAGE_PROMPTS = ("document", "passage", "corpus")  # the order in which sentence-transformers looks for them
RERANKED = 100


@dataclass(frozen=True)
class RetrievalOptions(SizeOptions):
    top_k: int = option(100, "How many results a query gets.", group="Task", metavar="K", at_least=SHOWN)
    query_prompt: str | None = option(
        None, "Put before every query. Default: the model's own.", group="Task", metavar="TEXT"
    )
    passage_prompt: str | None = option(
        None, "Put before every passage. Default: the model's own.", group="Task", metavar="TEXT"
    )
    similarity: str | None = option(
        None, "Of vectors. Default: what the model's files say, else cosine.", group="Task", choices=SIMILARITIES
    )
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
    rerank_k: int | None = option(
        None,
        f"How many results are reranked. Default: {RERANKED}, or all where there are fewer.",
        group="Task",
        metavar="K",
        at_least=1,
    )
    ties: str = option(
        "expected",
        "Equal scores: the expected value over all orders, or the order of trec_eval (single precision, then the "
        "higher document id).",
        group="Task",
        choices=TIES,
    )
    ignore_identical_ids: bool | None = option(
        None,
        "Leave out the document that has the id of the query. Default: yes for the data of MTEB's ArguAna, FEVER, "
        "FiQA2018, MSMARCO and QuoraRetrieval (by hub id or folder name), as in mteb; else no.",
        group="Task",
        off="--no-ignore-identical-ids",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        wanted = self.rerank_k or RERANKED
        if wanted == RERANKED:  # records of earlier runs hold the default, whatever their `top_k`
            object.__setattr__(self, "rerank_k", min(RERANKED, self.top_k))
        elif wanted > self.top_k:
            raise RequestError(
                f"`rerank_k` is {self.rerank_k} and `top_k` {self.top_k}: only results that were found can be reranked"
            )

    @property
    def reranked(self) -> int:
        """`rerank_k` as it was settled."""
        assert self.rerank_k is not None
        return self.rerank_k


class Retriever(Protocol):
    """A model that searches by itself, such as BM25."""

    @property
    def info(self) -> ModelInfo: ...

    def search(
        self,
        queries: Sequence[str],
        documents: Sequence[str],
        k: int,
        *,
        wanted: Wanted = NOTHING_WANTED,
        progress: Progress = SILENT,
    ) -> Hits:
        """The k best documents of each query, cut as `metrics.search.cut_hits` cuts them."""
        ...


@dataclass(frozen=True)
class GivenRun:
    """Results of another system, query id → {document id: score}, measured like those of a model."""

    run: Mapping[str, Mapping[str, float]]
    info: ModelInfo


def settle(options: RetrievalOptions, dataset: Dataset) -> RetrievalOptions:
    """The options with what the data decide: whether a document with the id of its query is left out."""
    if options.ignore_identical_ids is not None:
        return options
    return replace(options, ignore_identical_ids=ignores_identical_ids(dataset.source.path))


def search(
    model: Encoder | Retriever | GivenRun,
    dataset: Dataset,
    options: RetrievalOptions,
    progress: Progress,
    wanted: Wanted = NOTHING_WANTED,
) -> tuple[Hits, UnreadTexts]:
    """The `top_k` best documents of every query, and the texts without a vector. Of documents that tie with the last,
    the wanted ones are kept and the others counted, unless ties are broken."""
    if options.ties != "expected":
        wanted = NOTHING_WANTED
    own = _identical(dataset) if options.ignore_identical_ids else NOTHING_WANTED
    both = Wanted(np.concatenate([wanted.query, own.query]), np.concatenate([wanted.document, own.document]))
    hits, unread = _find(model, dataset, options, progress, options.top_k + bool(len(own.query)), both)
    if len(own.query):
        hits = hits.take(~own.holds(hits.queries, hits.documents), hits.beyond)
    if options.ties == "expected":
        return cut_hits(hits, options.top_k, wanted), unread
    hits = _as_trec_eval(hits, dataset)
    return hits.take(hits.ranks <= options.top_k), unread


def _find(
    model: Encoder | Retriever | GivenRun,
    dataset: Dataset,
    options: RetrievalOptions,
    progress: Progress,
    k: int,
    wanted: Wanted,
) -> tuple[Hits, UnreadTexts]:
    """At least the k best documents of every query; all results of a run."""
    if not isinstance(model, GivenRun) and not hasattr(model, "search"):
        return _nearest(model, dataset, options, progress, k, wanted)
    for name in ("query_prompt", "passage_prompt", "similarity", "dimensions"):
        if getattr(options, name) != getattr(RetrievalOptions(), name):
            name = {"dimensions": "truncate_dim"}.get(name, name)
            raise RequestError(f"`{name}` does not apply to {model.info.model_id}, which has no vectors")
    texts = dataset.tables["corpus"].columns["text"]
    nothing = UnreadTexts(np.zeros(len(dataset), np.bool_), np.zeros(len(texts), np.bool_))
    if isinstance(model, GivenRun):
        return _given(model.run, dataset), nothing
    return model.search(dataset.columns["query"], texts, k, wanted=wanted, progress=progress), nothing


def _nearest(
    model: Encoder, dataset: Dataset, options: RetrievalOptions, progress: Progress, k: int, wanted: Wanted
) -> tuple[Hits, UnreadTexts]:
    """By vectors. A query without one finds nothing, and a document without one is not found."""
    query_prompt, passage_prompt = prompts(model.info, options)
    corpus, similarity = dataset.tables["corpus"], similarity_of(model.info, options)
    measure = MEASURES[similarity]
    unread = UnreadTexts(np.zeros(len(dataset), np.bool_), np.zeros(len(corpus), np.bool_))

    def encode(texts: Sequence[str], prompt: str | None, ids: Sequence[str], unit: str) -> tuple[Vectors, Bools]:
        side = on_side(model, "query" if unit == "queries" else "document")
        before = truncated_by(side)
        vectors = side.encode(texts, prompt=prompt, progress=progress)
        cut, part = truncated_by(side) - before, (unit, ids[0])
        unread.truncated[part] = max(cut, unread.truncated.get(part, 0))  # documents may be read twice
        zero = outputs.unread(vectors, ids, texts, unit)
        if similarity != "cosine" and common_power(vectors):
            raise RequestError(
                f"{model.info.model_id} gives numbers beyond the range of float32, and {similarity} depends on them: "
                "set `similarity` to cosine, or scale the vectors"
            )
        return unit_like(vectors) if similarity == "cosine" else vectors, zero

    def windows(part: slice, *, only_read: bool = False) -> Iterator[Vectors]:
        for start in range(part.start, part.stop, WINDOW):
            rows = slice(start, min(start + WINDOW, part.stop))
            vectors, zero = encode(corpus.columns["text"][rows], passage_prompt, corpus.ids[rows], "documents")
            unread.documents[rows] = zero
            yield vectors[~zero] if only_read else vectors

    queries, unread.queries[:] = encode(dataset.columns["query"], query_prompt, dataset.ids, "queries")
    outputs.refuse_unread(unread.queries, dataset.ids, "queries")
    readable, documents = np.flatnonzero(~unread.queries), np.arange(len(corpus))
    kept = wanted.among(readable, documents)

    def find(part: slice) -> Hits:
        return exact_search(queries[readable], windows(part), k, kept, measure, part.start)

    question = (
        queries[readable],
        kept.query,
        kept.document,
        np.array([k]),
        np.frombuffer(similarity.encode(), np.uint8),
    )
    hits = merge_hits(_by_ranges(model, corpus, question, find, unread), k, kept)
    outputs.refuse_unread(unread.documents, corpus.ids, "documents")
    if unread.documents.any() and (hits.scores <= 0).any():  # the score of a vector of zeros: it may stand in a place
        documents = np.flatnonzero(~unread.documents)
        whole = windows(slice(0, len(corpus)), only_read=True)
        hits = exact_search(queries[readable], whole, k, wanted.among(readable, documents), measure)
    return spread_hits(hits, readable, documents, queries=len(dataset)), unread


def _by_ranges(
    model: Encoder, corpus: Dataset, question: Sequence[Array], find: Callable[[slice], Hits], unread: UnreadTexts
) -> Iterator[Hits]:
    """The hits of each range of the corpus: of one that holds everything, unless the model divides its searches. A
    range that was searched before, by whichever process, is not encoded again."""
    ranges = model.ranges(len(corpus), WINDOW) if isinstance(model, DividesSearches) else ()
    if not isinstance(model, DividesSearches) or len(ranges) < 2:
        yield find(slice(0, len(corpus)))
        return
    for number, part in enumerate(ranges):

        def search_here(part: slice = part) -> Arrays:
            hits = find(part)
            return hits.offsets, hits.documents, hits.scores, hits.left_out, unread.documents[part]

        arrays, cut = model.search_range(number, (*question, np.array([part.start, part.stop])), search_here)
        if arrays:
            *columns, unread.documents[part] = arrays
            yield Hits(*columns)
        if cut:
            unread.truncated["documents", corpus.ids[part.start]] = cut


def similarity_of(info: ModelInfo, options: RetrievalOptions) -> str:
    """How vectors are compared: by the option, else as the model's files say, else by the cosine."""
    if options.similarity is not None:
        return options.similarity
    declared = str(info.settings.get("similarity_fn_name") or "cosine")
    if declared not in SIMILARITIES:
        raise RequestError(
            f"the files of {info.model_id} name the similarity {declared[:40]!r}: set `similarity` to one of "
            f"{', '.join(SIMILARITIES)}"
        )
    return declared


@dataclass(frozen=True, eq=False)
class UnreadTexts:
    """Which queries and which documents have no vector, bool[q] and bool[n], and how many were cut."""

    queries: Bools
    documents: Bools
    truncated: dict[tuple[str, str], int] = field(default_factory=dict)  # by unit and first id of what was encoded

    def counts(self) -> dict[str, int]:
        """How many queries and documents have no vector, and how many were cut; a count of 0 is left out."""
        counts = {f"{kind}_without_vector": int(getattr(self, kind).sum()) for kind in ("queries", "documents")}
        for (unit, _), number in self.truncated.items():
            counts[f"{unit}_truncated"] = counts.get(f"{unit}_truncated", 0) + number
        return {name: count for name, count in counts.items() if count}

    def notes(self, dataset: Dataset) -> tuple[str, ...]:
        corpus = dataset.tables["corpus"]
        return (
            *outputs.note_unread(self.queries, dataset.ids, "queries", "they find nothing and count as failing"),
            *outputs.note_unread(self.documents, corpus.ids, "documents", "no search finds them"),
        )


def prompts(info: ModelInfo, options: RetrievalOptions) -> tuple[str | None, str | None]:
    """Before queries and passages: the option's, else the model's own of that name, else None: its default, if any."""
    offered = info.settings.get("prompts") or {}
    query = offered.get("query")
    passage = next((offered[name] for name in PASSAGE_PROMPTS if name in offered), None)
    return (
        query if options.query_prompt is None else options.query_prompt,
        passage if options.passage_prompt is None else options.passage_prompt,
    )


def _given(results: Mapping[str, Mapping[str, float]], dataset: Dataset) -> Hits:
    rows = [(q, d, score) for q, id in enumerate(dataset.ids) for d, score in results.get(id, {}).items()]
    if not rows:
        raise DataError(
            f"the run has no result for any of the {len(dataset)} queries: it has the queries "
            f"{name_some(list(results), 3) or 'none'}, and the data {name_some(dataset.ids, 3)}"
        )
    place = places(dataset, {d for _, d, _ in rows})
    if missing := sorted({d for _, d, _ in rows} - place.keys()):
        raise DataError(f"the run names {len(missing)} documents that the corpus lacks: {name_some(missing)}")
    query = np.array([q for q, _, _ in rows], dtype=np.int64)
    document = np.array([place[d] for _, d, _ in rows], dtype=np.int64)
    score = np.array([s for _, _, s in rows], dtype=np.float64)
    return sort_hits(query, document, score, queries=len(dataset))


def with_blank_documents(dataset: Dataset, run: GivenRun) -> Dataset:
    """The dataset with the blank documents that a run names: they take a place in its results, though no search of ours
    can find them. The fingerprint stays."""
    corpus = dataset.tables["corpus"]
    named = {document for id in dataset.ids for document in run.run.get(id, {})}.difference(corpus.ids)
    if not named or corpus.read_again is None:
        return dataset
    blank = [id for id, _ in corpus.read_again() if id in named]
    texts = [*corpus.columns["text"], *[""] * len(blank)]
    extended = replace(corpus, ids=(*corpus.ids, *blank), columns={**corpus.columns, "text": texts})
    return replace(dataset, tables={**dataset.tables, "corpus": extended})


def places(dataset: Dataset, ids: set[str]) -> dict[str, int]:
    """Document id → its row in the corpus, for those of the ids that are there."""
    return {id: row for row, id in enumerate(dataset.tables["corpus"].ids) if id in ids}


def _identical(dataset: Dataset) -> Wanted:
    """Every query with the document that has its id."""
    place = places(dataset, set(dataset.ids))
    pairs = [(query, place[id]) for query, id in enumerate(dataset.ids) if id in place]
    query, document = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return Wanted(query, document)


def _as_trec_eval(hits: Hits, dataset: Dataset) -> Hits:
    """The results in trec_eval's order: scores in single precision, then the higher document id first."""
    with np.errstate(over="ignore"):
        single = hits.scores.astype(np.float32)
    order = np.lexsort((-id_ranks(hits, dataset), -single, hits.queries))
    return Hits(hits.offsets, hits.documents[order], hits.scores[order])


def id_ranks(hits: Hits, dataset: Dataset) -> Ints:
    """The place of each result's document in the order of ids, int64[n]."""
    ids = np.array(dataset.tables["corpus"].ids, dtype=object)
    return np.unique(ids[hits.documents], return_inverse=True)[1].astype(np.int64)
