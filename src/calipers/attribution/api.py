"""attribute: build the stages, measure each, search the step that lost most, and fix it."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path

from calipers import data, models, tasks
from calipers.artifacts import api as artifacts
from calipers.artifacts.graphs import read_proto
from calipers.artifacts.manifest import key_of
from calipers.artifacts.recipe import Recipe
from calipers.artifacts.records import BuildOptions
from calipers.artifacts.stages import BuildPlan
from calipers.attribution import culprits, fix, stages
from calipers.attribution.case import Case
from calipers.attribution.divergence import compare_floats
from calipers.attribution.graph_view import kind_of
from calipers.attribution.held import HeldGraph, find_held, float_model, other_precisions
from calipers.attribution.records import Attribution, AttributionOptions, Culprit, Divergence, Fix
from calipers.attribution.trials import shortage
from calipers.comparison.records import Label
from calipers.core import SILENT, CalipersError, Progress
from calipers.data import DataOptions
from calipers.runs import api as runs
from calipers.runs.protocol import Protocol
from calipers.runs.store import Store

_EXIT_CODES: dict[Label | None, int] = {"REGRESSION": 1, "INVALID": 1, "INCONCLUSIVE": 5}  # as `compare` has them


def attribute(
    model: str,
    *,
    recipe: Recipe,
    protocol: Protocol | None = None,
    build: BuildOptions | None = None,
    options: AttributionOptions | None = None,
    store: Store | None = None,
    progress: Progress = SILENT,
) -> Attribution:
    """Build every stage, measure each on the same rows, and search the step that lost most for its culprits.

    `recipe` says how the model is quantised, `protocol` what is measured, `build` how the stages are made. A stage
    that cannot be made or run ends the table there, with a note that says why and the exit code of that error. The
    search and the fix use at most `options.budget` evaluations; those of the stages do not count. Where the model's
    folder or `options.built` holds a graph of this precision, that one is examined.

    >>> attribute("./bert", recipe=Recipe("w8a8"), protocol=Protocol("fill-mask", dataset="texts.txt"))
    Attribution(bert, w8a8: ...)
    """
    start = time.perf_counter()
    protocol, build, options = protocol or Protocol(), build or BuildOptions(), options or AttributionOptions()
    held = find_held(model, recipe, build, options)
    recipe, floats = (held and held.recipe) or recipe, float_model(model, held)
    if floats != model:  # what the graph beside it was made of, as it is
        model, build = floats, replace(build, optimize=False)
    with tempfile.TemporaryDirectory(prefix="calipers-attribute-") as temporary:
        folder = options.work or (
            _work_folder(store, model, recipe, protocol, build) if store else Path(temporary) / "build"
        )
        plan = artifacts.plan(model, folder, recipe, build_options(recipe, protocol, build), progress=progress)
        built, place = other_precisions(held, recipe.precision), held.graph.parent if held else None
        case = Case(protocol, options, plan, store, progress, built=built, folder=place)
        if _measures_its_ranges(plan):
            case.notes.append(
                "the ranges are taken from rows that are measured too, since the data has no others: name other texts "
                "as `calibration` for figures that are held out"
            )
        attribution = _attribute(model, case, held)
    return replace(attribution, seconds=round(time.perf_counter() - start, 2))


def _attribute(model: str, case: Case, held: HeldGraph | None) -> Attribution:
    if held and held.recipe is None:
        case.plan = held.given(case.plan)
    manifest, code = stages.build(case)
    if held and held.recipe and manifest and not held.is_made_again(manifest.stages[-1].sha256):
        case.plan = held.given(case.plan)
        manifest, code = stages.build(case)
    if held:
        case.notes.append(f"examined: {held.graph}, which was there")
    case.stages = stages.measure(model, manifest, case)
    case.lost = stages.lost_steps(case.stages)
    given = case.plan.stages.get("quantized")
    if given and case.stages[-1].stage == "quantized" and kind_of(read_proto(given)) == "float":
        case.notes.append(f"no node of {given} is quantised: the quantised stage is a float graph")
    explanation: tuple[tuple[Culprit, ...], tuple[Divergence, ...], Fix | None] = (), (), None
    if case.lost:
        try:
            explanation = _explain(case)
        except CalipersError as error:
            case.notes.append(str(error))
        if case.ledger.ran_out:
            case.notes.append(shortage(case.ledger))
    elif case.options.fix and not code:
        case.notes.append("nothing was fixed: no step is past its threshold")
    if case.options.recipe_out and not (explanation[2] and explanation[2].recipe_file):
        why = "no fix has a recipe" if case.lost else "there is nothing to fix"
        case.notes.append(f"no recipe was written to {case.options.recipe_out}: {why}")
    return _attribution(case, *explanation, code)


def _explain(case: Case) -> tuple[tuple[Culprit, ...], tuple[Divergence, ...], Fix | None]:
    """The culprits of the guilty step, where its tensors diverge, and the fix."""
    if case.guilty.stage != "quantized":
        parts, divergence = compare_floats(case)
        return parts, divergence, fix.rebuild(case) if case.options.fix else None
    graph = culprits.open_guilty(case)
    case.begin("Looking for the first tensors that differ")
    divergence = tuple(graph.first_divergence())
    if not graph.restorable:
        case.notes.append(
            f"{case.guilty.path} was made elsewhere and has no Q/DQ pairs: its nodes cannot be restored one by one, "
            "so only the differences of its tensors are reported"
        )
        return (), divergence, None
    case.ledger.reserved = fix.reserve(case) if case.options.fix else 0
    search = culprits.search(case, graph)
    return search.culprits, divergence, fix.mend(case, search) if case.options.fix else None


def _measures_its_ranges(plan: BuildPlan) -> bool:
    rows, measured = plan.calibration, plan.options.excluded_ids  # the texts of a row are ROW:1, ROW:2
    return rows is not None and any({name, name.rpartition(":")[0]} & measured for name in rows.ids)


def _work_folder(store: Store, model: str, recipe: Recipe, protocol: Protocol, build: BuildOptions) -> Path:
    """A folder beside the store: the same request finds its stages there again."""
    key = key_of(
        str(models.find(model).path or model),
        protocol.task,
        recipe.to_dict(),
        {name: str(path) for name, path in build.stages.items()},
        [build.optimize, build.opset, build.static_shape, build.calibration, protocol.dataset],
    )
    return store.folder / "attribute" / f"{Path(model).name}-{recipe.precision}-{key[:8]}"


def build_options(recipe: Recipe, protocol: Protocol, build: BuildOptions) -> BuildOptions:
    """By default, ranges come from other rows of the data that are measured, if it has others."""
    others = replace(protocol.data_options, samples=None, seed=protocol.data_options.seed + 1, shuffle=True)
    measured: frozenset[str] = frozenset()
    own_texts = build.calibration not in (None, protocol.dataset)
    columns = build.columns or protocol.columns
    if own_texts and not build.columns and artifacts.has_texts(str(build.calibration), others):
        columns = {}  # the names are those of the data that are measured
    if recipe.needs_ranges and protocol.dataset and not own_texts:
        scored = tasks.find(protocol.task or runs.TASK).columns
        dataset = data.load_rows(protocol.dataset, scored, mapping=protocol.columns, options=protocol.data_options)
        measured = frozenset(dataset.ids)
    return replace(
        build,
        task=protocol.task or runs.TASK,
        calibration=build.calibration or protocol.dataset,
        excluded_ids=measured,
        columns=columns,
        data_options=build.data_options if build.data_options != DataOptions() else others,
        model_options=replace(protocol.model_options, output=None, batch_tokens=None, batch_size=None),
        accept_differences=True,
    )


def _attribution(
    case: Case, parts: tuple[Culprit, ...], divergence: tuple[Divergence, ...], mended: Fix | None, code: int
) -> Attribution:
    metric, baseline, ledger = case.metric, case.baseline, case.ledger
    return Attribution(
        model_id=case.plan.source.model_id,
        task=case.task.name,
        precision=case.plan.recipe.precision,
        metric=metric.name,
        higher_is_better=metric.higher_is_better,
        digits=metric.digits,
        unit=case.task.unit,
        examples=len(baseline.outcomes),
        dataset=baseline.dataset.path,
        stages=tuple(case.stages),
        guilty=case.guilty.stage if case.lost else None,
        sentence=stages.sentence(case.stages, case.lost, metric.name),
        culprits=parts,
        divergence=divergence,
        trials=tuple(ledger.trials),
        fix=mended,
        evaluations=len(ledger.trials),
        budget=case.options.budget,
        notes=tuple(dict.fromkeys((*case.notes, *ledger.notes))),
        exit_code=code or _EXIT_CODES.get(mended.label if mended else case.stages[-1].label, 0),
    )
