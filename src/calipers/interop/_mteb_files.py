"""mteb's result files: the JSON of one task, of one model or of several, and its folders model/revision/task.json.

Nothing in them is executed, and the mteb package is not needed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calipers.core import DataError, DataSource, ModelInfo, Result, name_some
from calipers.interop._mteb_results import TaskScore, in_order, to_result

_META = "model_meta.json"
_UNKNOWN = "unknown"


@dataclass(frozen=True)
class Scores:
    """What result files say of one model. `left_out` are names of scores that are no number."""

    model_id: str
    revision: str
    path: str
    scores: tuple[TaskScore, ...]
    left_out: tuple[str, ...] = ()


def read(
    paths: Sequence[Path], *, tasks: Sequence[str] = (), model_id: str | None = None, common: bool = False
) -> list[Scores]:
    """The scores of each model and revision in the files, and in all .json files below the folders, in the order found.

    `tasks` are the only ones wanted, `common` keeps the scores that all the models have on the same revision of the
    data, and `model_id` names the model where the files do not.
    """
    heaps: dict[tuple[str, str], list[tuple[str, TaskScore]]] = {}
    for file in _files(paths):
        for name, revision, score in _read_file(file, model_id):
            if not tasks or score.task in tasks:
                heaps.setdefault((name, revision), []).append((str(file), score))
    if not heaps:
        wanted = f" of {name_some(list(tasks))}" if tasks else ""
        raise DataError(f"{name_some([str(p) for p in paths])}: no mteb result{wanted} is there")
    found = [_one_model(*who, heap) for who, heap in heaps.items()]
    return _shared(found) if common else found


def import_results(
    paths: Sequence[Path], *, tasks: Sequence[str] = (), model_id: str | None = None, common: bool = False
) -> list[Result]:
    """The same as runs of the task mteb, one per model and revision; see `read`."""
    return [_result(found) for found in read(paths, tasks=tasks, model_id=model_id, common=common)]


def _result(found: Scores) -> Result:
    versions = sorted({score.mteb_version for score in found.scores})
    info = ModelInfo(
        backend="mteb",
        model_id=found.model_id,
        path=found.path,
        device="not recorded",
        fingerprint=f"revision:{found.revision}",
        settings={"revision": found.revision, "mteb_versions": versions},
    )
    seconds = {score.task: score.seconds for score in found.scores}
    known = [s for s in seconds.values() if s is not None]
    warnings = [f"left out, as mteb has no main score: {name_some(found.left_out)}"] if found.left_out else []
    return to_result(
        found.scores,
        info,
        source=DataSource("mteb", rows_read=len(found.scores) + len(found.left_out)),
        request={"given": {"import": found.path}, "defaulted": {}},
        timing={"evaluation_seconds": sum(known)} if len(known) == len(seconds) else {},
        warnings=warnings,
    )


def _one_model(name: str, revision: str, heap: Sequence[tuple[str, TaskScore]]) -> Scores:
    places: dict[str, str] = {}
    for file, score in heap:
        if score.id in places:
            raise DataError(f"{file} has a score for {score.id} of {name}, and so has {places[score.id]}: give one")
        places[score.id] = file
    known = [score for _, score in heap if math.isfinite(score.main_score)]
    left_out = sorted(score.id for _, score in heap if not math.isfinite(score.main_score))
    if not known:
        raise DataError(f"{heap[0][0]}: none of the {len(heap)} scores of {name} is a number")
    folder = str(Path(heap[0][0]).parent)
    return Scores(name, revision, folder, tuple(in_order(known)), tuple(left_out))


def _shared(found: Sequence[Scores]) -> list[Scores]:
    keys = [{(score.id, score.dataset_revision) for score in model.scores} for model in found]
    everywhere = set.intersection(*keys)
    if not everywhere:
        names = name_some([f"{model.model_id} ({model.revision[:12]})" for model in found])
        raise DataError(f"{names} have no score in common: expected the same tasks on the same revision of the data")
    kept = [tuple(s for s in model.scores if (s.id, s.dataset_revision) in everywhere) for model in found]
    return [Scores(m.model_id, m.revision, m.path, s, m.left_out) for m, s in zip(found, kept, strict=True)]


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if not path.exists():
            raise DataError(f"there is no file or folder {path}: expected mteb results")
        if path.is_dir():
            yield from sorted(file for file in path.rglob("*.json") if file.name != _META)
        else:
            yield path


def _read_file(file: Path, model_id: str | None) -> Iterator[tuple[str, str, TaskScore]]:
    content = _object(_load(file), file)
    if "model_results" in content:  # mteb's BenchmarkResults
        for one in _list(content["model_results"], "model_results", file):
            yield from _read_model(_object(one, file), file, model_id)
    elif "task_results" in content:  # its ModelResult
        yield from _read_model(content, file, model_id)
    else:  # its TaskResult
        who = _who(file, model_id)
        yield from ((*who, score) for score in _read_task(content, file))


def _read_model(content: Mapping[str, Any], file: Path, model_id: str | None) -> Iterator[tuple[str, str, TaskScore]]:
    name = model_id or content.get("model_name")
    if not isinstance(name, str) or not name:
        raise DataError(f"{file} does not say whose results they are: name the model with --model-id")
    revision = str(content.get("model_revision") or _UNKNOWN)
    for one in _list(content["task_results"], "task_results", file):
        yield from ((name, revision, score) for score in _read_task(_object(one, file), file))


def _read_task(content: Mapping[str, Any], file: Path) -> Iterator[TaskScore]:
    if "mteb_dataset_name" in content:
        raise DataError(f"{file} was written by mteb before 1.11: load and save it with a newer mteb, then import that")
    name, splits = content.get("task_name"), content.get("scores")
    if not isinstance(name, str) or not isinstance(splits, Mapping):
        found = name_some(sorted(map(str, content))) or "nothing"
        raise DataError(f"{file} is no mteb result: expected task_name and scores, found {found}")
    for split, rows in splits.items():
        for row in _list(rows, f"scores of {split}", file):
            yield _score(content, str(split), _object(row, file), file)


def _score(content: Mapping[str, Any], split: str, row: Mapping[str, Any], file: Path) -> TaskScore:
    value, seconds = row.get("main_score", ...), content.get("evaluation_time")
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
        found = "nothing" if value is ... else repr(value)[:40]
        raise DataError(f"{file}: expected a number as main_score of split {split}, found {found}")
    return TaskScore(
        task=str(content["task_name"]),
        split=split,
        subset=str(row.get("hf_subset", "default")),
        main_score=math.nan if value is None else float(value),
        dataset_revision=str(content.get("dataset_revision") or _UNKNOWN),
        mteb_version=str(row.get("mteb_version") or content.get("mteb_version") or _UNKNOWN),
        seconds=float(seconds) if isinstance(seconds, (int, float)) and math.isfinite(seconds) else None,
    )


def _who(file: Path, model_id: str | None) -> tuple[str, str]:
    """Name and revision: from model_meta.json beside the file, else from the folders owner__name/revision."""
    beside = file.parent / _META
    meta = _object(_load(beside), beside) if beside.exists() else {}
    revision, above = file.parent.name, file.parent.parent.name
    if meta.get("name"):
        named, revision = str(meta["name"]), str(meta.get("revision") or _UNKNOWN)
        if meta.get("experiment_kwargs"):  # an ablation of the model is another model
            revision += " " + json.dumps(meta["experiment_kwargs"], sort_keys=True)
        return model_id or named, revision
    if "__" in above:
        return model_id or above.replace("__", "/", 1), revision
    if model_id:
        return model_id, _UNKNOWN
    raise DataError(
        f"{file} does not say whose results they are: expected {_META} beside it or folders owner__name/revision, "
        "else name the model with --model-id"
    )


def _load(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file} cannot be read as JSON: {str(error).splitlines()[0]}") from error


def _object(value: Any, file: Path) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise DataError(f"{file} is no mteb result: expected an object, found {type(value).__name__}")
    return value


def _list(value: Any, what: str, file: Path) -> list[Any]:
    if not isinstance(value, list):
        raise DataError(f"{file} is no mteb result: expected a list as {what}, found {type(value).__name__}")
    return value
