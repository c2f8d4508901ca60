"""What can be measured of a model: one module and one line here per task. A task is imported when it is needed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from calipers.core import RequestError, Task

# The name of a task → where it is, as module:name. Tasks of TASKS can be evaluated.
_EVALUATED = {
    "sentence-similarity": "similarity:TASK",
    "fill-mask": "fill_mask:TASK",
    "reranking": "reranking:TASK",
    "nanobeir": "nanobeir:TASK",
    "retrieval": "retrieval:TASK",
    "pair-classification": "pair_classification:TASK",
    "pair-correlation": "pair_correlation:TASK",
}
# Tasks that something else measures: runs of them are kept, shown and compared, and cannot be evaluated.
_RECORDED = {"mteb": "mteb:TASK"}
# Tasks for two models at once: `calipers compare --unlabelled` runs them.
_PAIRED = {
    "embedding-agreement": "agreement:ENCODERS",
    "fill-mask-agreement": "agreement:MASKED",
    "ranking-agreement": "agreement:SCORERS",
}
_HOMES = {**_EVALUATED, **_RECORDED, **_PAIRED}

TASKS: tuple[Task[Any], ...]  # all that can be evaluated: see `__getattr__`


def __getattr__(name: str) -> Any:
    if name != "TASKS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _all(_EVALUATED)


def _all(homes: Mapping[str, str]) -> tuple[Task[Any], ...]:
    return tuple(map(_imported, homes))


def _imported(name: str) -> Task[Any]:
    module, _, attribute = _HOMES[name].partition(":")
    task: Task[Any] = getattr(import_module(f"{__name__}.{module}"), attribute)
    return task


def find(name: str) -> Task[Any]:
    """A task by its name or by one of its other names."""
    if name in _HOMES:
        return _imported(name)
    for task in _all(_HOMES):
        if name in task.aliases:
            return task
    names = ", ".join(n for task in _all(_EVALUATED) for n in (task.name, *task.aliases))
    raise RequestError(f"unknown task {name!r}: expected one of {names} (calipers tasks lists them)")


def has_metric(name: str) -> bool:
    """Whether any task has this metric, at whatever cut-off.

    >>> has_metric("ndcg@20"), has_metric("ndgc@10")
    (True, False)
    """
    metrics = {metric.name for task in _all(_HOMES) for metric in task.metrics}
    return name.partition("@")[0] in {metric.partition("@")[0] for metric in metrics}


def askable(name: str) -> Task[Any]:
    """The same, and refuse a task that only keeps what something else measured."""
    task = find(name)
    if task.name in _RECORDED:
        from calipers.tasks.mteb import ELSEWHERE

        raise RequestError(f"the task {task.name} cannot be evaluated: {ELSEWHERE}")
    if task.name in _PAIRED:
        raise RequestError(f"the task {task.name} compares two models: call compare with `unlabelled`")
    return task
