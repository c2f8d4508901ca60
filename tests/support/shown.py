"""What a person would read of a result or of verdicts, in a wide log."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.console import Console

from calipers import tasks
from calipers.comparison.records import Verdict
from calipers.comparison.text import show_verdicts
from calipers.core import Result
from calipers.rendering.text import show_result


def shown(result: Result) -> str:
    out = io.StringIO()
    show_result(Console(file=out, width=200), result, tasks.find(result.task))
    return out.getvalue()


def shown_verdicts(verdicts: Sequence[Verdict]) -> str:
    out = io.StringIO()
    show_verdicts(Console(file=out, width=200), verdicts)
    return out.getvalue()
