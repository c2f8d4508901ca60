"""A Diagnosis as the JSON document that programs read. Its keys are a contract; see docs/design.md."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from calipers.comparison import json as verdict_json
from calipers.core import ModelInfo
from calipers.diagnosis import findings
from calipers.diagnosis.records import Diagnosis, Finding, Scorecard

SCHEMA = "calipers/diagnose/1"


def document(diagnosis: Diagnosis) -> dict[str, Any]:
    """`document.to_json` writes it without NaN."""
    source, baseline = diagnosis.dataset, diagnosis.baseline
    return {
        "schema": SCHEMA,
        "created": diagnosis.created,
        "label": findings.label_of(diagnosis),
        "model_id": diagnosis.model.model_id,
        "model_path": diagnosis.model.path,
        "device": diagnosis.model.device,
        "model": _model(diagnosis.model),
        "baseline": baseline and {"model_id": baseline.model_id, **_model(baseline)},
        "dataset": {
            **{key: getattr(source, key) for key in ("path", "name", "split", "requested", "shuffle", "seed")},
            "fingerprint": diagnosis.fingerprint,
            **diagnosis.counts,
        },
        "headlines": [vars(headline) for headline in findings.headlines(diagnosis)],
        "layers": {finding.layer: _layer(finding) for finding in diagnosis.findings},
        "scorecard": _scorecard(diagnosis.scorecard) if diagnosis.scorecard else None,
        "notes": list(diagnosis.notes),
        "timing": dict(diagnosis.timing),
    }


def _model(info: ModelInfo) -> dict[str, Any]:
    return {"backend": info.backend, "fingerprint": info.fingerprint, **info.settings}


def _layer(finding: Finding) -> dict[str, Any]:
    result = finding.result
    figures = findings.figures_of(finding)
    content: dict[str, Any] = {
        "about": finding.about,
        "run": result.run_id if result else None,
        "metrics": {f.name: f.value for f in figures} or (dict(result.metrics) if result else {}),
        "intervals": {f.name: f.interval for f in figures} or (dict(result.intervals) if result else {}),
        "warnings": [f.warning for f in figures if f.warning],
        "examples": [vars(example) for named in findings.examples_of(finding).values() for example in named],
        "figures": [vars(f) for f in figures],
        "options": dict(result.options) if result else {},
        "scored": dict(result.outcomes.counts) if result else {},
        "reason": finding.reason,
    }
    if finding.verdict:
        whole = verdict_json.document([finding.verdict])
        content["label"] = whole["label"] if finding.decides else None
        content["comparisons"] = whole["comparisons"]
    return content


def _scorecard(card: Scorecard) -> dict[str, Any]:
    return {**asdict(card), "forgetting": card.forgetting}
