"""Which stage lost it, and the sentence a person would write about that."""

from __future__ import annotations

from collections.abc import Sequence

from calipers.attribution.records import StageFigure
from calipers.comparison.records import Comparison

# What a stage does to the model before it.
STEPS = {"exported": "export", "optimized": "optimisation", "quantized": "quantisation"}

_ANOTHER = 0.05  # outputs that differ by more than this are of another model, not of other kernels


def loss_of(comparison: Comparison | None) -> float:
    """How much worse, as a share where thresholds are shares and in points where they are points; 0 where unknown."""
    if comparison is None or comparison.delta is None:
        return 0.0
    worse = -comparison.delta if comparison.higher_is_better else comparison.delta
    if not comparison.thresholds.relative:
        return worse
    return worse / abs(comparison.baseline) if comparison.baseline else (float("inf") if worse > 0 else 0.0)


def is_dead(figure: StageFigure) -> bool:
    return figure.label == "INVALID"


def lost_steps(stages: Sequence[StageFigure]) -> list[StageFigure]:
    """The stages whose own step does not pass, the largest loss first.

    Dead output is the largest loss there is. A float stage that is not the same model as the one before it counts
    even where the metric hardly moves: what it lost is there, the examples do not show it. Where no single step is
    past the threshold and the whole is, the largest of the small ones is named.
    """
    steps = list(stages[1:])
    found = [s for s in steps if is_dead(s) or s.differs or (s.step is not None and s.step.estimate != "PASS")]
    if not found and steps and steps[-1].verdict is not None and steps[-1].verdict.estimate != "PASS":
        found = sorted(steps, key=lambda s: -loss_of(s.step))[:1]
    return sorted(found, key=lambda s: (not is_dead(s), not _is_another(s), not _is_past(s), -loss_of(s.step)))


def _is_another(figure: StageFigure) -> bool:
    """A float stage that is plainly another model: what comes after it was made from the wrong one."""
    return figure.differs and (figure.difference is None or figure.difference > _ANOTHER)


def _is_past(figure: StageFigure) -> bool:
    return figure.step is not None and figure.step.estimate != "PASS"


def sentence(stages: Sequence[StageFigure], lost: Sequence[StageFigure], metric: str) -> str:
    """
    "The loss comes from quantisation (−9.1 % ± 1.2 of cosine_spearman); export and optimisation are clean (…)".
    """
    little = [] if lost or stages[-1].label == "INCONCLUSIVE" else [s for s in stages[1:] if _is_worse(s.step)]
    clean = [s for s in stages[1:] if s not in lost and s not in little]
    told_clean = ""
    if clean:
        names = _join([STEPS[s.stage] for s in clean])
        state = "within it" if not lost and stages[-1].label == "INCONCLUSIVE" else "clean"
        told_clean = f"{names} {'is' if len(clean) == 1 else 'are'} {state} ({_largest(clean)})"
    if not lost:
        if len(stages) < 2:
            return "There is one stage only: nothing to compare it with."
        if stages[-1].label == "INCONCLUSIVE":
            return f"No step is past its threshold, but the examples do not settle the last one: {told_clean}."
        if not little:
            return f"Nothing is lost: {told_clean}."
    where = "The loss comes from" if lost else "The little that is lost, within the thresholds, comes from"
    parts = [_blame(s, metric) for s in lost or little]
    return f"{where} {_join(parts)}{f'; {told_clean}' if told_clean else ''}."


def _is_worse(step: Comparison | None) -> bool:
    """Whether all of the interval is a loss, and the loss shows in the digits that are told."""
    if step is None or step.interval is None or change(step)[0] not in "−+":
        return False
    return step.interval[1] < 0 if step.higher_is_better else step.interval[0] > 0


def _blame(figure: StageFigure, metric: str) -> str:
    name = STEPS[figure.stage]
    if is_dead(figure):
        return f"{name} (its output is dead: {figure.reason})"
    told = f"{change(figure.step)} of {metric}" if figure.step else "not measured"
    if figure.differs and not _is_past(figure):
        far = "are not finite" if figure.difference is None else f"differ by {figure.difference:.2g}"
        return f"{name} (its outputs {far} from the stage before, though {metric} shows {change(figure.step)})"
    return f"{name} ({told})"


def change(comparison: Comparison | None) -> str:
    """The delta with half the width of its interval: in points, or in percent of the stage before.

    >>> from calipers.core import Thresholds
    >>> change(Comparison("map", True, 0.5, 0.4, -0.1, -0.2, (-0.15, -0.05), "PASS", "PASS", 1.0, None, None, 9, None,
    ...        Thresholds(0.05, 0.1), True))
    '−20.0 % ± 10.0'
    """
    if comparison is None or comparison.delta is None:
        return "unknown"
    half = (comparison.interval[1] - comparison.interval[0]) / 2 if comparison.interval else None
    if not comparison.thresholds.relative:
        return _signed(comparison.delta, half, " points", comparison.digits)
    if not comparison.baseline:
        return _signed(comparison.delta, half, "", comparison.digits)
    scale = 100 / abs(comparison.baseline)
    return _signed(comparison.delta * scale, None if half is None else half * scale, " %", 1)


def _signed(value: float, half: float | None, unit: str, digits: int) -> str:
    rounded = f"{abs(value):.{digits}f}"
    zero = float(rounded) == 0
    sign = "" if zero else "−" if value < 0 else "+"
    return f"{sign}{rounded}{unit}" + (f" ± {half:.{digits}f}" if half is not None else "")


def _largest(clean: Sequence[StageFigure]) -> str:
    """The largest change among the clean steps."""
    worst = max(clean, key=lambda s: abs(s.step.delta) if s.step and s.step.delta is not None else -1.0)
    return change(worst.step)


def _join(names: Sequence[str]) -> str:
    """
    >>> _join(["a", "b", "c"])
    'a, b and c'
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
