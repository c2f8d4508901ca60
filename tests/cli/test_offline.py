"""Without a network everything local works, and nothing tries to connect."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

UNSHARE = ["unshare", "-r", "-n"]
# Every connection is noted by the interpreter itself; within a namespace without routes none could succeed.
WATCH = (
    "import sys\n"
    "names = ('socket.connect', 'socket.getaddrinfo')\n"
    "sys.addaudithook(lambda name, values: name in names and sys.exit(f'tried {values}'))\n"
    "from calipers.cli import main\n"
    "main(sys.argv[1:])\n"
)  # fmt: skip


@pytest.fixture(scope="module")
def isolated() -> list[str]:
    if not shutil.which("unshare") or subprocess.run([*UNSHARE, "true"], check=False, capture_output=True).returncode:
        pytest.skip("unshare may not make a network namespace here")
    return [*UNSHARE, sys.executable, "-c", WATCH]


@pytest.mark.parametrize(
    "line",
    [
        ["eval", "vectors:VECTORS", "--dataset", "PAIRS"],
        ["eval", "VECTORS", "--dataset", "PAIRS", "--json"],
        ["compare", "VECTORS", "VECTORS", "--dataset", "PAIRS"],
        ["runs", "list"],
        ["doctor"],
        ["tasks"],
    ],
    ids=lambda line: " ".join(line),
)
def test_local_work_needs_no_network(
    line: list[str], isolated: list[str], pairs: Path, vectors: Path, tmp_path: Path
) -> None:
    words = [word.replace("VECTORS", str(vectors)).replace("PAIRS", str(pairs)) for word in line]
    environment = {k: v for k, v in os.environ.items() if k != "HF_HUB_OFFLINE"} | {
        "CALIPERS_STORE": str(tmp_path / "s")
    }
    done = subprocess.run([*isolated, *words], env=environment, capture_output=True, text=True, check=False)
    assert "tried" not in done.stderr
    assert done.returncode in (0, 5), done.stderr
