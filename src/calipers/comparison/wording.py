"""How a verdict is put into words and figures: shared by the terminal, Markdown and JUnit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from calipers.comparison.records import Comparison, Example, Label, Verdict
from calipers.core import Thresholds, printable

NONE = "–"  # a number that there is not
MARK = "*"  # behind a metric that the verdict hangs on
# From good to bad: of several candidates, the worst one names the whole.
ORDER: tuple[Label, ...] = ("PASS", "AT_RISK", "INCONCLUSIVE", "REGRESSION", "INVALID")


def overall(verdicts: Sequence[Verdict]) -> Label:
    """The worst label: INVALID, then REGRESSION, INCONCLUSIVE, AT_RISK, PASS. At least one verdict."""
    return max((verdict.label for verdict in verdicts), key=ORDER.index)


def number(value: float | None, digits: int) -> str:
    """A value with the digits of its metric; a dash where it is unknown.

    >>> number(82.0512, 2), number(None, 2), number(12345678.9, 2)
    ('82.05', '–', '1.235e+07')
    """
    if value is None or not math.isfinite(value):
        return NONE
    return f"{value:.{digits}f}" if abs(value) < 1e6 else f"{value:.3e}"


def signed(value: float | None, digits: int) -> str:
    """A difference. One that is too small for the digits keeps its first figure, so that it does not look like none.

    >>> signed(-0.138, 2), signed(0.0, 2), signed(-0.0004, 2)
    ('-0.14', '0.00', '-0.0004')
    """
    if value is None or not math.isfinite(value):
        return NONE
    if value == 0:
        return number(0.0, digits)
    if abs(value) >= 1e6:
        return f"{value:+.3e}"
    return f"{value:+.{digits}f}" if abs(value) >= 0.5 * 10.0**-digits else f"{value:+.1g}"


def percent(share: float | None) -> str:
    """A relative difference.

    >>> percent(0.0711), percent(-0.0004), percent(499.1)
    ('+7.1%', '-0.04%', '+49910%')
    """
    if share is None or not math.isfinite(share):
        return NONE
    return f"{share:+.0%}" if abs(share) >= 10 else f"{signed(100 * share, 1)}%"


def certainty(share: float | None) -> str:
    """The share of resamples that agree, rounded down: 94.96% must not read as the 95% that it falls short of.

    >>> certainty(0.9496), certainty(1.0), certainty(None)
    ('94.9%', '100%', '–')
    """
    if share is None or not math.isfinite(share):
        return NONE
    return f"{math.floor(1000 * share + 1e-9) / 10:g}%"


def interval(ends: tuple[float, float] | None, digits: int) -> str:
    return f"{signed(ends[0], digits)} to {signed(ends[1], digits)}" if ends else NONE


def p_value(value: float | None) -> str:
    """
    >>> p_value(0.0314), p_value(0.00002), p_value(1.0)
    ('0.031', '<0.0001', '1')
    """
    if value is None or not math.isfinite(value):
        return NONE
    return "<0.0001" if value < 0.0001 else f"{value:.2g}"


def limit(thresholds: Thresholds, which: float) -> str:
    """
    >>> limit(Thresholds(0.025, 0.1), 0.025), limit(Thresholds(2.0, 4.0, relative=False), 4.0)
    ('2.5%', '4 points')
    """
    return f"{100 * which:g}%" if thresholds.relative else f"{which:g} points"


def plural(unit: str, count: int) -> str:
    """
    >>> plural("query", 300), plural("pair", 1)
    ('300 queries', '1 pair')
    """
    many = f"{unit[:-1]}ies" if unit.endswith("y") else f"{unit}s"
    return f"{count:,} {unit if count == 1 else many}"


def unit(verdict: Verdict) -> str:
    """What one example is called."""
    return str(verdict.bootstrap.get("unit") or verdict.baseline.bootstrap.get("unit") or "example")


def asked(verdict: Verdict) -> float | None:
    """The confidence that was asked for."""
    found = verdict.bootstrap.get("confidence", verdict.baseline.bootstrap.get("confidence"))
    return float(found) if found is not None else None


def interval_name(verdict: Verdict) -> str:
    wanted = asked(verdict)
    return "interval" if wanted is None else f"{100 * wanted:g}% interval"


def is_adjusted(verdicts: Sequence[Verdict]) -> bool:
    """Whether several things were compared at once, so that Holm's correction was needed."""
    return sum(c.adjusted_p is not None for verdict in verdicts for c in verdict.comparisons) > 1


def shown_p(comparison: Comparison) -> float | None:
    return comparison.p_value if comparison.adjusted_p is None else comparison.adjusted_p


def settings(differences: Mapping[str, tuple[Any, Any]]) -> str:
    """The settings in which the models differ: those that both state, then those that one backend alone speaks of.

    >>> settings({"dtype": ("float32", None), "pooling": ("cls", "mean"), "shape": (None, "[1, 512]")})
    'pooling cls → mean; only in the baseline: dtype float32; only in the candidate: shape [1, 512]'
    """

    def said(value: Any) -> str:
        return "none" if value == "" else shorten(str(value), 60)

    both = [f"{n} {said(a)} → {said(b)}" for n, (a, b) in differences.items() if a is not None and b is not None]
    first = [f"{name} {said(a)}" for name, (a, b) in differences.items() if b is None]
    second = [f"{name} {said(b)}" for name, (a, b) in differences.items() if a is None]
    parts = (("", both), ("only in the baseline: ", first), ("only in the candidate: ", second))
    return "; ".join(f"{words}{', '.join(found)}" for words, found in parts if found)


def reason(verdict: Verdict) -> str:
    """Why a candidate is INVALID, without the label in front."""
    told = verdict.reason or next((c.reason for c in verdict.comparisons if c.label == "INVALID" and c.reason), None)
    return printable(told or "its output could not be measured")


def note(comparison: Comparison, unit: str) -> str | None:
    """What a row of numbers cannot say of a metric: what would settle it, or why a number is missing."""
    if comparison.label == "INCONCLUSIVE":
        return f"{comparison.estimate} by the point estimate; {settling(comparison, unit)}"
    return printable(comparison.reason) if comparison.reason else None


def settling(comparison: Comparison, unit: str) -> str:
    if comparison.settled_by is None:
        why = f" ({printable(comparison.reason)})" if comparison.reason else ""
        return f"how many {plural(unit, 2)[2:]} would settle it cannot be told{why}"
    return f"about {plural(unit, about(comparison.settled_by))} would settle it"


def about(count: int) -> int:
    """Two figures of an estimate, rounded up.

    >>> about(412), about(1180703), about(37)
    (420, 1200000, 37)
    """
    unit = int(10 ** max(len(str(count)) - 2, 0))
    return -(-count // unit) * unit


def deciding(verdict: Verdict) -> Comparison | None:
    """The metric that made the label: of those that decide, the first with the verdict's own label."""
    decide = [c for c in verdict.comparisons if c.decides] or list(verdict.comparisons)
    return next((c for c in decide if c.label == verdict.label), None) or next(iter(decide), None)


def sentence(verdict: Verdict) -> str:
    """The verdict as a person would say it."""
    name = printable(verdict.candidate_name)
    if verdict.label == "INVALID":
        return f"{name} cannot be compared: {reason(verdict)}."
    chosen = deciding(verdict)
    if chosen is None:
        return f"{name}: {verdict.label}."
    return f"{name} {_OPENINGS[verdict.label]}: {change(chosen)}{_closing(verdict, chosen)}."


def change(comparison: Comparison) -> str:
    """
    >>> change(Comparison("map", True, 0.5, 0.4, -0.1, -0.2, None, "PASS", "PASS", 1.0, None, None, 9, None,
    ...        Thresholds(0.05, 0.1), True))
    'map goes from 0.50 to 0.40 (-0.10, -20.0%)'
    """
    digits, name = comparison.digits, comparison.metric
    if comparison.baseline is None or comparison.candidate is None:
        told = number(comparison.candidate, digits) if comparison.candidate is not None else "unknown"
        return f"{name} is {told}"
    old, new = number(comparison.baseline, digits), number(comparison.candidate, digits)
    if comparison.delta == 0:
        return f"{name} stays at {new}"
    relative = f", {percent(comparison.relative)}" if comparison.relative is not None else ""
    return f"{name} goes from {old} to {new} ({signed(comparison.delta, digits)}{relative})"


def tally(verdicts: Sequence[Verdict]) -> str:
    """How several candidates fared, in one sentence."""
    names = {label: [printable(v.candidate_name) for v in verdicts if v.label == label] for label in ORDER}
    parts = [f"{len(found)} {label} ({', '.join(found)})" for label, found in names.items() if found]
    return f"Of {len(verdicts)} candidates: {'; '.join(parts)}."


_OPENINGS = {
    "PASS": "passes",
    "AT_RISK": "is at risk",
    "REGRESSION": "is a regression",
    "INCONCLUSIVE": "is undecided",
}


def _closing(verdict: Verdict, comparison: Comparison) -> str:
    thresholds = comparison.thresholds
    passes, at_risk = limit(thresholds, thresholds.passes), limit(thresholds, thresholds.at_risk)
    if verdict.label == "INCONCLUSIVE":
        return f"{_agreement(verdict, comparison)}; {settling(comparison, unit(verdict))}"
    if verdict.label == "PASS" and is_better(comparison):
        return ", which is no loss"
    if verdict.label == "PASS":
        return f", within the {passes} that pass" if comparison.delta else ""
    if verdict.label == "AT_RISK":
        return f", past the {passes} that pass and short of the {at_risk} of a regression"
    return f", past the limit of {at_risk}"


def _agreement(verdict: Verdict, comparison: Comparison) -> str:
    if comparison.confidence is None:
        return f", which alone would be {comparison.estimate}"
    wanted = f", where {certainty(asked(verdict))} were asked for" if asked(verdict) is not None else ""
    return f", but only {certainty(comparison.confidence)} of resamples say {comparison.estimate} too{wanted}"


def is_better(comparison: Comparison) -> bool:
    """Whether the candidate is ahead in the metric's own direction."""
    delta = comparison.delta or 0.0
    return delta > 0 if comparison.higher_is_better else delta < 0


def values(example: Example, verdict: Verdict) -> list[tuple[str, str]]:
    """The outcomes of an example that tell what happened to it: (name, "old → new" or the one value).

    Those that the primary metric reads, as far as names tell (`cosine` of cosine_spearman), else the first three that
    changed; then what is the same for both by nature, such as a gold score.
    """
    metric = primary(verdict)
    pairs = {name: (old, example.candidate.get(name)) for name, old in example.baseline.items()}
    fixed = [name for name in pairs if _is_fixed(name, verdict)]
    moving = [name for name in pairs if name not in fixed]
    own = [name for name in moving if metric == name or metric.startswith(f"{name}_")]
    told = [(name, f"{_value(pairs[name][0])} → {_value(pairs[name][1])}") for name in own or moving[:3]]
    return [(name, _value(pairs[name][0])) for name in fixed] + told


def _is_fixed(name: str, verdict: Verdict) -> bool:
    """Equal in all examples shown, and no metric: a metric may stay the same by chance."""
    known = {*verdict.baseline.metrics, *(c.metric for c in verdict.comparisons)}
    same = all(_value(e.baseline.get(name)) == _value(e.candidate.get(name)) for e in verdict.worst)
    return same and name not in known


def _value(value: Any) -> str:
    if value is None:
        return NONE
    try:
        return f"{float(value):.4g}"
    except (TypeError, ValueError):
        return shorten(str(value), 40)


def cost(example: Example) -> str:
    """How much of the primary metric the example cost, in that metric's unit."""
    return f"{-example.share:.2g}"


def primary(verdict: Verdict) -> str:
    """The metric whose delta the worst examples are answerable for: the first one."""
    return verdict.comparisons[0].metric if verdict.comparisons else ""


def shorten(text: str, most: int) -> str:
    """One printable line of at most so many characters.

    >>> shorten("one two three", 8)
    'one two…'
    """
    line = printable(text[: 4 * most])
    return line if len(line) <= most and len(text) <= 4 * most else f"{line[: most - 1].rstrip()}…"
