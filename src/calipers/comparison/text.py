"""Verdicts for people, on a terminal or in a log: what `calipers compare` prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from calipers.comparison import wording
from calipers.comparison.records import Comparison, Example, Verdict
from calipers.core import Result, printable
from calipers.rendering import text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

# Colour only repeats what the word says.
_STYLES = {
    "PASS": "green",
    "AT_RISK": "yellow",
    "REGRESSION": "bold red",
    "INCONCLUSIVE": "magenta",
    "INVALID": "bold white on red",
}
_UNBOUNDED = 10_000  # columns: how wide a table would like to be
_LOG_WIDTH = 160  # characters of an example's text where there is no terminal

Row = tuple[str, ...]
Layout = Callable[[Sequence[Verdict], Verdict], tuple[Row, list[Row], tuple[int, ...], int]]


def show_verdicts(console: Console, verdicts: Sequence[Verdict]) -> None:
    """A panel with what was compared, then for each candidate a table, its worst examples and a sentence."""
    text.show_facts(console, f"compare  ·  {verdicts[0].baseline.task}", heading(verdicts))
    for verdict in verdicts:
        if len(verdicts) > 1:
            _say(console, f"\n{printable(verdict.candidate_name)}", "bold")
        if verdict.comparisons:
            _show_table(console, verdicts, verdict)
        _show_notes(console, verdict)
        _show_worst(console, verdict)
        _show_sentence(console, verdict)
    if len(verdicts) > 1:
        _say(console, f"\n{wording.tally(verdicts)}", "bold")


def heading(verdicts: Sequence[Verdict]) -> list[tuple[str, str]]:
    """What was compared with what, on what, and in which settings the models differ. At least one verdict."""
    first = verdicts[0]
    facts = [("Baseline", _model(first.baseline))]
    for verdict in verdicts:
        facts.append(("Candidate", _candidate(verdict)))
        if verdict.differences:
            facts.append(("  differs in", wording.settings(verdict.differences)))
    facts.append(("Data", _data(first.baseline)))
    counts = sorted({c.examples for verdict in verdicts for c in verdict.comparisons})
    if counts:
        span = " to ".join(wording.plural(wording.unit(first), n) for n in dict.fromkeys((counts[0], counts[-1])))
        facts.append(("Examples", f"{span}, the same for both"))
    facts += [("Bootstrap", told)] if (told := _bootstrap(first)) else []
    return facts


def _model(result: Result) -> str:
    run = f", run {result.run_id}" if result.run_id else ""
    return f"{result.model.model_id}  ({result.model.backend}, {result.model.device}{run})"


def _candidate(verdict: Verdict) -> str:
    if verdict.candidate is None:
        return f"{verdict.candidate_name}  (no usable output)"
    name = _model(verdict.candidate)
    return name if verdict.candidate.model.model_id == verdict.candidate_name else f"{verdict.candidate_name}: {name}"


def _data(result: Result) -> str:
    source = result.dataset
    parts = [source.path]
    parts += [f"configuration {source.name}"] if source.name else []
    parts += [f"split {source.split}"] if source.split else []
    return ", ".join(parts) + f"  ({result.fingerprint[:15]}…)"


def _bootstrap(verdict: Verdict) -> str:
    known = verdict.bootstrap
    parts = [f"{known['resamples']:,} paired resamples"] if "resamples" in known else []
    parts += [f"seed {known['seed']}"] if "seed" in known else []
    wanted = wording.asked(verdict)
    parts += [f"a label needs {100 * wanted:g}% of them"] if wanted is not None else []
    return ", ".join(parts)


# --- the table -------------------------------------------------------------------------------------------------


def _one_line(verdicts: Sequence[Verdict], verdict: Verdict) -> tuple[Row, list[Row], tuple[int, ...], int]:
    """Everything in a column of its own."""
    p = "p (Holm)" if wording.is_adjusted(verdicts) else "p"
    unit = wording.plural(wording.unit(verdict), 2)[2:]
    interval = wording.interval_name(verdict)
    header = ("metric", "baseline", "candidate", "delta", "relative", interval, "label", "confidence", p, unit)
    rows: list[Row] = [
        (
            _name(c),
            wording.number(c.baseline, c.digits),
            wording.number(c.candidate, c.digits),
            wording.signed(c.delta, c.digits),
            wording.percent(c.relative),
            wording.interval(c.interval, c.digits),
            c.label,
            wording.certainty(c.confidence),
            wording.p_value(wording.shown_p(c)),
            f"{c.examples:,}",
        )
        for c in verdict.comparisons
    ]
    return header, rows, (1, 2, 3, 4, 5, 7, 8, 9), 6


def _without_examples(verdicts: Sequence[Verdict], verdict: Verdict) -> tuple[Row, list[Row], tuple[int, ...], int]:
    """The heading has said how many examples there are."""
    header, rows, right, label = _one_line(verdicts, verdict)
    return header[:-1], [row[:-1] for row in rows], right[:-1], label


def _two_lines(verdicts: Sequence[Verdict], verdict: Verdict) -> tuple[Row, list[Row], tuple[int, ...], int]:
    """What belongs together is in one cell, one above the other."""
    header, rows, _, _ = _one_line(verdicts, verdict)
    counts = len({c.examples for c in verdict.comparisons}) > 1

    def fold(row: Row) -> Row:
        metric, baseline, candidate, delta, relative, interval, label, confidence, p, examples = row
        if counts and examples != header[-1]:
            metric = f"{metric}\n{examples} {header[-1]}"
        p = p if p == header[8] or p == wording.NONE else f"p {p}"
        return metric, baseline, candidate, f"{delta}\n{relative}", f"{interval}\n{p}", f"{label}\n{confidence}"

    return fold(header), [fold(row) for row in rows], (1, 2, 3, 4), 5


def _both_in_one(verdicts: Sequence[Verdict], verdict: Verdict) -> tuple[Row, list[Row], tuple[int, ...], int]:
    """The candidate's value below the baseline's as well."""
    header, rows, _, _ = _two_lines(verdicts, verdict)

    def fold(row: Row) -> Row:
        return row[0], f"{row[1]}\n{row[2]}", *row[3:]

    return fold(header), [fold(row) for row in rows], (1, 2, 3), 4


_LAYOUTS: tuple[Layout, ...] = (_one_line, _without_examples, _two_lines, _both_in_one)


def _show_table(console: Console, verdicts: Sequence[Verdict], verdict: Verdict) -> None:
    """On a terminal the widest layout that fits, else a list; elsewhere one line a row, for grep."""
    if not console.is_terminal:
        header, rows, right, _ = _one_line(verdicts, verdict)
        _show_plain(console, header, rows, right)
    else:
        for layout in _LAYOUTS:
            if layout is _without_examples and len({c.examples for c in verdict.comparisons}) > 1:
                continue
            table = _table(verdict, *layout(verdicts, verdict))
            if console.measure(table, options=console.options.update(width=_UNBOUNDED)).maximum <= console.width:
                console.print(table)
                break
        else:
            _show_list(console, verdict)
    if any(c.decides for c in verdict.comparisons) and not all(c.decides for c in verdict.comparisons):
        _say(console, f"{wording.MARK} the verdict hangs on it", "dim")


def _table(verdict: Verdict, header: Row, rows: list[Row], right: Sequence[int], label: int) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for i, name in enumerate(header):
        table.add_column(Text(name), justify="right" if i in right else "left", no_wrap=True)
    for row, comparison in zip(rows, verdict.comparisons, strict=True):
        styles = [_STYLES[comparison.label] if i == label else "" for i in range(len(row))]
        cells = [_cell(cell, style) for cell, style in zip(row, styles, strict=True)]
        table.add_row(*cells, style="bold" if comparison.decides else None)
    return table


def _cell(cell: str, style: str) -> Text:
    """What stands below in a cell is quieter, so that rows of two lines can be told apart."""
    from rich.text import Text

    first, *below = cell.split("\n")
    return Text.assemble((first, style), *((f"\n{line}", "not bold dim") for line in below))


def _show_plain(console: Console, header: Row, rows: Sequence[Row], right: Sequence[int]) -> None:
    widths = [max(len(line[i]) for line in (header, *rows)) for i in range(len(header))]
    for line in (header, *rows):
        cells = [c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True))]
        _say(console, "  ".join(cells).rstrip())


def _show_list(console: Console, verdict: Verdict) -> None:
    """For a terminal that is too narrow for any table."""
    for c in verdict.comparisons:
        _say(console, f"{_name(c)}: {c.label} (confidence {wording.certainty(c.confidence)})", _STYLES[c.label])
        _say(console, f"  {wording.change(c)}")
        ends = wording.interval(c.interval, c.digits)
        p = wording.p_value(wording.shown_p(c))
        _say(console, f"  {wording.interval_name(verdict)} {ends}; p {p}; {c.examples:,} examples")


def _name(comparison: Comparison) -> str:
    return f"{comparison.metric} {wording.MARK}" if comparison.decides else comparison.metric


# --- below the table -------------------------------------------------------------------------------------------


def _show_notes(console: Console, verdict: Verdict) -> None:
    """One line a metric; what the closing sentence says is left to it."""
    told_below = wording.deciding(verdict)
    own = [c for c in verdict.comparisons if c is not told_below and (not c.reason or c.reason != verdict.reason)]
    for warning in verdict.candidate.outcomes.notes if verdict.candidate else ():
        _say(console, f"note: {printable(warning)}", "dim")
    for metric, told in [(c.metric, told) for c in own if (told := wording.note(c, wording.unit(verdict)))]:
        _say(console, f"{metric}: {told}", "dim")


def _show_worst(console: Console, verdict: Verdict) -> None:
    """The examples that lost most: id, share, outcomes, then each text on one line of its own."""
    if not verdict.worst:
        return
    many = wording.plural(wording.unit(verdict), len(verdict.worst))
    _say(console, f"\nThe {many} that cost most, in {wording.primary(verdict)}:")
    for place, example in enumerate(verdict.worst, start=1):
        for line, style in _example(place, example, verdict):
            if console.is_terminal:
                _say_cut(console, line, style)
            else:
                _say(console, line)


def _example(place: int, example: Example, verdict: Verdict) -> Iterator[tuple[str, str]]:
    told = "  ".join(f"{name} {value}" for name, value in wording.values(example, verdict))
    yield f"{place:>3}  {wording.shorten(example.id, 40)}  cost {wording.cost(example)}  {told}".rstrip(), "bold"
    width = max((len(name) for name in example.texts), default=0)
    for name, words in example.texts.items():
        yield f"     {name:<{width}}  {wording.shorten(words, _LOG_WIDTH)}", ""


def _show_sentence(console: Console, verdict: Verdict) -> None:
    from rich.text import Text

    line = Text.assemble("\n", (verdict.label, _STYLES[verdict.label]), f"  {wording.sentence(verdict)}")
    console.print(line, soft_wrap=not console.is_terminal)


def _say(console: Console, line: str, style: str = "") -> None:
    """Wrapped on a terminal; elsewhere one line stays one line."""
    console.print(_text(line, style), soft_wrap=not console.is_terminal)


def _say_cut(console: Console, line: str, style: str) -> None:
    console.print(_text(line, style), no_wrap=True, overflow="ellipsis")


def _text(line: str, style: str) -> Text:
    from rich.text import Text

    return Text(line, style=style)
