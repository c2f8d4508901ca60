"""The process of a job: what it leaves when it is killed."""

from __future__ import annotations

import os
from pathlib import Path

from calipers.sweeps.processes import Launch, Process


def test_a_worker_that_is_killed_leaves_nothing_unfinished(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "spec")  # it waits here for ever
    process = Process(Launch("a", str(tmp_path / "spec"), str(tmp_path / "log"), str(tmp_path), timeout=60))
    own = f".a.npy.{process.id}-3.part", f".result.{process.id}.part"
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / own[0]).touch()
    (tmp_path / own[1]).mkdir()
    (tmp_path / own[1] / "run.json").touch()
    others = f".a.npy.{process.id + 1}-3.part"
    (tmp_path / others).touch()
    process.kill()
    assert sorted(path.name for path in tmp_path.rglob("*")) == sorted((others, "log", "shards", "spec"))
