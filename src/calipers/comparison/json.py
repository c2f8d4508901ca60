"""Verdicts as the JSON document that programs read. Its keys are a contract; see docs/design.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from calipers.comparison import settings, wording
from calipers.comparison.records import GateOptions, Verdict, plain, run_facts

SCHEMA = "calipers/compare/1"
_SOURCE = ("path", "name", "split", "revision", "requested", "shuffle", "seed")


def document(verdicts: Sequence[Verdict], gate: GateOptions | None = None) -> dict[str, Any]:
    """One document for a baseline and its candidates, at least one; `document.to_json` writes it without NaN."""
    gate = gate or GateOptions()
    chosen = {"smallest": wording.smallest(verdicts, gate), "best": wording.best(verdicts, gate)}
    code = gate.exit_code([verdict.label for verdict in verdicts])
    baseline = verdicts[0].baseline
    source = {name: getattr(baseline.dataset, name) for name in _SOURCE}
    return {
        "schema": SCHEMA,
        "label": wording.overall(verdicts),
        "headline": wording.headline(verdicts, gate),
        "gate": {"rule": "any" if gate.any else "worst", "fail_on": gate.fail_on, "exit": code},
        **{name: verdict.candidate_name if verdict else None for name, verdict in chosen.items()},
        "task": baseline.task,
        "options": plain(baseline.options),
        "dataset": {**source, "samples": len(baseline.outcomes), "fingerprint": baseline.fingerprint},
        "bootstrap": plain(verdicts[0].bootstrap),
        "baseline": {"name": verdicts[0].baseline_name or baseline.model.artifact, **run_facts(baseline)},
        "candidates": [_candidate(verdict) for verdict in verdicts],
        "comparisons": [
            {"candidate_name": v.candidate_name, "run": v.candidate.run_id if v.candidate else None, **c.to_dict()}
            for v in verdicts
            for c in v.comparisons
        ],
    }


def _candidate(verdict: Verdict) -> dict[str, Any]:
    facts = {name: value for name, value in verdict.to_dict().items() if name != "comparisons"}
    words = {"summary": wording.sentence(verdict), "settings_in_words": settings.in_words(verdict.differences)}
    return {**facts, **words, "warnings": settings.assumptions([verdict])}
