"""Running sums and rows in another order, in arrays that a thread keeps for the next call."""

from __future__ import annotations

import mmap
import threading
from contextlib import suppress

import numpy as np
from numpy.typing import DTypeLike, NDArray

from calipers.metrics.arrays import Array, Floats, slices

_LARGE = 6 << 20  # bytes, of 800,000 examples or so; smaller ones malloc has at hand
_BLOCK = 16  # rows of a running sum: each is a call of numpy, after which threads wait for each other
_PLACES = 1 << 16  # that are looked up at a time

_BUFFERS = threading.local()  # its dictionary is of each thread: bytes by name


def scratch(name: str, shape: tuple[int, ...], kind: DTypeLike) -> Floats:
    """An array of this thread, used again under its name, since fresh pages cost more than what is done with them. Its
    content is undefined and overwritten by the next call under that name: it is not for results."""
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    buffers: dict[str, NDArray[np.uint8]] = vars(_BUFFERS)
    if name not in buffers or len(buffers[name]) < size:
        buffers.pop(name, None)
        buffers[name] = _pages(size) if size >= _LARGE else np.empty(size, np.uint8)
    return buffers[name][:size].view(kind).reshape(shape)


def _pages(size: int) -> NDArray[np.uint8]:
    """Pages of their own, which go back to the system with the thread: malloc would keep those of a thread that ended,
    beside what the next one takes."""
    if not (hasattr(mmap, "MAP_PRIVATE") and hasattr(mmap, "MADV_HUGEPAGE")):
        return np.empty(size, np.uint8)
    pages = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # of a system without huge pages
        pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, np.uint8)


def forget_scratch() -> None:
    """This thread's arrays are not needed for now."""
    vars(_BUFFERS).clear()


def take_rows(rows: Floats, places: Array, name: str) -> Floats:
    """rows[places], in scratch. Places are whole numbers of any size: numpy widens them, a part at a time."""
    taken = scratch(name, (len(places), rows.shape[1]), rows.dtype)
    for part in slices(len(places), _PLACES):
        np.take(rows, places[part], axis=0, out=taken[part], mode="clip")
    return taken


def running_sum(rows: Floats) -> Floats:
    """np.cumsum(rows, axis=0), four times faster: whole rows are added at once, inside blocks and then across them."""
    return run_up(rows, "sums").copy()


def run_up(rows: Floats, name: str) -> Floats:
    """The same, in scratch."""
    n, width = rows.shape
    padded = scratch(name, (-(-n // _BLOCK) * _BLOCK, width), rows.dtype)
    padded[:n] = rows
    padded[n:] = 0.0
    blocks = padded.reshape(-1, _BLOCK, width)
    for i in range(1, _BLOCK):
        blocks[:, i] += blocks[:, i - 1]
    blocks[1:] += np.cumsum(blocks[:-1, -1], axis=0)[:, None]
    return padded[:n]
