"""Agreement of one query and one product, written plainly: what `calipers.shop.agree_all` is held against."""

from __future__ import annotations

import math
from collections.abc import Sequence

from calipers.shop import Agreement, Attributes, Extractor, Quantity


def agree_plainly(extractor: Extractor, query: Attributes, product: Attributes) -> dict[str, Agreement]:
    return {
        "colour": _colour(extractor, query, product),
        "brand": _brand(query, product),
        "dimension": _dimension(extractor, query, product),
    }


def _colour(extractor: Extractor, query: Attributes, product: Attributes) -> Agreement:
    if not query.colours and not query.not_colours:
        return Agreement.UNASKED
    several = extractor.colours.any_colour
    if query.not_colours & product.colours:
        return Agreement.CONTRADICT
    if not product.colours or (several in product.colours and several not in query.colours):
        return Agreement.SILENT
    if not query.colours or (several in query.colours and len(product.colours) > 1):
        return Agreement.MATCH
    match = any(extractor.colours.agree(asked, has) for asked in query.colours for has in product.colours)
    return Agreement.MATCH if match else Agreement.CONTRADICT


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


def _dimension(extractor: Extractor, query: Attributes, product: Attributes) -> Agreement:
    wanted = [(q, product.quantities) for q in query.quantities]
    wanted += [(q, product.fits_quantities) for q in query.fits_quantities]
    states = [_quantity(extractor, q, stated) for q, stated in wanted]
    states += [_excluded_quantity(extractor, q, product.quantities) for q in query.not_quantities]
    if not states:
        return Agreement.UNASKED
    if Agreement.CONTRADICT in states:
        return Agreement.CONTRADICT
    return Agreement.SILENT if Agreement.SILENT in states else Agreement.MATCH


def _quantity(extractor: Extractor, wanted: Quantity, stated: Sequence[Quantity]) -> Agreement:
    same = [q for q in stated if q.kind == wanted.kind]
    if not same:
        return Agreement.SILENT
    tolerance = extractor.units.tolerance[wanted.kind]
    match = any(overlap(wanted, q, tolerance, binary=binary) for q in same for binary in (False, True))
    return Agreement.MATCH if match else Agreement.CONTRADICT


def _excluded_quantity(extractor: Extractor, excluded: Quantity, stated: Sequence[Quantity]) -> Agreement:
    state = _quantity(extractor, excluded, stated)
    opposite = {Agreement.MATCH: Agreement.CONTRADICT, Agreement.CONTRADICT: Agreement.MATCH}
    return opposite.get(state, state)


def overlap(one: Quantity, other: Quantity, tolerance: float, *, binary: bool) -> bool:
    """
    >>> overlap(Quantity("length", 0.396, 0.396), Quantity("length", 0.39624, 0.39624), 0.01, binary=False)
    True
    """
    a, b = (one.binary, other.binary) if binary else (1.0, 1.0)
    gap = max(other.low * b - one.high * a, one.low * a - other.high * b)
    ends = [abs(x) for x in (one.low * a, one.high * a, other.low * b, other.high * b) if math.isfinite(x)]
    return gap <= tolerance * max(ends, default=0.0) + 1e-12
