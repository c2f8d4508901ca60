"""trust: a reference to a model, a corpus and questions to a trust score and its decisions."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.core import (
    SILENT,
    DataError,
    Dataset,
    Encoder,
    InvalidOutput,
    Progress,
    RequestError,
    name_some,
)
from calipers.data import corpora, odd_queries, trec
from calipers.data.texts import load_texts
from calipers.metrics import geometry, neighbours
from calipers.models import ModelOptions
from calipers.reliability import Scores, Trust
from calipers.reliability.records import Method
from calipers.runs import directions, embedding
from calipers.runs.vector_cache import VectorCache
from calipers.tasks import retrieval
from calipers.tasks.retrieval import RetrievalOptions

ODD = 200  # odd queries of each kind that detectors are fitted on, at most


@dataclass(frozen=True)
class Wishes:
    """How to fit a trust score, or the file of one that was fitted before."""

    load: Path | None = None
    queries: str | None = None  # real queries; None: those beside the corpus, where judgements need them
    calibrate: str | None = None  # judgements
    out_of_domain: str | None = None  # queries that the corpus has no answer to
    codec: str | None = None
    k: int | None = None
    error: float | None = None
    method: Method | None = None
    query_prompt: str | None = None
    passage_prompt: str | None = None
    seed: int = 42
    model_options: ModelOptions = field(default_factory=ModelOptions)

    def __post_init__(self) -> None:
        if self.load is None:
            return
        for name in ("queries", "calibrate", "out_of_domain", "codec", "k", "error", "method"):
            if getattr(self, name) is not None:
                raise RequestError(f"--{name.replace('_', '-')} does not apply to a trust score that is loaded")


@dataclass(frozen=True, eq=False)
class Answer:
    """What came out: the trust score, and for each question its score and its neighbours in the corpus."""

    trust: Trust
    model_id: str
    corpus: Dataset
    questions: tuple[str, ...]
    scores: Scores
    rows: NDArray[np.int64]  # [q, k], -1 for none
    cosines: NDArray[np.float64]  # [q, k]
    notes: tuple[str, ...] = ()


def ask(
    model: str | Encoder,
    corpus: str,
    questions: Sequence[str] = (),
    wishes: Wishes | None = None,
    *,
    vectors: VectorCache | None = None,
    progress: Progress = SILENT,
) -> Answer:
    """Embed a corpus, fit or load a trust score for it, and score the questions. Files are read before the model is.

    Vectors of the corpus and of known queries are kept in `vectors` if it is given; those of the questions are not.
    """
    wish = wishes or Wishes()
    if any(not question.strip() for question in questions):
        raise RequestError("a query is blank: there is nothing to search for")
    documents = load_texts(corpus, "corpus")
    loaded = Trust.load(wish.load) if wish.load else None
    known = _KnownQueries() if loaded else _read_known(corpus, wish, documents)
    progress.start("Loading the model", 0)
    ids = {text: [id] for id, text in zip(documents.ids, documents.columns["text"], strict=True)}
    encoder, plain = embedding.open_encoder(model, ids, wish.model_options, vectors)
    notes = _refuse_other_model(loaded, encoder, documents) if loaded else ()
    embed = _Embedder(encoder, wish, progress)
    documents, searched, lost = _with_direction(documents, embed(documents.columns["text"], query=False), "documents")
    trust, more = (loaded, ()) if loaded else _fit(embed, documents, searched, known, wish)
    asked = np.empty((0, searched.shape[1]), np.float32)
    if questions:
        asked = _Embedder(plain, wish, progress)(questions)
        _refuse_not_finite(asked, questions)
    if asked.shape[1] != trust.codec.dimensions:
        raise RequestError(
            f"{encoder.info.model_id} gives vectors of {asked.shape[1]} dimensions and the trust score is for "
            f"{trust.codec.dimensions}"
        )
    cosines, rows = _search(asked, searched, trust.k)
    scores = trust.score_in(asked, searched, rows)
    return Answer(
        trust,
        encoder.info.model_id,
        documents,
        tuple(questions),
        scores,
        rows,
        cosines,
        (*notes, *lost, *known.notes, *more),
    )


def _refuse_not_finite(asked: NDArray[np.float32], questions: Sequence[str]) -> None:
    """A zero vector passes: it says that the model knows nothing of a question, which then falls back."""
    dead = [questions[row] for row in np.flatnonzero(~np.isfinite(geometry.norms(asked))).tolist()]
    if dead:
        raise InvalidOutput(
            f"the model gives NaN or infinite numbers for {len(dead)} of {len(questions)} "
            f"{'question' if len(questions) == 1 else 'questions'} ({name_some([repr(text) for text in dead])})",
            dead,
        )


def _search(
    asked: NDArray[np.float32], searched: NDArray[np.float32], k: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Cosines and rows of the k nearest, [q, k] each; NaN and -1 for a question whose vector is zero."""
    alive = np.flatnonzero(geometry.norms(asked) > 0)
    cosines, rows = np.full((len(asked), k), np.nan), np.full((len(asked), k), -1)
    if len(alive):
        distances, found = neighbours.nearest(asked[alive], searched, k)
        cosines[alive, : found.shape[1]], rows[alive, : found.shape[1]] = 1 - distances**2 / 2, found
    return cosines, rows


def _with_direction(
    texts: Dataset, vectors: NDArray[np.float32], what: str
) -> tuple[Dataset, NDArray[np.float32], tuple[str, ...]]:
    """The texts that a cosine can speak about, with a note on the others; too many of these are INVALID, and so is one
    vector for all."""
    lengths = geometry.norms(vectors)
    directions.refuse_side(what, texts.ids, lengths)
    lost = [texts.ids[i] for i in np.flatnonzero(lengths == 0).tolist()]
    notes: tuple[str, ...] = ()
    if lost:
        kept = np.flatnonzero(lengths > 0)
        some = {key: [values[i] for i in kept.tolist()] for key, values in texts.columns.items()}
        told = f"{len(lost)} of {len(texts)} {what} have no direction, for their vectors are zero, and are left out"
        notes = (f"{told} ({name_some(lost)})",)
        texts = replace(texts, ids=tuple(texts.ids[i] for i in kept.tolist()), columns=some)  # of the same file
        vectors = np.asarray(vectors[kept])
    _refuse_constant(texts, vectors, what)
    return texts, vectors, notes


def _refuse_constant(texts: Dataset, vectors: NDArray[np.float32], what: str) -> None:
    if len(texts) < 2 or np.ptp(vectors, axis=0).any():
        return
    if len(set(texts.columns["text"])) > 1:
        raise InvalidOutput(
            f"the model gives the same vector for all {len(texts)} {what} (rows {name_some(texts.ids)})",
            texts.ids,
        )
    if what == "documents":
        raise DataError(f"{texts.source.path} holds one text only: a trust score needs documents that differ")


@dataclass(frozen=True)
class _Embedder:
    model: Encoder
    wish: Wishes
    progress: Progress

    def __call__(self, texts: Sequence[str], *, query: bool = True) -> NDArray[np.float32]:
        options = RetrievalOptions(query_prompt=self.wish.query_prompt, passage_prompt=self.wish.passage_prompt)
        prompt = retrieval.prompts(self.model.info, options)[0 if query else 1]
        return self.model.encode(texts, prompt=prompt, progress=self.progress)


@dataclass(frozen=True)
class _KnownQueries:
    queries: Dataset | None = None
    qrels: Mapping[str, Mapping[str, float]] | None = None
    foreign: Dataset | None = None
    notes: tuple[str, ...] = ()


def _read_known(corpus: str, wish: Wishes, documents: Dataset) -> _KnownQueries:
    """Queries, judgements and foreign queries, as far as they were asked for."""
    foreign = load_texts(wish.out_of_domain, "queries") if wish.out_of_domain else None
    if wish.calibrate is None:
        return _KnownQueries(load_texts(wish.queries, "queries") if wish.queries else None, None, foreign)
    beside = Path(os.path.expanduser(corpus))
    place = wish.queries or str(beside if beside.is_dir() else beside.parent)
    queries = load_texts(place, "queries")
    judgements = trec.read_qrels(Path(os.path.expanduser(wish.calibrate)))
    judged = [row for row, id in enumerate(queries.ids) if id in judgements]
    if not judged:
        raise DataError(
            f"{wish.calibrate} judges no query of {queries.source.path}: it has {name_some(list(judgements), 3)}, "
            f"and the queries {name_some(queries.ids, 3)} (--queries says where they are)"
        )
    taken = queries.take(judged)
    absent = corpora.note_absent([judgements[id] for id in taken.ids], documents.ids, wish.calibrate)
    return _KnownQueries(taken, judgements, foreign, tuple(absent))


def _fit(
    embed: _Embedder, documents: Dataset, vectors: NDArray[np.float32], known: _KnownQueries, wish: Wishes
) -> tuple[Trust, tuple[str, ...]]:
    """The trust score, and notes about the queries."""
    real, queries = known.queries, None
    notes: tuple[str, ...] = ()
    if real:
        real, queries, notes = _with_direction(real, embed(real.columns["text"]), "queries")
    odd = {kind: embed(some) for kind, some in _odd_texts(documents, known, embed.model, wish).items()}
    info = embed.model.info
    chosen: dict[str, Any] = {key: getattr(wish, key) for key in ("codec", "k", "error", "method")}
    fitted = Trust.fit(
        vectors,
        query_vectors=queries,
        qrels=[known.qrels[id] for id in real.ids] if real and known.qrels else None,
        corpus_ids=documents.ids,
        odd={kind: some[geometry.norms(some) != 0] for kind, some in odd.items()},
        seed=wish.seed,
        about={
            "model": info.model_id,
            "model_fingerprint": info.fingerprint,
            "corpus": documents.source.path,
            "corpus_fingerprint": documents.fingerprint,
        },
        **{key: value for key, value in chosen.items() if value is not None},
    )
    return fitted, notes


def _odd_texts(documents: Dataset, known: _KnownQueries, model: Encoder, wish: Wishes) -> dict[str, list[str]]:
    """Queries that deserve no answer, by kind. Vectors that are already computed hold none but what is given."""
    texts, given, real = documents.columns["text"], known.foreign, known.queries
    if real is None:
        return {}
    found = {"out_of_domain": list(given.columns["text"]) if given else []}
    if model.info.backend != "vectors":
        made = {"gibberish": odd_queries.gibberish(ODD, seed=wish.seed), "vague": odd_queries.vague(texts, ODD)}
        foreign = found["out_of_domain"] or list(odd_queries.foreign(texts, real.columns["text"]).queries)
        found = {**made, "out_of_domain": foreign}
    return {kind: some for kind, some in found.items() if some}


def _refuse_other_model(trust: Trust, model: Encoder, documents: Dataset) -> tuple[str, ...]:
    """A trust score knows one model; of another corpus it is told that the shares may differ."""
    made = trust.about.get("model_fingerprint")
    if made and made != model.info.fingerprint:
        raise RequestError(
            f"the trust score was fitted for {trust.about.get('model', 'another model')}, whose weights differ from "
            f"those of {model.info.model_id}: fit it again with --save"
        )
    if trust.about.get("corpus_fingerprint", documents.fingerprint) != documents.fingerprint:
        return (
            f"the trust score was fitted on another corpus, {trust.about.get('corpus')}: its thresholds may not hold",
        )
    return ()
