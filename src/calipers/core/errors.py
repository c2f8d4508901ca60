"""How things fail, and how texts of unknown origin are named in messages."""

from __future__ import annotations

from collections.abc import Sequence


class CalipersError(Exception):
    """Something the user can act on: the message is one sentence, the exit code says whose fault it is."""

    exit_code = 2


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
        self.reason = reason


class InvalidOutput(InferenceError):
    """The output of the model is unusable: non-finite, zero-norm or constant. `rows` are example ids.

    >>> str(InvalidOutput("the model gives NaN for 1 of 3 pairs (rows a)", ["a"]))
    'INVALID: the model gives NaN for 1 of 3 pairs (rows a)'
    """

    def __init__(self, reason: str, rows: Sequence[str]) -> None:
        super().__init__(f"INVALID: {reason}")
        self.reason, self.rows = reason, tuple(rows)


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


_EXTRAS = {
    "torch": ("torch", "transformers", "sentence-transformers", "onnx", "onnxscript"),
    "hub": ("datasets",),
    "mteb": ("mteb", "datasets"),
}


def install(extra: str) -> str:
    """The command that installs what an extra of this package needs; the package itself is on no index.

    >>> install("hub")
    'pip install datasets'
    """
    return f"pip install {' '.join(_EXTRAS[extra])}"
