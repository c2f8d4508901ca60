"""How many threads there are, and how many the libraries that multiply matrices may use."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController


def available_cores() -> int:
    """The cores this process may use, which a container often limits."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# PyTorch's number of threads is a setting of the process: the first to enter saves it, the last to leave restores it.
_THREADS_LOCK = threading.Lock()
_THREADS_BEFORE: list[int] = []  # the same number once per holder


@contextmanager
def torch_threads(number: int) -> Iterator[None]:
    """PyTorch on so many threads. Nothing is set where PyTorch is not loaded."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    with _THREADS_LOCK:
        _THREADS_BEFORE.append(_THREADS_BEFORE[0] if _THREADS_BEFORE else torch.get_num_threads())
        torch.set_num_threads(number)
    try:
        yield
    finally:
        with _THREADS_LOCK:
            before = _THREADS_BEFORE.pop()
            if not _THREADS_BEFORE:
                torch.set_num_threads(before)


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Every matrix product on one thread, for work that is divided among threads already."""
    with _libraries().limit(limits=1, user_api="blas"), torch_threads(1):
        yield


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()
