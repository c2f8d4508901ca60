"""What `calipers parity` prints: on a terminal, in a log, and as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calipers.fidelity.records import Parity, Tried
from calipers.fidelity.wording import show_cosine
from calipers.rendering.markdown import code, escape, table
from calipers.rendering.tables import say, show_table, warn

if TYPE_CHECKING:
    from rich.console import Console

_GROUPS = ("texts", "number", "smallest cosine", "median")
_DIFFERENCES = ("setting", "reference", "other", "cosine with it")
_TRIED = ("tried on the reference", "smallest cosine", "median")
_NEAREST = 8  # trials that are shown


def show_parity(console: Console, parity: Parity) -> None:
    say(console, parity.headline, "green" if parity.same else "bold red")
    say(console, f"\nreference: {parity.reference.artifact}")
    say(console, f"other:     {parity.other.artifact}\n")
    show_table(console, _GROUPS, _group_rows(parity), right=(1, 2, 3))
    if parity.differences:
        say(console, "")
        show_table(console, _DIFFERENCES, _difference_rows(parity), right=(3,))
    if parity.tried:
        say(console, "")
        show_table(console, _TRIED, _tried_rows(parity), right=(1, 2))
    for note in parity.notes:
        warn(console, note)


def parity_markdown(parity: Parity) -> str:
    """For the summary of a CI job, or a question to the people who run a server."""
    title = f"## {'The same' if parity.same else 'Different'}: {code(parity.other.artifact)} beside "
    parts = [title + code(parity.reference.artifact), code(parity.headline)]
    if parity.differences:
        rows = [[code(cell) for cell in row] for row in _difference_rows(parity)]
        parts.append("\n".join(table(_DIFFERENCES, rows, right=(3,))))
    parts.append(
        "\n".join(table(_GROUPS, [[escape(row[0]), *row[1:]] for row in _group_rows(parity)], right=(1, 2, 3)))
    )
    if parity.tried:
        rows = [[code(row[0]), *row[1:]] for row in _tried_rows(parity)]
        parts.append("\n".join(table(_TRIED, rows, right=(1, 2))))
    parts += [f"> note: {code(note)}" for note in parity.notes]
    return "\n\n".join(parts) + "\n"


def _group_rows(parity: Parity) -> list[list[str]]:
    rows = [("all", parity.cosine), *parity.groups.items()]
    return [[name, str(c.texts), show_cosine(c.smallest), show_cosine(c.median)] for name, c in rows]


def _difference_rows(parity: Parity) -> list[list[str]]:
    return [[d.setting, d.reference, d.other, show_cosine(d.restores)] for d in parity.differences]


def _tried_rows(parity: Parity) -> list[list[str]]:
    nearest = sorted(parity.tried, key=lambda tried: -tried.median)[:_NEAREST]
    return [[_name(tried), show_cosine(tried.smallest), show_cosine(tried.median)] for tried in nearest]


def _name(tried: Tried) -> str:
    return ", ".join(f"{name}: {value}" for name, value in tried.settings.items()) or "as it is"
