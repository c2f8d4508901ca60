"""What can be asked of a model: one module and one line here per task."""

from __future__ import annotations

from calipers.core import RequestError, Task
from calipers.tasks import fill_mask, pair_classification, pair_correlation, reranking, retrieval, similarity

TASKS: tuple[Task, ...] = (
    similarity.TASK,
    fill_mask.TASK,
    reranking.TASK,
    retrieval.TASK,
    pair_classification.TASK,
    pair_correlation.TASK,
)


def find(name: str) -> Task:
    """A task by its name or by one of its other names."""
    for task in TASKS:
        if name in (task.name, *task.aliases):
            return task
    known = ", ".join(n for task in TASKS for n in (task.name, *task.aliases))
    raise RequestError(f"unknown task {name!r}: expected one of {known} (calipers tasks lists them)")
