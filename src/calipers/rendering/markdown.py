"""Results as Markdown, and what other Markdown is made of: for the summary of a CI job, a pull request, a README.

What comes from data stands in code spans, where Markdown, HTML, links and mentions have no meaning.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from calipers.core import Measurement, RequestError, Result, Slices, printable
from calipers.core.files import held_open
from calipers.rendering.numbers import NONE, chosen_rows, count, data_parts, interval_name, number
from calipers.rendering.slices import slice_table


def results_markdown(results: Sequence[tuple[Result, Measurement[Any]]]) -> str:
    """Each run with its metrics and their intervals."""
    parts = []
    for result, task in results:
        title = f"## {code(result.model.model_id)}: {result.task}"
        lines = [title, "", subtitle(result), "", *_metrics(result, task)]
        lines += [line for slices in result.slices for line in _slices(result, task, slices)]
        lines += [f"\n> warning: {code(warning)}" for warning in result.warnings]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _metrics(result: Result, task: Measurement[Any]) -> list[str]:
    metrics = {metric.name: metric for metric in task.measures(task.options(**result.options))}
    header = ("metric", "value", interval_name(result.bootstrap.get("confidence")), "what it is")
    rows = []
    for name, value in result.metrics.items():
        digits, about = (metrics[name].digits, metrics[name].about) if name in metrics else (4, "")
        ends = result.intervals.get(name)
        span = f"{number(ends[0], digits)} to {number(ends[1], digits)}" if ends else NONE
        rows.append((code(name), number(value, digits), span, escape(about)))
    return table(header, rows, right=(1, 2))


def _slices(result: Result, task: Measurement[Any], slices: Slices) -> list[str]:
    metrics = task.measures(task.options(**result.options))
    digits = next((metric.digits for metric in metrics if metric.name == slices.metric), 4)
    header, rows = slice_table(slices, digits, task.unit, result.bootstrap.get("confidence"))
    cells = [(code(name), *values[:-1], escape(values[-1])) for name, *values in rows]
    notes = [line for note in slices.notes for line in ("", code(note))]
    return ["", f"By {code(slices.by)} ({code(slices.about)}):", "", *table(header, cells, right=(1, 2, 3)), *notes]


def subtitle(result: Result) -> str:
    """Task, data, number of examples and run, in one line."""
    parts = [result.task, *data_parts(result.dataset, code)]
    unit = str(result.bootstrap.get("unit") or "example")
    run = [f"run {code(result.run_id)}"] if result.run_id else []
    sample = f" ({chosen})" if (chosen := chosen_rows(result.dataset)) else ""
    return " · ".join([*parts, f"{count(unit, len(result.outcomes))}{sample}", *run])


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[int]) -> list[str]:
    """The lines of a table. A pipe would end a cell, in a code span too, unless a backslash stands before it."""
    rule = ["---:" if place in right else "---" for place in range(len(header))]
    lines = [[cell.replace("|", "\\|") for cell in line] for line in (header, rule, *rows)]
    return [f"| {' | '.join(line)} |" for line in lines]


def code(text: str) -> str:
    """Text of any origin as a code span, on one line.

    >>> code("a `b` c"), code("<b>|"), code(" ")
    ('`` a `b` c ``', '`<b>|`', '(empty)')
    """
    line = printable(text)
    if not line:
        return "(empty)"
    fence = "`" * (max(map(len, re.findall("`+", line)), default=0) + 1)
    return f"{fence} {line} {fence}" if "`" in line else f"{fence}{line}{fence}"


def escape(text: str) -> str:
    """Our own words; only names of metrics may hold something that Markdown reads as its own."""
    return re.sub(r"([\\`*_\[\]<>])", r"\\\1", text)


def append(path: Path, content: str) -> None:
    """Add to a file that others write to as well, such as the one that GITHUB_STEP_SUMMARY names."""
    try:
        with held_open(path), path.open("a", encoding="utf-8") as file:
            file.write(("\n" if file.seekable() and file.tell() else "") + content)
    except OSError as error:
        raise RequestError(f"{path} cannot be written: {error.strerror}") from error
