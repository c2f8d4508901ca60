"""The stage table of a registry: PyTorch, ONNX, optimised and quantised on the same rows, and where a loss arose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calipers import tasks
from calipers.attribution import stages as attribution
from calipers.attribution.records import StageFigure
from calipers.comparison import api as comparison
from calipers.comparison.records import Comparison
from calipers.core import InferenceError, Progress, RequestError, Result
from calipers.core.inputs import load_json
from calipers.data import DataOptions
from calipers.models import ModelOptions
from calipers.rendering import tables
from calipers.rendering.numbers import NONE, megabytes, number
from calipers.runs.api import evaluate
from calipers.runs.store import Store
from calipers.sweeps.api import prepare
from calipers.sweeps.plan import Job, PlannedCell
from calipers.sweeps.records import SweepOptions

if TYPE_CHECKING:
    from rich.console import Console


BuiltStage = Mapping[str, Any]  # a stage as the build that made it wrote it down


@dataclass(frozen=True)
class StageTable:
    """The stages of one cell, from the model itself to its precision, and a sentence about the loss.

    `cell` is its name, model/task/precision; `digits` are those that the metric is shown with.
    """

    stages: tuple[StageFigure, ...]
    cell: str
    sentence: str
    metric: str
    digits: int

    def rows(self) -> list[tuple[str, ...]]:
        return [
            (
                *(
                    stage.stage,
                    number(stage.value, self.digits),
                    attribution.change(stage.step) if stage.step else NONE,
                ),
                *(stage.label or "baseline", megabytes(stage.size)),
            )
            for stage in self.stages
        ]

    def to_dict(self) -> dict[str, Any]:
        names = ("stage", "value", "label", "size", "run", "reason")
        return {
            "cell": self.cell,
            "metric": self.metric,
            "stages": [{name: getattr(stage, name) for name in names} for stage in self.stages],
            "sentence": self.sentence,
        }


def stage_tables(registry: Path, options: SweepOptions, store: Store, progress: Progress) -> list[StageTable]:
    """For every cell whose artifact was built. Stages that the store has no run of are measured and kept."""
    driver = prepare(registry, options, store)
    driver.look_up()
    made = []
    for cell in driver.plan.cells:
        job = driver.plan.jobs.get(cell.job)
        build = driver.plan.jobs.get(job.needs[0]) if job and job.needs else None
        if job is None or build is None or build.id not in driver.state.done or cell.key.precision == "fp32":
            continue
        manifest = load_json(Path(build.spec["result"]), RequestError)
        made.append(_table(cell, job, manifest["stages"], options, store, progress))
    if not made:
        raise RequestError(f"no precision of {registry} was built yet: run the sweep first")
    return made


def show_stages(console: Console, made: list[StageTable]) -> None:
    for table in made:
        header = ("stage", table.metric, "step", "label", "size")
        tables.show_table(console, header, table.rows(), right=(1, 2, 4), title=table.cell)
        tables.say(console, table.sentence, "bold")


def _table(
    cell: PlannedCell, job: Job, stages: Sequence[BuiltStage], options: SweepOptions, store: Store, progress: Progress
) -> StageTable:
    figures: list[StageFigure] = []
    results: list[Result | None] = []
    for stage in stages:
        progress.start(f"{cell.key}: {stage['name']}", 0)
        result, reason = _measure(cell, job, stage, options, store, progress)
        figures.append(_figure(stage, result, reason, results, options))
        results.append(result)
    task = tasks.find(cell.task.task)
    first = next((result for result in results if result), None)
    if first is None:
        raise InferenceError(f"no stage of {cell.key} could be measured")
    metric = next(iter(first.metrics))
    digits = next(m.digits for m in task.measures(task.options(**first.options)) if m.name == metric)
    lost = attribution.lost_steps(figures)
    sentence = attribution.sentence(figures, lost, metric)
    return StageTable(tuple(figures), str(cell.key), sentence, metric, digits)


def _measure(
    cell: PlannedCell, job: Job, stage: BuiltStage, options: SweepOptions, store: Store, progress: Progress
) -> tuple[Result | None, str | None]:
    torch = stage["name"] == "torch"
    model_options = cell.model.options if torch else ModelOptions(**job.spec["model_options"])
    try:
        return evaluate(
            cell.model.reference if torch else stage["path"],
            task=cell.task.task,
            task_options=cell.task.task_options,
            dataset=cell.task.dataset,
            columns=cell.task.columns,
            model_options=model_options,
            data_options=DataOptions(**job.spec["data_options"]),
            confidence=options.confidence,
            resamples=options.resamples,
            store=store,
            reuse=True,
            progress=progress,
        ), None
    except InferenceError as error:
        return None, error.reason


def _figure(
    stage: BuiltStage, result: Result | None, reason: str | None, before: list[Result | None], options: SweepOptions
) -> StageFigure:
    verdict = _compare(before[0], result, options) if before else None
    label = None if not before else verdict.label if verdict else "INVALID"
    difference = stage["difference"]
    return StageFigure(
        stage=stage["name"],
        path=stage["path"],
        metrics=dict(result.metrics) if result else {},
        value=next(iter(result.metrics.values())) if result else None,
        verdict=verdict,
        step=_compare(before[-1], result, options) if before else None,
        label=label,
        size=stage["size"],
        p50=stage["latency"]["p50"],
        p95=stage["latency"]["p95"],
        difference=difference["largest"] if difference else None,
        bound=difference["bound"] if difference else None,
        run=result.run_id if result else None,
        reason=reason,
        notes=tuple(stage["notes"]),
    )


def _compare(first: Result | None, second: Result | None, options: SweepOptions) -> Comparison | None:
    if first is None or second is None:
        return None
    metric = next(iter(first.metrics))
    judged = comparison.compare(
        first, [second], metrics=(metric,), confidence=options.confidence, resamples=options.resamples, worst=0
    )
    return judged[0].comparisons[0]
