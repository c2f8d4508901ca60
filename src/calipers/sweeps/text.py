"""A sweep for people, on a terminal or in a log: the plan, the table, the classic columns, the state of a queue."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from calipers.comparison.text import STYLES
from calipers.rendering import numbers
from calipers.rendering.tables import Cell, say, show_facts, show_table
from calipers.sweeps.api import Ahead, Sweep
from calipers.sweeps.queue import JobRow
from calipers.sweeps.records import CellResult

if TYPE_CHECKING:
    from rich.console import Console

HEADER = ("model", "task", "precision", "metric", "value", "interval", "change", "label", "size", "p50", "p", "pareto")
_RIGHT = (4, 6, 8, 9, 10)
CLASSIC = ("model", "quantised", "baseline", "change", "verdict")


def table_row(cell: CellResult) -> tuple[str, ...]:
    """A cell under `HEADER`, as texts."""
    p50 = numbers.NONE
    if cell.latency:
        p50 = f"{cell.latency['p50']:.2f} ms{' (under load)' if cell.latency.get('loaded') else ''}"
    label = f"failed: {cell.failure.kind}" if cell.failure and not cell.label else cell.outcome
    label = numbers.NONE if label == "without a label" else label
    return (
        *(cell.key.model, cell.key.task, cell.key.precision, cell.metric or numbers.NONE),
        numbers.number(cell.value, cell.digits),
        numbers.interval(cell.interval, cell.digits),
        numbers.percent(cell.relative),
        label,
        numbers.megabytes(cell.size) if cell.size is not None else numbers.NONE,
        p50,
        numbers.p_value(cell.adjusted_p),
        numbers.NONE if cell.latency is None else "dominated" if cell.dominated else "front",
    )


def show_sweep(console: Console, sweep: Sweep) -> None:
    """The table, worst first; dominated rows are grey. Then failures, what is newly broken, and a sentence."""
    rows = []
    for cell in sweep.cells:
        texts = table_row(cell)
        style = "dim" if cell.dominated else ""
        label = Cell(texts[7], STYLES.get(cell.label or "", "bold red" if cell.failure else ""))
        rows.append([label if place == 7 else Cell(text, style) for place, text in enumerate(texts)])
    show_table(console, HEADER, rows, right=_RIGHT)
    _show_failures(console, sweep.cells)
    for cell in sweep.cells:
        if cell.reason and not cell.failure:
            say(console, f"{cell.key}: {cell.reason}", "dim")
    broken = [str(cell.key) for cell in sweep.cells if cell.newly_broken]
    if broken:
        say(console, f"\nNewly broken since the last sweep: {', '.join(broken)}", "bold red")
    for note in sweep.notes:
        say(console, f"note: {note}", "yellow")
    say(console, f"\n{sentence(sweep)}", "bold")


def _show_failures(console: Console, cells: Sequence[CellResult]) -> None:
    for cell in cells:
        if cell.failure is None:
            continue
        say(console, f"\n{cell.key} failed ({cell.failure.kind}): {cell.failure.message}", "red")
        for line in cell.failure.tail[-3:]:
            say(console, f"  {line}", "dim")
        if cell.failure.log:
            say(console, f"  log: {cell.failure.log}", "dim")


def sentence(sweep: Sweep) -> str:
    """How many cells there are of each label, how long it took, and the exit code."""
    labels = [cell.outcome for cell in sweep.cells]
    counts = ", ".join(f"{labels.count(label)} {label}" for label in dict.fromkeys(labels))
    reused = sum(cell.reused for cell in sweep.cells)
    cells = numbers.count("cell", len(sweep.cells))
    return f"{cells}: {counts}; {reused} from the store; {sweep.seconds:.1f} s; exit code {sweep.exit_code}"


def show_classic(console: Console, sweep: Sweep) -> None:
    """The columns of the published registry run: quantised, baseline, relative change and verdict, worst last."""
    judged = [cell for cell in reversed(sweep.cells) if cell.label is not None]
    names = [cell.key.model for cell in judged]
    rows = []
    for cell in judged:
        one = names.count(cell.key.model) == 1
        name = cell.key.model if one else f"{cell.key.model} ({cell.key.task}, {cell.key.precision})"
        change = numbers.NONE if cell.relative is None else f"{100 * cell.relative:+.2f} %"
        rows.append((name, _classic(cell.value), _classic(cell.baseline), change, str(cell.label)))
    show_table(console, CLASSIC, rows, right=(1, 2, 3))


def _classic(value: float | None) -> str:
    """
    >>> _classic(4.35281), _classic(3339.6612), _classic(None)
    ('4.3528', '3339.66', '–')
    """
    return numbers.number(value, 4 if value is None or abs(value) < 1000 else 2)


def show_plan(console: Console, ahead: Ahead) -> None:
    """What a sweep would do: its cells, the work that they share, and the time to expect."""
    header = ("model", "task", "precision", "state", "baseline")
    show_table(console, header, [[str(cell[name] or numbers.NONE) for name in header] for cell in ahead.cells])
    for reason in dict.fromkeys(cell["reason"] for cell in ahead.cells if cell["reason"]):
        say(console, f"{sum(cell['reason'] == reason for cell in ahead.cells)} unavailable: {reason}", "red")
    facts, shared = ahead.plan, ahead.plan["shared"]
    show_facts(
        console,
        "plan",
        [
            ("Cells", f"{facts['cells']}, {facts['stored']} of them in the store, {facts['unavailable']} unavailable"),
            (
                "To do",
                f"{numbers.count('build', facts['to_build'])}, {numbers.count('measurement', facts['to_measure'])}, "
                f"{numbers.count('timing', facts['to_time'])}",
            ),
            (
                "Shared work",
                f"{numbers.count('export', shared['exports'])} for {numbers.count('precision', shared['precisions'])}; "
                f"{numbers.count('baseline', shared['baselines'])} for "
                f"{numbers.count('candidate', shared['candidates'])}; "
                f"{numbers.count('cell', shared['repeated_cells'])} with the work of another",
            ),
            ("Time to expect", f"about {_duration(ahead.seconds)}"),
        ],
    )
    for entry in facts["skipped"]:
        say(console, f"left out: {entry['cell']}: {entry['reason']}", "dim")


def _duration(seconds: float) -> str:
    """
    >>> _duration(42), _duration(400), _duration(9000)
    ('42 s', '7 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def show_status(console: Console, rows: Sequence[JobRow]) -> None:
    """The queue of a registry, from another terminal."""
    states = [("gone" if row.is_free else "running") if row.state == "running" else row.state for row in rows]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    lines = [
        (row.name, row.kind, state, str(row.attempts), numbers.NONE if row.seconds is None else f"{row.seconds:.1f} s",
         row.failure or "")
        for row, state in sorted(zip(rows, states, strict=True), key=lambda pair: (pair[1], pair[0].name))
    ]  # fmt: skip
    show_table(console, ("job", "kind", "state", "attempts", "took", "failure"), lines, right=(3, 4))
    say(console, f"\n{len(rows)} jobs: {counts or 'none'}  ({time.strftime('%H:%M:%S')})", "bold")
