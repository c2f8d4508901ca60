"""Contestants in processes of their own, made before anything is computed."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

_CONTEXT = multiprocessing.get_context("fork")


class OwnProcesses:
    """So many processes, each for one call. They are forked when this is made: what is imported, loaded and computed
    here afterwards is not in them, as if an interpreter had been started for each."""

    def __init__(self, count: int) -> None:
        self._waiting: list[tuple[Any, Connection]] = []
        for _ in range(count):
            here, there = _CONTEXT.Pipe()
            process = _CONTEXT.Process(target=_answer, args=(there,), daemon=True)
            process.start()
            there.close()
            self._waiting.append((process, here))

    def run(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """What `work(*arguments)` returns there."""
        process, connection = self._waiting.pop()
        connection.send((work, arguments))
        result = connection.recv()
        process.join()
        return result


def _answer(connection: Connection) -> None:
    """Standard error goes nowhere: models that are loaded draw progress bars there."""
    parent = os.getppid()
    while not connection.poll(1.0):
        if os.getppid() != parent:
            return
    work, arguments = connection.recv()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    connection.send(work(*arguments))
