"""How time and memory grow: eval of pairs and of a search, compare, diagnose and trust, from 1,000 examples on.

    python -m bench.growth [--largest 1000000] [--model static:FOLDER] [--plot FILE] [--only NAME …]

Each is a command in a process of its own: its CPU seconds, and the peak of its anonymous memory, looked at every 10 ms
(pages of mapped files belong to the file; the peak of all resident memory stands beside it). What a start of the
command costs is measured with 10 examples: memory of that start is named, and its seconds are taken off before an
exponent is fitted, the slope of log seconds over log size between the two largest sizes. 1 is linear; an exact search
of a fixed number of queries is linear in its documents. Pairs and documents are made of random words and read by the
static model; the vectors are random, 64 numbers each, in parquet.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.common import plot
from bench.common.entries import Entry, record

SMALLEST, START = 1_000, 10
QUERIES, DIMENSIONS = 1_000, 64
WORDS = [f"word{i}" for i in range(5_000)]


@dataclass(frozen=True)
class Cost:
    size: int
    seconds: float  # of CPU, all cores
    peak: float  # MB of anonymous memory
    resident: float = 0.0  # MB, pages of mapped files among them


def text(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=12))


def write_rows(file: Path, rows: Sequence[dict[str, object]]) -> None:
    with file.open("w", encoding="utf-8") as out:
        out.writelines(json.dumps(row) + "\n" for row in rows)


def make_pairs(folder: Path, size: int) -> Path:
    rng = random.Random(0)
    file = folder / "pairs.jsonl"
    with file.open("w", encoding="utf-8") as out:
        for _ in range(size):
            row = {"sentence1": text(rng), "sentence2": text(rng), "score": rng.randrange(6)}
            out.write(json.dumps(row) + "\n")
    return file


def make_corpus(folder: Path, size: int) -> Path:
    """A BEIR folder of `size` documents."""
    rng = random.Random(0)
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    with (folder / "corpus.jsonl").open("w", encoding="utf-8") as out:
        for i in range(size):
            out.write(json.dumps({"_id": f"d{i}", "title": "", "text": text(rng)}) + "\n")
    queries = min(QUERIES, size)
    write_rows(folder / "queries.jsonl", [{"_id": f"q{i}", "text": text(rng)} for i in range(queries)])
    lines = [f"q{i}\td{rng.randrange(size)}\t1\n" for i in range(queries)]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))
    return folder


def make_vectors(folder: Path, size: int) -> Path:
    """Vectors of the corpus and its queries, by id, in parquet."""
    import pyarrow
    import pyarrow.parquet

    ids = [f"d{i}/document" for i in range(size)] + [f"q{i}/query" for i in range(min(QUERIES, size))]
    numbers = np.random.default_rng(0).standard_normal((len(ids), DIMENSIONS), dtype=np.float32)
    lists = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(numbers.reshape(-1)), DIMENSIONS)
    pyarrow.parquet.write_table(pyarrow.table({"id": ids, "vector": lists}), folder / "vectors.parquet")
    return folder / "vectors.parquet"


Run = tuple[float, float, float]  # CPU seconds, and MB at the peak: anonymous and resident


def watch(process: int, peaks: dict[str, float], done: threading.Event) -> None:
    """The peaks of the memory of a process, in MB, until it is done. What the system counts itself (ru_maxrss) begins
    with what this process held when it started the other."""
    while not done.wait(0.01):
        with suppress(OSError):
            status = Path(f"/proc/{process}/status").read_text()
            for name, size in re.findall(r"^(RssAnon|VmRSS):\s+(\d+)", status, re.MULTILINE):
                peaks[name] = max(peaks[name], int(size) / 1024)


def run(arguments: Sequence[str], store: Path) -> Run:
    """What a command costs; a verdict is no failure."""
    command = [sys.executable, "-W", "ignore", "-m", "calipers", *arguments]
    with tempfile.TemporaryFile() as out:
        started = subprocess.Popen(command, env={**os.environ, "CALIPERS_STORE": str(store)}, stdout=out, stderr=out)
        peaks, done = {"RssAnon": 0.0, "VmRSS": 0.0}, threading.Event()
        watcher = threading.Thread(target=watch, args=(started.pid, peaks, done))
        watcher.start()
        _, status, usage = os.wait4(started.pid, 0)
        done.set()
        watcher.join()
        started.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        said = out.read().decode()
    if started.returncode not in (0, 1, 5):
        raise SystemExit(f"{' '.join(arguments)} failed: {said[-500:]}")
    return usage.ru_utime + usage.ru_stime, peaks["RssAnon"], peaks["VmRSS"]


def pairs(size: int, folder: Path, model: str) -> Run:
    line = ["eval", model, "--dataset", str(make_pairs(folder, size)), "--json", "--no-store"]
    return run(line, folder / "store")


def retrieval(size: int, folder: Path, model: str) -> Run:
    line = ["eval", model, "--task", "retrieval", "--dataset", str(make_corpus(folder, size)), "--json", "--no-store"]
    return run(line, folder / "store")


def parquet(size: int, folder: Path, _: str) -> Run:
    make_corpus(folder, size)
    return retrieval(size, folder, str(make_vectors(folder, size)))


def compare(size: int, folder: Path, model: str) -> Run:
    """Two stored runs: the second reads half of the numbers."""
    file = make_pairs(folder, size)
    for name, flags in (("one", ()), ("two", ("--truncate-dim", "32"))):
        run(["eval", model, "--dataset", str(file), "--name", name, "--resamples", "100", *flags], folder / "store")
    return run(["compare", "one", "two", "--json"], folder / "store")


def diagnose(size: int, folder: Path, _: str) -> Run:
    corpus, vectors = make_corpus(folder, size), make_vectors(folder, size)
    line = [
        "diagnose",
        str(vectors),
        "--dataset",
        str(corpus),
        "--layers",
        "geometry,retrieval",
        "--no-store",
        "--json",
    ]
    return run(line, folder / "store")


def trust(size: int, folder: Path, model: str) -> Run:
    corpus = make_corpus(folder, size)
    return run(["trust", model, "--corpus", str(corpus), "word1 word2", "--json"], folder / "store")


WORKS: dict[str, tuple[str, Callable[[int, Path, str], Run]]] = {
    "pairs": ("eval of pairs", pairs),
    "retrieval": ("eval of a search, static model", retrieval),
    "parquet": ("eval of a search, vectors in parquet", parquet),
    "compare": ("compare of stored runs", compare),
    "diagnose": ("diagnose, geometry and retrieval", diagnose),
    "trust": ("trust", trust),
}


def exponent(costs: Sequence[Cost], start: float) -> float:
    """Of the two largest sizes, less the start; NaN where the start is all there is."""
    small, large = ((cost.size, cost.seconds - start) for cost in costs[-2:])
    if small[1] <= 0 or large[1] <= 0:
        return math.nan
    return math.log(large[1] / small[1]) / math.log(large[0] / small[0])


def measure(name: str, sizes: Sequence[int], model: str, place: Path | None) -> tuple[list[Cost], Cost]:
    costs = []
    for size in (START, *sizes):
        with tempfile.TemporaryDirectory(dir=place) as folder:
            costs.append(Cost(size, *WORKS[name][1](size, Path(folder), model)))
        print(f"  {name:10} {size:9,} {costs[-1].seconds:9.1f} s {costs[-1].peak:7.0f} MB", flush=True)
    return costs[1:], costs[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    static = Path(os.environ.get("CALIPERS_MODELS", "../shared/models")) / "potion-base-4m-int8"
    parser.add_argument("--largest", type=int, default=1_000_000)
    parser.add_argument("--model", default=f"static:{static}")
    parser.add_argument("--plot", type=Path, help="write the curves as SVG, such as docs/images/growth.svg")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--only", nargs="*", choices=list(WORKS), default=list(WORKS))
    chosen = parser.parse_args()
    sizes = [SMALLEST * 10**i for i in range(7) if SMALLEST * 10**i <= chosen.largest]
    lines, curves = [], {}
    for name in chosen.only:
        costs, start = measure(name, sizes, chosen.model, chosen.folder)
        curves[WORKS[name][0]] = [(cost.size, cost.seconds, cost.peak) for cost in costs]
        last, slope = costs[-1], exponent(costs, start.seconds) if len(costs) > 1 else math.nan
        said = "; ".join(f"{cost.size:,}: {cost.seconds:.1f} s, {cost.peak:.0f} MB" for cost in costs[:-1])
        memory = f"start {start.peak:.0f} MB, resident {last.resident:.0f} MB"
        growth = memory if math.isnan(slope) else f"exponent {slope:.2f}; {memory}; {said}"
        lines.append(
            Entry(f"{WORKS[name][0]}, {last.size:,} (CPU s)", "", last.seconds, memory=last.peak, agreement=growth)
        )
    record(lines)
    if chosen.plot:
        chosen.plot.write_text(plot.growth(curves), encoding="utf-8")


if __name__ == "__main__":
    main()
