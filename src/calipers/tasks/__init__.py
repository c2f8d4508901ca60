"""What can be measured of a model: one module and one line here per task."""

from __future__ import annotations

from typing import Any

from calipers.core import RequestError, Task
from calipers.tasks import (
    agreement,
    fill_mask,
    mteb,
    nanobeir,
    pair_classification,
    pair_correlation,
    reranking,
    retrieval,
    similarity,
)

TASKS: tuple[Task[Any], ...] = (
    similarity.TASK,
    fill_mask.TASK,
    reranking.TASK,
    nanobeir.TASK,
    retrieval.TASK,
    pair_classification.TASK,
    pair_correlation.TASK,
)
# Tasks that something else measures: runs of them are kept, shown and compared, and cannot be evaluated.
RECORDED: tuple[Task[Any], ...] = (mteb.TASK,)
# Tasks for two models at once: `calipers compare --unlabelled` runs them.
PAIRED: tuple[Task[Any], ...] = (agreement.ENCODERS, agreement.MASKED, agreement.SCORERS)


def find(name: str) -> Task[Any]:
    """A task by its name or by one of its other names."""
    for task in (*TASKS, *RECORDED, *PAIRED):
        if name in (task.name, *task.aliases):
            return task
    names = ", ".join(n for task in TASKS for n in (task.name, *task.aliases))
    raise RequestError(f"unknown task {name!r}: expected one of {names} (calipers tasks lists them)")


def has_metric(name: str) -> bool:
    """Whether any task has this metric, at whatever cut-off.

    >>> has_metric("ndcg@20"), has_metric("ndgc@10")
    (True, False)
    """
    metrics = {metric.name for task in (*TASKS, *RECORDED, *PAIRED) for metric in task.metrics}
    return name.partition("@")[0] in {metric.partition("@")[0] for metric in metrics}


def askable(name: str) -> Task[Any]:
    """The same, and refuse a task that only keeps what something else measured."""
    task = find(name)
    if task in RECORDED:
        raise RequestError(f"the task {task.name} cannot be evaluated: {mteb.ELSEWHERE}")
    if task in PAIRED:
        raise RequestError(f"the task {task.name} compares two models: call compare with `unlabelled`")
    return task
