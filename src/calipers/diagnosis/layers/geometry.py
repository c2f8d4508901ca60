"""Layer 1, geometry: the shape of the space that a model puts a corpus and its queries into.

Every figure has a standard error: means over texts or pairs are bootstrapped, the others resampled through their
influences (metrics.geometry), hubness through a jackknife over the queries.

Exact are anisotropy and principal directions; uniformity up to `_ALL_PAIRS` documents; intrinsic dimension and hubness
up to `_PRODUCTS` products. Beyond that a seeded sample is compared, or searches among all documents; `exact=True`
forbids it. Sizes of samples depend on the number of texts only, so that two models see the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from calipers.core import Columns, Encoder, Figure, Named, Outcomes, Progress, figure_tables, name_some, on_side
from calipers.core.choices import WORDS
from calipers.diagnosis.layer import (
    RESAMPLES,
    LayerOptions,
    judged_pairs,
    kinds_of,
    make_layer,
    metric_of,
    run_steps,
    setting,
)
from calipers.diagnosis.layers import shapes, words
from calipers.diagnosis.layers.edits import shuffles
from calipers.metrics import bootstrap, geometry, neighbours, search
from calipers.metrics.arrays import Bools, Floats, Ints
from calipers.metrics.geometry import Estimate
from calipers.metrics.means import mean_statistic
from calipers.runs.space import LEAST, Directed, Kept, Space, Texts, directed, draw
from calipers.tasks import outputs

FIGURES = kinds_of("geometry")
EXAMPLES = 2000  # documents that outcomes hold
_PAIRS = 10_000  # positive pairs
_ALL_PAIRS = 20_000  # documents: 2 · 10⁸ pairs, a few seconds
_PRODUCTS = 4_000_000_000  # of two vectors: 10 to 30 s at 384 dimensions on two cores
_BOOTSTRAPPED = 5000  # examples; above it the interval is taken from the normal distribution
_NAMED = 25  # hubs, copies and terms that are shown


@dataclass(frozen=True)
class GeometryOptions(LayerOptions):
    k: int = setting(10, "How many results a user sees.", metavar="K", at_least=1)
    alpha: float = setting(2.0, "The power of distances, for alignment.", above=0)
    t: float = setting(2.0, "The factor of squared distances, for uniformity.", above=0, short="-t")
    permutations: int = setting(10, "Shuffles of a text, for word order.", metavar="N", at_least=1)
    texts: int = setting(500, "Texts to shuffle, for word order.", metavar="N", at_least=1)
    words: str = setting("auto", "What a word is: phrases for Japanese and Chinese, or by the text.", choices=WORDS)
    exact: bool = setting(False, "Never work a figure out on a sample.")

    @property
    def shape(self) -> dict[str, Any]:
        """What decides the tables of pictures, as keywords."""
        return {"alpha": self.alpha, "t": self.t, "seed": self.seed}


@dataclass(frozen=True, eq=False)
class GeometryPart:
    """What one measurement adds: estimates by figure, or why there is none; and the examples that they point at.

    `unit` is what the rows of the estimates are. `levels` are warning levels that this corpus would reach by itself.
    """

    estimates: dict[str, Estimate] = field(default_factory=dict)
    unit: str = "document"
    unknown: dict[str, str] = field(default_factory=dict)
    named: tuple[Named, ...] = ()
    counts: dict[str, float] = field(default_factory=dict)
    levels: dict[str, float] = field(default_factory=dict)
    details: dict[str, Columns] = field(default_factory=dict)
    everyone: bool = False  # rows are those of the whole space, texts without a direction included


def run(model: Encoder | None, space: Space, options: GeometryOptions, progress: Progress) -> Outcomes:
    """Outcomes over documents (at most 2,000), queries, pairs and terms: what each contributes to every figure.

    `model` encodes shuffled texts and shows its sub-words; without one these figures are unknown. Texts without a
    direction are left out, but for their words.
    """
    whole, kept = space, directed(space, least=LEAST)
    space = kept.space
    first = neighbours.first_copies(space.corpus.vectors)
    outputs.refuse_constant(first, space.corpus.ids, "the same vector", "documents", inputs=space.corpus.texts)
    steps: tuple[tuple[str, Callable[[], GeometryPart]], ...] = (
        ("Anisotropy", lambda: spectrum(space, first, options)),
        ("Uniformity", lambda: uniformity(space, options)),
        ("Alignment", lambda: alignment(space, options)),
        ("Intrinsic dimension", lambda: dimension(space, first, options)),
        ("Hubness", lambda: hubs(space, options)),
        ("Copies", lambda: copies(space, first, options)),
        ("Directions", lambda: without_direction(whole, options)),
        ("Word order", lambda: word_order(model, space, options, progress)),
        ("Fragmentation", lambda: fragments(model, whole, options)),
        ("Terms", lambda: term_fragments(model, space, options)),
        ("Cone", lambda: GeometryPart(details=shapes.tables(space, **options.shape))),
    )
    return _assemble(whole, kept, run_steps(steps, progress), options)


# --- outcomes ----------------------------------------------------------------------------------------------------


def _assemble(space: Space, kept: Directed, parts: Sequence[GeometryPart], options: GeometryOptions) -> Outcomes:
    """Contributions as columns, figures and their examples as details. The rows are those of the whole space."""
    kept_rows = {"document": kept.documents, "query": kept.queries, "pair": kept.pairs}
    sides = _sides(space, parts, options)
    size = sum(len(rows) for _, rows, _ in sides.values())
    columns: dict[str, Floats] = {}
    figures: dict[str, Figure] = {}
    for part in parts:
        figures |= {name: FIGURES[name].unknown(why, unit=part.unit) for name, why in part.unknown.items()}
        for name, estimate in part.estimates.items():
            figures[name] = _figure(name, part, estimate, options)
            start, rows, _ = sides[part.unit]
            if part.unit in kept_rows and not part.everyone:
                estimate = replace(estimate, rows=kept_rows[part.unit][estimate.rows])
            shown = estimate.only(rows)
            if len(shown.rows):
                columns[name] = np.full(size, np.nan)
                columns[name][start + np.searchsorted(rows, shown.rows)] = shown.contributions
    ordered = [figures[name] for name in FIGURES if name in figures]
    details: dict[str, Columns] = {key: table for part in parts for key, table in part.details.items()}
    return Outcomes(
        ids=tuple(f"{id}/{side}" for side, (_, _, ids) in sides.items() for id in ids),
        columns=columns,
        details={**figure_tables(ordered, [named for part in parts for named in part.named]), **details},
        counts={"documents": len(space.corpus), **{key: n for part in parts for key, n in part.counts.items()}},
        notes=tuple(figure.warning for figure in ordered if figure.warning),
    )


def _sides(
    space: Space, parts: Sequence[GeometryPart], options: GeometryOptions
) -> dict[str, tuple[int, Ints, list[str]]]:
    """The examples of each unit: where they start among all, their rows, ascending, and their ids."""
    rows = example_rows(space.corpus, options)
    sides = [("document", rows, [space.corpus.ids[i] for i in rows])]
    if space.queries:
        sides.append(("query", np.arange(len(space.queries)), list(space.queries.ids)))
    if space.pairs is not None:
        rows = _pair_rows(len(space.pairs.ids), options, space.pairs.kept)
        sides.append(("pair", rows, [space.pairs.ids[i] for i in rows]))
    if any(part.unit == "term" for part in parts):
        sides.append(("term", np.arange(len(space.terms)), [f"{i}:{term}" for i, term in enumerate(space.terms)]))
    starts = np.cumsum([0, *(len(rows) for _, rows, _ in sides)])
    return {side: (int(start), rows, ids) for (side, rows, ids), start in zip(sides, starts, strict=False)}


def _figure(name: str, part: GeometryPart, estimate: Estimate, options: GeometryOptions) -> Figure:
    """A figure with its interval. Its level is lifted to what the corpus gives without any fault."""
    kind = FIGURES[name]
    if kind.above is not None and name in part.levels:
        kind = replace(kind, above=max(kind.above, part.levels[name]))
    return kind.figure(
        estimate.value,
        estimate.count,
        unit=part.unit,
        interval=_interval(estimate, options),
        standard_error=estimate.standard_error,
        exact=estimate.exact,
    )


def _interval(estimate: Estimate, options: GeometryOptions) -> tuple[float, float] | None:
    """Percentiles of a bootstrap over the contributions, or of the normal distribution where there are many."""
    error = estimate.standard_error
    if not np.isfinite(error):
        return None
    if len(estimate.rows) < estimate.count or estimate.count > _BOOTSTRAPPED:
        reach = bootstrap.reach(options.confidence) * error
        return estimate.value - reach, estimate.value + reach
    mean, seed = mean_statistic(estimate.contributions), options.seed
    return bootstrap.interval(mean, estimate.count, resamples=RESAMPLES, confidence=options.confidence, seed=seed)


# --- rows --------------------------------------------------------------------------------------------------------


def example_rows(corpus: Texts, options: GeometryOptions) -> Ints:
    return draw(corpus.kept, len(corpus), EXAMPLES, seed=options.seed)


def _pair_rows(pairs: int, options: GeometryOptions, kept: Kept | None = None) -> Ints:
    return draw(kept, pairs, _PAIRS, seed=options.seed)


def _searching_rows(texts: Texts, documents: int, options: GeometryOptions) -> Ints:
    """The rows whose neighbours are searched: all, or as many as `_PRODUCTS` allows."""
    most = len(texts) if options.exact else max(EXAMPLES, _PRODUCTS // documents)
    return draw(None if options.exact else texts.kept, len(texts), most, seed=options.seed)


# --- all documents -----------------------------------------------------------------------------------------------


def spectrum(space: Space, first: Ints, options: GeometryOptions) -> GeometryPart:
    vectors = space.corpus.vectors
    rows = example_rows(space.corpus, options)
    moments = geometry.moments(vectors)
    distinct = int((first == np.arange(len(first))).sum())
    used = geometry.used_directions(moments) / min(vectors.shape[1], max(1, distinct - 1))  # a rank has no error
    estimates = {
        "anisotropy": geometry.anisotropy(vectors, moments, rows),
        "anisotropy_centred": geometry.centred_anisotropy(vectors, moments, rows),
        "principal_share@1": geometry.principal_share(vectors, moments, rows, top=1),
        "principal_share@10": geometry.principal_share(vectors, moments, rows, top=10),
        "used_dimensions": Estimate(used, len(vectors), rows[:0], np.empty(0)),
    }
    return _part(estimates, "the documents do not vary", counts={"dimensions": vectors.shape[1]})


def _part(
    estimates: dict[str, Estimate],
    why: str,
    *,
    unit: str = "document",
    named: tuple[Named, ...] = (),
    counts: dict[str, float] | None = None,
) -> GeometryPart:
    """The estimates that are defined; the others are unknown, and `why`."""
    finite = {name: estimate for name, estimate in estimates.items() if np.isfinite(estimate.value)}
    unknown = {name: why for name in estimates if name not in finite}
    return GeometryPart(finite, unit, unknown, named, counts or {})


def uniformity(space: Space, options: GeometryOptions) -> GeometryPart:
    vectors = space.corpus.vectors
    rows = None
    if len(vectors) > _ALL_PAIRS and not options.exact:
        rows = np.sort(geometry.sample(len(vectors), _ALL_PAIRS, seed=options.seed))
    return GeometryPart({"uniformity": geometry.uniformity(vectors, t=options.t, rows=rows)})


def copies(space: Space, first: Ints, options: GeometryOptions) -> GeometryPart:
    corpus = space.corpus
    copy = first != np.arange(len(first))
    rows = _most(np.bincount(first, minlength=len(first)), above=1)
    return GeometryPart(
        {"duplicates": _share(copy, corpus, options)},
        named=tuple(_copied(corpus, int(row), first) for row in rows),
        counts={"duplicates": int(copy.sum())},
    )


def without_direction(space: Space, options: GeometryOptions) -> GeometryPart:
    """The documents whose vector is zero, of the whole space."""
    corpus, name = space.corpus, "without_direction"
    zero = corpus.lengths == 0
    note = "its vector is zero: no search finds it"
    return GeometryPart(
        {name: _share(zero, corpus, options)},
        named=tuple(Named(name, corpus.ids[i], corpus.texts[i], 0.0, note) for i in np.flatnonzero(zero)[:_NAMED]),
        counts={"documents_without_direction": int(zero.sum())},
        everyone=True,
    )


def _share(which: Bools, corpus: Texts, options: GeometryOptions) -> Estimate:
    rows = example_rows(corpus, options)
    share = float(which.mean())
    return Estimate(share, len(which), rows, which[rows].astype(np.float64) - share)


def _most(counts: Ints, *, above: int) -> Ints:
    """The rows with the highest counts, the highest first, at most as many as are shown."""
    top = np.argsort(-counts, kind="stable")[:_NAMED]
    return top[counts[top] > above]


def _copied(corpus: Texts, row: int, first: Ints) -> Named:
    others = [int(i) for i in np.flatnonzero(first == row)[1:]]
    same = sum(corpus.texts[i] == corpus.texts[row] for i in others)
    ids = name_some([corpus.ids[i] for i in others])
    note = f"its vector is also the vector of {ids}; {same} of them have the same text"
    return Named("duplicates", corpus.ids[row], corpus.texts[row], float(len(others)), note)


# --- pairs -------------------------------------------------------------------------------------------------------


def alignment(space: Space, options: GeometryOptions) -> GeometryPart:
    """Given pairs are examples each; pairs out of judgements stand together by query."""
    if space.pairs is not None:
        rows = _pair_rows(len(space.pairs.ids), options, space.pairs.kept)
        each = geometry.alignment(space.pairs.left[rows], space.pairs.right[rows], alpha=options.alpha)
        return _aligned(replace(each, rows=rows[each.rows], exact=len(rows) == len(space.pairs.ids)), "pair", len(rows))
    query, document, grade = judged_pairs(space)
    query, document = query[grade >= 1], document[grade >= 1]
    rows = _pair_rows(len(query), options)
    if space.queries is None or not len(rows):
        why = "there are no positive pairs: give judgements (`qrels`) or `pairs`"
        return GeometryPart(unknown={"alignment": why})
    exact, query, document = len(rows) == len(query), query[rows], document[rows]
    each = geometry.alignment(space.queries.vectors[query], space.corpus.vectors[document], alpha=options.alpha)
    total = np.bincount(query, each.value + each.influence, minlength=len(space.queries)).astype(np.float64)
    pairs = np.bincount(query, minlength=len(space.queries)).astype(np.float64)
    return _aligned(replace(geometry.ratio_estimate(total, pairs), exact=exact), "query", len(rows))


def _aligned(estimate: Estimate, unit: str, pairs: int) -> GeometryPart:
    return _part({"alignment": estimate}, "there are no positive pairs", unit=unit, counts={"positive_pairs": pairs})


# --- neighbours --------------------------------------------------------------------------------------------------


def dimension(space: Space, first: Ints, options: GeometryOptions) -> GeometryPart:
    """One of each copy searches and is found; the others are left out."""
    vectors = space.corpus.vectors
    allowed = first == np.arange(len(first))
    searching = _searching_rows(space.corpus, len(vectors), options)
    rows = searching[allowed[searching]]
    distances = neighbours.two_nearest(vectors, rows, allowed)
    exact = len(searching) == len(vectors)
    two_nn = replace(neighbours.two_nn(distances, rows), exact=exact)
    fit = replace(neighbours.facco_fit(distances, rows), exact=exact)
    part = _part(
        {"intrinsic_dimension": two_nn, "intrinsic_dimension_fit": fit},
        f"only {two_nn.count} of {len(vectors)} documents have two neighbours at different distances",
        counts={"left_out_of_dimension": len(searching) - two_nn.count},
    )
    sample = rows[np.sort(geometry.sample(len(rows), EXAMPLES, seed=options.seed))]
    curve = neighbours.scale_curve(vectors, sample, allowed, seed=options.seed)
    points = [(int(allowed.sum()), two_nn), *((point.size, point.dimension) for point in curve)]
    table = {
        "size": np.array([size for size, _ in points], np.int64),
        "dimension": np.array([point.value for _, point in points]),
        "standard_error": np.array([point.standard_error for _, point in points]),
    }
    return replace(part, details={"scale_curve": table})


_HUBNESS = ("hubness_skewness", "hubness_gini", "never_retrieved")


def hubs(space: Space, options: GeometryOptions) -> GeometryPart:
    """Without queries the documents search for each other, as the figure was first meant."""
    corpus, searching = space.corpus, space.queries or space.corpus
    among_documents = space.queries is None
    k = min(options.k, len(corpus) - among_documents)
    rows = _searching_rows(searching, len(corpus), options)
    if len(rows) < 2:
        return GeometryPart(unknown=dict.fromkeys(_HUBNESS, f"hubness needs at least 2 queries, found {len(rows)}"))
    if among_documents and space.similarity == "cosine":
        results = search.nearest_own(corpus.vectors, rows, k)[1]
    else:
        own = rows if among_documents else None
        request = (searching.vectors[rows], corpus.vectors, k)
        results = search.nearest_rows(*request, similarity=space.similarity, exclude=own)
    three = neighbours.hubness(results, len(corpus), exact=len(rows) == len(searching))
    estimates = {name: replace(e, rows=rows[e.rows]) for name, e in zip(_HUBNESS, three, strict=True)}
    chance = neighbours.chance_skewness(len(rows), k, len(corpus))
    part = _part(
        estimates,
        "every document is retrieved equally often",
        unit="document" if among_documents else "query",
        named=tuple(_hubs(space, searching, rows, results)),
        counts={"hubness_k": k, **({"chance_skewness": chance} if np.isfinite(chance) else {})},
    )
    levels = {"hubness_skewness": 2 * chance} if np.isfinite(chance) else {}
    return replace(part, levels=levels, details={"hub_counts": neighbours.count_table(results, len(corpus))})


def _hubs(space: Space, searching: Texts, rows: Ints, results: Ints) -> Iterator[Named]:
    """The documents that are results most often. One does not invade a query to which it is relevant."""
    judged = bool(space.queries) and len(space.qrels) > 0
    whole = f"{len(rows)} {'queries' if space.queries else 'documents'}"
    top = _most(neighbours.retrieval_counts(results, len(space.corpus)), above=1)
    for document, places in zip(top, neighbours.invaded(results, top), strict=True):
        id, reached = space.corpus.ids[document], rows[places]
        victims = [searching.ids[q] for q in reached if not (judged and space.qrels[q].get(id, 0) >= 1)]
        note = f"among the first {results.shape[1]} of {len(reached)} of {whole}"
        note += f", relevant to {len(reached) - len(victims)} of them" if judged else ""
        note += f"; invades {name_some(victims)}" if victims else ""
        yield Named("hubness_skewness", id, space.corpus.texts[document], float(len(reached)), note)


# --- word order --------------------------------------------------------------------------------------------------


def word_order(model: Encoder | None, space: Space, options: GeometryOptions, progress: Progress) -> GeometryPart:
    name = "word_order_sensitivity"
    if model is None or model.info.backend == "vectors":
        why = "vectors that are already computed cannot say where a shuffled text would be"
        return GeometryPart(unknown={name: why})
    texts, unit = (space.queries, "query") if space.queries else (space.corpus, "document")
    rows = draw(texts.kept, len(texts), options.texts, seed=options.seed)
    shuffled = shuffle(texts, rows, options)
    versions = [several or [] for several in shuffled]
    moved = distances_to(on_side(model, unit), texts, rows, versions, progress)
    each = geometry.mean_estimate(moved)
    least = [int(i) for i in np.argsort(moved, kind="stable")[: min(5, each.count)]]
    return _part(
        {name: replace(each, rows=rows[each.rows], exact=len(rows) == len(texts))},
        f"none of {len(rows)} texts has words in more than one order",
        unit=unit,
        named=tuple(
            Named(name, texts.ids[rows[i]], texts.texts[rows[i]], float(moved[i]), f"shuffled: {versions[i][0]}")
            for i in least
        ),
        counts={
            "word_order_texts": each.count,
            "one_word_texts": shuffled.count([]),
            "unsplit_texts": shuffled.count(None),
        },
    )


def shuffle(texts: Texts, rows: Ints, options: GeometryOptions) -> list[list[str] | None]:
    """The shuffled versions of each text; none where its words have one order only, None where it cannot be split."""

    def versions(row: int) -> list[str] | None:
        seed = [options.seed, row]
        try:
            return shuffles(texts.texts[row], permutations=options.permutations, seed=seed, how=options.words)
        except words.Unsplittable:
            return None

    return [versions(int(row)) for row in rows]


def distances_to(
    model: Encoder, texts: Texts, rows: Ints, versions: Sequence[Sequence[str]], progress: Progress
) -> Floats:
    """The mean of 1 − cosine between each text and its versions, float64[n]; NaN where it has none. In other
    surroundings a word may be unknown: a version whose vector is zero is left out."""
    whose = np.repeat(np.arange(len(rows)), [len(several) for several in versions])
    if not len(whose):
        return np.full(len(rows), np.nan)
    vectors = model.encode([text for several in versions for text in several], prompt=texts.prompt, progress=progress)
    lengths = geometry.norms(vectors)
    ids = [texts.ids[i] for i in rows[whose]]
    outputs.refuse_rows(~np.isfinite(lengths), ids, "NaN or infinite numbers", "shuffled texts")
    alive = np.flatnonzero(lengths > 0)
    whose = whose[alive]
    gap = geometry.unit(vectors[alive]).astype(np.float64)
    gap -= geometry.unit(texts.vectors[rows])[whose]
    distances = np.einsum("ij,ij->i", gap, gap) / 2  # 1 − cosine of unit vectors
    has = np.bincount(whose, minlength=len(rows))
    return np.where(has > 0, np.bincount(whose, distances, minlength=len(rows)) / np.maximum(has, 1), np.nan)


# --- sub-words ---------------------------------------------------------------------------------------------------

_FRAGMENTS = ("fragmentation", "split_words", "unknown_words")


def fragments(model: Encoder | None, space: Space, options: GeometryOptions) -> GeometryPart:
    """On a sample of the corpus, texts without a direction included: their words are those that the model lacks."""
    rows = example_rows(space.corpus, options)
    part = _fragments(model, [space.corpus.texts[int(i)] for i in rows], "", options)
    exact = len(rows) == len(space.corpus)
    estimates = {name: replace(e, rows=rows[e.rows], exact=exact) for name, e in part.estimates.items()}
    return replace(part, estimates=estimates, everyone=True)


def term_fragments(model: Encoder | None, space: Space, options: GeometryOptions) -> GeometryPart:
    """On the terms, where there are any."""
    return replace(_fragments(model, space.terms, "terms_", options), unit="term") if space.terms else GeometryPart()


def _fragments(model: Encoder | None, texts: Sequence[str], before: str, options: GeometryOptions) -> GeometryPart:
    names = [before + name for name in _FRAGMENTS]
    if not isinstance(model, words.ShowsPieces):
        backend = model.info.backend if model else "vectors"
        return GeometryPart(unknown=dict.fromkeys(names, f"the backend {backend} does not show its tokenizer"))
    result = words.fragment(model, texts, how=options.words, most=_NAMED)
    counted = (result.pieces, result.split, result.unknown)
    return _part(
        {name: geometry.ratio_estimate(part, result.words) for name, part in zip(names, counted, strict=True)},
        "there are no words in the texts",
        named=tuple(
            Named(names[0], term.word, term.word, float(len(term.pieces)), f"{term.shown}; in {term.texts} texts")
            for term in result.worst
        ),
        counts={f"{before}words": float(result.words.sum()), f"{before}unsplit": result.unsplit},
    )


LAYER = make_layer("geometry", run, GeometryOptions, map(metric_of, FIGURES.values()))
