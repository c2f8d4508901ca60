"""The graph that lost, where it is already there: a build, or a repository with graphs, is examined as it is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from calipers import models
from calipers.artifacts.graphs import content_hash
from calipers.artifacts.manifest import read_builds
from calipers.artifacts.recipe import Recipe, make_recipe
from calipers.artifacts.records import FILES, BuildOptions
from calipers.artifacts.stages import BuildPlan
from calipers.attribution.records import AttributionOptions
from calipers.core import RequestError


@dataclass(frozen=True)
class HeldGraph:
    """`recipe` is how it was made, from the manifest of its folder; None where that is unknown."""

    graph: Path
    recipe: Recipe | None
    floats: Path | None  # the float graph of the same folder

    def is_made_again(self, sha256: str) -> bool:
        return self.recipe is not None and content_hash(self.graph) == sha256

    def given(self, plan: BuildPlan) -> BuildPlan:
        """The plan with this graph in the place of the quantised stage."""
        stages = {**plan.stages, "quantized": self.graph}
        return replace(plan, options=replace(plan.options, stages=stages))


def find_held(model: str, recipe: Recipe, build: BuildOptions, options: AttributionOptions) -> HeldGraph | None:
    """The graph of the precision in `options.built`, in the work folder or in the model's own; None where there is
    none, or where the recipe or a stage asks for another."""
    plain = recipe == Recipe(recipe.precision)
    if options.built is not None:
        if "quantized" in build.stages or not plain:
            raise RequestError("`built` names the graph that is examined: it goes with no other stage or recipe")
        held = _in_folder(options.built, recipe.precision)
        if held is None:
            builds = ", ".join(read_builds(options.built)) or "none"
            raise RequestError(
                f"`built` {options.built} holds no {FILES[recipe.precision]}: its precisions are {builds}"
            )
        return held
    if "quantized" in build.stages or not plain or recipe.precision == "fp32":
        return None
    places = [place for place in (options.work, models.find(model).path) if place is not None and place.is_dir()]
    return next((held for place in places if (held := _in_folder(place, recipe.precision))), None)


def other_precisions(held: HeldGraph | None, precision: str) -> dict[str, Path]:
    """The other quantised graphs of the folder of a held graph."""
    if held is None:
        return {}
    files = {name: held.graph.with_name(file) for name, file in FILES.items() if name not in (precision, "fp32")}
    return {name: file for name, file in files.items() if file.is_file()}


def float_model(model: str, held: HeldGraph | None) -> str:
    """What the stages begin with: the model, or the float graph of a folder that holds graphs only."""
    source = models.find(model)
    if held is None or source.backend != "onnx" or source.path is None or not source.path.is_dir():
        return model
    if held.floats is None:
        raise RequestError(
            f"{model} holds {held.graph.name} and no float graph to compare it with: name the PyTorch model, and this "
            "folder as `built`"
        )
    return str(held.floats)


def _in_folder(folder: Path, precision: str) -> HeldGraph | None:
    builds = read_builds(folder)
    if precision in builds:
        built = builds[precision]
        floats = Path(builds["fp32"].model) if "fp32" in builds else None
        return HeldGraph(Path(built.model), make_recipe(built.recipe, str(folder / "manifest.json")), floats)
    for place in (folder, folder / "onnx"):
        graph, floats = place / FILES[precision], place / FILES["fp32"]
        if graph.is_file():
            return HeldGraph(graph, None, floats if floats.is_file() else None)
    return None
