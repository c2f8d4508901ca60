"""A Result as the JSON document that programs read. Its keys are a contract; see docs/design.md."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from calipers.core import Result

SCHEMA = "calipers/eval/1"


def document(result: Result) -> dict[str, Any]:
    source = result.dataset
    return {
        "schema": SCHEMA,
        "run": result.run_id,
        "created": result.created,
        "model_id": result.model.model_id,
        "model_path": result.model.path,
        "task": result.task,
        "device": result.model.device,
        "dataset": {
            "path": source.path,
            "name": source.name,
            "split": source.split,
            "revision": source.revision,
            "samples": len(result.outcomes),
            "requested": source.requested,
            "shuffle": source.shuffle,
            "seed": source.seed,
            "streaming": source.streaming,
            "columns_mapping": source.columns_mapping,
            "rows_read": source.rows_read,
            "rows_blank": source.rows_blank,
            "fingerprint": result.fingerprint,
        },
        "scored": result.outcomes.counts,
        "options": result.options,
        "metrics": result.metrics,
        "intervals": result.intervals,
        "bootstrap": result.bootstrap,
        "model": {
            "backend": result.model.backend,
            "fingerprint": result.model.fingerprint,
            **result.model.settings,
        },
        "warnings": result.warnings,
        "timing": result.timing,
        "environment": result.environment,
        "request": result.request,
    }


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


def to_json(content: Any) -> str:
    """Strict JSON: NaN and infinities, which JSON does not have, become null."""
    return json.dumps(strict(content), indent=2, ensure_ascii=False, allow_nan=False)


def strict(value: Any) -> Any:
    """The value as JSON allows it: numbers that are not finite become None, keys become texts."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): strict(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [strict(inner) for inner in value]
    return value
