"""compare: a baseline and candidates, each a model or a stored run, on the same examples."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from calipers import models, tasks
from calipers.comparison import verdict
from calipers.comparison.records import Verdict
from calipers.core import SILENT, InvalidOutput, Metric, Model, Progress, RequestError, Result, Task, Thresholds
from calipers.data import DataOptions
from calipers.models import ModelOptions
from calipers.runs import api, catalogue
from calipers.runs.store import Store
from calipers.tasks import agreement

FEWEST_RESAMPLES = 100  # with fewer, an interval is a few numbers
_RUN_ID = re.compile(r"latest|\d{8}-\d{6}(-[0-9a-f]{0,6})?")

Side = str | Model | Result  # a reference to a model, a stored run's id, or either of them in hand


@dataclass(frozen=True)
class Protocol:
    """What both sides are asked, where they are not stored runs. None and empty: as the stored run, else default."""

    task: str | None = None
    task_options: Mapping[str, Any] = field(default_factory=dict)
    dataset: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    model_options: ModelOptions = field(default_factory=ModelOptions)
    data_options: DataOptions = field(default_factory=DataOptions)


def compare(
    baseline: Side,
    candidates: Sequence[Side],
    *,
    protocol: Protocol | None = None,
    thresholds: Mapping[str, Thresholds] | None = None,
    metrics: Sequence[str] = (),
    confidence: float = api.CONFIDENCE,
    resamples: int = api.RESAMPLES,
    worst: int = 10,
    store: Store | None = None,
    fresh: bool = False,
    progress: Progress = SILENT,
) -> list[Verdict]:
    """A verdict on each candidate. Stored runs are taken as they are; models are evaluated on the same rows.

    `metrics` are those to compare, all of which then decide; left empty, the primary metric decides, and those that
    have a threshold in `thresholds`. A stored run of the same model on the same rows is used unless `fresh`.
    """
    if not candidates:
        raise RequestError("there is nothing to compare with the baseline: name at least one candidate")
    asked = protocol or Protocol()
    known = {id(side): _stored(side, store) for side in (baseline, *candidates)}
    asked = _settle(asked, [run for run in known.values() if run], all_stored=all(known.values()))

    def result(side: Side) -> Result:
        return known[id(side)] or _evaluate(side, asked, resamples, confidence, store, fresh, progress)

    first = _alive(lambda: result(baseline))
    chosen, terms = _terms(first, metrics, thresholds or {}, confidence, resamples, asked, worst)
    verdicts = [_judge(first, side, result, chosen, terms, progress) for side in candidates]
    return verdict.correct(verdicts)


def agree(
    baseline: str | Model,
    candidates: Sequence[str | Model],
    *,
    protocol: Protocol | None = None,
    thresholds: Mapping[str, Thresholds] | None = None,
    metrics: Sequence[str] = (),
    confidence: float = api.CONFIDENCE,
    resamples: int = api.RESAMPLES,
    worst: int = 10,
    progress: Progress = SILENT,
) -> list[Verdict]:
    """The same without gold labels: how far each candidate agrees with the baseline, against perfect agreement.

    Both models of a pair are held at once; nothing is stored, since the outcomes are of two models.
    """
    if not candidates:
        raise RequestError("there is nothing to compare with the baseline: name at least one candidate")
    asked = protocol or Protocol()
    task = agreement.TASKS.get(tasks.find(asked.task or api.TASK).ability)
    if task is None:
        raise RequestError(f"--unlabelled has no form for the task {asked.task}")
    first, asked = _load(baseline, task.ability, asked), replace(asked, task=task.name)

    def result(both: agreement.Both) -> Result:
        found = _evaluate(both, asked, resamples, confidence, None, True, progress)
        return replace(found, run_id="")  # it is of two models, and not stored

    verdicts = []
    for side in candidates:
        second = _load(side, task.ability, asked)
        try:
            found = result(agreement.Both(first, second))
            known = _perfect(found, first, task)
            chosen, terms = _terms(known, metrics, thresholds or {}, confidence, resamples, asked, worst)
            verdicts.append(verdict.compare(known, found, chosen, terms))
        except InvalidOutput as error:
            known = _perfect(_alive(lambda: result(agreement.Both(first, first))), first, task)
            chosen, terms = _terms(known, metrics, thresholds or {}, confidence, resamples, asked, worst)
            verdicts.append(verdict.invalid(known, second.info.model_id, _reason(error), chosen, terms))
    return verdict.correct(verdicts)


def _perfect(found: Result, first: Model, task: Task) -> Result:
    """What the baseline would give beside itself."""
    ideal = agreement.perfect(found.outcomes)
    values = {m.name: m.value(ideal.columns) for m in task.metrics if m.name in found.metrics}
    return replace(found, model=first.info, outcomes=ideal, metrics=values)


def _alive(result: Callable[[], Result]) -> Result:
    """The baseline's own: a dead candidate is a verdict, a dead baseline an error."""
    try:
        return result()
    except InvalidOutput as error:
        raise InvalidOutput(f"the baseline cannot be compared with: {_reason(error)}", error.rows) from error


def _reason(error: InvalidOutput) -> str:
    return error.reason


def _load(side: str | Model, ability: str, asked: Protocol) -> Model:
    if isinstance(side, str) and _RUN_ID.fullmatch(side) and not Path(side).exists():
        raise RequestError(f"--unlabelled asks the models themselves, and {side!r} is a stored run: name two models")
    return models.load(models.find(side), asked.model_options, ability) if isinstance(side, str) else side


def _judge(
    first: Result,
    side: Side,
    result: Callable[[Side], Result],
    metrics: Sequence[Metric],
    terms: verdict.Terms,
    progress: Progress,
) -> Verdict:
    try:
        second = result(side)
    except InvalidOutput as error:
        return verdict.invalid(first, _name(side), _reason(error), metrics, terms)
    progress.start("Resampling", 0)
    return verdict.compare(first, second, metrics, terms)


def _terms(
    first: Result,
    names: Sequence[str],
    thresholds: Mapping[str, Thresholds],
    confidence: float,
    resamples: int,
    asked: Protocol,
    worst: int,
) -> tuple[list[Metric], verdict.Terms]:
    if resamples < FEWEST_RESAMPLES:
        raise RequestError(f"--resamples must be at least {FEWEST_RESAMPLES} for a verdict, found {resamples}")
    if worst < 0:
        raise RequestError(f"--worst must not be negative, found {worst}")
    if not 0 < confidence < 1:
        raise RequestError(f"--confidence must lie between 0 and 1, found {confidence:g}")
    task = catalogue.find(first.task)
    columns = first.outcomes.columns
    offered = [m for m in task.measures(task.options(**first.options)) if all(c in columns for c in m.needs)]
    for name in (*names, *thresholds):
        if name != "all" and name not in first.metrics:
            raise RequestError(f"the baseline has no metric {name!r}: expected one of {', '.join(first.metrics)}")
    asked_for = {*names, *thresholds}
    chosen = [m for m in offered if "all" in names or m.name in asked_for or not (names or m.minor)]
    chosen = [m for m in chosen if m.name in first.metrics]
    terms = verdict.Terms(
        thresholds=thresholds,
        deciding=tuple(name for name in names if name != "all") or (offered[0].name, *thresholds),
        confidence=confidence,
        resamples=resamples,
        seed=asked.data_options.seed,
        threads=asked.model_options.workers,
        worst=worst,
    )
    return chosen, terms


def _stored(side: Side, store: Store | None) -> Result | None:
    """The run that is meant, if a run is meant and not a model."""
    if isinstance(side, Result):
        return side
    if not isinstance(side, str) or not _RUN_ID.fullmatch(side) or Path(side).exists():
        return None
    if store is None:
        raise RequestError(f"{side!r} is a stored run, and --no-store says that there is no store")
    return store.load(side)


def _settle(asked: Protocol, runs: Sequence[Result], *, all_stored: bool) -> Protocol:
    """What a model is asked beside a stored run is what the run was asked, unless told otherwise."""
    if not runs:
        return asked
    run = runs[0]
    if all_stored and (asked.dataset or asked.columns or any(v is not None for v in asked.task_options.values())):
        raise RequestError(
            "stored runs are compared as they are: --dataset, --column and the task's options do not apply"
        )
    if asked.task and catalogue.find(asked.task).name != run.task:
        raise RequestError(f"the run {run.run_id} is of the task {run.task}, not of {asked.task}")
    source, given = run.dataset, asked.data_options
    same_data = asked.dataset is None
    return Protocol(
        task=run.task,
        task_options={**run.options, **{k: v for k, v in asked.task_options.items() if v is not None}},
        dataset=source.path if same_data else asked.dataset,
        columns=asked.columns or (source.columns_mapping if same_data else {}),
        model_options=asked.model_options,
        data_options=DataOptions(
            name=source.name,
            split=source.split,
            revision=source.revision,
            samples=source.requested,
            seed=source.seed,
            shuffle=source.shuffle,
            streaming=source.streaming,
        )
        if same_data and given == DataOptions()
        else given,
    )


def _evaluate(
    side: Side,
    asked: Protocol,
    resamples: int,
    confidence: float,
    store: Store | None,
    fresh: bool,
    progress: Progress,
) -> Result:
    assert not isinstance(side, Result)
    return api.evaluate(
        side,
        task=asked.task or api.TASK,
        task_options=asked.task_options,
        dataset=asked.dataset,
        columns=asked.columns,
        model_options=asked.model_options,
        data_options=asked.data_options,
        resamples=resamples,
        confidence=confidence,
        store=store,
        reuse=not fresh,
        progress=progress,
    )


def _name(side: Side) -> str:
    if isinstance(side, str):
        return side
    return side.model.model_id if isinstance(side, Result) else side.info.model_id
