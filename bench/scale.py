"""The cost model of docs/scale.md: seconds of one core in units of the machine's sgemm rate, fitted to small runs.

python -m bench.scale [--small 64,256] [--model DIR] [--data STSB_DIR]

Needs CALIPERS_DATA and CALIPERS_WEIGHTS, or their folders as flags. The texts of STS-B through all-MiniLM-L6-v2 in
shards, on one thread. A line through two small sizes predicts 4 and 16 times the larger of them. Times are of the
processor, so that other work on the machine moves them little.
"""

from __future__ import annotations

import argparse
import json
import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import time  # noqa: E402
from pathlib import Path  # noqa: E402
from tempfile import TemporaryDirectory  # noqa: E402

import numpy as np  # noqa: E402

from calipers.models import ModelOptions, load_model  # noqa: E402
from calipers.runs.shards import SHARD, sharded  # noqa: E402

FACTORS = (4, 16)


def sgemm_rate(size: int = 768, rounds: int = 12) -> float:
    """Floating-point operations a second of one core, in products of float32 matrices."""
    a, b = (np.random.default_rng(i).normal(size=(size, size)).astype(np.float32) for i in (0, 1))
    a @ b
    start = time.process_time()
    for _ in range(rounds):
        a @ b
    return 2 * size**3 * rounds / (time.process_time() - start)


def texts(folder: Path) -> list[str]:
    rows = [json.loads(line) for name in ("test", "dev") for line in (folder / f"{name}.jsonl").open(encoding="utf-8")]
    distinct = list(dict.fromkeys(row[f"sentence{n}"] for row in rows for n in (1, 2)))
    np.random.default_rng(0).shuffle(distinct)
    return distinct


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", default="64,256")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--data", type=Path)
    arguments = parser.parse_args()
    folder = arguments.model or Path(os.environ["CALIPERS_WEIGHTS"]) / "all-MiniLM-L6-v2"
    predict(folder, arguments.data or Path(os.environ["CALIPERS_DATA"]) / "stsb", *map(int, arguments.small.split(",")))


def predict(folder: Path, data: Path, least: int, most: int) -> None:
    """Fit the cost to two numbers of texts and print what it predicts for more."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    width, inner, layers = config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]
    weights = layers * (4 * width * width + 2 * width * inner)  # that every token is multiplied with
    rate = sgemm_rate()
    print(
        f"sgemm: {rate / 1e9:.1f} GFLOP/s on one core; {weights / 1e6:.1f} M weights a token; shards of {SHARD} texts"
    )
    model = load_model(str(folder), options=ModelOptions(threads=1))
    corpus = texts(data)
    tokens = [len(row.ids) for row in model.tokenizer.encode(corpus)]  # type: ignore[attr-defined]
    model.encode(corpus[:64])  # type: ignore[attr-defined]

    def measure(count: int) -> tuple[float, float]:
        """Work in seconds of sgemm, and seconds of the processor with the shards on disk."""
        with TemporaryDirectory() as shards:
            runner = sharded(model, "encode", Path(shards))
            start = time.process_time()
            runner.encode(corpus[:count])
            return 2 * weights * sum(tokens[:count]) / rate, time.process_time() - start

    points = {count: min((measure(count) for _ in range(3)), key=lambda p: p[1]) for count in (least, most)}
    (x0, y0), (x1, y1) = points.values()
    slope = (y1 - y0) / (x1 - x0)
    fixed = y0 - slope * x0
    print(f"fitted: {fixed:.3f} s + {slope:.2f} × the time of sgemm for the same products")
    for factor in FACTORS:
        work, seconds = measure(most * factor)
        guess = fixed + slope * work
        off = f"{guess / seconds - 1:+.0%}"
        print(f"{factor} ×: {most * factor} texts, {seconds:.2f} s, predicted {guess:.2f} s ({off})")


if __name__ == "__main__":
    main()
