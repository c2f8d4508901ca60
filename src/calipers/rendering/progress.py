"""The progress of long work: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from calipers.core import SILENT, Progress
from calipers.core.errors import shorten_sentence
from calipers.rendering.tables import say

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

_QUIET = 20.0  # seconds between two lines of a log


class ProgressBar:
    """A progress bar on a terminal."""

    def __init__(self, console: Console) -> None:
        from rich import progress

        counts = progress.MofNCompleteColumn(), progress.TimeRemainingColumn()
        columns = (progress.TextColumn("{task.description}"), progress.BarColumn(), *counts)
        self.display = progress.Progress(*columns, console=console, transient=True)
        self._task: TaskID | None = None

    def start(self, label: str, total: int) -> None:
        if self._task is not None:
            self.display.remove_task(self._task)
        self._task = self.display.add_task(label, total=total or None)

    def advance(self, count: int) -> None:
        if self._task is not None:
            self.display.advance(self._task, count)


class LogLines:
    """For a log: now and then a line that says what is being done, and for how long the work has been going on."""

    def __init__(self, console: Console, quiet: float = _QUIET) -> None:
        self._console, self._quiet = console, quiet
        self._begin = time.monotonic()
        self._label, self._done, self._total = "reading", 0, 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)

    def start(self, label: str, total: int) -> None:
        self._label, self._done, self._total = shorten_sentence(label, 200), 0, total  # it may hold a name

    def advance(self, count: int) -> None:
        self._done += count

    def __enter__(self) -> LogLines:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _write(self) -> None:
        while not self._ended.wait(self._quiet):
            counts = f" ({self._done:,} of {self._total:,})" if self._total else ""
            say(self._console, f"calipers: {time.monotonic() - self._begin:.0f} s: {self._label}{counts}")


@contextmanager
def bar(console: Console, *, logs: bool = False) -> Iterator[Progress]:
    """On a terminal; elsewhere lines of a log, if requested."""
    if not console.is_terminal:
        with LogLines(console) if logs else nullcontext(SILENT) as progress:
            yield progress
        return
    shown = ProgressBar(console)
    with shown.display:
        yield shown
