"""The loop of a sweep: jobs in their order to an executor, what they made into the store, failures into the queue."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from calipers.core import CalipersError, RequestError, Result
from calipers.core.files import sync_folder, write_whole
from calipers.models import ModelOptions
from calipers.runs.api import run_key
from calipers.runs.store import Store, read_run
from calipers.sweeps.executors import Executor
from calipers.sweeps.plan import Folders, Job, Plan
from calipers.sweeps.processes import DISK_FULL, Ended, Launch, classify, tail
from calipers.sweeps.queue import LEASE, Queue
from calipers.sweeps.records import Failure, SweepOptions, SweepStatus

_POLL = 0.05  # seconds between two looks at the executor
_LOSSES = 3  # times that a job may be lost, with its machine or by a kill from outside


@dataclass
class State:
    """What became of every job, by id: a result, a failure, or neither yet."""

    results: dict[str, Result] = field(default_factory=dict)  # of measurements
    reused: set[str] = field(default_factory=set)  # results that were in the store
    failures: dict[str, Failure] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    running: dict[str, float] = field(default_factory=dict)  # job → when it began
    invalid: set[str] = field(default_factory=set)  # failures whose cause is the model's output
    elsewhere: set[str] = field(default_factory=set)  # jobs that another driver runs

    def ended(self, job: str) -> bool:
        return job in self.done or job in self.failures


class Driver:
    """One run of a plan. `watch` is called with the state whenever something changed."""

    def __init__(
        self,
        plan: Plan,
        store: Store,
        queue: Queue,
        options: SweepOptions,
        watch: Callable[[SweepStatus], None] = lambda status: None,
    ) -> None:
        self.plan, self.store, self.queue, self.options, self.watch = plan, store, queue, options, watch
        self.folders = Folders.of(store)
        self.state = State()
        self._tasks = {cell.job: cell.task for cell in plan.cells}
        self._lost: dict[str, int] = {}
        self._renewed = self._began = time.monotonic()
        self._seen = 0  # jobs that were done before anything ran

    # --- what is there already ----------------------------------------------------------------------------------

    def look_up(self) -> State:
        """Find what earlier sweeps left: runs in the store, artifacts, timings, results that were not imported."""
        for job in self.plan.jobs.values():
            self._find(job)
        return self.state

    def _find(self, job: Job) -> bool:
        """Whether the work of a job is done already, by whoever."""
        if job.id in self.state.done:
            return True
        if job.kind == "measure":
            self._import(job)
            result = self._stored(job)
            if result is not None:
                self.state.results[job.id] = result
                self.state.reused.add(job.id)
                self.state.done.update(job.after)  # nobody needs its shards
        elif job.kind == "build":
            result = _read_json(Path(job.spec["result"]))
            result = result if result and Path(result["model"]).exists() else None
        else:
            result = _read_json(Path(job.spec["result"]))
        if result is not None:
            self.state.done.add(job.id)
        return result is not None

    def _stored(self, job: Job) -> Result | None:
        """The run in the store under the key that `compare` uses; None where the model is not there yet."""
        if any(need not in self.state.done for need in job.needs):
            return None
        spec = job.spec
        try:
            options = ModelOptions(**spec["model_options"])
            task = self._tasks[job.id]
            key = run_key(spec["reference"], self.plan.rows[task.id], task.protocol(options))
        except (CalipersError, OSError):
            return None  # its own process says why
        return self.store.find(key) if key else None

    # --- the loop -----------------------------------------------------------------------------------------------

    def run(self, executor: Executor, retry: Collection[str] = ()) -> State:
        """Run what is left. Ctrl-C ends the running jobs and puts them back into the queue."""
        self.folders.make()
        left = [job for job in self.plan.jobs.values() if not self.state.ended(job.id)]
        again = {job.id for job in left} & set(retry)
        self.queue.add([(job.id, job.name, job.kind) for job in left], again)
        self._read_failures()
        self._began, self._seen = time.monotonic(), len(self.state.done)
        try:
            while not self._is_over():
                self._start_ready(executor)
                for ended in executor.poll():
                    self._end(ended)
                self._renew()
                self.watch(self.status())
                time.sleep(_POLL)
        finally:
            executor.cancel()
            self.queue.release()
            self.state.running.clear()
        return self.state

    def status(self) -> SweepStatus:
        seconds, total = time.monotonic() - self._began, len(self.plan.jobs)
        done, failed = len(self.state.done), len(self.state.failures)
        fresh = done - self._seen
        left = seconds / fresh * (total - done - failed) if fresh >= 3 else None
        names = tuple(self.plan.jobs[job].name for job in self.state.running)
        return SweepStatus(total, names, done, failed, seconds, left)

    def _is_over(self) -> bool:
        if self.options.fail_fast and (self.state.failures or any(cell.failure for cell in self.plan.cells)):
            return True
        self._fail_dependants()
        return all(self.state.ended(job) for job in self.plan.jobs)

    def _read_failures(self) -> None:
        """Jobs that failed in an earlier sweep, and are not tried again."""
        for row in self.queue.rows(self.plan.jobs).values():
            if row.state == "failed" and row.job_id not in self.state.done:
                log = Path(row.log) if row.log else self.folders.log(row.job_id)
                failure = Failure(
                    row.failure or "inference", row.message or "", row.exit_code or 4, str(log), tail(log)
                )
                self.state.failures[row.job_id] = failure
                if json.loads(row.detail or "{}").get("invalid"):
                    self.state.invalid.add(row.job_id)

    def _fail_dependants(self) -> None:
        for job in self.plan.jobs.values():
            broken = next((need for need in job.needs if need in self.state.failures), None)
            if broken and not self.state.ended(job.id):
                self.state.failures[job.id] = self.state.failures[broken]

    def _start_ready(self, executor: Executor) -> None:
        """Start as many jobs as there are slots. Timings run alone, after all others."""
        for job in self._ready():
            if len(self.state.running) >= executor.slots:
                return
            if job.kind == "time" and self.state.running:
                return
            if self._find(job):
                continue
            if not self.queue.claim(job.id):
                self._follow(job)
                continue
            self._submit(job, executor)
            if job.kind == "time":
                return

    def _ready(self) -> list[Job]:
        locks = {self.plan.jobs[job].lock for job in self.state.running}
        waiting = [job for job in self.plan.jobs.values() if not self.state.ended(job.id)]
        early = [job for job in waiting if job.kind != "time"]
        ready = []
        for job in sorted(early or waiting, key=_order):
            blocked = job.id in self.state.running or (job.lock and job.lock in locks)
            ready_now = all(need in self.state.done for need in job.needs) and all(map(self.state.ended, job.after))
            if not blocked and ready_now:
                ready.append(job)
                locks |= {job.lock} if job.lock else set()
        return ready

    def _follow(self, job: Job) -> None:
        """A job that another driver runs, or that failed there."""
        row = self.queue.rows([job.id]).get(job.id)
        if row is not None and row.state == "failed":
            self._read_failures()
        elif row is not None and row.state == "done":
            self.queue.add([(job.id, job.name, job.kind)])
            self._find(job)
        time.sleep(_POLL)

    def _submit(self, job: Job, executor: Executor) -> None:
        self.folders.report(job.id).unlink(missing_ok=True)
        write_whole(self.folders.spec(job.id), json.dumps(job.spec))
        launch = Launch(
            job_id=job.id,
            spec=str(self.folders.spec(job.id)),
            log=str(self.folders.log(job.id)),
            root=str(self.folders.root),
            timeout=self.options.cell_timeout,
            memory=self.options.memory_limit,
            gpus=job.gpus,
        )
        self.state.running[job.id] = time.monotonic()
        executor.submit(launch)

    def _end(self, ended: Ended) -> None:
        job = self.plan.jobs[ended.job_id]
        self.state.running.pop(job.id, None)
        if ended.is_lost:
            self._lost[job.id] = self._lost.get(job.id, 0) + 1
            if self._lost[job.id] < _LOSSES:
                self.queue.release(job.id)
                return
        if ended.exit_code == DISK_FULL:
            raise RequestError(f"the disk of {self.store.folder} is full: make room, and the same command goes on")
        report = self.folders.report(job.id)
        failure = classify(ended, report)
        log = str(self.folders.log(job.id))
        if failure is None:
            failure = self._keep(job)
        if failure is None:
            self.queue.end(job.id, seconds=ended.seconds, run=self._run_id(job), log=log)
            self.state.done.add(job.id)
            return
        detail = _read_json(report) or {}
        invalid = bool(detail.get("invalid"))
        self.queue.end(job.id, seconds=ended.seconds, failure=failure, log=log, detail={"invalid": invalid})
        self.state.failures[job.id] = Failure(*failure, log, tail(Path(log)))
        self.state.invalid |= {job.id} if invalid else set()

    def _keep(self, job: Job) -> tuple[str, str, int] | None:
        """Bring what a job made into the store; a failure where there is nothing."""
        if job.kind == "measure":
            result = self._import(job) or self._stored(job)  # another driver may have been faster
            if result is None:
                return "inference", "the process of the cell ended without a result", 4
            self.state.results[job.id] = result
        elif not Path(job.spec["result"]).exists():
            return "inference", "the process of the cell ended without a result", 4
        return None

    def _import(self, job: Job) -> Result | None:
        """The result folder of a job into the store, once: a driver that was killed here finds it again."""
        folder = self.folders.result(job.id)
        if not (folder / "run.json").exists():
            return None
        try:
            result, key = read_run(folder)
        except RequestError:
            shutil.rmtree(folder, ignore_errors=True)
            return None
        if not self._has(result.run_id):
            try:
                self.store.save(result, key)
            except RequestError:
                if not self._has(result.run_id):
                    raise
        sync_folder(self.store.folder / "outcomes")  # before the copy goes
        self._clean(job)
        return result

    def _has(self, run_id: str) -> bool:
        try:
            self.store.load(run_id)
        except RequestError:
            return False
        return True

    def _clean(self, job: Job) -> None:
        shutil.rmtree(self.folders.result(job.id), ignore_errors=True)
        shutil.rmtree(self.folders.shards(job.id), ignore_errors=True)
        for part in job.after:
            self.folders.timed(part).unlink(missing_ok=True)

    def _run_id(self, job: Job) -> str | None:
        result = self.state.results.get(job.id)
        return result.run_id if result else None

    def _renew(self) -> None:
        if self.state.running and time.monotonic() - self._renewed > LEASE / 4:
            self.queue.renew()
            self._renewed = time.monotonic()


def _order(job: Job) -> tuple[str, int, str]:
    """By priority; builds first, because others wait for them."""
    return job.priority or "~", 0 if job.kind == "build" else 1, job.name


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def timing_of(job: Job | None) -> Mapping[str, Any] | None:
    """What a timing measured; None where there is none."""
    content = _read_json(Path(job.spec["result"])) if job else None
    return content if isinstance(content, dict) else None
