"""Turns of the event loop: who is heard when hundreds are ready."""

from __future__ import annotations

import socket
from collections import Counter
from contextlib import ExitStack
from selectors import EVENT_READ

from calipers.service.turns import FairSelector


def test_what_is_new_comes_first_and_everyone_has_a_turn() -> None:
    with ExitStack() as opened, FairSelector() as selector:
        listener = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        selector.register(listener, EVENT_READ)
        busy = []
        for _ in range(50):
            client = opened.enter_context(socket.create_connection(listener.getsockname()))
            server = opened.enter_context(listener.accept()[0])
            client.sendall(b"x")
            selector.register(server, EVENT_READ)
            busy.append(server)
        assert len(selector.select(1)) == 50  # all are new
        late = opened.enter_context(socket.create_connection(listener.getsockname()))
        turn = [key.fileobj for key, _ in selector.select(1)]
        assert turn[0] is listener
        assert len(turn) == 9
        accepted = opened.enter_context(listener.accept()[0])
        late.sendall(b"x")
        selector.register(accepted, EVENT_READ)
        assert next(key.fileobj for key, _ in selector.select(1)) is accepted
        for server in busy:  # as the loop does where a body is large: none of them is new
            selector.unregister(server)
            selector.register(server, EVENT_READ)
        assert len(selector.select(1)) == 8
        heard = Counter(key.fd for _ in range(13) for key, _ in selector.select(1))
        assert {server.fileno() for server in busy} <= set(heard)
        assert max(heard.values()) <= 3
