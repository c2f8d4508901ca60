"""Verdicts for people, on a terminal or in a log: what `calipers compare` prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from calipers.comparison import settings, slices, wording
from calipers.comparison.candidates import show_candidates
from calipers.comparison.records import Comparison, GateOptions, Verdict
from calipers.core import printable
from calipers.core.rounding import percentage
from calipers.rendering import numbers
from calipers.rendering.tables import Cell, fits, is_bounded, make_table, say, show_table, warn

if TYPE_CHECKING:
    from rich.console import Console

# Colour only repeats what the word says.
STYLES = {
    "PASS": "green",
    "AT_RISK": "yellow",
    "REGRESSION": "bold red",
    "INCONCLUSIVE": "magenta",
    "INVALID": "bold white on red",
}
_LOG_WIDTH = 160  # characters of an example's text where there is no terminal


def show_verdicts(
    console: Console,
    verdicts: Sequence[Verdict],
    gate: GateOptions | None = None,
    code: int | None = None,
    *,
    every_metric: bool = False,
) -> None:
    """The verdict, a table of all models for each metric that decides, what differs, and the rule of the exit code.
    With one candidate or `every_metric` also the metrics that do not decide."""
    gate = gate or GateOptions()
    code = gate.exit_code([verdict.label for verdict in verdicts]) if code is None else code
    label = wording.outcome(verdicts, gate)
    say(console, f"{label}  {wording.headline(verdicts, gate)}", STYLES[label])
    names = [c.metric for c in verdicts[0].comparisons if c.decides] or [c.metric for c in verdicts[0].comparisons][:1]
    for place, name in enumerate(names):
        say(console, f"\n{_about(verdicts, name)}")
        show_candidates(console, verdicts, name, gate, STYLES, costs=place == 0)
    _show_other_metrics(console, verdicts, every_metric=every_metric)
    for verdict in verdicts:
        _show_slices(console, verdict, named=len(verdicts) > 1)
    for line in _notes(verdicts):
        say(console, line, "dim")
    for words in settings.assumptions(verdicts):
        warn(console, words)
    for verdict in verdicts:
        _show_worst(console, verdict, named=len(verdicts) > 1)
    say(console, wording.rule(verdicts, gate, code))


def _about(verdicts: Sequence[Verdict], metric: str) -> str:
    """The data, and what the metric must not lose."""
    first = verdicts[0]
    comparison = next(c for c in first.comparisons if c.metric == metric)
    passes, at_risk = wording.limits(comparison.thresholds)
    counts = sorted({c.examples for v in verdicts for c in v.comparisons if c.metric == metric})
    span = " to ".join(numbers.count(wording.unit(first), n) for n in dict.fromkeys((counts[0], counts[-1])))
    decides = "decides" if comparison.decides else "does not decide"
    lost = "lost" if comparison.higher_is_better else "more"
    path = "/".join(first.baseline.dataset.path.rstrip("/").split("/")[-2:])  # the JSON has the whole one
    source = ", ".join(numbers.data_parts(replace(first.baseline.dataset, path=path)))
    rows = numbers.chosen_rows(first.baseline.dataset)
    return (
        f"{source}, {span}{f' ({rows})' if rows else ''}; {metric} {decides}: PASS below {passes} {lost}, "
        f"REGRESSION from {at_risk}"
    )


def _notes(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """What the numbers do not say: how they were timed, what differs, and what would settle an open question."""
    yield from _timing(verdicts)
    if cut := settings.truncation(verdicts):
        yield cut
    many = len(verdicts) > 1
    for verdict in verdicts:
        name = printable(verdict.candidate_name)
        if many and verdict.label != "PASS":
            yield f"{verdict.label}  {wording.sentence(verdict)}"
        if words := settings.in_words(verdict.differences):
            yield f"Settings that differ: {name}: {printable(words)}"
        opening = f"{name}: " if many else ""
        for warning in verdict.candidate.outcomes.notes if verdict.candidate else ():
            yield f"note: {opening}{printable(warning)}"
        for words in wording.unread(verdict):
            yield f"note: {opening}{words}"
        for comparison, words in wording.notes(verdict):
            if comparison.decides or comparison.reason or not many:  # of many, the table has the label
                yield f"{opening}{comparison.metric}: {words}"
    if record := _bootstrap(verdicts[0]):
        yield record


def _timing(verdicts: Sequence[Verdict]) -> Iterator[str]:
    results = [verdicts[0].baseline, *(v.candidate for v in verdicts if v.candidate)]
    speeds = [result.speed for result in results if result.speed]
    if not speeds:
        return
    counts = {speed.timed_inputs for speed in speeds}
    many = f"{min(counts)}" if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
    how = "by turns" if len({speed.timed_at for speed in speeds}) == 1 else "when each run was made, not by turns"
    yield f"p50 and p95: one input at a time on one core, of {many}; per second: all of them at once. Timed {how}."


def _bootstrap(verdict: Verdict) -> str:
    record, share = verdict.bootstrap, wording.required_confidence(verdict)
    parts = ["Chances: of PASS / AT_RISK / REGRESSION"]
    parts += [f"{record['resamples']:,} paired resamples"] if "resamples" in record else []
    parts += [f"of {record['clusters']:,} clusters by {record['cluster']}"] if record.get("clusters") else []
    parts += [f"seed {record['seed']}"] if "seed" in record else []
    name = "a REGRESSION" if wording.question(verdict) == "REGRESSION" else "AT_RISK or worse"
    parts += [f"fails where the chance of {name} is at least {percentage(share)}"] if share is not None else []
    return ", ".join(parts)


# --- metrics that do not decide --------------------------------------------------------------------------------


def _show_other_metrics(console: Console, verdicts: Sequence[Verdict], *, every_metric: bool) -> None:
    """All of them for one candidate; of several candidates those that are not PASS."""
    rows = [(v, c) for v in verdicts for c in v.comparisons if not c.decides]
    if not rows:
        return
    many = len(verdicts) > 1
    if many and not every_metric:
        passed = [c for _, c in rows if c.label == "PASS"]
        names = ", ".join(dict.fromkeys(c.metric for _, c in rows))
        rows = [(v, c) for v, c in rows if c.label != "PASS"]
        if passed and not rows:
            say(console, f"Other metrics pass, too: {names} (--metric all shows them)", "dim")
            return
    header = (*(["model"] if many else []), *wording.header(verdicts, verdicts[0]))
    table = [[*([Cell(v.candidate_name)] if many else []), *_cells(c)] for v, c in rows]
    say(console, "\nMetrics that do not decide:")
    right = [place + many for place in wording.RIGHT]
    if not is_bounded(console) or fits(console, make_table(header, table)):
        show_table(console, header, table, right=right)
        return
    titles, *lines = [_fold(line, int(many)) for line in ([Cell(name) for name in header], *table)]
    show_table(console, titles, lines, right=[place + many for place in (1, 2, 3)], fold=(0,))


def _cells(comparison: Comparison) -> list[Cell]:
    cells = comparison.cells()
    return [Cell(text, STYLES[comparison.label] if text == comparison.label else "") for text in cells]


def _fold(cells: Sequence[Cell], first: int) -> list[Cell]:
    """In two lines: metric, then what belongs together in one cell; what stands before `first` is left as it is."""
    pairs = ((0, 9), (1, 2), (3, 4), (5, 8), (6, 7))
    rest = cells[first:]
    return [*cells[:first], *(rest[above]._replace(below=rest[below].text) for above, below in pairs)]


def _show_slices(console: Console, verdict: Verdict, *, named: bool) -> None:
    """Each metric that decides by group, and where the change hurts most."""
    opening = f"{printable(verdict.candidate_name)}: " if named else ""
    for changes in verdict.slices:
        say(console, f"\n{opening}{slices.title(changes)}")
        show_table(console, slices.HEADER, slices.rows(changes), right=slices.RIGHT)
        say(console, printable(slices.sentence(changes, wording.unit(verdict))))
        for note in changes.notes:
            say(console, printable(note), "dim")


# --- below the table -------------------------------------------------------------------------------------------


def _show_worst(console: Console, verdict: Verdict, *, named: bool) -> None:
    """The examples that lost most: id, share, outcomes, then each text on one line of its own."""
    if not verdict.worst:
        return
    whose = f" in {printable(verdict.candidate_name)}" if named else ""
    say(console, f"\n{wording.worst_title(verdict)}{whose}, in {wording.primary(verdict)}:")
    for place, example in enumerate(verdict.worst, start=1):
        outcomes = "  ".join(f"{name} {value}" for name, value in wording.values(example, verdict))
        line = f"{place:>3}  {numbers.shorten(example.id, 40)}  cost {wording.cost(example)}  {outcomes}"
        say(console, line.rstrip(), "bold", cut=True)
        width = max((len(name) for name in example.texts), default=0)
        for name, words in example.texts.items():
            say(console, f"     {name:<{width}}  {numbers.shorten(words, _LOG_WIDTH)}", cut=True)
    say(console, "")
