"""Stored runs as the files that the hub reads from `.eval_results/` of a model's repository: one for each precision.

An entry names a dataset of the hub, one of its tasks and one value: the primary metric of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from calipers.core import RequestError, Result
from calipers.rendering import mteb_json
from calipers.rendering.numbers import count, interval_name, number
from calipers.rendering.variants import base_name, precision, variant

FOLDER = ".eval_results"


def eval_results(results: Sequence[Result], *, mteb_task: str | None = None) -> dict[str, str]:
    """File name → its content. The runs are of one model, in one or several precisions."""
    names = {mteb_json.short_name(base_name(result.model.model_id)) for result in results}
    if len(names) > 1:
        listed = ", ".join(sorted(names))
        raise RequestError(f"a repository is of one model, and these runs are of {listed}: report one at a time")
    files: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        entries = files.setdefault(f"{FOLDER}/calipers_{_label(result)}.yaml", [])
        entry = _entry(result, mteb_task)
        if any(other["dataset"] == entry["dataset"] for other in entries):
            raise RequestError(
                f"two runs of {_label(result)} measure {entry['dataset']['id']}, {entry['dataset']['task_id']}: give "
                "one of them"
            )
        entries.append(entry)
    return {name: yaml.safe_dump(rows, sort_keys=False, allow_unicode=True) for name, rows in files.items()}


def _label(result: Result) -> str:
    """Of a file: the precision, with the number of dimensions where they are cut."""
    size = variant(result.model).get("truncate_dim")
    return precision(result.model) + (f"_{size}d" if size else "")


def _entry(result: Result, mteb_task: str | None) -> dict[str, Any]:
    name, value = next(iter(result.metrics.items()))
    return {
        "dataset": _dataset(result, mteb_task),
        "value": round(float(value), 6),
        "date": result.created,
        "notes": _notes(result, name),
    }


def _dataset(result: Result, mteb_task: str | None) -> dict[str, str]:
    task = mteb_json.find_task(result, mteb_task) if mteb_task else mteb_json.official_task(result)
    source = result.dataset
    place = task.path if task else source.path.removeprefix("hub:")
    if not mteb_json.is_hub_name(place):
        raise RequestError(
            f"the run {result.run_id} is on {mteb_json.short_name(place)}, and {FOLDER} names datasets of the hub: if "
            "the data belong to a task of MTEB, name it with `mteb_task`"
        )
    revision = {"revision": source.revision} if source.revision else {}
    return {"id": place, "task_id": source.name or "default", **revision}


def _notes(result: Result, metric: str) -> str:
    """How the value came about, in one line."""
    kind = variant(result.model)
    ends = result.intervals.get(metric)
    named = interval_name(result.bootstrap.get("confidence"))
    interval = f"{named} {number(ends[0], 4)} to {number(ends[1], 4)}" if ends else ""
    scored = count(str(result.bootstrap.get("unit") or "example"), len(result.outcomes))
    chosen = f"{scored}, chosen from more" if result.dataset.requested is not None else scored
    parts = [
        metric,
        interval,
        chosen,
        result.dataset.split and f"split {result.dataset.split}",
        precision(result.model),
        "ONNX" if result.model.backend == "onnx" else "",
        f"first {kind['truncate_dim']} dimensions" if "truncate_dim" in kind else "",
        f"Calipers {result.environment.get('versions', {}).get('calipers', '')}".strip(),
    ]
    return ", ".join(part for part in parts if part)
