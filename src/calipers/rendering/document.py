"""JSON that programs read, and the first outcomes of a result."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from calipers.core import Result


def examples(result: Result, most: int) -> list[dict[str, Any]]:
    """The first outcomes, one record each."""
    outcomes = result.outcomes
    return [
        {
            "id": outcomes.ids[i],
            **{name: texts[i] for name, texts in outcomes.texts.items()},
            **{name: float(values[i]) for name, values in outcomes.columns.items()},
        }
        for i in range(min(most, len(outcomes)))
    ]


# Controls that JSON does not escape by itself, and what turns the direction of text: a terminal would obey them. Halves
# of a pair of surrogates, which no encoding has.
_OBEYED = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def to_json(content: Any) -> str:
    """Strict JSON: NaN and infinities, which JSON does not have, become null. What a terminal would obey is escaped.

    >>> to_json({"name": "\\u202eé", "value": float("nan")}).split()
    ['{', '"name":', '"\\\\u202eé",', '"value":', 'null', '}']
    """
    return _escape(json.dumps(strict(content), indent=2, ensure_ascii=False, allow_nan=False))


def to_line(content: Any) -> str:
    """The same in one line, for logs and jsonl.

    >>> to_line({"name": "\\u009b", "value": 1.5})
    '{"name": "\\\\u009b", "value": 1.5}'
    """
    return _escape(json.dumps(strict(content), ensure_ascii=False, allow_nan=False))


def _escape(written: str) -> str:
    return _OBEYED.sub(lambda match: json.dumps(match[0])[1:-1], written)


def strict(value: Any) -> Any:
    """The value as JSON allows it: numbers that are not finite become None, keys become texts."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): strict(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [strict(inner) for inner in value]
    return value
