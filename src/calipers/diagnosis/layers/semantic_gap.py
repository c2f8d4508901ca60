"""Semantic gap, of layer 3: what the cosine of a query and a product says beyond the characters that they share.

Of a pair, overlap is the Jaccard coefficient of the character bigrams of the query and of the product's title (or of
its whole text, as an option), and the gap is |overlap − cosine|. Pairs are the judged ones; where nothing is judged,
every query with each of its first results, whose grades are NaN. Two faults:

- *vectorised grep*: the cosine follows the overlap (`lexical_correlation` above 0.5) and adds nothing about relevance
  beyond it (`beyond_lexical` below 0.2), the ends of both intervals included. Given the Jaccard coefficient alone
  (`meaning_correlation`) a bag of bigrams seems to know something, since its cosine divides by another length
  (measured on icecat: 0.45); given also the share of the query that the document has, 0.07 of that is left. What the
  model reads is the whole text, so its letters are taken out too where overlap is with the title.
- *semantic hallucination*: pairs that are judged irrelevant and share no more than chance are close, more often than
  pairs at large are: `hallucination_excess` above 0, its interval included. Close is a cosine of at least the median of
  the relevant pairs; no more than chance is the median overlap of the query with documents drawn at random.

Intervals are a bootstrap over queries, whose pairs are drawn together.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calipers.core import Columns, Encoder, Figure, Named, Outcomes, Progress, RequestError, Statistic, figure_tables
from calipers.core.choices import OVERLAPS
from calipers.diagnosis.layer import LayerOptions, judged_pairs, kinds_of, make_layer, metric_of, rows_by_id, setting
from calipers.diagnosis.layers.words import ShowsPieces, piece_sets
from calipers.metrics import bootstrap, geometry, lexical, paired
from calipers.metrics.arrays import Bools, Floats, Ints, Vectors
from calipers.metrics.bootstrap import grouped
from calipers.metrics.correlation import partial_spearman_statistic, spearman_statistic
from calipers.metrics.means import mean_statistic, ratio_statistic
from calipers.runs.space import LEAST, Space, directed, put_back

FOLLOWS, NOTHING = 0.5, 0.2  # correlations: from where on the cosine follows overlap, up to where it adds nothing
LITERAL, FAR = 0.1, 0.7  # mean gaps that no model measured here reaches: they have 0.21 to 0.52
FIGURES = kinds_of("semantic_gap", follows=FOLLOWS, nothing=NOTHING, literal=LITERAL, far=FAR)
_RESAMPLES = 1000
_AT_RANDOM = 200  # documents that say what overlap chance gives
_NAMED, _PER_QUERY = 10, 2
_COMPARED = 1000  # pairs whose sub-words are compared, for those that are named
_BEYOND_CHANCE = 0.95  # share of random documents that a pair is closer than, where it is named as meant
_ROWS = 8192  # pairs whose vectors are in hand at a time


@dataclass(frozen=True)
class SemanticGapOptions(LayerOptions):
    k: int = setting(10, "How many results a user sees.", metavar="K", at_least=1)
    overlap_with: str = setting("title", "What of a product shares letters with its query.", choices=OVERLAPS)
    relevant_from: float = setting(1.0, "Grades from here on are relevant.", metavar="GRADE", above=0)
    most_pairs: int = setting(20_000, "How many judged pairs; beyond, a seeded sample of the queries.", at_least=1)


@dataclass(frozen=True, eq=False)
class Judged:
    """Pairs of queries and documents, by row, with their grades, overlaps (Jaccard) and cosines, [n] each. `letters`
    are other ways of counting what they share, [n, 1 or 2]: the share of the query's bigrams that the document has and,
    where overlap is with the title, the overlap with the whole text.

    `group` numbers the queries that have pairs, whose rows are `queries`. `alone` says where the overlap is no more
    than chance, `near` where the cosine is at least the median of the relevant pairs. `lost` pairs have a side without
    a direction and are left out; with them the queries would be `everyone`.
    """

    query: Ints
    document: Ints
    grade: Floats
    overlap: Floats
    letters: Floats
    cosine: Floats
    queries: Ints
    group: Ints
    relevant: Bools
    alone: Bools
    near: Bools
    exact: bool
    everyone: Ints
    lost: int

    @property
    def graded(self) -> bool:
        """Whether the pairs are judged ones."""
        return bool(np.isfinite(self.grade).all())

    @property
    def gap(self) -> Floats:
        return np.abs(self.overlap - self.cosine)


def run(model: Encoder | None, space: Space, options: SemanticGapOptions, progress: Progress) -> Outcomes:
    """Outcomes per query with judged pairs: what it contributes to each figure; details `pairs` holds every pair."""
    progress.start("Semantic gap", 0)
    judged = judge(space, options)
    if judged is None:
        what, why = "queries", "give `queries`, or a `dataset`"
        if space.queries is not None:
            what = "judged pairs" if any(space.qrels) else "judged pairs or search results"
            why = "none has its document in the corpus, two letters in its query, and a direction on both sides"
        raise RequestError(f"the layer semantic_gap needs {what}, and there are none: {why}")
    figures, columns = measure(judged, options)
    queries = space.queries
    assert queries is not None
    (ids, texts), (all_ids, all_texts) = (
        ([f"{queries.ids[row]}/query" for row in rows], {"query": tuple(queries.texts[row] for row in rows)})
        for rows in (judged.queries, judged.everyone)
    )
    outcomes = Outcomes(
        ids=tuple(ids),
        columns=columns,
        texts=texts,
        details={
            **figure_tables(figures, _named(judged, space, model, options)),
            "pairs": _table(judged, space),
            "quadrants": _quadrants(judged, space),
        },
        counts={
            "judged_pairs" if judged.graded else "retrieved_pairs": len(judged.query),
            "relevant_pairs": int(judged.relevant.sum()),
            "irrelevant_pairs_without_overlap": int((judged.alone & ~judged.relevant).sum()),
            "pairs_without_direction": judged.lost,
        },
        notes=tuple(figure.warning for figure in figures if figure.warning),
    )
    return put_back(outcomes, np.searchsorted(judged.everyone, judged.queries), all_ids, all_texts)


# --- pairs -------------------------------------------------------------------------------------------------------


def judge(space: Space, options: SemanticGapOptions) -> Judged | None:
    """The judged pairs whose document the corpus has and whose query has a bigram, without judgements the retrieved
    ones; None where there is none."""
    directions = directed(space, least=LEAST)
    query, document, grade = judged_pairs(space) if any(space.qrels) else _retrieved_pairs(space, options.k)
    if space.queries is None or not len(query):
        return None
    kept = _sample(query, options)
    exact, (query, document, grade) = bool(kept.all()), (query[kept], document[kept], grade[kept])
    overlap, letters, chance = _overlaps(space, query, document, options)
    worded = np.isfinite(letters[:, 0])
    everyone = np.unique(query[worded])
    lost = worded & ~(np.isin(query, directions.queries) & np.isin(document, directions.documents))
    kept = worded & ~lost
    query, document = query[kept], document[kept]
    grade, overlap, letters = grade[kept], overlap[kept], letters[kept]
    if not len(query):
        return None
    cosine = _cosines(space.queries.vectors, space.corpus.vectors, query, document)
    relevant = grade >= options.relevant_from
    queries, group = np.unique(query, return_inverse=True)
    return Judged(
        *(query, document, grade, overlap, letters, cosine),
        *(queries, group, relevant),
        alone=overlap <= chance[query],
        near=cosine >= (np.median(cosine[relevant]) if relevant.any() else np.inf),
        exact=exact,
        everyone=everyone,
        lost=int(lost.sum()),
    )


def _retrieved_pairs(space: Space, k: int) -> tuple[Ints, Ints, Floats]:
    """Rows of queries and of their first k results, best first, and NaN for the grade, [n] each."""
    table: Columns = space.searched.details["results"] if space.searched else {}
    kept = np.flatnonzero(table["rank"] <= k) if table else np.empty(0, np.int64)
    if not len(kept):
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
    kept = kept[np.lexsort((table["rank"][kept], table["example"][kept]))]
    documents = [str(id) for id in table["document"][kept]]
    rows = rows_by_id(space.corpus, documents)
    place = np.array([rows[id] for id in documents], np.int64)
    return table["example"][kept].astype(np.int64), place, np.full(len(kept), np.nan)


def _sample(query: Ints, options: SemanticGapOptions) -> Bools:
    """Which pairs are measured: all pairs of as many queries, in a seeded order, as stay within the bound."""
    counts = np.bincount(query)
    order = geometry.sample(len(counts), len(counts), seed=options.seed)
    fits = np.cumsum(counts[order]) <= options.most_pairs
    fits[: np.argmax(counts[order] > 0) + 1] = True
    return np.isin(query, order[fits])


def _overlaps(space: Space, query: Ints, document: Ints, options: SemanticGapOptions) -> tuple[Floats, Floats, Floats]:
    """Overlap of each pair, [n], the other ways of counting its letters, [n, 1 or 2], and for each query the median
    overlap with documents drawn at random."""
    assert space.queries is not None
    corpus = space.corpus
    drawn = geometry.sample(len(corpus), _AT_RANDOM, seed=options.seed)
    rows, place = np.unique(np.concatenate([document, drawn]), return_inverse=True)
    queries, number = np.unique(query, return_inverse=True)
    n = len(queries)
    requests, whole = [space.queries.texts[int(q)] for q in queries], [corpus.texts[int(d)] for d in rows]
    pair = number, n + place[: len(document)]
    sets = lexical.bigrams(requests + whole)
    letters = [lexical.containment(sets, *pair)]
    if options.overlap_with == "title" and corpus.title_lengths is not None:
        letters.append(lexical.jaccard(sets, *pair))
        sets = lexical.bigrams(requests + [corpus.title(int(d)) for d in rows])
    at_random = lexical.jaccard(sets, np.repeat(np.arange(n), len(drawn)), np.tile(n + place[len(document) :], n))
    chance = np.full(len(space.queries), np.nan)
    chance[queries] = np.median(np.nan_to_num(at_random.reshape(n, len(drawn))), axis=1) if n else 0.0
    return lexical.jaccard(sets, *pair), np.stack(letters, axis=1), chance


def _cosines(queries: Vectors, corpus: Vectors, query: Ints, document: Ints) -> Floats:
    cosines = np.empty(len(query))
    for start in range(0, len(query), _ROWS):
        part = slice(start, start + _ROWS)
        apart = geometry.unit(queries[query[part]]).astype(np.float64) - geometry.unit(corpus[document[part]])
        cosines[part] = 1.0 - 0.5 * np.einsum("ij,ij->i", apart, apart)
    return cosines


# --- figures -----------------------------------------------------------------------------------------------------


def _statistics(judged: Judged) -> dict[str, Statistic]:
    """Per figure a function of how often each pair counts, in the order of the figures; those of judged pairs only
    where the pairs are."""
    plain: dict[str, Statistic] = {
        "semantic_gap": mean_statistic(judged.gap),
        "lexical_correlation": spearman_statistic(judged.cosine, judged.overlap),
    }
    if not judged.graded:
        return plain
    false = judged.alone & ~judged.relevant
    one = np.ones(len(judged.query))
    rate, at_large = ratio_statistic(false & judged.near, false), ratio_statistic(judged.near, one)
    return {
        **plain,
        "relevance_correlation": spearman_statistic(judged.cosine, judged.grade),
        "meaning_correlation": partial_spearman_statistic(judged.cosine, judged.grade, judged.overlap),
        "beyond_lexical": partial_spearman_statistic(judged.cosine, judged.grade, judged.overlap, *judged.letters.T),
        "hallucination_rate": rate,
        "hallucination_excess": lambda counts: rate(counts) - at_large(counts),
    }


def _reasons(judged: Judged) -> dict[str, str]:
    """Why a figure is not defined, by figure."""
    if not judged.graded:
        nothing = "nothing is judged: give judgements (`qrels`)"
        return {**dict.fromkeys(FIGURES, nothing), "lexical_correlation": "all results have one cosine or one overlap"}
    graded = "all judged pairs have the same grade: judgements of irrelevant documents are needed"
    ordered = "the overlap has the very order of the cosines or of the grades: nothing is left to explain"
    beyond = graded if np.ptp(judged.grade) == 0 else ordered
    close = "no pair is judged relevant, so that no cosine can be called close"
    if judged.relevant.any():
        close = "no pair that is judged irrelevant is without overlap"
    return {
        "lexical_correlation": "all judged pairs have the same cosine or the same overlap",
        "relevance_correlation": graded,
        "meaning_correlation": beyond,
        "beyond_lexical": beyond,
        "hallucination_rate": close,
        "hallucination_excess": close,
    }


def measure(judged: Judged, options: SemanticGapOptions) -> tuple[list[Figure], dict[str, Floats]]:
    """The figures, and what each query contributes to those that are defined, float64[q]."""
    queries, reasons = len(judged.queries), _reasons(judged)
    by_query = {name: grouped(statistic, judged.group) for name, statistic in _statistics(judged).items()}
    resampled = bootstrap.distribution(list(by_query.values()), queries, resamples=_RESAMPLES, seed=options.seed)
    figures = {name: kind.unknown(reasons.get(name, "")) for name, kind in FIGURES.items() if name not in by_query}
    columns = {}
    for (name, statistic), values in zip(by_query.items(), resampled, strict=True):
        value = float(statistic(np.ones((queries, 1)))[0])
        if not np.isfinite(value) or (name.startswith("hallucination") and not judged.relevant.any()):
            figures[name] = FIGURES[name].unknown(reasons[name])
            continue
        interval = None
        if queries > 1:
            interval = bootstrap.percentile_interval(values, confidence=options.confidence, units=queries)
        unit = None if judged.graded else "result"
        count = len(judged.query)
        figures[name] = FIGURES[name].figure(value, count, unit=unit, interval=interval, exact=judged.exact)
        columns[name] = _contributions(statistic, value, queries)
    warnings = {
        "semantic_gap": gap_warning(figures["semantic_gap"]),
        "lexical_correlation": grep_warning(figures),
        "hallucination_excess": hallucination_warning(figures),
    }
    ordered = [figures[name] for name in FIGURES]
    return [replace(figure, warning=warnings.get(figure.name)) for figure in ordered], columns


def _contributions(statistic: Statistic, value: float, queries: int) -> Floats:
    """Per query, float64[q]: their mean is the figure and their spread over √q its standard error."""
    if queries < 2:
        return np.full(queries, value)
    added = np.nan_to_num(paired.influence(statistic, queries))
    return np.asarray(value + added - added.mean())


def gap_warning(gap: Figure) -> str | None:
    """Where the whole interval is past a level: the cosine is the overlap, or has little to do with it."""
    if gap.value is None or gap.interval is None:
        return None
    if gap.interval[1] < LITERAL:
        return f"semantic_gap is {gap.value:.3f}, below {LITERAL}: cosines say what the characters in common say"
    if gap.interval[0] > FAR:
        advice = "results come by association, whatever the words, or all vectors are close (see anisotropy)"
        return f"semantic_gap is {gap.value:.3f}, above {FAR}: {advice}"
    return None


def grep_warning(figures: dict[str, Figure]) -> str | None:
    """Vectorised grep, where both intervals say so; a cosine in the very order of the overlap needs no second one."""
    follows, adds = figures["lexical_correlation"], figures["beyond_lexical"]
    if follows.value is None or follows.interval is None or follows.interval[0] < FOLLOWS:
        return None
    sentence = f"vectorised grep: the cosine follows the characters in common (correlation {follows.value:.2f})"
    if follows.value > 1 - 1e-9:
        return f"{sentence}, in their very order"
    if adds.value is None or adds.interval is None or adds.interval[1] >= NOTHING:
        return None
    return f"{sentence} and says nothing about relevance beyond them ({adds.value:.2f}, at most {adds.interval[1]:.2f})"


def hallucination_warning(figures: dict[str, Figure]) -> str | None:
    rate, excess = figures["hallucination_rate"], figures["hallucination_excess"]
    if rate.value is None or excess.value is None or excess.interval is None or excess.interval[0] <= 0:
        return None
    return (
        f"semantic hallucination: of the pairs judged irrelevant that share no more than chance, {rate.value:.0%} are "
        f"as close as the middle relevant pair, where {rate.value - excess.value:.0%} of all pairs are"
    )


# --- examples ----------------------------------------------------------------------------------------------------


def _named(judged: Judged, space: Space, model: Encoder | None, options: SemanticGapOptions) -> list[Named]:
    """Pairs of each kind, the plainest first: matched by letters alone, close without reason, and understood.

    Of the last two, a pair that shares a sub-word of the model has one reason to be close, and so has one with unknown
    sub-words on both sides, which are the same to the model: neither is named. Understood is a pair only if it is
    closer than nearly all documents are to the query: in some spaces all texts of one script are close.
    """
    kinds: tuple[tuple[str, Bools, Floats, str], ...] = (
        ("semantic_gap", judged.alone, judged.cosine, "by association, not by letters"),
        ("lexical_correlation", ~judged.alone, judged.overlap, "by letters"),
    )
    if judged.graded:
        kinds = _judged_kinds(judged)
    named = []
    for figure, which, order, kind in kinds:
        rows = np.flatnonzero(which)[np.argsort(-order[which], kind="stable")]
        if figure != "lexical_correlation" and isinstance(model, ShowsPieces):
            rows = _without_common_pieces(judged, space, model, rows[:_COMPARED])
        if figure == "meaning_correlation":
            rows = _beyond_chance(judged, space, rows[:_COMPARED], options)
        named += [_pair(judged, space, row, figure, kind) for row in _plainest(judged, space, rows)]
    return named


def _judged_kinds(judged: Judged) -> tuple[tuple[str, Bools, Floats, str], ...]:
    """Figure, which pairs, their order, and what they are called; what a model understands, best grades first."""
    best = judged.grade + judged.cosine / 4
    return (
        ("lexical_correlation", ~judged.relevant & ~judged.alone & judged.near, judged.overlap, "letters, not meaning"),
        ("hallucination_excess", ~judged.relevant & judged.alone & judged.near, judged.cosine, "close without reason"),
        ("meaning_correlation", judged.relevant & judged.alone & judged.near, best, "meaning, not letters"),
    )


def _without_common_pieces(judged: Judged, space: Space, model: ShowsPieces, rows: Ints) -> Ints:
    assert space.queries is not None
    queries = piece_sets(model, [space.queries.texts[int(judged.query[row])] for row in rows])
    documents = piece_sets(model, [space.corpus.texts[int(judged.document[row])] for row in rows])
    apart = [query.isdisjoint(document) for query, document in zip(queries, documents, strict=True)]
    return rows[np.array(apart, np.bool_)]


def _beyond_chance(judged: Judged, space: Space, rows: Ints, options: SemanticGapOptions) -> Ints:
    """The rows whose cosine is above those of the query with nearly all documents that are drawn at random."""
    assert space.queries is not None
    drawn = geometry.sample(len(space.corpus), _AT_RANDOM, seed=options.seed)
    at_random = geometry.unit_or_zero(space.corpus.vectors[drawn])
    queries, place = np.unique(judged.query[rows], return_inverse=True)
    cosines = geometry.unit_or_zero(space.queries.vectors[queries]) @ at_random.T
    return rows[judged.cosine[rows] > np.quantile(cosines, _BEYOND_CHANCE, axis=1)[place]] if len(rows) else rows


def _plainest(judged: Judged, space: Space, ordered: Ints) -> list[int]:
    """The first rows, not all of one query; queries of one text are one."""
    assert space.queries is not None
    seen: Counter[str] = Counter()
    taken: set[tuple[str, int]] = set()
    rows: list[int] = []
    for row in ordered.tolist():
        text, document = space.queries.texts[int(judged.query[row])], int(judged.document[row])
        if seen[text] < _PER_QUERY and (text, document) not in taken and len(rows) < _NAMED:
            seen[text] += 1
            taken.add((text, document))
            rows.append(row)
    return rows


def _pair(judged: Judged, space: Space, row: int, figure: str, kind: str) -> Named:
    assert space.queries is not None
    query, document = int(judged.query[row]), int(judged.document[row])
    return Named(
        figure=figure,
        id=f"{space.queries.ids[query]} / {space.corpus.ids[document]}",
        text=space.corpus.texts[document],
        value=float(judged.gap[row]),
        note=f"{kind}: for {space.queries.texts[query]!r}, cosine {judged.cosine[row]:.2f}, "
        f"overlap {judged.overlap[row]:.2f}{f', grade {judged.grade[row]:g}' if judged.graded else ''}",
    )


_QUADRANTS = ("by association", "literal matches", "strangers", "letters in vain")


def _quadrants(judged: Judged, space: Space) -> Columns:
    """The four quarters of overlap against cosine, with how many pairs each has and its plainest one. `at_overlap` and
    `at_cosine` are where they meet: the median overlap, and the median cosine of the relevant pairs, else of all."""
    assert space.queries is not None
    at_overlap = float(np.median(judged.overlap))
    at_cosine = float(np.median(judged.cosine[judged.relevant] if judged.relevant.any() else judged.cosine))
    shares, close = judged.overlap > at_overlap, judged.cosine >= at_cosine
    rows = []
    for name, which, side in zip(
        _QUADRANTS, (~shares & close, shares & close, ~shares & ~close, shares & ~close), _SIDES, strict=True
    ):
        order = np.where(which, side[0] * judged.overlap + side[1] * judged.cosine, -np.inf)
        best = int(np.argmax(order)) if which.any() else -1
        query = space.queries.texts[int(judged.query[best])] if best >= 0 else ""
        title = space.corpus.title(int(judged.document[best])) if best >= 0 else ""
        place = (judged.overlap[best], judged.cosine[best]) if best >= 0 else (np.nan, np.nan)
        rows.append((name, int(which.sum()), query, title, *place, at_overlap, at_cosine))
    names = ("name", "pairs", "query", "title", "overlap", "cosine", "at_overlap", "at_cosine")
    return {name: np.array(values) for name, values in zip(names, zip(*rows, strict=True), strict=True)}


_SIDES = ((-1, 1), (1, 1), (-1, -1), (1, -1))  # which way of overlap and cosine leads into the corner of a quarter


def _table(judged: Judged, space: Space) -> dict[str, NDArray[np.generic]]:
    return {
        "example": judged.group.astype(np.int32),
        "document": np.array([space.corpus.ids[int(d)] for d in judged.document], dtype=np.str_),
        "overlap": judged.overlap,
        "cosine": judged.cosine,
        "gap": judged.gap,
        "grade": judged.grade,
        "near": judged.near,
        "without_overlap": judged.alone,
    }


LAYER = make_layer("semantic_gap", run, SemanticGapOptions, map(metric_of, FIGURES.values()), resamples=_RESAMPLES)
