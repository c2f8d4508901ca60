"""Layer 2, retrieval and ranking: what a search finds, in which order, and how easily that changes.

Quality is measured as by the retrieval task, per stage. Stability and robustness need no judgements: they compare lists
of results by Jaccard's overlap. Every figure is a mean over queries (over groups for paraphrases), which are resampled.

A query without a direction (runs.space) finds nothing: it is 0 in every figure of quality, 0 where its list is
compared with one that is not empty, and left out where both are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from calipers.core import Columns, Encoder, Metric, Outcomes, Progress, RequestError
from calipers.core.choices import GRADES
from calipers.core.figures import Figure, FigureKind, Named, figure_tables
from calipers.diagnosis.layer import (
    RESAMPLES,
    LayerOptions,
    kinds_of,
    make_layer,
    mean_figure,
    metric_of,
    rows_by_id,
    run_steps,
    setting,
)
from calipers.diagnosis.layers import edits
from calipers.metrics import bootstrap, geometry, indexes, neighbours, overlap, ranking
from calipers.metrics.arrays import Counts, Floats, Ints
from calipers.metrics.means import mean_statistic
from calipers.metrics.ranking import Rankings
from calipers.runs.ranking import search_again
from calipers.runs.space import Directed, Search, Space, Texts, directed
from calipers.tasks.retrieval import with_cut_ties

DEPTH = 100  # results per query that a search gives at least
_NAMED, _QUOTED = 25, 80  # queries that are shown for a figure; letters of a document that a note quotes
_EXACT, _COMPLEMENT = 3.0, 1.0  # grades of ESCI
_STORED = ("fp16", "int8", "binary", "pq")  # codecs that documents are stored in


@dataclass(frozen=True)
class RankingOptions(LayerOptions):
    k: int = setting(10, "How many results a user sees.", metavar="K", at_least=1)
    relevant_from: float = setting(1.0, "Grades from here on are relevant.", metavar="GRADE", above=0)
    grades: str = setting("plain", "esci: 3 2 1 0 are exact, substitute, complement, irrelevant.", choices=GRADES)
    texts: int = setting(500, "Queries to edit, for robustness.", metavar="N", at_least=1)

    @property
    def deep(self) -> int:
        """The depth that a second stage reads."""
        return max(self.k, DEPTH)


def kinds(options: RankingOptions) -> Mapping[str, FigureKind]:
    """Every figure that these options can give, the primary one first."""
    return kinds_of("retrieval", k=options.k, deep=options.deep)


@dataclass(frozen=True, eq=False)
class RetrievalPart:
    """What one measurement adds: a column of values per query (or per group) by figure, or why there is none."""

    columns: dict[str, Floats] = field(default_factory=dict)
    unit: str = "query"
    unknown: dict[str, str] = field(default_factory=dict)
    named: tuple[Named, ...] = ()
    counts: dict[str, float] = field(default_factory=dict)
    exact: bool = True  # False: of a sample of the queries


@dataclass(frozen=True, eq=False)
class SearchResults:
    """The results of the queries: loose, best first within a query, and the first k as tables [q, k].

    `documents` are rows of the corpus. `first` is the table of the first stage, `shown` the table of the last one.
    `directed` is the space in which neighbours can be searched.
    """

    queries: Texts
    example: Ints
    rank: Ints
    documents: Ints
    scores: Floats
    grades: Floats  # NaN where not judged
    base_rank: Ints | None
    first: Ints
    shown: Ints
    directed: Directed


def run(model: Encoder | None, space: Space, options: RankingOptions, progress: Progress) -> Outcomes:
    """Outcomes over queries, and over groups of paraphrases where there are any: one column per figure.

    `model` encodes edited queries; without one, or with vectors already computed, robustness is unknown.
    """
    results = read(space, options)
    steps: tuple[tuple[str, Callable[[], RetrievalPart]], ...] = (
        ("Quality", lambda: quality(space, results, options)),
        ("Directions", lambda: without_direction(results)),
        ("Reversals", lambda: order(space, results, options)),
        ("Beside the baseline", lambda: beside_baseline(space, results, options)),
        ("Precisions of vectors", lambda: precisions(results, options)),
        ("Index settings", lambda: indexed(space, results, options)),
        ("Edited queries", lambda: edited(model, space, results, options, progress)),
        ("Paraphrases", lambda: paraphrased(space, results, options)),
    )
    return _assemble(space, results, run_steps(steps, progress), options)


def read(space: Space, options: RankingOptions) -> SearchResults:
    """What the search task found in this space."""
    if space.queries is None or not len(space.queries):
        raise RequestError("the layer retrieval needs queries: give `queries`, or a `dataset`")
    if space.searched is None:
        raise RequestError("the layer retrieval needs the results of a search: Space.searched is missing")
    results = space.searched.details["results"]
    order = np.lexsort((results["rank"], results["example"]))
    example, rank = (np.asarray(results[name], np.int64)[order] for name in ("example", "rank"))
    ids = [str(id) for id in results["document"][order]]
    rows = rows_by_id(space.corpus, ids)
    documents = np.array([rows.get(id, -1) for id in ids], np.int64)  # a file of results may name blank documents
    base = np.asarray(results["base_rank"], np.int64)[order] if "base_rank" in results else None
    table = partial(overlap.table, queries=len(space.queries), k=options.k, missing=-1)
    return SearchResults(
        queries=space.queries,
        example=example,
        rank=rank,
        documents=documents,
        scores=np.asarray(results["score"], np.float64)[order],
        grades=np.asarray(results["grade"], np.float64)[order],
        base_rank=base,
        first=table(example, rank if base is None else base, documents),
        shown=table(example, rank, documents),
        directed=directed(space),
    )


# --- outcomes ----------------------------------------------------------------------------------------------------


def _assemble(
    space: Space, results: SearchResults, parts: Sequence[RetrievalPart], options: RankingOptions
) -> Outcomes:
    groups = space.paraphrases.ids if space.paraphrases else ()
    queries = results.queries
    columns: dict[str, Floats] = {}
    for part in parts:
        for name, values in part.columns.items():
            columns[name] = np.full(len(queries) + len(groups), np.nan)
            start = len(queries) if part.unit == "group" else 0
            columns[name][start : start + len(values)] = values
    figures = _figures(parts, columns, options)
    counts = {key: n for part in parts for key, n in part.counts.items()}
    return Outcomes(
        ids=(*queries.ids, *(f"{id}/group" for id in groups)),
        columns=columns,
        texts={"query": (*queries.texts, *("" for _ in groups))},
        details={
            **figure_tables(figures, [named for part in parts for named in part.named]),
            "retrieval_counts": neighbours.count_table(results.shown, len(space.corpus)),
        },
        counts={"documents": len(space.corpus), "queries": len(queries), **counts},
        notes=tuple(figure.warning for figure in figures if figure.warning),
    )


def _figures(parts: Sequence[RetrievalPart], columns: Columns, options: RankingOptions) -> list[Figure]:
    """Every figure in the order of the metrics; an unknown one says why."""
    part_of = {name: part for part in parts for name in part.columns}
    unknown = {name: reason for part in parts for name, reason in part.unknown.items()}
    finite = {name: values[np.isfinite(values)] for name, values in columns.items()}
    ordered = kinds(options)
    means: dict[str, Floats] = {}
    if measured := {name: mean_statistic(columns[name]) for name in ordered if len(finite.get(name, ()))}:
        examples = len(next(iter(columns.values())))
        rows = bootstrap.distribution(list(measured.values()), examples, resamples=RESAMPLES, seed=options.seed)
        means = dict(zip(measured, rows, strict=True))
    figures = []
    for name, kind in ordered.items():
        if name in means:
            unit, exact, confidence = part_of[name].unit, part_of[name].exact, options.confidence
            figure = mean_figure(kind, finite[name], means[name], confidence=confidence, unit=unit, exact=exact)
            figures.append(figure)
        elif name in unknown or name in part_of:
            figures.append(kind.unknown(unknown.get(name, "no query has what it is about")))
    return figures


# --- quality -----------------------------------------------------------------------------------------------------

_MEASURES = {"ndcg": ranking.ndcg, "mrr": ranking.mrr, "map": ranking.average_precision, "recall": ranking.recall}


def quality(space: Space, results: SearchResults, options: RankingOptions) -> RetrievalPart:
    """The figures of every stage: the search task's where it gives them, else by the same functions."""
    assert space.searched is not None
    stages = {"": with_cut_ties(space.searched, results.example, results.scores, results.grades)}
    if results.base_rank is not None:
        order = np.lexsort((results.base_rank, results.example))
        scores = -results.base_rank[order].astype(np.float64)
        stages["base_"] = (
            results.example[order],
            scores,
            results.grades[order],
            np.zeros(len(results.queries), np.int64),
        )
    measures = list(_measures(options, stages))
    judged, missed = f"judged@{options.k}", ("zero_recall", f"zero_recall@{options.deep}")
    relevant = np.array([sum(g >= options.relevant_from for g in grades.values()) for grades in space.qrels])
    if not relevant.any():
        names = [*(name for name, *_ in measures), *missed, judged]
        return RetrievalPart(unknown=dict.fromkeys(names, "no document is judged relevant to any query (`qrels`)"))
    task = space.searched.columns
    rankings = {stage: make_rankings(space, *table, options) for stage, table in stages.items()}
    columns = {
        name: np.asarray(task[name]) if name in task else measure(rankings[stage], cut)
        for name, stage, measure, cut in measures
    }
    columns[judged] = ranking.judged(rankings[""], options.k)
    empty, named = _zero_recall(space, results, relevant, options)
    counts: dict[str, float] = {"queries_without_relevant": int((relevant == 0).sum())}
    return RetrievalPart({**columns, **dict(zip(missed, empty, strict=True))}, named=named, counts=counts)


def _measures(
    options: RankingOptions, stages: Iterable[str]
) -> Iterator[tuple[str, str, Callable[[Rankings, int], Floats], int]]:
    """The figures of quality of these stages: name, stage, function and cut."""
    for name in kinds(options):
        stage = "base_" if name.startswith("base_") else ""
        bare, _, cut = name.removeprefix("base_").partition("@")
        if bare in _MEASURES and stage in stages:
            yield name, stage, _MEASURES[bare], int(cut)


def make_rankings(
    space: Space, example: Ints, scores: Floats, grades: Floats, beyond: Ints, options: RankingOptions
) -> Rankings:
    """A query without a relevant document scores 0, as in the search task."""
    positive = [[g for g in judged.values() if g > 0] for judged in space.qrels]
    return Rankings(
        offsets=np.searchsorted(example, np.arange(len(space.qrels) + 1)),
        scores=scores,
        relevance=np.nan_to_num(grades, nan=0.0),
        ideal_offsets=np.cumsum([0, *(len(several) for several in positive)]),
        ideal_relevance=np.array([g for several in positive for g in several], np.float64),
        judged=~np.isnan(grades),
        relevant_from=options.relevant_from,
        empty_queries="zero",
        beyond=beyond,
    )


def _zero_recall(
    space: Space, results: SearchResults, relevant: Ints, options: RankingOptions
) -> tuple[list[Floats], tuple[Named, ...]]:
    """Among the first k and among the deep ones: 1 for a query whose results hold nothing relevant, NaN for one that
    has nothing relevant to find."""
    first = np.full(len(relevant), np.inf)
    with np.errstate(invalid="ignore"):
        good = results.grades >= options.relevant_from
    np.minimum.at(first, results.example[good], results.rank[good])

    def note(query: int) -> str:
        rank, top = first[query], results.shown[query, 0]
        where = f"the first relevant document is at {rank:.0f}"
        where = where if np.isfinite(rank) else f"none among the first {options.deep}"
        instead = f"; found first: {_quote(space.corpus, int(top))}" if top >= 0 else ""
        return f"{where}, of {relevant[query]} that are relevant{instead}"

    empty = [np.where(relevant > 0, (first > depth).astype(np.float64), np.nan) for depth in (options.k, options.deep)]
    worst = sorted(np.flatnonzero(empty[0] == 1).tolist(), key=lambda q: (-first[q], q))[:_NAMED]
    return empty, _name("zero_recall", results.queries, relevant, worst, note)


def _name(
    figure: str, queries: Texts, values: Counts, rows: Sequence[int], note: Callable[[int], str]
) -> tuple[Named, ...]:
    """These queries as examples of a figure, with a note each."""
    return tuple(Named(figure, queries.ids[q], queries.texts[q], float(values[q]), note(q)) for q in rows)


def _quote(texts: Texts, row: int) -> str:
    text = " ".join(texts.texts[row].split())
    return f"'{text if len(text) <= _QUOTED else text[: _QUOTED - 1] + '…'}' ({texts.ids[row]})"


def without_direction(results: SearchResults) -> RetrievalPart:
    """The queries whose vector is zero: 1 for these, 0 for the others. They count as failing in every figure above."""
    name, queries = "queries_without_direction", results.queries
    if why := results.directed.space.no_vectors:
        return RetrievalPart(unknown={name: why})
    column = np.ones(len(queries))
    column[results.directed.queries] = 0.0
    lost = np.flatnonzero(column)
    note = "its vector is zero: it finds nothing"
    named = tuple(Named(name, queries.ids[q], queries.texts[q], 0.0, note) for q in lost[:_NAMED])
    return RetrievalPart({name: column}, named=named, counts={name: len(lost)})


# --- order -------------------------------------------------------------------------------------------------------


def order(space: Space, results: SearchResults, options: RankingOptions) -> RetrievalPart:
    """Reversals among the judged results of the first k."""
    grades, scores = (
        overlap.table(results.example, results.rank, values, queries=len(results.queries), k=options.k, missing=np.nan)
        for values in (results.grades, results.scores)
    )
    named = tuple(_reversal(space, results, q, pair, grades, options) for q, pair in _worst_pairs(grades))
    why = "no query has two judged results of different grades among the first"
    part = _part({"grade_reversal": overlap.reversals(scores, grades)}, why, named=named)
    if options.grades != "esci":
        unknown = {"rank_reversal": "the judgements do not say which products are accessories (`grades` of ESCI do)"}
        return replace(part, unknown=part.unknown | unknown)
    accessories = _part(
        {"rank_reversal": overlap.above(grades, _COMPLEMENT, _EXACT)},
        "no query has both an accessory and an exact product among the first",
    )
    return replace(part, columns=accessories.columns | part.columns, unknown=part.unknown | accessories.unknown)


def _part(columns: dict[str, Floats], why: str, **others: Any) -> RetrievalPart:
    """The columns that have a value; the others are unknown, and `why`."""
    finite = {name: column for name, column in columns.items() if np.isfinite(column).any()}
    return RetrievalPart(finite, unknown={name: why for name in columns if name not in finite}, **others)


def _worst_pairs(grades: Floats) -> list[tuple[int, tuple[int, int]]]:
    """Queries with their worst reversal, as two places: the widest gap of grades first, then nearest to the top."""
    reversals = []
    for query, row in enumerate(grades):
        pairs = ((row[j] - row[i], i, j) for i, j in combinations(np.flatnonzero(~np.isnan(row)).tolist(), 2))
        gap, i, j = max(pairs, key=lambda p: (p[0], -p[1], -p[2]), default=(0.0, 0, 0))
        if gap > 0:
            reversals.append((-float(gap), i + j, query, (i, j)))
    return [(query, pair) for _, _, query, pair in sorted(reversals)[:_NAMED]]


_ESCI_NAMES = {3.0: "exact", 2.0: "substitute", 1.0: "complement", 0.0: "irrelevant"}


def _reversal(
    space: Space, results: SearchResults, query: int, pair: tuple[int, int], grades: Floats, options: RankingOptions
) -> Named:
    esci = options.grades == "esci"

    def describe(place: int) -> str:
        grade = float(grades[query, place])
        label = _ESCI_NAMES.get(grade) if esci else None
        document = _quote(space.corpus, int(results.shown[query, place]))
        return f"{document}, {label or f'grade {grade:g}'}, at {place + 1}"

    upper, lower = (float(grades[query, place]) for place in pair)
    accessory = esci and (upper, lower) == (_COMPLEMENT, _EXACT)
    figure = "rank_reversal" if accessory else "grade_reversal"
    note = f"{describe(pair[0])}, stands above {describe(pair[1])}"
    return Named(figure, results.queries.ids[query], results.queries.texts[query], lower - upper, note)


# --- stability ---------------------------------------------------------------------------------------------------


def beside_baseline(space: Space, results: SearchResults, options: RankingOptions) -> RetrievalPart:
    """Against the results of the baseline model; without one the figures do not apply."""
    if space.reference is None:
        return RetrievalPart()
    missing = max(0, results.shown.shape[1] - space.reference.shape[1])
    reference = np.pad(space.reference[:, : options.k], ((0, 0), (0, missing)), constant_values=-1)
    columns = _overlaps(results.shown, reference, "", options)
    figure, shared = next(iter(columns.items()))

    def note(query: int) -> str:
        here, there = (int(table[query, 0]) for table in (results.shown, reference))
        quotes = [_quote(space.corpus, row) if row >= 0 else "nothing" for row in (here, there)]
        return f"first here: {quotes[0]}" + ("" if here == there else f"; first there: {quotes[1]}")

    least = [int(q) for q in np.argsort(shared, kind="stable")[:5] if shared[q] < 1]
    return RetrievalPart(columns, named=_name(figure, results.queries, shared, least, note))


def _overlaps(results: Ints, others: Ints, setting: str, options: RankingOptions) -> dict[str, Floats]:
    shared = overlap.jaccard(results, others)
    return {f"jaccard@{options.k}{setting}": shared, f"churn{setting}": overlap.churned(results, others)}


def precisions(results: SearchResults, options: RankingOptions) -> RetrievalPart:
    """The first stage with the documents stored in fewer bits."""
    corpus, why = results.directed.space.corpus, results.directed.why_not_by_direction
    if why:
        return _unsearched(_STORED, options, why)
    searches = {name: partial(indexes.nearest_stored, codec=corpus.codec(name, options.seed)) for name in _STORED}
    return _searched_by(searches, results, options)


def indexed(space: Space, results: SearchResults, options: RankingOptions) -> RetrievalPart:
    """The first stage through an approximate index."""
    searches = {index: partial(indexes.nearest_indexed, index=index) for index in indexes.INDEXES}
    why = results.directed.why_not_by_direction
    if len(space.corpus) > indexes.MOST_DOCUMENTS:
        why = f"an index over more than {indexes.MOST_DOCUMENTS:,} documents takes too long to build here"
    return _unsearched(searches, options, why) if why else _searched_by(searches, results, options)


def _unsearched(settings: Iterable[str], options: RankingOptions, why: str) -> RetrievalPart:
    names = [f"{name}/{setting}" for setting in settings for name in (f"jaccard@{options.k}", "churn")]
    return RetrievalPart(unknown=dict.fromkeys(names, why))


def _searched_by(searches: Mapping[str, Search], results: SearchResults, options: RankingOptions) -> RetrievalPart:
    """The overlaps of these searches with the first stage."""
    columns: dict[str, Floats] = {}
    for name, search in searches.items():
        others = results.directed.find(results.queries.vectors, options.k, search)
        columns |= _overlaps(results.first, others, f"/{name}", options)
    return RetrievalPart(columns)


# --- robustness --------------------------------------------------------------------------------------------------


def edited(
    model: Encoder | None, space: Space, results: SearchResults, options: RankingOptions, progress: Progress
) -> RetrievalPart:
    """The first stage with edited queries. One that has no vector (only unknown words) finds nothing: overlap 0."""
    names = {edit: f"robustness/{edit}" for edit in edits.EDITS}
    search = search_again(model, space, results.directed, options.k, progress)
    if search is None:
        what = "a file of results" if space.ranker else "vectors that are already computed"
        why = f"{what} cannot say what an edited query would find"
        return RetrievalPart(unknown=dict.fromkeys(["robustness", *names.values()], why))
    queries = results.queries
    rows = np.sort(geometry.sample(len(queries), options.texts, seed=options.seed))
    columns: dict[str, Floats] = {}
    named: list[Named] = []
    for edit, figure in names.items():
        texts = edits.edit([queries.texts[int(i)] for i in rows], edit, seed=options.seed)
        versions = {int(row): text for row, text in zip(rows, texts, strict=True) if text is not None}
        columns[figure] = shared = _found_again(search, results, versions)
        lost = [int(rows[i]) for i in np.argsort(shared[rows], kind="stable")[:5] if shared[rows[i]] < 0.5]
        named += _name(figure, queries, shared, lost, partial(_rewritten, versions, shared))
    table = np.stack(list(columns.values()))
    has = np.isfinite(table)
    with np.errstate(invalid="ignore"):
        mean = np.where(has.any(axis=0), np.where(has, table, 0.0).sum(axis=0) / has.sum(axis=0), np.nan)
    counts, exact = {"edited_queries": len(rows)}, len(rows) == len(queries)
    part = _part(columns, "no query can be edited so", named=tuple(named), counts=counts, exact=exact)
    return replace(part, columns={"robustness": mean, **part.columns})


def _found_again(
    search: Callable[[Sequence[str]], Ints], results: SearchResults, versions: Mapping[int, str]
) -> Floats:
    """Overlap of the results of each query and of its version, float64[q]; NaN for a query without one."""
    shared = np.full(len(results.queries), np.nan)
    if versions:
        rows = np.array(list(versions))
        shared[rows] = overlap.jaccard(results.first[rows], search(list(versions.values())))
    return shared


def _rewritten(versions: Mapping[int, str], shared: Floats, query: int) -> str:
    return f"written as '{versions[query]}' the results overlap by {shared[query]:.2f}"


def paraphrased(space: Space, results: SearchResults, options: RankingOptions) -> RetrievalPart:
    """Per group the mean overlap of every two of its texts."""
    groups, figure = space.paraphrases, "robustness/paraphrases"
    if groups is None:
        return RetrievalPart()
    tables = results.directed.find(groups.texts.vectors, options.k)
    means = np.full(len(groups.ids), np.nan)
    named = []
    for number, id in enumerate(groups.ids):
        pairs = list(combinations(np.flatnonzero(groups.group == number).tolist(), 2))
        left, right = (np.array(side) for side in zip(*pairs, strict=True))
        shared = np.nan_to_num(overlap.jaccard(tables[left], tables[right]))
        means[number] = shared.mean()
        worst = int(np.argmin(shared))
        one, other = (groups.texts.texts[row] for row in pairs[worst])
        note = f"written as '{other}' the results overlap by {shared[worst]:.2f}"
        named.append(Named(figure, id, one, float(means[number]), note))
    shown = [example for example in sorted(named, key=lambda n: n.value)[:_NAMED] if example.value < 0.5]
    return RetrievalPart({figure: means}, unit="group", named=tuple(shown))


def _metrics(options: RankingOptions) -> tuple[Metric, ...]:
    return tuple(map(metric_of, kinds(options).values()))


LAYER = make_layer("retrieval", run, RankingOptions, _metrics(RankingOptions()), metrics_for=_metrics)
