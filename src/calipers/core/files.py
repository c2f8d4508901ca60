"""Files that are whole or not there, and the versions of packages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

_WRITES = count()  # several threads may write to one path at the same time


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A place beside `path` to write to. It is flushed to the disk and moved to `path`, or deleted after an error."""
    part = path.with_name(f".{path.name}.{os.getpid()}-{next(_WRITES)}.part")
    try:
        yield part
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)  # also after a move: renaming to another link of the same file does nothing


def write_whole(path: Path, content: str) -> None:
    """A text file, complete or not there."""
    with whole_file(path) as part:
        part.write_text(content, encoding="utf-8")


def package_versions(*packages: str) -> dict[str, str]:
    """Package → version; those that are not installed are left out."""
    from importlib import metadata  # here, because it takes as long to import as two stored runs take to read

    versions = {}
    for package in packages:
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions
