"""evaluate: a model on a dataset, measured and recorded."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from calipers import data, models, tasks
from calipers.core import (
    CLUSTER,
    SILENT,
    Dataset,
    Model,
    ModelInfo,
    Outcomes,
    Progress,
    RequestError,
    Result,
    Speed,
    Task,
)
from calipers.core.models import truncated_by
from calipers.data import DataOptions, trec
from calipers.metrics.search_timing import count_searches
from calipers.metrics.threads import at_most
from calipers.models import ModelOptions
from calipers.runs import key as cache
from calipers.runs import ranking, slices
from calipers.runs.protocol import TASK, Protocol
from calipers.runs.record import CONFIDENCE, Resampling, make_result, measure
from calipers.runs.shards import sharded
from calipers.runs.store import Store, refuse_name
from calipers.tasks import retrieval, timing

__all__ = ["CONFIDENCE", "TASK", "evaluate"]


def evaluate(
    model: str | Model,
    *,
    task: str = TASK,
    task_options: Mapping[str, Any] | None = None,
    dataset: str | None = None,
    columns: Mapping[str, str] | None = None,
    model_options: ModelOptions | None = None,
    data_options: DataOptions | None = None,
    resamples: int | None = None,
    confidence: float = CONFIDENCE,
    store: Store | None = None,
    progress: Progress = SILENT,
    rerank: str | None = None,
    run_out: Path | None = None,
    reuse: bool = False,
    shards: Path | None = None,
    timed: bool = True,
    name: str = "",
    group_by: Sequence[str] = (),
) -> Result:
    """Measure a model on a dataset. `model` is a reference, or anything with `info` and the task's ability.

    For retrieval, `rerank` is a cross-encoder for the second stage, `run_out` a file for the TREC run, and the model
    `run:FILE` a run that was made elsewhere. `model_options` are for `model`; behind a run file or BM25, which have no
    weights, they are for the reranker. Data are checked before the model is loaded. Without a store nothing is kept.

    With `reuse`, a stored run that answered the same question (`calipers.runs.key`) is taken and no model is loaded:
    `timing` has `reused_seconds`. If only words differ (another path to the same files, other resamples), the stored
    outcomes make a new run. With `timed`, a model that runs here is also
    timed on up to 64 of its inputs (`Result.speed`). `name` is its name in the store. `shards` is a folder
    that keeps the model's answers shard by shard: a run that was stopped goes on from there, and gives the same bits.
    `group_by` are columns of the data, or groups of `runs.slices.BUILT_IN`, for the metrics in `Result.slices`.

    >>> result = evaluate("./model", dataset="pairs.csv")
    >>> result.metrics["cosine_spearman"]
    68.2
    """
    clock, options = _Clock(), (model_options or ModelOptions(), data_options or DataOptions())
    request = _Request(model, Protocol(task, task_options or {}, dataset, columns or {}, *options))
    settled = replace(_settle(request, rerank, run_out), shards=shards)
    refuse_name(name)
    resampling = Resampling(confidence, resamples, options[1].seed, options[0].workers, options[1].cluster)
    settled, rows = _open(settled, store, run_out, clock)
    groups = slices.find(group_by, lambda: slices.columns_of(settled.task, rows.source, rows.ids))
    key = settled.key(rows) if store else None
    damaged: list[str] = []
    stored = store.find(key, damaged) if store and key and reuse else None
    with at_most(options[0].threads):
        info, outcomes = settled.answer(rows, stored, progress, clock, timed=timed)
    outcomes, chosen = _with_clusters(outcomes, rows), request.record(info)
    facts = [chosen, resampling.record(settled.task.unit, outcomes)]
    if stored and not run_out and _is_same(stored, name, facts):
        result = replace(stored, timing={**stored.timing, **clock.laps})
    else:
        result = _record(settled, chosen, _scored_rows(rows, outcomes), info, outcomes, resampling, clock)
        timing = {**(stored.timing if stored else {}), **result.timing}
        result = replace(result, name=name, timing=timing, warnings=(*result.warnings, *damaged))
        result = _keep(result, store, key, run_out)
    return slices.slice_result(result, settled.task, groups, resampling)


def _keep(result: Result, store: Store | None, key: str | None, run_out: Path | None) -> Result:
    if store:
        result = replace(result, warnings=(*result.warnings, *store.keep(result, key)))
    if run_out:  # after the run is kept: a full disk must not cost it
        trec.write_run(run_out, retrieval.results_of(result.outcomes), tag=result.model.model_id)
    return result


def _open(settled: _Settled, store: Store | None, run_out: Path | None, clock: _Clock) -> tuple[_Settled, Dataset]:
    """The rows, and the options with what they decide. Places that cannot be written are refused before the work."""
    if store:
        store.check_writable(optional=True)
    rows = settled.read_rows()
    if run_out:
        trec.check_run_file(run_out, rows)
    clock.lap("data_seconds")
    return replace(settled, options=settled.task.settle(settled.options, rows)), rows


def _is_same(stored: Result, name: str, facts: list[Any]) -> bool:
    """Whether a stored run is the answer to the same words as well, not only to the same question."""
    return name in ("", stored.name) and cache.canonical([stored.request, stored.bootstrap]) == cache.canonical(facts)


def time_in_turn(references: Sequence[str | Model], protocol: Protocol) -> list[Speed | None]:
    """How fast each model answers inputs of the data, by turns, so that other work on the machine slows them all
    alike. None for what does not run here. All models are in memory at once."""
    settled = []
    for reference in references:
        own = models.options_beside(reference, protocol.model_options, references)
        settled.append(_settle(_Request(reference, replace(protocol, model_options=own)), None, None))
    places = [i for i, side in enumerate(settled) if side.is_timed]
    speeds: list[Speed | None] = [None] * len(settled)
    if places:
        rows = settled[0].read_rows()
        loaded = [settled[i].load(None) for i in places]
        timed = timing.measure(loaded, settled[0].task, timing.inputs(settled[0].task, rows))
        for place, speed in zip(places, timed, strict=True):
            speeds[place] = speed
    return speeds


# --- settle: what is measured, before anything is read ---------------------------------------------------------------


@dataclass(frozen=True)
class _Request:
    """The arguments of `evaluate` that decide a run, as they were passed."""

    model: str | Model
    protocol: Protocol

    @property
    def task(self) -> str:
        return self.protocol.task or TASK

    def record(self, info: ModelInfo) -> dict[str, Any]:
        """All that decides the run, in two parts: what the user chose and what was left at its default."""
        protocol = self.protocol
        options = {name: value for name, value in protocol.task_options.items() if value is not None}
        values = {
            "model": self._model_name(info),
            "task": self.task,
            "task_options": options or None,
            "dataset": protocol.dataset,
            "columns": protocol.columns or None,
        }
        chosen: dict[str, Any] = {name: value for name, value in values.items() if value and value != TASK}
        defaulted: dict[str, Any] = {name: value for name, value in values.items() if name not in chosen}
        for name in ("model_options", "data_options"):
            record = getattr(protocol, name)
            pairs = {field.name: (getattr(record, field.name), field.default) for field in fields(record)}
            chosen[name] = {key: value for key, (value, default) in pairs.items() if value != default}
            defaulted[name] = {key: value for key, (value, default) in pairs.items() if value == default}
        return {"given": chosen, "defaulted": defaulted}

    def _model_name(self, info: ModelInfo) -> str | None:
        """The model as it was passed; an address without the password or key that it may hold."""
        if not isinstance(self.model, str):
            return info.model_id
        return info.path if info.backend == "http" else self.model


def _settle(request: _Request, rerank: str | None, run_out: Path | None) -> _Settled:
    model, protocol = request.model, request.protocol
    task = tasks.askable(request.task) if isinstance(model, str) else tasks.find(request.task)
    options = _settle_options(task, protocol.task_options)
    model_options = protocol.model_options
    if model_options.sizes:  # the model gives whole vectors, and the task measures their first numbers
        options, model_options = _settle_sizes(task, options, model_options), replace(model_options, truncate_dim="all")
    loaded = _read_run(model, task, protocol.model_options, rerank) if isinstance(model, str) else model
    source = models.find(model) if isinstance(model, str) and loaded is None else None
    if (rerank or run_out) and task.name != retrieval.TASK.name:
        raise RequestError(f"`rerank` and `run_out` are for the task {retrieval.TASK.name}, not for {task.name}")
    if task is retrieval.TASK and not rerank and options.rerank_k != task.options(top_k=options.top_k).rerank_k:
        raise RequestError("`rerank_k` is how many results a reranker reads, and there is none")
    reranker = models.find(rerank) if rerank else None
    path, data_options = _data_of(task, protocol)
    return _Settled(task, options, path, protocol.columns, data_options, loaded, source, reranker, model_options)


def _data_of(task: Task[Any], protocol: Protocol) -> tuple[str, DataOptions]:
    """Where the data are and which rows: those that are named, else the task's own."""
    options, default = protocol.data_options, task.default_data
    if protocol.dataset is not None:
        return protocol.dataset, options
    return default.path, replace(options, name=options.name or default.name, split=options.split or default.split)


def read_rows(protocol: Protocol) -> Dataset:
    """The rows that `evaluate` would measure, checked."""
    task = tasks.askable(protocol.task or TASK)
    path, data_options = _data_of(task, protocol)
    options = _settle_options(task, protocol.task_options)
    rows = data.load_dataset(path, task, columns=protocol.columns, options=data_options, task_options=options)
    task.check(rows)
    return rows


def run_key(model: str, rows: Dataset, protocol: Protocol) -> str | None:
    """The key under which `evaluate` would store its run on these rows; None where it is never reused."""
    settled = _settle(_Request(model, protocol), None, None)
    return replace(settled, options=settled.task.settle(settled.options, rows)).key(rows)


def _settle_sizes(task: Task[Any], options: Any, model_options: ModelOptions) -> Any:
    if "dimensions" not in (field.name for field in fields(task.options)):
        raise RequestError(
            f"`truncate_dim` takes several sizes for sentence-similarity and retrieval only, not for {task.name}"
        )
    return replace(options, dimensions=model_options.sizes)


def _settle_options(task: Task[Any], values: Mapping[str, Any]) -> Any:
    """The task's options record. A value for an option that the task does not have is an error."""
    names = [field.name for field in fields(task.options)]
    for name, value in values.items():
        if name not in names and value is not None:
            raise RequestError(f"`{name}` is not an option of the task {task.name}")
    return task.options(**{name: value for name, value in values.items() if name in names and value is not None})


def _read_run(model: str, task: Task[Any], options: ModelOptions, rerank: str | None) -> retrieval.GivenRun | None:
    """A TREC run file as a model: `run:FILE`. It has no options but its name; behind it they are the reranker's."""
    if not ranking.is_run(model):
        return None
    if task.name != retrieval.TASK.name:
        raise RequestError(f"a run file can be measured by {retrieval.TASK.name} only, not by {task.name}")
    if not rerank:
        options.refuse_others("a run file", "model_id")
    return ranking.read_run(model, None if rerank else options.model_id)


# --- answer: rows and a model to outcomes ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Settled:
    """What is measured: a task on data, by a model in memory or the source of one, and a reranker behind it."""

    task: Task[Any]
    options: Any
    path: str
    columns: Mapping[str, str]
    data_options: DataOptions
    loaded: Model | None
    source: models.Source | None
    reranker: models.Source | None
    model_options: ModelOptions
    shards: Path | None = None

    def read_rows(self) -> Dataset:
        """Data of the kind that the task reads, checked."""
        rows = data.load_dataset(
            self.path, self.task, columns=self.columns, options=self.data_options, task_options=self.options
        )
        self.task.check(rows)
        return rows

    def answer(
        self, rows: Dataset, stored: Result | None, progress: Progress, clock: _Clock, *, timed: bool
    ) -> tuple[ModelInfo, Outcomes]:
        """Those of the stored run that answered the same, else what the model gives now."""
        if stored:
            progress.start(f"Reusing the stored run {stored.run_id}", 0)
            info = self._rename(stored.model)
            clock.lap("reused_seconds")
            return info, stored.outcomes
        progress.start("Loading the model", 0)
        model = self.load(rows)
        clock.lap("load_seconds")
        before = truncated_by(model)
        with count_searches() as searches:
            outcomes = self.task.run(model, rows, self.options, progress)
        clock.lap("inference_seconds")
        clock.laps |= searches.facts()
        if (cut := truncated_by(model) - before) and "truncated" not in outcomes.counts:
            outcomes = replace(outcomes, counts={**outcomes.counts, "truncated": cut})
        if timed and self.shards is None:
            (speed,) = timing.measure([model], self.task, timing.inputs(self.task, rows))
            clock.lap("timing_seconds")
            clock.laps |= vars(speed) if speed else {}
        return model.info, outcomes

    def load(self, rows: Dataset | None) -> Any:
        """The model, and the reranker behind it. Stored vectors are found by the ids of the rows."""
        model: Any = models.load(self.source, self._first_options, self.task.ability) if self.source else self.loaded
        if hasattr(model, "bind"):
            model = model.bind(self.task.text_ids(rows) if rows else {})
        if self.source:
            model = sharded(model, self.task.ability, self.shards)
        if self.reranker is None:
            return model
        second = sharded(models.load(self.reranker, self._reranker_options, "score"), "score", self.shards)
        return retrieval.TwoStage(model, second)

    @property
    def is_timed(self) -> bool:
        backend = self.source.backend if self.source else self.loaded.info.backend if self.loaded else ""
        return backend in timing.TIMED

    def key(self, rows: Dataset) -> str | None:
        """The key of the question in the store; None where a model is not known well enough to be recognised."""
        first = self._identity()
        second = models.identity.identity(self.reranker, self._reranker_options, "score") if self.reranker else {}
        if first is None or second is None:
            return None
        return cache.cache_key(
            model={"first": first, "second": second},
            fingerprint=rows.fingerprint,
            ids=rows.ids,
            rows={
                "columns": list(rows.columns),
                "tables": {name: list(table.columns) for name, table in rows.tables.items()},
                "counts": rows.counts,
                "notes": rows.notes,
            },
            task=self.task.name,
            options=asdict(self.options),
            code=cache.code_version(),
        )

    def _identity(self) -> dict[str, Any] | None:
        if self.source:
            return models.identity.identity(self.source, self._first_options, self.task.ability)
        if isinstance(self.loaded, retrieval.GivenRun):
            return {"backend": "run", "weights": self.loaded.info.fingerprint}
        return None

    def _rename(self, info: ModelInfo) -> ModelInfo:
        """A stored model as it is called now: the same content may lie elsewhere under another name."""
        if self.source is None or self.reranker is not None:
            return info
        model_id, path = models.identity.names(self.source, self.model_options)
        return replace(info, model_id=model_id, path=path)

    @property
    def _is_lexical(self) -> bool:
        """Whether the first stage has no weights, so that options of a model can only be the reranker's."""
        return isinstance(self.loaded, retrieval.GivenRun) or (
            self.source is not None and self.source.backend == "bm25"
        )

    @property
    def _first_options(self) -> ModelOptions:
        return self._only_threads if self.reranker and self._is_lexical else self.model_options

    @property
    def _reranker_options(self) -> ModelOptions:
        return self.model_options if self._is_lexical else self._only_threads

    @property
    def _only_threads(self) -> ModelOptions:
        return ModelOptions(threads=self.model_options.threads, sandbox=self.model_options.sandbox)


class _Clock:
    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._start = self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = round(now - self._last, 4)
        self.laps["total_seconds"] = round(now - self._start, 4)
        self._last = now


# --- record ----------------------------------------------------------------------------------------------------------


def _record(
    settled: _Settled,
    request: Mapping[str, Any],
    rows: Dataset,
    info: ModelInfo,
    outcomes: Outcomes,
    resampling: Resampling,
    clock: _Clock,
) -> Result:
    """The metrics of the outcomes, and all that decided them."""
    requested = rows.source.requested or 0
    few = [f"{requested} samples were requested and {len(rows)} could be scored"] if len(rows) < requested else []
    values = measure(settled.task, settled.options, outcomes, resampling)
    clock.lap("metrics_seconds")
    return make_result(
        settled.task.name,
        asdict(settled.options),
        info,
        outcomes,
        values,
        dataset=rows.source,
        fingerprint=rows.fingerprint,
        bootstrap=resampling.record(settled.task.unit, outcomes),
        request=request,
        warnings=(*few, *info.notes, *outcomes.notes),
        timing=clock.laps,
    )


def _with_clusters(outcomes: Outcomes, rows: Dataset) -> Outcomes:
    """The outcomes with the source of each example, where rows of one source are drawn together."""
    texts = {name: values for name, values in outcomes.texts.items() if name != CLUSTER}
    if rows.clusters:
        source = dict(zip(rows.ids, rows.clusters, strict=True))
        texts[CLUSTER] = tuple(source[id] for id in outcomes.ids)
    return replace(outcomes, texts=texts)


def _scored_rows(rows: Dataset, outcomes: Outcomes) -> Dataset:
    """The rows that outcomes are of: a task may bound its work, or have nothing to score in a row."""
    if outcomes.ids == rows.ids:
        return rows
    place = {id: i for i, id in enumerate(rows.ids)}
    return rows.take([place[id] for id in outcomes.ids])
