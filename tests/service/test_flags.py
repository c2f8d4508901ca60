"""Every flag of `calipers serve` changes what the service answers or logs, or is refused."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from calipers import cli
from tests.support.flags import Record, Walker
from tests.support.serving import CORPUS, QUERIES, K, make_trust

FIRST = "a first question, so that the next ones find everything loaded"
# Limits that the probes below reach, and none that they do not.
VALUES = {
    "max_body": ["20000"], "max_batch": ["2"], "max_requests": ["1"], "request_timeout": ["0.2"], "host": ["0.0.0.0"],
    "token": ["token"], "trust": ["other.trust"], "model": ["v.npy"], "corpus": ["corpus.txt"],
}  # fmt: skip
STALLED = b"POST /v1/score HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"


@dataclass(frozen=True)
class ServiceWalker(Walker):
    """The record of a service: what it answers to a few requests, and what it logs, until it is interrupted."""

    def record(self, line: Sequence[str]) -> Record:
        port = free_port()
        answers: list[Any] = []
        ended = threading.Event()
        probing = threading.Thread(target=self._probe, args=(port, answers, ended))
        probing.start()
        code = cli.run([*line, "--port", str(port)])
        ended.set()
        probing.join(30)
        log = self.printed()[1]
        events = [strip(line) for line in log.splitlines()]
        return (0 if code == 130 and answers else code), (answers, events if answers else []), log

    def _probe(self, port: int, answers: list[Any], ended: threading.Event) -> None:
        try:
            while not ended.is_set():
                try:
                    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20, trust_env=False) as client:
                        answers.extend(probes(client, port))
                    break
                except httpx.ConnectError:
                    time.sleep(0.05)
        finally:
            if not ended.is_set():
                os.kill(os.getpid(), signal.SIGINT)


def probes(client: httpx.Client, port: int) -> list[Any]:
    scores = {"scores": [0.9 - 0.05 * i for i in range(K)]}
    ready = client.get("/readyz").json()
    with socket.create_connection(("127.0.0.1", port)) as stalled:  # a request whose body does not arrive
        stalled.sendall(STALLED)
        time.sleep(0.1)
        bodies = [scores, {"batch": [scores] * 3}, {"text": "red wine"}, {"scores": [0.5] * 9000}]
        answered = [client.post("/v1/score", json=body) for body in bodies]
        stalled.settimeout(0.8)
        try:
            cut = stalled.recv(12).decode()
        except TimeoutError:
            cut = "waits"
    return [ready, [(answer.status_code, answer.text) for answer in answered], cut]


def strip(line: str) -> Any:
    try:
        return {key: value for key, value in json.loads(line).items() if key not in ("time", "ms", "port", "seconds")}
    except (ValueError, AttributeError):
        return line


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("service-flags")
    make_trust(folder / "t.trust")
    make_trust(folder / "other.trust", error=0.3)
    (folder / "token").write_text("a-long-enough-secret\n")
    texts = [f"product {i}" for i in range(500)]
    (folder / "v.txt").write_text("\n".join([*texts, "red wine", FIRST]) + "\n")
    np.save(folder / "v.npy", np.concatenate([CORPUS, QUERIES[:2]]))
    (folder / "corpus.txt").write_text("\n".join(texts) + "\n")
    corpus = ["--corpus", str(folder / "corpus.txt"), "--no-cache"]
    assert cli.run(["trust", str(folder / "v.npy"), *corpus, "--save", str(folder / "texts.trust")]) == 0
    return folder


LINES = {
    "scores": ["serve", "--trust", "t.trust"],
    "texts": ["serve", "--trust", "texts.trust", "--model", "v.npy", "--corpus", "corpus.txt", "--no-cache"],
}


@pytest.mark.parametrize("name", LINES)
def test_a_flag_shows_or_is_refused(
    name: str, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("starlette", reason="needs the extra serve")
    pytest.importorskip("uvicorn", reason="needs the extra serve")
    monkeypatch.chdir(place)
    monkeypatch.setenv("CALIPERS_STORE", str(place / "store"))
    assert ServiceWalker(place, VALUES, capsys.readouterr).ignored(LINES[name]) == ["--port"]  # given by the walker
