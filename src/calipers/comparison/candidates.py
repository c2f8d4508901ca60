"""The table of a comparison: a line for the baseline and one for each candidate, with what it costs to run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from calipers.comparison import wording
from calipers.comparison.records import Comparison, GateOptions, Verdict
from calipers.core import Result, printable
from calipers.rendering import numbers
from calipers.rendering.tables import Cell, fits, is_bounded, make_table, say, show_table

if TYPE_CHECKING:
    from rich.console import Console

_MODEL, _VALUE, _CHANGE, _ENDS, _CHANCES, _LABEL, _SIZE, _P50, _P95, _RATE, _MARK = range(11)
_COSTS = (_SIZE, _P50, _P95, _RATE)
_RIGHT = (_VALUE, _CHANGE, _ENDS, _CHANCES, *_COSTS)
_NARROW = (60, 40, 32, 26, 20, 16)  # characters of a name, where the whole one is too long


class _Layout(NamedTuple):
    """Which cells each column shows, one above the other, and the names that can be read beside them."""

    columns: tuple[tuple[int, ...], ...]
    names: tuple[int, ...] = _NARROW  # characters; the whole name comes first
    compact: bool = False  # units stand in the header; both latencies, and a label with its mark, in one cell


# From wide to narrow. The second is one line a row at 100 columns.
_LAYOUTS = (
    _Layout(tuple((place,) for place in range(11)), names=()),
    _Layout(tuple((place,) for place in range(_MARK) if place != _P95), names=tuple(range(60, 14, -2)), compact=True),
    _Layout(((0,), (1,), (2,), (3,), (4,), (5, 10), (6,), (7, 8), (9,)), names=_NARROW[:-1]),
    _Layout(((0,), (1,), (2, 3), (5, 4), (6, 10), (7, 8), (9,)), names=_NARROW[:-1]),
    _Layout(((0,), (1, 10), (2, 3), (5, 4), (6, 9), (7, 8))),
)

Row = tuple[str, ...]


def show_candidates(
    console: Console,
    verdicts: Sequence[Verdict],
    metric: str,
    gate: GateOptions,
    styles: Mapping[str, str],
    *,
    costs: bool,
) -> None:
    """The values of one metric. On a terminal the widest layout that fits, else a list; elsewhere one line a row."""
    header = _header(verdicts)
    rows = [_baseline(verdicts[0], metric), *(_row(verdicts, verdict, metric, gate) for verdict in verdicts)]
    used = [place for place in range(len(header)) if any(row[place] for row in rows)]
    used = [place for place in used if costs or place not in (*_COSTS, _MARK)]
    if not is_bounded(console):
        right = [number for number, place in enumerate(used) if place in _RIGHT]
        show_table(console, [header[i] for i in used], [[row[i] for i in used] for row in rows], right=right)
        return
    for layout, width in _choices():
        columns = [shown for column in layout.columns if (shown := [place for place in column if place in used])]
        titles, *lines = [_compact(row) for row in (header, *rows)] if layout.compact else (header, *rows)
        table = make_table(
            [_cell(titles, column, {}) for column in columns],
            [_cell_row(row, columns, styles, width) for row in lines],
            right=[number for number, column in enumerate(columns) if column[0] in _RIGHT],
            dense=True,
        )
        if fits(console, table):
            console.print(table)
            return
    _show_list(console, header, rows, styles)


def candidate_table(
    verdicts: Sequence[Verdict], gate: GateOptions, quote: Callable[[str], str]
) -> tuple[Row, list[Row]]:
    """Header and rows for a page; columns that are empty are left out."""
    metric = shown_metric(verdicts)
    header = _header(verdicts)
    rows = [_baseline(verdicts[0], metric), *(_row(verdicts, verdict, metric, gate) for verdict in verdicts)]
    used = [place for place in range(len(header)) if any(row[place] for row in rows)]
    named = [(quote(row[0]), *row[1:]) for row in rows]
    return tuple(header[i] for i in used), [tuple(row[i] for i in used) for row in named]


def shown_metric(verdicts: Sequence[Verdict]) -> str:
    """The metric of a page's table: the first that decides."""
    return next((c.metric for c in verdicts[0].comparisons if c.decides), wording.primary(verdicts[0]))


def _choices() -> Iterator[tuple[_Layout, int]]:
    """Layouts with the width of a name: shorter names come before a narrower layout, as far as they can be read."""
    for layout in _LAYOUTS:
        yield from ((layout, width) for width in (10_000, *layout.names))


def _compact(row: Row) -> Row:
    """The same with units in the header, both latencies in one cell, and no ending of a file in the name."""
    if row[_P50] == "p50":
        return (*row[:_SIZE], "MB", "p50/p95 ms", *row[_P95:])
    size, p50, p95 = (row[place].removesuffix(" MB").removesuffix(" ms") for place in (_SIZE, _P50, _P95))
    name, ends = row[_MODEL].replace(".onnx", ""), row[_ENDS].replace(" to ", "…")
    label = " ".join(filter(None, (row[_LABEL], row[_MARK])))
    return (
        *(name, row[_VALUE], row[_CHANGE], ends, row[_CHANCES], label, size),
        *(f"{p50}/{p95}" if p50 else "", p95, row[_RATE], row[_MARK]),
    )


def _header(verdicts: Sequence[Verdict]) -> Row:
    unit = "pairs" if _is_scored(verdicts[0].baseline) else "texts"
    names = ("model", "value", "change", wording.interval_name(verdicts[0]), "chances, %", "label")
    return (*names, "size", "p50", "p95", f"{unit}/s", "")


def _is_scored(result: Result) -> bool:
    """Whether a model reads two texts at once."""
    from calipers.runs import catalogue

    return getattr(catalogue.find(result.task), "ability", "") == "score"


def _costs(result: Result | None) -> Row:
    if result is None:
        return ("", "", "", "")
    size = numbers.megabytes(result.model.size) if result.model.size else ""
    speed = result.speed
    if speed is None:
        return (size, "", "", "")
    return (size, f"{speed.p50_ms:.1f} ms", f"{speed.p95_ms:.1f} ms", f"{speed.inputs_per_second:,.0f}")


def _baseline(verdict: Verdict, metric: str) -> Row:
    comparison = _of(verdict, metric)
    value = numbers.number(comparison.baseline, comparison.digits) if comparison else ""
    backend = verdict.baseline.model.backend
    name = verdict.baseline_name or verdict.baseline.model.artifact
    name = name if name.endswith(f".{backend}") else f"{name}, {backend}"
    return (printable(name), value, "", "", "", "", *_costs(verdict.baseline), "")


def _row(verdicts: Sequence[Verdict], verdict: Verdict, metric: str, gate: GateOptions) -> Row:
    name, comparison = printable(verdict.candidate_name), _of(verdict, metric)
    marks = [
        word
        for word, chosen in (("smallest", wording.smallest(verdicts, gate)), ("best", wording.best(verdicts, gate)))
        if chosen is verdict and len(verdicts) > 1
    ]
    if comparison is None:
        return (name, "", "", "", "", verdict.label, *_costs(verdict.candidate), "")
    value = numbers.number(comparison.candidate, comparison.digits)
    chances = str(comparison.chances).removesuffix(" %").replace(" / ", "/") if comparison.chances else numbers.NONE
    ends = numbers.signed_interval(comparison.interval, comparison.digits)
    cells = (name, value, comparison.delta_text, ends, chances, comparison.label)
    return (*cells, *_costs(verdict.candidate), ", ".join(marks))


def _of(verdict: Verdict, metric: str) -> Comparison | None:
    return next((c for c in verdict.comparisons if c.metric == metric), None)


def _cell_row(row: Row, columns: Sequence[Sequence[int]], styles: Mapping[str, str], width: int) -> list[Cell]:
    return [_cell(_shortened(row, width), column, styles) for column in columns]


def _shortened(row: Row, width: int) -> Row:
    """With a name of at most so many characters: its end, which distinguishes files of one folder."""
    name = row[_MODEL]
    return row if len(name) <= width else (f"…{name[1 - width :]}", *row[1:])


def _cell(row: Row, column: Sequence[int], styles: Mapping[str, str]) -> Cell:
    first, *below = column
    style = styles.get(row[first].partition(" ")[0], "") if first == _LABEL else ""
    return Cell(row[first], style, row[below[0]] if below else "")


def _show_list(console: Console, header: Row, rows: Sequence[Row], styles: Mapping[str, str]) -> None:
    """For a terminal that is too narrow for any table."""
    for row in rows:
        say(console, row[_MODEL], "bold")
        cells = [f"{name} {cell}".strip() for name, cell in zip(header[1:], row[1:], strict=True) if cell]
        say(console, f"  {'; '.join(cells)}")
