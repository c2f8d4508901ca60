"""A diagnosis for people, on a terminal or in a log: what `calipers diagnose` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calipers.comparison import wording
from calipers.comparison.text import STYLES
from calipers.core import Figure, Result, printable
from calipers.diagnosis import findings
from calipers.diagnosis.records import Diagnosis, Finding, Scorecard, ScoreLine
from calipers.rendering import numbers, tables
from calipers.rendering.tables import Cell

if TYPE_CHECKING:
    from rich.console import Console

_EXAMPLES = 5  # of each figure
_TONES = {"bad": "bold red", "warning": "yellow", "good": "green", "plain": ""}
_MARKS = {"bad": "✗", "warning": "!", "good": "✓", "plain": "·"}
_READINGS = {
    "AS_EXPECTED": "green",
    "NOT_SHOWN": "magenta",
    "CONTRARY": "bold red",
    "AT_RISK": "yellow",
    "LOST": "bold red",
    "NO_DEMAND": "dim",
    "UNKNOWN": "dim",
}
SCORECARD_HEADER = ("metric", "expected", "before", "after", "delta", "interval", "n", "what happened", "reading")
_TRAININGS = {"mlm": "MLM on domain text", "contrastive": "contrastive training"}


def show_diagnosis(console: Console, diagnosis: Diagnosis, *, examples: int = _EXAMPLES) -> None:
    """What was looked at, the findings in words, then a panel for each layer and what its figures point at."""
    tables.show_facts(console, "diagnose", facts(diagnosis))
    for headline in findings.headlines(diagnosis):
        tables.say(console, f"{_MARKS[headline.tone]} {printable(headline.sentence)}", _TONES[headline.tone])
    for finding in diagnosis.findings:
        _show_layer(console, finding, examples)
    if diagnosis.scorecard:
        _show_scorecard(console, diagnosis.scorecard)
    for note in diagnosis.notes:
        tables.say(console, f"note: {printable(note)}", "dim")


def facts(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    model, base = diagnosis.model, diagnosis.baseline
    rows = [("Model", f"{model.model_id}  ({model.backend}, {model.device})")]
    rows += [("Baseline", f"{base.model_id}  ({base.backend}, {base.device})")] if base else []
    source = diagnosis.dataset
    split = f", split {source.split}" if source.split else ""
    rows.append(("Data", f"{source.path}{split}  ({diagnosis.fingerprint[:15]}…)"))
    counts = [f"{n:,} {name.replace('_', ' ')}" for name, n in diagnosis.counts.items() if n]
    rows.append(("Texts", ", ".join(counts)))
    if diagnosis.similarity != "cosine":
        rows.append(("Search", f"by {diagnosis.similarity}"))
    timing = diagnosis.timing
    if "total_seconds" in timing:
        reused = f", {timing.get('texts_reused', 0):,.0f} texts from the cache" if timing.get("texts_reused") else ""
        rows.append(("Time", f"{timing['total_seconds']:.1f} s{numbers.search_time(timing)}{reused}"))
    return rows


def _show_layer(console: Console, finding: Finding, examples: int) -> None:
    if finding.result is None:
        tables.say(console, f"\n{finding.layer}: skipped. {printable(finding.reason or '')}", "dim")
        return
    header, rows = figure_rows(finding)
    right = [i for i, name in enumerate(header) if name in ("value", "baseline", "delta") or name.endswith("interval")]
    title = f"{finding.layer}  ·  {finding.about}"
    tables.show_table(console, header, rows, right=right, fold=[len(header) - 1], title=title)
    for warning in findings.own_warnings(finding):
        tables.say(console, f"! {printable(warning)}", "yellow")
    if finding.verdict and finding.decides:
        label = finding.verdict.label
        tables.say(console, f"{label}  {wording.sentence(finding.verdict)}", STYLES.get(label, ""))
    _show_slices(console, finding, finding.result)
    for figure, named in findings.examples_of(finding).items():
        if examples < 1:
            break
        tables.say(console, f"\n{figure}: the first {min(examples, len(named))} of {len(named)} named", "bold")
        for example in named[:examples]:
            id, words = numbers.shorten(example.id, 40), numbers.shorten(example.text, 100)
            tables.say(console, f"  {id}  {words}" if words != id else f"  {id}")
            tables.say(console, f"      {numbers.shorten(example.note, 300)}", "dim")


def _show_slices(console: Console, finding: Finding, result: Result) -> None:
    """The first figure by group; beside a baseline, where the change hurts most."""
    for table in findings.slice_tables(finding, result):
        tables.say(console, f"\n{printable(table.title)}", "bold")
        tables.show_table(console, table.header, table.rows, right=range(1, len(table.header) - 1))
        for note in table.notes:
            tables.say(console, printable(note), "dim")


def figure_rows(finding: Finding) -> tuple[list[str], list[list[str | Cell]]]:
    """Header and rows of a layer's figures; with a baseline also its value, the difference and the label."""
    compared = findings.comparisons_of(finding)
    interval = numbers.interval_name(finding.result.bootstrap.get("confidence") if finding.result else None)
    header = [
        "figure",
        "value",
        interval,
        "good is",
        "warns",
        *(["baseline", "delta", "change", "label"] if compared else []),
    ]
    rows = []
    for figure in findings.figures_of(finding):
        style = "yellow" if figure.warning else ""
        row: list[str | Cell] = [
            Cell(figure.name, style or "bold"),
            Cell(findings.value_of(figure), style),
            findings.interval_of(figure),
            Cell(findings.direction(figure), "dim"),
            Cell(f"! {figure.level}" if figure.warning else figure.level or numbers.NONE, style or "dim"),
        ]
        if compared:
            before, delta = findings.beside(finding, figure)
            label = findings.shown_label(figure, compared.get(figure.name))
            row += [
                numbers.number(before, figure.digits),
                numbers.signed(delta, figure.digits),
                findings.effect_of(figure, compared.get(figure.name)),
                Cell(label, STYLES.get(label, "")),
            ]
        rows.append([*row, Cell(meaning(figure), "dim")])
    return [*header, "what it means"], rows


def meaning(figure: Figure) -> str:
    if figure.value is None:
        return f"unknown: {figure.reason}"
    return f"{figure.meaning} ({findings.count_of(figure)})"


# --- the scorecard -----------------------------------------------------------------------------------------------


def _show_scorecard(console: Console, card: Scorecard) -> None:
    """The table, the paragraph, the label."""
    title = f"scorecard  ·  {_TRAININGS[card.adaptation]}  ·  {card.baseline} → {card.candidate}"
    tables.say(console, f"\n{printable(title)}", "bold")
    rows: list[list[str | Cell]] = []
    for line in card.lines:
        cells = [printable(cell) for cell in scorecard_row(line)]
        rows.append([*cells[:-1], Cell(cells[-1], _READINGS[line.reading])])
    tables.show_table(console, SCORECARD_HEADER, rows, right=(2, 3, 4, 5, 6), fold=(7,))
    tables.say(console, f"\n{printable(card.paragraph)}")
    for note in card.notes:
        tables.say(console, printable(note), "dim")
    tables.say(console, f"{card.label}  {findings.conclusion(card)}", STYLES.get(card.label, "bold red"))


def scorecard_row(line: ScoreLine) -> tuple[str, ...]:
    """The cells of a line; a mark stands behind the change that the training is for."""
    name = f"{line.metric} {wording.MARK}" if line.decides else line.metric
    return (
        name,
        line.expected,
        numbers.number(line.baseline, line.digits),
        numbers.number(line.candidate, line.digits),
        numbers.signed(line.delta, line.digits),
        numbers.signed_interval(line.interval, line.digits),
        f"{line.examples:,}" if line.examples else numbers.NONE,
        _happened(line),
        line.reading.replace("_", " "),
    )


def _happened(line: ScoreLine) -> str:
    if line.delta is None:
        return f"unknown: {line.reason}"
    return f"{line.change}: {line.effect}" if line.effect in ("better", "worse") else line.change
