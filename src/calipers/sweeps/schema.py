"""The JSON Schema of a registry, made from the options that its keys are."""

from __future__ import annotations

from math import isfinite
from types import UnionType
from typing import Any, Union, get_args, get_origin

from calipers import tasks
from calipers.core.choices import PRECISIONS
from calipers.core.options import flag_names, options_of
from calipers.data import DataOptions
from calipers.models import ModelOptions
from calipers.sweeps.records import OWN
from calipers.sweeps.registry import CELL_KEYS, DEFAULT_KEYS, option_types, task_records

_TEXT = {"type": "string"}
_WORD = {"type": ["string", "number"]}  # a text for which YAML may read a number
_SCALARS: dict[Any, str] = {bool: "boolean", int: "integer", float: "number", type(None): "null"}


def registry_schema() -> dict[str, Any]:
    """What a registry may hold. `--check` reads more: cycles of baselines, repeated ids, what is not there."""
    model, task = _properties([ModelOptions]), {**_properties(task_records()), **_properties([DataOptions])}
    models = {
        "id": {**_WORD, "description": "Default: the last part of the reference. {name} is that of a glob's match."},
        "reference": {**_TEXT, "description": "A folder, a file, a hub id, an address, or a glob of folders."},
        "group": _WORD,
        "priority": {**_WORD, "description": "Lower comes first: 1 before 2, P0 before P1."},
        "baseline": {
            "type": ["string", "null"],
            "description": "Another model's id, float32 (its own reference; default with precisions), or none.",
        },
        "precisions": _several({"enum": [OWN, *PRECISIONS]}),
        "artifacts": {
            "anyOf": [{"type": "object", "additionalProperties": _TEXT}, _several(_TEXT)],
            "description": "Precision: reference of an artifact made elsewhere.",
        },
        "tasks": {**_several(_WORD), "description": "Globs over ids of tasks. Default: every task that applies."},
        "calibration": {**_TEXT, "description": "Texts for w8a8 and w8a16. Default: other rows of the task's data."},
    }
    own = {
        "id": {**_WORD, "description": "Default: the name of the task."},
        "task": {"enum": [name for t in tasks.TASKS for name in (t.name, *t.aliases)]},
        "dataset": {**_TEXT, "description": "A file, a folder or a hub id. Default: the task's own."},
        "columns": {"type": "object", "additionalProperties": _WORD},
    }
    shared = {key: value for key, value in {**models, **own}.items() if key in DEFAULT_KEYS}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A registry of calipers sweep",
        "type": "object",
        "required": ["models", "tasks"],
        "additionalProperties": False,
        "properties": {
            "models": {"type": "array", "items": _entry({**models, **model}, "reference")},
            "tasks": {"type": "array", "items": _entry({**own, **task}, "task")},
            "thresholds": {
                "type": "object",
                "additionalProperties": {"type": ["string", "array"]},
                "description": "METRIC: 5%,10% of the baseline, or 2.0,4.0 points.",
            },
            "defaults": {
                **_object({**shared, **model, **task}),
                "description": "Keys of models and tasks, for all that do not set them.",
            },
            "exclude": {
                "type": "array",
                "items": {"anyOf": [_TEXT, _object(dict.fromkeys(CELL_KEYS, _WORD))]},
                "description": "MODEL/TASK/PRECISION, with globs.",
            },
        },
    }


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    """With `_` or `-` in the keys, nothing but these, and `required` among them."""
    spellings = {key.replace("_", "-"): value for key, value in properties.items() if "_" in key}
    made = {"type": "object", "additionalProperties": False, "properties": {**properties, **spellings}}
    return {**made, "required": list(required)} if required else made


def _entry(properties: dict[str, Any], required: str) -> dict[str, Any]:
    """A model or a task: what it requires stands in it, or in its matrix."""
    axes = {key: {"type": "array", "items": value} for key, value in properties.items()}
    matrix = {**_object(axes), "description": "OPTION: [VALUE, VALUE, …]"}
    made = _object({**properties, "matrix": matrix})
    inside = {"required": ["matrix"], "properties": {"matrix": {"required": [required]}}}
    return {**made, "anyOf": [{"required": [required]}, inside]}


def _several(item: dict[str, Any]) -> dict[str, Any]:
    """A list, or one alone."""
    return {"anyOf": [{"type": "array", "items": item}, item]}


def _properties(records: list[type]) -> dict[str, Any]:
    described = {key: options_of(record)[name] for record in records for name, key in flag_names(record).items()}
    made = {}
    for key, kind in option_types(records).items():
        facts = described[key]
        choices = {"enum": [*facts.choices, None]} if facts.choices else _type_of(kind)
        limits = {"minimum": facts.at_least, "maximum": facts.at_most}
        limits |= {"exclusiveMinimum": facts.above, "exclusiveMaximum": facts.below}
        set_limits = {name: limit for name, limit in limits.items() if limit is not None and isfinite(limit)}
        made[key] = {**choices, **set_limits, "description": facts.help}
    return made


def _type_of(kind: Any) -> dict[str, Any]:
    if get_origin(kind) in (Union, UnionType):
        parts = [_type_of(part) for part in get_args(kind)]
        return {"anyOf": parts}
    if get_origin(kind) is tuple:
        return _several(_type_of(get_args(kind)[0]))
    return _WORD if kind is str else {"type": _SCALARS.get(kind, "string")}
