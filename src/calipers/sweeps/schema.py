"""The JSON Schema of a registry, made from the options that its keys are."""

from __future__ import annotations

from types import UnionType
from typing import Any, Union, get_args, get_origin

from calipers import tasks
from calipers.core.choices import PRECISIONS
from calipers.core.options import flag_names, options_of
from calipers.data import DataOptions
from calipers.models import ModelOptions
from calipers.sweeps.records import OWN
from calipers.sweeps.registry import option_types, task_records

_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_SCALARS: dict[Any, str] = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}


def registry_schema() -> dict[str, Any]:
    """What a registry may hold. `--check` reads more: cycles of baselines, repeated ids, what is not there."""
    model, task = _properties([ModelOptions]), {**_properties(task_records()), **_properties([DataOptions])}
    models = {
        "id": {**_TEXT, "description": "Default: the last part of the reference. {name} is that of a glob's match."},
        "reference": {**_TEXT, "description": "A folder, a file, a hub id, an address, or a glob of folders."},
        "group": _TEXT,
        "priority": {"type": ["string", "integer"], "description": "Lower comes first: 1 before 2, P0 before P1."},
        "baseline": {
            "type": ["string", "null"],
            "description": "Another model's id, float32 (its own reference; default with precisions), or none.",
        },
        "precisions": {"type": "array", "items": {"enum": [OWN, *PRECISIONS]}},
        "artifacts": {
            "anyOf": [{"type": "object", "additionalProperties": _TEXT}, _TEXTS],
            "description": "Precision: reference of an artifact made elsewhere.",
        },
        "tasks": {**_TEXTS, "description": "Globs over ids of tasks. Default: every task that applies."},
        "calibration": {**_TEXT, "description": "Texts for w8a8 and w8a16. Default: other rows of the task's data."},
        "matrix": _matrix(),
    }
    own = {
        "id": {**_TEXT, "description": "Default: the name of the task."},
        "task": {"enum": [name for t in tasks.TASKS for name in (t.name, *t.aliases)]},
        "dataset": {**_TEXT, "description": "A file, a folder or a hub id. Default: the task's own."},
        "columns": {"type": "object", "additionalProperties": _TEXT},
        "matrix": _matrix(),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A registry of calipers sweep",
        "type": "object",
        "required": ["models", "tasks"],
        "additionalProperties": False,
        "properties": {
            "models": {"type": "array", "items": _object({**models, **model}, ["reference"])},
            "tasks": {"type": "array", "items": _object({**own, **task}, ["task"])},
            "thresholds": {
                "type": "object",
                "additionalProperties": {"type": ["string", "array"]},
                "description": "METRIC: 5%,10% of the baseline, or 2.0,4.0 points.",
            },
            "defaults": {"type": "object", "description": "Keys of models and tasks, for all that do not set them."},
            "exclude": {
                "type": "array",
                "items": {"anyOf": [_TEXT, _object(dict.fromkeys(("model", "task", "precision"), _TEXT), [])]},
                "description": "MODEL/TASK/PRECISION, with globs.",
            },
        },
    }


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    spellings = {key.replace("_", "-"): value for key, value in properties.items() if "_" in key}
    made = {"type": "object", "additionalProperties": False, "properties": {**properties, **spellings}}
    return {**made, "required": required} if required else made


def _matrix() -> dict[str, Any]:
    return {"type": "object", "additionalProperties": {"type": "array"}, "description": "OPTION: [VALUE, VALUE, …]"}


def _properties(records: list[type]) -> dict[str, Any]:
    described = {key: options_of(record)[name] for record in records for name, key in flag_names(record).items()}
    made = {}
    for key, kind in option_types(records).items():
        made[key] = {**_type_of(kind), "description": described[key].help}
        if described[key].choices:
            made[key] = {"enum": [*described[key].choices, None], "description": described[key].help}
    return made


def _type_of(kind: Any) -> dict[str, Any]:
    if get_origin(kind) in (Union, UnionType):
        parts = [_type_of(part) for part in get_args(kind)]
        return {"anyOf": parts}
    if get_origin(kind) is tuple:
        return {"type": "array"}
    return {"type": _SCALARS.get(kind, "string")}
