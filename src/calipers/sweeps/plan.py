"""A registry to cells and jobs: what is in the store, what must be built once for many, and what is left to measure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

from calipers import models, tasks
from calipers.core import CalipersError, Dataset, RequestError
from calipers.models import ModelOptions, Source, identity
from calipers.runs import api as runs
from calipers.runs.key import canonical, code_version
from calipers.runs.store import Store
from calipers.sweeps import abilities
from calipers.sweeps.division import Division, divide
from calipers.sweeps.records import OWN, CellKey, Failure, ModelEntry, Registry, SweepOptions, TaskEntry, matches

_BUILDING = ("core", "models", "data", "artifacts", "attribution/api.py")  # parts that can change an artifact
_TEXTS = 16


@dataclass(frozen=True)
class Job:
    """CellWork of one process. `needs` are ids of jobs before it; jobs with the same `lock` do not run together."""

    id: str
    kind: str  # build, part, measure or time
    name: str
    spec: Mapping[str, Any]
    needs: tuple[str, ...] = ()
    after: tuple[str, ...] = ()  # jobs that must have ended, well or not
    lock: str = ""
    priority: str = ""
    gpus: int = 0


@dataclass(frozen=True)
class PlannedCell:
    """One row of the table, with the jobs that fill it."""

    key: CellKey
    model: ModelEntry
    task: TaskEntry
    baseline: CellKey | None
    job: str = ""  # the id of its measurement; empty where it cannot be planned
    timing: str = ""
    failure: Failure | None = None  # known before anything runs


@dataclass
class Plan:
    registry: Registry
    cells: list[PlannedCell] = field(default_factory=list)
    jobs: dict[str, Job] = field(default_factory=dict)
    rows: dict[str, Dataset] = field(default_factory=dict)  # by the id of the task
    skipped: list[tuple[str, str]] = field(default_factory=list)  # model and task that do not go together, and why

    def measures(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.kind == "measure"]


@dataclass(frozen=True)
class Folders:
    """Where a sweep keeps its files, beside the runs of the store."""

    root: Path

    @classmethod
    def of(cls, store: Store) -> Folders:
        return cls(store.folder.absolute() / "sweeps")

    def spec(self, job: str) -> Path:
        return self.root / "specs" / f"{job}.json"

    def log(self, job: str) -> Path:
        return self.root / "logs" / f"{job}.log"

    def result(self, job: str) -> Path:
        return self.root / "results" / job

    def report(self, job: str) -> Path:
        return self.root / "reports" / f"{job}.json"

    def shards(self, job: str) -> Path:
        return self.root / "shards" / job

    def build(self, key: str) -> Path:
        return self.root / "builds" / key

    def built(self, key: str, precision: str) -> Path:
        return self.root / "builds" / f"{key}-{precision}.json"

    def timed(self, job: str) -> Path:
        return self.root / "timings" / f"{job}.json"

    def make(self) -> None:
        for name in ("specs", "logs", "results", "reports", "shards", "builds", "timings"):
            (self.root / name).mkdir(parents=True, exist_ok=True)


def make_plan(registry: Registry, store: Store, options: SweepOptions, threads: int) -> Plan:
    """Every cell of the registry that applies and is not excluded, with its jobs. Models are not loaded."""
    return _Planner(registry, Folders.of(store), options, threads).plan()


class _Planner:
    def __init__(self, registry: Registry, folders: Folders, options: SweepOptions, threads: int) -> None:
        self.registry, self.folders, self.options, self.threads = registry, folders, options, threads
        self._plan = Plan(registry)
        self._rows: dict[str, Dataset | Failure] = {}
        self._entries: dict[str, ModelFacts] = {}

    def plan(self) -> Plan:
        for model in sorted(self.registry.models, key=lambda m: m.priority or "~"):
            for task in self.registry.tasks:
                self._add(model, task)
        self._keep_baselines()
        self._plan.rows = {id: rows for id, rows in self._rows.items() if isinstance(rows, Dataset)}
        return self._plan

    def rows(self, task: TaskEntry) -> Dataset | Failure:
        """The data of a task, read once."""
        if task.id not in self._rows:
            try:
                self._rows[task.id] = runs.read_rows(task.protocol())
            except CalipersError as error:
                self._rows[task.id] = Failure("data", str(error), error.exit_code)
        return self._rows[task.id]

    def facts(self, model: ModelEntry) -> ModelFacts:
        if model.id not in self._entries:
            self._entries[model.id] = ModelFacts(model)
        return self._entries[model.id]

    def _add(self, model: ModelEntry, task: TaskEntry) -> None:
        chosen = not model.tasks or any(fnmatchcase(task.id, pattern) for pattern in model.tasks)
        if not chosen:
            return
        facts, measured = self.facts(model), tasks.find(task.task)
        if not model.tasks and not abilities.applies(measured, facts.able):
            able = ", ".join(sorted(facts.able))
            self._plan.skipped.append((f"{model.id}/{task.id}", f"{task.task} does not apply to a model for {able}"))
            return
        for precision in model.variants:
            key = CellKey(model.id, task.id, precision)
            if any(matches(pattern, key, model.group) for pattern in self.registry.exclude):
                continue
            self._plan.cells.append(self._cell(key, model, task))

    def _keep_baselines(self) -> None:
        """Apply `only` and `exclude` of the command; baselines of what is left stay."""
        only, exclude = self.options.only, self.options.exclude
        cells = self._plan.cells
        for name, patterns in (("only", only), ("exclude", exclude)):
            for pattern in patterns:
                if not any(matches(pattern, c.key, c.model.group) for c in cells):
                    raise RequestError(f"`{name}` {pattern} matches no cell of {self.registry.path}")
        kept = {
            c.key
            for c in cells
            if (not only or any(matches(p, c.key, c.model.group) for p in only))
            and not any(matches(p, c.key, c.model.group) for p in exclude)
        }
        needed = kept | {c.baseline for c in cells if c.key in kept and c.baseline}
        self._plan.cells = [c for c in cells if c.key in needed]
        wanted = {job for c in self._plan.cells for job in (c.job, c.timing) if job}
        wanted |= {need for id in wanted if id in self._plan.jobs for need in self._plan.jobs[id].needs}
        wanted |= {need for id in list(wanted) if id in self._plan.jobs for need in self._plan.jobs[id].needs}
        wanted |= {part for id in list(wanted) if id in self._plan.jobs for part in self._plan.jobs[id].after}
        self._plan.jobs = {id: job for id, job in self._plan.jobs.items() if id in wanted}

    def _cell(self, key: CellKey, model: ModelEntry, task: TaskEntry) -> PlannedCell:
        facts, rows = self.facts(model), self.rows(task)
        cell = PlannedCell(key, model, task, self._baseline(key, model))
        failure = rows if isinstance(rows, Failure) else facts.failure
        if failure is not None and not (facts.failure and key.precision in model.artifacts):
            return replace(cell, failure=failure)
        assert not isinstance(rows, Failure)
        try:
            work = CellWork(key, task, rows, facts, *self._artifact(key, model, task, facts))
        except CalipersError as error:
            return replace(cell, failure=Failure("model-load", str(error), error.exit_code))
        return replace(cell, job=self._measure(work).id, timing=self._timing(work) if self.options.latency else "")

    def _baseline(self, key: CellKey, model: ModelEntry) -> CellKey | None:
        if model.baseline is None or (model.baseline == OWN and key.precision == OWN):
            return None
        other = model if model.baseline == OWN else next(m for m in self.registry.models if m.id == model.baseline)
        precision = OWN if OWN in other.variants else other.variants[0]
        return CellKey(other.id, key.task, precision)

    # --- jobs ---------------------------------------------------------------------------------------------------

    def _artifact(
        self, key: CellKey, model: ModelEntry, task: TaskEntry, facts: ModelFacts
    ) -> tuple[str, ModelOptions, tuple[str, ...]]:
        """What is measured in this precision: its reference, its options, and the jobs that make it."""
        if key.precision == OWN:
            return model.reference, model.options, ()
        if key.precision in model.artifacts:
            place = model.artifacts[key.precision]
            models.find(place)
            return place, _with_tokenizer(place, model), ()
        folder, job = self._build(key.precision, model, task, facts)
        name = {"fp32": "optimized"}.get(key.precision, f"quantized-{key.precision}")
        options = replace(
            model.options, dtype="float32", allow_pickle=False, trust_remote_code=False, model_id=None, revision=None
        )
        return str(folder / name / "model.onnx"), options, (job,)

    def _build(self, precision: str, model: ModelEntry, task: TaskEntry, facts: ModelFacts) -> tuple[Path, str]:
        """The job that makes a precision: one export feeds all of a model, so that they share a folder."""
        source = self._calibration(model, task)
        head = abilities.head_for(tasks.find(task.task))
        options = replace(model.options, output=None, batch_tokens=None, batch_size=None, threads=None)
        content = [facts.fingerprint, head, asdict(options), source, code_version(_BUILDING)]
        key = _digest(content)
        folder = self.folders.build(key)
        needs: tuple[str, ...] = ()
        if precision != "fp32":
            needs = (self._build("fp32", model, task, facts)[1],)
        id = _digest(["build", key, precision])
        spec = {
            "kind": "build",
            "name": f"{model.id}/{precision}",
            "reference": model.reference,
            "precision": precision,
            "folder": str(folder),
            "result": str(self.folders.built(key, precision)),
            "model_options": asdict(options),
            **source,
        }
        self._put(Job(id, "build", spec["name"], spec, needs, lock=key, priority=model.priority))
        return folder, id

    def _calibration(self, model: ModelEntry, task: TaskEntry) -> dict[str, Any]:
        """The data that ranges are taken from: the model's own, else other rows of the first task with a table."""
        head = abilities.head_for(tasks.find(task.task))
        same = [t for t in self.registry.tasks if abilities.head_for(tasks.find(t.task)) == head]
        tables = [t for t in same if tasks.find(t.task).data == "rows"]
        chosen = (tables or same)[0]
        corpus = None if tables or chosen.dataset is None else Path(chosen.dataset) / "corpus.jsonl"
        return {
            "task": chosen.task,
            "dataset": chosen.dataset if tables else None,
            "columns": dict(chosen.columns) if tables else {},
            "data_options": asdict(chosen.data_options),
            "calibration": model.calibration or (str(corpus) if corpus else None),
        }

    def _measure(self, work: CellWork) -> Job:
        question = {
            "task": work.task.task,
            "task_options": dict(work.task.task_options),
            "dataset": work.task.dataset,
            "columns": dict(work.task.columns),
            "model_options": asdict(work.options),
            "data_options": asdict(work.task.data_options),
        }
        id = _digest([question, work.made, work.rows.fingerprint, list(work.rows.ids), code_version()])
        spec = {
            "kind": "measure",
            "name": str(work.key),
            "reference": work.place,
            **question,
            "confidence": self.options.confidence,
            "resamples": self.options.resamples,
            "result": str(self.folders.result(id)),
            "shards": str(self.folders.shards(id)),
            "part": None,
            **asdict(self._division(work)),
        }
        gpus = int(work.options.device.startswith("cuda"))
        job = Job(id, "measure", str(work.key), spec, work.needs, priority=work.facts.entry.priority, gpus=gpus)
        return self._put(replace(job, after=tuple(self._parts(job))))

    def _division(self, work: CellWork) -> Division:
        if self.options.on.startswith("local"):
            return Division()
        backend = "onnx" if work.needs else models.find(work.place).backend
        return divide(work.rows, backend, tasks.find(work.task.task).ability, work.options, self.options.jobs)

    def _parts(self, job: Job) -> Iterator[str]:
        """On a cluster, the parts of a long cell as jobs of their own, which fill the same folder."""
        parts = job.spec["parts"]
        for number in range(parts if parts > 1 else 0):
            id = _digest(["part", job.id, number, parts])
            spec = {**job.spec, "kind": "part", "part": number, "result": str(self.folders.timed(id))}
            name = f"{job.name}, part {number + 1} of {parts}"
            yield self._put(Job(id, "part", name, spec, job.needs, priority=job.priority, gpus=job.gpus)).id

    def _timing(self, work: CellWork) -> str:
        measured, source = tasks.find(work.task.task), work.facts.source
        if measured.ability == "retrieve" and source is not None and source.backend in ("bm25", "hybrid"):
            return ""
        head, name = abilities.head_for(measured), f"{work.key.model}/{work.key.precision}"
        id = _digest(["time", work.made, asdict(work.options), head, code_version()])
        if id in self._plan.jobs:
            return id
        texts = _texts(work.rows, measured.ability)
        spec = {
            "kind": "time",
            "name": name,
            "reference": work.place,
            "ability": head,
            "texts": texts,
            "text_ids": {text: list(ids) for text, ids in measured.text_ids(work.rows).items() if text in texts},
            "model_options": asdict(work.options),
            "result": str(self.folders.timed(id)),
        }
        self._put(Job(id, "time", name, spec, work.needs, priority="~"))
        return id

    def _put(self, job: Job) -> Job:
        """The same work is one job, however many cells need it."""
        spec = {**job.spec, "report": str(self.folders.report(job.id)), "threads": self.threads}
        return self._plan.jobs.setdefault(job.id, replace(job, spec=spec))


class ModelFacts:
    """What is known of a model before it runs; `failure` where it is not there."""

    def __init__(self, entry: ModelEntry) -> None:
        self.entry = entry
        self.failure: Failure | None = None
        self.source: Source | None = None
        try:
            self.source = models.find(entry.reference)
        except CalipersError as error:
            self.failure = Failure("model-load", str(error), 3)

    @cached_property
    def able(self) -> frozenset[str]:
        return abilities.abilities(self.source, self.entry.options) if self.source else abilities.ALL

    @cached_property
    def fingerprint(self) -> str | None:
        return _fingerprint(self.entry.reference, self.entry.options)


@dataclass(frozen=True)
class CellWork:
    """What a cell needs: the model of `facts` as the artifact in `place` under its options, on the rows of a task.
    `needs` are the jobs that make the artifact."""

    key: CellKey
    task: TaskEntry
    rows: Dataset
    facts: ModelFacts
    place: str
    options: ModelOptions
    needs: tuple[str, ...]

    @property
    def made(self) -> tuple[str | None, ...]:
        """What decides the content of the artifact: the jobs that make it, else its place and its files."""
        return self.needs or (self.place, _fingerprint(self.place, self.options))


def _fingerprint(place: str, options: ModelOptions) -> str | None:
    """Of the model's files; None where they are not on this machine, or not yet there."""
    try:
        return identity.fingerprint(models.find(place), options)
    except (CalipersError, OSError):
        return None


def _with_tokenizer(place: str, model: ModelEntry) -> ModelOptions:
    """The options for a given artifact: the tokenizer of the model where the artifact has none beside it."""
    from calipers.models import onnx_files

    source = models.find(place)
    if source.backend != "onnx" or model.options.model_id:
        return model.options
    try:
        onnx_files.settings_folder(onnx_files.graph_file(source, model.options), model.options)
        return model.options
    except CalipersError:
        return replace(model.options, model_id=model.reference)


def _texts(rows: Dataset, ability: str) -> list[Any]:
    """Texts, or pairs for a scorer, to time a model on."""
    if ability == "retrieve":
        return list(rows.columns["query"][:_TEXTS])
    plain = [values for values in rows.columns.values() if len(values) and isinstance(values[0], str)]
    if ability != "score":
        return list(plain[0][:_TEXTS])
    if len(plain) >= 2:
        return [list(pair) for pair in zip(plain[0][:_TEXTS], plain[1][:_TEXTS], strict=False)]
    lists = [values for values in rows.columns.values() if len(values) and not isinstance(values[0], (str, int, float))]
    return [[query, _first(lists, i)] for i, query in enumerate(plain[0][:_TEXTS])]


def _first(lists: Sequence[Sequence[Any]], row: int) -> str:
    documents = [document for values in lists for document in (values[row] or ())]
    first = documents[0] if documents else ""
    return first if isinstance(first, str) else str(getattr(first, "text", first))


def _digest(content: Any) -> str:
    return hashlib.sha256(canonical(content).encode()).hexdigest()[:20]
