"""How a verdict is put into words: shared by the terminal, Markdown and JUnit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from calipers.comparison.records import SEVERITY, Comparison, Example, Label, Question, Verdict, worst_label
from calipers.core import Thresholds, name_some, printable
from calipers.core.rounding import percentage
from calipers.rendering import numbers
from calipers.rendering.numbers import NONE, chance, number, shorten

MARK = "*"  # behind a metric that the verdict depends on
RIGHT = (1, 2, 3, 4, 5, 7, 8, 9)  # columns of the table whose cells are numbers
_OPENINGS = {"PASS": "passes", "AT_RISK": "is at risk", "REGRESSION": "is a regression", "INCONCLUSIVE": "is undecided"}


def overall(verdicts: Sequence[Verdict]) -> Label:
    """The worst label of all candidates."""
    return worst_label((verdict.label for verdict in verdicts), question(verdicts[0]))


# --- the table of metrics -----------------------------------------------------------------------------------------


def header(verdicts: Sequence[Verdict], verdict: Verdict) -> tuple[str, ...]:
    """Of the cells of a comparison. p-values are by Holm where several things were compared at once."""
    adjusted = sum(c.adjusted_p is not None for v in verdicts for c in v.comparisons) > 1
    p, units = "p (Holm)" if adjusted else "p", numbers.plural(unit(verdict))
    ends = interval_name(verdict)
    return ("metric", "baseline", "candidate", "delta", "relative", ends, "label", "chances", p, units)


def unit(verdict: Verdict) -> str:
    """What one example is called."""
    return str(verdict.bootstrap.get("unit") or verdict.baseline.bootstrap.get("unit") or "example")


def question(verdict: Verdict) -> Question:
    """What the exit code is about: REGRESSION, or AT_RISK and worse."""
    return "AT_RISK" if verdict.bootstrap.get("question") == "AT_RISK" else "REGRESSION"


def required_confidence(verdict: Verdict) -> float | None:
    """The chance from which on the answer is yes, and below whose complement it is no."""
    share = verdict.bootstrap.get("confidence", verdict.baseline.bootstrap.get("confidence"))
    return float(share) if share is not None else None


def interval_name(verdict: Verdict) -> str:
    return numbers.interval_name(required_confidence(verdict))


# --- sentences ----------------------------------------------------------------------------------------------------


def sentence(verdict: Verdict) -> str:
    """The verdict as a person would say it."""
    name = printable(verdict.candidate_name)
    if verdict.label == "INVALID":
        return f"{name} cannot be compared: {reason(verdict)}."
    chosen = deciding(verdict)
    if chosen is None:
        return f"{name}: {verdict.label}."
    return f"{name} {_OPENINGS[verdict.label]}: {change(chosen)}{_closing(verdict, chosen)}."


def deciding(verdict: Verdict) -> Comparison | None:
    """The metric that made the label: of those that decide, the first with the verdict's own label."""
    decide = [c for c in verdict.comparisons if c.decides] or list(verdict.comparisons)
    return next((c for c in decide if c.label == verdict.label), None) or next(iter(decide), None)


Effect = Literal["better", "worse", "unchanged", "no clear change", "unknown"]


def effect(comparison: Comparison) -> Effect:
    """What became of a metric, whatever is tolerated: better or worse where the interval of the difference leaves out
    0, unchanged where there is no difference at all."""
    delta, interval = comparison.delta, comparison.interval
    if delta is None:
        return "unknown"
    if delta == 0 and (interval is None or interval == (0.0, 0.0)):
        return "unchanged"
    if interval is None or interval[0] <= 0 <= interval[1]:
        return "no clear change"
    return "better" if (interval[0] > 0) == comparison.higher_is_better else "worse"


def change(comparison: Comparison) -> str:
    """
    >>> change(Comparison("map", True, 0.5, 0.4, -0.1, -0.2, None, "PASS", "PASS", 1.0, None, None, 9, None,
    ...        Thresholds(0.05, 0.1), True))
    'map goes from 0.50 to 0.40 (-0.10, -20.0%)'
    """
    digits, name = comparison.digits, comparison.metric
    if comparison.baseline is None or comparison.candidate is None:
        return f"{name} is {'unknown' if comparison.candidate is None else number(comparison.candidate, digits)}"
    old, new = number(comparison.baseline, digits), number(comparison.candidate, digits)
    if comparison.delta == 0:
        return f"{name} stays at {new}"
    relative = f", {comparison.relative_text}" if comparison.relative is not None else ""
    return f"{name} goes from {old} to {new} ({comparison.delta_text}{relative})"


def _closing(verdict: Verdict, comparison: Comparison) -> str:
    passes, at_risk = limits(comparison.thresholds)
    if verdict.label == "INCONCLUSIVE":
        return f"{_doubt(verdict, comparison)}; {settling(comparison, unit(verdict))}"
    return _ending(verdict, comparison, passes, at_risk) + (
        f" ({printable(comparison.reason)})" if comparison.reason else ""
    )


def _ending(verdict: Verdict, comparison: Comparison, passes: str, at_risk: str) -> str:
    if verdict.label == "PASS" and (comparison.delta or 0) * (1 if comparison.higher_is_better else -1) > 0:
        return ", which is a gain" if effect(comparison) == "better" else ", which is no loss"
    if verdict.label == "PASS":
        return f", within the {passes} that pass" if comparison.delta else ""
    if verdict.label == "AT_RISK":
        return f", past the {passes} that pass and short of the {at_risk} of a regression"
    return f", past the limit of {at_risk}"


def _doubt(verdict: Verdict, comparison: Comparison) -> str:
    """Why the exit code is in doubt."""
    if comparison.chances is None:
        why = f" ({printable(comparison.reason)})" if comparison.reason and comparison.settled_by else ""
        return f", which alone would be {comparison.estimate} ({_bounds(comparison.thresholds)}){why}"
    what, share = question(verdict), required_confidence(verdict)
    passes, at_risk = limits(comparison.thresholds)
    name = f"a REGRESSION (a loss of {at_risk} or more)"
    if what == "AT_RISK":
        name = f"AT_RISK or worse (a loss of {passes} or more)"
    rule = ""
    if share is not None:
        rule = f", where {percentage(1 - share)} at most passes and {percentage(share)} at least fails"
    return f", but the chance of {name} is {chance(comparison.chances.at_least(what))}%{rule}"


def _bounds(thresholds: Thresholds) -> str:
    passes, at_risk = limits(thresholds)
    return f"a loss below {passes} passes, one of {at_risk} or more is a REGRESSION"


def limits(thresholds: Thresholds) -> tuple[str, str]:
    """Up to where a loss passes, and from where on it is a regression.

    >>> limits(Thresholds(0.025, 0.1)), limits(Thresholds(2.0, 4.0, relative=False))
    (('2.5%', '10%'), ('2 points', '4 points'))
    """
    first, second = thresholds.passes, thresholds.at_risk
    if thresholds.relative:
        return percentage(first), percentage(second)
    return f"{first:g} points", f"{second:g} points"


def tally(verdicts: Sequence[Verdict]) -> str:
    """How several candidates fared, in one sentence."""
    names = {label: [printable(v.candidate_name) for v in verdicts if v.label == label] for label in SEVERITY}
    parts = [f"{len(same)} {label} ({', '.join(same)})" for label, same in names.items() if same]
    return f"Of {len(verdicts)} candidates: {'; '.join(parts)}."


# --- notes --------------------------------------------------------------------------------------------------------


def notes(verdict: Verdict) -> list[tuple[Comparison, str]]:
    """What the numbers of a metric do not say, except what the closing sentence says already."""
    closing = deciding(verdict)
    others = [c for c in verdict.comparisons if c is not closing and (not c.reason or c.reason != verdict.reason)]
    return [(c, words) for c in others if (words := note(c, unit(verdict)))]


def unread(verdict: Verdict) -> list[str]:
    """What became of the examples that a model has no vector for."""
    units, ids = numbers.plural(unit(verdict)), verdict.unread
    lines = [
        (ids.baseline, "only the baseline has no vector for: they count against it"),
        (ids.candidate, "only the candidate has no vector for: they count against it"),
        (ids.both, "neither model has a vector for: they are left out of correlations and fail in a search"),
    ]
    return [printable(f"{len(rows)} {units} (rows {name_some(rows)}) that {words}") for rows, words in lines if rows]


def note(comparison: Comparison, unit: str) -> str | None:
    """What a row of numbers cannot say of a metric: what would settle it, or why a number is missing."""
    if comparison.label == "INCONCLUSIVE":
        return f"{comparison.estimate} by the point estimate; {settling(comparison, unit)}"
    return printable(comparison.reason) if comparison.reason else None


def settling(comparison: Comparison, unit: str) -> str:
    if comparison.settled_by is None:
        why = f" ({printable(comparison.reason)})" if comparison.reason else ""
        return f"how many {numbers.plural(unit)} would settle it is unknown{why}"
    return f"about {numbers.count(unit, numbers.round_up(comparison.settled_by))} would settle it"


def reason(verdict: Verdict) -> str:
    """Why a candidate is INVALID, without the label in front."""
    reasons = (verdict.reason, *(c.reason for c in verdict.comparisons if c.label == "INVALID"))
    return printable(next(filter(None, reasons), "its output could not be measured"))


def settings(differences: Mapping[str, tuple[Any, Any]]) -> str:
    """The settings in which the models differ: those that both state, then those that one backend alone has.

    >>> settings({"dtype": ("float32", None), "pooling": ("cls", "mean"), "shape": (None, "[1, 512]")})
    'pooling cls → mean; only in the baseline: dtype float32; only in the candidate: shape [1, 512]'
    """

    def show(value: Any) -> str:
        return "none" if value == "" else shorten(str(value), 60)

    both = [f"{n} {show(a)} → {show(b)}" for n, (a, b) in differences.items() if a is not None and b is not None]
    first = [f"{name} {show(a)}" for name, (a, b) in differences.items() if b is None]
    second = [f"{name} {show(b)}" for name, (a, b) in differences.items() if a is None]
    parts = (("", both), ("only in the baseline: ", first), ("only in the candidate: ", second))
    return "; ".join(f"{words}{', '.join(pairs)}" for words, pairs in parts if pairs)


# --- the worst examples -------------------------------------------------------------------------------------------


def worst_title(verdict: Verdict) -> str:
    return f"The {numbers.count(unit(verdict), len(verdict.worst))} that cost most"


def values(example: Example, verdict: Verdict) -> list[tuple[str, str]]:
    """The outcomes of an example that show what happened to it: (name, "old → new" or the one value).

    Those that the primary metric reads, by their names (`cosine` of cosine_spearman), else the first three that
    changed; then what is the same for both by nature, such as a gold score.
    """
    metric = primary(verdict)
    pairs = {name: (old, example.candidate.get(name)) for name, old in example.baseline.items()}
    fixed = [name for name in pairs if _is_fixed(name, verdict)]
    moving = [name for name in pairs if name not in fixed]
    read = [name for name in moving if metric == name or metric.startswith(f"{name}_")]
    changes = [(name, f"{_value(pairs[name][0])} → {_value(pairs[name][1])}") for name in read or moving[:3]]
    return [(name, _value(pairs[name][0])) for name in fixed] + changes


def _is_fixed(name: str, verdict: Verdict) -> bool:
    """Equal in all examples shown, and no metric: a metric may stay the same by chance."""
    metrics = {*verdict.baseline.metrics, *(c.metric for c in verdict.comparisons)}
    same = all(_value(e.baseline.get(name)) == _value(e.candidate.get(name)) for e in verdict.worst)
    return same and name not in metrics


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
    """The metric whose delta the worst examples account for: the first one."""
    return verdict.comparisons[0].metric if verdict.comparisons else ""
