"""A diagnosis: what the layers found about a model on a corpus, and beside a baseline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from calipers.core.datasets import DataSource
from calipers.core.models import ModelInfo
from calipers.core.results import Result
from calipers.core.scorecards import Scorecard
from calipers.core.verdicts import Verdict


@dataclass(frozen=True)
class Finding:
    """What one layer found. `result` is None where the layer could not run, and `reason` says why.

    With a baseline, `verdict` has every figure of both; it speaks for the layer only where a comparison decides.
    """

    layer: str
    about: str
    result: Result | None
    verdict: Verdict | None = None
    reason: str | None = None

    @property
    def decides(self) -> bool:
        return self.verdict is not None and (not self.verdict.comparisons or _any_decides(self.verdict))


def _any_decides(verdict: Verdict) -> bool:
    return any(comparison.decides for comparison in verdict.comparisons)


@dataclass(frozen=True)
class Diagnosis:
    """All layers of one model. `counts` are documents, queries, judgements, pairs and terms that were read."""

    model: ModelInfo
    baseline: ModelInfo | None
    dataset: DataSource
    fingerprint: str
    counts: Mapping[str, int]
    findings: tuple[Finding, ...]
    created: str
    timing: Mapping[str, float] = field(default_factory=dict)  # seconds
    notes: tuple[str, ...] = ()
    scorecard: Scorecard | None = None  # with --adaptation
