"""Executors of a cluster: Ray, and SLURM through submitit. The store's folder must be on a disk that all nodes share.

A node runs the same watched process as this machine would: it gets the file that says what to do and writes a folder.
No node opens the database.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from calipers.core import RequestError
from calipers.core.errors import install
from calipers.sweeps.processes import Ended, Launch

_LOCAL = "127.0.0.1"


def _remote() -> Callable[[list[str], Mapping[str, str]], str]:
    """What is sent to a node. It is defined inside a function, so that it travels by value: a node needs the package
    only in the processes that it starts."""

    def run(arguments: list[str], environment: Mapping[str, str]) -> str:
        import os
        import subprocess
        import sys

        process = subprocess.Popen(
            [sys.executable, *arguments],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,  # held open: it ends with this process, and what it started ends with it
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        answer = process.stdout.read()
        process.wait()
        return answer

    return run


def _call(launch: Launch) -> tuple[list[str], dict[str, str]]:
    """The command of a watched job, and the environment in which a node finds our code."""
    path = os.pathsep.join(dict.fromkeys([str(Path(__file__).parents[2]), *filter(None, sys.path)]))
    environment = {name: value for name, value in os.environ.items() if name.startswith("CALIPERS_")}
    command = ["-m", "calipers.sweeps.processes", json.dumps(asdict(launch))]
    return command, {**environment, "PYTHONPATH": path, **(launch.environment or {})}


def _ended(launch: Launch, answer: str) -> Ended:
    """How a job ended, as the node says; lost where it says nothing."""
    try:
        return Ended(**json.loads(answer.strip().splitlines()[-1]))
    except (ValueError, IndexError, TypeError):
        return _lost(launch)


def _lost(launch: Launch) -> Ended:
    return Ended(launch.job_id, -1, 0.0, lost=True)


class Ray:
    """Jobs as tasks of a Ray cluster; without an address a cluster of this machine alone, bound to 127.0.0.1."""

    def __init__(self, address: str | None, slots: int | None) -> None:
        try:
            os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # its default warns that it will change
            if not address:  # else Ray takes 127.0.0.1 for the address that other machines see
                os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
            import ray
        except ImportError as error:
            raise RequestError(f"`on` ray needs Ray: {install('ray')}") from error
        self._ray, self._slots = ray, slots
        self._running: dict[Any, Launch] = {}
        self._quiet = redirect_stdout(sys.stderr)  # Ray prints what nodes report, and standard output is the result's
        self._quiet.__enter__()
        settings: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "ignore_reinit_error": True}
        if not address:
            settings |= {"_node_ip_address": _LOCAL, "include_dashboard": False, "num_cpus": slots}
        try:
            ray.init(address=address, **settings)
        except (ConnectionError, OSError, RuntimeError, ValueError) as error:
            raise RequestError(f"`on` ray:{address}: there is no Ray cluster that answers: {error}") from error
        self._run = ray.remote(max_retries=0)(_remote())

    @property
    def slots(self) -> int:
        """The processors of all nodes that are alive."""
        return self._slots or max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def submit(self, launch: Launch) -> None:
        task = self._run.options(num_cpus=1, num_gpus=launch.gpus, name=launch.job_id, scheduling_strategy="SPREAD")
        self._running[task.remote(*_call(launch))] = launch

    def poll(self) -> list[Ended]:
        if not self._running:
            return []
        ready, _ = self._ray.wait(list(self._running), num_returns=len(self._running), timeout=0.0)
        return [self._end(task) for task in ready]

    def _end(self, task: Any) -> Ended:
        launch = self._running.pop(task)
        try:
            return _ended(launch, self._ray.get(task))
        except self._ray.exceptions.RayError:
            return _lost(launch)  # with its node or its worker

    def cancel(self) -> list[str]:
        ids = [launch.job_id for launch in self._running.values()]
        for task in self._running:
            with suppress(Exception):
                self._ray.cancel(task, force=True)
        self._running = {}
        self._ray.shutdown()
        self._quiet.__exit__(None, None, None)
        return ids


class Slurm:
    """Jobs of SLURM, or of submitit's local executor (`slurm:local`), which needs no SLURM."""

    def __init__(self, cluster: str | None, slots: int | None, folder: Path) -> None:
        try:
            import submitit
        except ImportError as error:
            raise RequestError(f"`on` slurm needs submitit: {install('slurm')}") from error
        self.slots = slots or (os.cpu_count() or 1 if cluster == "local" else 100)
        try:
            self._executor = submitit.AutoExecutor(folder=folder, cluster=cluster)
        except (RuntimeError, ValueError) as error:
            raise RequestError(f"`on` slurm: {error}") from error
        if cluster != "local" and self._executor.cluster != "slurm":
            raise RequestError("`on` slurm: there is no SLURM on this machine (slurm:local needs none)")
        self._running: list[tuple[Any, Launch]] = []

    def submit(self, launch: Launch) -> None:
        limits = {"timeout_min": math.ceil(launch.timeout / 60) + 5, "cpus_per_task": 1, "name": launch.job_id}
        if launch.memory:
            limits["mem_gb"] = math.ceil(launch.memory)
        if launch.gpus:
            limits["gpus_per_node"] = launch.gpus
        self._executor.update_parameters(**limits)
        self._running.append((self._executor.submit(_remote(), *_call(launch)), launch))

    def poll(self) -> list[Ended]:
        done = [(job, launch) for job, launch in self._running if job.done()]
        self._running = [pair for pair in self._running if pair not in done]
        return [self._end(job, launch) for job, launch in done]

    def _end(self, job: Any, launch: Launch) -> Ended:
        try:
            return _ended(launch, job.result())
        except Exception:  # submitit raises what the job raised, or that it is gone
            return _lost(launch)

    def cancel(self) -> list[str]:
        for job, _ in self._running:
            with suppress(Exception):
                job.cancel(check=False)
        ids = [launch.job_id for _, launch in self._running]
        self._running = []
        return ids
