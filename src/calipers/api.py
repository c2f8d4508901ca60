"""The library: the only module that knows all the others.

>>> import calipers
>>> result = calipers.evaluate("static:potion-base-4m", dataset="pairs.csv")     # doctest: +SKIP
>>> result.metrics["cosine_spearman"], result.intervals["cosine_spearman"]       # doctest: +SKIP
(74.31, (71.9, 76.5))
"""

from __future__ import annotations

import math
import os
import platform
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, fields
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

import calipers
from calipers import data, models, tasks
from calipers.core import (
    SILENT,
    Dataset,
    DataSource,
    InferenceError,
    Model,
    ModelInfo,
    Outcomes,
    Progress,
    RequestError,
    Result,
    Task,
)
from calipers.data import DataOptions
from calipers.metrics import bootstrap
from calipers.models import ModelOptions
from calipers.models.options import available_cores
from calipers.store import Store

RESAMPLES = 10_000
CONFIDENCE = 0.95
_PACKAGES = (
    "numpy",
    "onnxruntime",
    "tokenizers",
    "torch",
    "transformers",
    "sentence-transformers",
    "datasets",
)


def evaluate(
    model: str | Model,
    *,
    task: str = "sentence-similarity",
    task_options: Mapping[str, Any] | None = None,
    dataset: str | None = None,
    columns: Mapping[str, str] | None = None,
    model_options: ModelOptions | None = None,
    data_options: DataOptions | None = None,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    store: Store | None = None,
    progress: Progress = SILENT,
) -> Result:
    """Measure a model on a dataset. `model` is a reference, or anything with `info` and the task's ability.

    The data are read and checked before the model is loaded. Nothing is stored unless a store is given.
    """
    if not 0 < confidence < 1:
        raise RequestError(f"--confidence must lie between 0 and 1, found {confidence:g}")
    if resamples < 1:
        raise RequestError(f"--resamples must be at least 1, found {resamples}")
    clock = _Clock()
    asked = tasks.find(task)
    options = _settle_options(asked, task_options or {})
    wishes, rows_wanted = model_options or ModelOptions(), data_options or DataOptions()
    source = models.find(model) if isinstance(model, str) else None
    if store:
        store.check_writable()
    path, rows_wanted = _settle_data(asked, dataset, rows_wanted)
    rows = data.load(path, asked.columns, mapping=columns or {}, options=rows_wanted)
    asked.check(rows)
    clock.lap("data_seconds")
    loaded = models.load(source, wishes, asked.ability) if source else model
    assert not isinstance(loaded, str)
    if hasattr(loaded, "bind"):
        loaded = loaded.bind(asked.text_ids(rows))
    clock.lap("load_seconds")
    outcomes = asked.run(loaded, rows, options, progress)
    rows = _scored_rows(rows, outcomes)
    clock.lap("inference_seconds")
    metrics, intervals, warnings = measure(
        asked,
        options,
        outcomes,
        resamples=resamples,
        confidence=confidence,
        seed=rows_wanted.seed,
        threads=wishes.workers,
    )
    clock.lap("metrics_seconds")
    result = Result(
        run_id=f"{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(3)}",
        created=datetime.now(UTC).isoformat(timespec="milliseconds"),
        task=asked.name,
        options=asdict(options),
        model=loaded.info,
        dataset=rows.source,
        fingerprint=rows.fingerprint,
        request=_request(
            {
                "model": _named(model, loaded.info),
                "task": task,
                "task_options": task_options and {k: v for k, v in task_options.items() if v is not None},
                "dataset": dataset,
                "columns": columns,
            },
            model_options=wishes,
            data_options=data_options or DataOptions(),
        ),
        metrics=metrics,
        intervals=intervals,
        bootstrap={
            "unit": asked.unit,
            "confidence": confidence,
            "resamples": resamples,
            "seed": rows_wanted.seed,
        },
        warnings=(*_data_warnings(rows.source, len(rows)), *warnings),
        timing=clock.laps,
        environment=environment(),
        outcomes=outcomes,
    )
    if store:
        store.save(result)
    return result


def measure(
    task: Task, options: Any, outcomes: Outcomes, *, resamples: int, confidence: float, seed: int, threads: int = 1
) -> tuple[dict[str, float], dict[str, tuple[float, float] | None], list[str]]:
    """Every metric of the task that is defined, its interval, and what to know about those that are not."""
    known = task.measures(options)
    metrics = [metric for metric in known if all(column in outcomes.columns for column in metric.needs)]
    values = {metric.name: metric.value(outcomes.columns) for metric in metrics}
    unknown = [name for name, value in values.items() if not math.isfinite(value)]
    if known[0].name in unknown:
        raise InferenceError(f"INVALID: {known[0].name} is not defined on these {len(outcomes)} outcomes")
    defined = [metric for metric in metrics if metric.name not in unknown]
    drawn = bootstrap.distribution(
        [metric.statistic(outcomes.columns) for metric in defined],
        len(outcomes),
        resamples=resamples,
        seed=seed,
        threads=threads,
    )
    intervals = {
        metric.name: bootstrap.percentile_interval(row, confidence=confidence)
        for metric, row in zip(defined, drawn, strict=True)
    }
    warnings = [f"{name} is not defined on these outcomes (constant predictions)" for name in unknown]
    warnings += [
        f"{name} has no interval: it is undefined in too many resamples of {len(outcomes)} {task.unit}s"
        for name, ends in intervals.items()
        if ends is None
    ]
    return {name: values[name] for name in intervals}, intervals, warnings


def environment() -> dict[str, Any]:
    versions = {"calipers": calipers.__version__}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": available_cores(),
        "versions": versions,
    }


class _Clock:
    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._start = self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = round(now - self._last, 4)
        self.laps["total_seconds"] = round(now - self._start, 4)
        self._last = now


def _settle_data(task: Task, dataset: str | None, options: DataOptions) -> tuple[str, DataOptions]:
    if dataset is not None:
        return dataset, options
    default = task.default_data
    chosen = asdict(options) | {"name": options.name or default.name, "split": options.split or default.split}
    return default.path, DataOptions(**chosen)


def _settle_options(task: Task, wishes: Mapping[str, Any]) -> Any:
    """The task's options record. A wish for an option that the task does not have is an error."""
    known = [field.name for field in fields(task.options)]
    for name, value in wishes.items():
        if name not in known and value is not None:
            raise RequestError(f"--{name.replace('_', '-')} is not an option of the task {task.name}")
    return task.options(**{name: value for name, value in wishes.items() if name in known and value is not None})


def _scored_rows(rows: Dataset, outcomes: Outcomes) -> Dataset:
    """The rows that outcomes speak of: a task may have bounded its work, or found nothing to score in some."""
    if outcomes.ids == rows.ids:
        return rows
    place = {id: i for i, id in enumerate(rows.ids)}
    return rows.take([place[id] for id in outcomes.ids])


def _data_warnings(source: DataSource, rows: int) -> list[str]:
    if source.requested and rows < source.requested:
        return [f"{source.requested} samples were asked for and {rows} could be scored"]
    return []


def _named(model: str | Model, info: ModelInfo) -> str | None:
    """The model as it was asked for; an address without the password or key that it may hold."""
    if not isinstance(model, str):
        return info.model_id
    return info.path if info.backend == "http" else model


def _request(named: Mapping[str, Any], **records: Any) -> dict[str, Any]:
    """Everything that decides the run, in two heaps: what the user said and what was left at its default."""
    given = {key: value for key, value in named.items() if value}
    defaulted: dict[str, Any] = {key: value for key, value in named.items() if not value}
    for name, record in records.items():
        values = {field.name: (getattr(record, field.name), field.default) for field in fields(record)}
        given[name] = {key: value for key, (value, default) in values.items() if value != default}
        defaulted[name] = {key: value for key, (value, default) in values.items() if value == default}
    return {"given": given, "defaulted": defaulted}


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or os.uname().machine
