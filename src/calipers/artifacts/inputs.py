"""Real texts as one model's tokens, and how stages are run and timed on them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from calipers.artifacts.records import Latency
from calipers.metrics.arrays import Array
from calipers.metrics.threads import torch_threads
from calipers.models.batching import Batch, pad
from calipers.models.onnx_session import CPU, Graph
from calipers.models.tokenizer import Tokens

FixedShape = tuple[int | None, int | None]  # rows and length of a batch; None where it is free


@dataclass(frozen=True)
class Rows:
    """Real texts, or pairs of them, as one model's tokens. `ids` are those of the dataset's rows."""

    ids: tuple[str, ...]
    tokens: tuple[Tokens, ...]
    pad_id: int
    longest: int  # the most tokens that the model takes
    first_position: int  # 0, or behind the padding id for models of RoBERTa's family
    path: str  # of the dataset
    fingerprint: str  # of the dataset

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the tokens: the same rows have others under another prompt or tokenizer."""
        total = hashlib.sha256()
        for row in self.tokens:
            for part in (row.ids, row.type_ids):
                total.update(len(part).to_bytes(8, "little") + np.ascontiguousarray(part, np.int32).tobytes())
        return total.hexdigest()

    def take(self, count: int) -> Rows:
        """The first rows. The fingerprint stays the one of their dataset."""
        return replace(self, ids=self.ids[:count], tokens=self.tokens[:count])


def short_path(path: str) -> str:
    """The name of a dataset without its place on this machine: a file with its folder, or a hub id.

    >>> short_path(str(Path.home() / "stsb" / "test.jsonl")), short_path("org/name")
    ('stsb/test.jsonl', 'org/name')
    """
    return "/".join(Path(path).parts[-2:]) if Path(path).is_absolute() else path


def single(rows: Rows, shape: FixedShape | None = None) -> list[Batch]:
    """Each row alone: unpadded, or in the fixed shape, whose other rows are copies of it."""
    count, length = shape or (1, None)
    return [pad([tokens] * (count or 1), rows, length=length) for tokens in rows.tokens]


def at_tokens(values: Array, batch: Batch) -> Array:
    """The values at real tokens, where there are values for each token: [rows, length, d]; else all of them."""
    if values.ndim == 3 and values.shape[:2] == batch.mask.shape:
        return np.asarray(values[batch.mask.astype(bool)])
    return values


def real_values(values: Array, batch: Batch) -> Array:
    """The values that belong to real tokens: of [rows, length, …], [rows, heads, length, …] and scores of each token
    for each other. All of them where the axes do not say which one is the length."""
    real, (rows, length) = batch.mask.astype(bool), batch.mask.shape
    shape = values.shape
    if real.all() or values.ndim < 2 or shape[0] != rows:
        return values
    first, second = shape[1] == length, values.ndim == 4 and shape[2] == length
    if second and not first:
        both = (
            real[:, :, None] & real[:, None, :] if shape[3] == length else np.repeat(real[:, :, None], shape[3], axis=2)
        )
        return np.asarray(values.transpose(0, 2, 3, 1)[both])
    return np.asarray(values[real]) if first and not second else values


def output_name(graph: Graph, name: str | None) -> str:
    """This output where the graph has it, else its first."""
    return name if name in graph.outputs else next(iter(graph.outputs))


def latencies(
    forwards: Sequence[Callable[[Batch], object]], batches: Sequence[Batch], *, rounds: int, provider: str = CPU
) -> list[Latency]:
    """Each batch in every round, after one run that does not count. The forwards take turns batch by batch, so that
    other work on the machine slows them all alike."""
    with torch_threads(1):
        for forward in forwards:
            forward(batches[0])
        clocks = [[_clock(forward, batch) for forward in forwards] for _ in range(rounds) for batch in batches]
    seconds = np.array(clocks)  # [runs, forwards, (wall, processor)]
    p50, p95 = np.percentile(seconds[:, :, 0] * 1000, [50, 95], axis=0)
    # Another provider works on other threads or another device, whose time only the clock on the wall has.
    cpu = np.median(seconds[:, :, 1 if provider == CPU else 0], axis=0) * 1000
    tokens = round(float(np.mean([batch.mask.sum() / len(batch.mask) for batch in batches])), 1)
    return [
        Latency(round(float(middle), 3), round(float(high), 3), len(batches), tokens, round(float(work), 3))
        for middle, high, work in zip(p50, p95, cpu, strict=True)
    ]


def _clock(forward: Callable[[Batch], object], batch: Batch) -> tuple[float, float]:
    """Seconds on the wall, and of this thread's processor time."""
    start, work = time.perf_counter(), time.thread_time()
    forward(batch)
    return time.perf_counter() - start, time.thread_time() - work
