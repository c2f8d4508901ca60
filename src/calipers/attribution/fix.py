"""The fix: other settings first, which cost nothing, then nodes kept in float; measured, with its bill and recipe."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from calipers.artifacts import stages
from calipers.artifacts.calibrate import with_ranges
from calipers.artifacts.graphs import content_hash, content_size
from calipers.artifacts.masks import mask_nodes
from calipers.artifacts.processor import this_target
from calipers.artifacts.recipe import Recipe, call_text, make_recipe, write_recipe
from calipers.artifacts.records import STAGES
from calipers.attribution.case import Case
from calipers.attribution.changes import Change, other_settings
from calipers.attribution.culprits import CulpritSearch, make_sure
from calipers.attribution.quantized import QuantizedGraph
from calipers.attribution.records import BillLine, Fix, FrontierLine
from calipers.attribution.trials import INVALID, Evaluation, OutOfBudget, smallest_prefix
from calipers.core import InferenceError

_JOINT = 6  # evaluations: the best settings with 16-bit activations of culprits, and with culprits in float

Tried = list[tuple[Change, Evaluation]]


def reserve(case: Case) -> int:
    """How many evaluations a search for culprits leaves for the fix: those of settings and of settings with culprits,
    but at most half of the budget."""
    settings = len(other_settings(case.recipe, this_target())) if case.recipe else 0
    return min(settings + _JOINT, case.options.budget // 2)


def mend(case: Case, search: CulpritSearch) -> Fix | None:
    """The fix of a quantised graph: of the settings and nodes that pass, the smallest graph, then the fastest; None
    where there is nothing to try."""
    case.ledger.reserved = 0
    tried = _try_all(case, search)
    change = _best(case, tried)
    if change is None:
        return None
    fix = _faster(case, search.graph, _build(case, search.graph, change))
    lines = [_line(f"{c.how}: {e.nodes}" if e.nodes else c.how, e) for c, e in tried]
    frontier = sorted([*lines, *_restored(case, lines), *_already_built(case)], key=rank)
    wide = fix.recipe["wide"] if fix.recipe else ()
    return replace(fix, frontier=tuple(frontier), kept=_why(search, fix.nodes), wide=_why(search, wide))


def _try_all(case: Case, search: CulpritSearch) -> Tried:
    """Settings that keep no further node in float; where none of them passes and is faster than float, the best of them
    with some of the culprits in 16 bits or in float, and the culprits alone."""
    tried = _try_settings(case, search.graph, case.recipe) if case.recipe else []
    if _has_good(tried):
        return tried
    nearest = _nearest(case, tried)
    if nearest:
        tried += try_together(case, search, nearest)
    tensors = make_sure(search, case.ledger)
    if tensors is None:
        tensors = frozenset(name for culprit in search.culprits for name in culprit.tensors)
    if tensors:
        alone = Change("nodes kept in float", case.recipe, tensors)
        tried.append((alone, case.ledger.seen(tensors) or INVALID))
    return tried


def _try_settings(case: Case, graph: QuantizedGraph, recipe: Recipe) -> Tried:
    """Until one passes and is faster than float: the first is as small as the others, and as fast."""
    tried: Tried = []
    for change in other_settings(recipe, this_target()):
        evaluation = try_change(case, graph, change)
        if evaluation is None:
            break
        tried.append((change, evaluation))
        if _is_good(evaluation):
            break
    return tried


def try_together(case: Case, search: CulpritSearch, nearest: Change) -> Tried:
    """These settings with 16-bit activations of 1, 2, 4, … culprits, which makes nothing larger, as long as that is
    faster than float; else with the fewest culprits in float that pass. The largest suspects come first."""
    tried: Tried = []

    def attempt(change: Change) -> Evaluation:
        evaluation = try_change(case, search.graph, change)
        if evaluation is None:
            raise OutOfBudget
        tried.append((change, evaluation))
        return replace(evaluation, passes=evaluation.label == "PASS")

    suspects = sorted(search.culprits, key=lambda culprit: -(culprit.damage or 0.0))
    sets = [frozenset(culprit.tensors) for culprit in suspects]
    with suppress(OutOfBudget):
        for count in (2**power for power in range(len(sets).bit_length())):
            nodes = sorted(search.graph.view.owners_of(frozenset().union(*sets[:count])))
            mixed = nearest.widening(nodes)
            if mixed is None or (evaluation := attempt(mixed)).passes or _line("", evaluation).slower:
                break
    if sets and not _has_good(tried):
        sets += [frozenset(part.tensors) for part in search.others]
        smallest_prefix(sets, lambda tensors, _: attempt(nearest.keeping(tensors)), str)
    return tried


def _nearest(case: Case, tried: Tried) -> Change | None:
    """The settings with the best metric."""
    sign = 1 if case.metric.higher_is_better else -1
    valid = [(sign * e.value, i) for i, (_, e) in enumerate(tried) if e.value is not None]
    return tried[max(valid)[1]][0] if valid else None


def _best(case: Case, tried: Tried) -> Change | None:
    """The smallest graph that passes, then the fastest; one slower than float only where no other passes. Where none
    passes, the nearest."""
    passing = [(change, evaluation) for change, evaluation in tried if evaluation.label == "PASS"]
    if not passing:
        by_estimate = [(change, evaluation) for change, evaluation in tried if evaluation.passes]
        return by_estimate[-1][0] if by_estimate else _nearest(case, tried) or (tried[-1][0] if tried else None)
    return min(passing, key=lambda pair: rank(_line(pair[0].how, pair[1])))[0]


def _has_good(tried: Tried) -> bool:
    return any(_is_good(evaluation) for _, evaluation in tried)


def _is_good(evaluation: Evaluation) -> bool:
    return evaluation.label == "PASS" and not _line("", evaluation).slower


def _line(name: str, evaluation: Evaluation) -> FrontierLine:
    e = evaluation
    return FrontierLine(name, e.value, e.label, e.size, e.p50, e.speedup)


def rank(line: FrontierLine) -> tuple[bool, bool, float, float]:
    """What passes first, then what is not slower than float, then by size in steps of 2 %, then by speed."""
    return line.label != "PASS", line.slower, round(math.log(max(line.size, 1)) / 0.02), -(line.speedup or 0.0)


def _restored(case: Case, lines: Sequence[FrontierLine]) -> list[FrontierLine]:
    """The graphs of the search that pass, with nodes in float and the settings as they were, beyond `lines`."""
    seen = {(line.size, line.value) for line in lines}
    passing = [e for e in case.ledger.evaluations.values() if e.label == "PASS" and (e.size, e.value) not in seen]
    return [_line(f"{e.nodes} nodes kept in float", e) for e in passing]


def _already_built(case: Case) -> list[FrontierLine]:
    """The other precisions of the folder, measured on the same examples. Like those of the stages, these evaluations do
    not count, and runs that are stored are taken."""
    lines = []
    for name, path in case.built.items():
        case.begin(f"Measuring {name}, already built")
        try:
            evaluation = case.with_costs(case.assess(path), path)
        except InferenceError:
            evaluation = INVALID
        lines.append(_line(f"{name}, already built", evaluation))
    return lines


def _why(search: CulpritSearch, nodes: Sequence[str]) -> dict[str, str]:
    """Why each node stays in float: the culprit that it belongs to, and what its tensors show."""
    reasons = {}
    for node in nodes:
        culprit = next((c for c in search.culprits if node in c.nodes), None)
        part = culprit.name if culprit else next((p.name for p in search.others if node in p.nodes), "beside a culprit")
        reasons[node] = f"{part}: {culprit.reasons[0]}" if culprit and culprit.reasons else part
    return reasons


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
    times = case.latencies([sound, Path(guilty.path), target])
    costs = [(latency.p50, latency.times_as_fast(times[0])) for latency in times]
    bill = (
        BillLine("float", before.value, before.label, content_size(sound), *costs[0]),
        BillLine("broken", guilty.value, guilty.label, guilty.size, *costs[1]),
        BillLine("fixed", fixed.value, fixed.label, content_size(target), *costs[2]),
    )
    return Fix(how, fixed.passes, fixed.label, nodes, bill, str(target))


def _faster(case: Case, graph: QuantizedGraph, fix: Fix) -> Fix:
    """A fix that is slower than float saves nothing but space: the same with unsigned activations is tried, which
    onnxruntime's kernels for x86 run two to three times faster than signed ones (see docs/build.md)."""
    if not fix.passed or fix.recipe is None or (fix.bill[2].speedup or 1) >= 1:
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
