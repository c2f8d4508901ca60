"""A server that answers every request badly, in the way that the first part of the path names."""

from __future__ import annotations

import gzip
import json
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


class Handler(BaseHTTPRequestHandler):
    turn = 0

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        kind = self.path.split("/")[1].split("?")[0]
        try:
            getattr(self, f"answer_{kind}", self.answer_text)()
        except OSError:
            self.close_connection = True

    def _send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def answer_drip(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "100000")
        self.end_headers()
        for _ in range(600):
            self.wfile.write(b" ")
            time.sleep(0.1)

    def answer_continue(self) -> None:
        for _ in range(600):
            self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            time.sleep(0.1)

    def answer_headers(self) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 5_000)

    def answer_later(self) -> None:
        self._send(429, b"busy", Retry_After="99999")

    def answer_cut(self) -> None:
        self._send(200, b"[[1", Content_Length="500")

    def answer_html(self) -> None:
        self._send(200, b"<html>\x1b[31m</html>")

    def answer_deep(self) -> None:
        self._send(200, b"[" * 200_000)

    def answer_huge(self) -> None:
        self._send(200, b"[[" + b"1" * 400 + b"]]")

    def answer_nan(self) -> None:
        self._send(200, b"[[NaN, 1e999, null]]")

    def answer_echo(self) -> None:
        said = {"path": self.path, "you": str(self.headers), "login": "user:S3CRET"}
        self._send(400, json.dumps(said).encode())

    def answer_redirect(self) -> None:
        self._send(302, b"", Location="http://127.0.0.1:1/S3CRET")

    def answer_short(self) -> None:
        self._send(200, b"[[1.0]]")

    def answer_nothing(self) -> None:
        self.close_connection = True

    def answer_gzip(self) -> None:
        self._send(200, gzip.compress(b"[[1]]"), Content_Encoding="gzip")

    def answer_wide(self) -> None:
        self._send(200, json.dumps([[0.5] * 100_000] * 3).encode())

    def answer_zero(self) -> None:
        self._send(200, json.dumps([[0.0] * 8]).encode())

    def answer_flip(self) -> None:
        """Vectors of another width each time."""
        Handler.turn += 1
        self._send(200, json.dumps({"data": [{"index": 0, "embedding": [1.0] * (4 + Handler.turn % 3)}]}).encode())

    def answer_endless(self) -> None:
        """Chunks without an end, as fast as they are taken."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for _ in range(20_000):
            self.wfile.write(b"10000\r\n" + b" " * 0x10000 + b"\r\n")

    def answer_strange(self) -> None:
        """An answer that is no HTTP."""
        self.wfile.write(b"ICY 200 \x1b[31mOK S3CRET\r\nContent-Length: -5\r\n\r\n[[1]]")

    def answer_bomb(self) -> None:
        self._send(200, gzip.compress(b" " * 300_000_000, 1), Content_Encoding="gzip")

    def answer_index(self) -> None:
        rows = [{"index": i, "embedding": [1.0, 2.0]} for i in (0, 0, -1, 2**63, None, "1")]
        self._send(200, json.dumps({"data": rows}).encode())

    def answer_base64(self) -> None:
        rows = [{"index": i, "embedding": code} for i, code in enumerate(("AAAA", "!!!!", "", "AACAPwAAgD8=", "\x00"))]
        self._send(200, json.dumps({"data": rows}).encode())

    def answer_failure(self) -> None:
        self._send(500, b"\x1b]0;x\x07" + b"user:S3CRET " * 5_000 + "\u202e".encode())

    def answer_loop(self) -> None:
        self._send(307, b"", Location=self.path)

    def answer_empty(self) -> None:
        self._send(204, b"")

    def answer_chunk(self) -> None:
        Handler.turn += 1
        size = (b"zz", b"-5", b"f" * 16, b"1;" + b"a" * 100_000)[Handler.turn % 4]
        self.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + size + b"\r\n[\r\n")

    def answer_date(self) -> None:
        Handler.turn += 1
        late = ("Fri, 31 Dec 9999 23:59:59 GMT", "-5", "nan", "inf", "9" * 500)
        self._send(503, b"", Retry_After=late[Handler.turn % 5])

    def answer_length(self) -> None:
        Handler.turn += 1
        length = (b"-1", b"abc", b"9" * 30, b"2\r\nContent-Length: 50")[Handler.turn % 4]
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: " + length + b"\r\n\r\n[]")

    def answer_status(self) -> None:
        Handler.turn += 1
        status = (b"1.1 000 ", b"1.1 999 \x1b[31m", b"1.1 abc OK", b"9.9 200 OK", b"1.1 101 X")[Handler.turn % 5]
        self.wfile.write(b"HTTP/" + status + b"\r\nContent-Length: 2\r\n\r\n[]")

    def answer_rows(self) -> None:
        """More rows than texts, each of them whole."""
        self._send(200, json.dumps({"data": [{"index": i, "embedding": [1.0, 2.0]} for i in range(500)]}).encode())

    def answer_numbers(self) -> None:
        Handler.turn += 1
        vector = (f"[1{'0' * 400}, 2]", "[true, false]", '["1", "2"]', "[[[1]]]", "[1e300, 1]", "null")[
            Handler.turn % 6
        ]
        self._send(200, f'{{"data": [{{"index": 0, "embedding": {vector}}}]}}'.encode())

    def answer_mark(self) -> None:
        self._send(200, b"\xef\xbb\xbf[[1, 2]] trailing", Content_Type="application/json; charset=utf-99")

    def answer_file(self) -> None:
        self._send(302, b"", Location="file:///etc/passwd")

    def answer_reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def answer_many(self) -> None:
        self.wfile.write(b"HTTP/1.1 102 Processing\r\n\r\n" * 5_000 + b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000)

    def answer_text(self) -> None:
        self._send(200, b'{"data": [{"index": "a", "embedding": "b"}]}')

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def hostile_server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
