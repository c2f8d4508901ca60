"""Large arrays are in a file that is mapped, and in memory where there is no room for one."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import numpy as np
import pytest

from calipers.core import room


@pytest.mark.parametrize("is_full", [False, True])
def test_an_array_is_filled_and_read_wherever_it_is(is_full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(room, "_IN_MEMORY", 100)
    if is_full:
        monkeypatch.setattr(os, "posix_fallocate", refuse)
    array = room.make_room((50, 3), np.float32)
    array[:] = np.arange(150).reshape(50, 3)
    assert type(array) is np.ndarray
    assert isinstance(array.base, np.memmap) is not is_full
    assert array.sum() == 149 * 75
    assert room.make_room((2, 3), np.float32).base is None


KEPT = """
import re
from contextlib import nullcontext
import numpy as np
from calipers.core.room import large_arrays_apart

def anonymous():
    return int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024

np.empty((1 << 22) - 4096)  # almost 32 MB, freed: from here on glibc has smaller arrays in its heap
for way in (nullcontext, large_arrays_apart):
    before = anonymous()
    with way():
        arrays = [np.ones(1 << 19) for _ in range(30)]  # of 4 MB
        del arrays[:-1]  # the last one lies behind what is free
    print(round(anonymous() - before))
    del arrays
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's malloc is what keeps freed memory")
def test_large_arrays_go_back_to_the_system() -> None:
    """30 arrays of 4 MB, all but one freed: with the heap they stay, with pages of their own they do not."""
    done = subprocess.run([sys.executable, "-c", KEPT], capture_output=True, text=True, check=True)
    kept, apart = map(int, done.stdout.split())
    assert kept > 100
    assert apart < 20
