"""Real texts as tokens, batches of them, and how a graph is run on a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.core import InferenceError, ModelError

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
CPU = "CPUExecutionProvider"

_DTYPES: Mapping[str, type[np.generic]] = {
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
}
# An input's part is told by its name; every exporter in use keeps one of these words in it.
_PARTS = {"mask": "mask", "type": "types", "segment": "types", "position": "positions", "ids": "ids", "token": "ids"}


@dataclass(frozen=True)
class Rows:
    """Real texts (or pairs of them) as one model's tokens. `ids` are those of the dataset's rows."""

    ids: tuple[str, ...]
    tokens: tuple[NDArray[np.int32], ...]
    types: tuple[NDArray[np.int32], ...]
    pad_id: int
    longest: int  # the most tokens that the model takes
    first_position: int  # where the model counts positions from: RoBERTa's family begins behind the padding id
    path: str  # of the dataset
    fingerprint: str

    def __len__(self) -> int:
        return len(self.tokens)

    def take(self, count: int) -> Rows:
        """The first rows. The fingerprint stays that of the dataset they are from."""
        kept = slice(count)
        return Rows(self.ids[kept], self.tokens[kept], self.types[kept], *self._settings)

    @property
    def _settings(self) -> tuple[int, int, int, str, str]:
        return self.pad_id, self.longest, self.first_position, self.path, self.fingerprint


@dataclass(frozen=True)
class Batch:
    """int64[rows, length] each; the mask is 1 at real tokens."""

    ids: Ints
    mask: Ints
    types: Ints
    positions: Ints

    @property
    def padded(self) -> bool:
        return not bool(self.mask.all())


Forward = Callable[[Batch], Floats]


def pad(
    tokens: Sequence[NDArray[Any]], types: Sequence[NDArray[Any]], rows: Rows, *, length: int | None = None
) -> Batch:
    """Rows side by side, as long as the longest of them or as `length` says; what is longer is cut."""
    width = length or max(map(len, tokens))
    shape = (len(tokens), width)
    ids, mask, kinds = np.full(shape, rows.pad_id, np.int64), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for i, (row, kind) in enumerate(zip(tokens, types, strict=True)):
        count = min(len(row), width)
        ids[i, :count], mask[i, :count], kinds[i, :count] = row[:count], 1, kind[:count]
    return Batch(ids, mask, kinds, np.broadcast_to(np.arange(width) + rows.first_position, shape))


def single(rows: Rows, shape: tuple[int, int] | None = None) -> list[Batch]:
    """Each row alone: unpadded, or in the fixed shape, whose further rows are copies of it."""
    count, length = shape or (1, None)
    return [
        pad([tokens] * count, [types] * count, rows, length=length)
        for tokens, types in zip(rows.tokens, rows.types, strict=True)
    ]


class Graph:
    """An ONNX graph in a session of one thread, fed by its own input names and types."""

    def __init__(self, session: Any, name: str) -> None:
        self.session = session
        self.name = name
        self.inputs = [(i.name, _part(i, name), _DTYPES.get(i.type, np.int64)) for i in session.get_inputs()]
        self.outputs = {o.name: o.type for o in session.get_outputs()}

    def feeds(self, batch: Batch) -> dict[str, NDArray[Any]]:
        return {name: np.ascontiguousarray(getattr(batch, part), dtype=dtype) for name, part, dtype in self.inputs}

    def run(self, batch: Batch, outputs: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
        names = list(outputs or self.outputs)
        try:
            return dict(zip(names, self.session.run(names, self.feeds(batch)), strict=True))
        except Exception as error:  # onnxruntime's errors have no common base class
            raise InferenceError(f"{self.name} fails on a batch of {batch.ids.shape}: {first_line(error)}") from error

    def forward(self, output: str) -> Forward:
        return lambda batch: np.asarray(self.run(batch, [output])[output], dtype=np.float32)

    def shape(self) -> tuple[int, int] | None:
        """Rows and length where the graph demands both."""
        found = self.session.get_inputs()[0].shape
        return (found[0], found[1]) if all(isinstance(size, int) for size in found) else None


def open_graph(file: Path, *, provider: str = CPU, what: str = "the graph", optimize: bool = True) -> Graph:
    """With `optimize` off the session runs the graph as it stands."""
    return Graph(open_session(file, provider=provider, what=what, optimize=optimize), what)


def open_session(model: Path | bytes, *, provider: str = CPU, what: str = "the graph", optimize: bool = True) -> Any:
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    settings.log_severity_level = 4
    if not optimize:
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(
            model if isinstance(model, bytes) else str(model), settings, providers=[provider]
        )
    except Exception as error:
        raise ModelError(f"{provider} cannot run {what}: {first_line(error)}") from error
    if session.get_providers()[0] != provider:
        raise ModelError(f"{provider} cannot run {what}: onnxruntime fell back to {session.get_providers()[0]}")
    return session


def _part(found: Any, name: str) -> str:
    part = next((part for word, part in _PARTS.items() if word in found.name.lower()), None)
    if part is None or len(found.shape) != 2:
        raise ModelError(
            f"{name} does not take text: its input {found.name!r} is {found.type}{list(found.shape)}, expected token "
            "ids, masks, type ids or positions of shape [batch, length]"
        )
    return part


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
