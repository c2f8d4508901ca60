"""Agreement of queries and products computed by arrays: what `calipers.shop.agree_all` is held against."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.shop import Agreement, Attributes, Extractor
from calipers.shop.colours import Colours
from calipers.shop.units import Units

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def agree_by_arrays(
    extractor: Extractor, queries: Sequence[Attributes], products: Sequence[Attributes], query: Ints, product: Ints
) -> dict[str, NDArray[np.int8]]:
    """What `agree_all` gives, by arrays: pairs × values of a query × values of a product."""
    ids: dict[str, int] = {}
    pairs = _Pairs(_table(queries, ids), _table(products, ids), query, product, ids)
    return {
        "colour": _colours(extractor.colours, pairs),
        "brand": _brands(pairs),
        "dimension": _dimensions(extractor.units, pairs),
    }


# --- attributes as arrays --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Ragged:
    """The values of row i are values[offsets[i] : offsets[i + 1]]."""

    offsets: Ints  # [n + 1]
    values: NDArray[Any]  # int64[m] numbers of ids, or float64[m, 4]: kind, low, high, binary

    @property
    def counts(self) -> Ints:
        return np.diff(self.offsets)

    def has(self, value: int) -> Bools:
        """Which rows have this value, bool[n]."""
        mask = np.zeros(len(self.counts), dtype=bool)
        mask[np.repeat(np.arange(len(mask)), self.counts)[self.values == value]] = True
        return mask


def _table(rows: Sequence[Attributes], ids: dict[str, int]) -> dict[str, _Ragged]:
    """Every attribute as an array. `ids` numbers colours, brands and kinds, and grows."""
    table: dict[str, _Ragged] = {}
    for name in ("colours", "not_colours", "brands", "not_brands", "hinted_brands"):
        parts = [sorted(getattr(row, name)) for row in rows]
        numbers = [ids.setdefault(value, len(ids)) for part in parts for value in part]
        table[name] = _Ragged(_offsets(parts), np.array(numbers, dtype=np.int64))
    for name in ("quantities", "not_quantities", "fits_quantities"):
        parts = [getattr(row, name) for row in rows]
        values = [(ids.setdefault(q.kind, len(ids)), q.low, q.high, q.binary) for part in parts for q in part]
        table[name] = _Ragged(_offsets(parts), np.array(values, dtype=np.float64).reshape(-1, 4))
    return table


def _offsets(parts: Sequence[Sequence[Any]]) -> Ints:
    return np.concatenate([[0], np.cumsum([len(part) for part in parts], dtype=np.int64)]).astype(np.int64)


@dataclass(frozen=True)
class _Pairs:
    """Attributes of queries and of products, and which of them are compared: query[i] with product[i]."""

    wanted: Mapping[str, _Ragged]
    stated: Mapping[str, _Ragged]
    query: Ints
    product: Ints
    ids: Mapping[str, int]

    def wants(self, name: str) -> Bools:
        return np.asarray(self.wanted[name].counts[self.query] > 0)

    def cross(self, wanted: str, stated: str) -> tuple[Ints, Ints, Ints]:
        """Every (pair, place of a value of its query, place of a value of its product), int64[m] each."""
        one, other = self.wanted[wanted], self.stated[stated]
        width = other.counts[self.product]
        sizes = one.counts[self.query] * width
        pair = np.repeat(np.arange(len(self.query)), sizes)
        place = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        first, second = one.offsets[self.query[pair]], other.offsets[self.product[pair]]
        return pair, first + place // width[pair], second + place % width[pair]

    def any(self, wanted: str, stated: str, test: Callable[[Ints, Ints], Bools] = np.equal) -> Bools:
        """Which pairs have a value of the query and a value of the product that pass the test, bool[n]."""
        pair, one, other = self.cross(wanted, stated)
        mask = np.zeros(len(self.query), dtype=bool)
        mask[pair[test(self.wanted[wanted].values[one], self.stated[stated].values[other])]] = True
        return mask


# --- the parts -------------------------------------------------------------------------------------------------


def _state(wanted: Bools, contradict: Bools, silent: Bools) -> NDArray[np.int8]:
    """The first that holds: unasked, contradiction, silence, else a match."""
    states = (Agreement.UNASKED, Agreement.CONTRADICT, Agreement.SILENT)
    return np.select([~wanted, contradict, silent], states, Agreement.MATCH).astype(np.int8)


def _colours(colours: Colours, pairs: _Pairs) -> NDArray[np.int8]:
    table = np.zeros((len(pairs.ids) + 1, len(pairs.ids) + 1), dtype=bool)
    numbers = {id: pairs.ids[id] for id in colours.families if id in pairs.ids}
    for one, i in numbers.items():
        table[i, [j for other, j in numbers.items() if colours.agree(one, other)]] = True
    several = pairs.ids.get(colours.any_colour, -1)
    stated = pairs.stated["colours"]
    counts = stated.counts[pairs.product]
    wants, wants_several = pairs.wants("colours"), pairs.wanted["colours"].has(several)[pairs.query]
    agrees = pairs.any("colours", "colours", lambda a, b: table[a, b]) | ~wants | (wants_several & (counts > 1))
    silent = (counts == 0) | (stated.has(several)[pairs.product] & ~wants_several)
    excluded = pairs.any("not_colours", "colours")
    return _state(wants | pairs.wants("not_colours"), excluded | (~agrees & ~silent), silent)


def _brands(pairs: _Pairs) -> NDArray[np.int8]:
    wants = pairs.wants("brands")
    agrees = ~wants | pairs.any("brands", "brands")
    unstated = pairs.stated["brands"].counts[pairs.product] == 0
    silent = unstated | (~agrees & pairs.any("brands", "hinted_brands"))
    excluded = pairs.any("not_brands", "brands")
    return _state(wants | pairs.wants("not_brands"), excluded | (~agrees & ~silent), silent)


def _dimensions(units: Units, pairs: _Pairs) -> NDArray[np.int8]:
    tolerance = np.zeros(len(pairs.ids) + 1)
    for kind, share in units.tolerance.items():
        if kind in pairs.ids:
            tolerance[pairs.ids[kind]] = share
    contradict, silent, wants = np.zeros((3, len(pairs.query)), dtype=bool)
    for wanted, stated in (
        ("quantities", "quantities"),
        ("fits_quantities", "fits_quantities"),
        ("not_quantities", "quantities"),
    ):
        pair, agrees, is_stated = _each_quantity(pairs, wanted, stated, tolerance)
        wants[pair] = True
        contradict[pair[is_stated & (agrees == (wanted == "not_quantities"))]] = True
        silent[pair[~is_stated]] = True
    return _state(wants, contradict, silent)


def _each_quantity(
    pairs: _Pairs, wanted: str, stated: str, tolerance: NDArray[np.float64]
) -> tuple[Ints, Bools, Bools]:
    """For each quantity that each pair's query states: the pair, whether one of the product's agrees, and whether the
    product states the kind."""
    counts = pairs.wanted[wanted].counts[pairs.query]
    owner = np.repeat(np.arange(len(pairs.query)), counts)
    pair, one, other = pairs.cross(wanted, stated)
    slot = (np.cumsum(counts) - counts)[pair] + one - pairs.wanted[wanted].offsets[pairs.query[pair]]
    a, b = pairs.wanted[wanted].values[one], pairs.stated[stated].values[other]
    same = a[:, 0] == b[:, 0]
    agrees, is_stated = np.zeros((2, len(owner)), dtype=bool)
    agrees[slot[same & _overlaps(a, b, tolerance[b[:, 0].astype(np.int64)])]] = True
    is_stated[slot[same]] = True
    return owner, agrees, is_stated


def _overlaps(a: NDArray[np.float64], b: NDArray[np.float64], tolerance: NDArray[np.float64]) -> Bools:
    """Whether ranges overlap, give or take a share of the larger number, in decimal or in binary units; bool[m]."""
    overlaps = np.zeros(len(a), dtype=bool)
    for i, j in ((np.ones(len(a)), np.ones(len(b))), (a[:, 3], b[:, 3])):
        ends = np.stack([a[:, 1] * i, a[:, 2] * i, b[:, 1] * j, b[:, 2] * j])
        gap = np.maximum(ends[2] - ends[1], ends[0] - ends[3])
        largest = np.where(np.isfinite(ends), np.abs(ends), 0.0).max(axis=0)
        overlaps |= gap <= tolerance * largest + 1e-12
    return overlaps
