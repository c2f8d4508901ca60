"""Kill trials: results are the same bytes, at most a shard per worker is computed again, the store is whole."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.kills import STEPS, Outcome, Trial, write_trial
from tests.support.sweeps import finish

WORKERS = 2


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory, minilm: Path) -> tuple[Path, Outcome]:
    """A registry, and what an undisturbed sweep of it gives."""
    folder = tmp_path_factory.mktemp("calm")
    registry = write_trial(folder, minilm)
    outcome = Trial(registry, folder / "store").finish()
    assert (outcome.integrity, outcome.runs, outcome.repeated) == ("ok", 2, 0)
    assert len(outcome.shards) == 12  # of two models: 10,000 documents and the queries
    return registry, outcome


def check(outcome: Outcome, calm: Outcome) -> None:
    assert outcome.digest == calm.digest
    assert outcome.integrity == "ok"
    assert outcome.runs == 2
    assert outcome.shards.keys() == calm.shards.keys()
    assert outcome.repeated <= WORKERS * outcome.kills
    print(f"trial: {outcome.kills} kills, {outcome.repeated} shards again")  # what docs/reliability.md counts


@pytest.mark.parametrize("points", [("driver:after:commit:6",), ("driver:before:fsync:1", "worker:before:rename:3")])
def test_a_few_kills_change_no_byte(calm: tuple[Path, Outcome], tmp_path: Path, points: tuple[str, ...]) -> None:
    """The short form; each kill in a run of its own."""
    trial = Trial(calm[0], tmp_path / "store")
    for number, point in enumerate(points, start=1):
        trial.inject(point)
        assert trial.kills == number, point
    check(trial.finish(), calm[1])


@pytest.mark.slow
@pytest.mark.parametrize("number", range(60))
def test_injected_kills_change_no_byte(calm: tuple[Path, Outcome], tmp_path: Path, number: int) -> None:
    side, step = STEPS[number % len(STEPS)]
    role = "driver" if step == "commit" else ("driver", "worker")[number // len(STEPS) % 2]  # workers have no database
    trial = Trial(calm[0], tmp_path / "store")
    trial.inject(f"{role}:{side}:{step}:{1 + number // (2 * len(STEPS)) % 3}")
    assert trial.kills == 1
    check(trial.finish(), calm[1])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_random_kills_change_no_byte(calm: tuple[Path, Outcome], tmp_path: Path, seed: int) -> None:
    """Five kills each, of the driver (with SIGKILL or SIGTERM) or of a worker: in one sweep after the other, since a
    sweep may end before it is killed."""
    rng, kills, sweeps = random.Random(seed), 0, 0
    while kills < 5:
        trial, running = Trial(calm[0], tmp_path / f"store{sweeps}"), True
        while running and kills + trial.kills < 5:
            kind, seconds = rng.choice(["driver", "driver", "worker", "term"]), rng.uniform(0.8, 4.0)
            if kind == "worker":
                trial.kill_worker(seconds)
                running = False  # the driver went on to the end
            else:
                running = trial.kill_driver(seconds, signal.SIGTERM if kind == "term" else signal.SIGKILL)
        kills, sweeps = kills + trial.kills, sweeps + 1
        check(trial.finish(), calm[1])


@pytest.mark.slow
def test_a_full_disk_changes_no_byte(calm: tuple[Path, Outcome], tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)], check=False).returncode
    if mounted:
        pytest.skip("a small tmpfs cannot be mounted here: that needs the rights of root")
    try:
        trial = Trial(calm[0], disk / "store")
        process = trial.start()
        while not list(disk.glob("store/sweeps/shards/*/*.npz")) and process.poll() is None:
            time.sleep(0.01)
        fill(disk / "filler")
        code, _, err = finish(process, 180)
        assert code == 2, err
        assert "full" in err or "space" in err
        (disk / "filler").unlink()
        trial.kills = 1
        check(trial.finish(), calm[1])
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def fill(path: Path) -> None:
    """Write until there is no room."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


def test_processes_append_while_others_read(tmp_path: Path) -> None:
    """The short form: 3 processes of 10 runs each; the whole is in the slow tests."""
    append_and_read(tmp_path, writers=3, each=10, readers=1)


@pytest.mark.slow
def test_sixteen_processes_append_to_a_store_on_disk(tmp_path: Path) -> None:
    append_and_read(tmp_path, writers=16, each=50, readers=4)


@pytest.mark.slow
def test_sixteen_processes_of_two_thousand_appends_and_four_readers(tmp_path: Path) -> None:
    """In memory, where Linux has a place for it: on a disk its flushes, of which an append needs four, are the time."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder:
        append_and_read(Path(folder), writers=16, each=2_000, readers=4)


WRITER = """
import sys
from pathlib import Path
from dataclasses import replace
from calipers.runs.store import Store
from tests.support.stores import BASE
store, number, each = Store(Path(sys.argv[1])), sys.argv[2], int(sys.argv[3])
for i in range(each):
    store.save(replace(BASE, run_id=f"20260101-000000-{number}-{i}"), f"key-{number}-{i}")
"""
READER = """
import sys
from pathlib import Path
from calipers.runs.store import Store
store, seen = Store(Path(sys.argv[1])), 0
while not Path(sys.argv[2]).exists():
    lines = store.list()
    assert len(lines) >= seen, (len(lines), seen)
    seen = len(lines)
    assert seen == 0 or store.load(lines[0].run_id).metrics
"""


def append_and_read(folder: Path, *, writers: int, each: int, readers: int) -> None:
    import sys

    from calipers.runs.store import Store

    store, stop = folder / "store", folder / "stop"
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}

    def start(code: str, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", code, str(store), *words], env=environment, stderr=subprocess.PIPE, text=True
        )

    writing = [start(WRITER, str(number), str(each)) for number in range(writers)]
    reading = [start(READER, str(stop)) for _ in range(readers)]
    for process in writing:
        _, err = process.communicate(timeout=3000)
        assert process.returncode == 0, err
    stop.touch()
    for process in reading:
        _, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
    ids = [line.run_id for line in Store(store).list()]
    assert len(ids) == len(set(ids)) == writers * each


@pytest.mark.slow
def test_two_drivers_share_the_work_of_one_registry(calm: tuple[Path, Outcome], tmp_path: Path) -> None:
    trial = Trial(calm[0], tmp_path / "store")
    processes = [trial.start() for _ in range(2)]
    outputs: list[str] = []
    threads = [threading.Thread(target=lambda p=p: outputs.append(finish(p, 180)[1])) for p in processes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {json.loads(out)["digest"] for out in outputs} == {calm[1].digest}
    check(trial.finish(), calm[1])  # no kill, so no shard twice
