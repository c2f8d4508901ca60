"""Tables and lines at the widths that terminals have, and in a log."""

from __future__ import annotations

import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from calipers.rendering.tables import Cell, fits, make_table, say, show_facts, show_records, show_table, warn

HEADER = ("name", "value", "what it is")
ROWS = [("a", "1.5", "the first of the letters"), ("bcd", "22.25", "a long text " * 12)]


def console(width: int = 80, *, terminal: bool = True) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, color_system=None, width=width, highlight=False)


def written(out: Console) -> str:
    return out.file.getvalue()  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("title", ["", "a layer"])
def test_nothing_is_wider_than_the_terminal(width: int, title: str) -> None:
    out = console(width)
    show_table(out, HEADER, ROWS, right=(1,), fold=(2,), title=title)
    assert max(map(cell_len, written(out).splitlines())) <= width
    assert written(out).count("long") == 12  # folded, not cut


def test_a_log_has_one_line_a_row_and_the_same_cells() -> None:
    out = console(40, terminal=False)
    show_table(out, HEADER, [*ROWS, ("e", Cell("3", "red", below="of 4"), "")], right=(1,))
    lines = written(out).splitlines()
    assert lines[:2] == ["name   value  what it is", "a        1.5  the first of the letters"]
    assert lines[3] == "e     3 of 4"
    assert len(lines) == 4


def test_a_column_without_room_stands_below_the_table() -> None:
    out = console(60)
    show_table(out, ("name", "x" * 20, "text", "y" * 20), [("row", "1", "word " * 20, "2")], fold=(2,), right=(1, 3))
    lines = written(out).splitlines()
    assert "text" not in written(out)
    assert [line.split() for line in lines if "row" in line] == [["row", "1", "2"], ["row:", *["word"] * 11]]
    assert written(out).count("word") == 20


def test_the_column_that_names_the_row_stays_in_the_table() -> None:
    out = console(60)
    show_table(out, ("model", "x" * 20, "y" * 25), [("built/model_quantized.onnx", "1", "2")], fold=(0,))
    lines = [line.split() for line in written(out).splitlines() if line.strip()]
    assert lines[2][1:] == ["1", "2"]
    assert "".join(line[0] for line in lines[2:]) == "built/model_quantized.onnx"


def test_a_second_line_stands_below_its_cell() -> None:
    out = console()
    show_table(out, ("metric", "delta"), [("f1", Cell("-0.14", "green", below="-0.2%"))], right=(1,))
    first, second = (line for line in written(out).splitlines() if "0." in line)
    assert first.index("-0.14") == second.index("-0.2%")


def test_whether_a_table_fits() -> None:
    table = make_table(HEADER, ROWS)
    assert fits(console(200), table)
    assert not fits(console(80), table)


def test_records_have_their_keys_as_header_and_floats_with_three_digits() -> None:
    out = console(terminal=False)
    show_records(out, [{"id": "a", "cosine": 0.5}, {"id": "b", "cosine": 12.25}])
    assert written(out).splitlines() == ["id  cosine", "a    0.500", "b   12.250"]
    show_records(out, [])


@pytest.mark.parametrize("terminal", [True, False])
def test_control_characters_and_markup_are_plain_text(terminal: bool) -> None:
    out = console(terminal=terminal)
    odd = "[bold]x[/] \x1b[31m\nnew"
    show_table(out, ("name",), [(odd,)])
    show_facts(out, odd, [("fact", odd)])
    warn(out, odd)
    assert "\x1b[31m" not in written(out)
    assert written(out).count("[bold]x[/] �[31m new") == 4


def test_a_line_keeps_its_spacing_and_the_empty_lines_around_it() -> None:
    out = console(20, terminal=False)
    say(out, "\n  a  b\n")
    say(out, "words " * 10)
    say(out, "")
    assert written(out) == "\n  a  b\n\n" + "words " * 10 + "\n\n"
    cut = console(20)
    say(cut, "words " * 10, cut=True)
    assert written(cut) == "words words words w…\n"
