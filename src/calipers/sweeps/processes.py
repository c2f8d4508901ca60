"""One process a job: started, watched for time and memory, and its end classed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from calipers.core import printable
from calipers.core.files import remove_parts

DISK_FULL = 74  # the exit code of a worker that could not write
_TAIL = 12  # last lines of a log that a failure shows
_POLL = 0.05


@dataclass(frozen=True)
class Launch:
    """What an executor starts: the file that says what to do, and the limits of the process."""

    job_id: str
    spec: str
    log: str
    root: str  # below which it writes
    timeout: float
    memory: float | None = None  # gigabytes
    gpus: int = 0
    environment: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit code, the signal that killed it, or the limit that it broke."""

    job_id: str
    exit_code: int
    seconds: float
    limit: str | None = None  # "time-out" or "memory"
    lost: bool = False  # with the machine that it ran on: it is started again elsewhere

    @property
    def is_lost(self) -> bool:
        """Whether the cell itself is not the cause: its machine is gone, or somebody killed the process."""
        return self.lost or (self.limit is None and self.exit_code in (-signal.SIGKILL, -signal.SIGTERM))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Process:
    """A running job. Its standard input is a pipe that nothing is written to: when the driver dies, the pipe ends, and
    the worker with it."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.started = time.monotonic()
        self._kills = _kernel_kills()
        command = [sys.executable, "-m", "calipers.sweeps.worker", launch.spec]
        with open(launch.log, "ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, **(launch.environment or {})},
                start_new_session=True,
            )

    @property
    def id(self) -> int:
        return self._process.pid

    def poll(self) -> Ended | None:
        """How it ended, or None while it runs within its limits."""
        code = self._process.poll()
        seconds = time.monotonic() - self.started
        if code is not None:
            out = code == -signal.SIGKILL and _kernel_kills() > self._kills
            return self._ended(code, "memory" if out else None)
        if seconds > self.launch.timeout:
            return self._stop("time-out")
        if self.launch.memory and _resident(self.id) > self.launch.memory * 1e9:
            return self._stop("memory")
        return None

    def wait(self) -> Ended:
        while (ended := self.poll()) is None:
            time.sleep(_POLL)
        return ended

    def kill(self) -> Ended:
        return self._stop(None)

    def _stop(self, limit: str | None) -> Ended:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.id, signal.SIGKILL)
        code = self._process.wait()
        remove_parts(Path(self.launch.root), self.id)
        return self._ended(code, limit)

    def _ended(self, code: int, limit: str | None) -> Ended:
        if self._process.stdin:
            self._process.stdin.close()
        return Ended(self.launch.job_id, code, time.monotonic() - self.started, limit)


def _resident(process: int) -> int:
    """Bytes of memory that a process holds; 0 where the system does not say."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _kernel_kills() -> int:
    """How many processes the kernel has killed for want of memory."""
    total = 0
    for file, name in (("/proc/vmstat", "oom_kill"),):
        with contextlib.suppress(OSError, ValueError, IndexError):
            total += sum(
                int(line.split()[1]) for line in Path(file).read_text().splitlines() if line.split()[0] == name
            )
    return total


def end_with_parent() -> None:
    """Start a thread that ends this process with the one that started it: standard input is a pipe from there, which
    nothing is written to."""

    def wait() -> None:
        while os.read(0, 4096):
            pass
        os._exit(75)

    threading.Thread(target=wait, daemon=True).start()


def classify(ended: Ended, report: Path) -> tuple[str, str, int] | None:
    """Class, sentence and exit code of a failed job; None where it succeeded. `report` is what the worker wrote."""
    if ended.limit == "time-out":
        return "time-out", f"the cell ran for {ended.seconds:.0f} s and was stopped", 4
    if ended.limit == "memory":
        return "memory", "the cell used more memory than it may and was stopped", 4
    if ended.exit_code == 0:
        return None
    if ended.exit_code < 0:
        name = {int(s): s.name for s in signal.Signals}.get(-ended.exit_code, "a signal")
        return "signal", f"the process of the cell was ended by {name}", 4
    try:
        content = json.loads(report.read_text(encoding="utf-8"))
        return str(content["class"]), str(content["message"]), int(content["exit_code"])
    except (OSError, ValueError, KeyError):
        return "inference", f"the process of the cell ended with the code {ended.exit_code} and said nothing", 4


def tail(log: Path) -> tuple[str, ...]:
    """The last lines of a log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 8192))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ()
    return tuple(printable(line)[:300] for line in lines if line.strip())[-_TAIL:]


if __name__ == "__main__":  # on a node of a cluster: run a job, and print how it ended
    end_with_parent()
    print(json.dumps(Process(Launch(**json.loads(sys.argv[1]))).wait().to_dict()), flush=True)
    os._exit(0)
