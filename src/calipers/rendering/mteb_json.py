"""A stored run as the result file that mteb writes and reads: one JSON document per task of MTEB.

The scores are on mteb's scale, 0 to 1, under mteb's names. Calipers' own facts (run, intervals, how many examples, the
fingerprint of the data) stand beside them under `calipers`, where mteb lets them be.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from calipers.core import RequestError, Result
from calipers.core.benchmarks import TASKS, MtebTaskFacts

_TYPES = {"sentence-similarity": "cosine_spearman", "retrieval": "ndcg_at_10", "reranking": "map_at_1000"}
_HUNDRED = {"sentence-similarity"}  # tasks whose metrics we give times 100


def find_task(result: Result, name: str | None = None) -> MtebTaskFacts:
    """The task of MTEB that a run measured: the one named, else the one whose data it read."""
    if result.task not in _TYPES:
        run = f"the run {result.run_id} is of the task {result.task}"
        raise RequestError(f"{run}, which MTEB does not have: expected one of {', '.join(_TYPES)}")
    task = _named(name, result.dataset.name or "default") if name else known_task(result)
    if task is None:
        path = result.dataset.path
        raise RequestError(f"which task of MTEB {path} belongs to is not known: name it with `mteb_task`")
    if task.main_score not in scores(result):
        judged = f"MTEB's task {task.name} is judged by {task.main_score}"
        raise RequestError(f"{judged}, which the run {result.run_id} of {result.task} does not have")
    return task


def known_task(result: Result) -> MtebTaskFacts | None:
    """By the hub id of the data, or for a BEIR folder by its name; None where neither tells."""
    path = result.dataset.path.removeprefix("hub:").rstrip("/\\")
    folder = re.split(r"[/\\]", path)[-1].lower()
    for task in TASKS:
        same = task.path.lower() == path.lower()
        beir = result.task == "retrieval" and task.path.removeprefix("mteb/") == folder
        if (same or beir) and task.main_score == _TYPES.get(result.task):
            return task
    return None


def document(result: Result, task: MtebTaskFacts) -> dict[str, Any]:
    """What mteb's TaskResult writes to disk. mteb was not used, so its version is null. Without a requested revision of
    the data the fingerprint of the rows stands in: nothing is claimed that nobody checked."""
    named = scores(result)
    row = {
        **named,
        "main_score": named[task.main_score],
        "hf_subset": result.dataset.name or "default",
        "languages": list(task.languages),
        "calipers": _facts(result),
    }
    return {
        "dataset_revision": result.dataset.revision or result.fingerprint,
        "task_name": task.name,
        "mteb_version": None,
        "scores": {split(result): [row]},
        "evaluation_time": float(result.timing.get("total_seconds", 0.0)),
        "kg_co2_emissions": None,
        "date": datetime.fromisoformat(result.created).timestamp(),
        "evaluation_phases": None,
    }


def merge(documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Several splits or subsets of one task as one document. The same one twice is an error: which would count?"""
    first, *others = documents
    merged = {**first, "scores": {part: list(rows) for part, rows in first["scores"].items()}}
    for other in others:
        if other["dataset_revision"] != first["dataset_revision"] and not _is_fingerprint(first, other):
            raise RequestError(f"the runs of {first['task_name']} are over different revisions of its data")
        for part, rows in other["scores"].items():
            have = merged["scores"].setdefault(part, [])
            if {row["hf_subset"] for row in have} & {row["hf_subset"] for row in rows}:
                raise RequestError(f"two runs measure {first['task_name']}, split {part}: give one of them")
            have.extend(rows)
        merged["evaluation_time"] += other["evaluation_time"]
        merged["date"] = max(merged["date"], other["date"])
    return merged


def scores(result: Result) -> dict[str, float]:
    """The run's metrics under mteb's names, 0 to 1, with six decimals as mteb writes them."""
    return {_metric(name, result.task): _scaled(value, result.task) for name, value in result.metrics.items()}


def split(result: Result) -> str:
    """The split that was read; of a single file the one that its name tells, else "test"."""
    name = re.split(r"[/\\]", result.dataset.path)[-1].split(".")[0]
    return result.dataset.split or (name if name in ("train", "dev", "validation") else "test")


def warnings(result: Result) -> list[str]:
    """What keeps the figures from standing beside those of others."""
    if result.dataset.requested is None:
        return []
    return [f"the run {result.run_id} scored {len(result.outcomes)} chosen rows: this is not a result on all of them"]


def _metric(name: str, task: str) -> str:
    """
    >>> _metric("ndcg@10", "retrieval"), _metric("hit@10", "retrieval"), _metric("map", "reranking")
    ('ndcg_at_10', 'hit_rate_at_10', 'map_at_1000')
    """
    if name == "map" and task == "reranking":
        return "map_at_1000"  # mteb's ranking of up to 1,000 candidates, which none of its tasks exceeds
    return re.sub(r"^hit@", "hit_rate@", name).replace("@", "_at_")


def _facts(result: Result) -> dict[str, Any]:
    return {
        "run": result.run_id,
        "examples": len(result.outcomes),
        "requested": result.dataset.requested,
        "fingerprint": result.fingerprint,
        "confidence": result.bootstrap.get("confidence"),
        "intervals": {
            _metric(name, result.task): [_scaled(end, result.task) for end in ends] if ends else None
            for name, ends in result.intervals.items()
        },
    }


def _scaled(value: float, task: str) -> float:
    return round(value / (100.0 if task in _HUNDRED else 1.0), 6)


def _is_fingerprint(*documents: dict[str, Any]) -> bool:
    """Fingerprints are of the rows, so those of two splits differ; a revision is of all of them."""
    return all(str(d["dataset_revision"]).startswith("sha256:") for d in documents)


def _named(name: str, subset: str) -> MtebTaskFacts:
    for task in TASKS:
        if task.name == name:
            return task
    try:
        from mteb import get_task
    except ImportError as error:
        names = ", ".join(task.name for task in TASKS)
        reason = f"{name!r} is not one of the MTEB tasks that are known without mteb ({names})"
        raise RequestError(f"{reason}: pip install 'calipers[mteb]'") from error
    try:
        metadata = get_task(name).metadata
    except KeyError as error:
        raise RequestError(f"mteb has no task {name!r}: {str(error).strip(chr(34))}") from error
    languages = metadata.hf_subsets_to_langscripts
    if subset not in languages:
        raise RequestError(f"MTEB's task {name} has no subset {subset!r}: expected one of {', '.join(languages)}")
    return MtebTaskFacts(name, str(metadata.dataset["path"]), str(metadata.main_score), tuple(languages[subset]))
