"""A file, a folder or a hub id to a Dataset: typed columns, an id per row, a fingerprint of both.

What reads data is imported when it is needed: stored runs are compared without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from calipers.data.choose import DataOptions

if TYPE_CHECKING:
    from calipers.data.api import load_dataset as load_dataset, load_rows as load_rows, sample as sample

_READING = ("load_dataset", "load_rows", "sample")

__all__ = ["DataOptions", *_READING]


def __getattr__(name: str) -> Any:
    if name not in _READING:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from calipers.data import api

    return getattr(api, name)
