"""Files that are whole or not there, and the versions of packages."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from types import FrameType

_WRITES = count()  # several threads may write to one path at the same time
_PART = re.compile(r"\..+\.(\d+)(?:-\d+)?\.part")


@contextmanager
def whole_file(path: Path, *, flush: bool = True) -> Iterator[Path]:
    """A place beside `path` to write to. It is flushed to the disk (unless the caller has done so) and moved to `path`,
    or deleted after an error. A device or a pipe is written to as it is."""
    if _is_stream(path):
        with held_open(path):
            yield path
        return
    part = _part(path)
    try:
        yield part
        if flush:
            sync_file(part)
        part.replace(path)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)  # also after a move: renaming to another link of the same file does nothing


def sync_file(path: Path) -> None:
    """Make the content of a file last beyond a loss of power."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Keep Ctrl-C waiting while several files that belong together are put into their places. Only the main thread is
    ever interrupted. A mask of signals would not do: another thread takes the signal and Python passes it on."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    waiting: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: waiting.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if waiting:
            before(*waiting[0])


def sync_folder(folder: Path) -> None:
    """Make what was moved into a folder last beyond a loss of power, where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def held_open(path: Path) -> Iterator[None]:
    """Hold a device or a pipe open while it is written to; nothing is done for a file. Whoever opens a pipe that nobody
    reads from waits for ever, unless by this flag."""
    if not _is_stream(path):
        yield
        return
    try:
        handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        why = "nobody reads from it" if error.errno == errno.ENXIO else error.strerror
        raise OSError(error.errno, why, str(path)) from error
    try:
        yield
    finally:
        os.close(handle)


def _is_stream(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()


def _part(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}-{next(_WRITES)}.part")


def part_owner(path: Path) -> int | None:
    """The process that writes or wrote an unfinished file or folder; None for any other."""
    match = _PART.fullmatch(path.name)
    return int(match[1]) if match else None


def remove_parts(folder: Path, process: int) -> None:
    """Delete what a process that was killed left unfinished below a folder."""
    for path in [path for path in folder.rglob(".*.part") if part_owner(path) == process]:
        remove(path)


def remove(path: Path) -> None:
    """Delete a file or a folder, as far as it can be."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return
    with suppress(OSError):
        path.unlink(missing_ok=True)


def write_whole(path: Path, content: str) -> None:
    """A text file, complete or not there."""
    with whole_file(path) as part:
        part.write_text(content, encoding="utf-8", errors="backslashreplace")  # of names that are not UTF-8


def size_of(path: Path | str) -> int:
    """Bytes of a regular file; 0 where there is none, none any more, or a link that leads nowhere."""
    with suppress(OSError):
        facts = os.stat(path)
        return facts.st_size if stat.S_ISREG(facts.st_mode) else 0
    return 0


def check_place(path: Path) -> str | None:
    """Why a file cannot be written to this place; None where it can. Nothing is left behind."""
    if path.is_dir():
        return "it is a folder"
    if not path.absolute().parent.is_dir():
        return "there is no such folder"
    if _is_stream(path):
        return None if os.access(path, os.W_OK) else "it may only be read"
    part = _part(path)
    try:
        with part.open("xb"):
            pass
        part.unlink()
    except OSError as error:
        return error.strerror or type(error).__name__
    if path.exists() and not os.access(path, os.W_OK):
        return "it may only be read"
    return None


# ONNX Runtime's builds, each under a name of its own.
ONNX_RUNTIMES = ("onnxruntime", *(f"onnxruntime-{build}" for build in ("gpu", "directml", "openvino", "qnn")))


def package_versions(*packages: str) -> dict[str, str]:
    """Package → version; those that are not installed are left out."""
    from importlib import metadata  # here, because it takes as long to import as two stored runs take to read

    versions = {}
    for package in packages:
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions
