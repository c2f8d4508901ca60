"""The measurements of the geometry layer, one function each: a Space to estimates and what they point at.

Exact is: all documents in one pass for anisotropy and principal directions; all pairs for uniformity up to
`_ALL_PAIRS` documents; all documents asking all others for the intrinsic dimension, and all queries for hubness, as
long as that is no more than `_PRODUCTS` products. Beyond that a seeded sample asks, always among all documents, and
`exact=True` forbids it. Sizes of samples depend on the number of texts only, so that two models see the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from calipers.core import Columns, Encoder, Named, Progress, RequestError, name_some
from calipers.diagnosis.layers import fragmentation, word_order
from calipers.diagnosis.layers.words import HOW, MissingExtra
from calipers.metrics import geometry, neighbours, search
from calipers.metrics.geometry import Estimate
from calipers.runs.space import Kept, Space, Texts, draw

Ints = NDArray[np.int64]

EXAMPLES = 2000  # documents that outcomes hold
_PAIRS = 10_000  # positive pairs
_ALL_PAIRS = 20_000  # documents: 2 · 10⁸ pairs, a few seconds
_PRODUCTS = 4_000_000_000  # of two vectors: half a minute at 384 dimensions on two cores
_NAMED = 25  # hubs, copies and terms that are shown


@dataclass(frozen=True)
class GeometryOptions:
    k: int = 10
    alpha: float = 2.0
    t: float = 2.0
    permutations: int = 3
    texts: int = 500  # for word order, which needs the model
    words: str = "auto"
    exact: bool = False
    confidence: float = 0.95
    seed: int = 42

    def __post_init__(self) -> None:
        if self.words not in HOW:
            raise RequestError(f"--words must be one of {', '.join(HOW)}, found {self.words!r}")
        for name in ("k", "permutations", "texts"):
            if getattr(self, name) < 1:
                raise RequestError(f"--{name} must be at least 1, found {getattr(self, name)}")
        for name in ("alpha", "t"):
            if not getattr(self, name) > 0:
                raise RequestError(f"--{name} must be above 0, found {getattr(self, name):g}")


@dataclass(frozen=True, eq=False)
class Part:
    """What one measurement adds: estimates by figure, or why there is none; and what they point at.

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


def example_rows(corpus: Texts, options: GeometryOptions) -> Ints:
    return draw(corpus.kept, len(corpus), EXAMPLES, seed=options.seed)


def pair_rows(pairs: int, options: GeometryOptions, kept: Kept | None = None) -> Ints:
    return draw(kept, pairs, _PAIRS, seed=options.seed)


def asking_rows(asking: Texts, documents: int, options: GeometryOptions) -> Ints:
    """The rows that look for neighbours: all, or as many as may."""
    most = len(asking) if options.exact else max(EXAMPLES, _PRODUCTS // documents)
    return draw(None if options.exact else asking.kept, len(asking), most, seed=options.seed)


# --- all documents -----------------------------------------------------------------------------------------------


def spectrum(space: Space, first: Ints, options: GeometryOptions) -> Part:
    vectors = space.corpus.vectors
    rows = example_rows(space.corpus, options)
    found = geometry.moments(vectors)
    distinct = int((first == np.arange(len(first))).sum())
    used = geometry.used_directions(found) / min(vectors.shape[1], max(1, distinct - 1))  # a rank has no error
    estimates = {
        "anisotropy": geometry.anisotropy(vectors, found, rows),
        "anisotropy_centred": geometry.centred_anisotropy(vectors, found, rows),
        "principal_share@1": geometry.principal_share(vectors, found, rows, top=1),
        "principal_share@10": geometry.principal_share(vectors, found, rows, top=10),
        "used_dimensions": Estimate(used, len(vectors), rows[:0], np.empty(0)),
    }
    known, missing = _defined(estimates, "the documents do not vary")
    return Part(known, unknown=missing, counts={"dimensions": vectors.shape[1]})


def _defined(estimates: dict[str, Estimate], why: str) -> tuple[dict[str, Estimate], dict[str, str]]:
    known = {name: estimate for name, estimate in estimates.items() if np.isfinite(estimate.value)}
    return known, {name: why for name in estimates if name not in known}


def uniformity(space: Space, options: GeometryOptions) -> Part:
    vectors = space.corpus.vectors
    some = None
    if len(vectors) > _ALL_PAIRS and not options.exact:
        some = np.sort(geometry.sample(len(vectors), _ALL_PAIRS, seed=options.seed))
    return Part({"uniformity": geometry.uniformity(vectors, t=options.t, rows=some)})


def copies(space: Space, first: Ints, options: GeometryOptions) -> Part:
    corpus = space.corpus
    copy = first != np.arange(len(first))
    rows = example_rows(corpus, options)
    share = float(copy.mean())
    named = tuple(_copied(corpus, int(row), first) for row in _most(np.bincount(first, minlength=len(first)), above=1))
    found = Estimate(share, len(first), rows, copy[rows] - share)
    return Part({"duplicates": found}, named=named, counts={"duplicates": int(copy.sum())})


def without_direction(space: Space, options: GeometryOptions) -> Part:
    """The documents whose vector is zero, of the whole space."""
    corpus = space.corpus
    lost = corpus.lengths == 0
    rows = example_rows(corpus, options)
    share = float(lost.mean())
    named = tuple(
        Named("without_direction", corpus.ids[i], corpus.texts[i], 0.0, "its vector is zero: no search finds it")
        for i in np.flatnonzero(lost)[:_NAMED].tolist()
    )
    found = Estimate(share, len(lost), rows, lost[rows] - share)
    counts: dict[str, float] = {"documents_without_direction": int(lost.sum())}
    return Part({"without_direction": found}, named=named, counts=counts, everyone=True)


def _most(counts: Ints, *, above: int) -> Ints:
    """The rows with the highest counts, the highest first, at most as many as are shown."""
    top = np.argsort(-counts, kind="stable")[:_NAMED]
    return top[counts[top] > above]


def _copied(corpus: Texts, row: int, first: Ints) -> Named:
    others = [int(i) for i in np.flatnonzero(first == row)[1:]]
    same = sum(corpus.texts[i] == corpus.texts[row] for i in others)
    note = f"its vector is also that of {name_some([corpus.ids[i] for i in others])}; {same} of them have the same text"
    return Named("duplicates", corpus.ids[row], corpus.texts[row], float(len(others)), note)


# --- pairs -------------------------------------------------------------------------------------------------------


def alignment(space: Space, options: GeometryOptions) -> Part:
    """Pairs that were given are examples each; those out of judgements stand together by query."""
    if space.pairs is not None:
        some = pair_rows(len(space.pairs.ids), options, space.pairs.kept)
        found = geometry.alignment(space.pairs.left[some], space.pairs.right[some], alpha=options.alpha)
        kept = replace(found, rows=some[found.rows], exact=len(some) == len(space.pairs.ids))
        return _aligned(kept, "pair", len(some))
    query, document = positives(space)
    some = pair_rows(len(query), options)
    if space.queries is None or not len(some):
        return Part(unknown={"alignment": "there are no positive pairs: give judgements (--qrels) or --pairs"})
    exact, query, document = len(some) == len(query), query[some], document[some]
    each = geometry.alignment(space.queries.vectors[query], space.corpus.vectors[document], alpha=options.alpha)
    total = np.bincount(query, each.value + each.influence, minlength=len(space.queries)).astype(np.float64)
    pairs = np.bincount(query, minlength=len(space.queries)).astype(np.float64)
    return _aligned(replace(geometry.ratio_estimate(total, pairs), exact=exact), "query", len(some))


def _aligned(found: Estimate, unit: str, pairs: int) -> Part:
    known, missing = _defined({"alignment": found}, "there are no positive pairs")
    return Part(known, unit, missing, counts={"positive_pairs": pairs})


def positives(space: Space) -> tuple[Ints, Ints]:
    """Rows of queries and of the documents judged relevant to them (grade 1 or more) that the corpus has."""
    relevant = [(q, id) for q, grades in enumerate(space.qrels) for id, grade in grades.items() if grade >= 1]
    wanted = {id for _, id in relevant}
    place = {id: row for row, id in enumerate(space.corpus.ids) if id in wanted}
    both = np.array([(q, place[id]) for q, id in relevant if id in place], np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


# --- neighbours --------------------------------------------------------------------------------------------------


def dimension(space: Space, first: Ints, options: GeometryOptions) -> Part:
    """Copies neither ask nor are found: one of each is enough."""
    vectors = space.corpus.vectors
    allowed = first == np.arange(len(first))
    asked = asking_rows(space.corpus, len(vectors), options)
    rows = asked[allowed[asked]]
    distances = neighbours.two_nearest(vectors, rows, allowed)
    exact = len(asked) == len(vectors)
    found = replace(neighbours.two_nn(distances, rows), exact=exact)
    fit = replace(neighbours.facco_fit(distances, rows), exact=exact)
    why = f"only {found.count} of {len(vectors)} documents have two neighbours at different distances"
    known, missing = _defined({"intrinsic_dimension": found, "intrinsic_dimension_fit": fit}, why)
    some = rows[np.sort(geometry.sample(len(rows), EXAMPLES, seed=options.seed))]
    curve = neighbours.scale_curve(vectors, some, allowed, seed=options.seed)
    points = [(int(allowed.sum()), found), *((point.size, point.dimension) for point in curve)]
    table = {
        "size": np.array([size for size, _ in points], np.int64),
        "dimension": np.array([point.value for _, point in points]),
        "standard_error": np.array([point.standard_error for _, point in points]),
    }
    counts: dict[str, float] = {"left_out_of_dimension": len(asked) - found.count}
    return Part(known, unknown=missing, counts=counts, details={"scale_curve": table})


_HUBNESS = ("hubness_skewness", "hubness_gini", "never_retrieved")


def hubs(space: Space, options: GeometryOptions) -> Part:
    """Without queries the documents ask for each other, as the figure was first meant."""
    corpus, asking, own = space.corpus, space.queries or space.corpus, space.queries is None
    k = min(options.k, len(corpus) - own)
    rows = asking_rows(asking, len(corpus), options)
    if len(rows) < 2:
        return Part(unknown=dict.fromkeys(_HUBNESS, f"hubness needs at least 2 queries, found {len(rows)}"))
    if own:
        found = search.nearest_own(corpus.vectors, rows, k)[1]
    else:
        found = search.nearest(asking.vectors[rows], corpus.vectors, k)[1]
    three = neighbours.hubness(found, len(corpus), exact=len(rows) == len(asking))
    estimates = {name: replace(e, rows=rows[e.rows]) for name, e in zip(_HUBNESS, three, strict=True)}
    known, missing = _defined(estimates, "every document is retrieved equally often")
    chance = neighbours.chance_skewness(len(rows), k, len(corpus))
    return Part(
        estimates=known,
        unit="document" if own else "query",
        unknown=missing,
        named=_hubs(space, asking, rows, found),
        counts={"hubness_k": k, **({"chance_skewness": chance} if np.isfinite(chance) else {})},
        levels={"hubness_skewness": 2 * chance} if np.isfinite(chance) else {},
    )


def _hubs(space: Space, asking: Texts, rows: Ints, found: Ints) -> tuple[Named, ...]:
    top = _most(neighbours.retrieval_counts(found, len(space.corpus)), above=1)
    return tuple(
        _hub(space, asking, int(document), [int(rows[place]) for place in places], found.shape[1], len(rows))
        for document, places in zip(top, neighbours.invaded(found, top), strict=True)
    )


def _hub(space: Space, asking: Texts, document: int, who: Sequence[int], k: int, of: int) -> Named:
    """A query to which the document is relevant is not invaded by it."""
    id = space.corpus.ids[document]
    judged = bool(space.queries) and len(space.qrels) > 0
    victims = [asking.ids[q] for q in who if not (judged and space.qrels[q].get(id, 0) >= 1)]
    note = f"among the first {k} of {len(who)} of {of} {'queries' if space.queries else 'documents'}"
    note += f", relevant to {len(who) - len(victims)} of them" if judged else ""
    note += f"; invades {name_some(victims)}" if victims else ""
    return Named("hubness_skewness", id, space.corpus.texts[document], float(len(who)), note)


# --- the model itself --------------------------------------------------------------------------------------------


def order(model: Encoder | None, space: Space, options: GeometryOptions, progress: Progress) -> Part:
    name = "word_order_sensitivity"
    if model is None or model.info.backend == "vectors":
        return Part(unknown={name: "vectors that are already computed cannot say where a shuffled text would be"})
    texts, unit = (space.queries, "query") if space.queries else (space.corpus, "document")
    rows = draw(texts.kept, len(texts), options.texts, seed=options.seed)
    wish = word_order.Wish(options.permutations, options.seed, options.words)
    try:
        found = word_order.measure(model, texts, rows, wish, progress)
    except MissingExtra as error:
        return Part(unknown={name: str(error)})
    each = geometry.mean_estimate(found.moved)
    estimate = replace(each, rows=rows[each.rows], exact=len(rows) == len(texts))
    known, missing = _defined({name: estimate}, f"none of {len(rows)} texts has words in more than one order")
    least = [int(i) for i in np.argsort(found.moved, kind="stable")[: min(5, each.count)]]
    named = tuple(
        Named(
            name, texts.ids[rows[i]], texts.texts[int(rows[i])], float(found.moved[i]), f"shuffled: {found.example[i]}"
        )
        for i in least
    )
    counts: dict[str, float] = {"word_order_texts": each.count, "one_word_texts": found.without}
    return Part(known, unit, missing, named, counts)


_FRAGMENTS = ("fragmentation", "split_words", "unknown_words")


def fragments(model: Encoder | None, space: Space, options: GeometryOptions) -> Part:
    """On a sample of the corpus, texts without a direction included: their words are those that the model lacks."""
    rows = example_rows(space.corpus, options)
    found = _fragments(model, [space.corpus.texts[int(i)] for i in rows], "", options)
    exact = len(rows) == len(space.corpus)
    known = {n: replace(e, rows=rows[e.rows], exact=exact) for n, e in found.estimates.items()}
    return replace(found, estimates=known, everyone=True)


def term_fragments(model: Encoder | None, space: Space, options: GeometryOptions) -> Part:
    """On the terms, where there are any."""
    return replace(_fragments(model, space.terms, "terms_", options), unit="term") if space.terms else Part()


def _fragments(model: Encoder | None, texts: Sequence[str], before: str, options: GeometryOptions) -> Part:
    names = [before + name for name in _FRAGMENTS]
    if not isinstance(model, fragmentation.ShowsPieces):
        backend = model.info.backend if model else "vectors"
        return Part(unknown=dict.fromkeys(names, f"the backend {backend} does not show its tokenizer"))
    try:
        found = fragmentation.measure(model, texts, how=options.words, most=_NAMED)
    except MissingExtra as error:
        return Part(unknown=dict.fromkeys(names, str(error)))
    counted = (found.pieces, found.split, found.unknown)
    estimates = {n: geometry.ratio_estimate(part, found.words) for n, part in zip(names, counted, strict=True)}
    known, missing = _defined(estimates, "there are no words in the texts")
    named = tuple(
        Named(names[0], term.word, term.word, float(len(term.pieces)), f"{term.shown}; in {term.texts} texts")
        for term in found.worst
    )
    return Part(known, unknown=missing, named=named, counts={f"{before}words": float(found.words.sum())})
