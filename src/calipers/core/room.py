"""Arrays that may be larger than what memory should hold."""

from __future__ import annotations

import ctypes
import math
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

_IN_MEMORY = 1 << 25  # bytes
_M_MMAP_THRESHOLD = -3  # of malloc.h
_APART, _TOGETHER = 1 << 20, 1 << 25  # bytes; glibc comes to the second by itself


def give_back() -> None:
    """What was freed goes back to the system, where the C library keeps it for later (glibc)."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


@contextmanager
def large_arrays_apart() -> Iterator[None]:
    """Arrays that are made inside have pages of their own from 1 MB on, which go back to the system with them: the C
    library would keep them for later (glibc). For work whose arrays are large and few: fresh pages cost time."""
    _set_threshold(_APART)
    try:
        yield
    finally:
        _set_threshold(_TOGETHER)


def _set_threshold(size: int) -> None:
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, size)


def make_room(shape: tuple[int, ...], kind: DTypeLike) -> NDArray[Any]:
    """An array to be filled: in memory, or a large one in a temporary file that is mapped and goes with the array, if
    the disk has room for it."""
    size = math.prod(shape) * np.dtype(kind).itemsize
    if size > _IN_MEMORY and hasattr(os, "posix_fallocate"):
        try:
            with tempfile.TemporaryFile() as file:
                os.posix_fallocate(file.fileno(), 0, size)  # a page that finds no room would end the process
                return np.asarray(np.memmap(file, kind, "r+", shape=shape))
        except OSError:
            pass
    return np.empty(shape, kind)
