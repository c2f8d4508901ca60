"""A diagnosis: what the layers found about a model on a corpus, and beside a baseline; and a scorecard: what an
adaptation was to bring, and what it brought."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal

from calipers.comparison.records import Label, Verdict
from calipers.comparison.wording import Effect
from calipers.core import html_table, read_figures
from calipers.core.datasets import DataSource
from calipers.core.models import ModelInfo
from calipers.core.results import Result
from calipers.rendering.numbers import interval, number

Adaptation = Literal["mlm", "contrastive"]
Wanted = Literal["rise", "fall", "kept", "free"]
# A demand that is met; that the data do not show; whose contrary happened; that is nearly broken; that is broken;
# no demand; and no number.
Reading = Literal["AS_EXPECTED", "NOT_SHOWN", "CONTRARY", "AT_RISK", "LOST", "NO_DEMAND", "UNKNOWN"]


@dataclass(frozen=True)
class ScoreLine:
    """One metric before and after. `change` is "rose" or "fell" where the interval of the delta leaves out 0, and
    `effect` whether that is better or worse, whatever was demanded. `examples` are those that the metric is about."""

    part: str  # the layer or task that it comes from
    metric: str
    wanted: Wanted
    expected: str  # in words: "should fall"
    baseline: float | None
    candidate: float | None
    delta: float | None
    interval: tuple[float, float] | None
    change: Literal["rose", "fell", "unchanged", "no clear change", "unknown"]
    effect: Effect
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
        comparisons = self.verdict.comparisons if self.verdict else ()
        return self.verdict is not None and (not comparisons or any(c.decides for c in comparisons))


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
    similarity: str = "cosine"  # how the model's vectors are compared in a search

    def __repr__(self) -> str:
        layers = ", ".join(f.layer for f in self.findings if f.result)
        against = f" against {self.baseline.model_id}" if self.baseline else ""
        return f"Diagnosis({self.model.model_id}{against} on {self.dataset.path}: {layers})"

    def to_dict(self) -> dict[str, Any]:
        """The document that `calipers diagnose --json` prints; its keys are a contract (see docs/design.md)."""
        document: dict[str, Any] = import_module("calipers.diagnosis.findings").document(self)  # it reads these records
        return document

    def _repr_html_(self) -> str:
        rows = [
            (finding.layer, figure.name, number(figure.value, figure.digits), interval(figure.interval, figure.digits))
            for finding in self.findings
            for figure in (read_figures(finding.result.outcomes) if finding.result else ())
        ]
        return html_table(repr(self), ("layer", "figure", "value", "interval"), rows, self.notes)
