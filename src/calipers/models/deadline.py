"""Work that ends in time: requests whose connection is cut, and calls into libraries that may never return."""

from __future__ import annotations

import http.client
import socket
import threading
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from calipers.core import CalipersError
from calipers.core.errors import boundary

T = TypeVar("T")


class Deadline:
    """Connections that are cut after so many seconds, whatever they are waiting for: a timeout of a socket begins anew
    with every byte. `passed` says whether it came to that."""

    def __init__(self, seconds: float) -> None:
        self.passed = False
        self._sockets: list[socket.socket] = []
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True

    def __enter__(self) -> Deadline:
        self._timer.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._timer.cancel()
        for watched in self._sockets:
            watched.close()

    def opener(self, *handlers: urllib.request.BaseHandler) -> urllib.request.OpenerDirector:
        """An opener whose connections are cut in time."""
        return urllib.request.build_opener(_Http(self), _Https(self), *handlers)

    def connect(self, *arguments: Any, **settings: Any) -> socket.socket:
        """A connection, as `socket.create_connection` makes it. A copy is watched: TLS takes the socket over."""
        connection = socket.create_connection(*arguments, **settings)
        self._sockets.append(connection.dup())
        if self.passed:
            self._cut()
        return connection

    def _cut(self) -> None:
        self.passed = True
        for watched in self._sockets:
            with suppress(OSError):
                watched.shutdown(socket.SHUT_RDWR)

    def make(self, kind: type[http.client.HTTPConnection]) -> Callable[..., http.client.HTTPConnection]:
        def connection(*arguments: Any, **settings: Any) -> http.client.HTTPConnection:
            made = kind(*arguments, **settings)
            made._create_connection = self.connect  # type: ignore[attr-defined]
            return made

        return connection


class _Timed:
    """A handler whose connections end at a deadline."""

    def __init__(self, deadline: Deadline) -> None:
        super().__init__()
        self._deadline = deadline


class _Http(_Timed, urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(self._deadline.make(http.client.HTTPConnection), req)


class _Https(_Timed, urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(self._deadline.make(http.client.HTTPSConnection), req)


def in_time(work: Callable[[], T], seconds: float, kind: type[CalipersError], what: str) -> T:
    """What `work` returns, on a thread of its own; after so many seconds an error of this kind, and the thread is left
    to itself. A panic or any other fault is an error of this kind as well. `what` names the work."""
    results: list[T] = []
    faults: list[BaseException] = []

    def run() -> None:
        try:
            with boundary(kind, f"{what} failed"):
                results.append(work())
        except BaseException as error:
            faults.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if faults:
        raise faults[0]
    if not results:
        raise kind(f"{what} did not end in {seconds:.0f} seconds")
    return results[0]
