"""The search in the guilty step, with the real metric behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from calipers import artifacts as build
from calipers.attribution import divergence, float_step
from calipers.attribution.bench import Bench
from calipers.attribution.culprits import Found, find
from calipers.attribution.records import Culprit, Divergence, StageFigure
from calipers.attribution.scene import Scene, open_scene
from calipers.attribution.search import Ledger, Measured
from calipers.attribution.share import share_of_loss


@dataclass(frozen=True)
class Clues:
    """What a search came to. `scene` and `found` are for a fix of a quantised graph."""

    culprits: tuple[Culprit, ...] = ()
    divergence: tuple[Divergence, ...] = ()
    scene: Scene | None = None
    found: Found | None = None


def stage_before(figures: Sequence[StageFigure], guilty: StageFigure) -> StageFigure:
    return figures[[figure.stage for figure in figures].index(guilty.stage) - 1]


def search(bench: Bench, figures: Sequence[StageFigure], guilty: StageFigure, ledger: Ledger) -> Clues:
    """In a quantised graph: where tensors part, then what its parts bring back when they are restored."""
    scene = _scene(bench, figures, guilty)
    if not scene.where.understood:
        bench.notes.append("the graph shows no attention to count layers by: its parts are pieces of equal size")
    bench.progress.start("Looking for the first tensors that differ", 0)
    parted = tuple(scene.first_divergence())
    put_back = scene.put_back
    if put_back is None:
        bench.notes.append(
            f"{guilty.path} was made elsewhere and does not quantise by Q/DQ pairs: its nodes cannot be put back "
            "one by one, so that only the differences of its tensors are told"
        )
        return Clues(divergence=parted)
    ledger.measure = lambda tensors, what: bench.try_out(what, lambda target: put_back(tensors, target))
    if "quantized" not in bench.build_request.given:  # nodes are kept in float, and with them all that they own
        ledger.closure = lambda tensors: scene.graph.restored_by(scene.graph.owners_of(tensors))
    found = find(scene, ledger, lambda measured: _share(bench, guilty, measured))
    bench.notes += found.notes
    return Clues(_with_kernels(scene, found), parted, scene, found)


def _with_kernels(scene: Scene, found: Found) -> tuple[Culprit, ...]:
    told = list(found.culprits)
    if told:
        told[0] = replace(told[0], reasons=(*told[0].reasons, *scene.kernel_reasons()))
    return tuple(told)


def _scene(bench: Bench, figures: Sequence[StageFigure], guilty: StageFigure) -> Scene:
    before = Path(stage_before(figures, guilty).path)
    wanted = bench.build_request
    recipe = None if "quantized" in wanted.given else wanted.recipe
    ranges = bench.ranges(build.load_graph(before), recipe) if recipe and recipe.needs_ranges else None
    return open_scene(
        Path(guilty.path),
        before,
        divergence.look_at(wanted.rows, wanted.shape),
        output=wanted.source.output(wanted.pooled),
        recipe=recipe,
        ranges=ranges,
    )


def _share(bench: Bench, guilty: StageFigure, measured: Measured) -> tuple[float | None, tuple[float, float] | None]:
    """Of what the guilty step lost; unknown where it or the trial is dead."""
    broken = bench.results.get(guilty.stage)
    if broken is None or measured.result is None:
        return None, None
    names = list(bench.results)
    before = bench.results[names[names.index(guilty.stage) - 1]]
    confidence, seed = bench.request.confidence, bench.request.protocol.data_options.seed
    return share_of_loss(bench.metric, before, broken, measured.result, confidence=confidence, seed=seed)


def compare_floats(bench: Bench, figures: Sequence[StageFigure], guilty: StageFigure) -> Clues:
    """Two stages that should be the same model: the first layer that is not."""
    wanted = bench.build_request
    batch = divergence.look_at(wanted.rows, wanted.shape)
    bench.progress.start("Looking for the first tensor that differs", 0)
    before = stage_before(figures, guilty)
    after = Path(guilty.path)
    padded = any("attention mask" in note for note in guilty.notes)
    if before.stage != "torch":
        found = float_step.between_graphs(Path(before.path), after, batch, padded_only=padded)
    else:
        assert wanted.source.load is not None
        loaded = wanted.source.load().eval()
        forward = build.export.reference(loaded, wanted.source, pooled=False)
        found = float_step.from_torch(loaded, forward, after, batch, padded_only=padded)
    return Clues(tuple(found[0]), tuple(found[1]))
