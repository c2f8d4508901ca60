"""What a registry holds, what a sweep plans, and what came out of each cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from calipers.core import Thresholds
from calipers.core.choices import MOST_RESAMPLES
from calipers.core.errors import shorten_sentence
from calipers.core.options import Options, option
from calipers.data import DataOptions
from calipers.models import ModelOptions
from calipers.runs.protocol import Protocol

OWN = "float32"  # the precision of a model as its reference is
FAILURES = ("data", "model-load", "export", "quantise", "inference", "time-out", "memory", "signal")
# The worst exit code of several: a regression first, then failures, then what is undecided.
EXIT_ORDER = (1, 4, 3, 2, 5, 0)


@dataclass(frozen=True)
class ModelEntry:
    """A model of a registry. `baseline` is another model's id, `OWN` for its own reference, or None."""

    id: str
    reference: str
    line: int
    group: str = ""
    priority: str = ""
    baseline: str | None = None
    precisions: tuple[str, ...] = ()
    artifacts: Mapping[str, str] = field(default_factory=dict)  # precision → a reference made elsewhere
    tasks: tuple[str, ...] = ()  # globs over ids of tasks; empty is every task that applies
    calibration: str | None = None
    options: ModelOptions = field(default_factory=ModelOptions)

    @property
    def variants(self) -> tuple[str, ...]:
        """What is measured of it: precisions and artifacts, with its own reference where they are compared with it."""
        others = (*self.precisions, *self.artifacts)
        own = (OWN,) if self.baseline == OWN or not others else ()
        return tuple(dict.fromkeys((*own, *others)))


@dataclass(frozen=True)
class TaskEntry:
    """A task on a dataset. `dataset` None is the task's own."""

    id: str
    task: str
    dataset: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    data_options: DataOptions = field(default_factory=DataOptions)
    task_options: Mapping[str, Any] = field(default_factory=dict)
    line: int = 0

    def protocol(self, model_options: ModelOptions | None = None) -> Protocol:
        """What a model with these options is measured on."""
        options = model_options or ModelOptions(), self.data_options
        return Protocol(self.task, self.task_options, self.dataset, self.columns, *options)


@dataclass(frozen=True)
class Registry:
    path: Path
    models: tuple[ModelEntry, ...]
    tasks: tuple[TaskEntry, ...]
    thresholds: Mapping[str, Thresholds] = field(default_factory=dict)
    exclude: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return str(self.path.resolve())


@dataclass(frozen=True)
class SweepOptions(Options):
    """How a sweep is run. None of it changes a number."""

    only: tuple[str, ...] = option(
        (), "Only cells that match: MODEL, GROUP, TASK, PRECISION or MODEL/TASK/PRECISION; globs.", group="Cells",
        metavar="PATTERN",
    )  # fmt: skip
    exclude: tuple[str, ...] = option((), "Leave out cells that match.", group="Cells", metavar="PATTERN")
    fail_fast: bool = option(
        False, "Stop at the first failure. Default: --keep-going.", group="Running", off="--keep-going"
    )
    on: str = option(
        "local",
        "Where cells run: local, ray, ray:ADDRESS, slurm, or slurm:local, which needs no SLURM.",
        group="Running",
        metavar="EXECUTOR",
    )
    jobs: int | None = option(
        None, "Cells at a time. Default: one for each core.", group="Running", metavar="N", at_least=1
    )
    cell_timeout: float = option(3600.0, "Seconds that a cell may take.", group="Running", metavar="SECONDS", above=0)
    memory_limit: float | None = option(
        None, "Gigabytes that a cell may use. Default: no limit.", group="Running", metavar="GB", above=0
    )
    latency: bool = option(
        True, "Time every artifact, alone, after the other cells.", group="Running", off="--no-latency"
    )
    confidence: float = option(0.95, "Of intervals and labels.", group="Verdict", metavar="SHARE", above=0.5, below=1)
    resamples: int = option(
        10_000, "Of the bootstrap.", group="Verdict", metavar="N", at_least=100, at_most=MOST_RESAMPLES
    )


@dataclass(frozen=True)
class SweepStatus:
    """How far a sweep is: counts of jobs, the names of those that run, and an estimate of what is left.

    `done` does not count the failed ones; `seconds` is how long the sweep has run.
    """

    jobs: int
    running: tuple[str, ...]
    done: int
    failed: int
    seconds: float
    left: float | None = None  # seconds to go, where enough is done to tell

    def __str__(self) -> str:
        """
        >>> str(SweepStatus(10, ("minilm/sts/w8a8",), 4, 1, 60.0, 75.0))
        '4 of 10 jobs done, 1 failed, 1 running (minilm/sts/w8a8), 4.0 a minute, about 75 s to go'
        >>> len(str(SweepStatus(9, ("a name without an end" * 999,) * 9, 0, 0, 60.0))) < 400
        True
        """
        shown = ", ".join(shorten_sentence(name, 80) for name in self.running[:3])
        names = f" ({shown}{', …' if len(self.running) > 3 else ''})" if self.running else ""
        rate = f", {60 * self.done / self.seconds:.1f} a minute" if self.done and self.seconds else ""
        left = f", about {self.left:.0f} s to go" if self.left is not None else ""
        running = f"{len(self.running)} running{names}"
        return f"{self.done} of {self.jobs} jobs done, {self.failed} failed, {running}{rate}{left}"


@dataclass(frozen=True)
class Failure:
    """Why a cell has no value: one of `FAILURES`, a sentence and the exit code.

    `log` is the file with all that its process wrote, `tail` the last lines of it.
    """

    kind: str
    message: str
    exit_code: int
    log: str | None = None
    tail: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {"class": self.kind, **{k: v for k, v in vars(self).items() if k != "kind"}, "tail": list(self.tail)}


@dataclass(frozen=True)
class CellKey:
    """Which cell: a model on a task in a precision.

    `model` and `task` are ids of the registry, `precision` is `OWN`, a precision or the path of an artifact.
    """

    model: str
    task: str
    precision: str

    def __str__(self) -> str:
        return f"{self.model}/{self.task}/{self.precision}"


def matches(pattern: str, key: CellKey, group: str = "") -> bool:
    """Whether a pattern of `only` or `exclude` means the cell: any of its names, or several with slashes.

    >>> cell = CellKey("minilm", "sts", "int8-dynamic")
    >>> matches("min*", cell), matches("minilm/sts", cell), matches("*/*/w8a8", cell)
    (True, True, False)
    """
    names = [key.model, key.task, key.precision, f"{key.model}/{key.task}", str(key), *([group] if group else [])]
    return any(fnmatchcase(name, pattern) for name in names)


@dataclass(frozen=True)
class CellResult:
    """What a cell came to. Numbers are None where they are not known; `label` is None without a baseline."""

    key: CellKey
    group: str
    metric: str | None = None
    higher_is_better: bool = True
    digits: int = 2
    value: float | None = None
    interval: tuple[float, float] | None = None
    baseline: float | None = None
    baseline_cell: str | None = None
    delta: float | None = None
    relative: float | None = None
    label: str | None = None
    p_value: float | None = None
    adjusted_p: float | None = None
    size: int | None = None  # bytes
    latency: Mapping[str, Any] | None = None  # p50 in milliseconds, and whether the machine had other work
    run: str | None = None
    reused: bool = False
    failure: Failure | None = None
    dominated: bool = False
    newly_broken: bool = False
    digest: str | None = None  # of outcomes and metrics
    reason: str | None = None

    @property
    def outcome(self) -> str:
        """In a word or two: the label, or why there is none."""
        if self.label or self.failure:
            return self.label or "failed"
        return "not run" if self.value is None else "without a label"

    @property
    def exit_code(self) -> int:
        """That of `compare` where there is a label, else of the failure."""
        if self.label is not None:
            return {"REGRESSION": 1, "INVALID": 1, "INCONCLUSIVE": 5}.get(self.label, 0)
        return self.failure.exit_code if self.failure else 0

    def to_dict(self) -> dict[str, Any]:
        facts = {k: v for k, v in vars(self).items() if k != "key"}
        facts["interval"] = list(self.interval) if self.interval else None
        facts["failure"] = self.failure.to_dict() if self.failure else None
        return {"model": self.key.model, "task": self.key.task, "precision": self.key.precision, **facts}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> CellResult:
        """A cell of the JSON document."""
        values = dict(facts)
        key = CellKey(*(values.pop(name) for name in ("model", "task", "precision")))
        values["interval"] = tuple(values["interval"]) if values["interval"] else None
        if failure := values["failure"]:
            kind, message, code = failure["class"], failure["message"], failure["exit_code"]
            values["failure"] = Failure(kind, message, code, failure["log"], tuple(failure["tail"]))
        return cls(key, **values)


def worst_exit(codes: list[int]) -> int:
    """The exit code of the worst cell.

    >>> worst_exit([0, 5, 2]), worst_exit([3, 4]), worst_exit([])
    (2, 4, 0)
    """
    return min(codes, key=EXIT_ORDER.index, default=0)
