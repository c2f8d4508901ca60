"""What a fix may change of a recipe: settings, which cost nothing, and widths and nodes of the culprits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from calipers.artifacts.recipe import Recipe, for_target, make_recipe

_MOST_SETTINGS = 5  # to try


@dataclass(frozen=True)
class Change:
    """What a fix changes. Without a recipe the graph was made elsewhere, and is repaired."""

    how: str
    recipe: Recipe | None
    tensors: frozenset[str] = frozenset()  # kept in float

    def keeping(self, tensors: frozenset[str]) -> Change:
        return Change(f"{self.how}, with nodes kept in float", self.recipe, tensors)

    def widening(self, nodes: Sequence[str]) -> Change | None:
        """A mixture of w8a8 and w8a16: 16-bit activations of these nodes, whose weights stay as small."""
        recipe = self.recipe
        if recipe is None or recipe.precision != "w8a8" or not nodes:
            return None
        wide = tuple(dict.fromkeys((*recipe.wide, *nodes)))
        return Change(f"{self.how}, with 16-bit activations of {len(nodes)} nodes", replace(recipe, wide=wide))


def other_settings(recipe: Recipe, target: str | None = None) -> list[Change]:
    """Recipes that keep no further node in float, the most promising first. `target` is the processor's."""
    if recipe.precision == "int4":
        smaller = [Change("blocks of 16 weights", replace(recipe, block_size=16))] if recipe.block_size > 16 else []
        return [*smaller, *([] if recipe.symmetric else [Change("symmetric blocks", replace(recipe, symmetric=True))])]
    if recipe.precision in ("fp16", "fp32"):
        return []
    channels = [] if recipe.per_channel else [Change("a scale for each channel", replace(recipe, per_channel=True))]
    if recipe.precision == "int8-dynamic":
        return channels
    changes = _of_ranges(recipe, channels, target)
    return [change for change in changes if change.recipe != recipe][:_MOST_SETTINGS]


def _of_ranges(recipe: Recipe, channels: Sequence[Change], target: str | None) -> list[Change]:
    """For w8a8 and w8a16: what suits the processor, and on top of that SmoothQuant and other ranges."""
    fine = replace(recipe, per_channel=True, float_outputs=True)
    base = Change("a scale for each channel and results of products in float", fine)
    if implied := for_target(recipe.precision, target):
        suited = make_recipe({**recipe.to_dict(), **implied}, f"the target {target}")
        base = base if suited == fine else Change(f"the settings of the target {target}", suited)
    assert base.recipe is not None
    anew = recalibrated(base.recipe, recipe.calibration, recipe.percentile)
    same = "the same" if base.recipe != recipe else "the settings that it has"
    return [
        base,
        Change(f"{same} with SmoothQuant (0.5)", replace(anew, smooth=0.5)),
        *channels,
        *(
            Change(f"{same} with ranges by {name}", recalibrated(base.recipe, method, share))
            for name, method, share in (("percentile 99.99", "percentile", 99.99), ("entropy", "entropy", 99.999))
            if method != recipe.calibration
        ),
    ]


def recalibrated(recipe: Recipe, method: str, share: float) -> Recipe:
    """The recipe with ranges that are to be taken anew; ranges that it sets itself stay."""
    kept = {} if recipe.calibrated else recipe.ranges
    return replace(recipe, calibration=method, percentile=share, ranges=kept, calibrated={}, smoothing={})
