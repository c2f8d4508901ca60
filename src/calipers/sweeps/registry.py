"""A registry file to models and tasks: every problem is one sentence with its line."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from calipers import tasks
from calipers.core import RequestError, Thresholds
from calipers.core.choices import PRECISIONS
from calipers.core.inputs import expand
from calipers.core.options import flag_names
from calipers.core.results import parse_thresholds
from calipers.data import DataOptions
from calipers.models import ModelOptions
from calipers.sweeps import testset
from calipers.sweeps.located import Located, read_located, suggestion
from calipers.sweeps.records import OWN, CellKey, ModelEntry, Registry, TaskEntry, matches

SECTIONS = ("models", "tasks", "thresholds", "defaults", "exclude")
MODEL_KEYS = (
    *("id", "reference", "group", "priority", "baseline", "precisions", "artifacts", "tasks", "calibration", "matrix"),
)
DEFAULT_KEYS = ("group", "priority", "baseline", "precisions", "calibration", "dataset", "columns")
TASK_KEYS = ("id", "task", "dataset", "columns", "matrix")
CELL_KEYS = ("model", "task", "precision")
_GLOB = frozenset("*?[")
_MOST_POINTS = 10_000  # of a matrix
_MOST_CELLS = 100_000


def option_types(records: Sequence[type]) -> dict[str, Any]:
    """The options of these records by the names of their flags, each with its type."""
    return {key: get_type_hints(record)[name] for record in records for name, key in flag_names(record).items()}


def task_records() -> list[type]:
    return [task.options for task in tasks.TASKS]


def read_registry(path: Path) -> Registry:
    """The registry of a YAML or JSON file, or a testset of winml-cli. The first problem is an error with its line."""
    registry, problems = check_registry(path)
    if problems:
        more = f" ({len(problems) - 1} more: `check` lists them)" if len(problems) > 1 else ""
        raise RequestError(problems[0] + more)
    return registry


def check_registry(path: Path) -> tuple[Registry, list[str]]:
    """What can be read of the registry, and every problem in it."""
    reader = _Reader(path)
    content = read_located(path)
    if testset.is_testset(content):
        content, notes = testset.convert(content)
        reader.notes += notes
    registry = reader.read(content)
    return registry, [f"{path} line {line}: {message}" for line, message in sorted(reader.problems)]


class _Reader:
    """One file: what it holds, and what is wrong with it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[tuple[int, str]] = []
        self.notes: list[str] = []
        self._model_types = option_types([ModelOptions])
        self._data_types = option_types([DataOptions])
        self._task_types = option_types(task_records())

    def problem(self, line: int, message: str) -> None:
        self.problems.append((line, message))

    def read(self, content: Located) -> Registry:
        if not isinstance(content.value, dict):
            self.problem(content.line, f"a registry is a mapping with {', '.join(SECTIONS)}")
            return Registry(self.path, (), ())
        self._refuse_unknown(content.value, SECTIONS, "a registry")
        for name in ("models", "tasks"):
            if name not in content.value:
                self.problem(content.line, f"the registry has no `{name}`")
        defaults = self._defaults(content.value.get("defaults"))
        models = [m for entry in self._list(content, "models") for m in self._models(entry, defaults)]
        entries = [t for entry in self._list(content, "tasks") for t in self._tasks(entry, defaults)]
        if (cells := sum(len(model.variants) for model in models) * len(entries)) > _MOST_CELLS:
            self.problem(content.line, f"a registry of {cells:,} cells is more than the limit of {_MOST_CELLS:,}")
            return Registry(self.path, (), ())
        self._refuse_repeated("model", models)
        self._refuse_repeated("task", entries)
        self._check_baselines(models)
        for model in models:
            self._check_globs(model, entries)
        exclude = tuple(self._patterns(self._list(content, "exclude"), models, entries))
        limits = self._thresholds(content.value.get("thresholds"))
        return Registry(self.path, tuple(models), tuple(entries), limits, exclude, tuple(self.notes))

    # --- parts of the file --------------------------------------------------------------------------------------

    def _list(self, content: Located, name: str) -> list[Located]:
        section = content.value.get(name)
        if section is None or section.value is None:
            return []
        if isinstance(section.value, list):
            return list(section.value)
        self.problem(section.line, f"`{name}` must be a list")
        return []

    def _defaults(self, section: Located | None) -> dict[str, Located]:
        entries = self._mapping(section, "`defaults` must hold options of models and tasks")
        allowed = (*DEFAULT_KEYS, *self._model_types, *self._data_types, *self._task_types)
        self._refuse_unknown(entries, allowed, "`defaults`")
        return {_plain_key(key): value for key, value in entries.items()}

    def _mapping(self, section: Located | None, problem: str) -> Mapping[str, Located]:
        """What a section holds; nothing where it is not there, or no mapping."""
        if section is None or section.value is None:
            return {}
        if not isinstance(section.value, dict):
            self.problem(section.line, problem)
            return {}
        return section.value

    def _refuse_unknown(self, section: Mapping[str, Located], allowed: Sequence[str], owner: str) -> None:
        for key, value in section.items():
            if _plain_key(key) not in allowed:
                self.problem(value.line, f"unknown key {key!r} of {owner}: {suggestion(_plain_key(key), allowed)}")

    def _models(self, entry: Located, defaults: Mapping[str, Located]) -> Iterator[ModelEntry]:
        keys = (*MODEL_KEYS, *self._model_types)
        for values, suffix in self._expand(entry, keys, defaults, "a model"):
            reference = self._text(values, "reference", entry.line, "a model")
            for place in self._references(reference, entry.line) if reference else ():
                yield self._model(values, place, suffix, entry, several=place != self._resolve(reference))

    def _model(self, values: dict[str, Located], place: str, suffix: str, entry: Located, several: bool) -> ModelEntry:
        name = Path(place.rpartition(":")[2] if "://" not in place else place).name or place
        id = self._text(values, "id", entry.line, "", default=name)
        if several and "id" in values:
            id = id.replace("{name}", name) if "{name}" in id else f"{id}-{name}"
        precisions, artifacts = self._precisions(values.get("precisions")), self._artifacts(values.get("artifacts"))
        own = OWN if precisions or artifacts else None
        baseline = self._baseline(values.get("baseline"), f"{id}{suffix}", own)
        options = self._options(values, ModelOptions, entry.line)
        line = values["id"].line if "id" in values else entry.line
        return ModelEntry(
            id=f"{id}{suffix}",
            reference=place,
            line=line,
            group=self._text(values, "group", line, "", default=""),
            priority=self._text(values, "priority", line, "", default=""),
            baseline=baseline,
            precisions=precisions,
            artifacts=artifacts,
            tasks=tuple(self._texts(values.get("tasks"), "tasks")),
            calibration=self._dataset(values.get("calibration")),
            options=options,
        )

    def _baseline(self, value: Located | None, id: str, own: str | None) -> str | None:
        """By default the model's own reference where it has precisions or artifacts. `none` is none."""
        if value is None:
            return own
        if value.value in (None, "none"):
            return None
        return own if value.value == id and own else str(value.value)

    def _tasks(self, entry: Located, defaults: Mapping[str, Located]) -> Iterator[TaskEntry]:
        keys = (*TASK_KEYS, *self._data_types, *self._task_types)
        for values, suffix in self._expand(entry, keys, defaults, "a task"):
            name = self._text(values, "task", entry.line, "a task")
            task = self._known_task(name, values) if name else None
            if task is None:
                continue
            self._refuse_other_tasks(entry, task)
            yield TaskEntry(
                id=f"{self._text(values, 'id', entry.line, '', default=name)}{suffix}",
                task=name,
                line=values["id"].line if "id" in values else entry.line,
                dataset=self._dataset(values.get("dataset")),
                columns=self._columns(values.get("columns")),
                data_options=self._options(values, DataOptions, entry.line),
                task_options=self._task_options(values, task.options, entry.line),
            )

    def _known_task(self, name: str, values: Mapping[str, Located]) -> Any:
        try:
            return tasks.askable(name)
        except RequestError:
            names = [n for task in tasks.TASKS for n in (task.name, *task.aliases)]
            self.problem(values["task"].line, f"unknown task {name!r}: {suggestion(name, names)}")
            return None

    def _refuse_other_tasks(self, entry: Located, task: Any) -> None:
        """Options of other tasks; among the defaults they are left out silently."""
        own = {*option_types([task.options]), *self._data_types, *TASK_KEYS}
        for key, value in entry.items():
            if _plain_key(key) in self._task_types and _plain_key(key) not in own:
                self.problem(value.line, f"{key!r} is not an option of the task {task.name}")

    def _columns(self, section: Located | None) -> dict[str, str]:
        entries = self._mapping(section, "`columns` must hold lines KEY: NAME")
        return {key: str(name.plain()) for key, name in entries.items()}

    def _expand(
        self, entry: Located, keys: Sequence[str], defaults: Mapping[str, Located], owner: str
    ) -> Iterator[tuple[dict[str, Located], str]]:
        """The entry over the defaults that apply to it: once, or for every combination of its `matrix`."""
        if not isinstance(entry.value, dict):
            self.problem(entry.line, f"{owner} must be a mapping, found {entry.plain()!r}")
            return
        self._refuse_unknown(entry.value, keys, owner)
        own = {_plain_key(key): value for key, value in entry.items()}
        values = {**{key: value for key, value in defaults.items() if key in keys}, **own}
        matrix = values.pop("matrix", None)
        if matrix is None or not matrix.value:
            yield values, ""
            return
        if not isinstance(matrix.value, dict) or not all(isinstance(v.value, list) for _, v in matrix.items()):
            self.problem(matrix.line, "`matrix` must hold lines OPTION: [VALUE, VALUE, …]")
            return
        self._refuse_unknown(matrix.value, keys, "a matrix")
        axes = [[(_plain_key(key), value) for value in axis.value] for key, axis in matrix.items()]
        if (points := math.prod(map(len, axes))) > _MOST_POINTS:
            self.problem(matrix.line, f"a matrix of {points:,} combinations is more than the limit of {_MOST_POINTS:,}")
            return
        for point in product(*axes):
            yield {**values, **dict(point)}, "".join(f",{key}={value.plain()}" for key, value in point)

    # --- values -------------------------------------------------------------------------------------------------

    def _text(self, values: Mapping[str, Located], key: str, line: int, owner: str, default: str | None = None) -> str:
        value = values.get(key)
        if value is None or value.value is None:
            if default is None:
                self.problem(line, f"{owner} has no `{key}`")
            return default or ""
        if isinstance(value.value, (dict, list, bool)) or not str(value.value).strip():
            self.problem(value.line, f"`{key}` must be a text, found {value.plain()!r}")
            return default or ""
        return str(value.value)

    def _texts(self, value: Located | None, key: str) -> list[str]:
        if value is None or value.value is None:
            return []
        entries = value.value if isinstance(value.value, list) else [value]
        if any(isinstance(entry.value, (dict, list)) for entry in entries):
            self.problem(value.line, f"`{key}` must be a list of texts")
            return []
        return [str(entry.value) for entry in entries]

    def _precisions(self, value: Located | None) -> tuple[str, ...]:
        allowed = (OWN, *PRECISIONS)
        names = self._texts(value, "precisions")
        for name in names:
            if name not in allowed and value is not None:
                line = next((e.line for e in value.value if str(e.value) == name), value.line) if isinstance(
                    value.value, list
                ) else value.line  # fmt: skip
                self.problem(line, f"there is no precision {name!r}: {suggestion(name, allowed)}")
        return tuple(dict.fromkeys(name for name in names if name in allowed))

    def _artifacts(self, value: Located | None) -> dict[str, str]:
        if value is None or value.value is None:
            return {}
        entries = list(value.value.values()) if isinstance(value.value, dict) else [value]
        wrong = [e for e in entries if not isinstance(e.value, str) and not isinstance(value.value, list)]
        if wrong:
            self.problem(wrong[0].line, f"`artifacts` must hold lines NAME: REFERENCE, found {wrong[0].plain()!r}")
            return {}
        if isinstance(value.value, dict):
            return {name: self._resolve(str(inner.value)) for name, inner in value.items()}
        return {Path(name).stem if Path(name).suffix else Path(name).name: self._resolve(name)
                for name in self._texts(value, "artifacts")}  # fmt: skip

    def _options(self, values: Mapping[str, Located], record: type[Any], line: int) -> Any:
        made = self._typed(values, record)
        try:
            return record(**made)
        except RequestError as error:
            named = [v.line for k, v in values.items() if f"`{k}`" in str(error) or f".{k}`" in str(error)]
            self.problem(named[0] if named else line, str(error))
            return record()

    def _task_options(self, values: Mapping[str, Located], record: type[Any], line: int) -> dict[str, Any]:
        made = self._typed(values, record)
        try:
            record(**made)
        except RequestError as error:
            named = [v.line for k, v in values.items() if f"`{k}`" in str(error)]
            self.problem(named[0] if named else line, str(error))
        return made

    def _typed(self, values: Mapping[str, Located], record: type[Any]) -> dict[str, Any]:
        """The values that are options of the record, by field, in the type of the field."""
        hints, made = get_type_hints(record), {}
        for name, key in flag_names(record).items():
            value = values.get(key)
            if value is None:
                continue
            try:
                made[name] = convert(value.plain(), hints[name])
            except ValueError as error:
                self.problem(value.line, f"`{key}` must be {error}, found {value.plain()!r}")
        return made

    def _thresholds(self, section: Located | None) -> dict[str, Thresholds]:
        limits = {}
        for name, value in self._mapping(section, "`thresholds` must hold lines METRIC: PASS,RISK").items():
            plain = value.plain()
            text = ",".join(map(str, plain)) if isinstance(plain, list) else str(plain)
            if not tasks.has_metric(name):
                metrics = [metric.name for task in tasks.TASKS for metric in task.metrics]
                self.problem(value.line, f"there is no metric {name!r}: {suggestion(name, metrics)}")
                continue
            try:
                limits[name] = parse_thresholds(text, name)
            except RequestError as error:
                self.problem(value.line, str(error))
        return limits

    # --- places -------------------------------------------------------------------------------------------------

    def _resolve(self, reference: str) -> str:
        """A path from the registry's folder where it is there, else as it stands. Variables of the environment are
        replaced where that leads to a file or folder, and nowhere else: an address or an error must not carry them."""
        text = os.path.expandvars(reference)
        prefix, colon, rest = text.partition(":")
        head, place = (f"{prefix}:", rest) if colon and "/" not in prefix and not rest.startswith("//") else ("", text)
        beside = self.path.parent / expand(place)
        return f"{head}{beside}" if place and os.path.exists(beside) else reference

    def _dataset(self, value: Located | None) -> str | None:
        return None if value is None or value.value is None else self._resolve(str(value.value))

    def _references(self, reference: str, line: int) -> list[str]:
        """The models that a reference means: one, or what its glob matches."""
        place = self._resolve(reference)
        if not _GLOB & set(place) or "://" in place or os.path.exists(place):
            return [place]
        if "**" in place:  # it may read a whole disk
            self.problem(line, f"the glob {reference!r} holds **: a * stands for one folder or name")
            return []
        pattern = expand(os.path.expandvars(place))
        pattern = pattern if pattern.is_absolute() else self.path.parent / pattern
        anchor = Path(pattern.anchor)
        matches = sorted(str(match) for match in anchor.glob(str(pattern.relative_to(anchor))))
        if not matches:
            self.problem(line, f"the glob {reference!r} matches no model")
        return matches

    def _patterns(
        self, exclusions: Sequence[Located], models: Sequence[ModelEntry], entries: Sequence[TaskEntry]
    ) -> Iterator[str]:
        """Exclusions: `MODEL/TASK/PRECISION` with globs, or a mapping with some of the three."""
        cells = [(CellKey(m.id, t.id, p), m.group) for m in models for t in entries for p in m.variants]
        for exclusion in exclusions:
            plain = exclusion.plain()
            if isinstance(plain, dict):
                self._refuse_unknown(exclusion.value, CELL_KEYS, "an exclusion")
                plain = "/".join(str(plain.get(part, "*")) for part in CELL_KEYS)
            if not isinstance(plain, str):
                self.problem(exclusion.line, f"an exclusion is MODEL/TASK/PRECISION with globs, found {plain!r}")
                continue
            if not any(matches(plain, key, group) for key, group in cells):
                self.notes.append(f"line {exclusion.line}: the exclusion {plain!r} matches no cell")
            yield plain

    # --- between entries ----------------------------------------------------------------------------------------

    def _refuse_repeated(self, kind: str, entries: Sequence[ModelEntry | TaskEntry]) -> None:
        first: dict[str, int] = {}
        for entry in entries:
            if kind == "model" and entry.id in (OWN, "none"):
                self.problem(
                    entry.line, f"a model cannot have the id {entry.id!r}, which means something as a baseline"
                )
            if entry.id in first:
                self.problem(entry.line, f"the id {entry.id!r} of a {kind} is already used in line {first[entry.id]}")
            first.setdefault(entry.id, entry.line)

    def _check_globs(self, model: ModelEntry, entries: Sequence[TaskEntry]) -> None:
        from fnmatch import fnmatchcase

        for pattern in model.tasks:
            if not any(fnmatchcase(task.id, pattern) for task in entries):
                hint = suggestion(pattern, [task.id for task in entries])
                self.problem(model.line, f"the model {model.id!r} names a task {pattern!r} that is not there: {hint}")

    def _check_baselines(self, models: Sequence[ModelEntry]) -> None:
        by_id = {model.id: model for model in models}
        for model in models:
            if model.baseline not in (None, OWN) and model.baseline not in by_id:
                hint = suggestion(str(model.baseline), [OWN, *by_id])
                self.problem(model.line, f"the baseline {model.baseline!r} of {model.id!r} is no model here: {hint}")
        reported: set[str] = set()
        for model in models:
            walk = _walk(model, by_id)
            if walk and not reported & set(walk):
                reported |= set(walk)
                self.problem(model.line, f"the baselines form a cycle: {' → '.join(walk)}")


def _walk(model: ModelEntry, by_id: Mapping[str, ModelEntry]) -> list[str]:
    """The ids from a model along its baselines back to itself; empty where they do not return."""
    path = [model.id]
    while (target := by_id[path[-1]].baseline) in by_id:
        assert target is not None
        path.append(target)
        if target == model.id:
            return path
        if target in path[:-1]:
            return []
    return []


def _plain_key(key: str) -> str:
    return key.replace("-", "_")


_WORDS: dict[Any, str] = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


def convert(value: Any, kind: Any) -> Any:
    """A value of YAML in the type of an option; ValueError names what was expected.

    >>> convert(3, float | None), convert("a", tuple[str, ...]), convert(256, int | str | None)
    (3.0, ('a',), 256)
    """
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    if value is None and type(None) in kinds:
        return None
    converters: dict[Any, Callable[[Any], Any]] = {
        bool: lambda v: v if isinstance(v, bool) else _refuse(),
        int: lambda v: v if isinstance(v, int) and not isinstance(v, bool) else _refuse(),
        float: lambda v: float(v) if isinstance(v, (int, float)) and not isinstance(v, bool) else _refuse(),
        str: lambda v: str(v) if isinstance(v, (str, int, float)) and not isinstance(v, bool) else _refuse(),
        Path: lambda v: Path(v) if isinstance(v, str) else _refuse(),
    }
    for one in kinds:
        if get_origin(one) is tuple:
            inner = get_args(one)[0]
            entries = value if isinstance(value, list) else [value]
            return tuple(convert(entry, inner) for entry in entries)
        try:
            return converters[one](value) if one in converters else _refuse()
        except ValueError:
            continue
    names = [_WORDS[one] for one in kinds if one in _WORDS]
    raise ValueError(" or ".join(names) or "something else")


def _refuse() -> Any:
    raise ValueError
