"""The measurements of the retrieval layer, one function each: results of queries to columns and what they point at."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from calipers.core import Columns, Named
from calipers.diagnosis.layers.retrieval_kinds import DEPTH, Kind, RankingOptions, kinds
from calipers.metrics import codecs, indexes, overlap, ranking
from calipers.metrics.ranking import Rankings
from calipers.runs.directions import Directed, directed
from calipers.runs.space import Space, Texts

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NAMED, _LONG = 25, 80  # queries that are shown for a figure; letters of a document that a note quotes
_EXACT, _COMPLEMENT = 3.0, 1.0  # grades of ESCI

__all__ = ["Found", "Kind", "Part", "RankingOptions", "kinds"]


def kind_of(name: str, options: RankingOptions) -> Kind:
    return kinds(options)[name]


@dataclass(frozen=True, eq=False)
class Part:
    """What one measurement adds: a column of values per query (or per group) by figure, or why there is none."""

    columns: dict[str, Floats] = field(default_factory=dict)
    unit: str = "query"
    unknown: dict[str, str] = field(default_factory=dict)
    named: tuple[Named, ...] = ()
    counts: dict[str, float] = field(default_factory=dict)
    exact: bool = True  # False: of a sample of the queries


@dataclass(frozen=True, eq=False)
class Found:
    """The results of the queries: loose, best first within a query, and the first k as tables [q, k].

    `documents` are rows of the corpus. `first` is the table of the first stage, `shown` that of the last one.
    `directed` is the space in which neighbours can be looked for.
    """

    example: Ints
    rank: Ints
    documents: Ints
    scores: Floats
    grades: Floats  # NaN where not judged
    base_rank: Ints | None
    first: Ints
    shown: Ints
    directed: Directed


def read(space: Space, options: RankingOptions) -> Found:
    assert space.searched is not None
    assert space.queries is not None
    results = space.searched.details["results"]
    order = np.lexsort((results["rank"], results["example"]))
    example, rank = (np.asarray(results[name], np.int64)[order] for name in ("example", "rank"))
    ids = [str(id) for id in results["document"][order]]
    wanted = set(ids)
    place = {id: row for row, id in enumerate(space.corpus.ids) if id in wanted}
    documents = np.array([place[id] for id in ids], np.int64)
    base = np.asarray(results["base_rank"], np.int64)[order] if "base_rank" in results else None
    size = {"queries": len(space.queries), "k": options.k, "missing": -1}
    return Found(
        example=example,
        rank=rank,
        documents=documents,
        scores=np.asarray(results["score"], np.float64)[order],
        grades=np.asarray(results["grade"], np.float64)[order],
        base_rank=base,
        first=overlap.table(example, rank if base is None else base, documents, **size),
        shown=overlap.table(example, rank, documents, **size),
        directed=directed(space),
    )


def count_table(found: Found, documents: int) -> Columns:
    """How many documents are among the first k of how many queries: `times` ascending, and `documents`."""
    counts = np.bincount(found.shown[found.shown >= 0], minlength=documents)
    times, many = np.unique(counts, return_counts=True)
    return {"times": times.astype(np.int64), "documents": many.astype(np.int64)}


# --- quality -----------------------------------------------------------------------------------------------------

_MEASURES = {
    "ndcg": ranking.ndcg,
    "mrr": ranking.mrr,
    "map": ranking.average_precision,
    "recall": ranking.recall,
}


def quality(space: Space, found: Found, options: RankingOptions) -> Part:
    """The figures of every stage: those of the search task where it gives them, else by the same functions."""
    names = [n for n in kinds(options) if n.removeprefix("base_").partition("@")[0] in (*_MEASURES, "zero_recall")]
    names.append(f"judged@{options.k}")
    if not any(grade >= options.relevant_from for grades in space.qrels for grade in grades.values()):
        own = [n for n in names if not n.startswith("base_") or found.base_rank is not None]
        return Part(unknown=dict.fromkeys(own, "no document is judged relevant to any query (--qrels)"))
    assert space.searched is not None
    given = space.searched.columns
    stages = {"": rankings_of(space, found.example, found.scores, found.grades, options)}
    if found.base_rank is not None:
        order = np.lexsort((found.base_rank, found.example))
        stages["base_"] = rankings_of(
            space, found.example[order], -found.base_rank[order].astype(np.float64), found.grades[order], options
        )
    columns: dict[str, Floats] = {}
    for prefix, rankings in stages.items():
        for name in names:
            bare, _, cut = name.removeprefix("base_").partition("@")
            if bare in _MEASURES and name.startswith("base_") == bool(prefix):
                columns[name] = np.asarray(given[name]) if name in given else _MEASURES[bare](rankings, int(cut))
    columns[f"judged@{options.k}"] = ranking.judged(stages[""], options.k)
    missed, named = zero_recall(space, found, options)
    return Part({**columns, **missed}, named=named, counts={"queries_without_relevant": int(_without(space, options))})


def rankings_of(space: Space, example: Ints, scores: Floats, grades: Floats, options: RankingOptions) -> Rankings:
    """A query without a relevant document scores 0, as in the search task."""
    positive = [[g for g in judged.values() if g > 0] for judged in space.qrels]
    return Rankings(
        offsets=np.searchsorted(example, np.arange(len(space.qrels) + 1)),
        scores=scores,
        relevance=np.nan_to_num(grades, nan=0.0),
        ideal_offsets=np.cumsum([0, *(len(some) for some in positive)]),
        ideal_relevance=np.array([g for some in positive for g in some], np.float64),
        judged=~np.isnan(grades),
        relevant_from=options.relevant_from,
        empty_queries="zero",
    )


def _without(space: Space, options: RankingOptions) -> int:
    return sum(not any(g >= options.relevant_from for g in grades.values()) for grades in space.qrels)


def zero_recall(space: Space, found: Found, options: RankingOptions) -> tuple[dict[str, Floats], tuple[Named, ...]]:
    """1 for a query whose results hold nothing relevant, NaN for one that has nothing relevant to find."""
    assert space.queries is not None
    relevant = np.array([sum(g >= options.relevant_from for g in grades.values()) for grades in space.qrels])
    first = np.full(len(relevant), np.inf)
    with np.errstate(invalid="ignore"):
        good = found.grades >= options.relevant_from
    np.minimum.at(first, found.example[good], found.rank[good])

    def missed(depth: int) -> Floats:
        return np.where(relevant > 0, (first > depth).astype(np.float64), np.nan)

    deep = max(options.k, DEPTH)
    columns = {"zero_recall": missed(options.k), f"zero_recall@{deep}": missed(deep)}
    lost = np.flatnonzero(columns["zero_recall"] == 1)
    worst = sorted(lost.tolist(), key=lambda q: (-first[q], q))[:NAMED]
    return columns, tuple(_missed(space, found, q, first[q], int(relevant[q]), deep) for q in worst)


def _missed(space: Space, found: Found, query: int, first: float, relevant: int, deep: int) -> Named:
    assert space.queries is not None
    where = f"the first relevant document is at {first:.0f}" if np.isfinite(first) else f"none among the first {deep}"
    top = found.shown[query, 0]
    instead = f"; found first: {_quote(space.corpus, int(top))}" if top >= 0 else ""
    note = f"{where}, of {relevant} that are relevant{instead}"
    return Named("zero_recall", space.queries.ids[query], space.queries.texts[query], float(relevant), note)


def _quote(texts: Texts, row: int) -> str:
    text = " ".join(texts.texts[row].split())
    return f"'{text if len(text) <= _LONG else text[: _LONG - 1] + '…'}' ({texts.ids[row]})"


def without_direction(space: Space, found: Found, options: RankingOptions) -> Part:
    """The queries whose vector is zero: 1 for these, 0 for the others. Every figure above has them as failing."""
    queries = space.queries
    assert queries is not None
    lost = np.setdiff1d(np.arange(len(queries)), found.directed.queries)
    column = np.zeros(len(queries))
    column[lost] = 1.0
    name, note = "queries_without_direction", "its vector is zero: it finds nothing"
    named = tuple(Named(name, queries.ids[i], queries.texts[i], 0.0, note) for i in lost[:NAMED].tolist())
    return Part({name: column}, named=named, counts={name: len(lost)})


# --- order -------------------------------------------------------------------------------------------------------


def order(space: Space, found: Found, options: RankingOptions) -> Part:
    """Reversals among the judged results of the first k."""
    assert space.queries is not None
    names = ["rank_reversal"] + ["accessory_above_product"] * (options.grades == "esci")
    grades, scores = (
        overlap.table(found.example, found.rank, values, queries=len(space.queries), k=options.k, missing=np.nan)
        for values in (found.grades, found.scores)
    )
    columns = {"rank_reversal": overlap.reversals(scores, grades)}
    if options.grades == "esci":
        columns["accessory_above_product"] = overlap.above(grades, _COMPLEMENT, _EXACT)
    unknown = dict.fromkeys(names, "no query has two judged results of different grades among the first")
    unknown = {n: why for n, why in unknown.items() if not np.isfinite(columns[n]).any()}
    named = tuple(_reversal(space, found, q, pair, grades, options) for q, pair in _worst_pairs(grades))
    return Part({n: c for n, c in columns.items() if n not in unknown}, unknown=unknown, named=named)


def _worst_pairs(grades: Floats) -> list[tuple[int, tuple[int, int]]]:
    """Queries with their worst reversal, as two places: the widest gap of grades first, then nearest to the top."""
    found = []
    for query, row in enumerate(grades):
        pairs = ((row[j] - row[i], i, j) for i, j in combinations(np.flatnonzero(~np.isnan(row)).tolist(), 2))
        gap, i, j = max(pairs, key=lambda p: (p[0], -p[1], -p[2]), default=(0.0, 0, 0))
        if gap > 0:
            found.append((-float(gap), i + j, query, (i, j)))
    return [(query, pair) for _, _, query, pair in sorted(found)[:NAMED]]


_ESCI_NAMES = {3.0: "exact", 2.0: "substitute", 1.0: "complement", 0.0: "irrelevant"}


def _reversal(
    space: Space, found: Found, query: int, pair: tuple[int, int], grades: Floats, options: RankingOptions
) -> Named:
    assert space.queries is not None

    def told(place: int) -> str:
        grade = float(grades[query, place])
        label = _ESCI_NAMES.get(grade) if options.grades == "esci" else None
        return f"{_quote(space.corpus, int(found.shown[query, place]))}, {label or f'grade {grade:g}'}, at {place + 1}"

    upper, lower = (float(grades[query, place]) for place in pair)
    accessory = options.grades == "esci" and (upper, lower) == (_COMPLEMENT, _EXACT)
    figure = "accessory_above_product" if accessory else "rank_reversal"
    note = f"{told(pair[0])}, stands above {told(pair[1])}"
    return Named(figure, space.queries.ids[query], space.queries.texts[query], lower - upper, note)


# --- stability ---------------------------------------------------------------------------------------------------


def beside(space: Space, found: Found, options: RankingOptions) -> Part:
    """The results of the baseline model, where there is one; without one the figures are not asked for."""
    if space.reference is None:
        return Part()
    reference = np.full_like(found.shown, -1)
    some = space.reference[:, : options.k]
    reference[:, : some.shape[1]] = some
    return _compared(space, found.shown, reference, "", options)


def _compared(space: Space, found: Ints, other: Ints, name: str, options: RankingOptions) -> Part:
    assert space.queries is not None
    part = f"/{name}" if name else ""
    shared = overlap.jaccard(found, other)
    figure = f"jaccard@{options.k}{part}"
    least = [int(q) for q in np.argsort(shared, kind="stable")[:5] if shared[q] < 1]
    named = tuple(
        Named(figure, space.queries.ids[q], space.queries.texts[q], float(shared[q]), _others(space, found, other, q))
        for q in least
    )
    return Part({figure: shared, f"churn{part}": overlap.churned(shared)}, named=named if not name else ())


def _others(space: Space, found: Ints, other: Ints, query: int) -> str:
    here, there = (int(table[query, 0]) for table in (found, other))
    told = [_quote(space.corpus, row) if row >= 0 else "nothing" for row in (here, there)]
    return f"first here: {told[0]}" + ("" if here == there else f"; first there: {told[1]}")


def precisions(space: Space, found: Found, options: RankingOptions) -> Part:
    """The first stage with the documents stored in fewer bits."""
    assert space.queries is not None
    joined = Part()
    for codec in ("fp16", "int8", "binary", "pq"):
        if codec in codecs.CODECS:
            search = partial(indexes.nearest_stored, codec=codec, seed=options.seed)
            other = found.directed.find(space.queries.vectors, options.k, search)
            joined = _join(joined, _compared(space, found.first, other, codec, options))
    return joined


def indexed(space: Space, found: Found, options: RankingOptions) -> Part:
    """The first stage through an approximate index."""
    assert space.queries is not None
    joined = Part()
    for index in indexes.INDEXES:
        if len(space.corpus) > indexes.MOST_DOCUMENTS:
            names = (f"jaccard@{options.k}/{index}", f"churn/{index}")
            why = f"an index over more than {indexes.MOST_DOCUMENTS:,} documents takes too long to build here"
            joined = _join(joined, Part(unknown=dict.fromkeys(names, why)))
            continue
        search = partial(indexes.nearest_indexed, index=index)
        other = found.directed.find(space.queries.vectors, options.k, search)
        joined = _join(joined, _compared(space, found.first, other, index, options))
    return joined


def _join(one: Part, other: Part) -> Part:
    return Part(
        {**one.columns, **other.columns},
        one.unit,
        {**one.unknown, **other.unknown},
        (*one.named, *other.named),
        {**one.counts, **other.counts},
    )
