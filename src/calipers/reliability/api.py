"""`trust`: a model, a corpus and queries to a trust score and its decisions."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from calipers.core import SILENT, DataError, Dataset, Encoder, Progress, RequestError, name_some, on_side
from calipers.core.choices import CODECS, SIMILARITIES, TRUST_MAPS
from calipers.core.models import truncated_by
from calipers.core.options import Options, option
from calipers.data import beir, corpora, odd_queries, trec
from calipers.data.texts import load_texts
from calipers.metrics import geometry, search
from calipers.metrics.arrays import Floats, Ints, Vectors
from calipers.models import ModelOptions, identity
from calipers.reliability.records import Method
from calipers.reliability.trust import Trust, TrustAnswer
from calipers.runs import embedding
from calipers.runs import space as spaces
from calipers.runs.vector_cache import VectorCache
from calipers.tasks import outputs, retrieval
from calipers.tasks.columns import ids_by_side
from calipers.tasks.retrieval import RetrievalOptions

ODD = 200  # odd queries of each kind that detectors are fitted on, at most


_queries, _score = partial(option, None, group="Data"), partial(option, None, group="Score")


@dataclass(frozen=True)
class TrustOptions(Options):
    """How a trust score is fitted, or the file of a fitted one. None: the default of `Trust.fit`.

    >>> TrustOptions(k=20, codec="int4").k
    20
    """

    queries: str | None = _queries(
        "Real queries, a file or folder as above: they define what is usual for R_q. Default: queries.jsonl beside the "
        "corpus with --calibrate, else documents.",
        metavar="Q",
    )
    calibrate: str | None = _queries(
        "Judgements of these queries (BEIR or TREC): they turn the score into the probability that a relevant result "
        "is among the first K.",
        metavar="QRELS",
    )
    out_of_domain: str | None = _queries(
        "Queries that the corpus has no answer to, for a detector of such queries. Default: bundled ones.",
        metavar="Q",
        needs=("queries", "calibrate"),
    )
    codec: str | None = _score("How vectors are stored. Default: int8.", choices=CODECS)
    k: int | None = _score("How many neighbours. Default: 10.", metavar="K")
    error: float | None = _score(
        "Share of failures among the answered queries that is acceptable. Default: 0.1.",
        metavar="E",
        needs=("calibrate",),
    )
    method: Method | None = option(
        None,
        "From the four features to a probability: a logistic map, or an isotonic one behind it. Default: logistic.",
        group="Score",
        flag="--map",
        choices=TRUST_MAPS,
        needs=("calibrate",),
    )
    seed: int = option(42, "Of samples, folds and resamples.", group="Score")
    query_prompt: str | None = _score("Put before every query.", metavar="TEXT")
    passage_prompt: str | None = _score("Put before every document.", metavar="TEXT")
    similarity: str | None = _score(
        "Of vectors in a search. Default: what the model's files say, else cosine.", choices=SIMILARITIES
    )
    load: Path | None = option(None, "Use a score that was saved.", group="Output", metavar="FILE")

    def __post_init__(self) -> None:
        if self.load is not None:  # first, since what it holds is what the others are for
            self.refuse_others("a trust score that is loaded", "load", "query_prompt", "passage_prompt", "similarity")
        super().__post_init__()


_FEW = 1_000  # neighbours that may be requested of a smaller corpus as well


def trust(
    model: str | Encoder,
    corpus: str,
    queries: Sequence[str] = (),
    *,
    options: TrustOptions | None = None,
    model_options: ModelOptions | None = None,
    vectors: VectorCache | None = None,
    progress: Progress = SILENT,
) -> TrustAnswer:
    """Embed a corpus, fit or load a trust score for it, and score queries. Files are read before the model is loaded.

    Vectors of the corpus and of its real queries are kept in `vectors` if it is given; those of `queries` are not.

    >>> answer = trust("./model", "./scifact", ["vitamin D and bone"])    # doctest: +SKIP
    >>> answer.scores.decision.tolist()                                   # doctest: +SKIP
    ['answer']
    """
    options = options or TrustOptions()
    if options.query_prompt is not None and not (queries or options.queries or options.calibrate):
        raise RequestError("`query_prompt` has no effect without a query")
    if any(not query.strip() for query in queries):
        raise RequestError("a query is blank: there is nothing to search for")
    documents = load_texts(corpus, "corpus")
    if options.k is not None and options.k > max(len(documents), _FEW):
        raise RequestError(f"`k` must be at most the number of documents, {len(documents):,}, found {options.k:,}")
    loaded = Trust.load(options.load) if options.load else None
    material = _Material() if loaded else _read_material(corpus, options, documents)
    progress.start("Loading the model", 0)
    ids = _text_ids(documents, material)
    encoder, plain = embedding.open_encoder(model, ids, model_options or ModelOptions(), vectors)
    embed = _Embedder(encoder, options, progress)
    notes = _refuse_other_model(loaded, embed, documents) if loaded else ()
    embedded = embed(documents.columns["text"], query=False)
    documents, searched, dropped = _with_direction(documents, embedded, "documents")
    fitted, fit_notes = (loaded, ()) if loaded else _fit(embed, documents, searched, material, options)
    query_vectors = np.empty((0, searched.shape[1]), np.float32)
    if queries:
        query_vectors = _Embedder(plain, options, progress, embed.cut)(queries)
        # A zero vector passes: the model knows no word of the query, which then falls back.
        outputs.refuse_rows(outputs.not_finite(query_vectors), queries, "NaN or infinite numbers", "queries")
    if query_vectors.shape[1] != fitted.codec.dimensions:
        raise RequestError(
            f"{encoder.info.model_id} gives vectors of {query_vectors.shape[1]} dimensions and the trust score is for "
            f"{fitted.codec.dimensions}"
        )
    cosines, rows = _search(query_vectors, searched, fitted.k, embed.similarity)
    return TrustAnswer(
        trust=fitted,
        model_id=encoder.info.model_id,
        corpus=documents,
        queries=tuple(queries),
        scores=fitted.score_in(query_vectors, searched, rows),
        rows=rows,
        cosines=cosines,
        notes=(*notes, *encoder.damaged, *dropped, *material.notes, *fit_notes, *embed.notes()),
        settings=encoder.info.settings,
    )


def _text_ids(documents: Dataset, material: _Material) -> dict[str, list[str]]:
    """Vectors may be stored as for `diagnose`, under `ID/document` and `ID/query`, or a document's under its id."""
    queries = material.queries
    sides = [("query", queries.ids, queries.columns["text"])] if queries else []
    ids = ids_by_side(("document", documents.ids, documents.columns["text"]), *sides)
    plain = {text: id for id, text in zip(documents.ids, documents.columns["text"], strict=True)}
    return {text: [*names, *([plain[text]] if text in plain else [])] for text, names in ids.items()}


def _search(queries: Vectors, searched: Vectors, k: int, similarity: str) -> tuple[Floats, Ints]:
    """Cosines and rows of the first k results, [q, k] each; NaN and -1 for a query whose vector is zero."""
    alive = np.flatnonzero(geometry.norms(queries) > 0)
    cosines, rows = np.full((len(queries), k), np.nan), np.full((len(queries), k), -1)
    if len(alive):
        rows[alive] = search.nearest_rows(queries[alive], searched, k, similarity=similarity)
        cosines[alive] = geometry.cosines_at(queries[alive], searched, rows[alive])
    return cosines, rows


def _with_direction(texts: Dataset, vectors: Vectors, what: str) -> tuple[Dataset, Vectors, tuple[str, ...]]:
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
class _Embedder:
    model: Encoder
    options: TrustOptions
    progress: Progress
    cut: Counter[str] = field(default_factory=Counter)  # texts that the model cut, by kind

    def __call__(self, texts: Sequence[str], *, query: bool = True) -> Vectors:
        model = on_side(self.model, "query" if query else "document")
        before = truncated_by(model)
        vectors = model.encode(texts, prompt=self.prompts[0 if query else 1], progress=self.progress)
        self.cut["queries" if query else "documents"] += truncated_by(model) - before
        return vectors

    def notes(self) -> Iterator[str]:
        return spaces.notes_on_truncation(self.cut, self.model.info.settings)

    @property
    def prompts(self) -> tuple[str | None, str | None]:
        """Of queries and of documents; None: the model's own."""
        return retrieval.prompts(self.model.info, self._chosen)

    @property
    def similarity(self) -> str:
        return retrieval.similarity_of(self.model.info, self._chosen)

    @property
    def _chosen(self) -> RetrievalOptions:
        names = ("query_prompt", "passage_prompt", "similarity")
        return RetrievalOptions(**{name: getattr(self.options, name) for name in names})

    @property
    def settings(self) -> dict[str, Any]:
        """All that decides the vectors beside the model's files."""
        prompts = dict(zip(("query_prompt", "passage_prompt"), self.prompts, strict=True))
        other = {"similarity": self.similarity} if self.similarity != "cosine" else {}
        return {**identity.vector_settings(self.model.info), **prompts, **other}


@dataclass(frozen=True)
class _Material:
    queries: Dataset | None = None
    qrels: Mapping[str, Mapping[str, float]] | None = None
    foreign: Dataset | None = None
    notes: tuple[str, ...] = ()


def _read_material(corpus: str, options: TrustOptions, documents: Dataset) -> _Material:
    """The queries, judgements and out-of-domain queries that the options name."""
    foreign = load_texts(options.out_of_domain, "queries") if options.out_of_domain else None
    if options.calibrate is None:
        return _Material(load_texts(options.queries, "queries") if options.queries else None, None, foreign)
    beside = Path(os.path.expanduser(corpus))
    place = options.queries or str(beside if beside.is_dir() else beside.parent)
    queries = load_texts(place, "queries")
    judgements = trec.read_qrels(Path(os.path.expanduser(options.calibrate)))
    judged = [row for row, id in enumerate(queries.ids) if id in judgements]
    if not judged:
        raise DataError(
            f"{options.calibrate} judges no query of {queries.source.path}: it has {name_some(list(judgements), 3)}, "
            f"and the queries {name_some(queries.ids, 3)} (`queries` says where they are)"
        )
    taken = queries.take(judged)
    beir.refuse_absent([judgements[id] for id in taken.ids], documents.ids, options.calibrate)
    absent = corpora.note_absent([judgements[id] for id in taken.ids], documents.ids)
    return _Material(taken, judgements, foreign, tuple(absent))


def _fit(
    embed: _Embedder, documents: Dataset, vectors: Vectors, material: _Material, options: TrustOptions
) -> tuple[Trust, tuple[str, ...]]:
    """The trust score, and notes about the queries."""
    real, queries = material.queries, None
    notes: tuple[str, ...] = ()
    if real:
        real, queries, notes = _with_direction(real, embed(real.columns["text"]), "queries")
    odd = {kind: embed(texts) for kind, texts in _odd_texts(documents, material, embed.model, options).items()}
    info = embed.model.info
    chosen: dict[str, Any] = {key: getattr(options, key) for key in ("codec", "k", "error", "method")}
    fitted = Trust.fit(
        vectors,
        query_vectors=queries,
        qrels=[material.qrels[id] for id in real.ids] if real and material.qrels else None,
        corpus_ids=documents.ids,
        odd={kind: rows[geometry.norms(rows) != 0] for kind, rows in odd.items()},
        seed=options.seed,
        similarity=embed.similarity,
        about={
            "model": info.model_id,
            "model_fingerprint": info.fingerprint,
            "model_settings": json.dumps(embed.settings, sort_keys=True, default=str),
            "corpus": documents.source.path,
            "corpus_fingerprint": documents.fingerprint,
            "seed": str(options.seed),
        },
        **{key: value for key, value in chosen.items() if value is not None},
    )
    return fitted, notes


def _odd_texts(documents: Dataset, material: _Material, model: Encoder, options: TrustOptions) -> dict[str, list[str]]:
    """Queries that deserve no answer, by kind. Precomputed vectors have only those that are named."""
    texts, real = documents.columns["text"], material.queries
    if real is None:
        return {}
    odd = {"out_of_domain": list(material.foreign.columns["text"]) if material.foreign else []}
    if model.info.backend != "vectors":
        foreign = odd["out_of_domain"] or list(odd_queries.foreign(texts, real.columns["text"]).queries)
        odd = {
            "gibberish": odd_queries.gibberish(ODD, seed=options.seed),
            "vague": odd_queries.vague(texts, ODD),
            "out_of_domain": foreign,
        }
    return {kind: queries for kind, queries in odd.items() if queries}


def _read_settings(trust: Trust) -> dict[str, Any] | None:
    """The settings that a trust score was fitted with; None where it was fitted from vectors alone."""
    if (written := trust.about.get("model_settings")) is None:
        return None
    try:
        settings = json.loads(written)
    except ValueError as error:
        raise RequestError(f"the trust score's model_settings are not JSON: {error}") from error
    if not isinstance(settings, dict):
        raise RequestError(f"the trust score's model_settings must be a JSON object, found {written[:60]!r}")
    return settings


def _refuse_other_model(trust: Trust, embed: _Embedder, documents: Dataset) -> tuple[str, ...]:
    """A trust score belongs to one model, its settings and one corpus."""
    info, made = embed.model.info, trust.about.get("model_fingerprint")
    earlier = bool(made) and "model_settings" not in trust.about  # its fingerprint covered the weights alone
    if made and (trust.about.get("model") != info.model_id if earlier else made != info.fingerprint):
        raise RequestError(
            f"the trust score was fitted for {trust.about.get('model', 'another model')}, whose files differ from "
            f"those of {info.model_id}: fit it again"
        )
    settings = json.loads(json.dumps(embed.settings, default=str))
    fitted = _read_settings(trust) or settings
    differing = [name for name in sorted({*fitted, *settings}) if fitted.get(name) != settings.get(name)]
    if differing:
        changes = (f"{name} {fitted.get(name)!r}, now {settings.get(name)!r}" for name in differing)
        raise RequestError(
            f"the trust score was fitted with other settings of {info.model_id} ({'; '.join(changes)}): "
            "use the same settings, or fit it again"
        )
    notes = []
    if earlier:
        notes.append(
            "an earlier version fitted the trust score: whether it is of this model cannot be checked, fit it again"
        )
    trust.refuse_other(corpus=documents.fingerprint)
    return tuple(notes)
