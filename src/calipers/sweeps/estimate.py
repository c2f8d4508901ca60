"""How long the jobs of a plan will take: what they took before, else what their size suggests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from calipers.core import CalipersError, Dataset
from calipers.models import ModelOptions, find
from calipers.sweeps.abilities import weight_size
from calipers.sweeps.driver import State
from calipers.sweeps.plan import Job, Plan
from calipers.sweeps.queue import JobRow

# Seconds on one core of the machine of docs/scale.md: to start a process with its imports, and for each megabyte of
# weights that a build reads, or that a text is computed with.
_START = {"build": 12.0, "measure": 4.0, "time": 3.0}
_BUILD = 0.12
_TEXT = 1.1e-4
_TOKENS = 30.0  # a masked language model answers a question for each token of a text


def expected_seconds(plan: Plan, state: State, rows: Mapping[str, JobRow], slots: int) -> float:
    """Seconds until everything that is left is done, with so many jobs at a time. Timings run one by one."""
    left = [job for job in plan.jobs.values() if not state.ended(job.id)]
    seconds = {job.id: _seconds(job, plan, rows.get(job.id)) for job in left}
    alone = sum(seconds[job.id] for job in left if job.kind == "time")
    shared = [seconds[job.id] for job in left if job.kind != "time"]
    return alone + max(sum(shared) / max(1, slots), max(shared, default=0.0))


def _seconds(job: Job, plan: Plan, row: JobRow | None) -> float:
    if row is not None and row.seconds is not None:
        return row.seconds
    size = _megabytes(job)
    if job.kind == "build":
        return _START["build"] + _BUILD * size
    if job.kind == "time":
        return _START["time"]
    task = next((cell.task.id for cell in plan.cells if cell.job == job.id), "")
    dataset = plan.rows.get(task)
    return _START["measure"] + _TEXT * size * _texts(dataset, job.spec["task"])


def _texts(dataset: Dataset | None, task: str) -> float:
    if dataset is None:
        return 0.0
    documents = sum(len(table) for table in dataset.tables.values())
    lists = sum(len(v) for values in dataset.columns.values() for v in values if isinstance(v, (list, tuple)))
    each = _TOKENS if task in ("fill-mask", "masked-lm") else 2.0
    return documents + lists + each * len(dataset)


def _megabytes(job: Job) -> float:
    place = job.spec["reference"]
    try:
        size = weight_size(find(place), ModelOptions(**job.spec["model_options"]))
    except CalipersError:
        folder = Path(job.spec.get("folder", place)).parent
        size = 20_000_000 if folder else None
    return (size or 20_000_000) / 1e6
