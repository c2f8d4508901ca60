"""A model, a corpus and a trust score that answer questions: embed, search, score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from calipers.core import SILENT, DataError, Dataset, Encoder, PairScorer, Progress, RequestError, name_some, on_side
from calipers.core.models import truncated_by
from calipers.metrics import geometry, predictors, search
from calipers.metrics.arrays import Bools, Floats, Ints, Vectors
from calipers.metrics.predictors import Columns
from calipers.models import bm25, identity
from calipers.models.bm25 import BM25Index
from calipers.models.options import ModelOptions
from calipers.models.source import Source
from calipers.reliability import scripts
from calipers.reliability.answer import TrustAnswer, without_unread
from calipers.reliability.trust import Trust
from calipers.runs import space as spaces
from calipers.tasks import outputs, retrieval
from calipers.tasks.retrieval import RetrievalOptions

_SAME = 0.9999  # a cosine from which on a model has not seen a difference


def with_direction(texts: Dataset, vectors: Vectors, what: str) -> tuple[Dataset, Vectors, tuple[str, ...]]:
    """The texts whose vectors have a direction, with a note on the others; too many of those are INVALID, and so is one
    vector for all texts."""
    lengths = geometry.norms(vectors)
    spaces.refuse_side(what, texts.ids, lengths)
    lost = [texts.ids[i] for i in np.flatnonzero(lengths == 0).tolist()]
    notes: tuple[str, ...] = ()
    if lost:
        kept = np.flatnonzero(lengths > 0)
        columns = {key: [values[i] for i in kept.tolist()] for key, values in texts.columns.items()}
        note = f"{len(lost)} of {len(texts)} {what} are skipped: their vectors are zero and have no direction"
        notes = (f"{note} ({name_some(lost)})",)
        texts = replace(texts, ids=tuple(texts.ids[i] for i in kept.tolist()), columns=columns)
        vectors = np.asarray(vectors[kept])
    outputs.refuse_constant(vectors, texts.ids, "the same vector", what, inputs=texts.columns["text"])
    if what == "documents" and len(texts) > 1 and len(set(texts.columns["text"])) == 1:
        raise DataError(f"{texts.source.path} holds one text only: a trust score needs documents that differ")
    return texts, vectors, notes


@dataclass(frozen=True)
class Embedder:
    """A model with its prompts, and how many texts it has cut."""

    model: Encoder
    chosen: RetrievalOptions
    progress: Progress
    cut: Counter[str] = field(default_factory=Counter)  # texts that the model cut, by kind

    def __call__(self, texts: Sequence[str], *, query: bool = True, counted: bool = True) -> Vectors:
        """Texts that are not `counted` are none of the user's: queries made to be odd."""
        model = on_side(self.model, "query" if query else "document")
        before = truncated_by(model)
        vectors = model.encode(texts, prompt=self.prompts[0 if query else 1], progress=self.progress)
        if counted:
            self.cut["queries" if query else "documents"] += truncated_by(model) - before
        return vectors

    def notes(self) -> Iterator[str]:
        return spaces.notes_on_truncation(self.cut, self.model.info.settings)

    @property
    def prompts(self) -> tuple[str | None, str | None]:
        """Of queries and of documents; None: the model's own."""
        return retrieval.prompts(self.model.info, self.chosen)

    @property
    def similarity(self) -> str:
        return retrieval.similarity_of(self.model.info, self.chosen)

    @property
    def settings(self) -> dict[str, Any]:
        """All that decides the vectors beside the model's files."""
        prompts = dict(zip(("query_prompt", "passage_prompt"), self.prompts, strict=True))
        other = {"similarity": self.similarity} if self.similarity != "cosine" else {}
        return {**identity.vector_settings(self.model.info), **prompts, **other}


def _search(queries: Vectors, searched: Vectors, k: int, similarity: str) -> tuple[Floats, Ints]:
    """Cosines and rows of the first k results, [q, k] each; NaN and -1 for a query whose vector is zero."""
    alive = np.flatnonzero(geometry.norms(queries) > 0)
    cosines, rows = np.full((len(queries), k), np.nan), np.full((len(queries), k), -1)
    if len(alive):
        rows[alive] = search.nearest_rows(queries[alive], searched, k, similarity=similarity)
        cosines[alive] = geometry.cosines_at(queries[alive], searched, rows[alive])
    return cosines, rows


@dataclass(frozen=True, eq=False)
class Lexicon:
    """BM25 on the documents, indexed when it is first needed, and a reranker if there is one."""

    documents: Dataset
    reranker: PairScorer | None = None

    @cached_property
    def index(self) -> BM25Index:
        model = bm25.load(Source("bm25", "bm25", None), ModelOptions())
        return model.index(self.documents.columns["text"])

    def columns(
        self,
        texts: Sequence[str],
        deep: Ints,
        k: int,
        wanted: Sequence[str] | None = None,
        progress: Progress = SILENT,
        reranked: Floats | None = None,
    ) -> dict[str, Floats]:
        """The predictors of texts, and of the reranker: those that are `wanted`, None for all. `reranked` are its
        scores of the first results or more, if they are at hand."""
        columns: dict[str, Floats] = {}
        if wanted is None or any(name in predictors.PREDICTORS["texts"] for name in wanted):
            columns |= predictors.text_columns(deep, self.index.search(texts, predictors.DEPTH))
        if self.reranker and (wanted is None or any(name in predictors.PREDICTORS["reranker"] for name in wanted)):
            scores = self.rerank(texts, deep[:, :k], progress) if reranked is None else reranked[:, :k]
            columns |= predictors.reranker_columns(scores, k)
        return columns

    def rerank(self, texts: Sequence[str], rows: Ints, progress: Progress = SILENT) -> Floats:
        """The reranker's scores of each query's results, float64[q, n]; NaN for none."""
        assert self.reranker is not None
        query, place = np.nonzero(rows >= 0)
        passages = self.documents.columns["text"]
        pairs = [(texts[q], passages[rows[q, p]]) for q, p in zip(query.tolist(), place.tolist(), strict=True)]
        scores = np.full(rows.shape, np.nan)
        if pairs:
            values = self.reranker.score(pairs, progress=progress)
            scores[query, place] = outputs.one_score(values, "a second stage")
        return scores


@dataclass(frozen=True, eq=False)
class TrustedSearch:
    """Everything that one question needs. `notes` are about the corpus and the fit."""

    embed: Embedder
    documents: Dataset
    vectors: Vectors
    trust: Trust
    lexicon: Lexicon
    notes: tuple[str, ...] = ()

    def ask(self, queries: Sequence[str], *, scripts_too: bool = True) -> TrustAnswer:
        """Search and score. `scripts_too`: say where the model cannot read a query's script, which costs a few more
        texts."""
        query_vectors = np.empty((0, self.vectors.shape[1]), np.float32)
        if queries:
            query_vectors = self.embed(queries)
            # A zero vector passes: the model knows no word of the query, which then falls back.
            outputs.refuse_rows(outputs.not_finite(query_vectors), queries, "NaN or infinite numbers", "queries")
        self._refuse_dimensions(query_vectors)
        cosines, rows = _search(query_vectors, self.vectors, self.trust.k, self.embed.similarity)
        scores = self.trust.score_in(query_vectors, self.vectors, rows, extra=self._extra(queries, query_vectors))
        unread = self._unread(queries, query_vectors) if scripts_too else [None] * len(queries)
        return TrustAnswer(
            trust=self.trust,
            model_id=self.embed.model.info.model_id,
            corpus=self.documents,
            queries=tuple(queries),
            scores=without_unread(scores, unread),
            rows=rows,
            cosines=cosines,
            unread=tuple(unread),
            notes=(*self.notes, *self.embed.notes()),
            settings=self.embed.model.info.settings,
        )

    def _refuse_dimensions(self, vectors: Vectors) -> None:
        fitted = self.trust.codec.dimensions
        if vectors.shape[1] != fitted:
            raise RequestError(
                f"{self.embed.model.info.model_id} gives vectors of {vectors.shape[1]} dimensions and the trust score "
                f"is for {fitted}"
            )

    def _extra(self, queries: Sequence[str], vectors: Vectors) -> Columns:
        """What the richest map reads beside vectors."""
        kinds = [kind for kind in self.trust.maps if kind != "reranker" or self.lexicon.reranker]
        features = self.trust.maps[kinds[-1]].features if kinds and queries else ()
        needed = [name for name in features if name not in predictors.names_for("corpus")]
        if queries and kinds[-1:] == ["reranker"]:
            needed += predictors.PREDICTORS["reranker"]
        if not any(name in predictors.names_for("reranker") for name in needed):
            return {}
        deep = predictors.deep_rows(vectors, self.vectors, self.embed.similarity)
        return self.lexicon.columns(queries, deep, self.trust.k, needed, self.embed.progress)

    def _unread(self, queries: Sequence[str], vectors: Vectors) -> list[str | None]:
        """The script of each query that the model cannot read: its tokenizer spells it letter by letter or not at all;
        where it shows none, other letters give the same vector."""
        foreign = {row: script for row, text in enumerate(queries) if (script := scripts.foreign(text))}
        if not foreign or self.embed.model.info.backend == "vectors":
            return [None] * len(queries)
        blind = self._blind(queries, vectors, list(foreign))
        return [foreign[row] if row in blind else None for row in range(len(queries))]

    def _blind(self, queries: Sequence[str], vectors: Vectors, rows: list[int]) -> set[int]:
        pieces = getattr(self.embed.model, "pieces", None)
        if pieces is not None:
            words = {row: queries[row].split() for row in rows}
            return {row for row in rows if scripts.spelled_out(pieces(words[row]), words[row])}
        others = self.embed([scripts.variant(queries[row]) for row in rows])
        own, other = (geometry.unit_or_zero(x).astype(np.float64) for x in (vectors[rows], others))
        same: Bools = (np.einsum("ij,ij->i", own, other) > _SAME) | (own == other).all(axis=1)
        return {row for row, alike in zip(rows, same.tolist(), strict=True) if alike}
