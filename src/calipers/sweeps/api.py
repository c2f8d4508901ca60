"""sweep: a registry of models, tasks and precisions, measured and compared cell by cell."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calipers.core import RequestError, html_table
from calipers.core.inputs import expand
from calipers.metrics.threads import available_cores
from calipers.rendering.document import strict
from calipers.rendering.numbers import NONE, number
from calipers.runs.store import Store
from calipers.sweeps import judge
from calipers.sweeps.driver import Driver, State
from calipers.sweeps.estimate import expected_seconds
from calipers.sweeps.executors import make_executor
from calipers.sweeps.plan import Plan, make_plan
from calipers.sweeps.queue import JobRow, Queue
from calipers.sweeps.records import FAILURES, CellResult, Registry, SweepOptions, SweepStatus, worst_exit
from calipers.sweeps.registry import read_registry

SCHEMA = "calipers/sweep/1"


@dataclass(frozen=True)
class Sweep:
    """What a sweep came to: its cells, worst first. `plan` says what there was to do and what was there already."""

    sweep_id: str
    registry: str
    cells: tuple[CellResult, ...]
    plan: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """That of the worst cell: 1, 4, 3, 2, 5, 0 in this order."""
        return worst_exit([cell.exit_code for cell in self.cells])

    @property
    def digest(self) -> str:
        """Over the results of all cells, times and dates left out."""
        import hashlib

        lines = sorted(f"{cell.key} {cell.digest} {cell.label}" for cell in self.cells)
        return f"sha256:{hashlib.sha256(chr(10).join(lines).encode()).hexdigest()}"

    def __repr__(self) -> str:
        labels = [cell.outcome for cell in self.cells]
        counts = ", ".join(f"{labels.count(label)} {label}" for label in dict.fromkeys(labels))
        return f"Sweep({len(self.cells)} cells: {counts})"

    def _repr_html_(self) -> str:
        rows = [
            (c.key.model, c.key.task, c.key.precision, c.metric or NONE, number(c.value, c.digits), c.label or NONE)
            for c in self.cells
        ]
        return html_table(repr(self), ("model", "task", "precision", "metric", "value", "label"), rows)

    def to_dict(self) -> dict[str, Any]:
        """The document of `calipers sweep --json`; its keys are a contract (see docs/design.md)."""
        document = {
            "schema": SCHEMA,
            "sweep": self.sweep_id,
            "registry": self.registry,
            "cells": [cell.to_dict() for cell in self.cells],
            "plan": dict(self.plan),
            "notes": list(self.notes),
            "digest": self.digest,
            "seconds": self.seconds,
            "exit": self.exit_code,
        }
        checked: dict[str, Any] = strict(document)
        return checked


def sweep(
    registry: str | Path | Registry,
    *,
    options: SweepOptions | None = None,
    retry_failed: Collection[str] | None = None,
    store: Store | None = None,
    watch: Callable[[SweepStatus], None] | None = None,
) -> Sweep:
    """Measure every cell of a registry and compare it with its baseline. What the store has is not measured again.

    The store is the queue as well: after a crash the same call goes on. `retry_failed` are classes of failures to try
    again (see `FAILURES`), an empty collection means all; None leaves failed cells as they are.

    >>> sweep("./registry.yaml")
    Sweep(3 cells: 1 REGRESSION, 1 PASS, 1 without a label)
    """
    start = time.perf_counter()
    options, store = options or SweepOptions(), store or Store()
    for name in retry_failed or ():
        if name not in FAILURES:
            raise RequestError(f"`retry_failed` must be among {', '.join(FAILURES)}, found {name!r}")
    driver = prepare(registry, options, store)
    plan = driver.plan
    store.check_writable()
    before = driver.queue.last()
    driver.queue.begin()
    driver.look_up()
    planned = describe_plan(plan, driver.state)
    if watch:
        driver.watch = watch
    if not all(driver.state.ended(job) for job in plan.jobs):
        executor = make_executor(options.on, options.jobs, driver.folders.root / "cluster")
        driver.run(executor, _retried(driver, retry_failed))
    cells = judge.judge(plan, driver.state, options, before)
    made = Sweep(
        driver.queue.sweep_id,
        str(plan.registry.path),
        tuple(cells),
        planned,
        plan.registry.notes,
        round(time.perf_counter() - start, 2),
    )
    driver.queue.finish(made.to_dict())
    return made


@dataclass(frozen=True)
class Ahead:
    """What a sweep would do: its cells with their state, the plan in numbers, and the seconds to expect."""

    cells: tuple[Mapping[str, Any], ...]
    plan: Mapping[str, Any]
    seconds: float
    options: SweepOptions

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "cells": [dict(cell) for cell in self.cells],
            "plan": {**self.plan, "seconds": self.seconds},
            "options": strict(vars(self.options)),
        }


def look_ahead(registry: str | Path | Registry, options: SweepOptions, store: Store) -> Ahead:
    """The plan of a sweep, without running it."""
    driver = prepare(registry, options, store)
    state, plan = driver.look_up(), driver.plan
    rows = driver.queue.rows(plan.jobs) if store.exists else {}
    cells = []
    for cell in plan.cells:
        job, row = plan.jobs.get(cell.job), rows.get(cell.job)
        build = job is not None and any(need not in state.done for need in job.needs)
        stage = "stored" if cell.job in state.done else "failed" if row and row.state == "failed" else ""
        unavailable = f"unavailable ({cell.failure.kind})" if cell.failure else ""
        todo = "to build and measure" if build else "to measure"
        facts = {"state": stage or unavailable or todo, "baseline": str(cell.baseline) if cell.baseline else None}
        cells.append({**vars(cell.key), **facts, "reason": cell.failure.message if cell.failure else None})
    seconds = expected_seconds(plan, state, rows, options.jobs or available_cores())
    return Ahead(tuple(cells), describe_plan(plan, state), round(seconds, 1), options)


def queue_rows(registry: str | Path, store: Store) -> list[JobRow]:
    """The queue of a registry, as another process sees it."""
    if not store.exists:
        raise RequestError(f"there is no store in {store.folder}: no sweep has begun there")
    rows = Queue(store, str(Path(registry).resolve())).rows()
    if not rows:
        raise RequestError(f"no sweep of {registry} has begun in {store.folder}")
    return list(rows.values())


def last_sweep(registry: str | Path, store: Store) -> Sweep:
    """The last sweep of a registry that finished."""
    document = Queue(store, str(Path(registry).resolve())).last()
    if document is None:
        raise RequestError(f"no sweep of {registry} has finished in {store.folder}")
    cells = tuple(CellResult.from_dict(cell) for cell in document["cells"])
    notes, seconds = tuple(document["notes"]), document["seconds"]
    return Sweep(document["sweep"], document["registry"], cells, document["plan"], notes, seconds)


def prepare(registry: str | Path | Registry, options: SweepOptions, store: Store) -> Driver:
    """The driver of a registry with its plan, before anything runs."""
    entries = registry if isinstance(registry, Registry) else read_registry(expand(registry))
    local = options.on.partition(":")[0] == "local"
    threads = max(1, available_cores() // (options.jobs or available_cores())) if local else 1
    plan = make_plan(entries, store, options, threads)
    if not plan.cells:
        reasons = "; ".join(f"{cell}: {why}" for cell, why in plan.skipped[:3])
        raise RequestError(f"{entries.path} has no cell to measure{f' ({reasons})' if reasons else ''}")
    return Driver(plan, store, Queue(store, entries.name), options)


def _retried(driver: Driver, classes: Collection[str] | None) -> set[str]:
    """The failed jobs that are tried again."""
    if classes is None:
        return set()
    rows = driver.queue.rows(driver.plan.jobs).values()
    return {row.job_id for row in rows if row.state == "failed" and (not classes or row.failure in classes)}


def describe_plan(plan: Plan, state: State) -> dict[str, Any]:
    """How much there is to do: cells, those in the store, and the work that cells share."""
    jobs = list(plan.jobs.values())
    kinds = {kind: [job for job in jobs if job.kind == kind] for kind in ("build", "measure", "time")}
    users = [cell.job for cell in plan.cells if cell.job]
    baselines = [cell.baseline for cell in plan.cells if cell.baseline]
    return {
        "cells": len(plan.cells),
        "stored": len([job for job in kinds["measure"] if job.id in state.done]),
        "to_measure": len([job for job in kinds["measure"] if job.id not in state.done]),
        "to_build": len([job for job in kinds["build"] if job.id not in state.done]),
        "to_time": len([job for job in kinds["time"] if job.id not in state.done]),
        "unavailable": len([cell for cell in plan.cells if cell.failure]),
        "shared": {
            "exports": len([job for job in kinds["build"] if job.spec["precision"] == "fp32"]),
            "precisions": len([job for job in kinds["build"] if job.spec["precision"] != "fp32"]),
            "baselines": len(set(baselines)),
            "candidates": len(baselines),
            "repeated_cells": len(users) - len(set(users)),
        },
        "skipped": [{"cell": cell, "reason": why} for cell, why in plan.skipped],
    }
