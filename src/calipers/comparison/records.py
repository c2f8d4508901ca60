"""Verdicts: what two results over the same examples say about a change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from calipers.core.results import Result, Thresholds

Label = Literal["PASS", "AT_RISK", "REGRESSION", "INCONCLUSIVE", "INVALID"]


@dataclass(frozen=True)
class Comparison:
    """One metric of a candidate beside that of the baseline, on the same examples. Numbers are None where unknown.

    `delta` is candidate − baseline and `relative` the same as a share of the baseline; a fall of a metric that should
    rise is negative. `label` is that of the point estimate if `confidence`, the share of resamples that give it too,
    is high enough, else INCONCLUSIVE; `estimate` keeps the former.
    """

    metric: str
    higher_is_better: bool
    baseline: float | None
    candidate: float | None
    delta: float | None
    relative: float | None
    interval: tuple[float, float] | None  # of delta
    label: Label
    estimate: Label
    confidence: float | None
    p_value: float | None  # paired permutation test of "no difference"; never exactly 0
    adjusted_p: float | None  # by Holm over everything compared at once
    examples: int
    settled_by: int | None  # about how many examples would settle it, where it is INCONCLUSIVE
    thresholds: Thresholds
    decides: bool  # whether the verdict hangs on it
    digits: int = 2
    reason: str | None = None  # why a number is missing


@dataclass(frozen=True)
class Example:
    """An example that lost: how much of the delta of the primary metric it is answerable for."""

    id: str
    texts: Mapping[str, str]
    baseline: Mapping[str, Any]  # its outcome columns
    candidate: Mapping[str, Any]
    share: float  # in the metric's own unit; negative is a loss


@dataclass(frozen=True)
class Verdict:
    """A candidate against the baseline. `candidate` is None where its output was dead; `reason` says how."""

    baseline: Result
    candidate: Result | None
    candidate_name: str
    label: Label
    comparisons: tuple[Comparison, ...]
    worst: tuple[Example, ...] = ()
    differences: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)  # of the models' settings
    reason: str | None = None
    bootstrap: Mapping[str, Any] = field(default_factory=dict)
