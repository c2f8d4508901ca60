"""A diagnosis for people, on a terminal or in a log: what `calipers diagnose` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calipers.comparison import wording
from calipers.core import Figure, printable
from calipers.diagnosis import findings, scorecard_text
from calipers.diagnosis.records import Diagnosis, Finding
from calipers.rendering import text

if TYPE_CHECKING:
    from rich.console import Console

_EXAMPLES = 5  # of each figure
_TONES = {"bad": "bold red", "warning": "yellow", "good": "green", "plain": ""}
_MARKS = {"bad": "✗", "warning": "!", "good": "✓", "plain": "·"}
_LABELS = {"PASS": "green", "AT_RISK": "yellow", "REGRESSION": "bold red", "INVALID": "bold red"}

Row = list[tuple[str, str]]  # cells with their styles


def show_diagnosis(console: Console, diagnosis: Diagnosis, *, examples: int = _EXAMPLES) -> None:
    """What was looked at, the findings in words, then a panel for each layer and what its figures point at."""
    text.show_facts(console, "diagnose", facts(diagnosis))
    for headline in findings.headlines(diagnosis):
        _say(console, f"{_MARKS[headline.tone]} {printable(headline.sentence)}", _TONES[headline.tone])
    for finding in diagnosis.findings:
        _show_layer(console, finding, examples)
    if diagnosis.scorecard:
        scorecard_text.show_scorecard(console, diagnosis.scorecard)
    for note in diagnosis.notes:
        _say(console, f"note: {printable(note)}", "dim")


def facts(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    model, base = diagnosis.model, diagnosis.baseline
    told = [("Model", f"{model.model_id}  ({model.backend}, {model.device})")]
    told += [("Baseline", f"{base.model_id}  ({base.backend}, {base.device})")] if base else []
    source = diagnosis.dataset
    split = f", split {source.split}" if source.split else ""
    told.append(("Data", f"{source.path}{split}  ({diagnosis.fingerprint[:15]}…)"))
    counts = [f"{n:,} {name.replace('_', ' ')}" for name, n in diagnosis.counts.items() if n]
    told.append(("Texts", ", ".join(counts)))
    timing = diagnosis.timing
    if "total_seconds" in timing:
        reused = f", {timing.get('texts_reused', 0):,.0f} texts from the cache" if timing.get("texts_reused") else ""
        told.append(("Time", f"{timing['total_seconds']:.1f} s{reused}"))
    return told


def _show_layer(console: Console, finding: Finding, examples: int) -> None:
    if finding.result is None:
        _say(console, f"\n{finding.layer}: left out. {printable(finding.reason or '')}", "dim")
        return
    header, rows = table(finding)
    title = f"{finding.layer}  ·  {finding.about}"
    if console.is_terminal:
        _show_panel(console, title, header, rows)
    else:
        _show_plain(console, title, header, rows)
    if finding.verdict and finding.decides:
        label = finding.verdict.label
        _say(console, f"{label}  {wording.sentence(finding.verdict)}", _LABELS.get(label, ""))
    for figure, named in findings.examples_of(finding).items():
        if examples < 1:
            break
        _say(console, f"\n{figure}: the first {min(examples, len(named))} of {len(named)} named", "bold")
        for id, words, note in findings.shorten_all(named, examples):
            _say(console, f"  {id}  {words}" if words != id else f"  {id}")
            _say(console, f"      {note}", "dim")


def table(finding: Finding) -> tuple[list[str], list[Row]]:
    """Header and rows of a layer's figures; with a baseline also its value, the difference and the label."""
    compared = findings.comparisons_of(finding)
    header = ["figure", "value", "95 % interval", "good is", "warns"]
    if finding.result and finding.result.bootstrap.get("confidence"):
        header[2] = f"{finding.result.bootstrap['confidence']:.0%} interval"
    header += ["baseline", "delta", "label"] if compared else []
    rows = []
    for figure in findings.figures_of(finding):
        style = "yellow" if figure.warning else ""
        row: Row = [
            (figure.name, style or "bold"),
            (findings.value_of(figure), style),
            (findings.interval_of(figure), ""),
            (findings.direction(figure), "dim"),
            (f"! {figure.level}" if figure.warning else figure.level or wording.NONE, style or "dim"),
        ]
        if compared:
            before, delta = findings.beside(finding, figure)
            label = findings.shown_label(figure, compared.get(figure.name))
            row += [
                (wording.number(before, figure.digits), ""),
                (wording.signed(delta, figure.digits), ""),
                (label, _LABELS.get(label, "")),
            ]
        rows.append([*row, (meaning(figure), "dim")])
    return [*header, "what it means"], rows


def meaning(figure: Figure) -> str:
    if figure.value is None:
        return f"unknown: {figure.reason}"
    return f"{figure.meaning} ({findings.count_of(figure)})"


_RIGHT = ("value", "baseline", "delta")


def _show_panel(console: Console, title: str, header: list[str], rows: list[Row]) -> None:
    from rich import box
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for place, name in enumerate(header):
        last = place == len(header) - 1
        right = name in _RIGHT or name.endswith("interval")
        grid.add_column(name, justify="right" if right else "left", no_wrap=not last, min_width=30 if last else None)
    for row in rows:
        grid.add_row(*(Text(printable(cell), style=style) for cell, style in row))
    console.print(Panel(grid, title=Text(title), title_align="left", border_style="cyan"))


def _show_plain(console: Console, title: str, header: list[str], rows: list[Row]) -> None:
    lines = [header, *([printable(cell) for cell, _ in row] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    _say(console, f"\n{title}")
    for line in lines:
        cells = [
            cell.rjust(width) if name in _RIGHT or name.endswith("interval") else cell.ljust(width)
            for cell, width, name in zip(line, widths, header, strict=True)
        ]
        _say(console, "  ".join(cells).rstrip())


def _say(console: Console, line: str, style: str = "") -> None:
    """Wrapped on a terminal; elsewhere one line stays one line. What comes from data has gone through printable()."""
    from rich.text import Text

    console.print(Text(line, style=style), soft_wrap=not console.is_terminal)
