"""Verdicts as the JSON document that programs read. Its keys are a contract; see docs/design.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from calipers.comparison import wording
from calipers.comparison.records import Verdict, plain, run_facts

SCHEMA = "calipers/compare/1"
_SOURCE = ("path", "name", "split", "revision", "requested", "shuffle", "seed")


def document(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """One document for a baseline and its candidates, at least one; `document.to_json` writes it without NaN."""
    baseline = verdicts[0].baseline
    source = {name: getattr(baseline.dataset, name) for name in _SOURCE}
    return {
        "schema": SCHEMA,
        "label": wording.overall(verdicts),
        "task": baseline.task,
        "options": plain(baseline.options),
        "dataset": {**source, "samples": len(baseline.outcomes), "fingerprint": baseline.fingerprint},
        "bootstrap": plain(verdicts[0].bootstrap),
        "baseline": run_facts(baseline),
        "candidates": [_candidate(verdict) for verdict in verdicts],
        "comparisons": [
            {"candidate_name": v.candidate_name, "run": v.candidate.run_id if v.candidate else None, **c.to_dict()}
            for v in verdicts
            for c in v.comparisons
        ],
    }


def _candidate(verdict: Verdict) -> dict[str, Any]:
    facts = {name: value for name, value in verdict.to_dict().items() if name != "comparisons"}
    return {**facts, "summary": wording.sentence(verdict)}
