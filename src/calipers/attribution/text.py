"""Attributions for people, on a terminal or in a log: what `calipers attribute` prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from calipers.attribution.records import Attribution, Culprit, Fix, StageFigure
from calipers.comparison import wording
from calipers.comparison.records import Comparison
from calipers.core import printable
from calipers.rendering import text

if TYPE_CHECKING:
    from rich.console import Console

_NODES = 8  # named of a culprit; the recipe has them all


def show_attribution(console: Console, found: Attribution) -> None:
    """What was measured, the table of stages, the sentence, the culprits and the bill of a fix."""
    text.show_facts(console, f"attribute  ·  {found.task}  ·  {found.precision}", _heading(found))
    text.show_examples(console, [_line(stage, found) for stage in found.stages])
    _say(console, f"\n{found.sentence}", "bold")
    for line in _lines(found):
        _say(console, line)
    if found.fix:
        _show_fix(console, found.fix, found)
    for note in found.notes:
        _say(console, f"note: {note}", "yellow")


def _heading(found: Attribution) -> list[tuple[str, str]]:
    return [
        ("Model", found.model_id),
        ("Data", f"{wording.plural(found.unit, found.examples)} of {found.dataset}"),
        ("Verdicts by", f"{found.metric} ({'higher' if found.higher_is_better else 'lower'} is better)"),
        ("Search", f"{found.evaluations} evaluations of at most {found.budget}, {found.seconds:.0f} s in all"),
    ]


def _line(stage: StageFigure, found: Attribution) -> dict[str, str]:
    return {
        "stage": stage.stage,
        found.metric: wording.number(stage.value, found.digits),
        "against the first": _delta(stage.verdict, found.digits),
        "against the one before": _delta(stage.step, found.digits),
        "verdict": stage.label or "baseline",
        "size": f"{stage.size / 1e6:.1f} MB",
        "p50": f"{stage.p50:.2f} ms",
        "outputs differ by": _difference(stage),
    }


def _difference(stage: StageFigure) -> str:
    if stage.label is None:
        return wording.NONE
    far = "not finite" if stage.difference is None else f"{stage.difference:.1e}"
    return f"{far} (too much)" if stage.differs else far


def _delta(comparison: Comparison | None, digits: int) -> str:
    if comparison is None:
        return wording.NONE
    ends = comparison.interval
    around = f" [{wording.signed(ends[0], digits)}, {wording.signed(ends[1], digits)}]" if ends else ""
    return f"{wording.signed(comparison.delta, digits)}{around}"


def _lines(found: Attribution) -> Iterator[str]:
    if found.divergence:
        first = found.divergence[0]
        ratio = "" if first.sqnr is None else f", with {first.sqnr:.0f} dB of signal to noise"
        yield f"Tensors first part at {first.tensor} ({first.place or first.node}{ratio})."
    if found.culprits:
        yield "\nCulprits, by what their restoration brings back:"
    for place, culprit in enumerate(found.culprits, start=1):
        yield from _culprit(place, culprit, found)


def _culprit(place: int, culprit: Culprit, found: Attribution) -> Iterator[str]:
    yield f"{place:>3}  {culprit.name}{_share(culprit, found)}"
    for reason in culprit.reasons:
        yield f"     {reason}"
    if culprit.nodes:
        more = f" and {len(culprit.nodes) - _NODES} more" if len(culprit.nodes) > _NODES else ""
        yield f"     needed of it: {', '.join(culprit.nodes[:_NODES])}{more}"
    elif culprit.tensors:
        yield f"     first at: {', '.join(culprit.tensors[:_NODES])}"


def _share(culprit: Culprit, found: Attribution) -> str:
    if culprit.share is None:
        return "" if culprit.damage is None else f": by itself it moves the output by {culprit.damage:.0%}"
    ends = culprit.interval
    around = f" ({ends[0]:.0%} to {ends[1]:.0%})" if ends else ""
    return (
        f": {culprit.share:.0%} of the loss{around}; with it in float {found.metric} is "
        f"{wording.number(culprit.value, found.digits)}"
    )


def _show_fix(console: Console, fix: Fix, found: Attribution) -> None:
    opening = "Fixed by" if fix.passed else "Not fixed: the nearest is"
    _say(console, f"\n{opening} {fix.how} ({fix.label}).", "bold")
    rows = [
        {
            "": line.name,
            found.metric: wording.number(line.value, found.digits),
            "verdict": line.label or "baseline",
            "size": f"{line.size / 1e6:.1f} MB",
            "p50": f"{line.p50:.2f} ms",
        }
        for line in fix.bill
    ]
    text.show_examples(console, rows)
    _say(console, f"Graph: {fix.graph}")
    if fix.recipe_file:
        _say(console, f"Recipe: {fix.recipe_file}, for calipers build --recipe")
    if fix.arguments:
        _say(console, "The same with onnxruntime's own quantiser:")
        for line in _cut(fix.arguments.splitlines()):
            _say(console, f"  {line}")


def _cut(lines: Sequence[str], most: int = 400) -> list[str]:
    """A list of a hundred nodes is in the recipe file; here it would hide the rest."""
    return [line if len(line) <= most else f"{line[:most]} …" for line in lines]


def _say(console: Console, line: str, style: str = "") -> None:
    from rich.text import Text

    before = "\n" if line.startswith("\n") else ""
    indent = " " * (len(line.lstrip("\n")) - len(line.lstrip()))
    console.print(Text(f"{before}{indent}{printable(line)}", style=style), soft_wrap=not console.is_terminal)
