"""An Attribution as the JSON document that programs read. Its keys are a contract; see docs/design.md."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from calipers.attribution.records import Attribution, Culprit, StageFigure
from calipers.comparison.records import Comparison

SCHEMA = "calipers/attribute/1"


def document(found: Attribution) -> dict[str, Any]:
    """One document; `document.to_json` writes it without NaN. `recipe` is null where nothing was fixed."""
    return {
        "schema": SCHEMA,
        "model_id": found.model_id,
        "task": found.task,
        "precision": found.precision,
        "metric": found.metric,
        "higher_is_better": found.higher_is_better,
        "dataset": {"path": found.dataset, "samples": found.examples, "unit": found.unit},
        "sentence": found.sentence,
        "guilty": found.guilty,
        "stages": [_stage(stage) for stage in found.stages],
        "divergence": [asdict(entry) for entry in found.divergence],
        "culprits": [_culprit(culprit) for culprit in found.culprits],
        "recipe": dict(found.fix.recipe) if found.fix and found.fix.recipe else None,
        "fix": asdict(found.fix) if found.fix else None,
        "trials": [asdict(trial) for trial in found.trials],
        "evaluations": found.evaluations,
        "budget": found.budget,
        "notes": list(found.notes),
        "seconds": found.seconds,
    }


def _stage(stage: StageFigure) -> dict[str, Any]:
    return {
        "stage": stage.stage,
        "path": stage.path,
        "run": stage.run,
        "metrics": dict(stage.metrics),
        "verdict": {"label": stage.label, **_comparison(stage.verdict), "reason": stage.reason},
        "step": _comparison(stage.step),
        "size": stage.size,
        "latency": {"p50": stage.p50, "p95": stage.p95},
        "difference": {"largest": stage.difference, "bound": stage.bound, "passes": not stage.differs},
        "notes": list(stage.notes),
    }


def _comparison(comparison: Comparison | None) -> dict[str, Any]:
    """Every value is null for the first stage, and for one whose output is dead."""
    names = ("metric", "baseline", "candidate", "delta", "relative", "interval", "estimate", "confidence", "examples")
    return {name: getattr(comparison, name) if comparison else None for name in names}


def _culprit(culprit: Culprit) -> dict[str, Any]:
    return asdict(culprit)
