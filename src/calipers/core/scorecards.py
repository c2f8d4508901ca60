"""Scorecards: what an adaptation was to bring, and what it brought."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from calipers.core.verdicts import Label

Adaptation = Literal["mlm", "contrastive"]
Wanted = Literal["rise", "fall", "kept", "free"]
# A demand that is met; that the data do not show; whose contrary happened; that is nearly broken; that is broken;
# no demand; and no number.
Reading = Literal["AS_EXPECTED", "NOT_SHOWN", "CONTRARY", "AT_RISK", "LOST", "NO_DEMAND", "UNKNOWN"]


@dataclass(frozen=True)
class ScoreLine:
    """One metric before and after. `change` is "rose" or "fell" where the interval of the delta leaves out 0."""

    part: str  # the layer or task that it comes from
    metric: str
    wanted: Wanted
    expected: str  # in words: "should fall"
    baseline: float | None
    candidate: float | None
    delta: float | None
    interval: tuple[float, float] | None
    change: Literal["rose", "fell", "no clear change", "unknown"]
    reading: Reading
    examples: int
    higher_is_better: bool
    decides: bool = False  # the change that the adaptation is made for
    digits: int = 4
    reason: str | None = None  # why a number is missing


@dataclass(frozen=True)
class Scorecard:
    """`reads_as` is what the changes look like by themselves, whatever was said: None where they look like neither."""

    adaptation: Adaptation
    baseline: str
    candidate: str
    lines: tuple[ScoreLine, ...]
    label: Label
    reads_as: Literal["mlm", "contrastive", "both"] | None
    paragraph: str
    notes: tuple[str, ...] = ()

    @property
    def forgetting(self) -> bool:
        """Whether general ability was lost: a line that must not fall, and is not one of the search itself."""
        return any(line.reading == "LOST" and line.part in ("sentence-similarity", "mteb") for line in self.lines)
