"""Verdicts for people, on a terminal or in a log: what `calipers compare` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from calipers.comparison import wording
from calipers.comparison.records import Comparison, Verdict
from calipers.core import Result, printable
from calipers.core.rounding import percentage
from calipers.rendering import numbers
from calipers.rendering.tables import Cell, fits, make_table, say, show_facts, show_table
from calipers.rendering.text import data_line

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


def show_verdicts(console: Console, verdicts: Sequence[Verdict]) -> None:
    """A panel with what was compared, then for each candidate a table, its worst examples and a sentence."""
    show_facts(console, f"compare  ·  {verdicts[0].baseline.task}", heading(verdicts))
    for verdict in verdicts:
        if len(verdicts) > 1:
            say(console, f"\n{printable(verdict.candidate_name)}", "bold")
        if verdict.comparisons:
            _show_table(console, verdicts, verdict)
        for warning in verdict.candidate.outcomes.notes if verdict.candidate else ():
            say(console, f"note: {printable(warning)}", "dim")
        for words in wording.unread(verdict):
            say(console, f"note: {words}", "dim")
        for comparison, words in wording.notes(verdict):
            say(console, f"{comparison.metric}: {words}", "dim")
        _show_worst(console, verdict)
        _show_sentence(console, verdict)
    if len(verdicts) > 1:
        say(console, f"\n{wording.tally(verdicts)}", "bold")


def heading(verdicts: Sequence[Verdict]) -> list[tuple[str, str]]:
    """What was compared with what, on what, and in which settings the models differ. At least one verdict."""
    first = verdicts[0]
    facts = [("Baseline", _model(first.baseline))]
    for verdict in verdicts:
        facts.append(("Candidate", _candidate(verdict)))
        if verdict.differences:
            facts.append(("  differs in", wording.settings(verdict.differences)))
    facts.append(("Data", data_line(first.baseline)))
    counts = sorted({c.examples for verdict in verdicts for c in verdict.comparisons})
    if counts:
        span = " to ".join(numbers.count(wording.unit(first), n) for n in dict.fromkeys((counts[0], counts[-1])))
        facts.append(("Examples", f"{span}, the same for both"))
    if resampling := _bootstrap(first):
        facts.append(("Bootstrap", resampling))
    return facts


def _model(result: Result) -> str:
    run = f", run {result.run_id}" if result.run_id else ""
    return f"{result.model.model_id}  ({result.model.backend}, {result.model.device}{run})"


def _candidate(verdict: Verdict) -> str:
    if verdict.candidate is None:
        return f"{verdict.candidate_name}  (no usable output)"
    name = _model(verdict.candidate)
    return name if verdict.candidate.model.model_id == verdict.candidate_name else f"{verdict.candidate_name}: {name}"


def _bootstrap(verdict: Verdict) -> str:
    record, share = verdict.bootstrap, wording.required_confidence(verdict)
    parts = [f"{record['resamples']:,} paired resamples"] if "resamples" in record else []
    parts += [f"of {record['clusters']:,} clusters by {record['cluster']}"] if record.get("clusters") else []
    parts += [f"seed {record['seed']}"] if "seed" in record else []
    name = "a REGRESSION" if wording.question(verdict) == "REGRESSION" else "AT_RISK or worse"
    parts += [f"fails where the chance of {name} is at least {percentage(share)}"] if share is not None else []
    parts += ["chances: PASS / AT_RISK / REGRESSION"]
    return ", ".join(parts)


# --- the table -------------------------------------------------------------------------------------------------

_LABEL, _P, _EXAMPLES = 6, 8, 9  # places of columns in `wording.header`
# From wide to narrow: which cells of a comparison each column shows, one above the other.
_LAYOUTS = (
    tuple((place,) for place in range(10)),
    tuple((place,) for place in range(_EXAMPLES)),  # the heading has the number of examples
    ((0,), (1,), (2,), (3, 4), (5, _P), (_LABEL, 7)),
    ((0,), (1, 2), (3, 4), (5, _P), (_LABEL, 7)),
)


def _show_table(console: Console, verdicts: Sequence[Verdict], verdict: Verdict) -> None:
    """On a terminal the widest layout that fits, else a list; elsewhere one line a row, for grep."""
    comparisons = verdict.comparisons
    header = wording.header(verdicts, verdict)
    rows = [(_name(c), *c.cells()[1:]) for c in comparisons]
    if not console.is_terminal:
        show_table(console, header, rows, right=wording.RIGHT)
    else:
        same_examples = len({c.examples for c in comparisons}) == 1
        strong = [place for place, c in enumerate(comparisons) if c.decides]
        for layout in _LAYOUTS if same_examples else (_LAYOUTS[0], *_LAYOUTS[2:]):
            named = not same_examples and len(layout) < _EXAMPLES
            table = make_table(
                [Cell(header[place], below=header[below[0]] if below else "") for place, *below in layout],
                [_fold(row, header, layout, named=named) for row in rows],
                right=[place for place, (column, *_) in enumerate(layout) if column in wording.RIGHT],
                strong=strong,
            )
            if fits(console, table):
                console.print(table)
                break
        else:
            _show_list(console, verdict)
    if len({c.decides for c in comparisons}) > 1:
        say(console, f"{wording.MARK} the verdict depends on it", "dim")


def _fold(row: Sequence[str], header: Sequence[str], layout: Sequence[tuple[int, ...]], *, named: bool) -> list[Cell]:
    """The cells of a row in a layout; with `named` the number of examples stands below the metric."""
    cells = []
    for place, *below in layout:
        text = row[below[0]] if below else f"{row[_EXAMPLES]} {header[_EXAMPLES]}" if named and place == 0 else ""
        text = f"p {text}" if below == [_P] and text != numbers.NONE else text
        cells.append(Cell(row[place], STYLES[row[_LABEL]] if place == _LABEL else "", text))
    return cells


def _show_list(console: Console, verdict: Verdict) -> None:
    """For a terminal that is too narrow for any table."""
    for c in verdict.comparisons:
        *_, ends, label, chances, p, examples = c.cells()
        say(console, f"{_name(c)}: {label} (chances {chances})", STYLES[label])
        say(console, f"  {wording.change(c)}")
        say(console, f"  {wording.interval_name(verdict)} {ends}; p {p}; {examples} examples")


def _name(comparison: Comparison) -> str:
    return f"{comparison.metric} {wording.MARK}" if comparison.decides else comparison.metric


# --- below the table -------------------------------------------------------------------------------------------


def _show_worst(console: Console, verdict: Verdict) -> None:
    """The examples that lost most: id, share, outcomes, then each text on one line of its own."""
    if not verdict.worst:
        return
    say(console, f"\n{wording.worst_title(verdict)}, in {wording.primary(verdict)}:")
    for place, example in enumerate(verdict.worst, start=1):
        outcomes = "  ".join(f"{name} {value}" for name, value in wording.values(example, verdict))
        line = f"{place:>3}  {numbers.shorten(example.id, 40)}  cost {wording.cost(example)}  {outcomes}"
        say(console, line.rstrip(), "bold", cut=True)
        width = max((len(name) for name in example.texts), default=0)
        for name, words in example.texts.items():
            say(console, f"     {name:<{width}}  {numbers.shorten(words, _LOG_WIDTH)}", cut=True)


def _show_sentence(console: Console, verdict: Verdict) -> None:
    from rich.text import Text

    line = Text.assemble("\n", (verdict.label, STYLES[verdict.label]), f"  {wording.sentence(verdict)}")
    console.print(line, soft_wrap=not console.is_terminal)
