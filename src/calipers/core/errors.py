"""How things fail, and how texts of unknown origin are named in messages."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from calipers.core.references import clean_text

LONGEST_SENTENCE = 400  # characters of a message on a terminal


class CalipersError(Exception):
    """Something the user can act on: the message is one sentence, the exit code says whose fault it is. Addresses in
    it lose their login and query."""

    exit_code = 2

    def __init__(self, message: str = "") -> None:
        super().__init__(clean_text(message))


class RequestError(CalipersError):
    """The request cannot be carried out: an unknown task, a missing parameter, a file in the way."""


class DataError(RequestError):
    """The data are wrong: the message names file, line, column, what was expected and what was found."""


class ModelError(CalipersError):
    """The model cannot be loaded."""

    exit_code = 3


class InferenceError(CalipersError):
    """The model was loaded but gave no output; `reason` says why."""

    exit_code = 4

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = str(self)


class InvalidOutput(InferenceError):
    """The output of the model is unusable: non-finite, zero-norm or constant. `rows` are example ids.

    >>> str(InvalidOutput("the model gives NaN for 1 of 3 pairs (rows a)", ["a"]))
    'INVALID: the model gives NaN for 1 of 3 pairs (rows a)'
    """

    def __init__(self, reason: str, rows: Sequence[str]) -> None:
        super().__init__(f"INVALID: {reason}")
        self.reason, self.rows = clean_text(reason), tuple(rows)


@contextmanager
def boundary(kind: type[CalipersError], what: str) -> Iterator[None]:
    """Whatever fails inside, and is no error of ours, becomes an error of this kind: `what` and the reason. It may also
    decorate a function. A panic of a library in Rust is no Exception, so that everything is taken but an interrupt.

    >>> with boundary(DataError, "pairs.csv cannot be read"):
    ...     {}["column"]
    Traceback (most recent call last):
    calipers.core.errors.DataError: pairs.csv cannot be read: KeyError: 'column'
    """
    try:
        yield
    except (CalipersError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        if isinstance(getattr(error, "exit_code", None), int):  # an error of the command line
            raise
        raise kind(f"{what}: {explain(error)}") from error


_PLAIN = {
    RecursionError: "it is nested too deeply",
    MemoryError: "it needs more memory than there is",
}


def explain(error: BaseException) -> str:
    """One line on what went wrong, of any exception.

    >>> explain(RecursionError("maximum")), explain(ValueError("a\\nb")), explain(KeyError("x"))
    ('it is nested too deeply', 'a', "KeyError: 'x'")
    """
    for kind, words in _PLAIN.items():
        if isinstance(error, kind):
            return words
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    bare = isinstance(error, (KeyError, IndexError, AttributeError, AssertionError)) or not line
    return (f"{type(error).__name__}: {line}" if line else type(error).__name__) if bare else line


_QUOTE = reprlib.Repr()
_QUOTE.maxstring = _QUOTE.maxother = _QUOTE.maxlong = 80


def quote(value: object) -> str:
    """A value as an error shows it, at most a line long.

    >>> quote("a"), len(quote("a" * 10**6)) < 100, len(quote(10**4000)) < 100
    ("'a'", True, True)
    """
    try:
        return _QUOTE.repr(value)
    except ValueError:  # Python does not write whole numbers of more than 4,300 digits
        return f"a value of type {type(value).__name__} that is too long to show"


def shorten_sentence(message: str, most: int = LONGEST_SENTENCE) -> str:
    """A message of at most `most` characters: its middle is left out, since the end often says what to do.

    >>> shorten_sentence("abcdefghijkl", most=10)
    'abcdef … l'
    """
    if len(message) <= most:
        return message
    head = most * 2 // 3
    return f"{message[:head]} … {message[len(message) - (most - head - 3) :]}"


def name_some(names: Sequence[str], most: int = 5) -> str:
    """Name the first few and count the rest.

    >>> name_some(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def printable(text: str) -> str:
    """One line, without the control characters that names and texts may hold and a terminal would obey.

    >>> printable("a\\x1b[2J\\nb")
    'a�[2J b'
    """
    return "".join(c if c.isprintable() else "�" for c in " ".join(text.split()))


def printable_lines(text: str) -> str:
    """The same for several lines, whose indentation stays: a page, a traceback.

    >>> printable_lines("  a\\x1b[2J\\n\\u202eb")
    '  a�[2J\\n�b'
    """
    return "".join(c if c.isprintable() or c == "\n" else " " if c.isspace() else "�" for c in text)


_EXTRAS = {
    "torch": ("torch", "transformers", "sentence-transformers", "onnx", "onnxscript"),
    "hub": ("datasets",),
    "mteb": ("mteb", "datasets"),
    "ray": ("ray",),
    "slurm": ("submitit",),
}


def install(extra: str) -> str:
    """The command that installs what an extra of this package needs; the package itself is on no index.

    >>> install("hub")
    "pip install datasets (in a checkout: pip install '.[hub]')"
    """
    return f"pip install {' '.join(_EXTRAS[extra])} (in a checkout: pip install '.[{extra}]')"
