"""One hostile input through the real command, and what must hold of the answer."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tests.hostile.places import Sound
from tests.hostile.surfaces import Case
from tests.support.processes import Request, Starter

LONGEST = 400  # characters of a sentence
SECONDS = 10.0  # of processor time
CLOCK = 30.0  # seconds by the clock on a machine with nothing else to do: only what hangs takes as long
MEMORY = 1_000_000  # KB beyond a process that has imported the backends
_MOST_MEMORY = 6_000_000_000  # bytes of address space: the machine is not to be eaten while it is tested
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_PROGRESS = re.compile(r"calipers: \d+ s: ")  # of a command that takes long
_ASSIGNMENT = re.compile(r"[A-Z_]+=", re.ASCII)


@dataclass(frozen=True)
class Answer:
    """What a command did. `peak` is its largest memory in KB, `processor` its seconds with those of its children."""

    words: list[str]
    code: int
    out: str
    err: str
    seconds: float
    processor: float
    peak: int


def ask(case: Case, seed: int, sound: Sound, folder: Path, start: Starter, server: str) -> tuple[Answer, list[str]]:
    """Run the case in `folder`, and say what is wrong with the answer: nothing, as a rule."""
    place = folder / "files"
    place.mkdir(parents=True)
    words = [word.replace("SERVER", server) for word in case.make(sound, place, case.rng(seed))]
    words = [word.replace("\x00", "\ufffd") for word in words]  # no shell can pass it
    out, err, home = folder / "out", folder / "err", folder / "home"
    home.mkdir()
    environment = {**os.environ, "HOME": str(home), "CALIPERS_STORE": str(home / "runs"), "CALIPERS_SANDBOX": "auto"}
    environment |= {"XDG_CACHE_HOME": str(home / "cache"), "NO_PROXY": "*"}
    while _ASSIGNMENT.match(words[0]):
        name, _, value = words.pop(0).partition("=")
        environment[name] = value
    environment |= {"CALIPERS_TEST_MEMORY": str(_MOST_MEMORY), "CALIPERS_TEST_SECONDS": "300"}
    (place / "written").mkdir(exist_ok=True)
    for line in _split(words):
        for path in (out, err):
            path.unlink(missing_ok=True)
        begin = time.monotonic()
        code = start(Request(line, str(home), environment, str(out), str(err)))
        seconds = time.monotonic() - begin
        peak, processor = (float(word) for word in Path(f"{err}.used").read_text().split())
        texts = (path.read_bytes().decode("utf-8", "replace") for path in (out, err))
        answer = Answer(line, code, *texts, seconds, processor, int(peak))
        if faults := _faults(answer, case, folder):
            break
    return answer, faults


def _split(words: Sequence[str]) -> list[list[str]]:
    """The commands that && stands between."""
    lines: list[list[str]] = [[]]
    for word in words:
        if word == "&&":
            lines.append([])
        else:
            lines[-1].append(word)
    return lines


def crowd() -> float:
    """How many processes share a core, at least one: so many times longer a command may take by the clock."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def _faults(answer: Answer, case: Case, folder: Path) -> list[str]:
    err = [line for line in answer.err.strip().splitlines() if not _PROGRESS.match(line)]
    lines = [line for line in err if line.startswith(("calipers: ", '{"error": "'))]
    # A sweep ends with the code of its worst cell, which its document or table explains.
    is_error = answer.code in (2, 3, 4) and not (answer.words[0] == "sweep" and answer.out)
    rules: dict[str, Callable[[], bool]] = {
        f"exit code {answer.code}": lambda: answer.code not in case.codes,
        "a traceback": lambda: "Traceback" in answer.err,
        "an unexpected error": lambda: bool(
            re.search(r'(?:^calipers: |"error": ")unexpected ', answer.err, re.MULTILINE)
        ),
        f"{len(lines)} sentences": lambda: is_error and len(lines) != 1,
        "more than its sentence": lambda: is_error and len(err) != 1,
        "a long sentence": lambda: any(len(line) > LONGEST + 60 for line in lines),
        "control characters": lambda: bool(CONTROL.search(answer.err + answer.out)),
        "a secret": lambda: "S3CRET" in answer.err + answer.out,
        f"{answer.processor:.1f} s of processor": lambda: answer.processor > SECONDS,
        f"{answer.seconds:.1f} s": lambda: answer.seconds > CLOCK * crowd(),
        f"{answer.peak / 1000:,.0f} MB": lambda: answer.peak > MEMORY,
        "code that ran": lambda: bool(list(folder.rglob("pwned"))),
        "a lost canary": lambda: case.surface == "store" and not (folder / "files" / "x.parquet").exists(),
        "a changed canary": lambda: any(path.read_bytes() != b"canary" for path in folder.rglob("canary.txt")),
        "a file outside": lambda: bool(stray(folder)),
    }
    return [*(name for name, holds in rules.items() if holds()), *written_faults(folder / "files" / "written")]


def stray(folder: Path) -> list[str]:
    """What a path that leads out of its folder would have made."""
    return [
        path.name for path in (folder, folder / "files") for path in path.iterdir() if path.name in ("x", "x.json", "b")
    ]


def written_faults(place: Path) -> list[str]:
    """What is wrong with the files that a command wrote: they must be whole, and show nothing that they should not."""
    faults = []
    for path in (path for path in place.rglob("*") if path.is_file()):
        content = path.read_bytes().decode("utf-8", "surrogateescape")
        if CONTROL.search(content.replace("\r\n", "\n")) and path.suffix not in (".csv", ".txt"):
            faults.append(f"control characters in {path.name}")
        if "S3CRET" in content:
            faults.append(f"a secret in {path.name}")
        if re.search(r"<script|<img src=x|=[\"']?\s*javascript:", content) and path.suffix in (".html", ".xml"):
            faults.append(f"markup in {path.name}")
        try:
            if path.suffix == ".xml":
                ElementTree.fromstring(content)
            elif path.suffix == ".json":
                json.loads(content)
        except (ElementTree.ParseError, ValueError) as error:
            faults.append(f"{path.name} cannot be read: {error}")
    return faults
