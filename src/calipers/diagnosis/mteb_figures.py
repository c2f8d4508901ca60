"""Scores of mteb as a layer of a diagnosis: figures, and what was forgotten by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from calipers.comparison.records import Comparison, Verdict
from calipers.core import Figure, Named, Result, figure_tables
from calipers.diagnosis.layer import kinds_of
from calipers.interop.mteb_results import drops

_KINDS = kinds_of("mteb")


def with_figures(result: Result, named: Sequence[Named] = (), more: Sequence[Figure] = ()) -> Result:
    """A run of the task mteb with its metrics as figures; `more` stand behind them."""
    figures = [
        _KINDS[name].figure(value, len(result.outcomes), interval=result.intervals.get(name))
        for name, value in result.metrics.items()
    ]
    details = {**result.outcomes.details, **figure_tables([*figures, *more], named)}
    return replace(result, outcomes=replace(result.outcomes, details=details))


def with_forgetting(before: Result, after: Result, verdict: Verdict) -> Result:
    """The candidate's run with what it lost against the baseline: each score that fell by name, and the mean.

    It warns where the verdict is a REGRESSION.
    """
    named = [
        Named("forgetting", drop.id, drop.id, drop.delta, f"{drop.baseline:.2f} → {drop.candidate:.2f}")
        for drop in drops(before, after)
        if drop.delta < 0
    ]
    primary = next(c for c in verdict.comparisons if c.decides)
    return with_figures(after, named, [_forgetting(primary, len(after.outcomes), verdict.label == "REGRESSION")])


def _forgetting(primary: Comparison, scores: int, warns: bool) -> Figure:
    lost = None if primary.delta is None else -primary.delta
    level = f"a loss of {primary.thresholds.at_risk:.0%} of the baseline"
    warning = (
        f"forgetting is {lost:.2f}: the model has lost general language (catastrophic forgetting)" if warns else ""
    )
    return replace(_KINDS["forgetting"], level=level).figure(
        lost,
        scores,
        interval=(-primary.interval[1], -primary.interval[0]) if primary.interval else None,
        reason=primary.reason if lost is None else None,
        warning=warning or None,
    )
