"""`trust`: a model, a corpus and queries to a trust score and its decisions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from calipers.core import (
    SILENT,
    CalipersError,
    DataError,
    Dataset,
    Encoder,
    PairScorer,
    Progress,
    RequestError,
    name_some,
)
from calipers.core.choices import CODECS, SIMILARITIES, SUCCESSES, TRUST_MAPS
from calipers.core.inputs import expand
from calipers.core.options import Options, option
from calipers.core.text_ids import TextIds
from calipers.data import beir, corpora, odd_queries, trec
from calipers.data.texts import find_file, load_texts
from calipers.metrics import geometry, predictors
from calipers.metrics import trust as metrics
from calipers.metrics.arrays import Vectors
from calipers.models import ModelOptions, load_model
from calipers.reliability.answer import TrustAnswer
from calipers.reliability.records import Method, Success
from calipers.reliability.searching import Embedder, Lexicon, TrustedSearch, with_direction
from calipers.reliability.trust import Trust
from calipers.runs import embedding
from calipers.runs.vector_cache import VectorCache
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
        "corpus, else documents.",
        metavar="Q",
    )
    calibrate: str | None = _queries(
        "Judgements of these queries (BEIR or TREC): they turn the score into the probability that a query is answered "
        "well (--success), and into a promise (--error, --confidence).",
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
        "Share of failures among the answered queries that is promised. Default: 0.1.",
        metavar="E",
        needs=("calibrate",),
    )
    method: Method | None = option(
        None,
        "From the chosen predictors to a probability: a logistic map, or an isotonic one behind it. Default: logistic.",
        group="Score",
        flag="--map",
        choices=TRUST_MAPS,
        needs=("calibrate",),
    )
    confidence: float | None = _score(
        "How sure the promise is, over sets of judged queries. Default: 0.95.",
        metavar="P",
        above=0,
        below=1,
        needs=("calibrate",),
    )
    success: str | None = _score(
        "When a judged query is answered well: a relevant result is among the first K, the first result is relevant, "
        "or nDCG@10 is at least --bar. Default: relevant.",
        choices=SUCCESSES,
        needs=("calibrate",),
    )
    bar: float | None = _score("Of nDCG@10. Default: 0.5.", metavar="N", above=0, at_most=1, needs=("success",))
    relevant_from: float | None = _score(
        "The lowest grade that counts as relevant. Default: 1.", metavar="GRADE", above=0, needs=("calibrate",)
    )
    reranker: str | None = _score(
        "A cross-encoder: its scores of the first K join the predictors, and the output shows which queries are worth "
        "its calls (the decision rerank).",
        metavar="MODEL",
        needs=("calibrate", "load"),
    )
    rerank_depth: int | None = _score(
        "How many results of a query it reranks. Default: K.",
        metavar="N",
        at_least=1,
        at_most=predictors.DEPTH,
        needs=("reranker",),
    )
    seed: int = option(42, "Of samples, folds and resamples.", group="Score", at_least=0)
    query_prompt: str | None = _score("Put before every query.", metavar="TEXT")
    passage_prompt: str | None = _score("Put before every document.", metavar="TEXT")
    similarity: str | None = _score(
        "Of vectors in a search. Default: what the model's files say, else cosine.", choices=SIMILARITIES
    )
    load: Path | None = option(None, "Use a score that was saved.", group="Output", metavar="FILE")

    def __post_init__(self) -> None:
        if self.load is not None:  # first, since what it holds is what the others are for
            self.refuse_others(
                "a trust score that is loaded", "load", "query_prompt", "passage_prompt", "similarity", "reranker"
            )
        if self.rerank_depth is not None and self.rerank_depth < (self.k or metrics.K):
            raise RequestError(f"`rerank_depth` must be at least `k`, {self.k or metrics.K}, found {self.rerank_depth}")
        if self.bar is not None and self.success != "ndcg":
            raise RequestError("`bar` has no effect without `success` ndcg")
        if self.success == "ndcg" and self.relevant_from is not None:
            raise RequestError("`relevant_from` has no effect with `success` ndcg, which reads the grades")
        super().__post_init__()

    @property
    def search(self) -> RetrievalOptions:
        names = ("query_prompt", "passage_prompt", "similarity")
        return RetrievalOptions(**{name: getattr(self, name) for name in names})

    @property
    def measure(self) -> Success:
        usual = Success()
        return Success(self.success or usual.kind, self.bar or usual.bar, self.relevant_from or usual.relevant_from)


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

    >>> answer = trust("./model", "./shop", ["red sneakers"])
    >>> answer.scores.decision.tolist()
    ['fall back']
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
    if loaded and options.reranker and "reranker" not in loaded.maps:
        raise RequestError("`reranker` has no effect: the trust score was fitted without one")
    material = TrustMaterial() if loaded else _read_material(corpus, options, documents)
    opened = open_search(model, documents, material, loaded, options, model_options, vectors, progress)
    return opened.ask(queries)


def open_search(
    model: str | Encoder,
    documents: Dataset,
    material: TrustMaterial,
    loaded: Trust | None,
    options: TrustOptions,
    model_options: ModelOptions | None = None,
    vectors: VectorCache | None = None,
    progress: Progress = SILENT,
) -> TrustedSearch:
    """The model on the corpus, with a score that is loaded or fitted."""
    progress.start("Loading the model", 0)
    ids = _text_ids(documents, material)
    encoder, plain = embedding.open_encoder(model, ids, model_options or ModelOptions(), vectors)
    embed = Embedder(encoder, options.search, progress)
    notes = _refuse_other_model(loaded, embed, documents) if loaded else ()
    embedded = embed(documents.columns["text"], query=False)
    documents, searched, dropped = with_direction(documents, embedded, "documents")
    lexicon = Lexicon(documents, _open_reranker(options.reranker))
    fitted, fit_notes = (loaded, ()) if loaded else _fit(embed, searched, lexicon, material, options)
    return TrustedSearch(
        Embedder(plain, options.search, progress, embed.cut),
        documents,
        searched,
        fitted,
        lexicon,
        (*notes, *encoder.damaged, *dropped, *material.notes, *fit_notes),
    )


def _open_reranker(reference: str | None) -> PairScorer | None:
    if reference is None:
        return None
    return cast(PairScorer, load_model(reference, ability="score"))


def _text_ids(documents: Dataset, material: TrustMaterial) -> TextIds:
    """Vectors may be stored as for `diagnose`, under `ID/document` and `ID/query`, or a document's under its id."""
    queries, listed = material.queries, (documents.ids, documents.columns["text"])
    sides = [("query", queries.ids, queries.columns["text"])] if queries else []
    return TextIds(("document", *listed), *sides, plain=listed)


@dataclass(frozen=True)
class TrustMaterial:
    """What a score is fitted on, beside the corpus."""

    queries: Dataset | None = None
    qrels: Mapping[str, Mapping[str, float]] | None = None
    foreign: Dataset | None = None
    notes: tuple[str, ...] = ()
    optional: bool = False  # the queries were not named


def _read_material(corpus: str, options: TrustOptions, documents: Dataset) -> TrustMaterial:
    """The queries, judgements and out-of-domain queries that the options name."""
    foreign = load_texts(options.out_of_domain, "queries") if options.out_of_domain else None
    if options.calibrate is None:
        beside = options.queries or _beside(corpus)
        queries = load_texts(beside, "queries") if beside else None
        return TrustMaterial(queries, None, foreign, optional=options.queries is None)
    beside_corpus = expand(corpus)
    place = options.queries or str(beside_corpus if beside_corpus.is_dir() else beside_corpus.parent)
    queries = load_texts(place, "queries")
    judgements = trec.read_qrels(expand(options.calibrate))
    judged = [row for row, id in enumerate(queries.ids) if id in judgements]
    if not judged:
        raise DataError(
            f"{options.calibrate} judges no query of {queries.source.path}: it has {name_some(list(judgements), 3)}, "
            f"and the queries {name_some(queries.ids, 3)} (`queries` says where they are)"
        )
    taken = queries.take(judged)
    beir.refuse_absent([judgements[id] for id in taken.ids], documents.ids, options.calibrate)
    absent = corpora.note_absent([judgements[id] for id in taken.ids], documents.ids)
    return TrustMaterial(taken, judgements, foreign, tuple(absent))


def _beside(corpus: str) -> str | None:
    """queries.jsonl in the folder of the corpus, if there is one."""
    place = expand(corpus)
    file = find_file(place if place.is_dir() else place.parent, "queries")
    return None if file is None else str(file)


def _fit(
    embed: Embedder, vectors: Vectors, lexicon: Lexicon, material: TrustMaterial, options: TrustOptions
) -> tuple[Trust, tuple[str, ...]]:
    """The trust score, and notes about the queries."""
    documents, real, queries = lexicon.documents, material.queries, None
    notes: tuple[str, ...] = ()
    if real:
        real, queries, notes = _embed_real(embed, real, material.optional)
    odd_texts = _odd_texts(documents, real, material, embed.model, options)
    odd = {kind: embed(texts, counted=False) for kind, texts in odd_texts.items()}
    extra, reranked = {}, None
    if real and queries is not None and material.qrels:
        deep, k = predictors.deep_rows(queries, vectors, embed.similarity), options.k or metrics.K
        scores = None
        if lexicon.reranker:
            first = deep[:, : max(k, options.rerank_depth or k)]
            scores = lexicon.rerank(real.columns["text"], first, embed.progress)
            reranked = predictors.reordered(first, scores)
        extra = lexicon.columns(real.columns["text"], deep, k, progress=embed.progress, reranked=scores)
    info = embed.model.info
    chosen: dict[str, Any] = {key: getattr(options, key) for key in ("codec", "k", "error", "confidence", "method")}
    fitted = Trust.fit(
        vectors,
        query_vectors=queries,
        qrels=[material.qrels[id] for id in real.ids] if real and material.qrels else None,
        corpus_ids=documents.ids,
        odd={kind: rows[geometry.norms(rows) != 0] for kind, rows in odd.items()},
        extra=extra,
        reranked=reranked,
        success=options.measure,
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


def _embed_real(
    embed: Embedder, real: Dataset, optional: bool
) -> tuple[Dataset | None, Vectors | None, tuple[str, ...]]:
    """Real queries with their vectors. Those that nobody named and whose vectors are not stored are left out."""
    try:
        return with_direction(real, embed(real.columns["text"]), "queries")
    except CalipersError as error:
        if not optional or embed.model.info.backend != "vectors":
            raise
        return None, None, (f"{real.source.path} is not used: {error}",)


def _odd_texts(
    documents: Dataset, real: Dataset | None, material: TrustMaterial, model: Encoder, options: TrustOptions
) -> dict[str, list[str]]:
    """Queries that deserve no answer, by kind. Precomputed vectors have only those that are named."""
    texts = documents.columns["text"]
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


def _refuse_other_model(trust: Trust, embed: Embedder, documents: Dataset) -> tuple[str, ...]:
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
