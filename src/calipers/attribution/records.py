"""What to attribute, and the result: which stage lost the metric, which nodes of its graph, and what a fix costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from calipers.comparison.records import Comparison, Label
from calipers.core import Thresholds, html_table
from calipers.core.choices import MOST_RESAMPLES
from calipers.core.options import Options, option
from calipers.rendering import numbers

SCHEMA = "calipers/attribute/1"
_KEYS = (  # of the JSON document
    *("schema", "model_id", "task", "precision", "metric", "higher_is_better", "dataset", "sentence", "guilty"),
    *("stages", "divergence", "culprits", "recipe", "fix", "trials", "evaluations", "budget", "notes", "seconds"),
)
# A share of a loss and its interval; None where unknown.
Share = tuple[float | None, tuple[float, float] | None]


@dataclass(frozen=True)
class AttributionOptions(Options):
    """How a loss is searched and fixed."""

    fix: bool = option(False, "Find the smallest recipe that passes, build and measure it.", group="What")
    budget: int = option(24, "Evaluations that the search and the fix may take.", group="What", metavar="N", at_least=0)
    built: Path | None = option(
        None,
        "A folder of `calipers build`: its graph of the precision is the one that is examined. Default: the model's "
        "folder, where it holds one.",
        group="Stages",
        metavar="DIR",
    )
    work: Path | None = option(
        None,
        "Where the stages go, to be reused by the next run. Default: beside the store.",
        group="Stages",
        metavar="DIR",
    )
    confidence: float = option(
        0.95,
        "How likely a label must be, or it is INCONCLUSIVE (as in compare); also of the intervals.",
        group="Verdict",
        metavar="SHARE",
        above=0.5,
        below=1,
    )
    resamples: int = option(10_000, "Of the bootstrap.", group="Verdict", at_least=100, at_most=MOST_RESAMPLES)
    recipe_out: Path | None = option(
        None,
        "Where the recipe of the fix goes. Default: beside the fixed graph.",
        group="Output",
        metavar="FILE",
        needs=("fix",),
    )
    thresholds: Mapping[str, Thresholds] = field(default_factory=dict)  # metric → where it passes and is at risk


@dataclass(frozen=True)
class StageFigure:
    """One stage on the same examples as the others. Numbers are None where it could not be measured; `reason` says why.

    `verdict` compares with the baseline, which is the first stage; `step` with the stage before.
    """

    stage: str  # torch, exported, optimized or quantized
    path: str
    metrics: Mapping[str, float]
    value: float | None  # of the metric that decides
    verdict: Comparison | None
    step: Comparison | None
    label: Label | None  # of the verdict; None for the baseline
    size: int  # bytes
    p50: float  # milliseconds for one row on one thread
    p95: float
    difference: float | None  # largest difference of outputs from the stage before
    bound: float | None  # what a float stage may differ by; None where rounding is intended
    speedup: float | None = None  # times as fast as the float graph that is quantised, by processor time
    run: str | None = None  # id of the stored run
    reason: str | None = None
    notes: tuple[str, ...] = ()
    title: str = ""  # in tables: the precision of a quantised stage, or the name of the file that was given
    settings: Mapping[str, Any] = field(default_factory=dict)  # made with these; of a given file, its hash

    @property
    def invalid(self) -> bool:
        return self.label == "INVALID"

    @property
    def differs(self) -> bool:
        """A float stage that is not the same model as the stage before it, whatever the metric says."""
        return self.bound is not None and (self.difference is None or self.difference > self.bound)

    def to_dict(self) -> dict[str, Any]:
        return {
            "stage": self.stage,
            "title": self.title or self.stage,
            "path": self.path,
            "run": self.run,
            "metrics": dict(self.metrics),
            "verdict": {"label": self.label, **_compared(self.verdict), "reason": self.reason},
            "step": _compared(self.step),
            "size": self.size,
            "latency": {"p50": self.p50, "p95": self.p95},
            "speedup": self.speedup,
            "difference": {"largest": self.difference, "bound": self.bound, "passes": not self.differs},
            "settings": dict(self.settings),
            "notes": list(self.notes),
        }


def _compared(comparison: Comparison | None) -> dict[str, Any]:
    """Every value is null for the first stage, and for one whose output is invalid."""
    names = ("metric", "baseline", "candidate", "delta", "relative", "interval", "estimate", "confidence", "examples")
    return {name: getattr(comparison, name) if comparison else None for name in names}


@dataclass(frozen=True)
class Divergence:
    """Signal to noise in dB of a tensor against the same tensor of the stage before, on real rows; None: not finite."""

    tensor: str
    node: str
    place: str  # the part of the graph that the node belongs to
    sqnr: float | None


@dataclass(frozen=True)
class Culprit:
    """A part of the graph that the loss comes from, by what its restoration to float brings back."""

    name: str  # layer 3 feed-forward
    layer: int | None
    role: str
    nodes: tuple[str, ...]
    tensors: tuple[str, ...]
    damage: float | None  # to the output when this part alone is rounded: RMS of the difference over RMS of the output
    value: float | None = None  # the metric when this part alone is restored
    share: float | None = None  # of the loss; None where it was not measured
    interval: tuple[float, float] | None = None  # of the share
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trial:
    """One evaluation of the search."""

    what: str
    nodes: int  # kept in float
    value: float | None
    label: Label
    passes: bool
    seconds: float


@dataclass(frozen=True)
class BillLine:
    """The metric and the cost of a variant."""

    name: str  # float, broken or fixed
    value: float | None
    label: Label | None
    size: int
    p50: float
    speedup: float | None = None  # times as fast as float, timed in turn, by processor time


@dataclass(frozen=True)
class FrontierLine:
    """A graph that was seen on the way to a fix, or was there before."""

    name: str
    value: float | None
    label: Label
    size: int
    p50: float
    speedup: float | None  # times as fast as the float graph, timed in turn, by processor time

    @property
    def slower(self) -> bool:
        """Than float: such a graph saves space only."""
        return self.speedup is not None and self.speedup < 1


@dataclass(frozen=True)
class Fix:
    """The smallest change found that passes; with `passed` False, the nearest that was tried."""

    how: str
    passed: bool
    label: Label
    nodes: tuple[str, ...]  # kept in float
    bill: tuple[BillLine, ...]
    graph: str  # the re-built artifact
    recipe: Mapping[str, Any] | None = None
    recipe_file: str | None = None
    arguments: str | None = None  # the call of onnxruntime's quantiser
    frontier: tuple[FrontierLine, ...] = ()  # what was seen, the smallest that passes first
    kept: Mapping[str, str] = field(default_factory=dict)  # node in float → why
    wide: Mapping[str, str] = field(default_factory=dict)  # node with 16-bit activations → why


@dataclass(frozen=True)
class Attribution:
    """Which step lost the metric, its culprits and a fix. `notes` say why `stages` ends early."""

    model_id: str
    task: str
    precision: str
    metric: str
    higher_is_better: bool
    digits: int
    unit: str
    examples: int
    dataset: str
    stages: tuple[StageFigure, ...]
    guilty: str | None  # the stage whose step lost most; None where every stage passes
    sentence: str
    culprits: tuple[Culprit, ...] = ()
    divergence: tuple[Divergence, ...] = ()
    trials: tuple[Trial, ...] = ()
    fix: Fix | None = None
    evaluations: int = 0  # by the search and the fix
    budget: int = 0
    notes: tuple[str, ...] = ()
    exit_code: int = 0  # of the command: see `calipers attribute --help`
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """The JSON document, whose keys are a contract; see docs/design.md. `recipe` is null without a fix."""
        values = asdict(self) | {
            "schema": SCHEMA,
            "dataset": {"path": self.dataset, "samples": self.examples, "unit": self.unit},
            "stages": [stage.to_dict() for stage in self.stages],
            "recipe": dict(self.fix.recipe) if self.fix and self.fix.recipe else None,
        }
        return {name: values[name] for name in _KEYS}

    def rows(self) -> list[dict[str, str]]:
        """The table of stages, as a person reads it."""
        return [
            {
                "stage": stage.title or stage.stage,
                self.metric: numbers.number(stage.value, self.digits),
                "against the first": _delta(stage.verdict, self.digits),
                "relative": numbers.percent(stage.verdict.relative if stage.verdict else None),
                "against the one before": _delta(stage.step, self.digits),
                "verdict": stage.label or "baseline",
                "size": numbers.megabytes(stage.size),
                "p50": f"{stage.p50:.2f} ms",
                "speed": numbers.times(stage.speedup),
                "outputs differ by": _difference(stage),
            }
            for stage in self.stages
        ]

    def __repr__(self) -> str:
        return f"Attribution({self.model_id}, {self.precision}: {self.sentence})"

    def _repr_html_(self) -> str:
        """The sentence and the table of stages, for notebooks."""
        rows = self.rows()
        return html_table(self.sentence, tuple(rows[0]), [tuple(row.values()) for row in rows], self.notes)


def _difference(stage: StageFigure) -> str:
    if stage.label is None:
        return numbers.NONE
    size = "not finite" if stage.difference is None else f"{stage.difference:.1e}"
    return f"{size} (too much)" if stage.differs else size


def _delta(comparison: Comparison | None, digits: int) -> str:
    if comparison is None:
        return numbers.NONE
    ends = comparison.interval
    interval = f" [{numbers.signed(ends[0], digits)}, {numbers.signed(ends[1], digits)}]" if ends else ""
    return f"{numbers.signed(comparison.delta, digits)}{interval}"
