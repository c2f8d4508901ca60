"""compare: a baseline and candidates, each a model or a stored run, on the same examples."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from calipers import models, tasks
from calipers.comparison import verdict
from calipers.comparison.names import with_names
from calipers.comparison.records import GateOptions, Question, Verdict, VerdictOptions
from calipers.core import (
    SILENT,
    DataSource,
    InvalidOutput,
    Metric,
    Model,
    Progress,
    RequestError,
    Result,
    Task,
    Thresholds,
)
from calipers.core.errors import boundary
from calipers.core.references import clean
from calipers.data import DataOptions
from calipers.metrics.threads import at_most
from calipers.runs import catalogue
from calipers.runs.protocol import TASK, Protocol
from calipers.runs.record import CONFIDENCE
from calipers.runs.store import Store

if TYPE_CHECKING:
    from calipers.runs.slices import Labels

_RUN_ID = re.compile(r"latest|\d{8}-\d{6}(-[0-9a-f]{0,6})?")

_WORST = 5  # examples that are named, where there is one candidate
_CHOICE = ("name", "split", "revision", "seed", "shuffle", "streaming", "cluster")  # what a stored run says of its rows

Side = str | Model | Result  # a reference to a model, a stored run's id, or either of them in memory


def compare(
    baseline: Side,
    candidates: Sequence[Side],
    *,
    protocol: Protocol | None = None,
    thresholds: Mapping[str, Thresholds] | None = None,
    metrics: Sequence[str] = (),
    confidence: float = CONFIDENCE,
    resamples: int | None = None,
    worst: int | None = None,
    names: Sequence[str] = (),
    fail_on: str = "regression",
    unlabelled: bool = False,
    store: Store | None = None,
    fresh: bool = False,
    shared: Collection[str] = (),
    group_by: Sequence[str] = (),
    progress: Progress = SILENT,
) -> list[Verdict]:
    """A verdict on each candidate. Stored runs are taken as they are; models are evaluated on the same rows.

    `metrics` are those to compare, all of which then decide; left empty, the primary metric decides, and those that
    have a threshold in `thresholds`. With `fail_on` "at-risk" the labels answer whether the loss is AT_RISK or worse,
    else whether it is a REGRESSION. A stored run of the same model on the same rows is used unless `fresh`. Metrics and
    thresholds whose names are in `shared` serve several tasks: those of another task are left out. `names` are what the
    sides are called, the baseline first, by default after their artefacts; `worst` is how many of the examples that
    lost most are named, by default 5 for one candidate and none for several. Models that run here are timed by turns on
    the same inputs, unless all are known from the store. `group_by` are columns of the data, or groups of
    `runs.slices.BUILT_IN`: `Verdict.slices` says where a change hurts most.

    With `unlabelled`, the agreement of each candidate with the baseline is measured, against perfect agreement. Both
    models are in memory at once; nothing is stored, since the outcomes are of two models.

    >>> compare("./model", ["./cls"], protocol=Protocol(dataset="pairs.csv"))
    [Verdict(INCONCLUSIVE: cls against model, cosine_spearman -3.9)]
    """
    if not candidates:
        raise RequestError("there is nothing to compare with the baseline: name at least one candidate")
    sides, count = (baseline, *candidates), 1 + len(candidates)
    _refuse_names(names, count)
    worst = (_WORST if len(candidates) == 1 else 0) if worst is None else worst
    options = VerdictOptions(tuple(metrics), confidence, resamples, worst, thresholds or {})
    work = _Work(
        protocol or Protocol(),
        options,
        GateOptions(fail_on).question,
        progress,
        frozenset(shared),
        sides,
        tuple(group_by),
    )
    _refuse_unlabelled({"fresh": fresh, "store": store, "group_by": group_by} if unlabelled else {})
    if unlabelled:
        with at_most(work.protocol.model_options.threads):
            return with_names(verdict.correct(_agree(baseline, candidates, work)), names)
    given = [_Side(side, _stored(side, store), name) for side, name in zip(sides, names or [""] * count, strict=True)]
    if fresh and all(side.run for side in given):
        raise RequestError("`fresh` runs models again, and all sides are stored runs")
    return with_names(verdict.correct(_judge(given, work, store, fresh=fresh)), names)


def _runs_api() -> ModuleType:
    """What measures models: stored runs are compared without it, in half the time."""
    from calipers.runs import api

    return api


def _refuse_names(names: Sequence[str], count: int) -> None:
    if names and len(names) != count:
        raise RequestError(f"`names` must name every side: expected {count}, the baseline first, found {len(names)}")


def _refuse_unlabelled(others: Mapping[str, object]) -> None:
    for name in (name for name, value in others.items() if value):
        why = "groups are of labelled data" if name == "group_by" else "nothing is stored"
        raise RequestError(f"`{name}` has no effect with `unlabelled`: {why}")


@dataclass(frozen=True)
class _Side:
    """A side as it was passed, the stored run that it means, and what it is called."""

    given: Side
    run: Result | None
    name: str

    @property
    def reference(self) -> str | Model:
        assert not isinstance(self.given, Result)
        return self.given


def _judge(sides: Sequence[_Side], work: _Work, store: Store | None, *, fresh: bool) -> list[Verdict]:
    """A verdict on each side but the first."""
    runs = [side.run for side in sides if side.run]
    sample = work.protocol.data_options.samples if runs else None
    work = replace(
        work,
        protocol=_settle(work.protocol, runs, all_stored=len(runs) == len(sides)),
        sides=tuple(side.given for side in sides if not side.run),
    )

    groups = work.groups(runs[0] if runs else None)

    def result(side: _Side, how: _Work) -> Result:
        return side.run or how.evaluate(side.reference, store, reuse=not fresh, name=side.name)

    first_work = work if sides[0].run else work.of_baseline(sides[0].given)
    results: list[Result | InvalidOutput] = [_alive(lambda: result(sides[0], first_work))]
    for side in sides[1:]:
        try:
            results.append(result(side, work))
        except InvalidOutput as error:
            results.append(error)
    if sample:
        from calipers.comparison import cutting

        cut = iter(cutting.cut(_sound(results), replace(work.protocol.data_options, samples=sample)))
        results = [next(cut) if isinstance(each, Result) else each for each in results]
    results = work.time_in_turn(sides, results, store)
    work.progress.start("Resampling", 0)
    first = _sound(results)[0]
    terms = work.terms(first)
    verdicts = []
    for side, second in zip(sides[1:], results[1:], strict=True):
        if isinstance(second, Result):
            with boundary(RequestError, "the outcomes cannot be compared"):
                verdicts.append(_with_slices(verdict.compare(first, second, *terms), groups, *terms))
        else:
            verdicts.append(verdict.invalid(first, side.name or _name(side.given), second.reason, *terms))
    if store:
        store.keep_labels({v.candidate.run_id: (first.run_id, v.label) for v in verdicts if v.candidate})
    return verdicts


def _with_slices(judged: Verdict, groups: Sequence[Labels], metrics: list[Metric], terms: verdict.Terms) -> Verdict:
    if not groups:
        return judged
    from calipers.comparison.slices import with_slices

    return with_slices(judged, groups, metrics, terms)


def _sound(results: Sequence[Result | InvalidOutput]) -> list[Result]:
    return [result for result in results if isinstance(result, Result)]


@dataclass(frozen=True)
class _Work:
    """What `compare` does for each side."""

    protocol: Protocol
    options: VerdictOptions
    question: Question
    progress: Progress
    shared: frozenset[str] = frozenset()
    sides: tuple[Side, ...] = ()
    group_by: tuple[str, ...] = ()

    def groups(self, run: Result | None) -> tuple[Labels, ...]:
        """What examples are grouped by, in the data of a stored run or of the protocol."""
        if not self.group_by:
            return ()
        from calipers.runs import slices

        protocol = self._named()
        if run:
            source, ids = run.dataset, run.outcomes.ids
        else:
            rows = _runs_api().read_rows(protocol)
            source, ids = rows.source, rows.ids
        task = catalogue.find(protocol.task or TASK)
        return slices.find(self.group_by, lambda: slices.columns_of(task, source, ids))

    def of_baseline(self, side: Side) -> _Work:
        """The same for the baseline, which `model_id` does not rename."""
        if not isinstance(side, str):
            return self
        options = models.identity.baseline_options(models.find(side), self.protocol.model_options)
        return replace(self, protocol=replace(self.protocol, model_options=options))

    def evaluate(self, side: str | Model, store: Store | None, *, reuse: bool, name: str = "") -> Result:
        """It is timed later, with the others."""
        result: Result = _runs_api().evaluate(
            side,
            **vars(self._of(side)),
            resamples=self.options.resamples,
            confidence=self.options.confidence,
            store=store,
            reuse=reuse,
            name=name,
            timed=False,
            progress=self.progress,
        )
        return result

    def time_in_turn(
        self, sides: Sequence[_Side], results: Sequence[Result | InvalidOutput], store: Store | None
    ) -> list[Result | InvalidOutput]:
        """The results with the speeds of the models, by turns on the same inputs; one after the other where they do not
        fit into memory together. Nothing is loaded where the store has the speeds of all."""
        measured = {i: each for i, each in enumerate(results) if sides[i].run is None and isinstance(each, Result)}
        timed = list(results)
        if all(result.speed and "reused_seconds" in result.timing for result in measured.values()):
            return timed
        from calipers.tasks.timing import fits_memory

        self.progress.start("Timing", 0)
        together = fits_memory([result.model.size for result in measured.values()])
        for group in [list(measured)] if together else [[i] for i in measured]:
            references = [sides[i].reference for i in group]
            how = self._named() if together else self._of(references[0])
            speeds = _runs_api().time_in_turn(references, how)
            for place, speed in zip(group, speeds, strict=True):
                facts = {**measured[place].timing, **(vars(speed) if speed else {})}
                timed[place] = replace(measured[place], timing=facts)
        if store:
            store.keep_timing(_sound(timed))
        return timed

    def _of(self, side: str | Model) -> Protocol:
        """For one of the models."""
        model_options = models.options_beside(side, self.protocol.model_options, self.sides)
        return replace(self._named(), model_options=model_options)

    def _named(self) -> Protocol:
        return replace(self.protocol, task=self.protocol.task or TASK)

    def terms(self, first: Result) -> tuple[list[Metric], verdict.Terms]:
        """The metrics of the baseline that are compared, and how they are judged."""
        others = {name for name in self.shared if name not in first.metrics and tasks.has_metric(name)}
        metrics = tuple(name for name in self.options.metrics if name not in others)
        thresholds = {name: limits for name, limits in self.options.thresholds.items() if name not in others}
        for name in (*metrics, *thresholds):
            if name != "all" and name not in first.metrics:
                raise RequestError(f"the baseline has no metric {name!r}: expected one of {', '.join(first.metrics)}")
        task, columns = catalogue.find(first.task), first.outcomes.columns
        offered = [m for m in task.measures(task.options(**first.options)) if all(c in columns for c in m.needs)]
        instead = {m.name: m.decided_by for m in offered if m.decided_by in first.metrics}
        thresholds |= {instead[name]: limits for name, limits in thresholds.items() if instead.get(name, name) != name}
        metrics = tuple(dict.fromkeys(word for name in metrics for word in (name, instead.get(name, name))))
        named = {*metrics, *thresholds}
        compared = [m for m in offered if "all" in metrics or m.name in named or not (metrics or m.minor)]
        deciding = [name for name in metrics if name != "all"] or [offered[0].name, *thresholds]
        terms = verdict.Terms(
            thresholds=thresholds,
            deciding=tuple(name for name in deciding if name not in instead),
            confidence=self.options.confidence,
            resamples=self.options.resamples,
            seed=self.protocol.data_options.seed,
            threads=self.protocol.model_options.workers,
            worst=self.options.worst or 0,
            question=self.question,
        )
        return [m for m in compared if m.name in first.metrics], terms


def _name(side: Side) -> str:
    if isinstance(side, str):
        return clean(side)
    return side.model.model_id if isinstance(side, Result) else side.info.model_id


def _alive(result: Callable[[], Result]) -> Result:
    """The baseline's result: a dead candidate is a verdict, a dead baseline an error."""
    try:
        return result()
    except InvalidOutput as error:
        raise InvalidOutput(f"the baseline cannot be compared with: {error.reason}", error.rows) from error


# --- without labels -----------------------------------------------------------------------------------------------


def _agree(baseline: Side, candidates: Sequence[Side], work: _Work) -> list[Verdict]:
    """How far each candidate agrees with the baseline, against perfect agreement."""
    from calipers.tasks import agreement

    task = agreement.TASKS.get(tasks.find(work.protocol.task or TASK).ability)
    if task is None:
        raise RequestError(f"`unlabelled` is not supported for the task {work.protocol.task}")
    first = _load(baseline, task.ability, work)
    work = replace(work, protocol=replace(work.protocol, task=task.name))

    def result(other: Model) -> Result:
        both = work.evaluate(agreement.Both(first, other), None, reuse=False)
        return replace(both, run_id="")  # it is of two models, and not stored

    verdicts = []
    for side in candidates:
        second = _load(side, task.ability, work)
        try:
            agreed = result(second)
            perfect = _perfect(agreed, first, task)
            speeds = _runs_api().time_in_turn([first, second], work.protocol)
            perfect, agreed = (
                replace(each, timing={**each.timing, **vars(speed)}) if speed else each
                for each, speed in zip((perfect, agreed), speeds, strict=True)
            )
            verdicts.append(verdict.compare(perfect, agreed, *work.terms(perfect)))
        except InvalidOutput as error:
            perfect = _perfect(_alive(lambda: result(first)), first, task)
            verdicts.append(verdict.invalid(perfect, second.info.model_id, error.reason, *work.terms(perfect)))
    return verdicts


def _load(side: Side, ability: str, work: _Work) -> Model:
    if isinstance(side, Result) or (isinstance(side, str) and _is_run(side)):
        name = side.run_id if isinstance(side, Result) else side
        raise RequestError(f"`unlabelled` needs the models themselves, and {name!r} is a stored run: name two models")
    if not isinstance(side, str):
        return side
    return models.load(models.find(side), models.options_beside(side, work.protocol.model_options, work.sides), ability)


def _perfect(agreed: Result, first: Model, task: Task[Any]) -> Result:
    """What the baseline would give beside itself."""
    from calipers.tasks import agreement

    ideal = agreement.perfect(agreed.outcomes)
    values = {m.name: m.value(ideal.columns) for m in task.metrics if m.name in agreed.metrics}
    return replace(agreed, model=first.info, outcomes=ideal, metrics=values)


# --- stored runs --------------------------------------------------------------------------------------------------


def _is_run(name: str) -> bool:
    return bool(_RUN_ID.fullmatch(name)) and not Path(name).exists()


def _is_name(name: str, store: Store | None) -> bool:
    """Whether a stored run has this name; a file or folder of that name comes first."""
    return store is not None and "/" not in name and not Path(name).exists() and store.has_name(name)


def _stored(side: Side, store: Store | None) -> Result | None:
    """The run that is meant, if a run is meant and not a model."""
    if isinstance(side, Result):
        return side
    if not isinstance(side, str) or not (_is_run(side) or _is_name(side, store)):
        return None
    if store is None:
        raise RequestError(f"{side!r} is a stored run, and there is no store to read it from")
    return store.load(side)


def _refuse_settings(protocol: Protocol, task_options: Mapping[str, Any]) -> None:
    """Nothing is measured where all sides are stored: only how many of their examples, and the seed, have an effect."""
    if protocol.dataset or protocol.columns or task_options:
        raise RequestError(
            "stored runs are compared as they are: `dataset`, `columns` and the task's options do not apply"
        )
    protocol.model_options.refuse_others("stored runs, which are compared as they are")
    sample = ("samples", "shuffle") if protocol.data_options.samples else ()
    protocol.data_options.refuse_others("stored runs, which are compared as they are", "seed", *sample)


def _settle(protocol: Protocol, runs: Sequence[Result], *, all_stored: bool) -> Protocol:
    """A model beside a stored run is measured as the run was, where the protocol does not say otherwise."""
    if not runs:
        return protocol
    run = runs[0]
    task_options = {name: value for name, value in protocol.task_options.items() if value is not None}
    if all_stored:
        _refuse_settings(protocol, task_options)
    elif reranked := next((run for run in runs if run.model.settings.get("rerank")), None):
        raise RequestError(
            f"the run {reranked.run_id} has a reranker, and a model is measured without one here: store a run of the "
            "model with its reranker and compare the two runs"
        )
    if protocol.task and catalogue.find(protocol.task).name != run.task:
        raise RequestError(f"the run {run.run_id} is of the task {run.task}, not of {protocol.task}")
    source, options = run.dataset, protocol.data_options
    same_data = protocol.dataset is None
    return replace(
        protocol,
        task=run.task,
        task_options={**run.options, **task_options},
        dataset=source.path if same_data else protocol.dataset,
        columns=protocol.columns or (source.columns_mapping if same_data else {}),
        data_options=_as_in_run(options, source) if same_data else options,
    )


def _as_in_run(options: DataOptions, source: DataSource) -> DataOptions:
    """The rows of the run, where the options do not say otherwise. A sample is drawn from its rows, so that a run over
    a sample stays whole here."""
    names = [name for name in _CHOICE if name not in options.changed()]
    samples = options.samples if source.requested is None else source.requested
    return replace(options, samples=samples, **{name: getattr(source, name) for name in names})
