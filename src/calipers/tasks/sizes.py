"""The same measurement at several sizes of a vector: how much do its first numbers lose against all (Matryoshka)?

Texts are encoded once. Column `NAME/32` of the outcomes is column `NAME` as the first 32 numbers give it; metric
`NAME/32` is metric `NAME` of those columns, and `NAME_delta/32` is that less the metric of whole vectors, so that its
interval is a paired one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from calipers.core.errors import RequestError
from calipers.core.models import SILENT, Encoder, ModelInfo, Progress, on_side, truncated_by
from calipers.core.options import Options
from calipers.core.outcomes import Columns
from calipers.core.results import Metric, Statistic
from calipers.metrics.arrays import Vectors


@dataclass(frozen=True)
class SizeOptions(Options):
    """`dimensions` are the sizes that are measured beside the whole vector: several of `ModelOptions.truncate_dim`."""

    dimensions: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "dimensions", tuple(self.dimensions))  # a stored run has a list


def first_numbers(vectors: Vectors, size: int) -> Vectors:
    """[n, d] to [n, size]."""
    if size > vectors.shape[1]:
        raise RequestError(f"`truncate_dim` must be at most {vectors.shape[1]}, the size of the vectors, found {size}")
    return vectors[:, :size]


@dataclass(frozen=True, eq=False)
class Remembered:
    """An encoder that encodes no texts twice; it holds all vectors in memory."""

    model: Encoder
    vectors: dict[tuple[str | None, str | None, tuple[str, ...]], Vectors] = field(default_factory=dict)
    on: str | None = None  # the side
    size: int | None = None  # how many numbers are kept

    @property
    def info(self) -> ModelInfo:
        return self.model.info

    @property
    def truncated(self) -> int:
        return truncated_by(self.model)

    def side(self, side: str) -> Remembered:
        return replace(self, model=on_side(self.model, side), on=side)

    def encode(self, texts: Sequence[str], *, prompt: str | None = None, progress: Progress = SILENT) -> Vectors:
        key = (self.on, prompt, tuple(texts))
        if key not in self.vectors:
            self.vectors[key] = self.model.encode(texts, prompt=prompt, progress=progress)
        return self.vectors[key] if self.size is None else first_numbers(self.vectors[key], self.size)


def at_sizes(metrics: Iterable[Metric], sizes: Sequence[int]) -> tuple[Metric, ...]:
    """The metrics at every size, and how much they differ from those of whole vectors."""
    return tuple(
        replace(
            metric,
            name=f"{metric.name}{kind}/{size}",
            about=f"{metric.about}, of the first {size} numbers{less}",
            statistic=make(metric, size),
            needs=tuple(f"{column}/{size}" for column in metric.needs),
            minor=True,
        )
        for size in sizes
        for metric in metrics
        for kind, less, make in (("", "", _at), ("_delta", " less that of all", _delta))
    )


def _at(metric: Metric, size: int) -> Callable[[Columns], Statistic]:
    return lambda columns: metric.statistic(_columns_at(columns, size))


def _delta(metric: Metric, size: int) -> Callable[[Columns], Statistic]:
    def prepare(columns: Columns) -> Statistic:
        part, whole = metric.statistic(_columns_at(columns, size)), metric.statistic(columns)
        return lambda counts: part(counts) - whole(counts)

    return prepare


def _columns_at(columns: Columns, size: int) -> Columns:
    return {name: columns.get(f"{name}/{size}", values) for name, values in columns.items()}
