"""What the tracked files may hold."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# An absolute path of two parts or more, where a path can begin: at the start of a line, or behind one of these.
_PATH = re.compile(r"""(?:^|[\s"'`=:(\[,<>|])((?:/[A-Za-z_][\w.+-]*(?:/[\w.+*-]+)+)|(?:[A-Z]:\\\w+))""")
_EVERYWHERE = ("/usr/", "/tmp/", "/proc/", "/dev/", "/etc/")  # on any machine
_ROUTE = re.compile(r"/v\d+/")  # of an endpoint, not of a disk


def paths(text: str) -> Iterator[tuple[int, str]]:
    """Line and path of everything in a text that only one machine has."""
    for number, line in enumerate(text.splitlines(), 1):
        for match in _PATH.finditer(line):
            path = match[1]
            if not path.startswith(_EVERYWHERE) and not _ROUTE.match(path):
                yield number, path


def tracked() -> list[Path]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode:
        pytest.skip("this is no git checkout, so the tracked files are unknown")
    return [ROOT / name for name in listing.stdout.split("\0") if name]


def test_no_tracked_file_names_a_path_of_one_machine() -> None:
    places = []
    for file in tracked():
        try:
            text = file.read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):
            continue
        places += [f"{file.relative_to(ROOT)}:{number}: {path}" for number, path in paths(text)]
    assert places == []


@pytest.mark.parametrize("top", ["work", "root", "home", "opt", "Users", "mnt"])
@pytest.mark.parametrize("before", ["", 'default="', "static:", "DIR=", "see `"])
def test_a_planted_path_is_noticed(top: str, before: str) -> None:
    assert [path for _, path in paths(f"{before}/{top}/someone/models")] == [f"/{top}/someone/models"]


@pytest.mark.parametrize("text", ["/proc/self/status", '"/v1/embeddings"', "and/or/not", "src/calipers/core", "1 / 2"])
def test_what_every_machine_has_and_what_is_no_path_is_left_alone(text: str) -> None:
    assert list(paths(text)) == []
