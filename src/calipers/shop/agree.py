"""Whether a product matches, contradicts, or is silent on the attributes that a query states.

- colour: one of the product that agrees with one of the query is enough; "multicolour" alone is silent.
- brand: by id. A brand that only the title names, where the brand column names another one, is silent.
- dimension: one quantity of the kind that agrees is enough, as a product has many lengths. A kind that the product does
  not state is silent. What a product fits is compared with what it should fit.
- excluded values: a product that has one contradicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from calipers.shop.colours import Colours
from calipers.shop.extract import Attributes, Extractor
from calipers.shop.units import Quantity, Units

PARTS = ("colour", "brand", "dimension")


class Agreement(IntEnum):
    UNASKED = 0
    SILENT = 1
    MATCH = 2
    CONTRADICT = 3


UNASKED, SILENT, MATCH, CONTRADICT = Agreement
_OPPOSITE = {SILENT: SILENT, MATCH: CONTRADICT, CONTRADICT: MATCH}


def agree(extractor: Extractor, query: Attributes, product: Attributes) -> dict[str, Agreement]:
    """How a product agrees with each part of a query."""
    return {
        "colour": _colour(extractor.colours, query, product),
        "brand": _brand(query, product),
        "dimension": _dimension(extractor.units, query, product),
    }


def agree_all(
    extractor: Extractor,
    queries: Sequence[Attributes],
    products: Sequence[Attributes],
    query: NDArray[np.int64],
    product: NDArray[np.int64],
) -> dict[str, NDArray[np.int8]]:
    """`agree` for the pairs (queries[query[i]], products[product[i]]), int8[n] per part.

    A loop: a pair takes a small part of the time in which its texts are read.
    """
    pairs = zip(query.tolist(), product.tolist(), strict=True)
    states = [tuple(agree(extractor, queries[q], products[p]).values()) for q, p in pairs]
    columns = np.array(states, dtype=np.int8).reshape(-1, len(PARTS)).T
    return dict(zip(PARTS, columns, strict=True))


def _colour(colours: Colours, query: Attributes, product: Attributes) -> Agreement:
    if not query.colours and not query.not_colours:
        return UNASKED
    several = colours.any_colour
    if query.not_colours & product.colours:
        return CONTRADICT
    if not product.colours or (several in product.colours and several not in query.colours):
        return SILENT
    if not query.colours or (several in query.colours and len(product.colours) > 1):
        return MATCH
    match = any(colours.agree(wanted, stated) for wanted in query.colours for stated in product.colours)
    return MATCH if match else CONTRADICT


def _brand(query: Attributes, product: Attributes) -> Agreement:
    if not query.brands and not query.not_brands:
        return UNASKED
    if query.not_brands & product.brands:
        return CONTRADICT
    if not product.brands:
        return SILENT
    if not query.brands or query.brands & product.brands:
        return MATCH
    return SILENT if query.brands & product.hinted_brands else CONTRADICT


def _dimension(units: Units, query: Attributes, product: Attributes) -> Agreement:
    states = [_quantity(units, wanted, product.quantities) for wanted in query.quantities]
    states += [_quantity(units, wanted, product.fits_quantities) for wanted in query.fits_quantities]
    states += [_OPPOSITE[_quantity(units, excluded, product.quantities)] for excluded in query.not_quantities]
    if not states:
        return UNASKED
    if CONTRADICT in states:
        return CONTRADICT
    return SILENT if SILENT in states else MATCH


def _quantity(units: Units, wanted: Quantity, stated: Sequence[Quantity]) -> Agreement:
    same = [quantity for quantity in stated if quantity.kind == wanted.kind]
    if not same:
        return SILENT
    match = any(wanted.agrees(quantity, units.tolerance[wanted.kind]) for quantity in same)
    return MATCH if match else CONTRADICT
