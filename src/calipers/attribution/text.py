"""Attributions for people, on a terminal or in a log: what `calipers attribute` prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from calipers.attribution.records import Attribution, Culprit, Fix, StageFigure
from calipers.comparison.records import Comparison
from calipers.rendering import numbers, tables
from calipers.rendering.tables import Cell

if TYPE_CHECKING:
    from rich.console import Console

_FOLDED_STAGES = (
    *(Cell("stage", below="differs by"), Cell("value", below="relative")),
    *(Cell("vs first", below="interval"), Cell("vs before", below="interval")),
    *(Cell("verdict", below="size"), Cell("p50", below="speed")),
)
_NODES = 8  # named of a culprit; the recipe has them all
_WIDEST = 400  # characters of a line; a list of a hundred nodes is in the recipe file


def show_attribution(console: Console, attribution: Attribution) -> None:
    """What was measured, the table of stages, the sentence, the culprits and the bill of a fix."""
    rows = attribution.rows()
    title = f"attribute  ·  {attribution.task}  ·  {attribution.precision}"
    tables.show_facts(console, title, _facts(attribution))
    folded = [
        _folded_stage(stage, row, attribution.digits) for stage, row in zip(attribution.stages, rows, strict=True)
    ]
    tables.show_folded(console, rows, _FOLDED_STAGES, folded)
    tables.say(console, f"\n{attribution.sentence}", "bold")
    for line in _lines(attribution):
        tables.say(console, line)
    if attribution.fix:
        _show_fix(console, attribution.fix, attribution)
    for note in attribution.notes:
        tables.say(console, f"note: {note}", "yellow")


def _folded_stage(stage: StageFigure, row: Mapping[str, str], digits: int) -> tables.Row:
    """In two lines, the second for what belongs to the first."""
    name, value, _, relative, _, label, size, p50, speed, difference = row.values()
    first, before = (_change(comparison, digits) for comparison in (stage.verdict, stage.step))
    return (
        *(Cell(name, below=difference), Cell(value, below=relative), first, before),
        *(Cell(label, below=size), Cell(p50, below=speed)),
    )


def _change(comparison: Comparison | None, digits: int) -> Cell:
    if comparison is None:
        return Cell(numbers.NONE)
    ends = [numbers.signed(end, digits) for end in comparison.interval or ()]
    return Cell(numbers.signed(comparison.delta, digits), below="…".join(ends))


def _facts(attribution: Attribution) -> list[tuple[str, str]]:
    direction = "higher" if attribution.higher_is_better else "lower"
    evaluations = f"{attribution.evaluations} evaluations of at most {attribution.budget}"
    return [
        ("Model", attribution.model_id),
        ("Data", f"{numbers.count(attribution.unit, attribution.examples)} of {attribution.dataset}"),
        ("Verdicts by", f"{attribution.metric} ({direction} is better)"),
        ("Search", f"{evaluations}, {attribution.seconds:.0f} s in all"),
    ]


def _lines(attribution: Attribution) -> Iterator[str]:
    if attribution.divergence:
        first = attribution.divergence[0]
        ratio = "" if first.sqnr is None else f", with {first.sqnr:.0f} dB of signal to noise"
        yield f"Tensors first differ at {first.tensor} ({first.place or first.node}{ratio})."
    if attribution.culprits:
        yield "\nCulprits, by what their restoration brings back:"
    for rank, culprit in enumerate(attribution.culprits, start=1):
        yield f"{rank:>3}  {culprit.name}{_share(culprit, attribution)}"
        yield from (f"     {reason}" for reason in culprit.reasons)
        if culprit.nodes:
            more = f" and {len(culprit.nodes) - _NODES} more" if len(culprit.nodes) > _NODES else ""
            yield f"     nodes: {', '.join(culprit.nodes[:_NODES])}{more}"
        elif culprit.tensors:
            yield f"     first at: {', '.join(culprit.tensors[:_NODES])}"


def _share(culprit: Culprit, attribution: Attribution) -> str:
    if culprit.share is None:
        return "" if culprit.damage is None else f": by itself it moves the output by {culprit.damage:.0%}"
    ends = culprit.interval
    interval = f" ({ends[0]:.0%} to {ends[1]:.0%})" if ends else ""
    value = numbers.number(culprit.value, attribution.digits)
    return f": {culprit.share:.0%} of the loss{interval}; with it in float {attribution.metric} is {value}"


def _show_fix(console: Console, fix: Fix, attribution: Attribution) -> None:
    opening = "Fixed by" if fix.passed else "Not fixed: the nearest is"
    tables.say(console, f"\n{opening} {fix.how} ({fix.label}).", "bold")
    rows = [
        {
            "": line.name,
            attribution.metric: numbers.number(line.value, attribution.digits),
            "verdict": line.label or "baseline",
            "size": numbers.megabytes(line.size),
            "p50": f"{line.p50:.2f} ms",
            "speed": numbers.times(line.speedup),
        }
        for line in fix.bill
    ]
    tables.show_records(console, rows)
    _show_frontier(console, fix, attribution)
    for node, why in list(fix.kept.items())[:_NODES]:
        tables.say(console, f"{node} stays in float: {why}")
    for node, why in list(fix.wide.items())[:_NODES]:
        tables.say(console, f"{node} has 16-bit activations: {why}")
    tables.say(console, f"Graph: {fix.graph}")
    if fix.recipe_file:
        tables.say(console, f"Recipe: {fix.recipe_file}, for calipers build --recipe")
    if fix.arguments:
        tables.say(console, "The same with onnxruntime's quantiser:")
        for line in fix.arguments.splitlines():
            tables.say(console, f"  {line if len(line) <= _WIDEST else f'{line[:_WIDEST]} …'}")


def _show_frontier(console: Console, fix: Fix, attribution: Attribution) -> None:
    """What else was seen, and what that means for the choice."""
    floats, *_, fixed = fix.bill
    if fixed.speedup is not None and fixed.speedup < 1:
        times = f"{numbers.times(fixed.speedup)} as fast; {fixed.p50:.1f} against {floats.p50:.1f} ms"
        tables.say(console, f"The fix is slower than float ({times}): it saves space only.")
    if not fix.frontier:
        return
    rows = [
        {
            "seen": line.name,
            attribution.metric: numbers.number(line.value, attribution.digits),
            "verdict": line.label,
            "size": numbers.megabytes(line.size),
            "p50": f"{line.p50:.2f} ms" if line.p50 else "",
            "speed": numbers.times(line.speedup),
        }
        for line in fix.frontier
    ]
    header = ("seen", Cell(attribution.metric, below="verdict"), Cell("size", below="p50"), "speed")
    folded = [
        (name, Cell(value, below=label), Cell(size, below=p50), speed)
        for name, value, label, size, p50, speed in (row.values() for row in rows)
    ]
    tables.show_folded(console, rows, header, folded)
    for line in fix.frontier:
        if line.name.endswith("already built") and line.label == "PASS":
            tables.say(console, f"{line.name.split(',')[0]} passes at {numbers.megabytes(line.size)} without a fix.")
