"""Contestants that take turns, with the machine's rate of matrix products before and after each."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from calipers.metrics.threads import available_cores

_IDLE = 0.1  # seconds that threads of BLAS look for more work after a product, on a core that a contestant needs


def sgemm_rate(size: int = 1024, repeats: int = 5) -> float:
    """GFLOP/s of a float32 matrix product on all cores, the best of numpy's and, where it is loaded, PyTorch's."""
    square = np.random.default_rng(0).random((size, size), dtype=np.float32)
    products: list[Callable[[], Any]] = [lambda: square @ square]
    if "torch" in sys.modules:
        torch: Any = sys.modules["torch"]
        torch.set_num_threads(available_cores())
        tensor = torch.from_numpy(square)
        products.append(lambda: tensor @ tensor)
    times = []
    for product in products:
        product()
        for _ in range(repeats):
            start = time.perf_counter()
            product()
            times.append(time.perf_counter() - start)
    time.sleep(_IDLE)
    return 2 * size**3 / min(times) / 1e9


def anonymous_mb() -> float:
    """What the process holds for itself: pages of a mapped file belong to the file."""
    line = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert line, "this system does not say RssAnon"
    return int(line[1]) / 1024


class Peak(threading.Thread):
    """The highest anonymous memory, looked at every 20 ms: more often, and the looking slows what it looks at."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.before = self.highest = anonymous_mb()
        self.done = threading.Event()

    def __enter__(self) -> Peak:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.join()
        self.highest = max(self.highest, anonymous_mb())

    @property
    def added(self) -> float:
        return self.highest - self.before

    def run(self) -> None:
        while not self.done.wait(0.02):
            self.highest = max(self.highest, anonymous_mb())


@dataclass(frozen=True)
class Turn:
    """One contestant in one round: its seconds, the rate around it in GFLOP/s (the higher one of before and after: what
    else runs can only lower it), its memory in MB, what it gave."""

    seconds: float
    rate: float
    memory: float
    result: Any


Turns = Mapping[str, list[Turn]]


def take_turns(contestants: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[Turn]]:
    """Every round runs each once, so that what else runs on the machine slows them all alike."""
    turns: dict[str, list[Turn]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, work in contestants.items():
            turns[name].append(measure_turn(work))
    return turns


def measure_turn(work: Callable[[], Any]) -> Turn:
    before = sgemm_rate()
    with Peak() as peak:
        start = time.perf_counter()
        result = work()
        seconds = time.perf_counter() - start
    return Turn(seconds, max(before, sgemm_rate()), peak.added, result)


def seconds_of(turns: list[Turn]) -> float:
    return median(turn.seconds for turn in turns)


def ratio_of(theirs: list[Turn], ours: list[Turn]) -> float:
    """Their seconds over ours, the median over the rounds."""
    return median(their.seconds / our.seconds for their, our in zip(theirs, ours, strict=True))


def share_of(turns: list[Turn], gflop: float) -> float:
    """Of the rate around each turn, the median over the rounds."""
    return median(gflop / turn.seconds / turn.rate for turn in turns)


def limit_of(turns: list[Turn]) -> str:
    """What shares are of, with the lowest and the highest rate of the rounds: where they are far apart, a ratio says
    more than a share."""
    rates = [turn.rate for turn in turns]
    return f"sgemm at {min(rates):.0f}–{max(rates):.0f} GFLOP/s"
