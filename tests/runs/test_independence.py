"""Results do not depend on what ran before in the process, and a call leaves the process as it was."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import sequence

SCRIPT = Path(sequence.__file__)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    sequence.write_inputs(folder)
    return folder


@pytest.fixture(scope="module")
def fresh() -> dict[str, Any]:
    """What each call gave in a process of its own, once it was made."""
    return {}


@pytest.fixture
def run(calipers: Any, inputs: Path) -> Callable[..., list[Any]]:
    def steps(*names: str) -> list[Any]:
        done = calipers("python", SCRIPT, inputs, *names)
        assert done.returncode == 0, done.stderr
        return list(json.loads(done.stdout))

    return steps


def check(names: list[str], run: Callable[..., list[Any]], fresh: dict[str, Any]) -> None:
    for name in {name for name in names if name not in sequence.DISTURBANCES} - fresh.keys():
        ((_, fresh[name], _),) = run(name)
    for step, outcome, changed in run(*names):
        assert outcome == fresh[step], f"{step} depends on what ran before it, in {names}"
        assert changed == [], f"{step} leaves the {changed} of the process changed"


@pytest.mark.parametrize("seed", range(2))
def test_results_do_not_depend_on_what_ran_before(
    seed: int, run: Callable[..., list[Any]], fresh: dict[str, Any]
) -> None:
    """Every call behind others in a random order, with all disturbances, then all calls again."""
    rng = random.Random(seed)
    calls = [*sequence.CALLS]
    first, second = rng.sample(calls, len(calls)), rng.sample(calls, len(calls))
    check([*first[: len(first) // 2], *rng.sample([*sequence.DISTURBANCES], 6), *second], run, fresh)


@pytest.mark.slow
@pytest.mark.parametrize("disturbance", sequence.DISTURBANCES)
@pytest.mark.parametrize("first", [*sequence.CALLS, *sequence.SLOW_CALLS])
def test_results_do_not_depend_on_one_call_and_one_disturbance(
    first: str, disturbance: str, run: Callable[..., list[Any]], fresh: dict[str, Any]
) -> None:
    check([first, disturbance, *sequence.CALLS], run, fresh)
