"""The JSON Schema of the documents that commands print with `--json`, from the short form in schemas.yaml."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TypeAlias

from calipers.core import RequestError

DOCUMENTS = ("eval", "compare", "diagnose", "attribute", "trust", "parity")
# A value of schemas.yaml, and a JSON Schema.
Short: TypeAlias = "str | list[Short] | dict[str, Short]"
Schema: TypeAlias = "dict[str, object]"

_NAMES = {"text": "string", "number": "number", "integer": "integer", "boolean": "boolean"}
_NUMBER: Schema = {"type": ["number", "null"]}  # an end that is not finite is null
_INTERVAL: Schema = {"type": "array", "items": _NUMBER, "minItems": 2, "maxItems": 2}


def document_schema(name: str) -> Schema:
    """What the document of this command holds: every key that it has, and no other.

    >>> document_schema("trust")["properties"]["k"]
    {'type': 'integer'}
    """
    if name not in DOCUMENTS:
        raise RequestError(f"there is no JSON document of {name!r}: expected one of {', '.join(DOCUMENTS)}")
    content = _content()
    types = {kind: _expand(short) for kind, short in content["types"].items()}
    made = _expand(content["documents"][name])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"The document of calipers {name} --json",
        **made,
        "$defs": {kind: types[kind] for kind in sorted(_used(made, types))},
    }


@cache
def _content() -> dict[str, dict[str, Short]]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = resources.files("calipers.rendering").joinpath("schemas.yaml").read_text(encoding="utf-8")
    content: dict[str, dict[str, Short]] = yaml.load(text, Loader=loader)
    return content


def _expand(short: Short) -> Schema:
    """
    >>> _expand("number?"), _expand(["$label"])["items"], _expand("a | b")
    ({'type': ['number', 'null']}, {'$ref': '#/$defs/label'}, {'enum': ['a', 'b']})
    """
    if isinstance(short, list):
        return {"type": "array", "items": _expand(short[0])}
    if isinstance(short, dict):
        return _object(short)
    word, is_nullable = short.removesuffix("?"), short.endswith("?")
    if word == "anything":
        return {}
    if word in _NAMES:
        return {"type": [_NAMES[word], "null"] if is_nullable else _NAMES[word]}
    made = _named(word)
    return {"anyOf": [made, {"type": "null"}]} if is_nullable else made


def _named(word: str) -> Schema:
    if word == "interval":
        return _INTERVAL
    if word.startswith("$"):
        return {"$ref": f"#/$defs/{word[1:]}"}
    words = word.split(" | ")
    return {"enum": words} if len(words) > 1 else {"const": word}


def _object(short: dict[str, Short]) -> Schema:
    keys = [key for key in short if key != "*"]
    return {
        "type": "object",
        "properties": {key.removesuffix("?"): _expand(short[key]) for key in keys},
        "required": [key for key in keys if not key.endswith("?")],
        "additionalProperties": _expand(short["*"]) if "*" in short else False,
    }


def _used(schema: object, types: dict[str, Schema]) -> set[str]:
    """Names of the types that a schema refers to, and those that they refer to."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            name = str(schema["$ref"]).removeprefix("#/$defs/")
            return {name} | _used(types[name], types)
        return set().union(*(_used(part, types) for part in schema.values()))
    return set().union(*(_used(part, types) for part in schema)) if isinstance(schema, list) else set()
