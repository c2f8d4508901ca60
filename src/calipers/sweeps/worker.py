"""The process of one job: `python -m calipers.sweeps.worker SPEC`. It opens no database.

What it made is a folder that is whole or not there; why it failed is a file. It ends with the process that started it.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from calipers.core import CalipersError, DataError, InferenceError, ModelError, Result
from calipers.core.files import write_whole
from calipers.runs.store import Store, write_run
from calipers.sweeps.processes import DISK_FULL, end_with_parent

_TIMED_ROWS = 16
_TIMED_ROUNDS = 3
_BUSY = 0.25  # cores that other work may use while something is timed


class ResultFolder(Store):
    """A place for one run, without a database: what `evaluate` saves is a folder that the driver imports."""

    def check_writable(self, *, optional: bool = False) -> None:
        self.folder.parent.mkdir(parents=True, exist_ok=True)

    def find(self, key: str, damaged: list[str] | None = None) -> None:
        return None

    def keep(self, result: Result, key: str | None = None) -> tuple[str, ...]:
        """Here a result that cannot be written is a failure: the job is run again."""
        self.save(result, key)
        return ()

    def save(self, result: Result, key: str | None = None) -> None:
        write_run(self.folder, result, key)


def main(path: str) -> int:
    spec = json.loads(Path(path).read_text(encoding="utf-8"))
    end_with_parent()
    print(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {spec['kind']} {spec['name']}", flush=True)
    try:
        _KINDS[spec["kind"]](spec)
    except BaseException as error:
        return _report(error, spec)
    print(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} done", flush=True)
    return 0


def _report(error: BaseException, spec: Mapping[str, Any]) -> int:
    traceback.print_exc()
    if _is_full(error):
        return DISK_FULL
    code = int(getattr(error, "exit_code", 4))
    message = str(error) if isinstance(error, CalipersError) else f"unexpected {type(error).__name__}: {error}"
    report = {"class": _class_of(error, spec), "message": message, "exit_code": code}
    report["invalid"] = type(error).__name__ == "InvalidOutput"
    write_whole(Path(spec["report"]), json.dumps(report))
    return code or 4


def _is_full(error: BaseException | None) -> bool:
    """Whether a full disk is the cause: no fault of the cell."""
    if error is None:
        return False
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return full or "No space left on device" in str(error) or _is_full(error.__cause__)


def _class_of(error: BaseException, spec: Mapping[str, Any]) -> str:
    if isinstance(error, MemoryError) or "bad_alloc" in str(error) or "not enough memory" in str(error):
        return "memory"
    if isinstance(error, DataError):
        return "data"
    if spec["kind"] == "build" and not isinstance(error, _CannotLoad):
        return "export" if spec["precision"] == "fp32" else "quantise"
    if isinstance(error, (ModelError, _CannotLoad)):
        return "model-load"
    return "inference" if isinstance(error, InferenceError) or not isinstance(error, CalipersError) else "data"


class _CannotLoad(ModelError):
    """The model of a build is not there, or cannot be read."""


def _measure(spec: Mapping[str, Any]) -> None:
    """All of a cell, or a part of it."""
    from calipers.runs.shards import shared

    with shared(spec["part"], spec["parts"], ranges=spec["ranges"]):
        _evaluate(spec)


def _evaluate(spec: Mapping[str, Any]) -> None:
    from calipers.runs.api import evaluate

    evaluate(
        spec["reference"],
        task=spec["task"],
        task_options=_tuples(spec["task_options"]),
        dataset=spec["dataset"],
        columns=spec["columns"],
        model_options=_model_options(spec),
        data_options=_data_options(spec),
        confidence=spec["confidence"],
        resamples=spec["resamples"],
        store=ResultFolder(Path(spec["result"])),
        shards=Path(spec["shards"]),
    )


def _part(spec: Mapping[str, Any]) -> None:
    """A part of a measurement, for the job that needs them all. What goes wrong, that job reports."""
    with suppress(CalipersError), TemporaryDirectory() as scratch:
        _measure({**spec, "result": str(Path(scratch) / "result")})
    write_whole(Path(spec["result"]), "{}")


def _build(spec: Mapping[str, Any]) -> None:
    from calipers.artifacts import api, manifest, stages
    from calipers.artifacts.recipe import Recipe
    from calipers.artifacts.records import BuildOptions
    from calipers.attribution.api import build_options
    from calipers.runs.protocol import Protocol

    recipe = Recipe(spec["precision"])
    protocol = Protocol(
        task=spec["task"],
        dataset=spec["dataset"],
        columns=spec["columns"],
        model_options=_model_options(spec),
        data_options=_data_options(spec),
    )
    chosen = build_options(recipe, protocol, BuildOptions(calibration=spec["calibration"]))
    folder = Path(spec["folder"])
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        plan = api.plan(spec["reference"], folder, recipe, chosen)
    except ModelError as error:
        raise _CannotLoad(str(error)) from error
    built = stages.make_stages(plan)
    write_whole(Path(spec["result"]), manifest.to_json(built))


def _time(spec: Mapping[str, Any]) -> None:
    """The median time of one row on one thread, in milliseconds."""
    from calipers import models

    options = replace(_model_options(spec), threads=1)
    model: Any = models.load(models.find(spec["reference"]), options, spec["ability"])
    if hasattr(model, "bind"):
        model = model.bind(spec["text_ids"] or {})
    run = _ROWS[spec["ability"]](model, spec["texts"][:_TIMED_ROWS])
    run[0]()
    loaded = _is_machine_busy()
    times: list[list[float]] = [[] for _ in run]
    for _ in range(_TIMED_ROUNDS):
        for place, one in enumerate(run):
            start = time.perf_counter()
            one()
            times[place].append(time.perf_counter() - start)
    best = sorted(min(row) for row in times)
    p50 = best[len(best) // 2] if len(best) % 2 else (best[len(best) // 2 - 1] + best[len(best) // 2]) / 2
    write_whole(Path(spec["result"]), json.dumps({"p50": round(1000 * p50, 4), "rows": len(run), "loaded": loaded}))


def _is_machine_busy(seconds: float = 0.25) -> bool:
    """Whether other processes use more than a quarter of a core, by what Linux counts; False elsewhere."""

    def busy() -> float:
        ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
        return (sum(ticks[:8]) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")

    try:
        before = busy()
        time.sleep(seconds)
        return (busy() - before) / seconds > _BUSY
    except (OSError, ValueError, IndexError):
        return False


def _encode_rows(model: Any, texts: Sequence[Any]) -> list[Callable[[], Any]]:
    return [partial(model.encode, [text if isinstance(text, str) else text[0]]) for text in texts]


def _score_rows(model: Any, texts: Sequence[Any]) -> list[Callable[[], Any]]:
    return [partial(model.score, [tuple(pair)]) for pair in texts]


def _mask_rows(model: Any, texts: Sequence[Any]) -> list[Callable[[], Any]]:
    import numpy as np

    from calipers.core import MaskedTokens

    def ask(row: Any) -> Callable[[], Any]:
        middle = row.scored[len(row.scored) // 2 : len(row.scored) // 2 + 1]
        return lambda: model.log_probs(MaskedTokens([row.ids], np.zeros(1, np.int32), middle, middle + 1))

    return [ask(row) for row in model.tokenize(list(texts)) if len(row.scored)]


_ROWS: dict[str, Callable[[Any, Sequence[Any]], list[Callable[[], Any]]]] = {
    "encode": _encode_rows,
    "retrieve": _encode_rows,
    "score": _score_rows,
    "fill-mask": _mask_rows,
}
_KINDS: dict[str, Callable[[Mapping[str, Any]], None]] = {
    "measure": _measure,
    "part": _part,
    "build": _build,
    "time": _time,
}


def _model_options(spec: Mapping[str, Any]) -> Any:
    from calipers.models import ModelOptions

    options = ModelOptions(**spec["model_options"])
    return options if options.threads else replace(options, threads=spec["threads"])


def _data_options(spec: Mapping[str, Any]) -> Any:
    from calipers.data import DataOptions

    return DataOptions(**spec["data_options"])


def _tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has lists where options have tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


if __name__ == "__main__":
    code = main(sys.argv[1])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # native threads of a runtime must not delay the end, nor turn success into a crash
