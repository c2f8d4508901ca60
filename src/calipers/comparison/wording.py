"""How a verdict is put into words: shared by the terminal, Markdown and JUnit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from calipers.comparison.records import (
    SEVERITY,
    Comparison,
    Example,
    GateOptions,
    Label,
    Question,
    Verdict,
    worst_label,
)
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


def outcome(verdicts: Sequence[Verdict], gate: GateOptions) -> Label:
    """The label that the exit code is about: the worst, or with `any` that of the best candidate."""
    if not gate.any:
        return overall(verdicts)
    order = {label: place for place, label in enumerate(SEVERITY)}
    return min((v.label for v in verdicts), key=lambda label: (gate.exit_code([label]) == 1, order[label]))


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
        return f"{_doubt(verdict, comparison)}; {settling(comparison, verdict)}"
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
    return _points(first), _points(second)


def _points(value: float) -> str:
    return f"{value:g} point{'' if value == 1 else 's'}"


# --- several candidates -------------------------------------------------------------------------------------------


def headline(verdicts: Sequence[Verdict], gate: GateOptions) -> str:
    """The verdict in one sentence: of one candidate its own, of several how many pass and which is the smallest."""
    if len(verdicts) == 1:
        return f"{sentence(verdicts[0])}{_cost(verdicts[0], '')}"
    passing = [v for v in verdicts if v.label == "PASS"]
    others = [label for label in SEVERITY[1:] if any(v.label == label for v in verdicts)]
    names = {label: [printable(v.candidate_name) for v in verdicts if v.label == label] for label in others}
    rest = ", ".join(f"{len(same)} {label} ({', '.join(same)})" for label, same in names.items())
    words = f"{len(passing)} of {len(verdicts)} candidates {'passes' if len(passing) == 1 else 'pass'}"
    chosen = smallest(verdicts, gate)
    return f"{words}{f'; {rest}' if rest else ''}.{_cost(chosen, ' Smallest: ') if chosen else ''}"


def accepted(verdicts: Sequence[Verdict], gate: GateOptions) -> list[Verdict]:
    """The candidates that pass, or else those that are at risk, where that does not fail."""
    sound = [v for v in verdicts if v.label == "PASS"]
    return sound or [v for v in verdicts if gate.exit_code([v.label]) == 0]


def smallest(verdicts: Sequence[Verdict], gate: GateOptions) -> Verdict | None:
    """Of the candidates that pass, the one with the fewest bytes; None where no size is known."""
    sized = [v for v in accepted(verdicts, gate) if v.candidate and v.candidate.model.size]
    return min(sized, key=lambda v: (v.candidate and v.candidate.model.size) or 0, default=None)


def best(verdicts: Sequence[Verdict], gate: GateOptions) -> Verdict | None:
    """Of the candidates that pass, the one with the best value of the metric that decides."""
    rows = [(v, c) for v in accepted(verdicts, gate) if (c := deciding(v)) and c.candidate is not None]
    ranked = sorted(rows, key=lambda row: (-1 if row[1].higher_is_better else 1) * (row[1].candidate or 0))
    return ranked[0][0] if ranked else None


def _cost(verdict: Verdict, opening: str) -> str:
    """Size and speed of a candidate beside the baseline's."""
    result, baseline = verdict.candidate, verdict.baseline
    if result is None or result.model.size is None:
        return ""
    size = numbers.megabytes(result.model.size)
    if not opening and baseline.model.size:
        size += f" instead of {numbers.megabytes(baseline.model.size)}"
    words = [size, *filter(None, [faster(verdict)])]
    return f"{opening}{printable(verdict.candidate_name)} ({', '.join(words)})." if opening else f" {', '.join(words)}."


def faster(verdict: Verdict) -> str:
    """How the median latencies compare, where the two models took turns; times of two occasions differ."""
    speeds = [side.speed if side else None for side in (verdict.baseline, verdict.candidate)]
    if not (speeds[0] and speeds[1]) or speeds[0].timed_at != speeds[1].timed_at:
        return ""
    ratio = speeds[0].p50_ms / speeds[1].p50_ms
    return f"{ratio:.1f} × as fast" if ratio >= 0.95 else f"{1 / ratio:.1f} × as slow"


def rule(verdicts: Sequence[Verdict], gate: GateOptions, code: int) -> str:
    """Which rule made the exit code."""
    labels = [verdict.label for verdict in verdicts]
    if len(verdicts) == 1:
        return f"Exit code {code}: {_rule_of(labels[0], gate)}."
    if gate.any:
        chosen = smallest(verdicts, gate)
        name = f", the smallest is {printable(chosen.candidate_name)}" if chosen else ""
        count = labels.count("PASS")
        words = f"{count} of {len(labels)} candidates {'passes' if count == 1 else 'pass'}"
        words = words if count or code else f"no candidate passes, but {_rule_of('AT_RISK', gate)}"
        return f"Exit code {code}: --any, and {words}{name}."
    if all(label == "PASS" for label in labels):
        return f"Exit code {code}: all {len(labels)} candidates pass (the worst one decides)."
    decided = next(v for v in verdicts if v.label == overall(verdicts))
    words = f"the worst of {len(labels)} candidates decides, {printable(decided.candidate_name)} ({decided.label})"
    return f"Exit code {code}: {words}; --any requires only one that does not fail."


def _rule_of(label: Label, gate: GateOptions) -> str:
    if label == "INCONCLUSIVE":
        return (
            "INCONCLUSIVE fails, by --fail-on inconclusive"
            if label in gate.failing
            else "INCONCLUSIVE is neither a pass nor a failure; --fail-on inconclusive makes it exit code 1"
        )
    if label == "AT_RISK":
        return f"AT_RISK {'fails, by' if label in gate.failing else 'does not fail without'} --fail-on at-risk"
    return f"{label} fails" if label in gate.failing else "the candidate passes"


# --- notes --------------------------------------------------------------------------------------------------------


def notes(verdict: Verdict) -> list[tuple[Comparison, str]]:
    """What the numbers of a metric do not say, except what the closing sentence says already."""
    closing = deciding(verdict)
    others = [c for c in verdict.comparisons if c is not closing and (not c.reason or c.reason != verdict.reason)]
    return [(c, words) for c in others if (words := note(c, verdict))]


def unread(verdict: Verdict) -> list[str]:
    """What became of the examples that a model has no vector for."""
    units, ids = numbers.plural(unit(verdict)), verdict.unread
    lines = [
        (ids.baseline, "only the baseline has no vector for: they count against it"),
        (ids.candidate, "only the candidate has no vector for: they count against it"),
        (ids.both, "neither model has a vector for: they are left out of correlations and fail in a search"),
    ]
    return [printable(f"{len(rows)} {units} (rows {name_some(rows)}) that {words}") for rows, words in lines if rows]


def note(comparison: Comparison, verdict: Verdict) -> str | None:
    """What a row of numbers cannot say of a metric: what would settle it, or why a number is missing."""
    if comparison.label == "INCONCLUSIVE":
        return f"{comparison.estimate} by the point estimate; {settling(comparison, verdict)}"
    return printable(comparison.reason) if comparison.reason else None


def settling(comparison: Comparison, verdict: Verdict) -> str:
    """How many examples would settle it, and what can be done where the data has fewer."""
    noun = unit(verdict)
    if comparison.settled_by is None:
        why = f" ({printable(comparison.reason)})" if comparison.reason else ""
        return f"how many {numbers.plural(noun)} would settle it is unknown{why}"
    words = f"about {numbers.count(noun, numbers.round_up(comparison.settled_by))} would settle it"
    source = verdict.baseline.dataset
    rows = source.rows_read - source.rows_blank
    first_ones = source.requested is not None and not source.shuffle  # what follows them was not read
    if first_ones or not comparison.examples <= rows < comparison.settled_by:
        return words
    unmeasured = "measure them all, " if rows > comparison.examples else ""
    return f"{words}, and the data has {rows:,}: {unmeasured}add data or set a wider --threshold"


def reason(verdict: Verdict) -> str:
    """Why a candidate is INVALID, without the label in front."""
    reasons = (verdict.reason, *(c.reason for c in verdict.comparisons if c.label == "INVALID"))
    return printable(next(filter(None, reasons), "its output could not be measured"))


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
