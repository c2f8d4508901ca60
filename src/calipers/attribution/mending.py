"""The fix: the smallest change that passes, built where it stays, measured like a stage, with its bill and recipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from calipers import artifacts as build
from calipers.artifacts.graphs import content_size
from calipers.attribution import fix
from calipers.attribution.bench import Bench
from calipers.attribution.culprits import Found, make_sure
from calipers.attribution.records import BillLine, Fix, StageFigure
from calipers.attribution.scene import Scene, requantize
from calipers.attribution.search import Ledger, Measured, OutOfBudget
from calipers.attribution.searching import stage_before
from calipers.comparison.records import Label
from calipers.core import InferenceError, RequestError


def mend(
    bench: Bench, scene: Scene, found: Found, figures: Sequence[StageFigure], guilty: StageFigure, ledger: Ledger
) -> Fix | None:
    """Other settings, which cost nothing; then the nodes that were found, in float; then both. None: nothing to try."""
    found_fix = _mend(bench, scene, found, figures, guilty, ledger)
    return _hasten(bench, scene, found_fix, figures, guilty, ledger)


def _hasten(
    bench: Bench,
    scene: Scene,
    found: Fix | None,
    figures: Sequence[StageFigure],
    guilty: StageFigure,
    ledger: Ledger,
) -> Fix | None:
    """A fix that is slower than float saves nothing but space: the same with unsigned activations is tried, which
    onnxruntime's kernels for x86 take two to three times faster than signed ones (see docs/build.md)."""
    if found is None or not found.passed or found.recipe is None or found.bill[2].p50 < found.bill[0].p50:
        return found
    recipe = build.make_recipe(found.recipe, "the fix")
    if not recipe.needs_ranges or recipe.unsigned or "quantized" in bench.build_request.given:
        return found
    faster = replace(recipe, unsigned=True)
    try:
        measured = _try_recipe(bench, scene, "unsigned activations", faster, ledger)
    except OutOfBudget:
        return found
    if measured.label != "PASS":
        return found
    how = f"{found.how}, with unsigned activations for speed"
    return replace(_settle(bench, scene, how, faster, frozenset(), figures, guilty), nodes=found.nodes)


def _mend(
    bench: Bench, scene: Scene, found: Found, figures: Sequence[StageFigure], guilty: StageFigure, ledger: Ledger
) -> Fix | None:
    own = None if "quantized" in bench.build_request.given else bench.build_request.recipe
    passing, nearest = _other_settings(bench, scene, own, ledger) if own else (None, None)
    if passing:
        return _settle(bench, scene, *passing, frozenset(), figures, guilty)
    if nearest and (both := _with_settings(bench, scene, nearest, found, ledger)):
        return _settle(bench, scene, *both, figures, guilty)
    sure = make_sure(found, ledger)
    if sure is not None:
        return _settle(bench, scene, "nodes kept in float", own, sure, figures, guilty)
    tensors = frozenset(name for culprit in found.culprits for name in culprit.tensors)
    if nearest:
        how, recipe = nearest
        return _settle(bench, scene, f"{how}, with nodes kept in float", recipe, tensors, figures, guilty)
    return _settle(bench, scene, "nodes kept in float", own, tensors, figures, guilty) if tensors else None


Change = tuple[str, build.Recipe]


def _other_settings(
    bench: Bench, scene: Scene, recipe: build.Recipe, ledger: Ledger
) -> tuple[Change | None, Change | None]:
    """The first settings that pass for sure, else None; and those with the best metric."""
    sign = 1 if bench.metric.higher_is_better else -1
    best: tuple[float, Change] | None = None
    for how, other in fix.other_settings(recipe, scene):
        try:
            measured = _try_recipe(bench, scene, how, other, ledger)
        except OutOfBudget:
            break
        if measured.label == "PASS":
            return (how, other), None
        if measured.value is not None and (best is None or sign * measured.value > best[0]):
            best = sign * measured.value, (how, other)
    return None, best[1] if best else None


def _with_settings(
    bench: Bench, scene: Scene, nearest: Change, found: Found, ledger: Ledger
) -> tuple[str, build.Recipe, frozenset[str]] | None:
    """The best of the other settings with the culprits in float, where that passes for sure and the culprits alone do
    not: fewer nodes in float than the next suspects would add."""
    known = ledger.seen(found.tensors) if found.tensors else None
    if not found.tensors or (known is not None and known.label == "PASS"):
        return None
    how, recipe = nearest[0] + ", with nodes kept in float", nearest[1]
    try:
        measured = _try_recipe(bench, scene, how, recipe, ledger, found.tensors)
    except OutOfBudget:
        return None
    return (how, recipe, found.tensors) if measured.label == "PASS" else None


def _try_recipe(
    bench: Bench,
    scene: Scene,
    how: str,
    recipe: build.Recipe,
    ledger: Ledger,
    tensors: frozenset[str] = frozenset(),
) -> Measured:
    def write(target: Path) -> tuple[str, ...]:
        return requantize(scene, recipe, bench.ranges(scene.floats, recipe), tensors, target)

    what = f"Trying {how}"
    return ledger.count(what, lambda: bench.try_out(what, write))


def _settle(
    bench: Bench,
    scene: Scene,
    how: str,
    recipe: build.Recipe | None,
    tensors: frozenset[str],
    figures: Sequence[StageFigure],
    guilty: StageFigure,
) -> Fix:
    """Without a recipe the graph was made elsewhere, and is repaired; the recipe told is then for our own quantiser."""
    target = bench.folder / "fixed" / "model.onnx"
    target.parent.mkdir(parents=True, exist_ok=True)
    if recipe is None:
        assert scene.put_back is not None
        nodes = scene.put_back(tensors, target)
        told = replace(bench.build_request.recipe, exclude=nodes)
    else:
        nodes = requantize(scene, recipe, bench.ranges(scene.floats, recipe), tensors, target)
        told = replace(recipe, exclude=tuple(dict.fromkeys((*recipe.exclude, *nodes))))
    before = stage_before(figures, guilty)
    how = f"{how}: {len(nodes)} of {len(scene.graph.owners_of(r.name for r in scene.graph.rounded))}" if nodes else how
    return _with_recipe(bench, _bill(bench, how, target, Path(before.path), before, guilty, nodes), told, scene)


def _bill(
    bench: Bench,
    how: str,
    target: Path,
    sound: Path,
    before: StageFigure,
    guilty: StageFigure,
    nodes: tuple[str, ...],
) -> Fix:
    value, label, passed = _measure(bench, target)
    times = [p50 for p50, _ in bench.latencies([sound, Path(guilty.path), target])]
    bill = (
        BillLine("float", before.value, before.label, content_size(sound), times[0]),
        BillLine("broken", guilty.value, guilty.label, guilty.size, times[1]),
        BillLine("fixed", value, label, content_size(target), times[2]),
    )
    return Fix(how, passed, label, nodes, bill, str(target))


def _measure(bench: Bench, graph: Path) -> tuple[float | None, Label, bool]:
    try:
        result = bench.evaluate(str(graph))
    except InferenceError as error:
        bench.notes.append(f"the fix cannot be measured: {error}")
        return None, "INVALID", False
    found = bench.compare(bench.baseline, result)
    return result.metrics[bench.metric.name], found.label, found.estimate == "PASS"


def _with_recipe(bench: Bench, found: Fix, recipe: build.Recipe, scene: Scene) -> Fix:
    file = bench.request.recipe_file or Path(found.graph).with_name("recipe.yaml")
    told: str | None = None
    try:
        told = fix.told_arguments(recipe, scene.floats.kinds)
    except RequestError as error:  # nodes of a graph made elsewhere, under names that our stages do not have
        bench.notes.append(f"the nodes have no form in a recipe: {error}")
        return found
    build.write_recipe(recipe, file)
    return replace(found, recipe=recipe.told(), recipe_file=str(file), arguments=told)


def rebuild(bench: Bench, figures: Sequence[StageFigure], guilty: StageFigure, ledger: Ledger) -> Fix | None:
    """For a float step: the stage made here instead of the one that was given; made here, it is left out."""
    wanted = bench.build_request
    later = {"exported": ("exported", "optimized", "quantized"), "optimized": ("optimized", "quantized")}[guilty.stage]
    other = replace(wanted, given={n: p for n, p in wanted.given.items() if n not in later})
    how = f"the {guilty.stage} stage made by calipers build"
    if guilty.stage not in wanted.given:
        how, other = "no optimisation", replace(other, optimize=False)
    unbuildable = other.source.load is None and "exported" not in other.given
    if unbuildable or (guilty.stage == "exported" and "exported" not in wanted.given):
        return None
    try:
        ledger.count(f"Building {how}", lambda: Measured(None, "PASS", passes=True))
    except OutOfBudget:
        return None
    manifest = build.build(replace(other, folder=bench.folder / "rebuilt"), bench.progress)
    before = stage_before(figures, guilty)
    path = Path(manifest.stages[-1].path)
    sound = Path(before.path) if before.stage != "torch" else Path(manifest.stage("exported").path)
    return _bill(bench, how, path, sound, before, guilty, ())
