"""Scores of mteb as a layer of a diagnosis: figures, and what was forgotten by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from calipers.comparison.records import Comparison, Verdict
from calipers.core import Figure, Named, Result, figure_tables
from calipers.interop.mteb_results import drops

_MEANINGS = {
    "mean_main_score": "The mean of the main scores of the tasks, each task the same: general language ability.",
    "mean_by_type": "The same with every type of task the same.",
}


def with_figures(result: Result, named: Sequence[Named] = (), more: Sequence[Figure] = ()) -> Result:
    """A run of the task mteb with its metrics as figures; `more` stand behind them."""
    figures = [
        Figure(
            name=name,
            value=value,
            count=len(result.outcomes),
            unit="score",
            higher_is_better=True,
            meaning=_MEANINGS.get(name, name),
            interval=result.intervals.get(name),
            digits=2,
        )
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
    warning = (
        f"forgetting is {lost:.2f}: the model has lost general language (catastrophic forgetting)" if warns else None
    )
    return Figure(
        name="forgetting",
        value=lost,
        count=scores,
        unit="score",
        higher_is_better=False,
        meaning="How many points of the mean main score were lost against the baseline; below 0 it gained.",
        interval=(-primary.interval[1], -primary.interval[0]) if primary.interval else None,
        level=f"a loss of {primary.thresholds.at_risk:.0%} of the baseline",
        warning=warning if warns else None,
        reason=primary.reason if lost is None else None,
        digits=2,
    )
