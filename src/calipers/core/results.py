"""Outcomes, metrics, tasks and results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from calipers.core.datasets import Column, Dataset, DataSource
from calipers.core.models import ModelInfo, Progress

Floats = NDArray[np.float64]
Counts = NDArray[np.number[Any]]
Columns = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Outcomes:
    """What came out of each example. `columns` has one entry per example, the unit that a bootstrap resamples.

    `details` are tables of a finer grain (tokens of a text) whose column `example` points back to the example's row;
    `counts` are facts about the run as a whole, such as how many texts were truncated, or a threshold.
    """

    ids: tuple[str, ...]
    columns: Columns
    texts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    details: Mapping[str, Columns] = field(default_factory=dict)
    counts: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # what a reader should be warned of

    def __len__(self) -> int:
        return len(self.ids)


Statistic = Callable[[Counts], Floats]


@dataclass(frozen=True)
class Thresholds:
    """How much worse still passes, and from where on it is a regression. Shares when relative, points when not."""

    passes: float
    at_risk: float
    relative: bool = True

    def __str__(self) -> str:
        if self.relative:
            return f"{self.passes:.0%} / {self.at_risk:.0%}"
        return f"{self.passes:g} / {self.at_risk:g} points"


@dataclass(frozen=True)
class Metric:
    """A number about outcomes.

    `statistic(columns)` prepares whatever is shared between resamples (a sort, say) and returns a function of how
    often each example counts: int[n, r] to float[r]. The plain value is the one where every example counts once.
    """

    name: str
    about: str
    statistic: Callable[[Columns], Statistic]
    higher_is_better: bool = True
    thresholds: Thresholds = Thresholds(0.05, 0.10)
    digits: int = 2
    needs: tuple[str, ...] = ()  # outcome columns that only some options give; without them the metric is left out
    same: tuple[str, ...] = ()  # outcome columns in which two models must agree for a difference to mean anything
    minor: bool = False  # shown by eval; compared only when asked for, being much the same as another

    def value(self, columns: Columns) -> float:
        """NaN where the metric is not defined."""
        examples = len(next(iter(columns.values())))
        return float(self.statistic(columns)(np.ones((examples, 1), dtype=np.int64))[0])


@dataclass(frozen=True)
class NoOptions:
    """The options of a task that has none."""


@dataclass(frozen=True)
class DefaultData:
    path: str
    name: str | None
    split: str


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What a run is of: a task, or a layer of a diagnosis. The first metric is the primary one."""

    name: str
    about: str
    unit: str  # what one example is called: "pair", "text", "query"
    metrics: tuple[Metric, ...]
    options: type[Any] = NoOptions  # a frozen dataclass, every field with a default
    metrics_for: Callable[[Any], tuple[Metric, ...]] | None = None  # where the options name the metrics: ndcg@k

    def measures(self, options: Any) -> tuple[Metric, ...]:
        """The metrics under these options, the primary one first."""
        return self.metrics_for(options) if self.metrics_for else self.metrics


@dataclass(frozen=True, kw_only=True)
class Task(Measurement):
    """A measurement of a model on a dataset."""

    aliases: tuple[str, ...] = ()
    ability: str  # what a model must be able to do: a key of `models.ABILITIES`
    columns: tuple[Column, ...]
    default_data: DefaultData
    check: Callable[[Dataset], None]  # refuse data that cannot give a number, before a model is loaded
    text_ids: Callable[[Dataset], Mapping[str, Sequence[str]]]  # text → the ids that vectors may be stored under
    run: Callable[[Any, Dataset, Any, Progress], Outcomes]
    # A table of rows; a corpus, queries and judgements; or sets of queries with documents that BM25 found.
    data: Literal["rows", "beir", "nanobeir"] = "rows"


@dataclass(frozen=True)
class Result:
    """A run's record: what was asked, on what, what came out. It holds no verdict."""

    run_id: str
    created: str
    task: str
    options: Mapping[str, Any]  # the task's own
    model: ModelInfo
    dataset: DataSource
    fingerprint: str
    request: Mapping[str, Any]  # {"given": …, "defaulted": …}
    metrics: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float] | None]
    bootstrap: Mapping[str, Any]
    warnings: tuple[str, ...]
    timing: Mapping[str, float]
    environment: Mapping[str, Any]
    outcomes: Outcomes


@dataclass(frozen=True)
class RunLine:
    """One run in a listing: what a reader needs to find it again."""

    run_id: str
    created: str
    task: str
    model_id: str
    dataset: str
    examples: int
    metric: str
    value: float
