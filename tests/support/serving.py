"""A trust score of a small corpus, and the real command that serves it in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np

from calipers.metrics import search
from calipers.reliability import Trust

D, K = 16, 10
RNG = np.random.default_rng(21)
CENTRES = RNG.normal(size=(25, D))
CORPUS = (np.repeat(CENTRES, 20, axis=0) + 0.35 * RNG.normal(size=(500, D))).astype(np.float32)
CORPUS /= np.linalg.norm(CORPUS, axis=1, keepdims=True)
NEAR = CENTRES[RNG.integers(0, 25, 200)] + 0.35 * RNG.normal(size=(200, D))
QUERIES = np.concatenate([NEAR, RNG.normal(size=(100, D))]).astype(np.float32)
QUERIES /= np.linalg.norm(QUERIES, axis=1, keepdims=True)
LABELS = (RNG.random(300) < np.r_[np.full(200, 0.97), np.full(100, 0.1)]).astype(float)


def make_trust(path: Path, error: float = 0.2) -> Trust:
    """A calibrated score of vectors, with fingerprints, in a file."""
    about = {"model": "made", "model_fingerprint": "sha256:m", "corpus_fingerprint": "sha256:c"}
    trust = Trust.fit(CORPUS, query_vectors=QUERIES, labels=LABELS, error=error, about=about)
    trust.save(path)
    return trust


def neighbours(queries: np.ndarray) -> np.ndarray:
    return CORPUS[search.nearest(queries, CORPUS, K)[1]]


@contextmanager
def served(trust: Path, log: Path, *arguments: str) -> Iterator[tuple[httpx.Client, subprocess.Popen[bytes]]]:
    """A client of `calipers serve`, once it is ready."""
    command = [sys.executable, "-m", "calipers", "serve", "--trust", str(trust), "--port", "0", *arguments]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stderr=file, env={**os.environ, "PYTHONWARNINGS": "ignore"})
    try:
        port = _wait_for_port(process, log)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30, trust_env=False) as client:
            yield client, process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def _wait_for_port(process: subprocess.Popen[bytes], log: Path) -> int:
    for _ in range(600):
        for line in log.read_text().splitlines():
            if '"listening"' in line:
                return int(json.loads(line)["port"])
        assert process.poll() is None, log.read_text()
        time.sleep(0.1)
    raise AssertionError("the service does not listen")
