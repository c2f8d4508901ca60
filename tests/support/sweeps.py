"""A registry of vectors that need no model, for sweeps whose cells take a second; and commands in processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from calipers import data
from calipers.runs.store import Store
from calipers.sweeps.api import Sweep, sweep
from calipers.sweeps.records import SweepOptions

MODELS = """
models:
  - {id: good, reference: good.npy, group: fleet}
  - {id: near, reference: near.npy, baseline: good, group: fleet}
  - {id: bad, reference: bad.npy, baseline: good}
tasks:
  - {id: sts, task: sentence-similarity, dataset: pairs.jsonl}
"""


def write_registry(folder: Path, text: str = MODELS) -> Path:
    """Vectors that agree with the scores, nearly the same ones, and random ones; and a registry of the three."""
    lines = data.sample("english").read_text(encoding="utf-8")
    (folder / "pairs.jsonl").write_text(lines, encoding="utf-8")
    rows = [json.loads(line) for line in lines.splitlines()]
    texts = list(dict.fromkeys(row[f"sentence{n}"] for row in rows for n in (1, 2)))
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(len(texts), 64))
    good = noise.copy()
    for row in rows:  # the second text is the first one, as far as their score says
        first, second = texts.index(row["sentence1"]), texts.index(row["sentence2"])
        share = row["score"] / 5.0
        good[second] = share * good[first] + (1 - share) * noise[second]
    for name, vectors in {"good": good, "near": good + 0.001 * noise, "bad": rng.normal(size=good.shape)}.items():
        np.save(folder / f"{name}.npy", vectors.astype(np.float32))
        (folder / f"{name}.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    path = folder / "registry.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def run(registry: Path, store: Path, retry: list[str] | None = None, **options: Any) -> Sweep:
    chosen = SweepOptions(**{"latency": False, "resamples": 200, **options})
    return sweep(registry, options=chosen, store=Store(store), retry_failed=retry)


def command(*words: str, environment: dict[str, str] | None = None, **settings: Any) -> subprocess.Popen[str]:
    """`calipers WORDS` in a process of its own, its output in pipes."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(
        [sys.executable, "-m", "calipers", *words],
        env={**os.environ, **(environment or {})},
        text=True,
        **{**pipes, **settings},
    )


def finish(process: subprocess.Popen[str], seconds: float = 90.0) -> tuple[int, str, str]:
    """Its exit code and what it wrote."""
    with process:
        out, err = process.communicate(timeout=seconds)
    return process.returncode, out, err
