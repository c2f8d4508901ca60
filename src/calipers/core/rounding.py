"""How many digits a number needs, so that it does not read as the limit that it is not at."""

from __future__ import annotations

import math
from collections.abc import Iterable

_MOST = 12


def digits_apart(value: float, limits: Iterable[float], digits: int) -> int:
    """At least `digits` places behind the point: as many as it takes for the value to differ from every limit.

    >>> digits_apart(-4.96, [-5.0, -10.0], 1), digits_apart(-5.0, [-5.0], 1), digits_apart(-3.2, [-5.0], 1)
    (2, 1, 1)
    """
    others = [limit for limit in limits if math.isfinite(limit) and not math.isclose(limit, value, rel_tol=1e-12)]
    if not math.isfinite(value):
        return digits
    return next((n for n in range(digits, _MOST) if f"{value:.{n}f}" not in {f"{x:.{n}f}" for x in others}), _MOST)


def percentage(share: float) -> str:
    """A share that somebody chose, with the digits that they wrote.

    >>> percentage(0.95), percentage(0.995), percentage(0.125), percentage(0.07)
    ('95%', '99.5%', '12.5%', '7%')
    """
    return f"{100 * share:.10g}%"
