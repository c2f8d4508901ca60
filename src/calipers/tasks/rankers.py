"""Rankers: what orders the documents of a corpus for each query. BM25, a hybrid search and the run of another system do
it by themselves; an Encoder does it by an exact search among its vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from calipers.core.choices import SIMILARITIES
from calipers.core.datasets import Dataset, Listed
from calipers.core.errors import DataError, RequestError, name_some
from calipers.core.models import (
    SILENT,
    Arrays,
    DividesSearches,
    Encoder,
    Model,
    ModelInfo,
    Progress,
    on_side,
    truncated_by,
)
from calipers.metrics.arrays import Array, Bools, Vectors
from calipers.metrics.fusion import Fusion, fuse
from calipers.metrics.geometry import unit_like
from calipers.metrics.magnitudes import common_power
from calipers.metrics.measures import MEASURES
from calipers.metrics.search import (
    NOTHING_WANTED,
    WINDOW,
    Hits,
    Wanted,
    exact_search,
    merge_hits,
    sort_hits,
    spread_hits,
)
from calipers.tasks import outputs
from calipers.tasks.retrieval_options import RetrievalOptions

PASSAGE_PROMPTS = ("document", "passage", "corpus")  # the order in which sentence-transformers looks for them


@runtime_checkable
class Ranker(Model, Protocol):
    """A model that orders documents by itself."""

    def rank(
        self, queries: Listed, corpus: Listed, k: int, *, wanted: Wanted = NOTHING_WANTED, progress: Progress = SILENT
    ) -> Hits:
        """The k best documents of each query, or more, cut as `metrics.search.cut_hits` cuts them."""
        ...


@runtime_checkable
class Fused(Model, Protocol):
    """An encoder and a ranker whose orders are fused: `hybrid:MODEL+bm25`."""

    @property
    def encoder(self) -> Encoder: ...

    @property
    def lexical(self) -> Ranker: ...

    @property
    def fusion(self) -> Fusion: ...


@dataclass(frozen=True)
class GivenRun:
    """Results of another system, query id → {document id: score}, measured like those of a model."""

    run: Mapping[str, Mapping[str, float]]
    info: ModelInfo

    def rank(
        self, queries: Listed, corpus: Listed, k: int, *, wanted: Wanted = NOTHING_WANTED, progress: Progress = SILENT
    ) -> Hits:
        """All of its results, whatever `k`: those behind it may tie with the last."""
        rows = [(q, d, score) for q, id in enumerate(queries.ids) for d, score in self.run.get(id, {}).items()]
        if not rows:
            raise DataError(
                f"the run has no result for any of the {len(queries.ids)} queries: it has the queries "
                f"{name_some(list(self.run), 3) or 'none'}, and the data {name_some(queries.ids, 3)}"
            )
        named = {d for _, d, _ in rows}
        place = {id: row for row, id in enumerate(corpus.ids) if id in named}
        if missing := sorted(named - place.keys()):
            raise DataError(f"the run names {len(missing)} documents that the corpus lacks: {name_some(missing)}")
        query, document = np.array([(q, place[d]) for q, d, _ in rows], dtype=np.int64).T
        score = np.array([s for _, _, s in rows], dtype=np.float64)
        return sort_hits(query, document, score, queries=len(queries.ids))


@dataclass(frozen=True, eq=False)
class FusedRanker:
    """Two orders fused into one: of vectors, and of words."""

    dense: Ranker
    lexical: Ranker
    fusion: Fusion
    info: ModelInfo

    def rank(
        self, queries: Listed, corpus: Listed, k: int, *, wanted: Wanted = NOTHING_WANTED, progress: Progress = SILENT
    ) -> Hits:
        """All that is among the first `fusion.depth` of either, whatever `k`."""
        dense, lexical = (
            side.rank(queries, corpus, self.fusion.depth, progress=progress) for side in (self.dense, self.lexical)
        )
        return fuse(dense, lexical, self.fusion)


FirstStage = Encoder | Ranker | Fused


def rank_all(
    model: FirstStage, dataset: Dataset, options: RetrievalOptions, progress: Progress, k: int, wanted: Wanted
) -> tuple[Hits, UnreadTexts]:
    """At least the k best documents of every query, and the texts without a vector."""
    if isinstance(model, Fused):
        return _fused(model, dataset, options, progress)
    if not isinstance(model, Ranker):
        return _nearest(model, dataset, options, progress, k, wanted)
    for name in ("query_prompt", "passage_prompt", "similarity", "dimensions"):
        if getattr(options, name) != getattr(RetrievalOptions(), name):
            name = {"dimensions": "truncate_dim"}.get(name, name)
            raise RequestError(f"`{name}` does not apply to {model.info.model_id}, which has no vectors")
    queries, corpus = texts_of(dataset)
    nothing = UnreadTexts(np.zeros(len(queries.ids), np.bool_), np.zeros(len(corpus.ids), np.bool_))
    return model.rank(queries, corpus, k, wanted=wanted, progress=progress), nothing


def texts_of(dataset: Dataset) -> tuple[Listed, Listed]:
    """The queries and the corpus."""
    corpus = dataset.tables["corpus"]
    return Listed(dataset.ids, dataset.columns["query"]), Listed(corpus.ids, corpus.columns["text"])


def _fused(model: Fused, dataset: Dataset, options: RetrievalOptions, progress: Progress) -> tuple[Hits, UnreadTexts]:
    dense = _Vectors(model.encoder, dataset, options, model.info)
    ranker = FusedRanker(dense, model.lexical, model.fusion, model.info)
    hits = ranker.rank(*texts_of(dataset), model.fusion.depth, progress=progress)
    return hits, dense.unread[0]


@dataclass(frozen=True, eq=False)
class _Vectors:
    """An encoder as a ranker of one dataset. `unread` has the texts without a vector, once it has ranked."""

    model: Encoder
    dataset: Dataset
    options: RetrievalOptions
    info: ModelInfo
    unread: list[UnreadTexts] = field(default_factory=list)

    def rank(
        self, queries: Listed, corpus: Listed, k: int, *, wanted: Wanted = NOTHING_WANTED, progress: Progress = SILENT
    ) -> Hits:
        hits, unread = _nearest(self.model, self.dataset, self.options, progress, k, wanted)
        self.unread.append(unread)
        return hits


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
