"""Metrics, tasks and results."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from calipers.core.curves import CurveRow, curve_rows
from calipers.core.datasets import Column, Dataset, DataSource
from calipers.core.errors import DataError, RequestError, printable, quote
from calipers.core.models import ModelInfo, Progress, Speed, artifact_name
from calipers.core.outcomes import Columns, Counts, Floats, Outcomes
from calipers.core.rounding import percentage
from calipers.core.slices import Slices

SCHEMA = "calipers/eval/1"

Statistic = Callable[[Counts], Floats]

_NUMBER = r"\s*(\d+(?:\.\d+)?|\.\d+)\s*(%?)\s*"
_LONGEST = 100  # characters of two numbers; a search for them in more white space takes its square
_PAIR = re.compile(rf"{_NUMBER},{_NUMBER}", re.ASCII)


@dataclass(frozen=True)
class Thresholds:
    """How much worse still passes, and from where on it is a regression. Shares when relative, points when not."""

    passes: float
    at_risk: float
    relative: bool = True

    def __str__(self) -> str:
        if self.relative:
            return f"{percentage(self.passes)} / {percentage(self.at_risk)}"
        return f"{self.passes:g} / {self.at_risk:g} points"


def parse_thresholds(text: str, where: str) -> Thresholds:
    """`5%,10%` is a share of the baseline, `2.0,4.0` are the metric's own points. `where` names the origin in errors.

    >>> parse_thresholds("5%,10%", "f1").passes, parse_thresholds("2.0,4.0", "f1").relative
    (0.05, False)
    """
    match = _PAIR.fullmatch(text) if len(text) <= _LONGEST else None
    passes, at_risk = (float(match[1]), float(match[3])) if match else (0.0, 0.0)
    if not match or match[2] != match[4] or math.isinf(at_risk):
        raise RequestError(f"{where}: expected two numbers such as 5%,10% or 2.0,4.0, found {quote(text)}")
    if passes > at_risk:
        raise RequestError(f"{where}: the first number passes and must not be above the second, found {text!r}")
    return Thresholds(passes / 100, at_risk / 100) if match[2] else Thresholds(passes, at_risk, relative=False)


@dataclass(frozen=True)
class Metric:
    """A number about outcomes.

    `statistic(columns)` prepares what resamples share (a sort, say) and returns a function of how often each example
    counts: int[n, r] to float[r]. The plain value is the one where every example counts once.
    """

    name: str
    about: str
    statistic: Callable[[Columns], Statistic]
    higher_is_better: bool = True
    thresholds: Thresholds = Thresholds(0.05, 0.10)
    digits: int = 2
    needs: tuple[str, ...] = ()  # outcome columns that depend on the options; without them the metric is skipped
    same: tuple[str, ...] = ()  # outcome columns that must be equal in two models for a comparison to be valid
    # Of a perplexity or its logarithm: value → ln(perplexity). A loss as a share is then one of the perplexity.
    log_scale: Callable[[Floats], Floats] | None = None
    spread: float = 1.0  # by how much more it varies between samples than between resamples of one
    minor: bool = False  # shown by eval; compared only on request, because it is close to another metric
    decided_by: str = ""  # the metric that a verdict depends on in its place, because this one is optimistic
    # Columns in which these examples, bool[n], have the worst outcome: this model cannot read them and another one can.
    fail: Callable[[Columns, NDArray[np.bool_]], Columns] | None = None
    # For a metric that is no mean: what makes outcomes of two models exchangeable and leaves the metric as it is.
    exchange: Callable[[NDArray[Any]], NDArray[Any]] | None = None

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


ChosenOptions = TypeVar("ChosenOptions")  # the options class of a measurement


@dataclass(frozen=True, kw_only=True)
class Measurement(Generic[ChosenOptions]):
    """What a run is of: a task, or a layer of a diagnosis. The first metric is the primary one."""

    name: str
    about: str
    unit: str  # what one example is called: "pair", "text", "query"
    metrics: tuple[Metric, ...]
    options: type[ChosenOptions] = NoOptions  # type: ignore[assignment]  # a frozen dataclass, each field with a default
    metrics_for: Callable[[ChosenOptions], tuple[Metric, ...]] | None = None  # where options name the metrics: ndcg@k

    def measures(self, options: ChosenOptions) -> tuple[Metric, ...]:
        """The metrics under these options, the primary one first."""
        return self.metrics_for(options) if self.metrics_for else self.metrics


def refuse_empty(dataset: Dataset) -> None:
    if len(dataset) == 0:
        raise DataError(f"{dataset.source.path} gives no example")


@dataclass(frozen=True, kw_only=True)
class Task(Measurement[ChosenOptions]):
    """A measurement of a model on a dataset."""

    aliases: tuple[str, ...] = ()
    ability: str  # what a model must be able to do: a key of `models.ABILITIES`
    columns: tuple[Column, ...]
    default_data: DefaultData
    check: Callable[[Dataset], None] = refuse_empty  # of data that cannot give a number, before a model is loaded
    # What the data decide of the options, and what they rule out.
    settle: Callable[[ChosenOptions, Dataset], ChosenOptions] = lambda options, _: options
    text_ids: Callable[[Dataset], Mapping[str, Sequence[str]]] = (
        lambda _: {}
    )  # text → ids that vectors may be stored under
    run: Callable[[Any, Dataset, ChosenOptions, Progress], Outcomes]
    # A table of rows; a corpus, queries and judgements; or sets of queries with documents that BM25 found.
    data: Literal["rows", "beir", "nanobeir"] = "rows"


@dataclass(frozen=True)
class Result:
    """A run's record: what was requested, on which data, what came out. It holds no verdict."""

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
    name: str = ""  # what its maker calls the run
    slices: tuple[Slices, ...] = ()  # by group, where that is requested: a view of the outcomes, which is not stored

    def __repr__(self) -> str:
        """One line: the first metric with its interval, and what it is about."""
        name, value = next(iter(self.metrics.items()), ("no metric", float("nan")))
        interval = f" [{ends}]" if (ends := self._interval(name)) else ""
        return f"Result({self._title()}: {name} {value:.4g}{interval}, run {self.run_id})"

    def _repr_html_(self) -> str:
        rows = [(name, f"{value:.4g}", self._interval(name)) for name, value in self.metrics.items()]
        notes = [f"warning: {warning}" for warning in self.warnings]
        return html_table(self._title(), ("metric", "value", "interval"), rows, [*notes, f"run {self.run_id}"])

    def _title(self) -> str:
        return f"{self.model.model_id}, {self.task} on {len(self.outcomes):,} of {self.dataset.path}"

    def _interval(self, name: str) -> str:
        ends = self.intervals.get(name)
        return f"{ends[0]:.4g} to {ends[1]:.4g}" if ends else ""

    @property
    def curve(self) -> list[CurveRow]:
        """The metrics by the size of the vectors, where several sizes were measured."""
        return curve_rows(self.metrics, self.intervals, self.options.get("dimensions") or (), self.outcomes)

    @property
    def speed(self) -> Speed | None:
        return Speed.of(self.timing)

    def to_dict(self) -> dict[str, Any]:
        """The document that `calipers eval --json` writes; its keys are a contract (see docs/design.md). Numbers are
        not rounded, and NaN stays NaN. What came out of each example is in `outcomes.to_arrow()`."""
        source = dict(vars(self.dataset))
        which = {key: source.pop(key) for key in ("path", "name", "split", "revision")}
        return {
            "schema": SCHEMA,
            "run": self.run_id,
            "name": self.name or None,
            "created": self.created,
            "model_id": self.model.model_id,
            "model_path": self.model.path,
            "task": self.request.get("given", {}).get("task", self.task),
            "canonical_task": self.task,  # it decides whether runs can be compared
            "device": self.model.device,
            "dataset": {**which, "samples": len(self.outcomes), **source, "fingerprint": self.fingerprint},
            "scored": self.outcomes.counts,
            "options": self.options,
            "curve": [vars(row) for row in self.curve],
            "metrics": self.metrics,
            "intervals": self.intervals,
            "slices": [each.to_dict() for each in self.slices],
            "bootstrap": self.bootstrap,
            "model": {
                "backend": self.model.backend,
                "fingerprint": self.model.fingerprint,
                "size": self.model.size,
                **self.model.settings,
            },
            "warnings": self.warnings,
            "timing": self.timing,
            "environment": self.environment,
            "request": self.request,
        }


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
    name: str = ""
    model_path: str | None = None
    fingerprint: str = ""  # of the model
    tags: tuple[str, ...] = ()
    label: str = ""  # of the newest verdict on it
    bytes: int = 0  # of its outcomes on disk

    @property
    def artifact(self) -> str:
        """What was measured, with the folder above it."""
        short = artifact_name(self.model_id, self.model_path)
        return short if "/" in short else artifact_name(self.model_id, self.model_path, folders=2)


def html_table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]], notes: Iterable[str] = ()) -> str:
    """A title, a table and notes below it, for `_repr_html_`. Every text is escaped.

    >>> html_table("R & D", ["ndcg"], [["0.5"]])
    '<div><p><b>R &amp; D</b></p><table><tr><th>ndcg</th></tr><tr><td>0.5</td></tr></table></div>'
    """
    lines = [_row(header, "th"), *(_row(row, "td") for row in rows)]
    below = "".join(f"<p>{_safe(note)}</p>" for note in notes)
    return f"<div><p><b>{_safe(title)}</b></p><table>{''.join(lines)}</table>{below}</div>"


def _row(cells: Sequence[str], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{_safe(cell)}</{tag}>' for cell in cells)}</tr>"


def _safe(text: str) -> str:
    return escape(printable(text))
