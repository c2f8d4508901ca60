"""Does a product match, contradict, or say nothing of what a query asked? For one pair, and for many.

What counts, part by part:

- colour: a product matches when one of its colours agrees with one that was asked for (same bucket or a family in
  common), contradicts when it names colours and none agrees; a product that is only "multicolour" is silent.
- brand: by id. A brand that only the title names, beside another one in the brand column, is silent.
- dimension: each quantity asked for is compared with those of its kind; one that agrees is enough, as a product has
  many lengths. A kind that the product does not state is silent. What a product fits is compared
  with what it should fit.
- excluded values: a product that has one contradicts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.shop.colours import Colours
from calipers.shop.extract import Attributes, Extractor
from calipers.shop.units import Quantity, Units

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

PARTS = ("colour", "brand", "dimension")


class Agreement(IntEnum):
    UNASKED = 0
    SILENT = 1
    MATCH = 2
    CONTRADICT = 3


def agree(extractor: Extractor, query: Attributes, product: Attributes) -> dict[str, Agreement]:
    """What a product says to each part of a query."""
    return {
        "colour": _colour(extractor.colours, query, product),
        "brand": _brand(query, product),
        "dimension": _dimension(extractor.units, query, product),
    }


def _colour(colours: Colours, query: Attributes, product: Attributes) -> Agreement:
    if not query.colours and not query.not_colours:
        return Agreement.UNASKED
    several = colours.any_colour
    if query.not_colours & product.colours:
        return Agreement.CONTRADICT
    if not product.colours or (several in product.colours and several not in query.colours):
        return Agreement.SILENT
    if not query.colours or (several in query.colours and len(product.colours) > 1):
        return Agreement.MATCH
    found = any(colours.agree(asked, has) for asked in query.colours for has in product.colours)
    return Agreement.MATCH if found else Agreement.CONTRADICT


def _brand(query: Attributes, product: Attributes) -> Agreement:
    if not query.brands and not query.not_brands:
        return Agreement.UNASKED
    if query.not_brands & product.brands:
        return Agreement.CONTRADICT
    if not product.brands:
        return Agreement.SILENT
    if not query.brands or query.brands & product.brands:
        return Agreement.MATCH
    return Agreement.SILENT if query.brands & product.hinted_brands else Agreement.CONTRADICT


def _dimension(units: Units, query: Attributes, product: Attributes) -> Agreement:
    asked = [(q, product.quantities) for q in query.quantities]
    asked += [(q, product.fits_quantities) for q in query.fits_quantities]
    found = [_quantity(units, q, given) for q, given in asked]
    found += [_not_quantity(units, q, product.quantities) for q in query.not_quantities]
    if not found:
        return Agreement.UNASKED
    if Agreement.CONTRADICT in found:
        return Agreement.CONTRADICT
    return Agreement.SILENT if Agreement.SILENT in found else Agreement.MATCH


def _quantity(units: Units, asked: Quantity, given: Sequence[Quantity]) -> Agreement:
    same = [q for q in given if q.kind == asked.kind]
    if not same:
        return Agreement.SILENT
    found = any(asked.agrees(q, units.tolerance[q.kind]) for q in same)
    return Agreement.MATCH if found else Agreement.CONTRADICT


def _not_quantity(units: Units, refused: Quantity, given: Sequence[Quantity]) -> Agreement:
    found = _quantity(units, refused, given)
    opposite = {Agreement.MATCH: Agreement.CONTRADICT, Agreement.CONTRADICT: Agreement.MATCH}
    return opposite.get(found, found)


# --- many pairs ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """Attributes of many texts as ragged arrays: the values of row i are offsets[i]:offsets[i + 1] of each list."""

    lists: dict[str, tuple[Ints, Any]]  # name → offsets int64[n + 1], values
    rows: int

    def has(self, name: str) -> Bools:
        return np.diff(self.lists[name][0]) > 0

    def contains(self, name: str, value: int) -> Bools:
        offsets, values = self.lists[name]
        found = np.zeros(self.rows, dtype=bool)
        found[np.repeat(np.arange(self.rows), np.diff(offsets))[values == value]] = True
        return found


_QUANTITIES = ("quantities", "not_quantities", "fits_quantities")


def agree_all(
    extractor: Extractor, queries: Sequence[Attributes], products: Sequence[Attributes], query: Ints, product: Ints
) -> dict[str, NDArray[np.int8]]:
    """`agree` for pairs (query[i], product[i]) of rows, int8[n] per part.

    Memory: pairs × values of a query × values of a product.
    """
    ids: dict[str, int] = {}
    asked, given = _table(queries, ids), _table(products, ids)
    return {
        "colour": _colours(extractor.colours, ids, asked, given, query, product),
        "brand": _brands(asked, given, query, product),
        "dimension": _dimensions(extractor.units, ids, asked, given, query, product),
    }


def _table(rows: Sequence[Attributes], ids: dict[str, int]) -> Table:
    """`ids` numbers colours, brands and kinds, and grows."""
    lists: dict[str, tuple[Ints, Any]] = {}
    for name in ("colours", "not_colours", "brands", "not_brands", "hinted_brands"):
        parts = [sorted(getattr(row, name)) for row in rows]
        numbers = [ids.setdefault(value, len(ids)) for part in parts for value in part]
        lists[name] = (_offsets(parts), np.array(numbers, dtype=np.int64))
    for name in _QUANTITIES:
        parts = [getattr(row, name) for row in rows]
        values = [(ids.setdefault(q.kind, len(ids)), q.low, q.high, q.binary) for part in parts for q in part]
        lists[name] = (_offsets(parts), np.array(values, dtype=np.float64).reshape(-1, 4))
    return Table(lists, len(rows))


def _offsets(parts: Sequence[Sequence[Any]]) -> Ints:
    return np.concatenate([[0], np.cumsum([len(part) for part in parts], dtype=np.int64)]).astype(np.int64)


def _any_pair(
    asked: tuple[Ints, Any], given: tuple[Ints, Any], query: Ints, product: Ints, test: Callable[[Any, Any], Bools]
) -> Bools:
    """Whether any value asked for and any value given pass the test, bool[n]."""
    owner, one, other = _cross(asked[0], given[0], query, product)
    found = np.zeros(len(query), dtype=bool)
    found[owner[test(asked[1][one], given[1][other])]] = True
    return found


def _cross(asked: Ints, given: Ints, query: Ints, product: Ints) -> tuple[Ints, Ints, Ints]:
    """Every (pair, value of its query, value of its product), int64[m] each."""
    many, more = np.diff(asked)[query], np.diff(given)[product]
    sizes = many * more
    owner = np.repeat(np.arange(len(query)), sizes)
    place = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    width = more[owner]
    return owner, asked[:-1][query][owner] + place // width, given[:-1][product][owner] + place % width


def _same(one: Any, other: Any) -> Bools:
    return np.asarray(one == other, dtype=bool)


def _state(asked: Bools, contradict: Bools, silent: Bools) -> NDArray[np.int8]:
    """The first that holds: unasked, contradiction, silence, else a match."""
    found = np.select(
        [~asked, contradict, silent], [Agreement.UNASKED, Agreement.CONTRADICT, Agreement.SILENT], Agreement.MATCH
    )
    return found.astype(np.int8)


def _colours(
    colours: Colours, ids: dict[str, int], asked: Table, given: Table, query: Ints, product: Ints
) -> NDArray[np.int8]:
    table = np.zeros((len(ids) + 1, len(ids) + 1), dtype=bool)
    known = [(id, ids[id]) for id in colours.families if id in ids]
    for one, i in known:
        table[i, [j for other, j in known if colours.agree(one, other)]] = True
    several = ids.get(colours.any_colour, -1)
    agrees = _any_pair(asked.lists["colours"], given.lists["colours"], query, product, lambda a, b: table[a, b])
    refused = _any_pair(asked.lists["not_colours"], given.lists["colours"], query, product, _same)
    wants, wants_several = asked.has("colours")[query], asked.contains("colours", several)[query]
    agrees |= ~wants | (wants_several & (np.diff(given.lists["colours"][0])[product] > 1))
    silent = ~given.has("colours")[product] | (given.contains("colours", several)[product] & ~wants_several)
    return _state(wants | asked.has("not_colours")[query], refused | (~agrees & ~silent), silent)


def _brands(asked: Table, given: Table, query: Ints, product: Ints) -> NDArray[np.int8]:
    def shared(one: str, other: str) -> Bools:
        return _any_pair(asked.lists[one], given.lists[other], query, product, _same)

    wants, refused = asked.has("brands")[query], shared("not_brands", "brands")
    agrees = ~wants | shared("brands", "brands")
    silent = ~given.has("brands")[product] | (~agrees & shared("brands", "hinted_brands"))
    return _state(wants | asked.has("not_brands")[query], refused | (~agrees & ~silent), silent)


def _dimensions(
    units: Units, ids: dict[str, int], asked: Table, given: Table, query: Ints, product: Ints
) -> NDArray[np.int8]:
    tolerance = np.zeros(len(ids) + 1)
    for kind, share in units.tolerance.items():
        if kind in ids:
            tolerance[ids[kind]] = share
    sides = (("quantities", "quantities", False), ("fits_quantities", "fits_quantities", False))
    contradict = np.zeros(len(query), dtype=bool)
    silent, wants = contradict.copy(), contradict.copy()
    for one, other, refused in (*sides, ("not_quantities", "quantities", True)):
        found, stated, owner = _each(asked.lists[one], given.lists[other], query, product, tolerance)
        wants[owner] = True
        contradict[owner[stated & (found == refused)]] = True
        silent[owner[~stated]] = True
    return _state(wants, contradict, silent)


def _each(
    asked: tuple[Ints, Any], given: tuple[Ints, Any], query: Ints, product: Ints, tolerance: NDArray[np.float64]
) -> tuple[Bools, Bools, Ints]:
    """For each quantity that each pair's query asks for: does one of the product's agree, does it state the kind, and
    the pair."""
    many = np.diff(asked[0])[query]
    owner = np.repeat(np.arange(len(query)), many)
    first = np.cumsum(many) - many
    pair, one, other = _cross(asked[0], given[0], query, product)
    slot = first[pair] + one - asked[0][:-1][query][pair]
    a, b = asked[1][one], given[1][other]
    same = a[:, 0] == b[:, 0]
    close = same & _overlaps(a, b, tolerance[b[:, 0].astype(np.int64)])
    found, stated = np.zeros(len(owner), dtype=bool), np.zeros(len(owner), dtype=bool)
    found[slot[close]] = True
    stated[slot[same]] = True
    return found, stated, owner


def _overlaps(a: NDArray[np.float64], b: NDArray[np.float64], tolerance: NDArray[np.float64]) -> Bools:
    """Columns: kind, low, high, binary. The same rule as `Quantity.agrees`."""
    found = np.zeros(len(a), dtype=bool)
    for i, j in ((np.ones(len(a)), np.ones(len(b))), (a[:, 3], b[:, 3])):
        ends = np.stack([a[:, 1] * i, a[:, 2] * i, b[:, 1] * j, b[:, 2] * j])
        gap = np.maximum(ends[2] - ends[1], ends[0] - ends[3])
        largest = np.where(np.isfinite(ends), np.abs(ends), 0.0).max(axis=0)
        found |= gap <= tolerance * largest + 1e-12
    return found
