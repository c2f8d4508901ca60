"""Records in notebooks: a table in HTML, with everything escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from calipers.core.errors import printable


def html_table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]], notes: Iterable[str] = ()) -> str:
    """A title, a table and notes below it, for `_repr_html_`. Every text is escaped.

    >>> html_table("R & D", ["ndcg"], [["0.5"]])
    '<div><p><b>R &amp; D</b></p><table><tr><th>ndcg</th></tr><tr><td>0.5</td></tr></table></div>'
    """
    lines = [_row(header, "th"), *(_row(row, "td") for row in rows)]
    below = "".join(f"<p>{_safe(note)}</p>" for note in notes)
    return f"<div><p><b>{_safe(title)}</b></p><table>{''.join(lines)}</table>{below}</div>"


def _row(cells: Sequence[str], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{_safe(cell)}</{tag}>' for cell in cells)}</tr>"


def _safe(text: str) -> str:
    return escape(printable(text))
