"""One line of the table of benches; a bench prints its lines and leaves them for `python -m bench`."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

PLACE = "CALIPERS_BENCH_LINES"  # the file that the driver names
HEADER = ("work", "peer", "ours, s", "ratio", "share of the limit", "memory, MB", "agreement")


@dataclass(frozen=True)
class Entry:
    """`seconds` are ours, the median of the rounds; `ratio` is the peer's over ours; `share` is of `limit`; `memory`
    is in MB beyond what there was; `agreement` says how far the results of both are apart."""

    work: str
    peer: str
    seconds: float
    ratio: float | None = None
    share: float | None = None
    limit: str = "sgemm"
    memory: float | None = None
    agreement: str = ""

    @property
    def cells(self) -> tuple[str, ...]:
        return (
            self.work,
            self.peer or "–",
            f"{self.seconds:.3g}",
            "–" if self.ratio is None else f"{self.ratio:.2f} ×",
            "–" if self.share is None else f"{self.share:.0%} of {self.limit}",
            "–" if self.memory is None else f"{self.memory:.0f}",
            self.agreement or "–",
        )


def named(package: str) -> str:
    """A peer with its version."""
    return f"{package} {version(package)}"


def record(entries: Sequence[Entry]) -> None:
    """Print the lines, and leave them for the driver."""
    print(as_table(entries), flush=True)
    if place := os.environ.get(PLACE):
        with Path(place).open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(asdict(entry)) + "\n" for entry in entries)


def read(place: Path) -> list[Entry]:
    lines = place.read_text(encoding="utf-8").splitlines() if place.exists() else []
    return [Entry(**json.loads(line)) for line in lines]


def as_table(entries: Sequence[Entry]) -> str:
    """Markdown, with columns in line."""
    rows = [HEADER, *(entry.cells for entry in entries)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADER))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])
