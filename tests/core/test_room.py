"""Large arrays are in a file that is mapped, and in memory where there is no room for one."""

from __future__ import annotations

import os

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
