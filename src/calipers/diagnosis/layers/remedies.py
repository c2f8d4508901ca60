"""What would help? Changes that cost no new vectors, each with what it adds to nDCG, query by query.

The first stage is searched again with the mean vector removed, with hubs discounted (CSLS), with half of the
dimensions, and with documents stored in 8 bits and in one; and its first results are filtered by an attribute that the
query states, those that contradict it last. Both rankings of a query are read in the order of their lists, so that a
change that moves nothing adds exactly 0. Intervals are paired: they resample the difference of each query.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from calipers.core import Encoder, FigureKind, Metric, Outcomes, Progress, RequestError
from calipers.core.figures import Figure, Named, figure_tables
from calipers.diagnosis.layer import RESAMPLES, LayerOptions, kinds_of, make_layer, mean_figure, metric_of, setting
from calipers.diagnosis.layers import retrieval
from calipers.diagnosis.layers.attributes import which_state
from calipers.diagnosis.layers.retrieval import RankingOptions, SearchResults
from calipers.metrics import adjusted, bootstrap, geometry, indexes, overlap, ranking
from calipers.metrics.arrays import Floats, Ints
from calipers.metrics.means import mean_statistic
from calipers.runs.space import Search, Space
from calipers.shop import Agreement, agree_all
from calipers.shop.agree import PARTS

_FILTERED = 200  # queries whose first results are read as products; beyond, a seeded sample
_NAMED = 3  # queries that gain most by each change
_SEARCHES = ("mean_removed", "csls", "half_dimensions", "int8", "binary")


@dataclass(frozen=True)
class RemedyOptions(LayerOptions):
    k: int = setting(10, "How many results a user sees.", metavar="K", at_least=1)
    relevant_from: float = setting(1.0, "Grades from here on are relevant.", metavar="GRADE", above=0)

    @property
    def ranking(self) -> RankingOptions:
        return RankingOptions(k=self.k, relevant_from=self.relevant_from, confidence=self.confidence, seed=self.seed)


def kinds(options: RemedyOptions) -> Mapping[str, FigureKind]:
    return kinds_of("remedies", k=options.k, deep=options.ranking.deep)


def run(model: Encoder | None, space: Space, options: RemedyOptions, progress: Progress) -> Outcomes:
    """Outcomes per query: what each change adds to its nDCG; NaN where the change does not concern it."""
    progress.start("What would help", 0)
    if not any(grade >= options.relevant_from for grades in space.qrels for grade in grades.values()):
        raise RequestError("the layer remedies needs judgements: no document is judged relevant to any query (`qrels`)")
    results = retrieval.read(space, options.ranking)
    before = _quality(space, results.first, options)
    tables, unknown = _searched(results, options)
    filtered, silent = _filtered(space, results, options)
    columns = {f"gain/{name}": _quality(space, table, options) - before for name, table in tables.items()}
    for part, (table, concerned) in filtered.items():
        gain = np.full(len(before), np.nan)
        gain[concerned] = (_quality(space, table, options) - before)[concerned]
        columns[f"gain/{part}_filter"] = gain
    figures = _figures(columns, {**unknown, **silent}, options)
    return Outcomes(
        ids=results.queries.ids,
        columns=columns,
        texts={"query": tuple(results.queries.texts)},
        details=figure_tables(figures, _named(columns, before, results)),
        counts={"queries": len(before), "documents": len(space.corpus)},
    )


def _quality(space: Space, table: Ints, options: RemedyOptions) -> Floats:
    """nDCG of the lists of results, rows of the corpus int64[q, k], float64[q]; the earlier in a list the better."""
    example, place = np.nonzero(table >= 0)
    ids = [space.corpus.ids[int(row)] for row in table[example, place]]
    grades = [space.qrels[q].get(id, np.nan) for q, id in zip(example.tolist(), ids, strict=True)]
    judged = np.maximum(np.array(grades, np.float64), 0.0)
    nothing = np.zeros(len(table), np.int64)
    rankings = retrieval.make_rankings(space, example, -place.astype(np.float64), judged, nothing, options.ranking)
    return ranking.ndcg(rankings, options.k)


# --- changes -----------------------------------------------------------------------------------------------------


def _searched(results: SearchResults, options: RemedyOptions) -> tuple[dict[str, Ints], dict[str, str]]:
    """The first results under each change of the vectors; or why there are none, by figure."""
    if why := results.directed.why_not_by_direction:
        return {}, {f"gain/{name}": why for name in _SEARCHES}
    corpus, bits = results.directed.space.corpus, ("int8", "binary")
    stored = {name: partial(indexes.nearest_stored, codec=corpus.codec(name, options.seed)) for name in bits}
    searches: dict[str, Search] = {
        "mean_removed": adjusted.nearest_centred,
        "csls": adjusted.nearest_csls,
        "half_dimensions": adjusted.nearest_cut,
        **stored,
    }
    vectors = results.queries.vectors
    return {name: results.directed.find(vectors, options.k, search) for name, search in searches.items()}, {}


def _filtered(
    space: Space, results: SearchResults, options: RemedyOptions
) -> tuple[dict[str, tuple[Ints, Ints]], dict[str, str]]:
    """By part the lists of results with those that contradict it last, int64[q, k], and the rows of the queries that
    state it; or why there are none, by figure."""
    if space.products is None:
        return {}, {f"gain/{part}_filter": "the corpus is not read as products" for part in PARTS}
    extractor, texts = space.products.extractor, results.queries.texts
    requests = [extractor.read(text) for text in texts]
    stated = which_state(extractor, requests)
    unknown = {f"gain/{part}_filter": f"no query states a {part}" for part in PARTS if not stated[part].any()}
    rows = np.flatnonzero(np.logical_or.reduce(list(stated.values())))
    rows = rows[np.sort(geometry.sample(len(rows), _FILTERED, seed=options.seed))]
    kept = np.isin(results.example, rows)
    rank = results.rank if results.base_rank is None else results.base_rank
    example, rank, documents = results.example[kept], rank[kept], results.documents[kept]
    rows_of, product = np.unique(documents, return_inverse=True)
    ids = [space.corpus.ids[int(row)] for row in rows_of]
    items = space.products.read(ids)
    states = agree_all(extractor, requests, [items[id].attributes for id in ids], example, product)
    tables = {}
    for part in PARTS:
        concerned = rows[stated[part][rows]]
        last = rank + (states[part] == Agreement.CONTRADICT) * (rank.max(initial=0) + 1)
        if len(concerned):
            tables[part] = _first(example, last, documents, len(texts), options.k), concerned
    return tables, unknown


def _first(example: Ints, order: Ints, documents: Ints, queries: int, k: int) -> Ints:
    """The first k of each query by `order`, which need not be ranks, as a table int64[q, k]."""
    sort = np.lexsort((order, example))
    example, documents = example[sort], documents[sort]
    rank = np.arange(len(example)) - np.searchsorted(example, example) + 1
    table: Ints = overlap.table(example, rank, documents, queries=queries, k=k, missing=-1)
    return table


# --- figures -----------------------------------------------------------------------------------------------------


def _figures(columns: Mapping[str, Floats], unknown: Mapping[str, str], options: RemedyOptions) -> list[Figure]:
    figures = []
    for name, kind in kinds(options).items():
        values = columns.get(name)
        if values is None:
            figures.append(kind.unknown(unknown[name]))
            continue
        (means,) = bootstrap.distribution([mean_statistic(values)], len(values), resamples=RESAMPLES, seed=options.seed)
        finite = values[np.isfinite(values)]
        figures.append(mean_figure(kind, finite, means, confidence=options.confidence))
    return figures


def _named(columns: Mapping[str, Floats], before: Floats, results: SearchResults) -> list[Named]:
    """The queries that gain most by each change."""
    named = []
    for figure, gains in columns.items():
        best = [int(q) for q in np.argsort(-np.nan_to_num(gains, nan=-np.inf), kind="stable")[:_NAMED] if gains[q] > 0]
        for q in best:
            note = f"nDCG {before[q]:.2f} before, {before[q] + gains[q]:.2f} after"
            named.append(Named(figure, results.queries.ids[q], results.queries.texts[q], float(gains[q]), note))
    return named


def _metrics(options: RemedyOptions) -> tuple[Metric, ...]:
    return tuple(map(metric_of, kinds(options).values()))


LAYER = make_layer("remedies", run, RemedyOptions, _metrics(RemedyOptions()), metrics_for=_metrics)
