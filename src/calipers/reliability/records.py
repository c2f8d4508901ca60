"""The parts of a trust score, and what it reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from calipers.metrics.arrays import Bools, Floats
from calipers.metrics.calibration import Logistic
from calipers.metrics.trust import TrustParts

Method = Literal["logistic", "isotonic"]
METHODS: tuple[Method, ...] = ("logistic", "isotonic")
DECISIONS = ("fall back", "hedge", "answer")
AT_MOST_HEDGE = ("vague",)  # kinds of odd queries where asking the user back may help; the others fall back


@dataclass(frozen=True)
class DecisionThresholds:
    """`answer` where the score is at or above it (None: never), `fall back` below `fall_back`, else `hedge`.

    `on` says which score: a probability once calibrated, R_q itself before.
    """

    on: Literal["probability", "reliability"]
    answer: float | None
    fall_back: float
    why: str

    def __str__(self) -> str:
        never = "nothing is answered" if self.answer is None else f"answered from {self.answer:.3f} on"
        return f"{never}, falls back below {self.fall_back:.3f}"


@dataclass(frozen=True, eq=False)
class Detector:
    """Calls a query odd from `threshold` on. `acts`: whether it is good enough to take part in the decision."""

    map: Logistic
    threshold: float
    acts: bool


@dataclass(frozen=True, eq=False)
class TrustScores:
    """One entry per query. `probability` is NaN where nothing was calibrated; `odd` is bool[q] by kind."""

    parts: TrustParts
    probability: Floats
    odd: Mapping[str, Bools]
    decision: NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.parts)
