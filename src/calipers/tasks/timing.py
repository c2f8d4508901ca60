"""How fast models answer: one input at a time, and many at once, by turns on the same inputs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from calipers.core import SILENT, CalipersError, Dataset, DataSource, Speed, Task, fingerprint
from calipers.tasks import fill_mask, reranking
from calipers.tasks.columns import PAIR, QUERY, TEXT

# Models that run here. An endpoint's time is that of its network and its other users; vectors are only looked up.
TIMED = ("torch", "onnx", "static")
_MOST, _FEWEST = 64, 3  # inputs
_SECONDS = 1.5  # for each model: slow ones are timed on fewer inputs
_ROUNDS = 3  # of all inputs at once; the fastest counts, since other work on the machine only adds time

_METHODS = {"score": "score", "fill-mask": "log_probs"}  # by ability; encoders encode

Inputs = Sequence[Any]
_MANY = 50_000  # rows


def inputs(task: Task[Any], rows: Dataset) -> list[Any]:
    """At most 64 different texts of the data, or pairs for a cross-encoder, from all parts of them."""
    tables = {name: _a_few(table) for name, table in rows.tables.items()}
    distinct = list(dict.fromkeys(_all_inputs(task, replace(_a_few(rows), tables=tables))))
    places = np.linspace(0, len(distinct) - 1, min(_MOST, len(distinct))).astype(int)
    return [distinct[place] for place in places.tolist()]


def _a_few(rows: Dataset) -> Dataset:
    """Rows whose texts are enough to choose from."""
    if len(rows) <= _MANY:
        return rows
    return rows.take(np.linspace(0, len(rows) - 1, _MANY).astype(int).tolist())


def _all_inputs(task: Task[Any], rows: Dataset) -> Inputs:
    if task.ability == "fill-mask":
        return rows.columns[TEXT.key]
    if task.ability != "score":
        return list(task.text_ids(rows))
    if QUERY.key not in rows.columns:
        return list(zip(*(rows.columns[side.key] for side in PAIR), strict=True))
    queries = zip(rows.columns[QUERY.key], reranking.read(rows), strict=True)
    return [
        (query, text)
        for query, row in queries
        for text in (*row.positives, *row.negatives, *(document.text for document in row.documents or ()))
    ]


def fits_memory(sizes: Sequence[int | None]) -> bool:
    """Whether models of so many bytes can be in memory at once with room to work: three times their weights."""
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        available = 1024 * int(next(line for line in lines if line.startswith("MemAvailable")).split()[1])
        return 3 * sum(size or 0 for size in sizes) < available
    return True


def measure(models: Sequence[Any], task: Task[Any], items: Inputs) -> list[Speed | None]:
    """Of each model; None for one that does not run here, or fails on these inputs."""
    speeds: list[Speed | None] = [None] * len(models)
    method = _METHODS.get(task.ability, "encode")
    places = [i for i, model in enumerate(models) if model.info.backend in TIMED and hasattr(model, method)]
    if not places or not items:
        return speeds
    with suppress(CalipersError):
        timed = take_turns([_call(task, models[place]) for place in places], items)
        for place, speed in zip(places, timed, strict=True):
            speeds[place] = speed
    return speeds


def _call(task: Task[Any], model: Any) -> Callable[[Inputs], object]:
    """What answers these inputs. Of a masked language model: every token of each text, masked alone."""
    if task.ability == "score":
        return lambda pairs: model.score(pairs)
    if task.ability != "fill-mask":
        return lambda texts: model.encode(texts)
    options = fill_mask.FillMaskOptions()

    def score_texts(texts: Inputs) -> object:
        ids, columns = tuple(map(str, range(len(texts)))), {TEXT.key: list(texts)}
        rows = Dataset(ids, columns, DataSource("timed"), fingerprint(ids, columns))
        return fill_mask.run(model, rows, options, SILENT)

    return score_texts


def take_turns(calls: Sequence[Callable[[Inputs], object]], items: Inputs) -> list[Speed]:
    """Each call on one item after another, then on all that were timed at once. The calls take turns item by item, so
    that other work on the machine slows them all alike."""
    for call in calls:
        call(items[:1])
    began = round(time.time(), 3)
    seconds: list[list[float]] = []
    limit = time.perf_counter() + _SECONDS * len(calls)
    for item in items:
        if len(seconds) >= _FEWEST and time.perf_counter() > limit:
            break
        seconds.append([_clock(call, [item]) for call in calls])
    together = items[: len(seconds)]
    rounds = _ROUNDS if time.perf_counter() < limit else 1
    fastest = np.min([[_clock(call, together) for call in calls] for _ in range(rounds)], axis=0)
    p50, p95 = np.percentile(np.array(seconds) * 1000, [50, 95], axis=0)
    return [
        Speed(round(float(middle), 3), round(float(high), 3), round(len(together) / total, 1), len(together), began)
        for middle, high, total in zip(p50, p95, fastest.tolist(), strict=True)
    ]


def _clock(call: Callable[[Inputs], object], items: Inputs) -> float:
    start = time.perf_counter()
    call(items)
    return time.perf_counter() - start
