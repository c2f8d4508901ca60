"""Attribution: which stage of a build broke a model, which nodes of its graph, and what a fix costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from calipers.comparison.records import Comparison, Label


@dataclass(frozen=True)
class StageFigure:
    """One stage on the same examples as the others. Numbers are None where it could not be measured; `reason` says why.

    `verdict` is against the baseline, the first stage; `step` against the stage before.
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
    bound: float | None  # what a float stage may differ by; None where rounding is meant
    run: str | None = None  # id of the stored run
    reason: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def differs(self) -> bool:
        """A float stage that is not the same model as the stage before it, whatever the metric says."""
        return self.bound is not None and (self.difference is None or self.difference > self.bound)


@dataclass(frozen=True)
class Divergence:
    """How far a tensor is from that of the stage before, on real rows: signal to noise in dB; None where not finite."""

    tensor: str
    node: str
    place: str  # the group that the node stands in
    sqnr: float | None


@dataclass(frozen=True)
class Culprit:
    """A part of the graph that the loss comes from, by what its restoration brings back."""

    name: str  # layer 3 feed-forward
    layer: int | None
    role: str
    nodes: tuple[str, ...]
    tensors: tuple[str, ...]
    damage: float | None  # of the output when this part alone is rounded, as a share of the output's size
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
    """What a variant is worth and what it costs."""

    name: str  # float, broken or fixed
    value: float | None
    label: Label | None
    size: int
    p50: float


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
    arguments: str | None = None  # the call of onnxruntime's own quantiser


@dataclass(frozen=True)
class Attribution:
    """The whole answer. `stages` goes as far as the stages could be made; `notes` say what stopped it there."""

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
    exit_code: int = 0
    seconds: float = 0.0
