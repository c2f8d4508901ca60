"""The first stage of retrieval: an encoder or a ranker to the results of every query.

Documents that tie with the last result of a query are not cut by their order in the corpus: those that are judged stay,
the others are counted (`metrics.search`), so that expected values over the orders of the tie are exact.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from calipers.core.benchmarks import ignores_identical_ids
from calipers.core.datasets import Dataset
from calipers.core.models import Progress
from calipers.metrics.arrays import Array, Ints, slices
from calipers.metrics.search import NOTHING_WANTED, Hits, Wanted, cut_hits
from calipers.tasks.rankers import FirstStage, GivenRun, UnreadTexts, rank_all
from calipers.tasks.retrieval_options import RetrievalOptions

_RESULTS = 1 << 16  # that are named at a time
IDENTICAL = "a document with the id of its query is left out, as mteb does for these data"


def settle(options: RetrievalOptions, dataset: Dataset) -> RetrievalOptions:
    """The options with what the data decide: whether a document with the id of its query is left out."""
    if options.ignore_identical_ids is not None:
        return options
    return replace(options, ignore_identical_ids=ignores_identical_ids(dataset.source.path))


def search(
    model: FirstStage,
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
    hits, unread = rank_all(model, dataset, options, progress, options.top_k + bool(len(own.query)), both)
    if len(own.query):
        hits = hits.take(~own.holds(hits.queries, hits.documents), hits.beyond)
    if options.ties == "expected":
        return cut_hits(hits, options.top_k, wanted), unread
    hits = _as_trec_eval(hits, dataset)
    return hits.take(hits.ranks <= options.top_k), unread


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
    return np.unique(document_ids(hits, dataset), return_inverse=True)[1].astype(np.int64)


def document_ids(hits: Hits, dataset: Dataset) -> Array:
    """The id of each result's document, object[n]; those of other documents are not read."""
    ids = dataset.tables["corpus"].ids
    there = np.zeros(len(ids), np.bool_)
    there[hits.documents] = True
    names = np.array([ids[i] for i in np.flatnonzero(there).tolist()], dtype=object)
    places = np.cumsum(there, dtype=np.int32) - 1
    named = np.empty(len(hits.documents), dtype=object)
    for part in slices(len(named), _RESULTS):
        named[part] = names[places[hits.documents[part]]]
    return named
