"""Why a rounded tensor causes a loss: what its scale, its integers and the real rows show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from calipers.artifacts.processor import has_vnni
from calipers.attribution.graph_view import Rounded
from calipers.attribution.parts import ATTENTION
from calipers.attribution.qdq import Weights, dequantize
from calipers.metrics.arrays import Array, Floats

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

_MASK = 1e30
_OUTLIER = 20.0  # standard deviations
_CLIPPED = 1e-3  # share of values
_UNUSED = 20.0  # times wider than the values
_FEW = 16  # levels: 4 bits
_NARROW = 8  # channels: fewer show no pattern
_RANDOM = ("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial")


@dataclass(frozen=True)
class Grid:
    """The levels that a tensor is rounded to, (integer − zero) · scale: the largest step and the outermost values."""

    step: float
    low: float
    high: float


def grid_of(rounded: Rounded, weights: Weights) -> Grid | None:
    """None where the scale or zero point is computed, or not an integer of eight or sixteen bits."""
    import onnx

    if rounded.scale not in weights.quantized:
        return None
    scale = onnx.numpy_helper.to_array(weights.quantized[rounded.scale])
    held = weights.quantized.get(rounded.zero_point)
    zero = onnx.numpy_helper.to_array(held) if held is not None else np.zeros(scale.shape, np.uint8)
    if zero.dtype.kind not in "iu" or zero.dtype.itemsize > 2:
        return None
    scales, zeros, limits = scale.astype(np.float64), zero.astype(np.float64), np.iinfo(zero.dtype)
    low, high = ((limits.min - zeros) * scales).min(), ((limits.max - zeros) * scales).max()
    return Grid(float(scales.max()), float(low), float(high))


def of_activation(rounded: Rounded, values: Array, weights: Weights) -> list[str]:
    """What is wrong with the rounding of an activation with these values on real rows."""
    grid = grid_of(rounded, weights)
    finite = values[np.isfinite(values)].astype(np.float64).ravel()
    if grid is None or not finite.size:
        return []
    masked = np.abs(finite) >= _MASK
    if max(-grid.low, grid.high) >= _MASK:
        constant = finite[masked].min() if masked.any() else grid.low
        return [
            f"{rounded.name}: a mask constant of {constant:.2g} takes the whole scale: one step is "
            f"{grid.step:.2g}, and every other value rounds to the same level"
        ]
    inside = finite[~masked]
    return list(_of_range(rounded.name, grid, inside, masked=bool(masked.any()))) if inside.size else []


def _of_range(name: str, grid: Grid, seen: Floats, *, masked: bool) -> Iterator[str]:
    low, high, step = grid.low, grid.high, grid.step
    clipped = float(((seen < low - step) | (seen > high + step)).mean())
    spread = float(seen.std())
    sigmas = float(np.abs(seen - seen.mean()).max()) / spread if spread > 0 else 0.0
    width, used = high - low, float(seen.max() - seen.min())
    if clipped > _CLIPPED:
        yield (
            f"{name}: its scale covers {low:.3g} to {high:.3g} and the rows reach {seen.min():.3g} to "
            f"{seen.max():.3g}: {clipped:.1%} of the values are cut off, as if calibration had never seen them"
        )
    elif used > 0 and width > _UNUSED * used:
        yield f"{name}: its scale covers {width / used:.0f} times the range that the rows use"
    if masked and low > -_MASK:
        yield f"{name}: the mask's constant is cut off at {low:.3g}, so attention may reach the padding"
    if sigmas > _OUTLIER:
        middle = float(np.subtract(*np.quantile(seen, [0.75, 0.25])))
        yield (
            f"{name}: its range {seen.min():.3g} to {seen.max():.3g} has outliers of {sigmas:.0f} σ: one step is "
            f"{step:.2g}, and half of the values lie within {middle:.2g}"
        )


def of_weight(rounded: Rounded, proto: ModelProto, weights: Weights) -> list[str]:
    """What is wrong with the integers of a weight, compared with the original where there is one."""
    import onnx

    end = rounded.ends[0]
    node = next(n for n in proto.graph.node if end in n.output)
    if node.input[0] not in weights.quantized:
        return []
    integers = onnx.numpy_helper.to_array(weights.quantized[node.input[0]])
    reasons = []
    levels = len(np.unique(integers))
    if levels <= _FEW and integers.size > 4 * _FEW:
        bits = int(np.ceil(np.log2(max(levels, 2))))
        reasons = [f"{rounded.name}: its {integers.size:,} weights use {levels} levels, which is {bits} bits"]
    if end in weights.originals:
        original = onnx.numpy_helper.to_array(weights.floats[weights.originals[end]]).astype(np.float64)
        now = dequantize(node, weights.quantized).astype(np.float64)
        if original.shape == now.shape:
            reasons += _of_fit(rounded.name, original, now)
    return reasons


def _of_fit(name: str, original: Floats, now: Floats) -> Iterator[str]:
    """A wrong scale shows as one factor; scales in a wrong order or along a wrong axis as a factor for each channel."""
    size = float(np.square(original).sum())
    if size == 0:
        return
    error = float(np.square(now - original).sum())
    factor = float((original * now).sum()) / size
    noise = 10 * np.log10(size / max(float(np.square(now - factor * original).sum()), 1e-30))
    if abs(factor - 1) > 0.2 and noise > 15:
        yield f"{name}: its scale is off: the weights are {factor:.3g} times the original ones"
    elif error >= 0.01 * size and _fits_by_channels(original, now, error):
        yield f"{name}: its scales do not fit their channels: a wrong axis or order"
    elif error > 0.01 * size:
        spread = float(original.std())
        sigmas = float(np.abs(original).max()) / spread if spread > 0 else 0.0
        ratio = 10 * np.log10(size / error)
        yield f"{name}: its rounded weights have {ratio:.0f} dB of signal to noise; they reach {sigmas:.0f} σ"


def _fits_by_channels(original: Floats, now: Floats, error: float) -> bool:
    """Whether a factor for each row and each column of a matrix explains most of the error."""
    if original.ndim != 2 or min(original.shape) <= _NARROW:
        return False
    fitted = original.copy()
    for axis in (0, 1, 0, 1):
        sizes = np.square(fitted).sum(axis=axis, keepdims=True)
        fitted = fitted * (fitted * now).sum(axis=axis, keepdims=True) / np.where(sizes > 0, sizes, 1)
    return float(np.square(now - fitted).sum()) < 0.2 * error


def of_kernels(gap: float, noise: float) -> list[str]:
    """`gap`: how much further integer kernels are from the float output than the same graph in float between its pairs,
    as a share of it; `noise`: what may be by chance."""
    vnni = has_vnni()
    if gap <= max(0.02, 1.2 * noise) or vnni:
        return []
    why = "this CPU has no VNNI: u8·s8 products saturate" if vnni is False else "u8·s8 products may saturate"
    return [f"integer kernels move the output by {gap:.0%} against the same graph in float ({why}; try reduce_range)"]


def of_float_graph(proto: ModelProto) -> list[str]:
    """What is wrong with a graph that should be the same model in float."""
    reasons = []
    dropouts = [n for n in proto.graph.node if n.op_type == "Dropout" and _trains(n, proto)]
    if dropouts:
        reasons.append(f"{len(dropouts)} Dropout nodes are in training mode ({dropouts[0].name}, …): export in eval()")
    drawn = [n for n in proto.graph.node if n.op_type in _RANDOM]
    if drawn:
        reasons.append(
            f"{len(drawn)} nodes draw random numbers ({drawn[0].op_type} {drawn[0].name}, …): dropout was left on"
        )
    read = {name for node in proto.graph.node for name in node.input}
    masks = [i.name for i in proto.graph.input if "mask" in i.name.lower()]
    if not masks:
        reasons.append("the graph takes no attention mask: attention reaches the padding")
    elif not read.intersection(masks):
        reasons.append(f"nothing reads {masks[0]}: the attention mask was dropped, and attention reaches the padding")
    elif not _reaches_attention(proto, masks):
        reasons.append(f"{masks[0]} reaches no attention: the mask was dropped, and attention reaches the padding")
    return reasons


def _reaches_attention(proto: ModelProto, names: list[str]) -> bool:
    tensors = set(names)
    for node in proto.graph.node:
        if tensors.intersection(node.input):
            if node.op_type in ATTENTION:
                return True
            if node.op_type != "Shape":
                tensors.update(node.output)
    return False


def _trains(node: NodeProto, proto: ModelProto) -> bool:
    import onnx

    mode = node.input[2] if len(node.input) > 2 else ""
    constants = {n.output[0]: n.attribute[0].t for n in proto.graph.node if n.op_type == "Constant"}
    values = {i.name: i for i in proto.graph.initializer} | constants
    if mode in values:
        return bool(onnx.numpy_helper.to_array(values[mode]))
    return mode != ""  # it is computed
