"""For test suites: a model that got worse fails a test, with the sentence of its verdict.

>>> from calipers.testing import assert_no_regression
>>> assert_no_regression("./model", "./model", dataset="pairs.csv")
[Verdict(PASS: ...)]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from calipers.comparison import wording
from calipers.comparison.api import Side, compare
from calipers.comparison.records import GateOptions, Verdict
from calipers.runs.protocol import Protocol
from calipers.runs.store import Store

__all__ = ["assert_no_regression"]


def assert_no_regression(
    baseline: Side,
    *candidates: Side,
    dataset: str | None = None,
    protocol: Protocol | None = None,
    fail_on: str = "regression",
    allow_inconclusive: bool = False,
    any: bool = False,
    store: Store | None = None,
    **options: Any,
) -> Sequence[Verdict]:
    """The verdicts of `calipers.compare`, where the rules of its exit code let all candidates pass; an AssertionError
    with their sentences otherwise. An INCONCLUSIVE verdict fails, too, unless `allow_inconclusive`; with `any` one
    candidate that passes is enough. `options` are those of `compare`: `metrics`, `thresholds`, `confidence` and others.
    """
    protocol = protocol or Protocol()
    protocol = replace(protocol, dataset=dataset) if dataset is not None else protocol
    verdicts = compare(baseline, candidates, protocol=protocol, fail_on=fail_on, store=store, **options)
    gate = GateOptions(fail_on, any)
    code = gate.exit_code([verdict.label for verdict in verdicts])
    if code == 0 or (code == 5 and allow_inconclusive):
        return verdicts
    lines = [f"{verdict.label}: {wording.sentence(verdict)}" for verdict in verdicts if verdict.label != "PASS"]
    raise AssertionError("\n".join([*lines, wording.rule(verdicts, gate, code)]))
