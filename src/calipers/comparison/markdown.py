"""Verdicts as Markdown: for the summary page of a CI job, a pull request, a README."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from calipers.comparison import settings, slices, wording
from calipers.comparison.candidates import candidate_table, shown_metric
from calipers.comparison.records import Comparison, Example, GateOptions, Verdict
from calipers.core import printable
from calipers.rendering.markdown import code, escape, subtitle, table
from calipers.rendering.numbers import shorten

_LONGEST = 400  # characters of an example's text


def verdicts_markdown(verdicts: Sequence[Verdict], gate: GateOptions | None = None) -> str:
    """A title with the label, a table of all candidates by the metric that decides, then for each a table of its other
    metrics and its worst examples, folded away. At least one verdict."""
    gate = gate or GateOptions()
    baseline = verdicts[0].baseline
    many = f"{len(verdicts)} candidates" if len(verdicts) > 1 else code(verdicts[0].candidate_name)
    name = code(verdicts[0].baseline_name or baseline.model.artifact)
    title = f"## {wording.outcome(verdicts, gate)}: {many} against {name}"
    about = subtitle(baseline)
    costs = f"{code(shown_metric(verdicts))}, with the chances of PASS/AT_RISK/REGRESSION:\n\n"
    costs += "\n".join(table(*candidate_table(verdicts, gate, code), right=range(1, 11)))
    last = escape(wording.rule(verdicts, gate, gate.exit_code([v.label for v in verdicts])))
    warnings = [f"> warning: {code(words)}" for words in settings.assumptions(verdicts)]
    notes = [escape(cut)] if (cut := settings.truncation(verdicts)) else []
    blocks = (block for verdict in verdicts for block in _blocks(verdicts, verdict))
    return "\n\n".join([title, about, costs, last, *notes, *warnings, *blocks]) + "\n"


def failure_markdown(message: str, baseline: str, candidates: Sequence[str]) -> str:
    """What a summary says of a comparison that came to no verdict."""
    names = ", ".join(map(code, candidates))
    return f"## No verdict: {names} against {code(baseline)}\n\n{code(message)}\n"


def _blocks(verdicts: Sequence[Verdict], verdict: Verdict) -> Iterator[str]:
    """Parts of the text that empty lines separate."""
    if len(verdicts) > 1:
        yield f"### {verdict.label}: {code(verdict.candidate_name)}"
    yield _sentence(verdict)
    if others := [c for c in verdict.comparisons if c.metric != shown_metric(verdicts)]:
        decide = any(c.decides for c in others)
        yield f"Other metrics{', those in bold decide, too' if decide else ', which do not decide'}:"
        yield _comparisons(verdicts, verdict, others)
    if unread := wording.unread(verdict):
        yield "\n".join(f"- {escape(words)}" for words in unread)
    if notes := wording.notes(verdict):
        yield "\n".join(f"- {code(c.metric)}: {code(words) if c.reason else escape(words)}" for c, words in notes)
    if words := settings.in_words(verdict.differences):
        yield f"Settings that differ: {code(f'{verdict.candidate_name}: {words}')}"
    for changes in verdict.slices:
        yield f"{code(changes.metric)} by {code(changes.by)} ({code(changes.about)}):"
        cells = [(code(name), *values, escape(note)) for name, *values, note in slices.rows(changes)]
        yield "\n".join(table(slices.HEADER, cells, right=slices.RIGHT))
        yield code(slices.sentence(changes, wording.unit(verdict)))
        yield from map(code, changes.notes)
    if verdict.worst:
        yield f"<details><summary>{wording.worst_title(verdict)}</summary>"
        yield f"In {code(wording.primary(verdict))}:"
        examples = enumerate(verdict.worst, start=1)
        yield "\n".join(line for place, example in examples for line in _example(place, example, verdict))
        yield "</details>"


def _sentence(verdict: Verdict) -> str:
    """The closing sentence with the candidate's name, and a reason that may quote data, made harmless."""
    if verdict.label == "INVALID":
        return f"**INVALID**: {code(verdict.candidate_name)} cannot be compared: {code(wording.reason(verdict))}"
    words = wording.sentence(verdict).removeprefix(printable(verdict.candidate_name))
    return f"**{verdict.label}**: {code(verdict.candidate_name)}{escape(words)}"


def _comparisons(verdicts: Sequence[Verdict], verdict: Verdict, others: Sequence[Comparison]) -> str:
    rows = []
    for comparison in others:
        metric, *values, label, chances, p, examples = comparison.cells()
        strong = "**{}**" if comparison.decides else "{}"
        rows.append((strong.format(code(metric)), *values, strong.format(label), chances, p, examples))
    return "\n".join(table(wording.header(verdicts, verdict), rows, right=wording.RIGHT))


def _example(place: int, example: Example, verdict: Verdict) -> Iterator[str]:
    outcomes = [code(f"{name} {value}") for name, value in wording.values(example, verdict)]
    number = f"{place}. "
    yield number + ", ".join([code(shorten(example.id, 80)), f"cost {wording.cost(example)}", *outcomes])
    for name, words in example.texts.items():
        yield f"{' ' * len(number)}- {code(name)}: {code(shorten(words, _LONGEST))}"
