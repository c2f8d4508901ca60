"""Is an artifact the same model as the stage before it? Asked at several batch sizes and lengths, padded and not.

A dropped attention mask shows on padded rows only, a frozen batch size at another size only, a dropout left on
everywhere: so all of these are tried before an artifact is called built.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calipers.artifacts.inputs import Batch, Floats, Forward, Graph, Rows, pad
from calipers.core import InferenceError, ModelError

FLOAT_BOUND = 1e-3  # float32 stages: rounding alone stays a hundred times below it
HALF_BOUND = 0.03  # float16, as a share of the largest output: its rounding is 1/2048 in each of some 100 steps
_SIZES = (1, 2, 7)
_LENGTHS = (8, 33, 128)
_LONGEST = 512


@dataclass(frozen=True)
class Difference:
    """Between the outputs of two stages at real tokens. Numbers are None where an output is not finite."""

    against: str
    largest: float | None  # absolute
    relative: float | None  # root mean square of the difference as a share of that of the stage before
    padded: float | None  # the largest in batches with padding, and in those without
    unpadded: float | None
    rows: int  # of the batch with the largest difference
    length: int
    is_padded: bool
    bound: float | None  # more than this is refused; None where rounding is meant
    cases: int
    as_it_stands: bool = False  # the worst is of a session that changes nothing about the graph

    @property
    def passed(self) -> bool:
        """Where there is a bound, whether it holds. Output that is not finite holds no bound."""
        return self.bound is None or (self.largest is not None and self.largest <= self.bound)

    def __str__(self) -> str:
        worst = "not finite" if self.largest is None else f"{self.largest:.2e}"
        kind = "padded" if self.is_padded else "unpadded"
        return f"{worst} (batch {self.rows}, length {self.length}, {kind})"


class StageRefused(InferenceError):
    """A float stage that is not the same model as the stage before it."""

    def __init__(self, stage: str, difference: Difference) -> None:
        hints = "".join(f"; {remark}" for remark in remarks(difference)[-1:] if "mask" in remark)
        kind = "padded" if difference.is_padded else "unpadded"
        at = f"at batch {difference.rows}, length {difference.length}, {kind}"
        at += ", in a session that optimises nothing" if difference.as_it_stands else ""
        size = "are not finite" if difference.largest is None else f"differ by {difference.largest:.2g}"
        super().__init__(
            f"the {stage} graph is refused: its outputs {size} from those of {difference.against} {at}; "
            f"the bound is {difference.bound:.2g}{hints}"
        )
        self.stage = stage
        self.difference = difference


def remarks(difference: Difference | None) -> list[str]:
    """What the figures say beyond their size."""
    if difference is None:
        return []
    if difference.largest is None:
        return ["some outputs are not finite"]
    found = []
    if difference.bound is not None and difference.largest > difference.bound:
        found = [f"it differs by {difference.largest:.2g}, which is more than {difference.bound:.2g}"]
    padded, unpadded = difference.padded, difference.unpadded
    # Rounding that is meant differs by row as well: only where none is does this point at the mask.
    if difference.bound is None or padded is None or unpadded is None:
        return found
    if padded > max(10 * unpadded, FLOAT_BOUND):
        found.append(
            f"padded rows differ by {padded:.2g} and unpadded ones by {unpadded:.2g}: look at the attention mask"
        )
    return found


def cases(rows: Rows, shape: tuple[int, int] | None) -> list[Batch]:
    """Batches of 1, 2 and 7 rows at several lengths, each unpadded and ragged; in a fixed shape, three fillings of it.

    The rows are the real texts, one after another, cut to the lengths that are wanted.
    """
    if shape:
        return [_batch(rows, shape[0], shape[1], filled) for filled in (1.0, 0.6, 0.2)]
    longest = min(rows.longest, _LONGEST)
    lengths = sorted({min(length, longest) for length in _LENGTHS})
    found = [_batch(rows, size, n, share) for n in lengths for size in _SIZES for share in (1.0, 0.6)]
    return [*found, _batch(rows, 1, longest, 1.0)]


def _batch(rows: Rows, size: int, length: int, share: float) -> Batch:
    """`size` rows, `length` wide; below a share of 1 they are ragged, and a row alone has padding behind it."""
    lowest = max(min(4, length), round(length * share))
    counts = [length] * size if share == 1 else [int(n) for n in np.linspace(lowest, length, size).round()]
    drawn = [_cut(rows, i, count) for i, count in enumerate(counts)]
    return pad([ids for ids, _ in drawn], [types for _, types in drawn], rows, length=length)


def _cut(rows: Rows, start: int, count: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Exactly `count` tokens of real texts: from one row on, as many as it takes, closed by that row's last token."""
    order = [(start + i) % len(rows) for i in range(count)]
    tokens, types, have = [], [], 0
    for i in order:
        tokens.append(rows.tokens[i])
        types.append(rows.types[i])
        have += len(rows.tokens[i])
        if have >= count:
            break
    ids, kinds = np.concatenate(tokens)[:count], np.concatenate(types)[:count]
    ids[-1] = tokens[0][-1]
    return ids, kinds


def answers(forward: Forward, batches: Sequence[Batch]) -> list[Floats]:
    return [forward(batch) for batch in batches]


def find_output(graph: Graph, name: str, like: Floats, batch: Batch) -> str:
    """The graph's output that stands for `name`: called so, or else of the same shape."""
    if name in graph.outputs:
        return name
    found = graph.run(batch)
    fitting = [other for other, value in found.items() if np.shape(value) == like.shape]
    if not fitting:
        told = ", ".join(f"{other} {list(np.shape(value))}" for other, value in found.items())
        raise ModelError(f"{graph.name} has no output like {name} {list(like.shape)}: it gives {told}")
    return fitting[0]


def compare(
    before: Sequence[Floats], after: Sequence[Floats], batches: Sequence[Batch], *, against: str, bound: float | None
) -> Difference:
    """Over all batches; what stands at padding does not count."""
    found = [_compare_one(a, b, batch) for a, b, batch in zip(before, after, batches, strict=True)]
    largest = np.array([f[0] for f in found])
    worst = int(np.argmax(largest))
    padded = np.array([batch.padded for batch in batches])
    squares = np.sum([f[1] for f in found]), np.sum([f[2] for f in found])
    return Difference(
        against=against,
        largest=_known(largest.max()),
        relative=_known(np.sqrt(squares[0] / squares[1])) if squares[1] > 0 else None,
        padded=_known(largest[padded].max()) if padded.any() else None,
        unpadded=_known(largest[~padded].max()) if not padded.all() else None,
        rows=batches[worst].ids.shape[0],
        length=batches[worst].ids.shape[1],
        is_padded=bool(padded[worst]),
        bound=bound,
        cases=len(batches),
    )


def worse(one: Difference, other: Difference) -> Difference:
    """The one that is further off."""
    sizes = [float("inf") if found.largest is None else found.largest for found in (one, other)]
    return other if sizes[1] > sizes[0] else one


def _compare_one(before: Floats, after: Floats, batch: Batch) -> tuple[float, float, float]:
    """Largest difference, sum of its squares, sum of the reference's squares; infinite where not finite."""
    if before.shape != after.shape:
        raise InferenceError(
            f"on a batch of {batch.ids.shape} the stage before gives {list(before.shape)} and this one "
            f"{list(after.shape)}"
        )
    real = batch.mask.astype(bool) if before.ndim == 3 and before.shape[:2] == batch.mask.shape else ...
    a, b = before[real].astype(np.float64), after[real].astype(np.float64)
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return float("inf"), float("inf"), float(np.square(a).sum())
    gap = np.abs(a - b)
    return float(gap.max()), float(np.square(gap).sum()), float(np.square(a).sum())


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def half_bound(before: Sequence[Floats], batches: Sequence[Batch]) -> float:
    """What float16 may differ by: a share of the largest output at a real token."""
    tops = [
        np.abs(a[batch.mask.astype(bool)] if a.ndim == 3 and a.shape[:2] == batch.mask.shape else a).max()
        for a, batch in zip(before, batches, strict=True)
    ]
    return HALF_BOUND * float(max(tops))
