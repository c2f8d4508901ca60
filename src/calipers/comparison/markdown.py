"""Verdicts and results as Markdown: for the summary page of a CI job, a pull request, a README.

What comes from data stands in code spans, where Markdown, HTML, links and mentions have no meaning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from calipers.comparison import wording
from calipers.comparison.records import Comparison, Example, Verdict
from calipers.core import Measurement, RequestError, Result, printable

_LONGEST = 400  # characters of an example's text


def verdicts_markdown(verdicts: Sequence[Verdict]) -> str:
    """A title with the label, a table per candidate, and its worst examples, folded away. At least one verdict."""
    baseline = verdicts[0].baseline
    many = f"{len(verdicts)} candidates" if len(verdicts) > 1 else code(verdicts[0].candidate_name)
    lines = [f"## {wording.overall(verdicts)}: {many} against {code(baseline.model.model_id)}", "", _subtitle(baseline)]
    for verdict in verdicts:
        lines += ["", *_verdict(verdicts, verdict)]
    return "\n".join(lines) + "\n"


def results_markdown(results: Sequence[tuple[Result, Measurement]]) -> str:
    """Each run with its metrics and their intervals."""
    parts = []
    for result, task in results:
        title = f"## {code(result.model.model_id)}: {result.task}"
        lines = [title, "", _subtitle(result), "", *_metrics(result, task)]
        lines += [f"\n> warning: {code(warning)}" for warning in result.warnings]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def append(path: Path, content: str) -> None:
    """Add to a file that others write to as well, such as the one that GITHUB_STEP_SUMMARY names."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(("\n" if file.tell() else "") + content)
    except OSError as error:
        raise RequestError(f"{path} cannot be written: {error.strerror}") from error


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


def _cell(text: str) -> str:
    """Inside a table a pipe ends the cell, in a code span too, unless a backslash stands before it."""
    return text.replace("|", "\\|")


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int]) -> list[str]:
    rule = ["---:" if i in right else "---" for i in range(len(header))]
    return [f"| {' | '.join(map(_cell, line))} |" for line in (header, rule, *rows)]


def _subtitle(result: Result) -> str:
    source, unit = result.dataset, str(result.bootstrap.get("unit") or "example")
    parts = [result.task, code(source.path)]
    parts += [f"configuration {code(source.name)}"] if source.name else []
    parts += [f"split {code(source.split)}"] if source.split else []
    run = [f"run {code(result.run_id)}"] if result.run_id else []
    return " · ".join([*parts, wording.plural(unit, len(result.outcomes)), *run])


def _verdict(verdicts: Sequence[Verdict], verdict: Verdict) -> Iterator[str]:
    if len(verdicts) > 1:
        yield f"### {verdict.label}: {code(verdict.candidate_name)}"
        yield ""
    yield _sentence(verdict)
    if verdict.comparisons:
        yield ""
        yield from _comparisons(verdicts, verdict)
    yield from _notes(verdict)
    if verdict.differences:
        yield ""
        yield f"Settings that differ: {code(wording.settings(verdict.differences))}"
    if verdict.worst:
        yield ""
        yield from _worst(verdict)


def _sentence(verdict: Verdict) -> str:
    """The closing sentence with the candidate's name, and a reason that may quote data, made harmless."""
    if verdict.label == "INVALID":
        return f"**INVALID**: {code(verdict.candidate_name)} cannot be compared: {code(wording.reason(verdict))}"
    told = wording.sentence(verdict).removeprefix(printable(verdict.candidate_name))
    return f"**{verdict.label}**: {code(verdict.candidate_name)}{_plain(told)}"


def _plain(text: str) -> str:
    """Our own words; only names of metrics may hold something that Markdown reads as its own."""
    return re.sub(r"([\\`*_\[\]<>])", r"\\\1", text)


def _comparisons(verdicts: Sequence[Verdict], verdict: Verdict) -> Iterator[str]:
    p = "p (Holm)" if wording.is_adjusted(verdicts) else "p"
    unit = wording.plural(wording.unit(verdict), 2)[2:]
    interval = wording.interval_name(verdict)
    header = ("metric", "baseline", "candidate", "delta", "relative", interval, "label", "confidence", p, unit)
    rows = [_row(c) for c in verdict.comparisons]
    yield from _table(header, rows, right=(1, 2, 3, 4, 5, 7, 8, 9))
    if len({c.decides for c in verdict.comparisons}) > 1:
        yield ""
        yield "The verdict hangs on what is bold."


def _row(comparison: Comparison) -> tuple[str, ...]:
    def strong(text: str) -> str:
        return f"**{text}**" if comparison.decides else text

    return (
        strong(code(comparison.metric)),
        wording.number(comparison.baseline, comparison.digits),
        wording.number(comparison.candidate, comparison.digits),
        wording.signed(comparison.delta, comparison.digits),
        wording.percent(comparison.relative),
        wording.interval(comparison.interval, comparison.digits),
        strong(comparison.label),
        wording.certainty(comparison.confidence),
        wording.p_value(wording.shown_p(comparison)),
        f"{comparison.examples:,}",
    )


def _notes(verdict: Verdict) -> Iterator[str]:
    told_above = wording.deciding(verdict)
    own = [c for c in verdict.comparisons if c is not told_above and (not c.reason or c.reason != verdict.reason)]
    notes = [(c, told) for c in own if (told := wording.note(c, wording.unit(verdict)))]
    if notes:
        yield ""
        yield from (f"- {code(c.metric)}: {code(told) if c.reason else _plain(told)}" for c, told in notes)


def _worst(verdict: Verdict) -> Iterator[str]:
    many = wording.plural(wording.unit(verdict), len(verdict.worst))
    yield f"<details><summary>The {many} that cost most</summary>"
    yield ""
    yield f"In {code(wording.primary(verdict))}:"
    yield ""
    for place, example in enumerate(verdict.worst, start=1):
        yield from _example(place, example, verdict)
    yield ""
    yield "</details>"


def _example(place: int, example: Example, verdict: Verdict) -> Iterator[str]:
    told = [code(f"{name} {value}") for name, value in wording.values(example, verdict)]
    number = f"{place}. "
    yield number + ", ".join([code(wording.shorten(example.id, 80)), f"cost {wording.cost(example)}", *told])
    for name, words in example.texts.items():
        yield f"{' ' * len(number)}- {code(name)}: {code(wording.shorten(words, _LONGEST))}"


def _metrics(result: Result, task: Measurement) -> list[str]:
    known = {metric.name: metric for metric in task.measures(task.options(**result.options))}
    confidence = result.bootstrap.get("confidence")
    header = ("metric", "value", f"{100 * confidence:g}% interval" if confidence else "interval", "what it is")
    rows = []
    for name, value in result.metrics.items():
        digits = known[name].digits if name in known else 4
        ends = result.intervals.get(name)
        span = f"{wording.number(ends[0], digits)} to {wording.number(ends[1], digits)}" if ends else wording.NONE
        about = known[name].about if name in known else ""
        rows.append((code(name), wording.number(value, digits), span, _plain(about)))
    return _table(header, rows, right=(1, 2))
