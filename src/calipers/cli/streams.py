"""Standard output and standard error that never change the outcome of a command.

A reader that goes away (`calipers … | head`) is its own business: what follows is dropped, the work and the exit code
stay. A character that the encoding of the terminal lacks is replaced with a plain one.
"""

from __future__ import annotations

import codecs
import io
import json
import os
import re
import sys
import tempfile
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

PLAIN = "calipers.plain"  # the name of the error handler
_MOST_NATIVE = 1 << 20  # bytes of what libraries wrote that are shown
_PLAIN = {
    "–": "-", "—": "-", "−": "-", "…": "...", "→": "->", "←": "<-", "≥": ">=", "≤": "<=", "≈": "~", "±": "+/-",
    "×": "x", "·": "-", "•": "*", "°": "deg", "“": '"', "”": '"', "‘": "'", "’": "'", "│": "|", "┃": "|", "─": "-",
    "━": "-", "█": "#", "▇": "#", "░": ".", "σ": "sigma", "μ": "u", "µ": "u", "∞": "inf", "√": "sqrt",
}  # fmt: skip


def plain(character: str) -> str:
    """The character in ASCII: a usual spelling, the letter without its accent, or a question mark.

    >>> "".join(map(plain, "é – 5 ≥ 4 …")), plain("湯")
    ('e - 5 >= 4 ...', '?')
    """
    if character in _PLAIN:
        return _PLAIN[character]
    return unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode() or "?"


def _replace(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return "".join(map(plain, error.object[error.start : error.end])), error.end


codecs.register_error(PLAIN, _replace)


class Outlet(io.RawIOBase):
    """Writes to the raw file of a stream as long as it takes it. `failure` is why it does not, unless its reader went
    away."""

    def __init__(self, stream: Any, raw: Any) -> None:
        super().__init__()
        self.failure: OSError | None = None
        self._stream = stream  # kept: the file is closed with it
        self._raw = raw
        self._open = True

    def write(self, content: Any) -> int:
        if self._open:
            try:
                return int(self._raw.write(content))
            except OSError as error:
                self._open = False
                self.failure = None if isinstance(error, BrokenPipeError) else error
        return len(content)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return int(self._raw.fileno())

    def isatty(self) -> bool:
        return bool(self._raw.isatty())

    def redirect(self, number: int) -> None:
        """Write to the file with this number from now on; it is not closed."""
        self._raw = io.FileIO(number, "wb", closefd=False)


def open_outlets() -> list[Outlet]:
    """Put outlets in the place of standard output and standard error. A closed stream leads nowhere."""
    outlets = []
    for name in ("stdout", "stderr"):
        stream: Any = getattr(sys, name)
        if stream is None:  # closed
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
            continue
        buffer = getattr(stream, "buffer", None)
        raw = getattr(buffer, "raw", buffer)  # without a buffer of Python's own (PYTHONUNBUFFERED) it is the file
        if not isinstance(raw, io.RawIOBase):
            continue  # what a caller in this process put there
        stream.flush()
        outlets.append(Outlet(stream, raw))
        by_line = stream.line_buffering or raw is buffer
        outlet = io.BufferedWriter(outlets[-1])
        text = io.TextIOWrapper(outlet, encoding=stream.encoding, errors=PLAIN, line_buffering=by_line)
        setattr(sys, name, text)
    return outlets


@contextmanager
def capture_native(*, show: bool) -> Iterator[None]:
    """Keep what libraries in C++ and Rust write to the file of standard error, past Python: coloured lines, panics.
    With `show` they are printed at the end, cleaned. What Python prints goes where it went before."""
    try:
        kept = tempfile.TemporaryFile()  # noqa: SIM115
        terminal = os.dup(2)
    except OSError:  # standard error is closed, or there is no place for a file
        yield
        return
    own: list[Any] = [outlet for outlet in (sys.stdout, sys.stderr) if _goes_to(outlet, 2)]
    for stream in own:
        stream.flush()
        stream.buffer.raw.redirect(terminal)
    os.dup2(kept.fileno(), 2)
    try:
        yield
    finally:
        for stream in own:
            stream.flush()
        os.dup2(terminal, 2)
        for stream in own:
            stream.buffer.raw.redirect(2)
        os.close(terminal)
        with kept:
            if show:
                kept.seek(0)
                show_lines(kept.read(_MOST_NATIVE).decode("utf-8", "replace"))


def _goes_to(stream: Any, number: int) -> bool:
    raw = getattr(getattr(stream, "buffer", None), "raw", None)
    return isinstance(raw, Outlet) and raw.fileno() == number


def show_lines(text: str) -> None:
    """Print lines of unknown origin to standard error, each without control characters, logins and keys."""
    from calipers.core.errors import printable_lines
    from calipers.core.references import clean_text

    if lines := text.rstrip("\n"):
        with suppress(OSError):
            print(printable_lines(clean_text(lines)), file=sys.stderr)


def close_outlets(outlets: list[Outlet], code: int, *, as_json: bool = False) -> int:
    """The exit code after all is written: success that nobody could be shown is none."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    failures = [outlet.failure for outlet in outlets if outlet.failure]
    if failures and not code:
        sentence = f"the output cannot be written: {failures[0].strerror}"
        error = json.dumps({"error": sentence, "option": None, "exit": 2})
        print(error if as_json else f"calipers: {sentence}", file=sys.stderr, flush=True)
        return 2
    return code


def printable_json(content: str, encoding: str | None = None) -> str:
    """The document as the encoding can hold it: where it cannot, all beyond ASCII is escaped, and means the same.

    >>> printable_json('{"id": "é"}', "ascii"), printable_json('{"id": "é"}', "utf-8")
    ('{"id": "\\\\u00e9"}', '{"id": "é"}')
    """
    try:
        content.encode(encoding or sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return re.sub(r"[^\x00-\x7f]", lambda match: json.dumps(match[0])[1:-1], content)
    return content
