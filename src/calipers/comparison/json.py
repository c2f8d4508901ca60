"""Verdicts as the JSON document that programs read. Its keys are a contract; see docs/design.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from calipers.comparison import wording
from calipers.comparison.records import Comparison, Example, Verdict
from calipers.core import Result, Thresholds

SCHEMA = "calipers/compare/1"


def document(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """One document for a baseline and its candidates, at least one; `document.to_json` writes it without NaN."""
    baseline = verdicts[0].baseline
    source = baseline.dataset
    return {
        "schema": SCHEMA,
        "label": wording.overall(verdicts),
        "task": baseline.task,
        "options": _plain(baseline.options),
        "dataset": {
            "path": source.path,
            "name": source.name,
            "split": source.split,
            "revision": source.revision,
            "samples": len(baseline.outcomes),
            "requested": source.requested,
            "shuffle": source.shuffle,
            "seed": source.seed,
            "fingerprint": baseline.fingerprint,
        },
        "bootstrap": _plain(verdicts[0].bootstrap),
        "baseline": _run(baseline),
        "candidates": [_candidate(verdict) for verdict in verdicts],
        "comparisons": [_comparison(verdict, c) for verdict in verdicts for c in verdict.comparisons],
    }


def _run(result: Result | None) -> dict[str, Any]:
    """Which run this is; every value is null for a candidate whose output was dead, for it has none."""
    model = result.model if result else None
    return {
        "model_id": model.model_id if model else None,
        "model_path": model.path if model else None,
        "run": result.run_id if result else None,
        "created": result.created if result else None,
        "device": model.device if model else None,
        "backend": model.backend if model else None,
        "fingerprint": model.fingerprint if model else None,
        "settings": _plain(model.settings) if model else None,
    }


def _candidate(verdict: Verdict) -> dict[str, Any]:
    changed = verdict.differences.items()
    return {
        "name": verdict.candidate_name,
        **_run(verdict.candidate),
        "label": verdict.label,
        "reason": verdict.reason,
        "summary": wording.sentence(verdict),
        "differences": {name: {"baseline": _plain(old), "candidate": _plain(new)} for name, (old, new) in changed},
        "worst": [_example(example) for example in verdict.worst],
    }


def _comparison(verdict: Verdict, comparison: Comparison) -> dict[str, Any]:
    return {
        "candidate_name": verdict.candidate_name,
        "run": verdict.candidate.run_id if verdict.candidate else None,
        "metric": comparison.metric,
        "higher_is_better": comparison.higher_is_better,
        "baseline": comparison.baseline,
        "candidate": comparison.candidate,
        "delta": comparison.delta,
        "relative": comparison.relative,
        "interval": list(comparison.interval) if comparison.interval else None,
        "label": comparison.label,
        "estimate": comparison.estimate,
        "confidence": comparison.confidence,
        "p_value": comparison.p_value,
        "adjusted_p": comparison.adjusted_p,
        "examples": comparison.examples,
        "settled_by": comparison.settled_by,
        "thresholds": _thresholds(comparison.thresholds),
        "decides": comparison.decides,
        "reason": comparison.reason,
    }


def _thresholds(thresholds: Thresholds) -> dict[str, Any]:
    return {"pass": thresholds.passes, "at_risk": thresholds.at_risk, "relative": thresholds.relative}


def _example(example: Example) -> dict[str, Any]:
    return {
        "id": example.id,
        "share": example.share,
        "texts": dict(example.texts),
        "baseline": _plain(example.baseline),
        "candidate": _plain(example.candidate),
    }


def _plain(value: Any) -> Any:
    """Numbers of numpy as those of Python, which JSON can hold; what it cannot hold at all, as text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if hasattr(value, "tolist"):
        return value.tolist()
    return value if value is None or isinstance(value, (str, int, float)) else str(value)
