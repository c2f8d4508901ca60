"""Where two stages part: the same tensors on the same real rows, by signal to noise, or by what is found again."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.artifacts import Batch, Graph, Rows
from calipers.artifacts.graphs import session_of, with_outputs
from calipers.artifacts.inputs import pad

Arrays = dict[str, NDArray[Any]]  # in the order of the work

CLEAR = 20.0  # dB: an error of a tenth of the signal
SAME = 1e-3  # relative: rounding alone stays a hundred times below it
_LARGE = 1e30  # a mask constant, which would drown every other value
_LONGEST = 64
_ROWS = 6
_SKETCH = 12  # random sums that stand for a tensor


def look_at(rows: Rows, shape: tuple[int, int] | None = None) -> Batch:
    """A few real rows side by side, padded, cut to a length at which every tensor of a graph can be held at once."""
    if shape:
        order = [i % len(rows) for i in range(shape[0])]
        return pad([rows.tokens[i] for i in order], [rows.types[i] for i in order], rows, length=shape[1])
    few = rows.take(_ROWS)
    return pad(few.tokens, few.types, few, length=min(_LONGEST, max(map(len, few.tokens))))


def tensors_of(proto: Any, names: Iterable[str], batch: Batch, what: str) -> Arrays:
    """These tensors of a graph, run as it is written; those that it does not have are left out."""
    made = [name for node in proto.graph.node for name in node.output if name]
    wanted = set(names)
    held = [name for name in made if name in wanted]
    if not held:
        return {}
    return Graph(session_of(with_outputs(proto, held), what), what).run(batch, held)


def torch_outputs(model: Any, forward: Any, batch: Batch) -> Arrays:
    """What every module of a PyTorch model gives, in the order of the work; NAME#2 is a module's second turn."""
    import torch

    found: Arrays = {}
    turns: dict[str, int] = {}

    def keep(name: str) -> Any:
        def hook(module: Any, inputs: Any, output: Any) -> None:
            value = output[0] if isinstance(output, (tuple, list)) and output else output
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                turns[name] = turns.get(name, 0) + 1
                found[name if turns[name] == 1 else f"{name}#{turns[name]}"] = value.detach().float().numpy().copy()

        return hook

    handles = [module.register_forward_hook(keep(name)) for name, module in model.named_modules() if name]
    try:
        forward(batch)
    finally:
        for handle in handles:
            handle.remove()
    return found


def real_part(values: NDArray[Any], batch: Batch) -> NDArray[np.float64]:
    """The numbers at real tokens, flat; what stands at padding means nothing. Mask constants are left out."""
    real = batch.mask.astype(bool)
    if values.ndim >= 2 and values.shape[:2] == real.shape:
        values = values[real]
    elif values.ndim == 4 and (values.shape[0], values.shape[2]) == real.shape:
        values = values.transpose(0, 2, 1, 3)[real]
    flat = np.asarray(values, dtype=np.float64).ravel()
    return np.where(np.abs(flat) < _LARGE, flat, 0.0)


def sqnr(true: NDArray[Any], found: NDArray[Any], batch: Batch) -> float | None:
    """Signal to quantisation noise in dB; None where what was found is not finite. Without noise it is infinite.

    >>> batch = Batch(*(np.ones((1, 2), np.int64),) * 4)
    >>> sqnr(np.array([[1.0, 1.0]]), np.array([[1.1, 0.9]]), batch)
    20.0
    """
    if true.shape != found.shape or not np.isfinite(found).all():
        return None
    a, b = real_part(true, batch), real_part(found, batch)
    signal, noise = float(np.square(a).sum()), float(np.square(a - b).sum())
    if noise == 0:
        return math.inf
    return round(10 * math.log10(signal / noise), 6) if signal > 0 else -math.inf


def profile(true: Arrays, found: Arrays, batch: Batch) -> dict[str, float | None]:
    """The signal to noise of every tensor that both have, in the order of the work."""
    return {name: sqnr(true[name], found[name], batch) for name in true if name in found}


def first_below(ratios: Mapping[str, float | None], bound: float = CLEAR) -> str | None:
    """The first tensor that is clearly another one."""
    return next((name for name, ratio in ratios.items() if ratio is None or ratio < bound), None)


def first_lost(before: Arrays, after: Arrays, batch: Batch) -> str | None:
    """The first tensor of the stage before that is nowhere in the stage after it, and behind which none is found again.

    Tensors are known by their numbers, not by their names: an optimiser renames and fuses. One that a fusion took
    away is missing too, but those behind it are there.
    """
    index = _index(after, batch)
    lost: str | None = None
    for name, values in before.items():
        sketch = _sketch(values, batch)
        if sketch is None:
            continue
        if _is_known(sketch, index.get(_size(values, batch))):
            lost = None
        elif lost is None:
            lost = name
    return lost


def _size(values: NDArray[Any], batch: Batch) -> int:
    return int(real_part(values, batch).size)


def _index(tensors: Arrays, batch: Batch) -> dict[int, NDArray[np.float64]]:
    """By how many numbers a tensor has at real tokens: the sketches of all such tensors."""
    found: dict[int, list[NDArray[np.float64]]] = {}
    for values in tensors.values():
        if (sketch := _sketch(values, batch)) is not None:
            found.setdefault(_size(values, batch), []).append(sketch)
    return {size: np.stack(sketches) for size, sketches in found.items()}


def _sketch(values: NDArray[Any], batch: Batch) -> NDArray[np.float64] | None:
    """A few random sums: two tensors of the same size are as far apart as their sums. None for what cannot be known.

    Only hidden states count: [batch, length, …] that differ from row to row and from place to place.
    """
    if values.ndim < 3 or values.shape[:2] != batch.mask.shape or not np.issubdtype(values.dtype, np.floating):
        return None
    flat = real_part(values, batch)
    if not np.isfinite(flat).all() or flat.std() == 0:
        return None
    signs = np.random.default_rng(flat.size).choice([-1.0, 1.0], size=(flat.size, _SKETCH))
    return np.append(flat @ signs / math.sqrt(flat.size), np.sqrt(np.square(flat).mean()))


def _is_known(sketch: NDArray[np.float64], known: NDArray[np.float64] | None) -> bool:
    if known is None:
        return False
    gaps = np.sqrt(np.square(known[:, :-1] - sketch[:-1]).mean(axis=1))
    return bool((gaps <= SAME * max(sketch[-1], 1e-9)).any())
