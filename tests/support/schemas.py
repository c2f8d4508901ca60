"""Documents of real runs, held against the JSON Schema that `calipers schema` prints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from calipers.rendering.schema import DOCUMENTS, document_schema


@cache
def validator(name: str) -> Any:
    schema = document_schema(name)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def faults(document: Any, name: str) -> list[str]:
    """What the schema does not allow: where, and why."""
    errors = validator(name).iter_errors(document)
    return [f"{'/'.join(map(str, error.absolute_path))}: {error.message[:300]}" for error in errors]


def hold(words: Sequence[str], code: int, out: str) -> None:
    """What a command printed with --json, where it is a document of its name; `trust --watch` prints another."""
    if "--watch" in words:
        return
    if words[:1] and words[0] in DOCUMENTS and "--json" in words and code in (0, 1, 5) and out.startswith("{"):
        problems = faults(json.loads(out), words[0])
        assert problems == [], problems
