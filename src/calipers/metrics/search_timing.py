"""How long the searches of a measurement take, and at what share of the rate at which the machine multiplies matrices:
a slow kernel is visible to the user whom it slows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache

import numpy as np

from calipers.metrics.threads import permitted_threads

_SIZE, _REPEATS = 768, 3  # of the product that gives the rate: 0.9 GFLOP, some milliseconds
_LONG = 0.5  # seconds of a search from which on the rate is measured again: what else runs changes it


@dataclass
class SearchWork:
    """Seconds of exact searches, and the operations that they cannot avoid: 2 × queries × rows × dimensions.
    Approximate indexes are apart: what they need depends on the data."""

    seconds: float = 0.0
    operations: float = 0.0
    index_seconds: float = 0.0

    def add(self, other: SearchWork) -> None:
        self.seconds += other.seconds
        self.operations += other.operations
        self.index_seconds += other.index_seconds

    def facts(self) -> dict[str, float]:
        """`search_seconds` and `search_share`, the share of the rate of a float32 product on the same threads, and
        `index_seconds` where approximate indexes were built and searched; nothing where nothing was searched."""
        facts = {}
        if self.seconds > 0:
            rate = measure_rate() if self.seconds > _LONG else _rate_once(permitted_threads())
            facts = {
                "search_seconds": round(self.seconds, 4),
                "search_share": round(self.operations / self.seconds / rate, 4),
            }
        return facts | ({"index_seconds": round(self.index_seconds, 4)} if self.index_seconds > 0 else {})


_COUNTED: ContextVar[SearchWork | None] = ContextVar("searches", default=None)


@contextmanager
def count_searches() -> Iterator[SearchWork]:
    """The work of all searches inside, also for the surrounding one."""
    outer, work = _COUNTED.get(), SearchWork()
    token = _COUNTED.set(work)
    try:
        yield work
    finally:
        _COUNTED.reset(token)
        if outer is not None:
            outer.add(work)


@contextmanager
def exact_part(queries: int, rows: int, dimensions: int) -> Iterator[None]:
    """A part of an exact search, by what it compares."""
    start = time.perf_counter()
    yield
    if work := _COUNTED.get():
        work.add(SearchWork(time.perf_counter() - start, 2.0 * queries * rows * dimensions))


@contextmanager
def approximate_part() -> Iterator[None]:
    """An approximate index: building and searching it."""
    start = time.perf_counter()
    yield
    if work := _COUNTED.get():
        work.add(SearchWork(index_seconds=time.perf_counter() - start))


@cache
def _rate_once(threads: int) -> float:
    return measure_rate()


def measure_rate() -> float:
    """Operations a second of numpy's float32 product, the best of a few; on as many threads as searches may use."""
    from threadpoolctl import threadpool_limits

    square = np.ones((_SIZE, _SIZE), np.float32)
    result = np.empty_like(square)
    times = []
    with threadpool_limits(permitted_threads(), user_api="blas"):
        for _ in range(1 + _REPEATS):
            start = time.perf_counter()
            np.matmul(square, square, out=result)
            times.append(time.perf_counter() - start)
    return 2.0 * _SIZE**3 / min(times[1:])
