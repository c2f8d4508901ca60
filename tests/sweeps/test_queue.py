"""The queue: a job belongs to one driver, until that driver is gone or its lease is over."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from calipers.runs.store import Store
from calipers.sweeps import queue as queues
from calipers.sweeps.queue import Queue
from tests.support.stores import sql


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    """One driver of a registry with a job."""
    made = Queue(Store(tmp_path), "registry")
    made.begin()
    made.add([("job", "a/b/c", "measure")])
    return made


def other(queue: Queue) -> Queue:
    """A second driver, in this process."""
    made = Queue(queue.store, "registry")
    made.begin()
    return made


def test_a_job_of_a_driver_that_lives_is_not_taken(queue: Queue) -> None:
    second = other(queue)
    assert second.sweep_id == queue.sweep_id
    assert queue.claim("job")
    assert not queue.rows()["job"].is_free
    assert not second.claim("job")
    queue.release()
    assert second.claim("job")
    assert not queue.claim("job")


def test_a_job_of_a_driver_that_is_gone_is_taken(queue: Queue) -> None:
    node = queue.owner.split(":")[0]
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as driver:
        began = Path(f"/proc/{driver.pid}/stat").read_text().rpartition(")")[2].split()[19]
        owner = f"{node}:{driver.pid}:{began}:ab"
        assert queue.claim("job")
        sql(queue.store, f"UPDATE jobs SET owner = '{owner}'")
        assert not other(queue).claim("job")
        driver.kill()
        os.waitid(os.P_PID, driver.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and nobody has taken note: a zombie
        assert other(queue).claim("job")
    queue.release()
    sql(queue.store, f"UPDATE jobs SET owner = '{owner}', state = 'running'")
    assert other(queue).claim("job")


def test_a_number_that_another_process_has_now_is_another_driver(queue: Queue) -> None:
    assert queue.claim("job")
    node, process, *_ = queue.owner.split(":")
    sql(queue.store, f"UPDATE jobs SET owner = '{node}:{process}:1:ab'")  # began at another time
    assert other(queue).claim("job")


def test_a_lease_on_another_machine_ends_with_its_time(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    assert queue.claim("job")
    sql(queue.store, "UPDATE jobs SET owner = 'elsewhere:1:1:ab'")
    assert not other(queue).claim("job")
    later = time.time() + queues.LEASE + 1
    monkeypatch.setattr(queues.time, "time", lambda: later)
    assert other(queue).claim("job")
