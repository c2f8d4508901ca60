"""Main scores of mteb as our Results, and mteb's result files. Nothing here needs the mteb package."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from calipers.core.datasets import DataSource, fingerprint
from calipers.core.errors import DataError, InvalidOutput, RequestError, name_some
from calipers.core.inputs import load_json, number_of
from calipers.core.models import ModelInfo
from calipers.core.references import clean
from calipers.core.results import NoOptions, Result
from calipers.runs.record import Resampling, describe_environment, make_result, measure
from calipers.tasks import mteb as task

_META = "model_meta.json"
_UNKNOWN = "unknown"
_T = TypeVar("_T")


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


# --- scores as a run ---------------------------------------------------------------------------------------------


def to_result(
    scores: Sequence[TaskScore],
    model: ModelInfo,
    *,
    source: DataSource,
    request: Mapping[str, Any] | None = None,
    timing: Mapping[str, float] | None = None,
    warnings: Sequence[str] = (),
    resampling: Resampling | None = None,
) -> Result:
    """A run of the task `mteb`, with one example per score: intervals show how much a mean depends on the tasks."""
    _check(scores)
    resampling = resampling or Resampling()
    ids = [score.id for score in scores]
    outcomes = task.make_outcomes(
        ids, [s.task for s in scores], [s.type for s in scores], [s.main_score for s in scores]
    )
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


def _check(scores: Sequence[TaskScore]) -> None:
    if not scores:
        raise DataError("there is no mteb score: expected at least one task with a main_score")
    if twice := [id for id, count in Counter(score.id for score in scores).items() if count > 1]:
        raise DataError(f"more than one mteb score for {name_some(twice)}: expected one a task, split and subset")
    if dead := [score.id for score in scores if not math.isfinite(score.main_score)]:
        raise InvalidOutput(f"mteb has no main score for {name_some(dead)}", dead)


def _environment(scores: Sequence[TaskScore]) -> dict[str, Any]:
    """What made the means; the scores were measured elsewhere, by these versions of mteb."""
    here = describe_environment()
    versions = {package: here["versions"][package] for package in ("calipers", "numpy")}
    measured_by = sorted({score.mteb_version for score in scores if score.mteb_version})
    return {"python": here["python"], "versions": versions, "mteb_versions": measured_by}


@dataclass(frozen=True)
class Drop:
    """What a model lost on one score against a baseline, in points: 100 × main score."""

    id: str
    baseline: float
    candidate: float

    @property
    def delta(self) -> float:
        return self.candidate - self.baseline


def drops(baseline: Result, candidate: Result) -> list[Drop]:
    """Every score of two runs of the task mteb over the same examples, the greatest loss first."""
    if baseline.outcomes.ids != candidate.outcomes.ids or baseline.fingerprint != candidate.fingerprint:
        raise RequestError(
            f"the runs {baseline.run_id} and {candidate.run_id} are not over the same mteb tasks and data: "
            "import only the scores that both have (`common`)"
        )
    before, after = (run.outcomes.columns["main_score"].tolist() for run in (baseline, candidate))
    rows = zip(baseline.outcomes.ids, before, after, strict=True)
    return sorted((Drop(*row) for row in rows), key=lambda drop: drop.delta)


# --- result files ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MtebScores:
    """The content of result files for one model.

    `path` is the folder of its first file, `left_out` are names of scores that are no number.
    """

    model_id: str
    revision: str
    path: str
    scores: tuple[TaskScore, ...]
    left_out: tuple[str, ...] = ()


def import_results(
    paths: Sequence[Path], *, tasks: Sequence[str] = (), model_id: str | None = None, common: bool = False
) -> list[Result]:
    """Result files as runs of the task mteb, one per model and revision; see `read_scores`."""
    return [_result(scores) for scores in read_scores(paths, tasks=tasks, model_id=model_id, common=common)]


def read_scores(
    paths: Sequence[Path], *, tasks: Sequence[str] = (), model_id: str | None = None, common: bool = False
) -> list[MtebScores]:
    """The scores of each model and revision in the files (of a task, a model or several), and in all .json files below
    folders. With `tasks`, only these are read. `common` keeps the scores that all the models have on the same revision
    of the data. `model_id` names the model where the files do not."""
    by_model: dict[tuple[str, str], list[tuple[Path, TaskScore]]] = {}
    names: set[str] = set()
    for file in _files(paths):
        for name, revision, score in _read_file(file, model_id):
            names.add(score.task)
            if not tasks or score.task in tasks:
                by_model.setdefault((clean(name), clean(revision)), []).append((file, score))
    read = {score.task for rows in by_model.values() for _, score in rows}
    if absent := [name for name in tasks if name not in read]:
        there = f"; there are {name_some(sorted(names))}" if names else ""
        raise DataError(f"{name_some([str(p) for p in paths])}: no mteb result of {name_some(absent)} is there{there}")
    if not by_model:
        raise DataError(f"{name_some([str(p) for p in paths])}: no mteb result is there")
    models = [_one_model(*model, rows) for model, rows in by_model.items()]
    return _shared(models) if common else models


def _result(model: MtebScores) -> Result:
    info = ModelInfo(
        backend="mteb",
        model_id=model.model_id,
        path=model.path,
        device="not recorded",
        fingerprint=f"revision:{model.revision}",
        settings={"revision": model.revision, "mteb_versions": sorted({s.mteb_version for s in model.scores})},
    )
    seconds = {score.task: score.seconds for score in model.scores}
    recorded = [s for s in seconds.values() if s is not None]
    return to_result(
        model.scores,
        info,
        source=DataSource("mteb", rows_read=len(model.scores) + len(model.left_out)),
        request={"given": {"import": model.path}, "defaulted": {}},
        timing={"evaluation_seconds": sum(recorded)} if len(recorded) == len(seconds) else {},
        warnings=[f"left out, as mteb has no main score: {name_some(model.left_out)}"] if model.left_out else [],
    )


def _one_model(name: str, revision: str, rows: Sequence[tuple[Path, TaskScore]]) -> MtebScores:
    places: dict[str, Path] = {}
    for file, score in rows:
        if score.id in places:
            raise DataError(f"{file} has a score for {score.id} of {name}, and so has {places[score.id]}: give one")
        places[score.id] = file
    scores = [score for _, score in rows if math.isfinite(score.main_score)]
    left_out = sorted(score.id for _, score in rows if not math.isfinite(score.main_score))
    first = rows[0][0]
    if not scores:
        raise DataError(f"{first}: none of the {len(rows)} scores of {name} is a number")
    scores.sort(key=lambda score: score.id)  # so that two runs over the same scores have them in the same order
    return MtebScores(name, revision, str(first.parent), tuple(scores), tuple(left_out))


def _shared(models: Sequence[MtebScores]) -> list[MtebScores]:
    keys = [{(score.id, score.dataset_revision) for score in model.scores} for model in models]
    everywhere = set.intersection(*keys)
    if not everywhere:
        names = name_some([f"{model.model_id} ({model.revision[:12]})" for model in models])
        raise DataError(f"{names} have no score in common: expected the same tasks on the same revision of the data")
    kept = (tuple(s for s in model.scores if (s.id, s.dataset_revision) in everywhere) for model in models)
    return [replace(model, scores=scores) for model, scores in zip(models, kept, strict=True)]


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if not path.exists():
            raise DataError(f"there is no file or folder {path}: expected mteb results")
        if path.is_dir():
            yield from sorted(file for file in path.rglob("*.json") if file.name != _META)
        else:
            yield path


def _read_file(file: Path, model_id: str | None) -> Iterator[tuple[str, str, TaskScore]]:
    """(model, revision, score) for each score of a file."""
    content = _object(_load(file), file)
    if "model_results" in content:  # mteb's BenchmarkResults
        for one in _expect(content["model_results"], list, "a list as model_results", file):
            yield from _read_model(_object(one, file), file, model_id)
    elif "task_results" in content:  # its ModelResult
        yield from _read_model(content, file, model_id)
    else:  # its TaskResult
        model = _model_of(file, model_id)
        yield from ((*model, score) for score in _read_task(content, file))


def _read_model(content: Mapping[str, Any], file: Path, model_id: str | None) -> Iterator[tuple[str, str, TaskScore]]:
    name = model_id or content.get("model_name")
    if not isinstance(name, str) or not name:
        raise DataError(f"{file} does not name the model of its results: name it with `model_id`")
    revision = str(content.get("model_revision") or _UNKNOWN)
    for one in _expect(content["task_results"], list, "a list as task_results", file):
        yield from ((name, revision, score) for score in _read_task(_object(one, file), file))


def _read_task(content: Mapping[str, Any], file: Path) -> Iterator[TaskScore]:
    if "mteb_dataset_name" in content:
        raise DataError(f"{file} was written by mteb before 1.11: load and save it with a newer mteb, then import that")
    name, splits = content.get("task_name"), content.get("scores")
    if not isinstance(name, str) or not isinstance(splits, Mapping):
        keys = name_some(sorted(map(str, content))) or "nothing"
        raise DataError(f"{file} is no mteb result: expected task_name and scores, found {keys}")
    for split, rows in splits.items():
        for row in _expect(rows, list, f"a list as scores of {split}", file):
            yield _score(content, str(split), _object(row, file), file)


def _score(content: Mapping[str, Any], split: str, row: Mapping[str, Any], file: Path) -> TaskScore:
    value = row.get("main_score", ...)
    if value is not None and number_of(value) is None:
        shown = "nothing" if value is ... else repr(value)[:40]
        raise DataError(f"{file}: expected a number as main_score of split {split}, found {shown}")
    seconds = number_of(content.get("evaluation_time"))
    return TaskScore(
        task=clean(str(content["task_name"])),
        split=clean(split),
        subset=clean(str(row.get("hf_subset", "default"))),
        main_score=math.nan if value is None else float(value),
        dataset_revision=clean(str(content.get("dataset_revision") or _UNKNOWN)),
        mteb_version=clean(str(row.get("mteb_version") or content.get("mteb_version") or _UNKNOWN)),
        seconds=seconds if seconds is not None and math.isfinite(seconds) else None,
    )


def _model_of(file: Path, model_id: str | None) -> tuple[str, str]:
    """Name and revision: from model_meta.json in the same folder, else from the folders owner__name/revision."""
    meta_file = file.parent / _META
    meta = _object(_load(meta_file), meta_file) if meta_file.exists() else {}
    above = file.parent.parent.name
    if meta.get("name"):
        revision = str(meta.get("revision") or _UNKNOWN)
        if meta.get("experiment_kwargs"):  # an ablation of the model is another model
            revision += " " + json.dumps(meta["experiment_kwargs"], sort_keys=True)
        return model_id or str(meta["name"]), revision
    if "__" in above:
        return model_id or above.replace("__", "/", 1), file.parent.name
    if model_id:
        return model_id, _UNKNOWN
    raise DataError(
        f"{file} does not name the model of its results: expected {_META} in its folder or folders "
        "owner__name/revision, else name the model with `model_id`"
    )


def _load(file: Path) -> Any:
    return load_json(file)


def _object(value: Any, file: Path) -> Mapping[str, Any]:
    return _expect(value, dict, "an object", file)


def _expect(value: Any, kind: type[_T], what: str, file: Path) -> _T:
    if not isinstance(value, kind):
        raise DataError(f"{file} is no mteb result: expected {what}, found {type(value).__name__}")
    return value
