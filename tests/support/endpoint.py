"""A real embeddings server on this machine, which embeds texts by their character trigrams."""

from __future__ import annotations

import json
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np


def trigrams(text: str) -> list[float]:
    counts = [0.0] * 16
    for i in range(len(text) - 2):
        counts[zlib.crc32(text[i : i + 3].encode()) % 16] += 1.0
    return counts


def expected(texts: list[str]) -> np.ndarray:
    return np.array([trigrams(text) for text in texts], dtype=np.float32)


@dataclass
class Reply:
    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    lost: int = 0  # bytes that are promised and not sent
    stalls: bool = False


class Endpoint(ThreadingHTTPServer):
    """Both protocols. `replies` are given first, one a request; `spoil(texts, vectors)` changes what is answered."""

    daemon_threads = False  # server_close() waits for them

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self.server_port}"
        self.url = f"http://{self.host}"
        self.paths = ["/v1/embeddings", "/embed"]
        self.replies: list[Reply] = []
        self.every: Reply | None = None
        self.spoil: Callable[[list[str], list[Any]], list[Any]] = lambda texts, vectors: vectors
        self.requests: list[Handler] = []
        self.limit: int | None = None  # words of a text that are read, where the server reports it as TEI does
        self.released = threading.Event()

    def reply(self, path: str, body: dict[str, Any]) -> Reply:
        if self.replies or self.every:
            return self.replies.pop(0) if self.replies else self.every or Reply()
        if self.limit and path == "/tokenize":
            return Reply(
                body=json.dumps([[{"text": word} for word in text.split()] for text in body["inputs"]]).encode()
            )
        if path not in self.paths:
            return Reply(404, b"no such path")
        texts = body["inputs" if path == "/embed" else "input"]
        if self.limit and path == "/embed":
            longest = max(len(text.split()) for text in texts)
            if longest > self.limit and not body["truncate"]:
                message = f"Input validation error: `inputs` must have less than {self.limit} tokens. Given: {longest}"
                return Reply(413, json.dumps({"error": message, "error_type": "Validation"}).encode())
            texts = [" ".join(text.split()[: self.limit]) for text in texts]
        vectors = self.spoil(texts, [trigrams(text) for text in texts])
        rows = [{"index": i, "embedding": vector} for i, vector in enumerate(vectors)]
        return Reply(body=json.dumps(vectors if path == "/embed" else {"data": rows[::-1]}).encode())


class Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        self.when = time.monotonic()
        self.body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(self)
        self.answer(self.server.reply(self.path.partition("?")[0], self.body))

    def do_GET(self) -> None:
        reported = self.path == "/info" and self.server.limit
        self.answer(
            Reply(body=json.dumps({"max_input_length": self.server.limit}).encode()) if reported else Reply(404)
        )

    def answer(self, reply: Reply) -> None:
        if reply.stalls:
            self.server.released.wait(10)
            return
        self.send_response(reply.status)
        for name, value in {"Content-Length": str(len(reply.body) + reply.lost), **reply.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(reply.body)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serving() -> Iterator[Endpoint]:
    with Endpoint() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.released.set()
            server.shutdown()
            thread.join()
