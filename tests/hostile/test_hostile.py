"""Hostile inputs over every surface through the real command: an exit code, one sentence, in time, and nothing else.

`CALIPERS_HOSTILE_SEED` chooses other inputs, `CALIPERS_HOSTILE_COUNT` how many the slow test runs.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from tests.hostile import places
from tests.hostile.judge import CONTROL, ask
from tests.hostile.requests import request
from tests.hostile.server import hostile_server
from tests.hostile.surfaces import SURFACES, cases
from tests.support.processes import Starter

SEED = int(os.environ.get("CALIPERS_HOSTILE_SEED", "30"))
COUNT = int(os.environ.get("CALIPERS_HOSTILE_COUNT", "1200"))
REQUESTS = int(os.environ.get("CALIPERS_HOSTILE_REQUESTS", "300"))
SAMPLE_SECONDS = 15.0
STATUSES = frozenset(
    ("", "100", "200", "307", "400", "401", "404", "405", "408", "409", "411", "413", "422", "429", "431", "503")
)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> places.Sound:
    return places.build(tmp_path_factory.mktemp("sound"))


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with hostile_server() as address:
        yield address


def run(count: int, seconds: float, sound: places.Sound, folder: Path, start: Starter, server: str) -> Counter[str]:
    """Answers by exit code, once none of them is wrong. After so many seconds no further input is begun, but every
    surface has had one."""
    codes: Counter[str] = Counter()
    wrong: list[str] = []
    end = time.monotonic() + seconds
    for i, case in enumerate(islice(cases(count), count)):
        if time.monotonic() > end and i >= len(SURFACES):
            break
        place = folder / str(i)
        answer, faults = ask(case, SEED, sound, place, start, server)
        codes[f"{case.surface}: {answer.code}"] += 1
        if faults:
            line = answer.err.strip().splitlines()[-1:] or [""]
            wrong.append(f"{case.surface} {case.number}: {', '.join(faults)}: {line[0][:300]} ({answer.words})"[:900])
        shutil.rmtree(place, ignore_errors=True)
    print(f"\n{sum(codes.values())} inputs, {len(wrong)} answered wrongly:", dict(sorted(codes.items())))
    assert not wrong, f"{len(wrong)} of {sum(codes.values())} with seed {SEED}:\n" + "\n".join(wrong)
    return codes


def test_a_sample_of_hostile_inputs_is_answered(
    sound: places.Sound, server: str, tmp_path: Path, start_forked: Starter
) -> None:
    codes = run(10 * len(SURFACES), SAMPLE_SECONDS, sound, tmp_path, start_forked, server)
    assert sum(codes.values()) >= len(SURFACES)


def test_the_service_answers_hostile_requests(tmp_path: Path) -> None:
    """No request ends the service or an answer in a fault of its own; the log stays JSON without control characters."""
    pytest.importorskip("starlette", reason="needs the extra serve")
    from tests.support.serving import D, K, make_trust, served

    make_trust(tmp_path / "t.trust")
    rng, statuses = Random(f"{SEED}/service"), Counter[str]()
    with served(tmp_path / "t.trust", tmp_path / "log", "--request-timeout", "1") as (client, _):
        for number in range(REQUESTS):
            sent = request(rng, K, D)
            answer = exchange(client.base_url.port or 0, sent)
            status = answer.split(b" ", 2)[1].decode("ascii", "replace") if answer.startswith(b"HTTP/1.1 ") else ""
            statuses[status] += 1
            assert status in STATUSES, (number, sent[:300])
        metrics = client.get("/metrics").text
        assert client.get("/healthz").json() == {"status": "alive"}
    log = (tmp_path / "log").read_text(encoding="utf-8")
    print(f"\n{REQUESTS} requests:", dict(sorted(statuses.items())))
    assert "Traceback" not in log
    assert not CONTROL.search(log + metrics)
    assert all(json.loads(line) for line in log.splitlines() if line.startswith("{"))


def exchange(port: int, sent: bytes) -> bytes:
    """What a service answers to these bytes; nothing where it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        with suppress(OSError):
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
        parts = []
        with suppress(ConnectionError):
            while part := connection.recv(1 << 16):
                parts.append(part)
    return b"".join(parts)


@pytest.mark.slow
def test_all_hostile_inputs_are_answered(
    sound: places.Sound, server: str, tmp_path: Path, start_forked: Starter
) -> None:
    assert sum(run(COUNT, 3600.0, sound, tmp_path, start_forked, server).values()) == COUNT
