"""Stored runs as the `model-index` of a model card: the YAML at the top of a README on the hub."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from calipers.core import RequestError, Result, printable
from calipers.rendering import mteb_json

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

# The hub's names of tasks, where it has one.
_TASKS = {
    "sentence-similarity": ("sentence-similarity", "Sentence similarity"),
    "fill-mask": ("fill-mask", "Fill-mask"),
    "reranking": ("text-ranking", "Reranking"),
    "retrieval": ("information-retrieval", "Retrieval"),
    "pair-classification": ("text-classification", "Pair classification"),
    "pair-correlation": ("sentence-similarity", "Pair correlation"),
}


def model_index(results: Sequence[Result], *, mteb_task: str | None = None) -> str:
    """The front matter of a card, from `---` to `---`: runs of one model, at least one. Each metric has its interval in
    `args`. Of a path on this machine only the last part is shown."""
    from huggingface_hub import ModelCardData

    names = list(dict.fromkeys(result.model.model_id for result in results))
    if len(names) > 1:
        raise RequestError(f"a model card is about one model, and these runs are of {len(names)}: {', '.join(names)}")
    measured = [one for result in results for one in _eval_results(result, mteb_task)]
    _refuse_repeats(results)
    card = ModelCardData(model_name=printable(_last(names[0])), eval_results=measured)
    return f"---\n{card.to_yaml()}\n---\n"


def _eval_results(result: Result, mteb_task: str | None) -> list[EvalResult]:
    from huggingface_hub import EvalResult

    kind, task_name = _TASKS.get(result.task, (result.task, result.task))
    return [
        EvalResult(
            task_type=kind,
            task_name=task_name,
            metric_type=name,
            metric_name=name,
            metric_value=round(float(value), 6),
            metric_args=_interval(result, name),
            **_dataset(result, mteb_task),
        )
        for name, value in result.metrics.items()
    ]


def _dataset(result: Result, mteb_task: str | None) -> dict[str, Any]:
    """Under MTEB's name where the task is one of MTEB's, so that cards about the same data can be recognised."""
    source = result.dataset
    task = mteb_json.find_task(result, mteb_task) if mteb_task else mteb_json.known_task(result)
    place = printable(_last(source.path.removeprefix("hub:")))
    return {
        "dataset_type": task.path if task else place,
        "dataset_name": f"MTEB {task.name}" if task else place,
        "dataset_config": source.name or "default",
        "dataset_split": mteb_json.split(result),
        "dataset_revision": source.revision,
        "dataset_args": {"examples": len(result.outcomes), "fingerprint": result.fingerprint},
    }


def _interval(result: Result, name: str) -> dict[str, Any] | None:
    ends = result.intervals.get(name)
    confidence = result.bootstrap.get("confidence")
    return {"interval": [round(float(end), 6) for end in ends], "confidence": confidence} if ends else None


def _refuse_repeats(results: Sequence[Result]) -> None:
    """A card has one place for a task, dataset and split: figures of two runs would stand there under one name."""
    seen: dict[tuple[Any, ...], str] = {}
    for result in results:
        key = (result.task, result.dataset.path, result.dataset.name, mteb_json.split(result), result.dataset.revision)
        if key in seen:
            raise RequestError(f"the runs {seen[key]} and {result.run_id} measure the same: give one of them")
        seen[key] = result.run_id


def _last(path: str) -> str:
    """A hub id as it is; of a path its last part, since the rest is nobody's business.

    >>> _last("org/name"), _last("/tmp/models/mine/"), _last("./data/pairs.csv")
    ('org/name', 'mine', 'pairs.csv')
    """
    parts = [part for part in re.split(r"[/\\]+", path) if part]
    is_hub = len(parts) <= 2 and not path.startswith((".", "/", "~")) and ":" not in path
    looks_like_file = bool(parts) and bool(re.search(r"\.(jsonl?|csv|tsv|parquet|txt|onnx)$", parts[-1]))
    return path if is_hub and not looks_like_file else (parts[-1] if parts else path)
