"""How many threads there are, and how many the libraries that multiply matrices may use."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import cache
from typing import TypeVar

from threadpoolctl import ThreadpoolController

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def available_cores() -> int:
    """The cores this process may use, which a container often limits."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_PERMITTED: ContextVar[int | None] = ContextVar("permitted threads", default=None)


@contextmanager
def at_most(threads: int | None) -> Iterator[None]:
    """Searches, matrix products and tokenizers inside use so many threads; None leaves what is set."""
    if threads is None:
        yield
        return
    token = _PERMITTED.set(threads)
    try:
        with ThreadpoolController().limit(limits=threads, user_api="blas"), tokenizer_threads(threads):
            yield
    finally:
        _PERMITTED.reset(token)


@contextmanager
def tokenizer_threads(number: int) -> Iterator[None]:
    """Tokenizers on so many threads, unless the user's environment decides. More than one is a setting of the process,
    which their library reads once, when it first needs threads."""
    name, value = ("TOKENIZERS_PARALLELISM", "false") if number == 1 else ("RAYON_NUM_THREADS", str(number))
    if name in os.environ:
        yield
        return
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name, None)


def permitted_threads() -> int:
    """As many threads as a search may use: those that were permitted, else one for each core."""
    return _PERMITTED.get() or available_cores()


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


def on_threads(work: Callable[[Item], Answer], items: Sequence[Item], threads: int) -> list[Answer]:
    """What `work` gives for each item, in order, on so many threads, with every matrix product inside on one, and with
    the settings of the caller (`np.errstate`, `at_most`). Work that is divided once more stays on its thread."""
    if min(threads, len(items)) <= 1 or _DIVIDED.get():
        return [work(item) for item in items]
    contexts = [copy_context() for _ in items]
    for context in contexts:
        context.run(_DIVIDED.set, True)
    with one_thread_each():
        return list(_pool(threads, os.getpid()).map(lambda item, context: context.run(work, item), items, contexts))


_DIVIDED: ContextVar[bool] = ContextVar("divided among threads", default=False)


@cache
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Threads that wait for work: to start them takes as long as a matrix product. A process that was forked from
    another has none of them, and starts its own."""
    return ThreadPoolExecutor(threads, f"calipers-{process}")


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()
