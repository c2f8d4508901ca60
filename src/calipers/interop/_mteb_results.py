"""Main scores of mteb as our Results, and mteb's result files. Nothing here needs the mteb package."""

from __future__ import annotations

import math
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from calipers.core import (
    DataError,
    DataSource,
    InvalidOutput,
    ModelInfo,
    NoOptions,
    RequestError,
    Result,
    fingerprint,
    name_some,
)
from calipers.runs.record import CONFIDENCE, RESAMPLES, SEED, Resampling, make_result, measure
from calipers.tasks import mteb as task


@dataclass(frozen=True)
class TaskScore:
    """The main score of a model on one subset of one split of a task, as mteb has it: mostly 0–1, NaN for none."""

    task: str
    split: str
    subset: str
    main_score: float
    dataset_revision: str
    mteb_version: str
    type: str = ""  # "STS", "Retrieval" …; empty where it is not known
    seconds: float | None = None  # of the whole task

    @property
    def id(self) -> str:
        return f"{self.task}/{self.split}/{self.subset}"


@dataclass(frozen=True)
class Drop:
    """What a model lost on one score against a baseline, in points: 100 × main score."""

    id: str
    baseline: float
    candidate: float

    @property
    def delta(self) -> float:
        return self.candidate - self.baseline


def to_result(
    scores: Sequence[TaskScore],
    model: ModelInfo,
    *,
    source: DataSource,
    request: Mapping[str, Any] | None = None,
    timing: Mapping[str, float] | None = None,
    warnings: Sequence[str] = (),
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = SEED,
) -> Result:
    """A run of the task `mteb` with one example per score. The fingerprint is over their names and the revisions of
    their data, so two runs can be compared where both are the same.

    A resample draws scores: the interval says how much the mean depends on the choice of tasks, not of texts.
    """
    _check(scores)
    ids = [score.id for score in scores]
    outcomes = task.make_outcomes(
        ids, [s.task for s in scores], [s.type for s in scores], [s.main_score for s in scores]
    )
    resampling = Resampling(confidence, resamples, seed)
    return make_result(
        task.TASK.name,
        {},
        model,
        outcomes,
        measure(task.TASK, NoOptions(), outcomes, resampling, fewest=task.FEWEST),
        dataset=source,
        fingerprint=fingerprint(ids, {"revision": [s.dataset_revision for s in scores]}),
        bootstrap=resampling.record(task.TASK.unit),
        request=request,
        warnings=warnings,
        timing=timing,
        environment=_environment(scores),
    )


def drops(baseline: Result, candidate: Result) -> list[Drop]:
    """Every score of two runs of the task mteb over the same examples, the greatest loss first."""
    if baseline.outcomes.ids != candidate.outcomes.ids or baseline.fingerprint != candidate.fingerprint:
        raise RequestError(
            f"the runs {baseline.run_id} and {candidate.run_id} are not over the same mteb tasks and data: "
            "take the scores that both have (calipers runs import --common)"
        )
    before, after = (run.outcomes.columns["main_score"].tolist() for run in (baseline, candidate))
    found = [Drop(*row) for row in zip(baseline.outcomes.ids, before, after, strict=True)]
    return sorted(found, key=lambda drop: drop.delta)


def in_order(scores: Sequence[TaskScore]) -> list[TaskScore]:
    """By name, so that two runs over the same scores have them in the same order."""
    return sorted(scores, key=lambda score: score.id)


def _check(scores: Sequence[TaskScore]) -> None:
    if not scores:
        raise DataError("there is no mteb score: expected at least one task with a main_score")
    twice = [id for id, count in Counter(score.id for score in scores).items() if count > 1]
    if twice:
        raise DataError(f"more than one mteb score for {name_some(twice)}: expected one a task, split and subset")
    dead = [score.id for score in scores if not math.isfinite(score.main_score)]
    if dead:
        raise InvalidOutput(f"mteb has no main score for {name_some(dead)}", dead)


def _environment(scores: Sequence[TaskScore]) -> dict[str, Any]:
    versions = {}
    for package in ("calipers", "numpy"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    measured_by = sorted({score.mteb_version for score in scores if score.mteb_version})
    return {"python": platform.python_version(), "versions": versions, "mteb_versions": measured_by}
