"""The range of every activation on real texts, taken once for any number of quantised graphs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from calipers.artifacts import smooth
from calipers.artifacts.graphs import FloatGraph, session_of, with_outputs
from calipers.artifacts.inputs import FixedShape, Rows, at_tokens, real_values, short_path, single
from calipers.artifacts.recipe import Range, Recipe
from calipers.artifacts.smooth import Smoothing
from calipers.core import SILENT, DataError, ModelError, Progress
from calipers.core.errors import explain
from calipers.core.files import write_whole
from calipers.core.inputs import load_json
from calipers.metrics.arrays import Ints, Vectors
from calipers.models.batching import Batch
from calipers.models.onnx_session import Graph

_AT_ONCE = 100  # tensors fetched in one run of a row: bounds the memory of long rows in deep models
_BINS = 2048
_LEVELS = 128  # of a quantised half-range, for `entropy`
_LIMIT = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Seen:
    """The finite values of one tensor over all rows. `infinite` counts the others, which are in no other number."""

    count: int
    mean: float
    std: float
    lowest: float
    highest: float
    infinite: int = 0


@dataclass(frozen=True)
class Ranges:
    """Tensor → the range that quantisation covers, and the rows that it was taken from."""

    method: str
    tensors: Mapping[str, Range]
    statistics: Mapping[str, Seen]
    rows: tuple[str, ...]  # ids
    dataset: str
    fingerprint: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    smoothing: Smoothing = field(default_factory=dict)  # of the graph that they were taken of

    def save(self, path: Path) -> None:
        write_whole(path, json.dumps(asdict(self), allow_nan=False))


def stored_ranges(recipe: Recipe) -> Ranges:
    """The ranges that a recipe brings."""
    source = recipe.calibrated
    return Ranges(
        method=recipe.calibration,
        tensors=dict(recipe.ranges),
        statistics={},
        rows=tuple(map(str, source.get("rows", ()))),
        dataset=str(source.get("dataset", "")),
        fingerprint=str(source.get("fingerprint", "")),
        settings=calibration_settings(recipe),
        smoothing=recipe.smoothing,
    )


def with_ranges(recipe: Recipe, ranges: Ranges | None, graph: str) -> Recipe:
    """The recipe with all ranges and the names of their rows, so that it gives the same graph again without texts.
    `graph` is the hash of the float graph."""
    if ranges is None:
        return recipe
    source = {
        "dataset": short_path(ranges.dataset),
        "fingerprint": ranges.fingerprint,
        "rows": list(ranges.rows),
        "graph": graph,
    }
    return replace(recipe, ranges={**ranges.tensors, **recipe.ranges}, smoothing=ranges.smoothing, calibrated=source)


def read_ranges(path: Path) -> Ranges:
    content = load_json(path, ModelError)
    try:
        content["tensors"] = {name: (float(a), float(b)) for name, (a, b) in content["tensors"].items()}
        content["statistics"] = {name: Seen(**seen) for name, seen in content["statistics"].items()}
        smoothing = {name: tuple(powers) for name, powers in content["smoothing"].items()}
        return Ranges(**content | {"rows": tuple(content["rows"]), "smoothing": smoothing})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ModelError(f"{path} is not a file of calibration ranges: {explain(error)}") from error


def collect_ranges(
    graph: FloatGraph,
    rows: Rows,
    recipe: Recipe | None = None,
    *,
    shape: FixedShape | None = None,
    progress: Progress = SILENT,
) -> Ranges:
    """Run the rows one by one and observe every float tensor that a node computes, at real tokens.

    minmax keeps all values; percentile leaves out the outermost values, exactly; entropy is the range whose 128 levels
    lose least information on a histogram of 2,048 bins (onnxruntime's has 128, and so only one candidate).
    """
    if not len(rows):
        raise DataError("calibration needs at least one text")
    recipe = recipe or Recipe("w8a8")
    batches = single(rows, shape)
    passes = (1 if recipe.calibration == "minmax" else 2) + (recipe.smooth > 0)
    progress.start("Calibrating", passes * len(batches))
    smoothing: Smoothing = {}
    if recipe.smooth:
        smoothing = smooth.choose(graph, _channel_maxima(graph, batches, progress), recipe.smooth)
        graph = smooth.smooth(graph, smoothing)
    observe = _observer(graph, batches, progress)
    seen = _first_pass(observe)
    tensors = _METHODS[recipe.calibration](seen, observe, recipe)
    return Ranges(
        method=recipe.calibration,
        tensors={name: (max(-_LIMIT, low), min(_LIMIT, high)) for name, (low, high) in tensors.items()},
        statistics=seen,
        rows=rows.ids,
        dataset=rows.path,
        fingerprint=rows.fingerprint,
        settings=calibration_settings(recipe),
        smoothing=smoothing,
    )


def calibration_settings(recipe: Recipe) -> dict[str, Any]:
    """The settings of a recipe that decide the ranges: recipes that agree in them can share their ranges."""
    share = {"percentile": recipe.percentile} if recipe.calibration == "percentile" else {}
    return {"method": recipe.calibration, "symmetric": recipe.symmetric, "smooth": recipe.smooth, **share}


def _channel_maxima(graph: FloatGraph, batches: Sequence[Batch], progress: Progress) -> dict[str, Vectors]:
    """The largest absolute value of each channel of each activation that is multiplied with a weight."""
    names = list(dict.fromkeys(product.activation for product in smooth.products(graph)))
    runner = Graph(session_of(with_outputs(graph.proto, names), str(graph.path)), str(graph.path))
    largest: dict[str, Vectors] = {}
    for batch in batches:
        for name, value in runner.run(batch, names).items():
            flat = np.abs(at_tokens(np.asarray(value, np.float32), batch)).reshape(-1, value.shape[-1]).max(axis=0)
            largest[name] = np.maximum(largest.get(name, flat), flat)
        progress.advance(1)
    return largest


Observe = Callable[[], Iterator[tuple[str, Vectors]]]


def _observer(graph: FloatGraph, batches: Sequence[Batch], progress: Progress) -> Observe:
    """Each call runs all rows again, and gives the flat values of each tensor in each row."""
    runner = Graph(session_of(with_outputs(graph.proto, graph.tensors), str(graph.path)), str(graph.path))
    groups = [graph.tensors[i : i + _AT_ONCE] for i in range(0, len(graph.tensors), _AT_ONCE)]

    def observe() -> Iterator[tuple[str, Vectors]]:
        for batch in batches:
            for names in groups:
                for name, value in runner.run(batch, names).items():
                    yield name, real_values(np.asarray(value, dtype=np.float32), batch).ravel()
            progress.advance(1)

    return observe


def _first_pass(observe: Observe) -> dict[str, Seen]:
    totals: dict[str, list[float]] = {}
    for name, values in observe():
        finite = values[np.isfinite(values)]
        numbers = finite.astype(np.float64)
        total = totals.setdefault(name, [0, 0.0, 0.0, np.inf, -np.inf, 0])
        total[0] += len(numbers)
        total[1] += float(numbers.sum())
        total[2] += float(np.square(numbers).sum())
        if len(finite):
            total[3], total[4] = min(total[3], float(finite.min())), max(total[4], float(finite.max()))
        if len(finite) < len(values):
            total[3] = min(total[3], -_LIMIT if np.isneginf(values).any() else 0.0)
            total[4] = max(total[4], _LIMIT if np.isposinf(values).any() else 0.0)
            total[5] += len(values) - len(finite)
    return {name: _seen(*total) for name, total in totals.items()}


def _seen(count: float, total: float, squares: float, lowest: float, highest: float, infinite: float) -> Seen:
    """A tensor that was always empty has zeros."""
    if not count:
        return Seen(0, 0.0, 0.0, *((lowest, highest) if infinite else (0.0, 0.0)), int(infinite))
    mean = total / count
    spread = float(np.sqrt(max(0.0, squares / count - mean**2)))
    return Seen(int(count), mean, spread, lowest, highest, int(infinite))


def _minmax(seen: Mapping[str, Seen], observe: Observe, recipe: Recipe) -> dict[str, Range]:
    return {name: _ends(s.lowest, s.highest, recipe) for name, s in seen.items()}


def _percentile(seen: Mapping[str, Seen], observe: Observe, recipe: Recipe) -> dict[str, Range]:
    """Over the rows, the outermost values of each side are kept: as many as may be cut off and one more."""
    cut = (1 - recipe.percentile / 100) * (1 if recipe.symmetric else 0.5)
    keep = {name: int(cut * s.count) + 1 for name, s in seen.items()}
    low: dict[str, Vectors] = {}
    high: dict[str, Vectors] = {}
    for name, values in observe():
        values = np.abs(values) if recipe.symmetric else values
        low[name] = _smallest(np.concatenate([low.get(name, values[:0]), values]), keep[name])
        high[name] = -_smallest(-np.concatenate([high.get(name, values[:0]), values]), keep[name])
    for name, s in seen.items():
        if not s.count:  # 0 stands for the values that there are not
            low[name], high[name] = np.append(low[name], 0), np.append(high[name], 0)
    return {name: _ends(float(low[name].max()), float(high[name].min()), recipe) for name in seen}


def _smallest(values: Vectors, count: int) -> Vectors:
    return values if len(values) <= count else np.partition(values, count - 1)[:count]


def _entropy(seen: Mapping[str, Seen], observe: Observe, recipe: Recipe) -> dict[str, Range]:
    widest = {name: max(abs(s.lowest), abs(s.highest)) for name, s in seen.items()}
    counts = {name: np.zeros(_BINS, np.int64) for name in seen}
    for name, values in observe():
        if (top := widest[name]) > 0:
            counts[name] += np.histogram(values.astype(np.float64), _BINS, range=(-top, top))[0]
    ranges = {}
    for name, s in seen.items():
        limit = widest[name] * information_limit(counts[name]) if widest[name] > 0 else 0.0
        ranges[name] = _ends(max(s.lowest, -limit), min(s.highest, limit), recipe)
    return ranges


def information_limit(counts: Ints) -> float:
    """The share of a symmetric histogram's half-width that 128 levels describe with least loss.

    Candidates keep the middle 2k of the bins; values outside count at their edges, as in TensorRT. 1 is all of it.

    >>> bell = (1e5 * np.exp(-(((np.arange(2048) - 1023.5) / 30) ** 2))).astype(int)
    >>> bell[[0, -1]] = 1
    >>> information_limit(bell) < 0.2
    True
    """
    half = len(counts) // 2
    candidates = range(_LEVELS // 2, half + 1, max(1, half // 64))
    losses = [(_information_loss(counts, half, k), -k) for k in candidates]
    best = min((loss for loss in losses if np.isfinite(loss[0])), default=(0.0, -half))
    return -best[1] / half


def _information_loss(counts: Ints, half: int, kept: int) -> float:
    """Kullback-Leibler divergence of the clipped histogram from its version with 128 levels."""
    inside = counts[half - kept : half + kept].astype(np.float64)
    clipped = inside.copy()
    clipped[0] += counts[: half - kept].sum()
    clipped[-1] += counts[half + kept :].sum()
    starts = np.linspace(0, len(inside), _LEVELS, endpoint=False).astype(np.int64)
    filled = (clipped > 0).astype(np.float64)
    total, used = np.add.reduceat(inside, starts), np.add.reduceat(filled, starts)
    share = np.divide(total, used, out=np.zeros_like(total), where=used > 0)
    levelled = np.repeat(share, np.diff(np.r_[starts, len(inside)])) * filled
    if not inside.sum() or not clipped.sum():
        return float("inf")
    p, q = clipped / clipped.sum(), levelled / levelled.sum()
    where = p > 0
    # A bin that holds only clipped values has no level: the smallest share stands for none.
    return float((p[where] * np.log(p[where] / np.maximum(q[where], 1e-12))).sum())


def _ends(low: float, high: float, recipe: Recipe) -> Range:
    if not recipe.symmetric:
        return low, high
    top = max(abs(low), abs(high))
    return -top, top


_METHODS: dict[str, Callable[[Mapping[str, Seen], Observe, Recipe], dict[str, Range]]] = {
    "minmax": _minmax,
    "entropy": _entropy,
    "percentile": _percentile,
}
