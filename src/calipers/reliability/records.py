"""The parts of a trust score, and what it reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from calipers.core import RequestError
from calipers.core.choices import SUCCESSES
from calipers.metrics import trust as metrics
from calipers.metrics.arrays import Bools, Floats, Ints
from calipers.metrics.calibration import Isotonic, Logistic
from calipers.metrics.predictors import Columns, matrix
from calipers.metrics.trust import FEATURES, TrustParts

Method = Literal["logistic", "isotonic"]
METHODS: tuple[Method, ...] = ("logistic", "isotonic")
DECISIONS = ("fall back", "hedge", "rerank", "answer")
AT_MOST_HEDGE = ("vague",)  # kinds of odd queries where asking the user back may help; the others fall back


@dataclass(frozen=True)
class Success:
    """When a query counts as answered well: `relevant`, a relevant result among the first K; `first`, the first result
    is relevant; `ndcg`, nDCG@10 is at least `bar`. A result is relevant from the grade `relevant_from` on."""

    kind: str = "relevant"
    bar: float = 0.5
    relevant_from: float = 1

    def __post_init__(self) -> None:
        if self.kind not in SUCCESSES:
            raise RequestError(f"`success` must be one of {', '.join(SUCCESSES)}, found {self.kind!r}")

    def __str__(self) -> str:
        grade = f" (grade {self.relevant_from:g} or above)" if self.relevant_from != 1 else ""
        return {
            "relevant": f"a relevant result{grade} is among the first K",
            "first": f"the first result is relevant{grade}",
            "ndcg": f"nDCG@10 is at least {self.bar:g}",
        }[self.kind]

    def labels(self, rows: Ints, qrels: Sequence[Mapping[str, float]], ids: Sequence[str]) -> Floats:
        """1, 0, or NaN where nobody judged, float64[q], of results in their order."""
        if self.kind == "ndcg":
            return metrics.graded_success(rows, qrels, ids, bar=self.bar)
        label = metrics.first_success if self.kind == "first" else metrics.success
        return label(rows, qrels, ids, relevant_from=self.relevant_from)


@dataclass(frozen=True)
class DecisionThresholds:
    """`answer` where the score is at or above it (None: never), else `rerank` below `rerank` (None: never), else `fall
    back` below `fall_back`, else `hedge`.

    `on` says which score: a probability once calibrated, R_q itself before.
    """

    on: Literal["probability", "reliability"]
    answer: float | None
    fall_back: float
    why: str
    rerank: float | None = None

    def __str__(self) -> str:
        never = "nothing is answered" if self.answer is None else f"answered from {self.answer:.3f} on"
        second = "" if self.rerank is None else f", reranked below {self.rerank:.3f}"
        return f"{never}{second}, falls back below {self.fall_back:.3f}"


@dataclass(frozen=True, eq=False)
class Detector:
    """Calls a query odd from `threshold` on. `acts`: whether it is good enough to take part in the decision."""

    map: Logistic
    threshold: float
    acts: bool
    features: tuple[str, ...] = FEATURES

    def calls(self, columns: Columns) -> Bools:
        """Which queries look odd, bool[q]."""
        return np.asarray(self.map(matrix(columns, self.features)) >= self.threshold)


@dataclass(frozen=True, eq=False)
class InputMap:
    """The map for one kind of input: which predictors it reads, and from which probability on it answers."""

    features: tuple[str, ...]
    logistic: Logistic
    isotonic: Isotonic
    thresholds: DecisionThresholds

    def __call__(self, columns: Columns, method: Method) -> Floats:
        """The probability of each query, float64[q]; NaN where a predictor is."""
        probability = self.logistic(matrix(columns, self.features))
        return self.isotonic(probability) if method == "isotonic" else probability


@dataclass(frozen=True, eq=False)
class TrustScores:
    """One entry per query. `probability` is NaN where nothing was calibrated, and where a detector that decides calls a
    query odd; `odd` is bool[q] by kind. `map` names the kind of input whose map was used, None without one; `columns`
    are the predictors that were computed."""

    parts: TrustParts
    probability: Floats
    odd: Mapping[str, Bools]
    decision: NDArray[np.str_]
    map: str | None = None
    columns: Columns = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.parts)
