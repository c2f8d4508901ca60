"""An adaptation scorecard for people and for programs: one table and one paragraph."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from calipers.comparison import wording
from calipers.core import printable
from calipers.diagnosis.records import Scorecard, ScoreLine

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = {
    "AS_EXPECTED": "green",
    "NOT_SHOWN": "magenta",
    "CONTRARY": "bold red",
    "AT_RISK": "yellow",
    "LOST": "bold red",
    "NO_DEMAND": "dim",
    "UNKNOWN": "dim",
}
_LABELS = {"PASS": "green", "AT_RISK": "yellow", "INCONCLUSIVE": "magenta"}
HEADER = ("metric", "expected", "before", "after", "delta", "interval", "what happened", "reading")
_RIGHT = (2, 3, 4, 5)
_NAMES = {"mlm": "MLM on domain text", "contrastive": "contrastive training"}


def show_scorecard(console: Console, card: Scorecard) -> None:
    """The table, the paragraph, the label. What comes from a model's name goes through printable()."""
    title = f"scorecard  ·  {_NAMES[card.adaptation]}  ·  {card.baseline} → {card.candidate}"
    _say(console, f"\n{printable(title)}", "bold")
    rows = [row(line) for line in card.lines]
    if console.is_terminal:
        _show_table(console, card, rows)
    else:
        _show_plain(console, rows)
    _say(console, f"\n{printable(card.paragraph)}")
    for note in card.notes:
        _say(console, printable(note), "dim")
    _say(console, f"{card.label}  {so(card)}", _LABELS.get(card.label, "bold red"))


def row(line: ScoreLine) -> tuple[str, ...]:
    """The cells of a line; a mark stands behind the change that the training is for."""
    name = f"{line.metric} {wording.MARK}" if line.decides else line.metric
    return (
        name,
        line.expected,
        wording.number(line.baseline, line.digits),
        wording.number(line.candidate, line.digits),
        wording.signed(line.delta, line.digits),
        wording.interval(line.interval, line.digits),
        line.change if line.delta is not None else f"unknown: {line.reason}",
        line.reading.replace("_", " "),
    )


def document(card: Scorecard) -> dict[str, Any]:
    """The scorecard as JSON has it: its fields, and of each line all of its own."""
    content = asdict(card)
    return {**content, "forgetting": card.forgetting, "lines": [asdict(line) for line in card.lines]}


def so(card: Scorecard) -> str:
    """What the label says of the training, as a clause."""
    if card.forgetting:
        return "the model has forgotten general language"
    return {
        "PASS": "the training did what it is for",
        "AT_RISK": "the training did what it is for, with a side effect to look at",
        "INCONCLUSIVE": "these data do not show whether the training did what it is for",
    }.get(card.label, "the training cost what it must not cost, or did the contrary")


def _show_table(console: Console, card: Scorecard, rows: list[tuple[str, ...]]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for place, name in enumerate(HEADER):
        table.add_column(name, justify="right" if place in _RIGHT else "left", no_wrap=place != 6)
    for line, cells in zip(card.lines, rows, strict=True):
        styles = [_STYLES[line.reading] if place == len(cells) - 1 else "" for place in range(len(cells))]
        table.add_row(*(Text(printable(cell), style=style) for cell, style in zip(cells, styles, strict=True)))
    console.print(table)


def _show_plain(console: Console, rows: list[tuple[str, ...]]) -> None:
    lines = [HEADER, *(tuple(printable(cell) for cell in cells) for cells in rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(HEADER))]
    for line in lines:
        cells = [
            cell.rjust(width) if place in _RIGHT else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        _say(console, "  ".join(cells).rstrip())


def _say(console: Console, line: str, style: str = "") -> None:
    from rich.text import Text

    console.print(Text(line, style=style), soft_wrap=not console.is_terminal)
