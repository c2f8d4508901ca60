"""What to change so that a quantised model passes: other settings first, which cost nothing, then nodes in float."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from calipers.artifacts import Call, Recipe, arguments
from calipers.attribution.scene import Scene

_MOST = 3  # settings to try


def other_settings(recipe: Recipe, scene: Scene) -> list[tuple[str, Recipe]]:
    """Recipes without another node in float, the most promising first: (what changes, the recipe)."""
    if recipe.precision == "int4":
        smaller = [("blocks of 16 weights", replace(recipe, block_size=16))] if recipe.block_size > 16 else []
        return [*smaller, *([] if recipe.symmetric else [("symmetric blocks", replace(recipe, symmetric=True))])]
    if recipe.precision in ("fp16", "fp32"):
        return []
    channels = [] if recipe.per_channel else [("a scale for each channel", replace(recipe, per_channel=True))]
    if recipe.precision == "int8-dynamic":
        return channels
    names = {r.name: r.weight for r in scene.graph.rounded}
    kinds = [[name for name, weight in names.items() if weight is kind] for kind in (True, False)]
    ofweights, ofactivations = scene.damages(kinds)
    ranges = [
        (f"ranges by {told}", replace(recipe, calibration=method, percentile=share))
        for told, method, share in (("percentile 99.99", "percentile", 99.99), ("entropy", "entropy", 99.999))
        if method != recipe.calibration
    ]
    both = [*channels, *ranges] if ofweights > ofactivations else [*ranges, *channels]
    return both[:_MOST]


def call_text(call: Call) -> str:
    """The call of onnxruntime's own quantiser, one argument a line.

    >>> print(call_text(Call("onnxruntime.quantization.quantize_dynamic", {"per_channel": True})))
    onnxruntime.quantization.quantize_dynamic(
        "model.onnx",
        "quantized.onnx",
        per_channel=True,
    )
    """
    files = ['"model.onnx"', '"quantized.onnx"']
    if call.function.endswith("quantize_static"):
        files.append("calibration_data_reader")
    elif not call.function.endswith("quantize_dynamic"):
        files = ["onnx.load('model.onnx')"]
    lines = [*files, *(f"{name}={_plain(value)}" for name, value in call.keywords.items() if value not in ([], {}))]
    return "\n".join([f"{call.function}(", *(f"    {line}," for line in lines), ")"])


def _plain(value: Any) -> str:
    """An enumeration by its name, numbers of numpy as plain ones."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_plain(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_plain(inner) for inner in value) + "]"
    if hasattr(value, "name") and not isinstance(value, str):
        return f"{type(value).__name__}.{value.name}"
    return repr(value.item()) if hasattr(value, "item") else repr(value)


def told_arguments(recipe: Recipe, kinds: Sequence[tuple[str, str]]) -> str:
    return call_text(arguments(recipe, kinds))
