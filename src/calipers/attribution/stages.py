"""The stages of a build on the same examples: which of their steps lost the metric, and a sentence about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from calipers import models
from calipers.artifacts import stages as artifacts
from calipers.artifacts.manifest import FolderRefused
from calipers.artifacts.processor import gains_nothing
from calipers.artifacts.recipe import Recipe
from calipers.artifacts.records import Manifest, Stage
from calipers.attribution.case import Case
from calipers.attribution.records import StageFigure
from calipers.comparison.records import Comparison
from calipers.core import InferenceError, ModelError, RequestError

# What a stage does to the model before it.
STEPS = {"exported": "export", "optimized": "optimisation", "quantized": "quantisation"}

_ANOTHER = 0.05  # outputs that differ by more than this are of another model, not of other kernels


def build(case: Case) -> tuple[Manifest | None, int]:
    """As many stages as can be made, and the exit code of what could not."""
    plan, code = case.plan, 0
    floats = {name: path for name, path in plan.stages.items() if name != "quantized"}
    exported = {name: path for name, path in floats.items() if name == "exported"}
    fewer = replace(plan, recipe=Recipe("fp32"), calibration=None, options=replace(plan.options, stages=floats))
    fewest = replace(fewer, options=replace(plan.options, stages=exported, optimize=False))
    for attempt in (plan, fewer, fewest):
        try:
            return artifacts.make_stages(attempt, case.progress, built=case.folder), code
        except FolderRefused as error:
            raise RequestError(str(error).replace("`output`", "`work`")) from error
        except (ModelError, InferenceError, RequestError) as error:
            case.notes += [str(error)] if str(error) not in case.notes else []
            code = code or error.exit_code
    return None, code


def measure(model: str, manifest: Manifest | None, case: Case) -> list[StageFigure]:
    """Every stage on the same rows. Where nothing could be built, the PyTorch model alone."""
    if manifest is None:
        if models.find(model).backend != "torch":
            raise RequestError(case.notes[0])
        return [_figure("torch", model, None, [], case)]
    figures: list[StageFigure] = []
    for stage in manifest.stages:
        reference = model if stage.name == "torch" else stage.path
        figures.append(_figure(stage.name, reference, stage, figures, case))
        case.notes += [f"{stage.title}: {note}" for note in gains_nothing(stage, stage.speedup, case.plan.recipe)]
    return figures


def _figure(name: str, reference: str, stage: Stage | None, before: Sequence[StageFigure], case: Case) -> StageFigure:
    case.begin(f"Measuring the {name} stage")
    reason = None
    try:
        case.results[name] = case.evaluate(reference, torch=name == "torch")
    except InferenceError as error:
        if not before:  # without a baseline there is nothing to attribute
            raise
        reason = error.reason
    result = case.results.get(name)
    verdict = case.judge(before[0].stage, name) if before else None
    difference = stage.difference if stage else None
    return StageFigure(
        stage=name,
        path=reference,
        metrics=dict(result.metrics) if result else {},
        value=result.metrics[case.metric.name] if result else None,
        verdict=verdict,
        step=case.judge(before[-1].stage, name) if before else None,
        label=None if not before else verdict.label if verdict else "INVALID",
        size=stage.size if stage else 0,
        p50=stage.latency.p50 if stage else 0.0,
        speedup=stage.speedup if stage else None,
        p95=stage.latency.p95 if stage else 0.0,
        difference=difference.largest if difference else None,
        bound=difference.bound if difference else None,
        run=result.run_id if result and case.store else None,
        reason=reason,
        notes=stage.notes if stage else (),
        title=_title(name, stage, case),
        settings=_settings(stage) if stage else {},
    )


def _settings(stage: Stage) -> dict[str, Any]:
    """What the stage was made with, without what has an entry for each tensor or row."""
    settings = {key: value for key, value in stage.settings.items() if key != "made_with"}
    if "recipe" in settings:
        tensors = ("ranges", "calibrated", "smoothing")
        settings["recipe"] = {key: value for key, value in settings["recipe"].items() if key not in tensors}
    if settings.get("calibration"):
        calibration = settings["calibration"]
        settings["calibration"] = {"rows": len(calibration["rows"]), "fingerprint": calibration["fingerprint"]}
    return settings


def _title(name: str, stage: Stage | None, case: Case) -> str:
    """A file that was given keeps its name; a quantised stage is called by its precision."""
    given = case.plan.stages.get(name)
    return given.name if given else stage.title if stage else name


def loss_of(comparison: Comparison | None) -> float:
    """How much worse, as a share or in points, as the thresholds are; 0 where unknown."""
    if comparison is None or comparison.delta is None:
        return 0.0
    worse = -comparison.delta if comparison.higher_is_better else comparison.delta
    if not comparison.thresholds.relative:
        return worse
    return worse / abs(comparison.baseline) if comparison.baseline else (float("inf") if worse > 0 else 0.0)


def lost_steps(stages: Sequence[StageFigure]) -> list[StageFigure]:
    """The stages whose own step does not pass, the largest loss first.

    Invalid output is the largest loss. A float stage that is another model than the one before it counts even where
    the metric hardly moves. Where only all steps together are past the threshold, the largest is named.
    """
    steps = list(stages[1:])
    lost = [s for s in steps if s.invalid or s.differs or _is_past(s)]
    if not lost and steps and steps[-1].verdict is not None and steps[-1].verdict.estimate != "PASS":
        lost = sorted(steps, key=lambda s: -loss_of(s.step))[:1]
    return sorted(lost, key=lambda s: (not s.invalid, not _is_another(s), not _is_past(s), -loss_of(s.step)))


def _is_another(figure: StageFigure) -> bool:
    """A float stage that is clearly another model: the stages after it were made from the wrong one."""
    return figure.differs and (figure.difference is None or figure.difference > _ANOTHER)


def _is_past(figure: StageFigure) -> bool:
    return figure.step is not None and figure.step.estimate != "PASS"


def sentence(stages: Sequence[StageFigure], lost: Sequence[StageFigure], metric: str) -> str:
    """For example "The loss comes from quantisation (−9.1 % ± 1.2 of map); export and optimisation are clean (…)."."""
    undecided = not lost and stages[-1].label == "INCONCLUSIVE"
    little = [] if lost or undecided else [s for s in stages[1:] if _is_worse(s.step)]
    clean = [s for s in stages[1:] if s not in lost and s not in little]
    rest = ""
    if clean:
        names = [name for s in clean for name in _steps(s, stages)]
        state = "within it" if undecided else "clean"
        largest = max(clean, key=lambda s: abs(s.step.delta) if s.step and s.step.delta is not None else -1.0)
        rest = f"{_join(names)} {'is' if len(names) == 1 else 'are'} {state} ({change(largest.step)})"
    if not lost:
        if len(stages) < 2:
            return "There is only one stage: there is nothing to compare it with."
        if undecided:
            return f"No step is past its threshold, but the examples do not settle the last one: {rest}."
        if not little:
            return f"No step is past its threshold: {rest}."
    where = "The loss comes from" if lost else "The small loss, within the thresholds, comes from"
    parts = [_blame(s, _join(_steps(s, stages)), metric) for s in lost or little]
    return f"{where} {_join(parts)}{f'; {rest}' if rest else ''}."


def _is_worse(step: Comparison | None) -> bool:
    """Whether all of the interval is a loss, and the loss shows in the printed digits."""
    if step is None or step.interval is None or change(step)[0] not in "−+":
        return False
    return step.interval[1] < 0 if step.higher_is_better else step.interval[0] > 0


def _steps(figure: StageFigure, stages: Sequence[StageFigure]) -> list[str]:
    """What lies between a stage and the one before it; a float graph that was there already was exported, too."""
    whole = figure.stage == "optimized" and stages[0].stage == "torch" and stages[1] is figure
    return ["export", "optimisation"] if whole else [STEPS[figure.stage]]


def _blame(figure: StageFigure, name: str, metric: str) -> str:
    if figure.invalid:
        return f"{name} (its output is invalid: {figure.reason})"
    if figure.differs and not _is_past(figure):
        far = "are not finite" if figure.difference is None else f"differ by {figure.difference:.2g}"
        return f"{name} (its outputs {far} from the stage before, though {metric} shows {change(figure.step)})"
    return f"{name} ({f'{change(figure.step)} of {metric}' if figure.step else 'not measured'})"


def change(comparison: Comparison | None) -> str:
    """The delta with half the width of its interval: in points, or in percent of the stage before.

    >>> from calipers.core import Thresholds
    >>> change(Comparison("map", True, 0.5, 0.4, -0.1, -0.2, (-0.15, -0.05), "PASS", "PASS", 1.0, None, None, 9, None,
    ...        Thresholds(0.05, 0.1), True))
    '−20.0 % ± 10.0'
    """
    if comparison is None or comparison.delta is None:
        return "unknown"
    scale, unit, digits = 1.0, " points", comparison.digits
    if comparison.thresholds.relative:
        unit = ""
        if comparison.baseline:
            scale, unit, digits = 100 / abs(comparison.baseline), " %", 1
    size = f"{abs(comparison.delta * scale):.{digits}f}"
    sign = "" if float(size) == 0 else "−" if comparison.delta < 0 else "+"
    ends = comparison.interval
    return f"{sign}{size}{unit}" + (f" ± {(ends[1] - ends[0]) / 2 * scale:.{digits}f}" if ends else "")


def _join(names: Sequence[str]) -> str:
    """
    >>> _join(["a", "b", "c"])
    'a, b and c'
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
