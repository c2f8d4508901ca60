"""The queue of a sweep, in the store: the state, owner, lease, attempts and exit code of every job.

A job belongs to the driver that holds its lease. A driver that is killed leaves leases behind: on the same machine they
end with the process, elsewhere when their time is over.
"""

from __future__ import annotations

import json
import os
import platform
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from calipers.runs.store import Store

LEASE = 60.0  # seconds that a driver owns a job without saying so again
_DONE, _FAILED, _RUNNING, _WAITING = "done", "failed", "running", "waiting"


@dataclass(frozen=True)
class JobRow:
    """A job as the store has it."""

    job_id: str
    sweep_id: str
    name: str
    kind: str
    state: str
    owner: str | None
    lease: float | None
    attempts: int
    exit_code: int | None
    failure: str | None
    message: str | None
    log: str | None
    run: str | None
    seconds: float | None
    detail: str | None

    @property
    def is_free(self) -> bool:
        """Whether another driver may take it: nobody runs it, or who did is gone."""
        if self.state != _RUNNING:
            return self.state == _WAITING
        return _is_gone(self.owner) or (self.lease or 0.0) < time.time()


_COLUMNS = ", ".join(field.name for field in fields(JobRow))


def this_process() -> str:
    """Machine, process and the time at which it began: a number that is used again is another process."""
    return f"{platform.node()}:{os.getpid()}:{_began(os.getpid())}"


def _began(process: int) -> str:
    """When a process began, in ticks of the kernel; nothing where that is not known or it has ended (a zombie)."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[0] in ("Z", "X") else fields[19]
    except (OSError, IndexError):
        return ""


def _is_gone(owner: str | None) -> bool:
    """Whether the owner was a process of this machine that has ended."""
    node, _, rest = (owner or "").partition(":")
    process, _, rest = rest.partition(":")
    began = rest.partition(":")[0]  # what stands behind it tells drivers of one process apart
    if node != platform.node() or not process.isdecimal():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return bool(began) and _began(int(process)) != began


class Queue:
    """The jobs of one registry. `owner` is this driver."""

    def __init__(self, store: Store, name: str) -> None:
        self.store, self.name = store, name
        self.owner = f"{this_process()}:{secrets.token_hex(2)}"
        self.sweep_id = ""

    def begin(self) -> str:
        """The sweep of this registry that has not finished, else a new one."""
        with self.store.transaction() as database:
            row = database.execute(
                "SELECT sweep_id FROM sweeps WHERE name = ? AND finished IS NULL ORDER BY created DESC", (self.name,)
            ).fetchone()
            if row is None:
                row = (f"{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(3)}",)
                created = datetime.now(UTC).isoformat(timespec="milliseconds")
                database.execute("INSERT INTO sweeps VALUES (?, ?, ?, NULL, NULL)", (*row, self.name, created))
        self.sweep_id = row[0]
        return self.sweep_id

    def finish(self, document: Mapping[str, Any]) -> None:
        finished = datetime.now(UTC).isoformat(timespec="milliseconds")
        with self.store.transaction() as database:
            database.execute(
                "UPDATE sweeps SET finished = ?, document = ? WHERE sweep_id = ?",
                (finished, json.dumps(document, allow_nan=False), self.sweep_id),
            )

    def last(self) -> dict[str, Any] | None:
        """The document of the last sweep of this registry that finished."""
        if not self.store.exists:
            return None
        with self.store.reading() as database:
            row = database.execute(
                "SELECT document FROM sweeps WHERE name = ? AND finished IS NOT NULL ORDER BY finished DESC LIMIT 1",
                (self.name,),
            ).fetchone()
        return json.loads(row[0]) if row and row[0] else None

    def rows(self, job_ids: Iterable[str] | None = None) -> dict[str, JobRow]:
        """By id: these jobs, or those of the registry's last sweep."""
        chosen, values = (
            "sweep_id = (SELECT sweep_id FROM sweeps WHERE name = ? ORDER BY created DESC LIMIT 1)",
            self.name,
        )
        if job_ids is not None:
            chosen, values = "job_id IN (SELECT value FROM json_each(?))", json.dumps(list(job_ids))
        with self.store.reading() as database:
            lines = database.execute(f"SELECT {_COLUMNS} FROM jobs WHERE {chosen}", (values,)).fetchall()
        return {row[0]: JobRow(*row) for row in lines}

    def add(self, jobs: Iterable[tuple[str, str, str]], retry: Iterable[str] = ()) -> None:
        """Jobs (id, name, kind) that are to be run. Those that failed before stay failed, unless they are in `retry`;
        those that are done are run again in a new sweep."""
        again = set(retry)
        with self.store.transaction() as database:
            for job_id, name, kind in jobs:
                database.execute(
                    "INSERT INTO jobs (job_id, sweep_id, name, kind, state) VALUES (?, ?, ?, ?, 'waiting') "
                    "ON CONFLICT (job_id) DO NOTHING",
                    (job_id, self.sweep_id, name, kind),
                )
                database.execute(
                    "UPDATE jobs SET state = 'waiting', owner = NULL, run = NULL WHERE job_id = ? AND state = 'done' "
                    "AND sweep_id != ?",
                    (job_id, self.sweep_id),
                )
                database.execute("UPDATE jobs SET sweep_id = ? WHERE job_id = ?", (self.sweep_id, job_id))
                if job_id in again:
                    database.execute(
                        "UPDATE jobs SET state = 'waiting', failure = NULL, message = NULL, exit_code = NULL "
                        "WHERE job_id = ? AND state = 'failed'",
                        (job_id,),
                    )

    def claim(self, job_id: str) -> bool:
        """Take a job that nobody has; False where another driver was faster."""
        with self.store.transaction() as database:
            row = database.execute(f"SELECT {_COLUMNS} FROM jobs WHERE job_id = ?", (job_id,)).fetchone()
            if row is None or not JobRow(*row).is_free:
                return False
            database.execute(
                "UPDATE jobs SET state = 'running', owner = ?, lease = ?, attempts = attempts + 1 WHERE job_id = ?",
                (self.owner, time.time() + LEASE, job_id),
            )
        return True

    def renew(self) -> None:
        """Say that this driver is alive."""
        with self.store.transaction() as database:
            database.execute(
                "UPDATE jobs SET lease = ? WHERE owner = ? AND state = 'running'", (time.time() + LEASE, self.owner)
            )

    def release(self, job_id: str | None = None) -> None:
        """Put a job back that did not end; None: all that this driver has."""
        with self.store.transaction() as database:
            database.execute(
                "UPDATE jobs SET state = 'waiting', owner = NULL, lease = NULL "
                "WHERE owner = ? AND state = 'running' AND job_id = COALESCE(?, job_id)",
                (self.owner, job_id),
            )

    def end(
        self,
        job_id: str,
        *,
        seconds: float,
        run: str | None = None,
        failure: tuple[str, str, int] | None = None,
        log: str | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> None:
        """`failure` is class, sentence and exit code; None where the job is done."""
        kind, message, code = failure or (None, None, 0)
        with self.store.transaction() as database:
            database.execute(
                "UPDATE jobs SET state = ?, lease = NULL, exit_code = ?, failure = ?, message = ?, log = ?, run = ?, "
                "seconds = ?, detail = ? WHERE job_id = ?",
                (
                    *(_FAILED if failure else _DONE, code, kind, message, log, run, round(seconds, 3)),
                    *(json.dumps(detail) if detail else None, job_id),
                ),
            )
