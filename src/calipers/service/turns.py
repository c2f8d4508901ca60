"""Turns of the event loop: under overload a new connection is heard before the hundreds that are already served.

A loop handles everything that is ready in one turn, and a request takes some turns to be accepted, read and answered.
With hundreds of busy connections a turn takes a tenth of a second, and /healthz several of them. Here a turn takes the
listener, connections that have not been heard yet and a few of the others, each of which has its turn in the end.
"""

from __future__ import annotations

import asyncio
import selectors
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

_OTHERS = 8  # connections that have been heard before, in one turn

Ready = list[tuple[selectors.SelectorKey, int]]


class FairSelector(selectors.DefaultSelector):
    """Everything that is ready where that is little; else what is new, and a few of the others by turns."""

    def __init__(self) -> None:
        super().__init__()
        self._first: set[int] = set()  # listeners, and the pipe by which threads wake the loop
        self._heard: dict[int, int] = {}  # the turn in which a connection was heard last
        self._peers: dict[int, object] = {}  # a large body makes the loop register a connection again
        self._turn = 0

    def register(self, fileobj: FileDescriptorLike, events: int, data: object = None) -> selectors.SelectorKey:
        key = super().register(fileobj, events, data)
        peer = _peer_of(key.fd)
        if peer is None:
            self._first.add(key.fd)
        else:
            self._first.discard(key.fd)
        if peer is None or self._peers.get(key.fd) != peer:
            self._heard.pop(key.fd, None)
        self._peers[key.fd] = peer
        return key

    def select(self, timeout: float | None = None) -> Ready:
        ready = super().select(timeout)
        self._turn += 1
        if len(ready) > _OTHERS:
            ready = self._choose(ready)
        for key, _ in ready:
            if key.fd not in self._first:
                self._heard[key.fd] = self._turn
        return ready

    def _choose(self, ready: Ready) -> Ready:
        """The one that waits longest is heard before the others."""
        new = [pair for pair in ready if pair[0].fd in self._first or pair[0].fd not in self._heard]
        others = [pair for pair in ready if pair[0].fd in self._heard]
        others.sort(key=lambda pair: self._heard[pair[0].fd])
        return [*new, *others[:_OTHERS]]


def _peer_of(descriptor: int) -> object:
    """Who is at the other end of a connection; None for what comes first: a listener, a pipe."""
    try:
        end = socket.socket(fileno=descriptor)
    except OSError:  # no socket
        return None
    try:
        accepts = end.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        return end.getpeername() if not accepts and end.family in (socket.AF_INET, socket.AF_INET6) else None
    except OSError:  # it has left
        return ("", descriptor)
    finally:
        end.detach()


def new_loop() -> asyncio.AbstractEventLoop:
    return asyncio.SelectorEventLoop(FairSelector())
