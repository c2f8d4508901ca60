"""Hostile inputs over every surface through the real command: an exit code, one sentence, in time, and nothing else.

`CALIPERS_HOSTILE_SEED` chooses other inputs, `CALIPERS_HOSTILE_COUNT` how many the slow test runs.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from tests.hostile import places
from tests.hostile.judge import ask
from tests.hostile.server import hostile_server
from tests.hostile.surfaces import SURFACES, cases
from tests.support.processes import Starter

SEED = int(os.environ.get("CALIPERS_HOSTILE_SEED", "30"))
COUNT = int(os.environ.get("CALIPERS_HOSTILE_COUNT", "1200"))
SAMPLE_SECONDS = 45.0


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


@pytest.mark.slow
def test_all_hostile_inputs_are_answered(
    sound: places.Sound, server: str, tmp_path: Path, start_forked: Starter
) -> None:
    assert sum(run(COUNT, 3600.0, sound, tmp_path, start_forked, server).values()) == COUNT
