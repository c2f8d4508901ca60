"""Every bench with a peer or a limit, in one table; kept by processor, and compared with the last run on the same kind.

    python -m bench [--size moderate|full] [--only NAME …] [--check] [--keep FOLDER] [--page FILE]

Without `--check` the table is printed, written to docs/benchmarks.md and kept in bench/results/PROCESSOR/DATE.json.
With it nothing is written: the run is compared with the last one of the same size on the same kind of processor, what
fell by more than 10 % is named, and the exit code is 1. Seconds depend on what else the machine does; ratios and shares
are taken within rounds and depend on it far less.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.common import entries, machine
from bench.common.entries import Entry

ROOT = Path(__file__).parents[1]
SIZES = ("moderate", "full", "tiny")
FALL = 0.10
# The arguments of each bench, by size; a bench without any for a size runs as it is.
BENCHES: dict[str, dict[str, tuple[str, ...]]] = {
    "similarity": {"moderate": ("--samples", "300"), "full": ()},
    "ranking": {
        "moderate": ("--queries", "4", "--rounds", "3", "--metric-queries", "3000"),
        "full": ("--queries", "10", "--rounds", "3"),
    },
    "fill_mask": {"moderate": ("--models", "6x384", "--texts", "3", "--loop", "12"), "full": ()},
    "retrieval_memory": {"moderate": ("--documents", "200000", "--queries", "500"), "full": ()},
    "geometry": {"moderate": ("--documents", "30000"), "full": ("--documents", "100000", "--documents", "1000000")},
    "compare": {
        "moderate": ("--examples", "5000", "--resamples", "2000", "--peer", "50"),
        "full": (),
        "tiny": ("--examples", "100", "--resamples", "100", "--peer", "20", "--rounds", "1", "--no-commands"),
    },
    "trust": {"moderate": ("--rounds", "10"), "full": (), "tiny": ("--queries", "60", "--rounds", "1")},
    "growth": {"moderate": ("--largest", "100000"), "full": ()},
}


def run_benches(names: Sequence[str], size: str) -> list[Entry]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "lines.jsonl"
        for name in names:
            print(f"== bench.{name}", flush=True)
            command = [sys.executable, "-W", "ignore", "-m", f"bench.{name}", *BENCHES[name].get(size, ())]
            done = subprocess.run(command, cwd=ROOT, env={**os.environ, entries.PLACE: str(place)}, check=False)
            if done.returncode:
                raise SystemExit(f"bench.{name} failed with exit code {done.returncode}")
        return entries.read(place)


def last_run(keep: Path, size: str) -> dict[str, Any] | None:
    """The latest one of this size on the same kind of processor; benches that a run left out are those of earlier
    ones."""
    return machine.read_runs(keep / machine.kind()).get(size)


def fallen(now: Sequence[Entry], before: Sequence[Entry]) -> list[str]:
    """What is more than a tenth below the earlier run, in the ratio to its peer or the share of its limit."""
    earlier = {entry.work: entry for entry in before}
    lines = []
    for entry in now:
        for name in ("ratio", "share"):
            old, new = (getattr(side, name, None) for side in (earlier.get(entry.work), entry))
            if old and new is not None and new < (1 - FALL) * old:
                lines.append(f"{entry.work}: {name} {old:.2f} before, {new:.2f} now ({new / old - 1:+.0%})")
    return lines


def check(now: Sequence[Entry], keep: Path, size: str) -> int:
    last = last_run(keep, size)
    if last is None:
        print(f"no run of the size {size} is kept for {machine.kind()}: there is nothing to compare with")
        return 0
    lines = fallen(now, [Entry(**line) for line in last["lines"]])
    print(f"compared with the run of {last['date']}: {len(lines)} fell by more than {FALL:.0%}")
    print("\n".join(lines))
    return 1 if lines else 0


def write(lines: Sequence[Entry], size: str, keep: Path, page: Path) -> None:
    date = datetime.now(UTC)
    run = {"date": f"{date:%Y-%m-%d %H:%M} UTC", "size": size, "machine": machine.facts()}
    folder = keep / machine.kind()
    folder.mkdir(parents=True, exist_ok=True)
    kept = json.dumps({**run, "lines": [asdict(line) for line in lines]}, indent=1, ensure_ascii=False)
    (folder / f"{date:%Y%m%d-%H%M%S}.json").write_text(kept + "\n", encoding="utf-8")
    page.write_text(machine.page(keep), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="moderate")
    parser.add_argument("--only", nargs="*", choices=list(BENCHES), default=list(BENCHES))
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--keep", type=Path, default=ROOT / "bench" / "results")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "benchmarks.md")
    chosen = parser.parse_args()
    lines = run_benches(chosen.only, chosen.size)
    print("\n" + entries.as_table(lines))
    if chosen.check:
        raise SystemExit(check(lines, chosen.keep, chosen.size))
    write(lines, chosen.size, chosen.keep, chosen.page)


if __name__ == "__main__":
    main()
