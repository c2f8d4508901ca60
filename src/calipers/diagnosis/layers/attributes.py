"""Attribute integrity: do the results of a search have the colour, the brand and the size that the query asked for?

A result fails where it contradicts the query (`attributes.agree`); one that says nothing of what was asked does not
fail, and is counted as unknown. Three rates per part (`colour_`, `brand_`, `dimension_`) and, without a prefix, over
all parts together, where a result fails that contradicts any of them:

- `explicit_failure_rate`: failures over the results of the queries that state the attribute.
- `global_failure_rate`: failures over all results of all queries; unknown where no query states the attribute.
- `unknown_rate`: results of those queries whose product does not say. What fails among the known is
  explicit_failure_rate / (1 − unknown_rate).

All are ratios of sums over queries, so a bootstrap over queries gives their intervals. A query without results (its
vector is zero, say) adds nothing to either sum, and is counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.core import Columns, Encoder, Outcomes, Progress, RequestError
from calipers.core.figures import Named, figure_tables
from calipers.diagnosis.layer import Layer
from calipers.diagnosis.layers.attribute_figures import METRICS, make_figures
from calipers.metrics import geometry
from calipers.runs.space import Space
from calipers.shop import Agreement, Attributes, Extractor, agree_all
from calipers.shop.agree import PARTS
from calipers.shop.products import Item, Products, read_item

__all__ = ["LAYER", "METRICS", "AttributeOptions", "count", "describe", "measure", "run"]

Ints = NDArray[np.int64]
Product = str | Mapping[str, Any]

_NAMED = 30  # offending pairs that are named per part
_LOOKED_AT = 300  # queries that decide whether a corpus without columns is worth it
_ENOUGH = 0.1  # share of them that state something


@dataclass(frozen=True)
class AttributeOptions:
    """`dictionary` and `products` are fingerprints of the words and of what the known columns hold: runs are compared
    only where they are the same."""

    k: int = 10
    most: int = 2000  # queries that are looked at; beyond, a seeded sample
    confidence: float = 0.95
    seed: int = 42
    dictionary: str = ""
    products: str = ""

    def __post_init__(self) -> None:
        for name in ("k", "most"):
            if getattr(self, name) < 1:
                raise RequestError(f"--{name} must be at least 1, found {getattr(self, name)}")


def run(model: Encoder | None, space: Space, options: AttributeOptions, progress: Progress) -> Outcomes:
    """Outcomes per query, as `measure` gives them, from what the search found."""
    products = _products(space)
    assert space.queries is not None
    progress.start("Attributes", 0)
    rows = np.sort(geometry.sample(len(space.queries), options.most, seed=options.seed))
    queries = {space.queries.ids[i]: space.queries.texts[int(i)] for i in rows}
    asked = [products.extractor.read(text) for text in queries.values()]
    stated = _stated(products.extractor, asked)
    if not any(which.any() for which in stated.values()):
        raise RequestError("the layer attributes checks what queries ask for, and none states a colour, brand or size")
    results = [found[: options.k] for found in _results(space, rows)]
    items = products.read({id for found in results for id in found})
    return _outcomes(products.extractor, queries, asked, items, results, options, exact=len(rows) == len(space.queries))


def _products(space: Space) -> Products:
    if space.queries is None or not len(space.queries):
        raise RequestError("the layer attributes looks at the results of queries: give --queries, or a --dataset")
    if space.searched is None or space.products is None:
        raise RequestError("the layer attributes needs what a search found and the products: Space.searched, .products")
    return space.products


def spare(space: Space) -> str | None:
    """Why a diagnosis that did not ask for this layer goes without it: texts that are no products."""
    if space.queries is None or space.products is None or space.products.expected:
        return None
    some = geometry.sample(len(space.queries), _LOOKED_AT, seed=0)
    asked = [space.products.extractor.read(space.queries.texts[int(i)]) for i in some]
    stated = np.logical_or.reduce(list(_stated(space.products.extractor, asked).values()))
    if stated.mean() >= _ENOUGH:
        return None
    return (
        f"the corpus has no column for colour, brand or size, and only {stated.mean():.0%} of the queries state one "
        "(--layers attributes asks for it all the same)"
    )


def _results(space: Space, rows: Ints) -> list[list[str]]:
    """The document ids of these queries, best first."""
    assert space.searched is not None
    table = space.searched.details["results"]
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
    kept = [list(found[:k]) for found in results]
    items = {id: read_item(extractor, products[id]) for id in dict.fromkeys(id for found in kept for id in found)}
    asked = [extractor.read(text) for text in queries.values()]
    return _outcomes(extractor, queries, asked, items, kept, options)


def _outcomes(
    extractor: Extractor,
    queries: Mapping[str, str],
    asked: Sequence[Attributes],
    items: Mapping[str, Item],
    results: Sequence[Sequence[str]],
    options: AttributeOptions,
    *,
    exact: bool = True,
) -> Outcomes:
    query, rank, rows, product = _pairs(results)
    given = [items[row].attributes for row in rows]
    states = agree_all(extractor, asked, given, query, product)
    columns = count(states, query, _stated(extractor, asked))
    offending = _offending(states, query, rank, product, rows, asked, given)
    named = _named(offending, list(queries.items()), items)
    figures = make_figures(columns, confidence=options.confidence, seed=options.seed, exact=exact)
    return Outcomes(
        ids=tuple(queries),
        columns=columns,
        texts={"query": tuple(queries.values())},
        details={"pairs": offending, **figure_tables(figures, named)},
        counts={
            "queries": len(asked),
            "results": len(query),
            "queries_without_results": int((columns["results"] == 0).sum()),
            **_stated_counts(columns),
        },
        notes=tuple(figure.warning for figure in figures if figure.warning),
    )


def _stated(extractor: Extractor, asked: Sequence[Attributes]) -> dict[str, NDArray[np.bool_]]:
    """Which queries state each part, bool[queries], whether they have results or not."""
    each, nothing = np.arange(len(asked)), np.zeros(len(asked), dtype=np.int64)
    states = agree_all(extractor, asked, [Attributes()], each, nothing)
    return {part: state != Agreement.UNASKED for part, state in states.items()}


def count(
    states: Mapping[str, NDArray[np.int8]], query: Ints, stated: Mapping[str, NDArray[np.bool_]]
) -> dict[str, Ints]:
    """The outcome columns, int64[queries] each, from the states of the pairs, int8[n], the query of each pair, and
    which queries state each part."""
    queries = len(next(iter(stated.values())))

    def total(which: NDArray[np.bool_]) -> Ints:
        return np.bincount(query[which], minlength=queries)

    results = np.bincount(query, minlength=queries)
    columns: dict[str, Ints] = {"results": results}
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


def _pairs(results: Sequence[Sequence[str]]) -> tuple[Ints, Ints, list[str], Ints]:
    """Per result its query and its rank; the products among them, and per result which."""
    sizes = np.array([len(found) for found in results], dtype=np.int64)
    place: dict[str, int] = {}
    product = np.array([place.setdefault(id, len(place)) for found in results for id in found], dtype=np.int64)
    query = np.repeat(np.arange(len(results)), sizes)
    rank = np.arange(len(query)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + 1
    return query, rank, list(place), product


def _stated_counts(columns: Columns) -> dict[str, int]:
    return {f"queries_stating_{part}": int(columns[f"{part}_stated"].sum()) for part in PARTS}


# --- offending pairs ---------------------------------------------------------------------------------------------


def _offending(
    states: Mapping[str, NDArray[np.int8]],
    query: Ints,
    rank: Ints,
    product: Ints,
    rows: Sequence[str],
    asked: Sequence[Attributes],
    given: Sequence[Attributes],
) -> dict[str, NDArray[Any]]:
    """One row per contradiction: the query's row, the product's id, its rank, the part, what was asked and found."""
    parts = [(part, i) for part in PARTS for i in np.flatnonzero(states[part] == Agreement.CONTRADICT)]
    parts.sort(key=lambda entry: (rank[entry[1]], query[entry[1]]))
    at = np.array([i for _, i in parts], dtype=np.int64)

    def texts(values: list[str]) -> NDArray[Any]:
        return np.array(values, dtype=np.str_) if values else np.empty(0, np.str_)

    return {
        "example": query[at].astype(np.int32),
        "rank": rank[at].astype(np.int32),
        "document": texts([rows[product[i]] for i in at]),
        "part": texts([part for part, _ in parts]),
        "asked": texts([describe(asked[query[i]], part) for part, i in parts]),
        "found": texts([describe(given[product[i]], part) for part, i in parts]),
    }


def describe(attributes: Attributes, part: str) -> str:
    """What a text states of a part, in words.

    >>> describe(Attributes(colours=frozenset({"red"}), not_colours=frozenset({"blue"})), "colour")
    'red, not blue'
    """
    if part == "dimension":
        own = [q.text for q in attributes.quantities] + [f"for {q.text}" for q in attributes.fits_quantities]
        return ", ".join([*own, *(f"not {q.text}" for q in attributes.not_quantities)])
    name = f"{part}s"
    return ", ".join(
        [*sorted(getattr(attributes, name)), *(f"not {v}" for v in sorted(getattr(attributes, f"not_{name}")))]
    )


def _named(offending: Columns, queries: Sequence[tuple[str, str]], items: Mapping[str, Item]) -> list[Named]:
    """The pairs of each part with the best ranks."""
    named = []
    for part in PARTS:
        for row in np.flatnonzero(offending["part"] == part)[:_NAMED]:
            id, text = queries[int(offending["example"][row])]
            document, rank = str(offending["document"][row]), int(offending["rank"][row])
            told = f"asked for {offending['asked'][row]}, found {offending['found'][row]}"
            named.append(
                Named(
                    figure=f"{part}_explicit_failure_rate",
                    id=f"{id} / {document}",
                    text=items[document].title,
                    value=float(rank),
                    note=f"at {rank} for '{text}': {told}",
                )
            )
    return named


LAYER = Layer(
    name="attributes",
    about="whether results have the colour, the brand and the size that their query states",
    unit="query",
    metrics=METRICS,
    run=run,
    options=AttributeOptions,
    spare=spare,
)
