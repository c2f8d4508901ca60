"""How a graph is quantised: a record that stands in a file, and the same words for onnxruntime's own quantiser."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from calipers.core import RequestError, name_some

# precision → what it is, in the words of the help text.
PRECISIONS = {
    "fp32": "float32: exported and optimised only",
    "fp16": "float16 weights and arithmetic",
    "int8-dynamic": "int8 weights, activations quantised as they come",
    "w8a8": "int8 weights and activations, ranges from calibration (QDQ)",
    "w8a16": "int8 weights, 16-bit activations, ranges from calibration (QDQ)",
    "int4": "4-bit weights in blocks, float activations (MatMulNBits)",
}
CALIBRATIONS = ("minmax", "entropy", "percentile")
STATIC = ("w8a8", "w8a16")
_BLOCKS = (16, 32, 64, 128, 256)  # what MatMulNBits has kernels for

Range = tuple[float, float]


@dataclass(frozen=True)
class Recipe:
    """Everything that decides how the weights and activations are rounded. The defaults are onnxruntime's own."""

    precision: str = "int8-dynamic"
    calibration: str = "minmax"  # how a range is taken from what was seen: one of CALIBRATIONS
    percentile: float = 99.999  # of the values that the range keeps, for `percentile`
    per_channel: bool = False  # one scale for each output channel of a weight
    symmetric: bool = False  # activation ranges around 0
    unsigned: bool = False  # activations in uint8 or uint16, else int8 or int16
    reduce_range: bool = False  # weights in 7 bits: 8 saturate on x86 without VNNI
    exclude: tuple[str, ...] = ()  # nodes that stay in float: names, globs, or op:TYPE
    op_types: tuple[str, ...] = ()  # quantise these only; empty is all that onnxruntime can
    ranges: Mapping[str, Range] = field(default_factory=dict)  # tensor → its range, whatever calibration saw
    block_size: int = 32  # weights that share a scale, for int4

    def __post_init__(self) -> None:
        _one_of("precision", self.precision, tuple(PRECISIONS))
        _one_of("calibration", self.calibration, CALIBRATIONS)
        _one_of("block_size", self.block_size, _BLOCKS)
        if not 50 < self.percentile <= 100:
            raise RequestError(f"a recipe's percentile must lie between 50 and 100, found {self.percentile:g}")
        for name, (low, high) in self.ranges.items():
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise RequestError(f"the range of {name!r} must be two finite numbers that rise, found {low}, {high}")
        self._refuse_ignored()

    @property
    def needs_ranges(self) -> bool:
        return self.precision in STATIC

    def told(self) -> dict[str, Any]:
        """As plain JSON values, defaults included."""
        return {
            **asdict(self),
            "exclude": list(self.exclude),
            "op_types": list(self.op_types),
            "ranges": {name: list(ends) for name, ends in self.ranges.items()},
        }

    def excluded(self, nodes: Iterable[tuple[str, str]]) -> list[str]:
        """The names that `exclude` means among (name, op type); an entry that means none of them is an error."""
        nodes = list(nodes)
        chosen: dict[str, None] = {}
        for pattern in self.exclude:
            found = [name for name, kind in nodes if _means(pattern, name, kind)]
            if not found:
                near = name_some([name for name, _ in nodes if name], most=3)
                raise RequestError(f"--exclude {pattern!r} names no node of the graph: it has {near}")
            chosen |= dict.fromkeys(found)
        return list(chosen)

    def _refuse_ignored(self) -> None:
        """A setting that the precision would ignore is an error: nobody must believe that it did something."""
        static = ("calibration", "percentile", "symmetric", "unsigned", "ranges")
        integers = ("per_channel", "reduce_range", "op_types")
        allowed = {
            "fp32": (),
            "fp16": ("exclude",),
            "int4": ("exclude", "block_size", "symmetric"),
            "int8-dynamic": ("exclude", *integers),
        }.get(self.precision, ("exclude", *integers, *static))
        for entry in fields(self):
            if entry.name not in ("precision", *allowed) and getattr(self, entry.name) != _default(entry):
                raise RequestError(f"{entry.name} does not apply to the precision {self.precision}")


@dataclass(frozen=True)
class Call:
    """A call of onnxruntime's own quantiser: `function(model, target, …, **keywords)`."""

    function: str
    keywords: Mapping[str, Any]


def arguments(recipe: Recipe, nodes: Sequence[tuple[str, str]]) -> Call:
    """The call that quantises a graph with these (name, op type) nodes as the recipe says.

    `quantize_static` also wants a reader of calibration data. fp32 is no quantisation: a RequestError.
    """
    exclude = recipe.excluded(nodes)
    if recipe.precision == "fp16":
        return Call(
            "onnxruntime.transformers.float16.convert_float_to_float16",
            {"keep_io_types": True, "node_block_list": exclude, "disable_shape_infer": True},
        )
    if recipe.precision == "int4":
        return Call(
            "onnxruntime.quantization.matmul_nbits_quantizer.MatMulNBitsQuantizer",
            {
                "bits": 4,
                "block_size": recipe.block_size,
                "is_symmetric": recipe.symmetric,
                "nodes_to_exclude": exclude,
            },
        )
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
    from onnxruntime.quantization import CalibrationMethod, QuantType

    methods = {
        "minmax": CalibrationMethod.MinMax,
        "entropy": CalibrationMethod.Entropy,
        "percentile": CalibrationMethod.Percentile,
    }
    kinds = {
        ("w8a8", False): QuantType.QInt8,
        ("w8a8", True): QuantType.QUInt8,
        ("w8a16", False): QuantType.QInt16,
        ("w8a16", True): QuantType.QUInt16,
    }
    extra: dict[str, Any] = {
        "ActivationSymmetric": recipe.symmetric,
        "CalibTensorRangeSymmetric": recipe.symmetric,
    }
    if recipe.calibration == "percentile":
        extra["CalibPercentile"] = recipe.percentile
    if recipe.ranges:
        extra["TensorQuantOverrides"] = {name: [_range(ends)] for name, ends in recipe.ranges.items()}
    return {
        "activation_type": kinds[recipe.precision, recipe.unsigned],
        "weight_type": QuantType.QInt8,
        "calibrate_method": methods[recipe.calibration],
        "extra_options": extra,
    }


def _range(ends: Range) -> dict[str, Any]:
    import numpy as np

    return {"rmin": np.float32(ends[0]), "rmax": np.float32(ends[1])}


def read_recipe(path: Path) -> Recipe:
    """A recipe from a YAML or JSON file. What it does not say is at its default; what is not a recipe's is an error."""
    import yaml

    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        first = (str(error).splitlines() or [""])[0]
        raise RequestError(f"the recipe {path} cannot be read: {first}") from error
    if not isinstance(found, dict):
        raise RequestError(f"the recipe {path} must be a mapping such as 'precision: w8a8', found {found!r}")
    return make_recipe(found, str(path))


def make_recipe(values: Mapping[str, Any], place: str) -> Recipe:
    """A recipe from plain values, each of the kind that its field has."""
    known = {entry.name: entry for entry in fields(Recipe)}
    for name in values:
        if name not in known:
            raise RequestError(f"{place} asks for {name!r}: a recipe has {', '.join(known)}")
    return Recipe(**{name: _typed(name, value, place) for name, value in values.items()})


def write_recipe(recipe: Recipe, path: Path) -> None:
    """YAML, with a line for each setting; JSON where the name ends so."""
    path.write_text(recipe_text(recipe) if path.suffix != ".json" else json.dumps(recipe.told(), indent=2) + "\n")


def recipe_text(recipe: Recipe) -> str:
    """
    >>> print(recipe_text(Recipe("w8a8", exclude=("op:Softmax",))).splitlines()[0])
    precision: w8a8
    """
    import yaml

    return str(yaml.safe_dump(recipe.told(), sort_keys=False, allow_unicode=True))


def _typed(name: str, value: Any, place: str) -> Any:
    """The value as the field's own type; YAML has lists where the record has tuples."""
    default = _default(next(entry for entry in fields(Recipe) if entry.name == name))
    try:
        if isinstance(default, tuple):
            if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
                return tuple(value)
        elif isinstance(default, dict):
            return {str(tensor): (float(low), float(high)) for tensor, (low, high) in value.items()}
        elif isinstance(default, float) and type(value) in (int, float):
            return float(value)
        elif type(value) is type(default):
            return value
    except (AttributeError, TypeError, ValueError):
        pass
    kinds: dict[type, str] = {tuple: "a list of names", dict: "tensor: [lowest, highest]"}
    like = kinds.get(type(default), type(default).__name__)
    raise RequestError(f"{place}: {name} must be {like}, found {value!r}")


def _default(entry: Any) -> Any:
    return {} if entry.name == "ranges" else entry.default


def _means(pattern: str, name: str, kind: str) -> bool:
    """
    >>> _means("op:Softmax", "node_softmax", "Softmax"), _means("node_*", "node_softmax", "Softmax")
    (True, True)
    """
    if pattern.startswith("op:"):
        return fnmatchcase(kind, pattern[3:])
    return bool(name) and (name == pattern or fnmatchcase(name, pattern))


def _one_of(what: str, value: Any, allowed: Sequence[Any]) -> None:
    if value not in allowed:
        raise RequestError(f"a recipe's {what} must be one of {', '.join(map(str, allowed))}, found {value!r}")
