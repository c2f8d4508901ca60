"""Files and a model to a Space: every text is embedded once, and searched once, for all layers of a diagnosis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers import models
from calipers.core import SILENT, Dataset, DataSource, Encoder, Model, ModelInfo, Progress, RequestError, on_side
from calipers.core.datasets import Listed
from calipers.core.models import truncated_by
from calipers.core.options import Options, option
from calipers.core.packed import as_kept
from calipers.core.text_ids import TextIds
from calipers.data import corpora
from calipers.data.texts import title_length
from calipers.metrics import geometry
from calipers.metrics.magnitudes import common_power, single
from calipers.metrics.measures import MEASURES
from calipers.metrics.search import NOTHING_WANTED, WINDOW, Hits, Wanted, exact_search, spread_hits, windows_of
from calipers.models import ModelOptions
from calipers.runs import key as cache
from calipers.runs.space import GroupVectors, PairVectors, Space, Texts, directed, refuse
from calipers.runs.vector_cache import CachedEncoder, VectorCache
from calipers.shop import read_words
from calipers.shop.lexicon import name_columns
from calipers.shop.products import Noticing, Products
from calipers.tasks import retrieval
from calipers.tasks.rankers import Ranker

Encode = Callable[[Sequence[str], str | None], NDArray[np.float32]]  # texts and their prompt → vectors

_EMBEDDING = ("core/models.py", "metrics/geometry.py", "models")  # what of ours can change a vector


def _file(help: str, metavar: str = "FILE", *, default: Any = None, needs: tuple[str, ...] = ()) -> Any:
    return option(default, help, group="Data", metavar=metavar, needs=needs)


@dataclass(frozen=True)
class CorpusInputs(Options):
    """What is read, by file or folder. `source` has split, samples (of queries), seed and shuffle."""

    dataset: str | None = _file("A BEIR folder or hub id, or a table of query–product pairs with ESCI labels.", "D")
    corpus: str | None = _file("Documents: jsonl, csv, tsv, parquet, or one text per line.")
    queries: str | None = _file("Queries, in the same formats. Optional.")
    qrels: str | None = _file("Judgements, TREC or BEIR or ESCI labels. Optional.")
    pairs: str | None = _file(
        "Texts that belong together (sentence1, sentence2), for alignment; alone, they are the corpus as well."
    )
    pairs_above: float | None = _file(
        "Where pairs have a score: from here on they belong together. Default: 0.8 of the highest.",
        "SCORE",
        needs=("pairs",),
    )
    terms: str | None = _file("Domain terms, one per line, for the tokenizer's figures.")
    paraphrases: str | None = _file(
        "Queries that mean the same: a group per line with tabs between, or rows with `texts`."
    )
    entities: str | None = _file("Entities for the layer knowledge. Default: mined.")
    out_of_domain: str | None = _file("For certainty: queries that the corpus has no answer to. Default: bundled ones.")
    attributes: tuple[str, ...] = _file(
        "YAML with colours, brands, units, columns for the layer attributes, beside the built-in ones; repeatable.",
        default=(),
    )
    columns: tuple[str, ...] = option(
        (),
        "Which column of the corpus has the type, colour, brand or dimension of a product, e.g. type=category.",
        group="Data",
        metavar="KEY=NAME …",
        flag="--column",
    )
    sts: str | None = _file("With --adaptation: scored pairs that show what was forgotten.")
    source: DataSource = field(default_factory=lambda: DataSource(path=""))

    @property
    def has_no_texts(self) -> bool:
        return not (self.dataset or self.corpus or self.queries or self.qrels or self.pairs)


@dataclass(frozen=True)
class SearchOptions:
    """How texts are embedded and searched. `depth` are the results of a query that are kept."""

    model_options: ModelOptions = field(default_factory=ModelOptions)
    query_prompt: str | None = None
    passage_prompt: str | None = None
    similarity: str | None = None
    rerank: str | None = None
    rerank_k: int = 100
    depth: int = 100
    relevant_from: float = 1.0


@dataclass(frozen=True)
class Material:
    """What was read."""

    dataset: Dataset
    pairs: corpora.ScoredPairs | None
    terms: tuple[str, ...]
    groups: corpora.ParaphraseGroups | None
    notes: tuple[str, ...]
    esci: bool
    entities: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()  # queries that the corpus has no answer to
    products: Products | None = None
    title_lengths: tuple[int, ...] = ()  # of the documents, as in Texts; none where no title was looked for

    def counts(self) -> dict[str, int]:
        missing = ("judged_documents_missing", "judged_queries_missing")
        return {
            "documents": len(self.dataset.tables["corpus"]),
            "queries": len(self.dataset),
            "judgements": sum(len(grades) for grades in self.dataset.columns["qrels"]),
            "pairs": len(self.pairs) if self.pairs else 0,
            "terms": len(self.terms),
            "paraphrase_groups": len(self.groups.ids) if self.groups else 0,
            **{name: int(self.dataset.counts.get(name, 0)) for name in missing},
        }


def read(inputs: CorpusInputs, *, products: bool = False) -> Material:
    """All inputs. Without a corpus the texts of the pairs are one. Columns are noticed only for `products`."""
    notes: list[str] = []
    noticing = _noticing(inputs) if products else None
    title_lengths: list[int] = []

    def notice(id: str, values: Mapping[str, Any]) -> None:
        title_lengths.append(title_length(values))
        if noticing:
            noticing.notice(id, values)

    pairs = corpora.load_pairs(inputs.pairs, above=inputs.pairs_above) if inputs.pairs else None
    if pairs and pairs.above is not None:
        notes.append(f"{len(pairs)} of {pairs.read} pairs have a score from {pairs.above:g} on and count as positive")
    if pairs and not (inputs.dataset or inputs.corpus or inputs.queries or inputs.qrels):
        dataset = corpora.from_texts([*pairs.left, *pairs.right], str(inputs.pairs))
        notes.append(f"there is no corpus: the {dataset.counts['documents']:g} texts of the positive pairs are taken")
    else:
        dataset = corpora.load(
            dataset=inputs.dataset,
            corpus=inputs.corpus,
            queries=inputs.queries,
            qrels=inputs.qrels,
            source=inputs.source,
            notice=notice,
        )
    judgements = inputs.qrels or inputs.dataset
    notes += corpora.note_absent(dataset.columns["qrels"], dataset.tables["corpus"].ids)
    if absent := int(dataset.counts.get("judged_queries_missing", 0)):
        notes.append(f"{absent:,} of the queries that {judgements} judges are not among the queries: they are left out")
    again = dataset.tables["corpus"].read_again
    return Material(
        dataset=dataset,
        pairs=pairs,
        terms=corpora.load_terms(inputs.terms) if inputs.terms else (),
        groups=corpora.load_paraphrases(inputs.paraphrases) if inputs.paraphrases else None,
        notes=tuple(notes),
        esci=corpora.has_esci_labels(inputs.dataset, inputs.qrels),
        entities=corpora.load_terms(inputs.entities) if inputs.entities else (),
        foreign=corpora.load_terms(inputs.out_of_domain) if inputs.out_of_domain else (),
        products=noticing.finish(again) if noticing and again else None,
        title_lengths=tuple(title_lengths),
    )


def _noticing(inputs: CorpusInputs) -> Noticing:
    words = read_words(inputs.attributes)
    named = name_columns(words, inputs.columns)
    return Noticing(words, expected=bool(inputs.attributes or named), named=named)


def nothing() -> Material:
    """No texts at all, where no layer reads any."""
    return Material(corpora.from_texts([], "none"), None, (), None, (), esci=False)


NOWHERE = Space(Texts((), [], np.empty((0, 0), np.float32)))


def open_encoder(
    model: str | Model,
    ids: Mapping[str, Sequence[str]],
    options: ModelOptions,
    vectors: VectorCache | None,
    *,
    is_baseline: bool = False,
) -> tuple[CachedEncoder, Encoder]:
    """A model whose vectors are kept in `vectors`, and the model itself. `ids` say under which names stored vectors of
    a text may be found. A baseline keeps its own name, whatever the `model_id` of its candidate."""
    identity = None
    if isinstance(model, str):
        source = models.find(model)
        options = models.identity.baseline_options(source, options) if is_baseline else options
        loaded: Any = models.load(source, options, "encode")
        if is_baseline:
            loaded = models.identity.under_own_name(loaded, source, options)
        # Vectors that are already computed are not kept again: which one is a text's also depends on the ids.
        kept = vectors is not None and source.backend != "vectors"
        facts = models.identity.identity(source, options, "encode") if kept else None
        identity = cache.canonical([facts, cache.code_version(_EMBEDDING)]) if facts else None
    else:
        loaded = model
    if hasattr(loaded, "bind"):
        loaded = loaded.bind(ids)
    return CachedEncoder(loaded, identity, vectors), loaded


def text_ids(material: Material) -> TextIds:
    """Vectors may be stored under `ID/query`, `ID/document`, `ID/1` and `ID/2` (the two sides of a pair)."""
    pairs = material.pairs
    of_pairs = [("1", pairs.ids, pairs.left), ("2", pairs.ids, pairs.right)] if pairs else []
    return TextIds(*retrieval.text_sides(material.dataset), *of_pairs)


def embed(encoder: CachedEncoder, material: Material, options: SearchOptions, progress: Progress) -> Space:
    """The space: corpus, queries, pairs and paraphrases with their vectors."""
    dataset, pairs = material.dataset, material.pairs
    cut: Counter[str] = Counter()
    document, query = (on_side(encoder, side) for side in ("document", "query"))
    chosen = retrieval.RetrievalOptions(
        query_prompt=options.query_prompt, passage_prompt=options.passage_prompt, similarity=options.similarity
    )
    query_prompt, passage_prompt = retrieval.prompts(encoder.info, chosen)
    corpus = dataset.tables["corpus"]

    def encode(kind: str, side: Encoder, values: Sequence[str], prompt: str | None = None) -> NDArray[np.float32]:
        before = truncated_by(side)
        vectors = side.encode(values, prompt=prompt, progress=progress)
        cut[kind] += truncated_by(side) - before
        return vectors

    def texts(kind: str, side: Encoder, ids: Sequence[str], values: Sequence[str], prompt: str | None) -> Texts:
        return Texts(as_kept(ids), values, encode(kind, side, values, prompt), prompt)

    two_sides = [encode("texts of pairs", encoder, side) for side in (pairs.left, pairs.right)] if pairs else []
    documents = texts("documents", document, corpus.ids, corpus.columns["text"], passage_prompt)
    lengths = np.array(material.title_lengths, np.int32) if any(material.title_lengths) else None
    space = Space(
        corpus=replace(documents, title_lengths=lengths),
        queries=texts("queries", query, dataset.ids, dataset.columns["query"], query_prompt) if len(dataset) else None,
        qrels=dataset.columns["qrels"],
        pairs=PairVectors(pairs.ids, two_sides[0], two_sides[1]) if pairs else None,
        terms=material.terms,
        paraphrases=_groups(partial(encode, "paraphrases", query), material.groups, query_prompt)
        if material.groups
        else None,
        products=material.products,
        foreign=material.foreign,
        similarity=retrieval.similarity_of(encoder.info, chosen),
        truncated=cut,
    )
    refuse(space)
    return space


def without_vectors(material: Material, ranker: Ranker, why: str) -> Space:
    """The texts alone, for a model that orders documents by itself."""
    dataset, corpus = material.dataset, material.dataset.tables["corpus"]
    lengths = np.array(material.title_lengths, np.int32) if any(material.title_lengths) else None

    def texts(ids: Sequence[str], values: Sequence[str]) -> Texts:
        return Texts(as_kept(ids), values, np.empty((len(ids), 0), np.float32))

    return Space(
        corpus=replace(texts(corpus.ids, corpus.columns["text"]), title_lengths=lengths),
        queries=texts(dataset.ids, dataset.columns["query"]) if len(dataset) else None,
        qrels=dataset.columns["qrels"],
        products=material.products,
        ranker=ranker,
        no_vectors=why,
    )


def _groups(encode: Encode, groups: corpora.ParaphraseGroups, prompt: str | None) -> GroupVectors:
    flat = [text for texts in groups.texts for text in texts]
    ids = [f"{id}/{i}" for id, texts in zip(groups.ids, groups.texts, strict=True) for i in range(len(texts))]
    vectors = encode(flat, prompt)
    which = np.repeat(np.arange(len(groups.ids)), [len(texts) for texts in groups.texts])
    return GroupVectors(groups.ids, Texts(tuple(ids), flat, vectors, prompt), which)


# --- searching ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SpaceSearch:
    """The search task's first stage, answered from vectors in hand. What has no direction finds nothing, and is never
    found."""

    space: Space
    info: ModelInfo

    def rank(
        self, queries: Listed, corpus: Listed, k: int, *, wanted: Wanted = NOTHING_WANTED, progress: Progress = SILENT
    ) -> Hits:
        alive = directed(self.space, checked=True)  # it was when it was embedded
        assert alive.space.queries is not None
        pairs, similarity = wanted.among(alive.queries, alive.documents), alive.space.similarity
        vectors, queries_here = alive.space.corpus.vectors, alive.space.queries.vectors
        power = common_power(vectors) or common_power(queries_here)
        if similarity == "cosine":
            query_vectors, windows = geometry.unit(queries_here), geometry.windows(vectors, WINDOW)
        else:
            query_vectors, windows = single(queries_here, power), windows_of(vectors, power)
        hits = exact_search(query_vectors, windows, k, pairs, MEASURES[similarity])
        return spread_hits(hits, alive.queries, alive.documents, queries=len(queries.ids))


def search(space: Space, info: ModelInfo, material: Material, options: SearchOptions, progress: Progress) -> Space:
    """The space with what the search task finds in it: the first stage, by the space's own ranker if it has one, and
    the second with a reranker."""
    if space.queries is None:
        if options.rerank:
            raise RequestError("`rerank` orders the results of queries: pass `queries`, or a `dataset`")
        return space
    progress.start("Searching", 0)
    stage: Any = space.ranker or SpaceSearch(space, info)
    if options.rerank:
        chosen_model = ModelOptions(threads=options.model_options.threads, sandbox=options.model_options.sandbox)
        scorer: Any = models.load(models.find(options.rerank), chosen_model, "score")
        stage = retrieval.TwoStage(stage, scorer)
    chosen = retrieval.RetrievalOptions(
        top_k=options.depth, rerank_k=options.rerank_k, relevant_from=options.relevant_from
    )
    return replace(space, searched=retrieval.run(stage, material.dataset, chosen, progress))
