"""Attribute integrity: do the results of a search have the colour, the brand and the size that the query states?

A result fails where it contradicts the query (`shop.agree`); one that does not state the attribute is unknown. Three
rates per part (`colour_`, `brand_`, `dimension_`) and, without a prefix, over all parts, where a result fails that
contradicts any of them:

- `explicit_failure_rate`: failures over the results of the queries that state the attribute.
- `global_failure_rate`: failures over all results of all queries; unknown where no query states the attribute.
- `unknown_rate`: results of those queries whose product does not say. What fails among the known is
  explicit_failure_rate / (1 − unknown_rate).

Beside the explicit rate stand its floor and what random products of the requested type give (`failure_floor`,
`failure_random`; layers.product_types): it warns where it is surely nearer to the second than to the first. A result of
another type is a type failure (`type_failure_rate`); its size says nothing and contradicts nothing.

All are ratios of sums over queries, which a bootstrap resamples. A query without results adds nothing to either sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.core import Columns, Encoder, FigureKind, Metric, Outcomes, Progress, RequestError, Statistic
from calipers.core.choices import GRADES
from calipers.core.figures import Figure, Named, figure_tables
from calipers.diagnosis.layer import RESAMPLES, LayerOptions, kinds_of, make_layer, setting
from calipers.diagnosis.layers.product_types import Pools, no_pools, requested_types, share_of, what_is_possible
from calipers.metrics import bootstrap, geometry
from calipers.metrics.arrays import Array, Bools, Counts, Ints
from calipers.metrics.means import ratio_statistic
from calipers.runs.space import Space
from calipers.shop import ANALYSER, Agreement, Attributes, Extractor, agree_all
from calipers.shop.agree import PARTS
from calipers.shop.products import Item, read_item

Product = str | Mapping[str, Any]

_NAMED = 30  # offending pairs that are named per part
_LOOKED_AT = 300  # queries that decide whether a corpus without columns is worth it
_ENOUGH = 0.1  # share of them that state something
_NO_CHOICE = 1e-9  # between floor and random: every ranking has the same products
_LEAST = 5  # queries that state a part: a rate of fewer is no ground for a warning

FIGURES = kinds_of("attributes")
_EXPLICIT = "explicit_failure_rate"
# A rate is a column over the results: of the queries that state the part (True), or of all of them.
_RATES = {
    _EXPLICIT: ("failures", True),
    "global_failure_rate": ("failures", False),
    "unknown_rate": ("unknown", True),
    "failure_floor": ("floor", True),
    "failure_random": ("random", True),
    "type_failure_rate": ("type_failures", False),
}


@dataclass(frozen=True)
class AttributeOptions(LayerOptions):
    """`analyser` names how texts are read; `dictionary` and `products` are fingerprints of the words and of what the
    attribute columns hold. Runs are compared only where they are the same."""

    k: int = setting(10, "How many results a user sees.", metavar="K", at_least=1)
    most: int = setting(2000, "How many queries are checked; beyond, a seeded sample.", metavar="N", at_least=1)
    colours: str = setting(
        "families",
        "Which colours agree: shades of a family, so that navy is blue, or equal ones only.",
        choices=("families", "exact"),
    )
    grades: str = setting("plain", "esci: 3 2 1 0 are exact, substitute, complement, irrelevant.", choices=GRADES)
    analyser: str = ANALYSER
    dictionary: str = ""
    products: str = ""


def run(model: Encoder | None, space: Space, options: AttributeOptions, progress: Progress) -> Outcomes:
    """Outcomes per query, as `measure` gives them, from what the search found."""
    if space.queries is None or not len(space.queries):
        raise RequestError("the layer attributes needs queries: give `queries`, or a `dataset`")
    if space.searched is None or space.products is None:
        raise RequestError("the layer attributes needs search results and products: Space.searched, Space.products")
    products = space.products
    if options.colours == "exact":
        products = replace(products, extractor=products.extractor.with_exact_colours())
    progress.start("Attributes", 0)
    rows = np.sort(geometry.sample(len(space.queries), options.most, seed=options.seed))
    queries = {space.queries.ids[i]: space.queries.texts[int(i)] for i in rows}
    requests = [products.extractor.read(text) for text in queries.values()]
    if not any(which.any() for which in which_state(products.extractor, requests).values()):
        raise RequestError("the layer attributes checks what queries state, and none states a colour, brand or size")
    results = [ids[: options.k] for ids in _results(space.searched.details["results"], rows)]
    stated = which_state(products.extractor, requests)
    requested = requested_types(
        space, products, rows, np.logical_or.reduce(list(stated.values())).tolist(), options.grades
    )
    kinds = {kind for kind in requested.types if kind}
    share = share_of(products, kinds)
    judged = {id for ids in requested.judged for id in ids or ()}
    items = products.read({id for ids in results for id in ids} | judged, kinds, share)
    pools = requested.pools(items, set(space.corpus.ids), share)
    exact = len(rows) == len(space.queries)
    return _outcomes(products.extractor, queries, requests, items, results, pools, options, exact=exact)


def skip_reason(space: Space) -> str | None:
    """Why a diagnosis that did not request this layer skips it: the texts are no products."""
    if space.queries is None or space.products is None or space.products.expected:
        return None
    sample = geometry.sample(len(space.queries), _LOOKED_AT, seed=0)
    requests = [space.products.extractor.read(space.queries.texts[int(i)]) for i in sample]
    stated = np.logical_or.reduce(list(which_state(space.products.extractor, requests).values()))
    if stated.mean() >= _ENOUGH:
        return None
    return (
        f"the corpus has no column for colour, brand or size, and only {stated.mean():.0%} of the queries state one "
        "(name it in `layers` to run it all the same)"
    )


def _results(table: Columns, rows: Ints) -> list[list[str]]:
    """The document ids of these queries, best first."""
    order = np.lexsort((table["rank"], table["example"]))
    example, document = np.asarray(table["example"])[order], np.asarray(table["document"])[order]
    starts, ends = np.searchsorted(example, rows), np.searchsorted(example, rows, side="right")
    return [[str(id) for id in document[a:b]] for a, b in zip(starts, ends, strict=True)]


def measure(
    extractor: Extractor,
    queries: Mapping[str, str],
    products: Mapping[str, Product],
    results: Sequence[Sequence[str]],
    *,
    k: int = 10,
    confidence: float = 0.95,
    seed: int = 42,
) -> Outcomes:
    """Outcomes per query over its first `k` results; `results[i]` are product ids for the i-th query, best first.

    Columns, one value per query: `results` (how many there were), and for each part (and without prefix for all) its
    `stated` (0 or 1), `failures` and `unknown` (results). Details: `pairs`, the offending ones, best ranks first, and
    `figures` and `named`. Only products that are among the results are read, each once.
    """
    options = AttributeOptions(k=k, confidence=confidence, seed=seed)
    kept = [list(ids[:k]) for ids in results]
    items = {id: read_item(extractor, products[id]) for id in dict.fromkeys(id for ids in kept for id in ids)}
    requests = [extractor.read(text) for text in queries.values()]
    pools = no_pools(len(requests), "the type of a query is not given")
    return _outcomes(extractor, queries, requests, items, kept, pools, options)


def _outcomes(
    extractor: Extractor,
    queries: Mapping[str, str],
    requests: Sequence[Attributes],
    items: Mapping[str, Item],
    results: Sequence[Sequence[str]],
    pools: Pools,
    options: AttributeOptions,
    *,
    exact: bool = True,
) -> Outcomes:
    pairs = _pairs(results)
    offers = [items[id].attributes for id in pairs.ids]
    states = agree_all(extractor, requests, offers, pairs.query, pairs.product)
    entries = zip(pairs.query.tolist(), pairs.product.tolist(), strict=True)
    other = np.array([pools.is_other(q, pairs.ids[p], items[pairs.ids[p]].type) for q, p in entries], np.bool_)
    states["dimension"][other] = Agreement.UNASKED  # what 20 litres are of another thing contradicts no bottle
    columns: dict[str, Counts] = dict(count(states, pairs.query, which_state(extractor, requests)))
    if pools.knows_types:
        typed = np.array([bool(kind) or not pools.by_column for kind in pools.types], np.bool_)
        failures = np.bincount(pairs.query[other], minlength=len(requests)).astype(np.float64)
        columns["type_failures"] = np.where(typed, failures, np.nan)
    possible = what_is_possible(extractor, requests, items, pools, k=options.k, seed=options.seed)
    for name, shares in (("floor", possible.floor), ("random", possible.random)):
        columns |= {f"{part}_{name}" if part else name: each for part, each in shares.items()}
    offending = _offending(states, pairs, requests, offers)
    figures = make_figures(
        columns, confidence=options.confidence, seed=options.seed, exact=exact, no_floor=pools.reason
    )
    return Outcomes(
        ids=tuple(queries),
        columns=columns,
        texts={"query": tuple(queries.values())},
        details={"pairs": offending, **figure_tables(figures, _named(offending, list(queries.items()), items))},
        counts={
            "queries": len(requests),
            "results": len(pairs.query),
            "queries_without_results": int((columns["results"] == 0).sum()),
            **{f"queries_stating_{part}": int(columns[f"{part}_stated"].sum()) for part in PARTS},
        },
        notes=tuple(figure.warning for figure in figures if figure.warning),
    )


def which_state(extractor: Extractor, requests: Sequence[Attributes]) -> dict[str, Bools]:
    """Which queries state each part, bool[queries], whether they have results or not."""
    each, nothing = np.arange(len(requests)), np.zeros(len(requests), dtype=np.int64)
    states = agree_all(extractor, requests, [Attributes()], each, nothing)
    return {part: state != Agreement.UNASKED for part, state in states.items()}


def count(states: Mapping[str, NDArray[np.int8]], query: Ints, stated: Mapping[str, Bools]) -> dict[str, Ints]:
    """The outcome columns, int64[queries], from the states and queries of the pairs, and who states each part."""
    queries = len(next(iter(stated.values())))

    def total(which: Bools) -> Ints:
        return np.bincount(query[which], minlength=queries)

    columns: dict[str, Ints] = {"results": np.bincount(query, minlength=queries)}
    for part, state in states.items():
        columns[f"{part}_stated"] = stated[part].astype(np.int64)
        columns[f"{part}_failures"] = total(state == Agreement.CONTRADICT)
        columns[f"{part}_unknown"] = total(state == Agreement.SILENT)
    every = np.stack(list(states.values()))
    failed = (every == Agreement.CONTRADICT).any(axis=0)
    columns["stated"] = np.logical_or.reduce(list(stated.values())).astype(np.int64)
    columns["failures"] = total(failed)
    columns["unknown"] = total(~failed & (every == Agreement.SILENT).any(axis=0))
    return columns


@dataclass(frozen=True, eq=False)
class _ResultPairs:
    """Per result its query, its rank from 1 and its product, int64[n]; the products' ids."""

    query: Ints
    rank: Ints
    product: Ints
    ids: Sequence[str]


def _pairs(results: Sequence[Sequence[str]]) -> _ResultPairs:
    sizes = np.array([len(ids) for ids in results], dtype=np.int64)
    place: dict[str, int] = {}
    product = np.array([place.setdefault(id, len(place)) for ids in results for id in ids], dtype=np.int64)
    query = np.repeat(np.arange(len(results)), sizes)
    rank = np.arange(len(query)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + 1
    return _ResultPairs(query, rank, product, list(place))


# --- figures -----------------------------------------------------------------------------------------------------


def _read_name(figure: str) -> tuple[str, str, bool]:
    """The prefix of its part ("" for all together), its column, and whether only queries that state the part count."""
    prefix, rate = next((figure.removesuffix(rate), rate) for rate in _RATES if figure.endswith(rate))
    column, explicit = _RATES[rate]
    return prefix, f"{prefix}{column}", explicit


def _metric(kind: FigureKind) -> Metric:
    prefix, column, explicit = _read_name(kind.name)

    def statistic(columns: Columns) -> Statistic:
        stated, part = columns[f"{prefix}stated"], columns[column]
        whole = columns["results"] * (stated if explicit else stated.any())  # unknown, not perfect, if none states it
        if column.endswith(("floor", "random")):  # shares of a query, whatever a model finds for it
            part, whole = np.where(stated > 0, part, np.nan), stated
        return ratio_statistic(np.nan_to_num(part), whole * np.isfinite(part))

    return replace(kind.metric(statistic), needs=(column,))


METRICS = tuple(map(_metric, FIGURES.values()))


def make_figures(
    columns: Columns, *, confidence: float = 0.95, seed: int = 42, exact: bool = True, no_floor: str = ""
) -> tuple[Figure, ...]:
    """Each metric with its interval. One that no query states is unknown, not 0. `no_floor` is why there is none."""
    queries = len(columns["results"])
    measured = [metric for metric in METRICS if queries and set(metric.needs) <= columns.keys()]
    values = {metric.name: metric.value(columns) for metric in measured}
    statistics = [metric.statistic(columns) for metric in measured]
    resampled = bootstrap.distribution(statistics, queries, resamples=RESAMPLES, seed=seed) if measured else ()
    rates = dict(zip(values, resampled, strict=True))
    figures = []
    for kind in map(partial(_with_level, values, no_floor=no_floor), FIGURES.values()):
        prefix, _, _ = _read_name(kind.name)
        stated, value = columns[f"{prefix}stated"], values.get(kind.name, np.nan)
        if not np.isfinite(value):
            figures.append(replace(kind.unknown(_why_unknown(kind, columns, no_floor)), count=_count(kind, columns)))
            continue
        count = _count(kind, columns)
        interval = None
        if count > 1:  # every resample of one query is that query
            interval = bootstrap.percentile_interval(rates[kind.name], confidence=confidence, units=count)
        warns = bool(stated.sum() >= _LEAST)
        if kind.name.endswith(_EXPLICIT):
            warns = bool(kind.advice) and _is_near_random(columns, prefix, confidence=confidence, seed=seed)
        figures.append(kind.figure(float(value), count, interval=interval, exact=exact, warns=warns))
    return tuple(figures)


def _count(kind: FigureKind, columns: Columns) -> int:
    """The queries that a figure is about: those that state its part, or all; of both those that it has a value for."""
    prefix, column, explicit = _read_name(kind.name)
    stated = columns[f"{prefix}stated"] > 0
    which = stated if explicit else np.ones(len(stated), np.bool_)
    return int((which & np.isfinite(columns[column])).sum() if column in columns else which.sum())


def _why_unknown(kind: FigureKind, columns: Columns, no_floor: str) -> str:
    prefix, column, _ = _read_name(kind.name)
    stated = columns[f"{prefix}stated"] * columns["results"]
    if column == "type_failures":
        return "no column names the type of a product (`CorpusInputs.columns`)"
    if column.endswith(("floor", "random")) and stated.any():
        return no_floor or "the type of no query that states it is known"
    return f"no query with results states a {prefix[:-1] or ' or a '.join(PARTS)}"


def _with_level(values: Mapping[str, float], kind: FigureKind, *, no_floor: str) -> FigureKind:
    """An explicit rate with what is possible beside it: it warns past the middle of its floor and random results."""
    if not kind.name.endswith(_EXPLICIT):
        return kind
    prefix = kind.name.removesuffix(_EXPLICIT)
    floor, random = (values.get(f"{prefix}{name}", np.nan) for name in ("failure_floor", "failure_random"))
    if not np.isfinite(floor):
        return replace(kind, level=f"never, for there is no floor: {no_floor}" if no_floor else "never")
    if random - floor < _NO_CHOICE:
        return replace(
            kind, level=f"never: no more products of the type than results, and {floor:.0%} of them must fail"
        )
    possible = f"nearer to random ({random:.2f}) than to the best possible ({floor:.2f})"
    return replace(kind, level=possible if kind.advice else f"never; {possible}", above=(floor + random) / 2)


def _is_near_random(columns: Columns, prefix: str, *, confidence: float, seed: int) -> bool:
    """Whether a rate is nearer to random results than to its floor, surely: by the interval of the difference between
    it and the middle, over the queries whose type is known and has more products than are shown: among fewer every
    ranking is the best possible and a random one at once."""
    floor, random = columns.get(f"{prefix}floor"), columns.get(f"{prefix}random")
    if floor is None or random is None:
        return False
    beyond = columns[f"{prefix}failures"] - columns["results"] * (floor + random) / 2
    whole = columns["results"] * columns[f"{prefix}stated"] * (np.isfinite(beyond) & (random - floor >= _NO_CHOICE))
    statistic = ratio_statistic(np.nan_to_num(beyond) * (whole > 0), whole)
    if (whole > 0).sum() < _LEAST:
        return False
    differences = bootstrap.distribution([statistic], len(whole), resamples=RESAMPLES, seed=seed)[0]
    interval = bootstrap.percentile_interval(differences, confidence=confidence, units=int((whole > 0).sum()))
    return interval is not None and interval[0] > 0


# --- offending pairs ---------------------------------------------------------------------------------------------


def _offending(
    states: Mapping[str, NDArray[np.int8]],
    pairs: _ResultPairs,
    requests: Sequence[Attributes],
    offers: Sequence[Attributes],
) -> dict[str, Array]:
    """One row per contradiction: the query's row, the product's id, its rank, the part, what each of them states."""
    parts = [(part, i) for part in PARTS for i in np.flatnonzero(states[part] == Agreement.CONTRADICT)]
    parts.sort(key=lambda entry: (pairs.rank[entry[1]], pairs.query[entry[1]]))
    at = np.array([i for _, i in parts], dtype=np.int64)

    def texts(values: list[str]) -> NDArray[np.str_]:
        return np.array(values, dtype=np.str_) if values else np.empty(0, np.str_)

    return {
        "example": pairs.query[at].astype(np.int32),
        "rank": pairs.rank[at].astype(np.int32),
        "document": texts([pairs.ids[pairs.product[i]] for i in at]),
        "part": texts([part for part, _ in parts]),
        "asked": texts([describe(requests[pairs.query[i]], part) for part, i in parts]),
        "found": texts([describe(offers[pairs.product[i]], part) for part, i in parts]),
    }


def describe(attributes: Attributes, part: str) -> str:
    """What a text states of a part, in words.

    >>> describe(Attributes(colours=frozenset({"red"}), not_colours=frozenset({"blue"})), "colour")
    'red, not blue'
    """
    if part == "dimension":
        stated = [q.text for q in attributes.quantities] + [f"for {q.text}" for q in attributes.fits_quantities]
        denied = [q.text for q in attributes.not_quantities]
    else:
        stated, denied = (sorted(getattr(attributes, f"{negation}{part}s")) for negation in ("", "not_"))
    return ", ".join([*stated, *(f"not {value}" for value in denied)])


def _named(offending: Columns, queries: Sequence[tuple[str, str]], items: Mapping[str, Item]) -> list[Named]:
    """The pairs of each part with the best ranks."""
    named = []
    for part in PARTS:
        for row in np.flatnonzero(offending["part"] == part)[:_NAMED]:
            id, text = queries[int(offending["example"][row])]
            document, rank = str(offending["document"][row]), int(offending["rank"][row])
            contrast = f"requested {offending['asked'][row]}, found {offending['found'][row]}"
            figure, title = f"{part}_explicit_failure_rate", items[document].title
            named.append(Named(figure, f"{id} / {document}", title, float(rank), f"at {rank} for '{text}': {contrast}"))
    return named


LAYER = make_layer("attributes", run, AttributeOptions, METRICS, skip_reason=skip_reason)
