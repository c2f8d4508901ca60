"""Whether an artifact is the same model as the stage before it, at several batch sizes and lengths, padded and not.

A dropped attention mask shows on padded rows only, a frozen batch size at another size only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from calipers.artifacts.inputs import FixedShape, Rows, at_tokens
from calipers.artifacts.records import Difference, Leak
from calipers.core import InferenceError, ModelError
from calipers.metrics.arrays import Vectors
from calipers.models.batching import Batch, Forward, pad
from calipers.models.onnx_session import Graph
from calipers.models.tokenizer import Tokens

_FLOAT_BOUND = 1e-3  # float32 stages: rounding alone stays a hundred times below it
_HALF_BOUND = 0.03  # float16, as a share of the largest output: its rounding is 1/2048 in each of about 100 steps
LEAK_BOUND = 1e-4  # what padding may move: with the mask in float it moves nothing
_HALF_LEAK = 5e-3  # float16, as a share of the largest output: products of another shape round differently
_SIZES = (1, 2, 7)
_LENGTHS = (8, 33, 128)
_LONGEST = 512


class StageRefused(InferenceError):
    """A float stage that is not the same model as the stage before it."""

    def __init__(self, stage: str, difference: Difference) -> None:
        hints = "".join(f"; {remark}" for remark in remarks(difference)[-1:] if "mask" in remark)
        at = f"at {difference.place}{', in a session without optimisation' if difference.as_it_stands else ''}"
        size = "are not finite" if difference.largest is None else f"differ by {difference.largest:.2g}"
        super().__init__(
            f"the {stage} graph is refused: its outputs {size} from those of {difference.against} {at}; "
            f"the bound is {difference.bound:.2g}{hints}"
        )
        self.stage = stage
        self.difference = difference


class PaddingLeaks(InferenceError):
    """A quantised stage whose outputs depend on padding."""

    def __init__(self, leak: Leak) -> None:
        size = "are not finite" if leak.largest is None else f"move by {leak.largest:.2g}"
        super().__init__(
            f"the quantised graph is refused: its outputs {size} with the padding ({leak.how}); the bound is "
            f"{leak.bound:.2g}"
        )
        self.leak = leak


def remarks(difference: Difference | None) -> list[str]:
    """What a difference points to, in sentences; empty where it is nothing."""
    if difference is None:
        return []
    if difference.largest is None:
        return ["some outputs are not finite"]
    if difference.bound is None:  # intended rounding differs from row to row as well: it does not point to the mask
        return []
    sentences = []
    if difference.largest > difference.bound:
        sentences = [f"it differs by {difference.largest:.2g}, which is more than {difference.bound:.2g}"]
    padded, unpadded = difference.padded, difference.unpadded
    if padded is not None and unpadded is not None and padded > max(10 * unpadded, _FLOAT_BOUND):
        sentences.append(
            f"padded rows differ by {padded:.2g} and unpadded ones by {unpadded:.2g}: check the attention mask"
        )
    return sentences


def cases(rows: Rows, shape: FixedShape | None) -> list[Batch]:
    """Batches of 1, 2 and 7 rows at several lengths, each unpadded and ragged; of a fixed shape, three fillings."""
    count, length = shape or (None, None)
    if count and length:
        return [_batch(rows, count, length, filled) for filled in (1.0, 0.6, 0.2)]
    longest = length or min(rows.longest, _LONGEST)
    lengths = [length] if length else sorted({min(n, longest) for n in _LENGTHS})
    sizes = (count,) if count else _SIZES
    batches = [_batch(rows, size, n, share) for n in lengths for size in sizes for share in (1.0, 0.6)]
    return [*batches, _batch(rows, count or 1, longest, 1.0)]


def _batch(rows: Rows, size: int, length: int, share: float) -> Batch:
    """`size` rows, `length` wide; below a share of 1 they are ragged, and a row alone has padding behind it."""
    lowest = max(min(4, length), round(length * share))
    counts = [length] * size if share == 1 else [int(n) for n in np.linspace(lowest, length, size).round()]
    return pad([_cut(rows, i, count) for i, count in enumerate(counts)], rows, length=length)


def _cut(rows: Rows, start: int, count: int) -> Tokens:
    """Exactly `count` tokens of real texts, from row `start` on, with the last token of that row at the end."""
    order = [rows.tokens[(start + i) % len(rows)] for i in range(count)]
    ids, types = (np.concatenate(values)[:count] for values in zip(*((t.ids, t.type_ids) for t in order), strict=True))
    ids[-1] = order[0].ids[-1]
    return Tokens(ids, types)


def leak(forward: Forward, rows: Rows, shape: FixedShape | None, *, precision: str) -> Leak:
    """How far padding moves the outputs at real tokens. `precision` sets the bound; "" has none."""
    count, length = shape or (None, None)
    tokens = [_cut(rows, i, n) for i, n in enumerate(_leak_lengths(rows, length))]
    if length:
        gaps, how = [_other_padding(forward, rows, row, count or 1, length) for row in tokens], "other tokens in it"
    else:
        gaps, how = _against_alone(forward, rows, tokens, count), "rows padded against the same rows alone"
    largest, scale = (max(numbers) for numbers in zip(*gaps, strict=True))
    bounds = {"w8a8": LEAK_BOUND, "w8a16": LEAK_BOUND, "int4": LEAK_BOUND, "fp16": _HALF_LEAK * scale}
    return Leak(_finite(largest), bounds.get(precision), how)


def leak_remarks(leak: Leak | None) -> list[str]:
    if leak is None or (leak.largest is not None and leak.largest <= (leak.bound or LEAK_BOUND)):
        return []
    size = "are not finite" if leak.largest is None else f"move by {leak.largest:.2g}"
    return [f"its outputs {size} with the padding ({leak.how}): run rows one at a time, as `calipers eval` does"]


def _leak_lengths(rows: Rows, length: int | None) -> list[int]:
    """Eight different lengths, the shortest first, that leave room for padding."""
    longest = max(4, min(length or rows.longest, 64) - 7)
    return [int(n) for n in np.linspace(4, longest, 8).round()]


def _against_alone(
    forward: Forward, rows: Rows, tokens: Sequence[Tokens], count: int | None
) -> list[tuple[float, float]]:
    width, size = min(rows.longest, max(len(row.ids) for row in tokens) + 7), count or len(tokens)
    starts = range(0, len(tokens), size)
    padded = np.concatenate([forward(pad(tokens[i : i + size], rows, rows=size, length=width)) for i in starts])
    alone = [forward(pad([row], rows, rows=count))[0] for row in tokens]
    return [_gap(one, other, len(row.ids), width) for one, other, row in zip(alone, padded, tokens, strict=False)]


def _other_padding(forward: Forward, rows: Rows, row: Tokens, count: int, length: int) -> tuple[float, float]:
    batch = pad([row] * count, rows, length=length)
    filler = np.resize(np.concatenate([tokens.ids for tokens in rows.tokens]), batch.ids.shape)
    other = replace(batch, ids=np.where(batch.mask.astype(bool), batch.ids, filler))
    return _gap(forward(batch)[0], forward(other)[0], len(row.ids), length)


def _gap(one: Vectors, other: Vectors, tokens: int, width: int) -> tuple[float, float]:
    """The largest difference at real tokens, where there are tokens, and the largest value."""
    if one.ndim == 2 and len(other) == width:
        one, other = one[:tokens], other[:tokens]
    if not (np.isfinite(one).all() and np.isfinite(other).all()):
        return float("inf"), float("inf")
    return float(np.abs(one - other).max()), float(np.abs(one).max())


def find_output(graph: Graph, name: str, like: Vectors, batch: Batch) -> str:
    """The graph's output of this name, or else of the same shape."""
    if name in graph.outputs:
        return name
    values = graph.run(batch)
    fitting = [other for other, value in values.items() if np.shape(value) == like.shape]
    if not fitting:
        shapes = ", ".join(f"{other} {list(np.shape(value))}" for other, value in values.items())
        raise ModelError(f"{graph.name} has no output like {name} {list(like.shape)}: it has {shapes}")
    return fitting[0]


def compare(
    before: Sequence[Vectors], after: Sequence[Vectors], batches: Sequence[Batch], *, against: str, bound: float | None
) -> Difference:
    """Over all batches, without padding."""
    gaps = [_compare_one(a, b, batch) for a, b, batch in zip(before, after, batches, strict=True)]
    largest = np.array([gap[0] for gap in gaps])
    worst = int(np.argmax(largest))
    padded = np.array([batch.padded for batch in batches])
    squares = np.sum([gap[1] for gap in gaps]), np.sum([gap[2] for gap in gaps])
    return Difference(
        against=against,
        largest=_finite(largest.max()),
        relative=_finite(np.sqrt(squares[0] / squares[1])) if squares[1] > 0 else None,
        padded=_finite(largest[padded].max()) if padded.any() else None,
        unpadded=_finite(largest[~padded].max()) if not padded.all() else None,
        rows=batches[worst].ids.shape[0],
        length=batches[worst].ids.shape[1],
        is_padded=bool(padded[worst]),
        bound=bound,
        cases=len(batches),
    )


def _compare_one(before: Vectors, after: Vectors, batch: Batch) -> tuple[float, float, float]:
    """Largest difference, sum of its squares, sum of the reference's squares; infinite where not finite."""
    if before.shape != after.shape:
        raise InferenceError(
            f"on a batch of {batch.ids.shape} the stage before gives {list(before.shape)} and this one "
            f"{list(after.shape)}"
        )
    a, b = (at_tokens(values, batch).astype(np.float64) for values in (before, after))
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return float("inf"), float("inf"), float(np.square(a).sum())
    gap = np.abs(a - b)
    return float(gap.max()), float(np.square(gap).sum()), float(np.square(a).sum())


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def bound_of(stage: str, precision: str, before: Sequence[Vectors], batches: Sequence[Batch]) -> float | None:
    """What a stage may differ by. float16: a share of the largest output at a real token. None: rounding is meant."""
    if stage != "quantized":
        return _FLOAT_BOUND
    if precision != "fp16":
        return None
    return _HALF_BOUND * float(max(np.abs(at_tokens(a, b)).max() for a, b in zip(before, batches, strict=True)))
