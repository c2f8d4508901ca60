"""The fix: other settings first, which cost nothing, then nodes kept in float; measured, with its bill and recipe."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from calipers.artifacts import stages
from calipers.artifacts.calibrate import with_ranges
from calipers.artifacts.graphs import content_hash, content_size
from calipers.artifacts.masks import mask_nodes
from calipers.artifacts.recipe import Recipe, call_text, make_recipe, write_recipe
from calipers.artifacts.records import STAGES
from calipers.attribution.case import Case
from calipers.attribution.culprits import CulpritSearch, make_sure
from calipers.attribution.quantized import QuantizedGraph
from calipers.attribution.records import BillLine, Fix
from calipers.attribution.trials import INVALID, Evaluation, OutOfBudget
from calipers.core import InferenceError

_MOST_SETTINGS = 3  # to try


@dataclass(frozen=True)
class Change:
    """What a fix changes. Without a recipe the graph was made elsewhere, and is repaired."""

    how: str
    recipe: Recipe | None
    tensors: frozenset[str] = frozenset()  # kept in float

    def keeping(self, tensors: frozenset[str]) -> Change:
        return Change(f"{self.how}, with nodes kept in float", self.recipe, tensors)


def mend(case: Case, search: CulpritSearch) -> Fix | None:
    """The fix of a quantised graph; None where there is nothing to try."""
    change = _smallest_change(case, search)
    return _faster(case, search.graph, _build(case, search.graph, change)) if change else None


def _smallest_change(case: Case, search: CulpritSearch) -> Change | None:
    passing, nearest = _try_settings(case, search.graph, case.recipe) if case.recipe else (None, None)
    if passing:
        return passing
    if nearest and (both := with_culprits(case, search, nearest)):
        return both
    tensors = make_sure(search, case.ledger)
    if tensors is None:
        tensors = frozenset(name for culprit in search.culprits for name in culprit.tensors)
        if nearest or not tensors:
            return nearest.keeping(tensors) if nearest else None
    return Change("nodes kept in float", case.recipe, tensors)


def _try_settings(case: Case, graph: QuantizedGraph, recipe: Recipe) -> tuple[Change | None, Change | None]:
    """The first settings with the label PASS, else None; and those with the best metric."""
    sign = 1 if case.metric.higher_is_better else -1
    best: tuple[float, Change] | None = None
    for change in other_settings(recipe, graph):
        evaluation = try_change(case, graph, change)
        if evaluation is None:
            break
        if evaluation.label == "PASS":
            return change, None
        if evaluation.value is not None and (best is None or sign * evaluation.value > best[0]):
            best = sign * evaluation.value, change
    return None, best[1] if best else None


def other_settings(recipe: Recipe, graph: QuantizedGraph) -> list[Change]:
    """Recipes that keep no further node in float, the most promising first."""
    if recipe.precision == "int4":
        smaller = [Change("blocks of 16 weights", replace(recipe, block_size=16))] if recipe.block_size > 16 else []
        return [*smaller, *([] if recipe.symmetric else [Change("symmetric blocks", replace(recipe, symmetric=True))])]
    if recipe.precision in ("fp16", "fp32"):
        return []
    channels = [] if recipe.per_channel else [Change("a scale for each channel", replace(recipe, per_channel=True))]
    if recipe.precision == "int8-dynamic":
        return channels
    kinds = [[r.name for r in graph.view.rounded if r.weight is kind] for kind in (True, False)]
    of_weights, of_activations = graph.damages(kinds)
    ranges = [
        Change(f"ranges by {name}", recalibrated(recipe, method, share))
        for name, method, share in (("percentile 99.99", "percentile", 99.99), ("entropy", "entropy", 99.999))
        if method != recipe.calibration
    ]
    both = [*channels, *ranges] if of_weights > of_activations else [*ranges, *channels]
    return both[:_MOST_SETTINGS]


def recalibrated(recipe: Recipe, method: str, share: float) -> Recipe:
    """The recipe with ranges that are to be taken anew; ranges that it sets itself stay."""
    kept = {} if recipe.calibrated else recipe.ranges
    return replace(recipe, calibration=method, percentile=share, ranges=kept, calibrated={})


def with_culprits(case: Case, search: CulpritSearch, nearest: Change) -> Change | None:
    """The best of the other settings with the culprits in float, where that has the label PASS and the culprits alone
    do not: it keeps fewer nodes in float than the next suspects would add."""
    if not search.tensors or case.ledger.is_sure(search.tensors):
        return None
    both = nearest.keeping(search.tensors)
    evaluation = try_change(case, search.graph, both)
    return both if evaluation and evaluation.label == "PASS" else None


def try_change(case: Case, graph: QuantizedGraph, change: Change) -> Evaluation | None:
    """Evaluate a change with a recipe; None where no evaluation is left."""
    what = f"Trying {change.how}"
    try:
        return case.ledger.count(what, lambda: case.try_out(what, lambda path: _write(case, graph, change, path)))
    except OutOfBudget:
        return None


def _write(case: Case, graph: QuantizedGraph, change: Change, target: Path) -> tuple[str, ...]:
    """Write the changed graph; returns the nodes that it keeps in float beyond those of the recipe."""
    if change.recipe is None:
        return graph.put_back(change.tensors, target)
    return graph.requantize(change.recipe, case.ranges(graph.floats, change.recipe), change.tensors, target)


def _build(case: Case, graph: QuantizedGraph, change: Change) -> Fix:
    target = case.plan.folder / "fixed" / "model.onnx"
    target.parent.mkdir(parents=True, exist_ok=True)
    nodes = _write(case, graph, change, target)
    count = len(graph.view.owners_of(rounded.name for rounded in graph.view.rounded))
    how = f"{change.how}: {len(nodes)} of {count}" if nodes else change.how
    fix = _bill(case, how, target, Path(case.before.path), nodes)
    if change.recipe is None:
        case.notes.append("the graph was made elsewhere: its repair has no recipe, the graph itself is the fix")
        return fix
    requested = change.recipe.excluding(nodes)
    recipe = with_ranges(requested, case.ranges(graph.floats, change.recipe), content_hash(graph.floats.path))
    file = case.options.recipe_out or target.with_name("recipe.yaml")
    write_recipe(recipe, file)
    call = call_text(requested, graph.floats.kinds, mask_nodes(graph.floats))
    return replace(fix, recipe=recipe.to_dict(), recipe_file=str(file), arguments=call)


def _bill(case: Case, how: str, target: Path, sound: Path, nodes: tuple[str, ...]) -> Fix:
    try:
        fixed = case.assess(target)
    except InferenceError as error:
        case.notes.append(f"the fix cannot be measured: {error}")
        fixed = INVALID
    before, guilty = case.before, case.guilty
    times = [latency.p50 for latency in case.latencies([sound, Path(guilty.path), target])]
    bill = (
        BillLine("float", before.value, before.label, content_size(sound), times[0]),
        BillLine("broken", guilty.value, guilty.label, guilty.size, times[1]),
        BillLine("fixed", fixed.value, fixed.label, content_size(target), times[2]),
    )
    return Fix(how, fixed.passes, fixed.label, nodes, bill, str(target))


def _faster(case: Case, graph: QuantizedGraph, fix: Fix) -> Fix:
    """A fix that is slower than float saves nothing but space: the same with unsigned activations is tried, which
    onnxruntime's kernels for x86 run two to three times faster than signed ones (see docs/build.md)."""
    if not fix.passed or fix.recipe is None or fix.bill[2].p50 < fix.bill[0].p50:
        return fix
    recipe = make_recipe(fix.recipe, "the fix")
    if not recipe.needs_ranges or recipe.unsigned or case.recipe is None:
        return fix
    unsigned = Change("unsigned activations", replace(recipe, unsigned=True))
    evaluation = try_change(case, graph, unsigned)
    if evaluation is None or evaluation.label != "PASS":
        return fix
    faster = replace(unsigned, how=f"{fix.how}, with unsigned activations for speed")
    return replace(_build(case, graph, faster), nodes=fix.nodes)


def rebuild(case: Case) -> Fix | None:
    """For a float step: the stage is made here instead of the given one; a stage made here is left out."""
    plan, guilty = case.plan, case.guilty.stage
    if guilty == "exported" and "exported" not in plan.stages:
        return None
    earlier = {name: path for name, path in plan.stages.items() if STAGES.index(name) < STAGES.index(guilty)}
    if plan.source.load is None and "exported" not in earlier:
        return None
    replaced = guilty in plan.stages
    how = f"the {guilty} stage made by calipers build" if replaced else "no optimisation"
    try:
        case.ledger.count(f"Building {how}", lambda: Evaluation(None, "PASS", passes=True))
    except OutOfBudget:
        return None
    options = replace(plan.options, stages=earlier, optimize=plan.options.optimize and replaced)
    manifest = stages.make_stages(replace(plan, folder=plan.folder / "rebuilt", options=options), case.progress)
    target = Path(manifest.stages[-1].path)
    sound = case.before.path if case.before.stage != "torch" else manifest.stage("exported").path
    return _bill(case, how, target, Path(sound), ())
