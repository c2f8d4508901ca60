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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
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
from calipers.data import DataOptions, beir, nanobeir, trec
from calipers.metrics import bootstrap
from calipers.models import ModelOptions
from calipers.models.options import available_cores
from calipers.runs import key as cache
from calipers.runs.store import Store
from calipers.tasks import retrieval

TASK = "sentence-similarity"
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
    task: str = TASK,
    task_options: Mapping[str, Any] | None = None,
    dataset: str | None = None,
    columns: Mapping[str, str] | None = None,
    model_options: ModelOptions | None = None,
    data_options: DataOptions | None = None,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    store: Store | None = None,
    progress: Progress = SILENT,
    rerank: str | None = None,
    run_out: Path | None = None,
    reuse: bool = False,
) -> Result:
    """Measure a model on a dataset. `model` is a reference, or anything with `info` and the task's ability.

    For retrieval, `rerank` is a cross-encoder for the second stage and `run_out` a file for the TREC run; as the model,
    `run:FILE` measures a run that was made elsewhere. The data are read and checked before the model is loaded.
    Nothing is stored unless a store is given.

    With `reuse`, a run in the store that answered the same question (same model content, settings, rows, options and
    code; see `calipers.runs.key`) is taken and no model is loaded: `timing` tells `reused_seconds`, and its times of
    loading and inference are those of then. Where the question was put in other words (another path to the same
    files, other resamples), the stored outcomes make a new run.
    """
    if not 0 < confidence < 1:
        raise RequestError(f"--confidence must lie between 0 and 1, found {confidence:g}")
    if resamples < 1:
        raise RequestError(f"--resamples must be at least 1, found {resamples}")
    clock = _Clock()
    asked = tasks.askable(task) if isinstance(model, str) else tasks.find(task)
    options = _settle_options(asked, task_options or {})
    wishes, rows_wanted = model_options or ModelOptions(), data_options or DataOptions()
    given = _given_run(model, asked)
    source = models.find(model) if isinstance(model, str) and given is None else None
    second = _second_stage(rerank, run_out, asked)
    if store:
        store.check_writable()
    path, rows_wanted = _settle_data(asked, dataset, rows_wanted)
    rows = _load_rows(asked, path, columns or {}, rows_wanted, options)
    asked.check(rows)
    clock.lap("data_seconds")
    stages = _Stages(given or (None if isinstance(model, str) else model), source, second, wishes, asked.ability)
    key = stages.key(asked, options, rows) if store else None
    kept = store.find(key) if store and key and reuse else None
    if kept:
        progress.start(f"Reusing the stored run {kept.run_id}", 0)
        info, outcomes = stages.rename(kept.model), kept.outcomes
        clock.lap("reused_seconds")
    else:
        progress.start("Loading the model", 0)
        loaded = stages.load(asked.text_ids(rows))
        clock.lap("load_seconds")
        outcomes = asked.run(loaded, rows, options, progress)
        info = loaded.info
        clock.lap("inference_seconds")
    request = _request(
        {
            "model": _named(model, info),
            "task": task,
            "task_options": task_options and {k: v for k, v in task_options.items() if v is not None},
            "dataset": dataset,
            "columns": columns,
        },
        model_options=wishes,
        data_options=data_options or DataOptions(),
    )
    drawn = {"unit": asked.unit, "confidence": confidence, "resamples": resamples, "seed": rows_wanted.seed}
    if kept and not run_out and cache.canonical([kept.request, kept.bootstrap]) == cache.canonical([request, drawn]):
        return replace(kept, timing={**kept.timing, **clock.laps})
    rows = _scored_rows(rows, outcomes)
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
        model=info,
        dataset=rows.source,
        fingerprint=rows.fingerprint,
        request=request,
        metrics=metrics,
        intervals=intervals,
        bootstrap=drawn,
        warnings=(*_data_warnings(rows.source, len(rows)), *info.notes, *outcomes.notes, *warnings),
        timing={**kept.timing, **clock.laps} if kept else clock.laps,
        environment=environment(),
        outcomes=outcomes,
    )
    if run_out:
        trec.write_run(run_out, retrieval.results_of(outcomes), tag=info.model_id.replace(" ", "_"))
    if store:
        store.save(result, key)
    return result


@dataclass(frozen=True)
class _Stages:
    """What answers: a model in hand or a source of one, and for retrieval a reranker behind it."""

    given: Model | None
    source: models.Source | None
    second: models.Source | None
    wishes: ModelOptions
    ability: str

    def load(self, text_ids: Mapping[str, Sequence[str]]) -> Any:
        loaded: Any = models.load(self.source, self.wishes, self.ability) if self.source else self.given
        if hasattr(loaded, "bind"):
            loaded = loaded.bind(text_ids)
        if self.second is None:
            return loaded
        return retrieval.TwoStage(loaded, models.load(self.second, self._second_wishes, "score"))  # type: ignore[arg-type]

    def key(self, task: Task, options: Any, rows: Dataset) -> str | None:
        """The key of the question in the store; None where a model is not known well enough to be known again."""
        first = self._first_identity()
        second = models.identity.identity(self.second, self._second_wishes, "score") if self.second else {}
        if first is None or second is None:
            return None
        more = {
            "columns": list(rows.columns),
            "tables": {name: list(table.columns) for name, table in rows.tables.items()},
        }
        return cache.cache_key(
            model={"first": first, "second": second},
            fingerprint=rows.fingerprint,
            ids=rows.ids,
            rows={**more, "counts": rows.counts, "notes": rows.notes},
            task=task.name,
            options=asdict(options),
            code=cache.code_version(),
        )

    def rename(self, info: ModelInfo) -> ModelInfo:
        """A stored model as it is called now: the same content may lie elsewhere under another name."""
        if self.source is None or self.second is not None:
            return info
        model_id, path = models.identity.names(self.source, self.wishes)
        return replace(info, model_id=model_id, path=path)

    def _first_identity(self) -> dict[str, Any] | None:
        if self.source:
            return models.identity.identity(self.source, self.wishes, self.ability)
        if isinstance(self.given, retrieval.GivenRun):
            return {"backend": "run", "weights": self.given.info.fingerprint}
        return None

    @property
    def _second_wishes(self) -> ModelOptions:
        return ModelOptions(threads=self.wishes.threads)


def measure(
    task: Task, options: Any, outcomes: Outcomes, *, resamples: int, confidence: float, seed: int, threads: int = 1
) -> tuple[dict[str, float], dict[str, tuple[float, float] | None], list[str]]:
    """Every metric of the task that is defined, its interval, and what to know about those that are not."""
    metrics = [m for m in task.measures(options) if all(column in outcomes.columns for column in m.needs)]
    values = {metric.name: metric.value(outcomes.columns) for metric in metrics}
    unknown = [name for name, value in values.items() if not math.isfinite(value)]
    if metrics[0].name in unknown:
        raise InferenceError(f"INVALID: {metrics[0].name} is not defined on these {len(outcomes)} outcomes")
    defined = [metric for metric in metrics if metric.name not in unknown]
    drawn = bootstrap.distribution(
        [metric.statistic(outcomes.columns) for metric in defined],
        len(outcomes),
        resamples=resamples,
        seed=seed,
        threads=threads,
    )
    intervals = {
        # every resample of one example is that example
        metric.name: bootstrap.percentile_interval(row, confidence=confidence) if len(outcomes) > 1 else None
        for metric, row in zip(defined, drawn, strict=True)
    }
    warnings = [f"{name} is not defined on these outcomes (constant predictions)" for name in unknown]
    if len(outcomes) == 1:
        return {name: values[name] for name in intervals}, intervals, [*warnings, f"one {task.unit} gives no interval"]
    warnings += [
        f"{name} has no interval: it is undefined in too many resamples of {len(outcomes)} {task.unit}s"
        for name, ends in intervals.items()
        if ends is None
    ]
    return {name: values[name] for name in intervals}, intervals, warnings


def environment() -> dict[str, Any]:
    from importlib import metadata  # here, because it takes as long to import as two stored runs take to read

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


def _load_rows(task: Task, path: str, columns: Mapping[str, str], wanted: DataOptions, options: Any) -> Dataset:
    """Data of the kind that the task reads; `options` are the task's own."""
    if task.data == "rows":
        rows = data.load(path, task.columns, mapping=columns, options=wanted)
        judgements = getattr(options, "qrels", None)
        return trec.add_qrels(rows, Path(judgements).expanduser()) if judgements else rows
    if columns or wanted.streaming:
        raise RequestError(f"{task.name} reads a corpus, queries and judgements: --column and --streaming do not apply")
    which = {key: getattr(wanted, key) for key in ("revision", "samples", "seed", "shuffle")}
    if task.data == "beir":
        return beir.load(path, name=wanted.name, split=wanted.split, **which)
    if wanted.name or wanted.split:
        raise RequestError(f"{task.name} takes its data by --sets: --dataset-name and --split do not apply")
    return nanobeir.load(path, options.splits, rerank_k=options.rerank_k, **which)


def _given_run(model: str | Model, task: Task) -> retrieval.GivenRun | None:
    """A TREC run file as a model: `run:FILE`."""
    if not isinstance(model, str) or not model.startswith("run:"):
        return None
    if task.name != retrieval.TASK.name:
        raise RequestError(f"a run file can be measured by {retrieval.TASK.name} only, not by {task.name}")
    file = Path(model.removeprefix("run:"))
    run = trec.read_run(file)
    return retrieval.GivenRun(run, ModelInfo("run", file.name, str(file), "none", models.hub.fingerprint([file])))


def _second_stage(rerank: str | None, run_out: Path | None, task: Task) -> models.Source | None:
    if (rerank or run_out) and task.name != retrieval.TASK.name:
        raise RequestError(f"--rerank and --run-out are for the task {retrieval.TASK.name}, not for {task.name}")
    return models.find(rerank) if rerank else None


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
    given = {key: value for key, value in named.items() if value and value != TASK}
    defaulted: dict[str, Any] = {key: value for key, value in named.items() if key not in given}
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
