"""Attribute integrity: do the results of a search have the colour, the brand and the size that the query asked for?

A result fails where it contradicts the query (`attributes.agree`); one that says nothing of what was asked does not
fail, and is counted as unknown. Three rates per part (`colour_`, `brand_`, `dimension_`) and, without a prefix, over
all parts together, where a result fails that contradicts any of them:

- `global_failure_rate`: failures over all results of all queries; unknown where no query states the attribute.
- `explicit_failure_rate`: failures over the results of the queries that state the attribute.
- `unknown_rate`: results of those queries whose product does not say. What fails among the known is
  explicit_failure_rate / (1 − unknown_rate).

All are ratios of sums over queries, so a bootstrap over queries gives their intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.attributes import Agreement, Attributes, Extractor, agree_all
from calipers.attributes.agree import PARTS
from calipers.core import Columns, Metric, Outcomes, RequestError, Statistic
from calipers.core.figures import Figure, Named, figure_tables
from calipers.metrics import bootstrap
from calipers.metrics.means import ratio_statistic

Ints = NDArray[np.int64]
Product = str | Mapping[str, Any]

_RESAMPLES = 2000
_NAMED = 30  # offending pairs that are named per part


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
    if k < 1:
        raise RequestError(f"the number of results to look at must be at least 1, found {k}")
    query, rank, rows, product = _pairs(results, k)
    asked = [extractor.read(text) for text in queries.values()]
    given = [extractor.read_product(products[row]) for row in rows]
    states = agree_all(extractor, asked, given, query, product)
    columns = count(states, query, _stated(extractor, asked))
    offending = _offending(states, query, rank, product, rows, asked, given)
    named = _named(offending, list(queries), products)
    figures = make_figures(columns, confidence=confidence, seed=seed)
    return Outcomes(
        ids=tuple(queries),
        columns=columns,
        texts={"query": tuple(queries.values())},
        details={"pairs": offending, **figure_tables(figures, named)},
        counts={"queries": len(asked), "results": len(query), **_stated_counts(columns)},
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


def _pairs(results: Sequence[Sequence[str]], k: int) -> tuple[Ints, Ints, list[str], Ints]:
    """Per result its query and its rank; the products among them, and per result which."""
    kept = [list(found[:k]) for found in results]
    sizes = np.array([len(found) for found in kept], dtype=np.int64)
    place: dict[str, int] = {}
    product = np.array([place.setdefault(id, len(place)) for found in kept for id in found], dtype=np.int64)
    query = np.repeat(np.arange(len(kept)), sizes)
    rank = np.arange(len(query)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + 1
    return query, rank, list(place), product


# --- metrics -----------------------------------------------------------------------------------------------------


def _rate(prefix: str, part: str, *, explicit: bool) -> Callable[[Columns], Statistic]:
    def statistic(columns: Columns) -> Statistic:
        stated = columns[f"{prefix}stated"]
        whole = columns["results"] * (stated if explicit else stated.any())  # nothing asked is unknown, not perfect
        return ratio_statistic(columns[f"{prefix}{part}"], whole)

    return statistic


def _metrics(prefix: str, what: str) -> tuple[Metric, ...]:
    def metric(name: str, about: str, part: str, explicit: bool) -> Metric:
        rate = _rate(prefix, part, explicit=explicit)
        return Metric(f"{prefix}{name}", about, rate, higher_is_better=False, digits=4, needs=(f"{prefix}{part}",))

    among = f"the {what} that their query states"
    return (
        metric(
            "explicit_failure_rate", f"share of results that contradict {among}, where it states one", "failures", True
        ),
        metric("global_failure_rate", f"share of all results that contradict {among}", "failures", False),
        metric("unknown_rate", f"share of results that say nothing of {among}, where it states one", "unknown", True),
    )


METRICS = tuple(
    metric
    for prefix, what in (("", "attributes"), *((f"{part}_", part) for part in PARTS))
    for metric in _metrics(prefix, what)
)


def make_figures(columns: Columns, *, confidence: float = 0.95, seed: int = 42) -> tuple[Figure, ...]:
    """Each metric with its interval. One that no query states is unknown, not 0."""
    statistics = [metric.statistic(columns) for metric in METRICS]
    queries = len(columns["results"])
    drawn = bootstrap.distribution(statistics, queries, resamples=_RESAMPLES, seed=seed) if queries else None
    return tuple(
        _figure(metric, columns, None if drawn is None else drawn[row], confidence)
        for row, metric in enumerate(METRICS)
    )


def _figure(metric: Metric, columns: Columns, drawn: NDArray[np.float64] | None, confidence: float) -> Figure:
    explicit = not metric.name.endswith("global_failure_rate")
    stated = columns[f"{_prefix(metric.name)}stated"]
    value = metric.value(columns) if drawn is not None else np.nan
    known = bool(np.isfinite(value))
    return Figure(
        name=metric.name,
        value=value if known else None,
        count=int(stated.sum()) if explicit else len(stated),
        unit="query",
        higher_is_better=False,
        meaning=metric.about,
        interval=bootstrap.percentile_interval(drawn, confidence=confidence) if known and drawn is not None else None,
        reason=None if known else "no query with results states it",
        digits=metric.digits,
    )


def _prefix(name: str) -> str:
    return next((f"{part}_" for part in PARTS if name.startswith(f"{part}_")), "")


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
        return np.array(values, dtype=object)

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


def _named(offending: Columns, ids: Sequence[str], products: Mapping[str, Product]) -> list[Named]:
    named, seen = [], dict.fromkeys(PARTS, 0)
    for row, part in enumerate(offending["part"]):
        seen[part] += 1
        if seen[part] > _NAMED:
            continue
        query, document = ids[offending["example"][row]], str(offending["document"][row])
        named.append(
            Named(
                figure=f"{part}_explicit_failure_rate",
                id=f"{query} / {document}",
                text=_title(products[document]),
                value=float(offending["rank"][row]),
                note=f"asked for {offending['asked'][row]}, found {offending['found'][row]}",
            )
        )
    return named


def _title(product: Product) -> str:
    return product if isinstance(product, str) else str(product.get("title") or product.get("text") or "")
