"""Tables for notebooks."""

from __future__ import annotations

from calipers.core import html_table


def test_everything_is_escaped_and_without_control_characters() -> None:
    html = html_table("<t>", ["<h>"], [["<c>\x1b"]], ["<n>"])
    assert not {"<t>", "<h>", "<c>", "<n>", "\x1b"} & {html[i : i + n] for n in (1, 3) for i in range(len(html))}
    assert html.count("&lt;") == 4


def test_a_table_without_rows_has_its_header() -> None:
    assert html_table("t", ["a"], []) == "<div><p><b>t</b></p><table><tr><th>a</th></tr></table></div>"
