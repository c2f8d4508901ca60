"""The walk of an attribution: build, measure, search the step that lost most, fix."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from calipers import artifacts as build
from calipers import data, models, tasks
from calipers.artifacts import api as building
from calipers.artifacts.graphs import read_proto
from calipers.attribution import mending, searching
from calipers.attribution import stages as steps
from calipers.attribution.bench import Bench
from calipers.attribution.records import Attribution, Fix, StageFigure
from calipers.attribution.request import Request
from calipers.attribution.search import Ledger, Measured
from calipers.attribution.searching import Clues
from calipers.attribution.view import kind_of
from calipers.comparison import api as comparing
from calipers.core import SILENT, CalipersError, InferenceError, ModelError, Progress, RequestError
from calipers.data import DataOptions
from calipers.runs import api
from calipers.runs.store import Store


def attribute(model: str, request: Request, *, store: Store | None = None, progress: Progress = SILENT) -> Attribution:
    """Build every stage, measure each on the same rows, and search the step that lost most for what lost it.

    What cannot be made or run ends the table there, with a note that says why and that error's exit code. The search
    and the fix use at most `budget` evaluations; those of the stages are not counted, being stored like any other.
    """
    start = time.perf_counter()
    if request.folder is None:
        with tempfile.TemporaryDirectory(prefix="calipers-attribute-") as place:
            found = _attribute(model, request, Path(place) / "build", store, progress)
    else:
        found = _attribute(model, request, request.folder, store, progress)
    return replace(found, seconds=round(time.perf_counter() - start, 2))


def _attribute(model: str, request: Request, folder: Path, store: Store | None, progress: Progress) -> Attribution:
    wanted = building.build_request(model, folder, request.recipe, _wishes(request), progress=progress)
    bench = Bench(request, wanted, store, progress)
    manifest, code = _build(bench)
    figures = _measure(model, manifest, bench)
    lost = steps.lost_steps(figures)
    _tell_unquantized(bench, figures)
    ledger = Ledger(lambda tensors, what: Measured(None, "INVALID", passes=False), request.budget)
    clues, mended = Clues(), None
    if lost:
        try:
            clues, mended = _explain(bench, figures, lost[0], ledger)
        except CalipersError as error:
            bench.notes.append(str(error))
        if ledger.ran_out:
            bench.notes.append(f"the budget of {request.budget} evaluations ran out: --budget allows more")
    return _answer(bench, figures, lost, clues, mended, ledger, code)


def _tell_unquantized(bench: Bench, figures: Sequence[StageFigure]) -> None:
    """A graph that was given as quantised and is not: the table says nothing about quantisation."""
    path = bench.build_request.given.get("quantized")
    if path and figures[-1].stage == "quantized" and kind_of(read_proto(path)) == "float":
        bench.notes.append(f"no node of {path} is quantised: what stands as the quantised stage is a float graph")


def _explain(
    bench: Bench, figures: Sequence[StageFigure], guilty: StageFigure, ledger: Ledger
) -> tuple[Clues, Fix | None]:
    fix = bench.request.fix
    if guilty.stage != "quantized":
        clues = searching.compare_floats(bench, figures, guilty)
        return clues, mending.rebuild(bench, figures, guilty, ledger) if fix else None
    clues = searching.search(bench, figures, guilty, ledger)
    if not fix or clues.scene is None or clues.found is None:
        return clues, None
    return clues, mending.mend(bench, clues.scene, clues.found, figures, guilty, ledger)


# --- the stages --------------------------------------------------------------------------------------------------


def _wishes(request: Request) -> building.Wishes:
    """Where nothing else is said, ranges come from other rows of the data that are measured, if it has others."""
    asked, wish = request.protocol, request.build
    others = replace(asked.data_options, samples=None, seed=asked.data_options.seed + 1, shuffle=True)
    same = request.recipe.needs_ranges and asked.dataset and wish.calibration in (None, asked.dataset)
    return replace(
        wish,
        task=asked.task or api.TASK,
        calibration=wish.calibration or asked.dataset,
        not_on=_measured_ids(asked) if same else frozenset(),
        columns=wish.columns or asked.columns,
        data_options=wish.data_options if wish.data_options != DataOptions() else others,
        model_options=replace(asked.model_options, output=None, batch_tokens=None, batch_size=None),
        refuse=False,
    )


def _measured_ids(asked: comparing.Protocol) -> frozenset[str]:
    assert asked.dataset is not None
    task = tasks.find(asked.task or api.TASK)
    return frozenset(data.load_rows(asked.dataset, task.columns, mapping=asked.columns, options=asked.data_options).ids)


def _build(bench: Bench) -> tuple[build.Manifest | None, int]:
    """As many stages as can be made, and the exit code of what could not."""
    wanted, code = bench.build_request, 0
    sound = {name: path for name, path in wanted.given.items() if name != "quantized"}
    fewer = replace(wanted, recipe=build.Recipe("fp32"), calibration=None, given=sound)
    fewest = replace(fewer, optimize=False, given=_only(sound, "exported"))
    for attempt in (wanted, fewer, fewest):
        try:
            return build.build(attempt, bench.progress), code
        except (ModelError, InferenceError, RequestError) as error:
            bench.notes += [str(error)] if str(error) not in bench.notes else []
            code = code or error.exit_code
    return None, code


def _only(given: Mapping[str, Path], name: str) -> dict[str, Path]:
    return {key: path for key, path in given.items() if key == name}


def _measure(model: str, manifest: build.Manifest | None, bench: Bench) -> list[StageFigure]:
    """Every stage on the same rows. Where nothing could be built, the PyTorch model alone."""
    if manifest is None:
        if models.find(model).backend != "torch":
            raise RequestError(bench.notes[0])
        return [_figure("torch", model, None, bench, [])]
    found: list[StageFigure] = []
    for stage in manifest.stages:
        reference = model if stage.name == "torch" else stage.path
        found.append(_figure(stage.name, reference, stage, bench, found))
    return _timed(found, bench)


def _timed(figures: Sequence[StageFigure], bench: Bench) -> list[StageFigure]:
    """Graphs timed in turn: each was timed when it was built, maybe while the machine had other work."""
    graphs = [figure for figure in figures if figure.stage != "torch"]
    times = dict(zip((g.stage for g in graphs), bench.latencies([Path(g.path) for g in graphs]), strict=True))
    own = {figure.stage: (figure.p50, figure.p95) for figure in figures}
    both = {stage: times.get(stage, known) for stage, known in own.items()}
    return [replace(figure, p50=both[figure.stage][0], p95=both[figure.stage][1]) for figure in figures]


def _figure(
    name: str, reference: str, stage: build.Stage | None, bench: Bench, before: Sequence[StageFigure]
) -> StageFigure:
    bench.progress.start(f"Measuring the {name} stage", 0)
    reason = _evaluate(name, reference, bench, first=not before)
    result = bench.results.get(name)
    verdict = bench.judge(before[0].stage, name) if before else None
    difference = stage.difference if stage else None
    return StageFigure(
        stage=name,
        path=reference,
        metrics=dict(result.metrics) if result else {},
        value=result.metrics[bench.metric.name] if result else None,
        verdict=verdict,
        step=bench.judge(before[-1].stage, name) if before else None,
        label=None if not before else verdict.label if verdict else "INVALID",
        size=stage.size if stage else 0,
        p50=stage.latency.p50 if stage else 0.0,
        p95=stage.latency.p95 if stage else 0.0,
        difference=difference.largest if difference else None,
        bound=difference.bound if difference else None,
        run=result.run_id if result and bench.store else None,
        reason=reason,
        notes=stage.notes if stage else (),
    )


def _evaluate(name: str, reference: str, bench: Bench, *, first: bool) -> str | None:
    """Into the results, or why not; without a baseline there is nothing to tell."""
    try:
        bench.results[name] = bench.evaluate(reference, torch=name == "torch")
    except InferenceError as error:
        if first:
            raise
        return error.reason
    return None


# --- the answer --------------------------------------------------------------------------------------------------


def _answer(
    bench: Bench,
    figures: Sequence[StageFigure],
    lost: Sequence[StageFigure],
    clues: Clues,
    mended: Fix | None,
    ledger: Ledger,
    code: int,
) -> Attribution:
    metric, baseline = bench.metric, bench.baseline
    return Attribution(
        model_id=baseline.model.model_id,
        task=bench.task.name,
        precision=bench.request.recipe.precision,
        metric=metric.name,
        higher_is_better=metric.higher_is_better,
        digits=metric.digits,
        unit=bench.task.unit,
        examples=len(baseline.outcomes),
        dataset=baseline.dataset.path,
        stages=tuple(figures),
        guilty=lost[0].stage if lost else None,
        sentence=steps.sentence(figures, lost, metric.name),
        culprits=clues.culprits,
        divergence=clues.divergence,
        trials=tuple(ledger.trials),
        fix=mended,
        evaluations=len(ledger.trials),
        budget=bench.request.budget,
        notes=tuple(dict.fromkeys((*bench.notes, *ledger.notes))),
        exit_code=code or _code(figures, mended),
    )


def _code(figures: Sequence[StageFigure], mended: Fix | None) -> int:
    """That of `compare` for the last stage, or for the fix where there is one."""
    label = mended.label if mended else figures[-1].label
    return {"REGRESSION": 1, "INVALID": 1, "INCONCLUSIVE": 5}.get(label or "PASS", 0)
