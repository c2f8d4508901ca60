"""What the tests of Markdown share: texts that try to break out of it, and a parser that shows whether they did."""

from __future__ import annotations

from collections.abc import Iterator

from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.support import verdicts as made

ATTACKS = [
    made.NASTY,
    "``` \n```",
    "`` ` `````",
    "`",
    "\\`<img src=x onerror=alert(1)>`",
    "|---|---|",
    "</details><script>",
    "[a](javascript:x) ![b](http://x/y.png) <http://x>",
    "www.example.com me@example.com @team #12",
    "\r\n\r\n<b>\x85\u2028<i>",
    "   ",
]


def tokens(text: str) -> Iterator[Token]:
    """Every token, with HTML and tables allowed as on GitHub."""
    for token in MarkdownIt("commonmark", {"html": True}).enable("table").parse(text):
        yield token
        yield from token.children or ()


def html_of(text: str) -> list[str]:
    return [t.content.strip() for t in tokens(text) if t.type in ("html_block", "html_inline")]
