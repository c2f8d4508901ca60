"""Tables, facts and lines for people: drawn to fit on a terminal, plain and one line a row in a log.

Everything goes through `safe`: what comes from data cannot command a terminal, and rich reads no markup in it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from calipers.core import printable

if TYPE_CHECKING:
    from rich.console import Console, Group, RenderableType
    from rich.table import Table
    from rich.text import Text

_UNBOUNDED = 10_000  # columns: how wide a table would like to be
_READABLE = 30  # characters that a column needs to be read; the only one that folds goes below the table otherwise
_NAMED = 8  # the same, of the column that names the rows: it stays in the table as long as it can


class Cell(NamedTuple):
    """A cell with a style of rich; `below` is a second, quieter line, which a log puts behind the first."""

    text: str
    style: str = ""
    below: str = ""


Row = Sequence[str | Cell]


def is_bounded(console: Console) -> bool:
    """Whether lines have to fit: on a terminal, or where COLUMNS states a width. A log has whole lines, for grep."""
    return console.is_terminal or bool(os.environ.get("COLUMNS"))


def say(console: Console, line: str, style: str = "", *, cut: bool = False) -> None:
    """A line: wrapped on a terminal, or cut to its width; one line in a log. Newlines at its ends make empty lines."""
    from rich.text import Text

    body = line.strip("\n")
    before, after = line[: len(line) - len(line.lstrip("\n"))], "\n" if body and line.endswith("\n") else ""
    shown = Text(f"{before}{safe(body)}{after}", style=style)
    if cut and is_bounded(console):
        console.print(shown, no_wrap=True, overflow="ellipsis")
    else:
        console.print(shown, soft_wrap=not is_bounded(console))


def csv_cell(value: object) -> object:
    """A value for a file of comma-separated values: a text that a spreadsheet would take for a formula gets a quote
    before it, and what a terminal would obey is replaced.

    >>> csv_cell("=1+1"), csv_cell("a\\x1bb"), csv_cell(-1.5)
    ("'=1+1", 'a�b', -1.5)
    """
    if not isinstance(value, str):
        return value
    text = safe(value)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


def warn(console: Console, message: str) -> None:
    say(console, f"warning: {message}", "yellow")


def safe(line: str) -> str:
    """Without control characters, the spacing kept; `printable` also joins spaces.

    >>> safe("a  b\\tc\\x1b[2J")
    'a  b c�[2J'
    """
    return "".join(c if c.isprintable() else " " if c.isspace() else "�" for c in line)


def show_facts(console: Console, title: str, facts: Iterable[tuple[str, str]]) -> None:
    """Names with their values below a title: in a panel on a terminal, indented in a log."""
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    facts = [(name, printable(value)) for name, value in facts]
    if not is_bounded(console):
        width = max((len(name) for name, _ in facts), default=0)
        for line in (title, *(f"  {name:<{width}}  {value}" for name, value in facts)):
            say(console, line)
        return
    grid = Table.grid(padding=(0, 2))
    for name, value in facts:
        grid.add_row(Text(name, style="dim"), Text(value, overflow="fold"))
    console.print(Panel(grid, title=Text(safe(title)), title_align="left", border_style="cyan", expand=False))


def show_table(
    console: Console,
    header: Row,
    rows: Sequence[Row],
    *,
    right: Collection[int] = (),
    fold: Collection[int] | None = None,
    strong: Collection[int] = (),
    title: str = "",
) -> None:
    """A table that fits the terminal; aligned columns, one line a row, in a log.

    `right` are columns whose cells stand at the right, `strong` rows in bold. `fold` are the columns that may break
    their lines where the terminal is narrow, by default all but the first; the only one stands below the table if its
    lines would be too short to read. A `title` puts a panel around.
    """
    if not is_bounded(console):
        for line in ([f"\n{title}"] if title else []) + _plain_lines(header, rows, right):
            say(console, line)
        return
    from rich.panel import Panel
    from rich.text import Text

    fold = range(1, len(header)) or (0,) if fold is None else fold
    table = make_table(header, rows, right=right, fold=fold, strong=strong)
    place = next(iter(fold), 0)
    needs, room = _needs(table), console.width - 2 * len(header) - 4 * bool(title)
    shown: RenderableType = table
    readable = _READABLE if place else _NAMED
    if len(fold) == 1 < len(header) and room - sum(needs) < min(readable - needs[place], 0):
        shown = _without_column(place, header, rows, right, strong)
    console.print(Panel(shown, title=Text(safe(title)), title_align="left", border_style="cyan") if title else shown)


def show_records(console: Console, records: Sequence[Mapping[str, object]]) -> None:
    """Records of the same keys as a table with these keys as its header. Floats have three digits, at the right."""
    if not records:
        return
    rows = [[f"{v:.3f}" if isinstance(v, float) else str(v) for v in record.values()] for record in records]
    floats = [place for place, value in enumerate(records[0].values()) if isinstance(value, float)]
    show_table(console, tuple(records[0]), rows, right=floats)


def show_folded(console: Console, records: Sequence[Mapping[str, str]], header: Row, rows: Sequence[Row]) -> None:
    """A table of the records; on a terminal that is too narrow for it, one of `rows` with cells below each other, of
    which only the first column breaks its lines: no number is lost."""
    wide = make_table(tuple(records[0]), [tuple(record.values()) for record in records])
    if not is_bounded(console) or fits(console, wide):
        show_records(console, records)
    else:
        console.print(make_table(header, rows, fold=(0,)))


def make_table(
    header: Row,
    rows: Sequence[Row],
    *,
    right: Collection[int] = (),
    fold: Collection[int] = (),
    strong: Collection[int] = (),
    dense: bool = False,
) -> Table:
    """The table of a terminal; arguments as of `show_table`. A dense one has no lines and one space between columns."""
    from rich import box
    from rich.table import Table

    table = Table(box=None if dense else box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for place, name in enumerate(header):
        table.add_column(
            _text(name),
            justify="right" if place in right else "left",
            overflow="fold" if place in fold else "ellipsis",
            no_wrap=place not in fold,
        )
    for number, row in enumerate(rows):
        table.add_row(*map(_text, row), style="bold" if number in strong else None)
    return table


def _needs(table: Table) -> list[int]:
    """How many characters wide each column would like to be."""
    from rich.cells import cell_len

    return [
        max(cell_len(line) for cell in (column.header, *column.cells) for line in str(cell).split("\n"))
        for column in table.columns
    ]


def _without_column(
    place: int, header: Row, rows: Sequence[Row], right: Collection[int], strong: Collection[int]
) -> Group:
    """A table too wide for its terminal: the cells of one column stand below it, each behind the name of its row."""
    from rich.console import Group
    from rich.text import Text

    def cut(row: Row) -> Row:
        return [*row[:place], *row[place + 1 :]]

    right = [i - (i > place) for i in right if i != place]
    table = make_table(cut(header), [cut(row) for row in rows], right=right, fold=range(1, len(header)), strong=strong)
    return Group(table, *(Text.assemble((_text(row[0]).plain, "bold"), ": ", _text(row[place])) for row in rows))


def fits(console: Console, table: Table) -> bool:
    """Whether a terminal shows the table without folding or cutting a cell."""
    return console.measure(table, options=console.options.update(width=_UNBOUNDED)).maximum <= console.width


def _cell(cell: str | Cell) -> Cell:
    return cell if isinstance(cell, Cell) else Cell(cell)


def _text(cell: str | Cell) -> Text:
    from rich.text import Text

    text, style, below = _cell(cell)
    shown = Text(printable(text), style=style)
    # What stands below is quieter, so that rows of two lines stay distinct.
    return Text.assemble(shown, (f"\n{printable(below)}", "not bold dim")) if below else shown


def _plain_lines(header: Row, rows: Sequence[Row], right: Collection[int]) -> list[str]:
    lines = [[printable(" ".join(filter(None, (c.text, c.below)))) for c in map(_cell, row)] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if place in right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
