"""The products of the type that a query asks for, and what share of results must contradict the query among them.

A failure rate says little by itself: where the corpus has two bottles of a brand, eight of ten results must be of
another one. The *floor* is the share of the best ranking among products of the requested type, *random* the share of
results drawn from them. The type comes from a column of the products: the one that most documents judged relevant to
the query have, else the only one that the query names. Without such a column the documents that were judged for the
query stand for its type, as long as not only right ones are judged. Without either there is no floor.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from calipers.core.choices import GRADES
from calipers.metrics import geometry
from calipers.metrics.arrays import Floats, Ints
from calipers.runs.space import Space
from calipers.shop import Agreement, Attributes, Extractor, agree_all
from calipers.shop.products import Item, Products
from calipers.shop.text import fold, holds

PLAIN, ESCI = GRADES
_COMPLEMENT, _SUBSTITUTE = 1.0, 2.0  # grades of ESCI
_PRODUCTS = 20_000  # products of the requested types that are read: ten seconds
_PAIRS = 2_000_000  # queries with products of their type that are compared: a few seconds


@dataclass(frozen=True, eq=False)
class Pools:
    """Per query the ids of the products of its type, None where the type is not known, and its type by a column, "" for
    none. `share` of these products are looked at. `reason` says why no query has a pool, or is empty.
    `others` are results, (query, product), that judgements call another type."""

    ids: Sequence[Collection[str] | None]
    types: Sequence[str]
    share: float = 1.0
    reason: str = ""
    others: frozenset[tuple[int, str]] = frozenset()
    by_column: bool = False

    @property
    def knows_types(self) -> bool:
        """Whether it can be said of a result that it is of another type."""
        return self.by_column or bool(self.others)

    def is_other(self, query: int, id: str, kind: str) -> bool:
        wanted = self.types[query]
        return (query, id) in self.others or bool(wanted and kind and wanted != kind)


def no_pools(queries: int, reason: str) -> Pools:
    return Pools([None] * queries, [""] * queries, reason=reason)


@dataclass(frozen=True, eq=False)
class RequestedTypes:
    """The type of each query by a column, "" where it is not known, and the judged documents that stand for it where
    no column says, None where there are none."""

    types: Sequence[str]
    judged: Sequence[Collection[str] | None]
    reason: str = ""
    others: frozenset[tuple[int, str]] = frozenset()

    def pools(self, items: Mapping[str, Item], corpus: Collection[str], share: float) -> Pools:
        """With the products of the types, once these are read."""
        of_type: dict[str, list[str]] = {}
        for id, item in items.items():
            if item.type and id in corpus:
                of_type.setdefault(item.type, []).append(id)
        by_column = any(self.types)
        ids = [of_type.get(kind) for kind in self.types] if by_column else self.judged
        return Pools(ids, self.types, share, self.reason, self.others, by_column)


def requested_types(
    space: Space, products: Products, rows: Ints, stated: Sequence[bool], grades: str
) -> RequestedTypes:
    """What the queries `rows` ask for; those that state no attribute need no type where judgements stand for it."""
    assert space.queries is not None
    qrels = [space.qrels[int(row)] if len(space.qrels) else {} for row in rows]
    others = frozenset(
        (q, id) for q, judged in enumerate(qrels) for id, g in judged.items() if grades == ESCI and g == _COMPLEMENT
    )
    if products.types:
        texts = [space.queries.texts[int(row)] for row in rows]
        return RequestedTypes(_by_column(products, texts, qrels, grades), [None] * len(rows), others=others)
    nothing, least = [""] * len(rows), _least_relevant(grades)
    if not any(grade < least for judged in qrels for grade in judged.values()):
        reason = "no column names the type of a product (`CorpusInputs.columns`), and no product is judged as wrong"
        return RequestedTypes(nothing, [None] * len(rows), reason, others)
    present = set(space.corpus.ids)
    judged = [
        [id for id in judged if id in present and (q, id) not in others] if has else []
        for q, (judged, has) in enumerate(zip(qrels, stated, strict=True))
    ]
    return RequestedTypes(nothing, [ids or None for ids in judged], others=others)


def _least_relevant(grades: str) -> float:
    return _SUBSTITUTE if grades == ESCI else 1.0


def _by_column(
    products: Products, texts: Sequence[str], qrels: Sequence[Mapping[str, float]], grades: str
) -> list[str]:
    """The type of more than half of the products judged relevant, else the only one that the query names."""
    least = _least_relevant(grades)
    relevant = [[id for id, grade in judged.items() if grade >= least] for judged in qrels]
    type_of = products.types_of({id for ids in relevant for id in ids})
    names = {kind: _names(kind) for kind in products.types}
    types = []
    for text, ids in zip(texts, relevant, strict=True):
        counts = Counter(type_of[id] for id in ids if id in type_of).most_common(1)
        if counts and 2 * counts[0][1] > sum(id in type_of for id in ids):
            types.append(counts[0][0])
        else:
            folded = fold(text)
            named = [kind for kind, several in names.items() if any(holds(folded, name) for name in several)]
            types.append(named[0] if len(named) == 1 else "")
    return types


def _names(kind: str) -> set[str]:
    """How a query may name a type: the last name of its path, in singular or plural.

    >>> sorted(_names("home > water bottles"))
    ['water bottle', 'water bottles', 'water bottless']
    """
    name = re.split(r"[>/|]", kind)[-1].strip()
    return {name, f"{name}s", name.removesuffix("s")} if name.isascii() else {name}


def share_of(products: Products, types: Collection[str]) -> float:
    """Which share of the products of these types is read."""
    total = sum(products.types.get(kind, 0) for kind in types)
    return min(1.0, _PRODUCTS / total) if total else 1.0


@dataclass(frozen=True, eq=False)
class Possible:
    """Per part (and "" for any of them) and query the share of results that must contradict it, and that do at random,
    float64[q] each; NaN where the type is not known."""

    floor: Mapping[str, Floats]
    random: Mapping[str, Floats]


def what_is_possible(
    extractor: Extractor,
    requests: Sequence[Attributes],
    items: Mapping[str, Item],
    pools: Pools,
    *,
    k: int,
    seed: int,
) -> Possible:
    """Where there are too many pairs to look at, of a seeded sample of the queries."""
    sizes = np.array([0 if ids is None else len(ids) for ids in pools.ids], np.int64)
    order = geometry.sample(len(sizes), len(sizes), seed=seed)
    fits = order[np.cumsum(sizes[order]) <= _PAIRS]
    chosen = [int(q) for q in np.sort(fits) if sizes[q]]
    place: dict[str, int] = {}
    product = np.array([place.setdefault(id, len(place)) for q in chosen for id in pools.ids[q] or ()], np.int64)
    query = np.repeat(np.array(chosen, np.int64), sizes[chosen])
    states = agree_all(extractor, requests, [items[id].attributes for id in place], query, product)
    wrong = {part: state == Agreement.CONTRADICT for part, state in states.items()}
    wrong[""] = np.logical_or.reduce(list(wrong.values()))
    there = np.bincount(query, minlength=len(sizes)) / pools.share
    floor, random = {}, {}
    for part, fails in wrong.items():
        failing = np.bincount(query[fails], minlength=len(sizes)) / pools.share
        shown = np.minimum(k, there)
        with np.errstate(invalid="ignore", divide="ignore"):
            floor[part] = np.asarray(np.maximum(0.0, shown - (there - failing)) / shown)
            random[part] = np.asarray(failing / there)
    return Possible(floor, random)
