"""How a graph is quantised: a record that can be kept in a file, and the call of onnxruntime's quantiser for it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field, asdict, dataclass, field, fields, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from calipers.core import RequestError, name_some
from calipers.core.choices import CALIBRATIONS, PRECISIONS
from calipers.core.errors import boundary, quote
from calipers.core.inputs import load_yaml
from calipers.core.options import Options, option

STATIC = ("w8a8", "w8a16")
_BLOCKS = (16, 32, 64, 128, 256)  # what MatMulNBits has kernels for
_RANGED = (
    *("calibration", "percentile", "symmetric", "unsigned", "ranges", "calibrated"),
    *("float_outputs", "smooth", "smoothing"),
)
_INTEGERS = ("exclude", "per_channel", "reduce_range", "op_types")
# precision → the settings that apply to it
_APPLY: Mapping[str, tuple[str, ...]] = {
    "fp32": (),
    "fp16": ("exclude",),
    "int4": ("exclude", "block_size", "symmetric"),
    "int8-dynamic": _INTEGERS,
    **dict.fromkeys(STATIC, (*_INTEGERS, *_RANGED)),
    "w8a8": (*_INTEGERS, *_RANGED, "wide"),
}
# Target → the settings that suit its processors. Signed activations are slow on x86; 8-bit weights can saturate without
# VNNI; onnxruntime's kernels for ARM take signed activations.
TARGETS: Mapping[str, Mapping[str, bool]] = {
    "x86-avx2": {"per_channel": True, "float_outputs": True, "unsigned": True, "reduce_range": True},
    "x86-vnni": {"per_channel": True, "float_outputs": True, "unsigned": True},
    "arm64": {"per_channel": True, "float_outputs": True},
}

Range = tuple[float, float]


@dataclass(frozen=True)
class Recipe(Options):
    """Everything that decides how weights and activations are rounded. The defaults are those of onnxruntime.

    `precision` is fp32 (exported and optimised only), fp16, int8-dynamic (int8 weights, activations quantised as they
    come), w8a8 or w8a16 (int8 weights, 8- or 16-bit activations with ranges from calibration, in Q/DQ pairs) or int4
    (4-bit weights in blocks, float activations).
    """

    precision: str = "int8-dynamic"
    calibration: str = option(
        "minmax",
        "How a range is taken from the observed values, for w8a8 and w8a16. Default: minmax.",
        group="Recipe",
        flag="--calibration-method",
        choices=CALIBRATIONS,
    )
    percentile: float = option(99.999, "Of the values a range keeps. Default: 99.999.", group="Recipe", metavar="P")
    per_channel: bool = option(False, "Scales of weights. Default: per tensor.", group="Recipe", off="--per-tensor")
    symmetric: bool = option(False, "Ranges of activations. Default: asymmetric.", group="Recipe", off="--asymmetric")
    unsigned: bool = option(False, "Activations as uint or int. Default: int.", group="Recipe", off="--signed")
    reduce_range: bool = option(
        False, "Weights in 7 bits: 8 can saturate on x86 without VNNI. Default: 8.", group="Recipe", off="--full-range"
    )
    float_outputs: bool = option(
        False,
        "Results of matrix products in float; their inputs stay 8-bit. Default: rounded.",
        group="Recipe",
        off="--rounded-outputs",
    )
    smooth: float = option(
        0.0,
        "SmoothQuant: move scales of channels from activations into weights, by this share (0.5 is usual). Default: 0.",
        group="Recipe",
        metavar="ALPHA",
    )
    wide: tuple[str, ...] = option(
        (),
        "w8a8: 16-bit activations for a node: its name, a glob or op:TYPE, as in --exclude. Can be repeated.",
        group="Recipe",
        metavar="NODE",
    )
    exclude: tuple[str, ...] = option(
        (),
        "Keep a node in float: its name, a glob such as 'node_MatMul_*', or op:TYPE. Can be repeated.",
        group="Recipe",
        metavar="NODE",
    )
    op_types: tuple[str, ...] = ()  # quantise these only; empty is all that onnxruntime can
    ranges: Mapping[str, Range] = field(default_factory=dict)  # tensor → its range, in the place of the calibrated one
    # Where `ranges` are all that calibration took: dataset, fingerprint, rows (ids) and the SHA-256 of the float graph.
    calibrated: Mapping[str, Any] = field(default_factory=dict)
    smoothing: Mapping[str, tuple[int, ...]] = field(
        default_factory=dict
    )  # the scales of `smooth`; see artifacts/smooth.py
    block_size: int = option(32, "int4: weights that share a scale. Default: 32.", group="Recipe", metavar="N")

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed: dict[str, Sequence[Any]] = {"precision": PRECISIONS, "block_size": _BLOCKS}
        for name, values in allowed.items():
            if (value := getattr(self, name)) not in values:
                raise RequestError(f"`{name}` must be one of {', '.join(map(str, values))}, found {value!r}")
        if not 50 < self.percentile <= 100:
            raise RequestError(f"`percentile` must be above 50 and at most 100, found {self.percentile:g}")
        if not 0 <= self.smooth <= 1:
            raise RequestError(f"`smooth` must be from 0 to 1, found {self.smooth:g}")
        for name, (low, high) in self.ranges.items():
            rising = low <= high if self.calibrated else low < high  # calibration may see a constant
            if not (math.isfinite(low) and math.isfinite(high) and rising):
                raise RequestError(f"the range of {name!r} must be two finite numbers that rise, found {low}, {high}")
        for entry in fields(self):
            applies = entry.name in ("precision", *_APPLY[self.precision])
            if not applies and getattr(self, entry.name) != _default(entry):
                raise RequestError(f"`{entry.name}` does not apply to the precision {self.precision}")
        if self.percentile != Recipe.percentile and self.calibration != "percentile":
            raise _without_percentile(self.calibration)

    @property
    def needs_ranges(self) -> bool:
        return self.precision in STATIC

    @property
    def needs_texts(self) -> bool:
        """Whether ranges must be taken from texts: the recipe does not bring them all."""
        return self.needs_ranges and not self.calibrated

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values, defaults included."""
        values: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return values

    def excluding(self, nodes: Iterable[str]) -> Recipe:
        """The same recipe with these nodes in float as well."""
        return replace(self, exclude=tuple(dict.fromkeys((*self.exclude, *nodes))))

    def excluded(self, nodes: Iterable[tuple[str, str]]) -> list[str]:
        """The names that `exclude` matches among (name, op type); an entry that matches none of them is an error."""
        return _chosen("exclude", self.exclude, list(nodes))

    def widened(self, nodes: Iterable[tuple[str, str]]) -> list[str]:
        """The same for `wide`."""
        return _chosen("wide", self.wide, list(nodes))


def refuse_ineffective(recipe: Recipe, chosen: Iterable[str]) -> None:
    """Settings that a user chose for this recipe and that change nothing in it are errors, defaults too."""
    for name in chosen:
        if name not in _APPLY[recipe.precision]:
            raise RequestError(f"`{name}` does not apply to the precision {recipe.precision}")
        if recipe.calibrated and name in ("calibration", "percentile", "smooth"):
            what = "the calibration method" if name == "calibration" else f"`{name}`"
            raise RequestError(f"{what} has no effect: the recipe brings the ranges that calibration took")
        if name == "percentile" and recipe.calibration != "percentile":
            raise _without_percentile(recipe.calibration)


def _without_percentile(method: str) -> RequestError:
    return RequestError(f"`percentile` is for the calibration method percentile, found {method}")


def _chosen(option_name: str, patterns: Sequence[str], nodes: Sequence[tuple[str, str]]) -> list[str]:
    chosen: dict[str, None] = {}
    for pattern in patterns:
        names = [name for name, kind in nodes if _matches(pattern, name, kind)]
        if not names:
            near = name_some([name for name, _ in nodes if name], most=3)
            raise RequestError(f"`{option_name}` {pattern!r} matches no node of the graph: it has {near}")
        chosen |= dict.fromkeys(names)
    return list(chosen)


def for_target(precision: str, target: str | None) -> dict[str, bool]:
    """The settings that a target implies for a precision; none without a target. One that implies none is refused."""
    if target is None:
        return {}
    implied = {name: value for name, value in TARGETS[target].items() if name in _APPLY[precision]}
    if not implied:
        raise RequestError(f"`target` has no effect on the precision {precision}: no processor wants it otherwise")
    return implied


@dataclass(frozen=True)
class Call:
    """A call of onnxruntime's quantiser: `function(model, target, …, **keywords)`."""

    function: str
    keywords: Mapping[str, Any]


def arguments(recipe: Recipe, nodes: Sequence[tuple[str, str]], masks: Sequence[str] = ()) -> Call:
    """The call that quantises a graph with these (name, op type) nodes. fp32 is no quantisation: a RequestError.

    `masks` are nodes that carry an attention mask: with ranges from calibration they stay in float.
    """
    exclude = recipe.excluded(nodes)
    if recipe.needs_ranges:
        exclude = list(dict.fromkeys((*exclude, *masks)))
    if recipe.precision == "fp16":
        keywords = {"keep_io_types": True, "node_block_list": exclude, "disable_shape_infer": True}
        return Call("onnxruntime.transformers.float16.convert_float_to_float16", keywords)
    if recipe.precision == "int4":
        block = {"bits": 4, "block_size": recipe.block_size, "is_symmetric": recipe.symmetric}
        function = "onnxruntime.quantization.matmul_nbits_quantizer.MatMulNBitsQuantizer"
        return Call(function, {**block, "nodes_to_exclude": exclude})
    shared = {
        "per_channel": recipe.per_channel,
        "reduce_range": recipe.reduce_range,
        "nodes_to_exclude": exclude,
        "op_types_to_quantize": list(recipe.op_types),
    }
    if recipe.precision == "int8-dynamic":
        return Call("onnxruntime.quantization.quantize_dynamic", shared)
    if recipe.needs_ranges:
        return Call("onnxruntime.quantization.quantize_static", {**shared, **_static_arguments(recipe)})
    raise RequestError(f"the precision {recipe.precision} is no quantisation")


def _static_arguments(recipe: Recipe) -> dict[str, Any]:
    import numpy as np
    from onnxruntime.quantization import CalibrationMethod, QuantType

    methods = {"minmax": "MinMax", "entropy": "Entropy", "percentile": "Percentile"}
    integer = f"Q{'U' if recipe.unsigned else ''}Int{recipe.precision.removeprefix('w8a')}"
    extra: dict[str, Any] = dict.fromkeys(("ActivationSymmetric", "CalibTensorRangeSymmetric"), recipe.symmetric)
    if recipe.float_outputs:
        extra["OpTypesToExcludeOutputQuantization"] = ["MatMul", "Gemm"]
    if recipe.calibration == "percentile":
        extra["CalibPercentile"] = recipe.percentile
    if recipe.ranges and not recipe.calibrated:
        extra["TensorQuantOverrides"] = {
            name: [{"rmin": np.float32(low), "rmax": np.float32(high)}] for name, (low, high) in recipe.ranges.items()
        }
    return {
        "activation_type": QuantType[integer],
        "weight_type": QuantType.QInt8,
        "calibrate_method": CalibrationMethod[methods[recipe.calibration]],
        "extra_options": extra,
    }


def read_recipe(path: Path) -> Recipe:
    """A recipe from a YAML or JSON file. Missing settings have their default; unknown ones are an error."""
    content = load_yaml(path, RequestError)
    if not isinstance(content, dict):
        raise RequestError(f"the recipe {path} must be a mapping such as 'precision: w8a8', found {quote(content)}")
    with boundary(RequestError, f"the recipe {path} cannot be read"):
        return make_recipe(content, str(path))


def make_recipe(values: Mapping[str, Any], place: str) -> Recipe:
    """A recipe from plain values, each of the type of its field. `place` names their origin in errors."""
    defaults = {entry.name: _default(entry) for entry in fields(Recipe)}
    for name in values:
        if name not in defaults:
            raise RequestError(f"{place} has an unknown setting {quote(name)}: a recipe has {', '.join(defaults)}")
    return Recipe(**{name: _typed(name, value, defaults[name], place) for name, value in values.items()})


def write_recipe(recipe: Recipe, path: Path) -> None:
    """YAML, with a line for each setting; JSON where the name ends in .json."""
    import yaml

    values = recipe.to_dict()
    as_json = path.suffix == ".json"
    text = (
        json.dumps(values, indent=2) + "\n" if as_json else yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
    )
    path.write_text(text)


def _typed(name: str, value: Any, default: Any, place: str) -> Any:
    """The value in the type of the default; YAML has lists where the record has tuples."""
    try:
        if isinstance(default, tuple):
            if isinstance(value, list | tuple) and all(isinstance(entry, str) for entry in value):
                return tuple(value)
        elif name == "smoothing":
            return {str(tensor): tuple(map(int, powers)) for tensor, powers in value.items()}
        elif name == "calibrated":
            if isinstance(value, Mapping) and isinstance(value.get("rows", []), list):
                return {"rows": [], **{str(key): entry for key, entry in value.items()}} if value else {}
        elif isinstance(default, dict):
            return {str(tensor): (float(low), float(high)) for tensor, (low, high) in value.items()}
        elif isinstance(default, float) and type(value) in (int, float):
            return float(value)
        elif type(value) is type(default):
            return value
    except (AttributeError, TypeError, ValueError, OverflowError):
        pass
    kinds: dict[type, str] = {tuple: "a list of names", dict: "tensor: [lowest, highest]"}
    expected = (
        "dataset, fingerprint, rows, graph"
        if name == "calibrated"
        else kinds.get(type(default), type(default).__name__)
    )
    raise RequestError(f"{place}: {name} must be {expected}, found {quote(value)}")


def _default(entry: Field[Any]) -> Any:
    return {} if entry.name in ("ranges", "calibrated", "smoothing") else entry.default


def _matches(pattern: str, name: str, kind: str) -> bool:
    """
    >>> _matches("op:Softmax", "node_softmax", "Softmax"), _matches("node_*", "node_softmax", "Softmax")
    (True, True)
    """
    if pattern.startswith("op:"):
        return fnmatchcase(kind, pattern[3:])
    return bool(name) and (name == pattern or fnmatchcase(name, pattern))


def call_text(recipe: Recipe, nodes: Sequence[tuple[str, str]], masks: Sequence[str] = ()) -> str:
    """The call of onnxruntime's quantiser for a graph with these (name, op type) nodes, one argument a line.

    >>> print(call_text(Recipe("int8-dynamic", per_channel=True), []))
    onnxruntime.quantization.quantize_dynamic(
        "model.onnx",
        "quantized.onnx",
        per_channel=True,
        reduce_range=False,
    )
    """
    call = arguments(recipe, nodes, masks)
    files = ['"model.onnx"', '"quantized.onnx"']
    if call.function.endswith("quantize_static"):
        files.append("calibration_data_reader")
    elif not call.function.endswith("quantize_dynamic"):
        files = ["onnx.load('model.onnx')"]
    lines = [*files, *(f"{name}={_literal(value)}" for name, value in call.keywords.items() if value not in ([], {}))]
    return "\n".join([f"{call.function}(", *(f"    {line}," for line in lines), ")"])


def _literal(value: Any) -> str:
    """Python source: an enumeration by its name, numbers of numpy as plain ones."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_literal(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_literal(inner) for inner in value) + "]"
    if hasattr(value, "name") and not isinstance(value, str):
        return f"{type(value).__name__}.{value.name}"
    return repr(value.item()) if hasattr(value, "item") else repr(value)
