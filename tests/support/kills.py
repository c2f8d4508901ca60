"""Kill trials: a sweep of a small graph with six shards that is killed, started again, and compared byte by byte."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from onnx import TensorProto

from tests.support.sweeps import command, finish
from tests.support.tiny_graphs import tiny

POINTS = Path(__file__).parent / "kill_points"
STEPS = [(side, step) for step in ("write", "fsync", "rename", "commit") for side in ("before", "after")]
WORDS = ("red", "blue", "small", "large", "old", "new", "dog", "cat", "house", "car", "runs", "sleeps", "fast", "slow")
REGISTRY = """
models:
  - {id: one, reference: one/m.onnx}
  - {id: two, reference: two/m.onnx, baseline: one, pooling: max}
tasks:
  - {id: search, task: retrieval, dataset: corpus}
"""


def write_trial(folder: Path, tokenizer: Path, documents: int = 10_000) -> Path:
    """Two graphs, a corpus of five shards with 50 queries, and a registry of them."""
    for name in ("one", "two"):
        inputs = {"input_ids": TensorProto.INT64, "attention_mask": TensorProto.INT64}
        tiny(folder / name, tokenizer, inputs=inputs)
    rng = random.Random(0)
    texts = [f"{i} {' '.join(rng.choices(WORDS, k=6))}" for i in range(documents)]
    (folder / "corpus" / "qrels").mkdir(parents=True)
    for name, rows in (("corpus", texts), ("queries", texts[:50])):
        lines = (json.dumps({"_id": f"{name[0]}{i}", "text": text}) for i, text in enumerate(rows))
        (folder / "corpus" / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    grades = "".join(f"q{i}\tc{i + 1}\t1\n" for i in range(50))
    (folder / "corpus" / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{grades}", encoding="utf-8")
    path = folder / "registry.yaml"
    path.write_text(REGISTRY, encoding="utf-8")
    return path


@dataclass(frozen=True)
class Outcome:
    """What a sweep came to after its kills, and how often each shard was computed."""

    digest: str
    kills: int
    shards: Counter[str]
    integrity: str
    runs: int

    @property
    def repeated(self) -> int:
        return sum(self.shards.values()) - len(self.shards)


class Trial:
    """One store of a registry, swept until it is done, however often it is killed on the way."""

    def __init__(self, registry: Path, store: Path, workers: int = 2) -> None:
        self.registry, self.store, self.workers, self.kills = registry, store, workers, 0
        store.mkdir(parents=True)
        self._log = store.parent / f"{store.name}.shards"
        self._injected = 0

    def start(self, kill_at: str = "") -> subprocess.Popen[str]:
        path = os.pathsep.join(filter(None, [str(POINTS), os.environ.get("PYTHONPATH", "")]))
        environment = {"PYTHONPATH": path, "KILL_LOG": str(self._log), "KILL_ONCE": str(self._killed)}
        words = (
            "sweep",
            str(self.registry),
            "--store",
            str(self.store),
            "--no-latency",
            "--resamples",
            "200",
            "--json",
        )
        chosen = ("--jobs", str(self.workers))
        return command(*words, *chosen, environment={**environment, **({"KILL_AT": kill_at} if kill_at else {})})

    def finish(self) -> Outcome:
        """Run to the end, and look at what is there."""
        code, out, err = finish(self.start(), 180)
        assert code in (0, 1, 5), err
        document = json.loads(out)
        assert not any(cell["failure"] for cell in document["cells"]), document["cells"]
        with closing(sqlite3.connect(self.store / "calipers.db")) as database:
            (integrity,) = database.execute("PRAGMA integrity_check").fetchone()
            (runs,) = database.execute("SELECT COUNT(*) FROM runs").fetchone()
        lines = self._log.read_text().split() if self._log.exists() else []
        return Outcome(document["digest"], self.kills, Counter(lines), integrity, runs)

    def inject(self, point: str) -> None:
        """Run with a kill at ROLE:SIDE:STEP:NUMBER."""
        self._injected += 1
        finish(self.start(point), 180)
        self.kills += self._killed.exists()

    @property
    def _killed(self) -> Path:
        """The file that a kill leaves: each of those that are injected happens once."""
        return self.store.parent / f"{self.store.name}.killed{self._injected}"

    def kill_driver(self, seconds: float, number: int = signal.SIGKILL) -> bool:
        """Signal the driver after some time; False where it was done before."""
        process = self.start()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=seconds)
            finish(process)
            return False
        process.send_signal(number)
        finish(process)
        self.kills += 1
        return True

    def kill_worker(self, seconds: float) -> bool:
        """Kill a worker that runs, once the sweep is so old; False where none was left."""
        process = self.start()
        time.sleep(seconds)
        pattern = f"calipers.sweeps.worker {self.store.absolute()}"
        listing = subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True, check=False).stdout.split()
        for worker in listing[:1]:
            with suppress(ProcessLookupError):
                os.kill(int(worker), signal.SIGKILL)
                self.kills += 1
        finish(process, 180)
        return bool(listing)
