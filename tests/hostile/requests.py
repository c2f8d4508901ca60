"""Hostile requests to `calipers serve`: bodies, headers and bytes that are no HTTP. Each is what is sent on a socket."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from tests.hostile.documents import ODD_NAMES
from tests.hostile.mutations import VALUES, mutate_bytes, mutate_value, nested, to_json

_PATHS = ("/v1/score", "/v1/score", "/v1/score", "/v1/search", "/healthz", "/metrics", "/openapi.json", "/", "/../etc/passwd", "/v1/score/", "//v1/score", "/v1/score?x=\x1b[31m", "/%00", "/" + "a" * 9_000, "/v1/score#x", "*", "http://h/v1/score")  # fmt: skip
_METHODS = (
    "POST",
    "POST",
    "POST",
    "GET",
    "PUT",
    "DELETE",
    "OPTIONS",
    "HEAD",
    "TRACE",
    "CONNECT",
    "X" * 500,
    "post",
    "",
)


def body(rng: Random, k: int, d: int) -> bytes:
    """A body: a sound query with a part changed, or something else altogether."""
    scores = [0.9 - i / 50 for i in range(k)]
    near = [[0.1] * d for _ in range(k)]
    sound: dict[str, Any] = rng.choice(
        (
            {"scores": scores}, {"scores": scores, "id": rng.choice(ODD_NAMES)}, {"vector": [0.1] * d, "neighbours": near}, {"text": rng.choice(ODD_NAMES)}, {"batch": [{"scores": scores}] * rng.choice((1, 3, 300))},
            {"batch": [{"scores": scores, "id": "a"}, rng.choice(VALUES)]}, {"scores": [rng.choice((10**400, -(10**400), 1e308, "1", None, True, [1]))] * k}, {"scores": scores, "model_fingerprint": rng.choice((*ODD_NAMES, 1, []))},
            {"vector": [1e38] * d, "neighbours": [[-1e38] * d] * k}, {"vector": [0] * d, "neighbours": near}, {"vector": [1e-45] * d, "neighbours": [[0] * d] * k}, {"scores": [0] * k}, {"scores": [1] * k}, {"scores": scores[::-1]}, {"batch": [{"batch": []}]},
        )
    )  # fmt: skip
    how = rng.random()
    if how < 0.35:
        return json.dumps(sound).encode("utf-8", "replace")
    if how < 0.7:
        return to_json(mutate_value(sound, rng))
    if how < 0.8:
        return mutate_bytes(json.dumps(sound).encode(), rng)
    return rng.choice((nested(rng), b"", b"null", b"NaN", b'{"scores": ' + b"1" * 5_000 + b"}", b'{"id": "\\ud800", "scores": ' + json.dumps(scores).encode() + b"}", b"\xff" * 100, b'{"a": 1, "a": 2}', b" " * 300_000, b'{"scores": [' + b"0," * 50_000 + b"0]}"))  # fmt: skip


def request(rng: Random, k: int, d: int) -> bytes:
    """The bytes of a request. A body may be shorter or longer than announced, in pieces, or announced twice."""
    content = body(rng, k, d)
    line = f"{rng.choice(_METHODS)} {rng.choice(_PATHS)} {rng.choice(('HTTP/1.1', 'HTTP/1.1', 'HTTP/1.1', 'HTTP/1.0', 'HTTP/9.9', '', 'X'))}"
    length = rng.choice(
        (str(len(content)),) * 12 + ("-1", "0", "99999999999999999999", "x", str(len(content) + 5), "1_0", "²")
    )
    headers = ["Host: h", f"Content-Length: {length}", "Connection: close"]
    headers += rng.choice(
        (
            [], [], [], [f"Content-Length: {len(content) + 1}"], ["Transfer-Encoding: chunked"], ["Transfer-Encoding: gzip, chunked"], ["Content-Type: text/x\x1b[31m"], ["Authorization: Bearer " + "a" * 5_000], ["X: " + "b" * 70_000], ["Expect: 100-continue"],
            ["Content-Encoding: gzip"], [f"X-{i}: y" for i in range(500)], ["Upgrade: websocket", "Connection: Upgrade"], ["Cookie: \u202e"], [" folded: x"], ["\x00: y"], ["Host: a, b"], ["Range: bytes=0-9999999999"],
        )
    )  # fmt: skip
    head = ("\r\n".join([line, *headers]) + "\r\n\r\n").encode("utf-8", "replace")
    if rng.random() < 0.05:
        return rng.choice(
            (
                b"\x16\x03\x01\x02\x00",
                b"\r\n" * 200,
                b"GET",
                b"\x00" * 1_000,
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                head * 3,
            )
        )
    return head + content
