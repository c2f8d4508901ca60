"""The comparison of two runs by group of examples: where a change hurts most. No exit code depends on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from calipers.comparison import verdict
from calipers.comparison.records import SliceChange, SliceChanges, Verdict
from calipers.core import Metric, Result
from calipers.core.slices import shown_group
from calipers.metrics.arrays import Ints
from calipers.rendering import numbers

if TYPE_CHECKING:
    from calipers.runs.slices import Grouping, Labels


def with_slices(judged: Verdict, groups: Sequence[Labels], metrics: Sequence[Metric], terms: verdict.Terms) -> Verdict:
    """The verdict with each metric that decides, by group; without one that decides, the first."""
    if not groups or judged.candidate is None:
        return judged
    chosen = [metric for metric in metrics if metric.name in terms.deciding] or list(metrics[:1])
    unit = str(judged.baseline.bootstrap.get("unit", "example"))
    quiet = replace(terms, worst=0, deciding=())
    made = [
        _changes(labels.group(judged.baseline.outcomes, unit), judged.baseline, judged.candidate, metric, quiet)
        for labels in groups
        for metric in chosen
    ]
    return replace(judged, slices=tuple(made))


def _changes(
    grouping: Grouping, baseline: Result, candidate: Result, metric: Metric, terms: verdict.Terms
) -> SliceChanges:
    """Both runs on the examples of each group; p-values are corrected over the groups."""
    sides = [[_part(run, rows) for run in (baseline, candidate)] for _, rows in grouping.groups]
    verdicts = verdict.correct([verdict.compare(first, second, [metric], terms) for first, second in sides])
    changes = tuple(
        SliceChange(name, judged.comparisons[0]) for (name, _), judged in zip(grouping.groups, verdicts, strict=True)
    )
    return SliceChanges(grouping.by, grouping.about, metric.name, changes, grouping.notes, hurt_most(changes))


def _part(result: Result, rows: Ints) -> Result:
    return replace(result, outcomes=result.outcomes.take(rows), slices=())


def hurt_most(changes: Sequence[SliceChange]) -> SliceChange | None:
    """The group that lost most: of those whose whole interval is a loss if there are any, else of those with an
    interval, else of all. None where no group lost."""

    def loss(change: SliceChange) -> float:
        delta = change.comparison.delta or 0.0
        return -delta if change.comparison.higher_is_better else delta

    lost = [change for change in changes if loss(change) > 0]
    sure, bounded = [c for c in lost if is_sure(c)], [c for c in lost if c.comparison.interval]
    return max(sure or bounded or lost, key=loss, default=None)


def is_sure(change: SliceChange) -> bool:
    """Whether the whole interval is on one side of no change."""
    ends = change.comparison.interval
    return ends is not None and (ends[0] > 0 or ends[1] < 0)


def title(changes: SliceChanges) -> str:
    return f"{changes.metric} by {numbers.shorten(changes.by, 60)} ({numbers.shorten(changes.about, 120)}):"


def sentence(changes: SliceChanges, unit: str) -> str:
    """Where the change hurts most, in words."""
    worst = changes.hurts_most
    if worst is None:
        return f"No group by {changes.by} is worse in {changes.metric}."
    c = worst.comparison
    ends = f" ({numbers.signed_interval(c.interval, c.digits)})" if c.interval else ", without an interval"
    sure = "" if is_sure(worst) else "; its interval does not leave out 0" if c.interval else ""
    group, lost = shown_group(worst.group), numbers.signed(c.delta, c.digits)
    return f"It hurts {group} most: {changes.metric} {lost}{ends} on {numbers.count(unit, c.examples)}{sure}."


HEADER = ("group", "examples", "baseline", "candidate", "delta", "interval", "p (Holm)", "note")
RIGHT = range(1, 7)


def rows(changes: SliceChanges) -> list[tuple[str, ...]]:
    """The cells of a table, a row for each group."""
    made: list[tuple[str, ...]] = []
    for change in changes.changes:
        c, name = change.comparison, numbers.shorten(shown_group(change.group), 60)
        _, baseline, candidate, delta, _, ends, _, _, p, examples = c.cells()
        made.append((name, examples, baseline, candidate, delta, ends, p, c.reason or ""))
    return made
