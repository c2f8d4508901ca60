"""JSON documents, read strictly."""

from __future__ import annotations

import json


def strict(text: str) -> dict[str, object]:
    """Parse JSON that may not hold NaN."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} in JSON")

    return json.loads(text, parse_constant=refuse)  # type: ignore[no-any-return]
