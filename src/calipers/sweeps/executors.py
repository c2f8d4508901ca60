"""Where jobs run. An executor is three methods wide: submit, poll, cancel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from calipers.core import RequestError
from calipers.metrics.threads import available_cores
from calipers.sweeps.processes import Ended, Launch, Process


class Executor(Protocol):
    @property
    def slots(self) -> int:
        """Jobs at a time."""
        ...

    def submit(self, launch: Launch) -> None: ...

    def poll(self) -> list[Ended]:
        """The jobs that ended since the last call."""
        ...

    def cancel(self) -> list[str]:
        """End all running jobs; their ids."""
        ...


class Local:
    """Processes of this machine."""

    def __init__(self, slots: int | None = None) -> None:
        self.slots = slots or available_cores()
        self._running: list[Process] = []

    def submit(self, launch: Launch) -> None:
        self._running.append(Process(launch))

    def poll(self) -> list[Ended]:
        ended = [(process, end) for process in self._running if (end := process.poll()) is not None]
        gone = [process for process, _ in ended]
        self._running = [process for process in self._running if process not in gone]
        return [end for _, end in ended]

    def cancel(self) -> list[str]:
        ids = [process.kill().job_id for process in self._running]
        self._running = []
        return ids


def make_executor(name: str, slots: int | None, folder: Path) -> Executor:
    """An executor by the name that the command line has for it: local, ray, ray:ADDRESS, slurm or slurm:local.
    `folder` is for its own files."""
    from calipers.sweeps import clusters

    kind, _, address = name.partition(":")
    makers: dict[str, Callable[[], Executor]] = {
        "local": lambda: Local(slots),
        "ray": lambda: clusters.Ray(address or None, slots),
        "slurm": lambda: clusters.Slurm(address or None, slots, folder),
    }
    if kind not in makers:
        raise RequestError(f"`on` must be one of {', '.join(makers)}, found {name!r}")
    return makers[kind]()
