"""The record of a run: the one place that makes a Result, what is measured for it, and where it was made."""

from __future__ import annotations

import math
import platform
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

import calipers
from calipers.core import DataSource, InferenceError, Measurement, Metric, ModelInfo, Outcomes, Result, Statistic
from calipers.core.choices import MOST_RESAMPLES
from calipers.core.files import ONNX_RUNTIMES, package_versions
from calipers.core.machine import processor_fact
from calipers.core.options import Options, option
from calipers.core.room import give_back
from calipers.metrics import bootstrap
from calipers.metrics.arrays import Floats, slices
from calipers.metrics.threads import available_cores
from calipers.rendering.numbers import plural

CONFIDENCE = 0.95
_PREPARED = 1 << 21  # examples × metrics: of a million examples, two metrics
_MANY = 100_000  # examples: what was freed before is given back
_PACKAGES = (
    "numpy",
    *ONNX_RUNTIMES,
    "tokenizers",
    "torch",
    "transformers",
    "sentence-transformers",
    "datasets",
    "bm25s",
    "budoux",
)


@dataclass(frozen=True)
class Resampling(Options):
    """How intervals are found: how often examples are drawn again, and which share of the values an interval holds.

    >>> Resampling(confidence=2)
    Traceback (most recent call last):
    calipers.core.errors.RequestError: `confidence` must be between 0 and 1, found 2
    """

    confidence: float = option(CONFIDENCE, "Of the intervals.", group="Output", above=0, below=1)
    resamples: int | None = option(
        None,
        "Of the bootstrap. Default: 10,000; beyond 20,000 examples fewer, at least 1,000.",
        group="Output",
        at_least=1,
        at_most=MOST_RESAMPLES,
    )
    seed: int = 42
    threads: int = 1
    cluster: str | None = None

    def record(self, unit: str, outcomes: Outcomes | None = None) -> dict[str, Any]:
        """What a Result says of it; the number of threads changes nothing."""
        clusters = outcomes.clusters if outcomes else None
        count = len(outcomes or ()) if clusters is None else int(clusters.max()) + 1
        facts = {"unit": unit, "confidence": self.confidence, "resamples": self.of(count), "seed": self.seed}
        return facts if clusters is None else facts | {"cluster": self.cluster, "clusters": count}

    def of(self, units: int) -> int:
        """How many resamples of so many examples or clusters are drawn."""
        return self.resamples or bootstrap.enough_resamples(units)


@dataclass(frozen=True)
class MetricValues:
    """Metrics by name, the interval of each (None where there is none), and what a reader should know of them."""

    metrics: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float] | None]
    warnings: tuple[str, ...] = ()


def make_result(
    task: str,
    options: Mapping[str, Any],
    model: ModelInfo,
    outcomes: Outcomes,
    values: MetricValues,
    *,
    dataset: DataSource,
    fingerprint: str,
    bootstrap: Mapping[str, Any],
    request: Mapping[str, Any] | None = None,
    warnings: Sequence[str] = (),
    timing: Mapping[str, float] | None = None,
    environment: Mapping[str, Any] | None = None,
    name: str = "",
) -> Result:
    """A run that ends now, under a new id. `warnings` stand before those of its metrics."""
    return Result(
        run_id=f"{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(3)}",
        created=datetime.now(UTC).isoformat(timespec="milliseconds"),
        task=task,
        options={name: list(v) if isinstance(v, tuple) else v for name, v in options.items()},  # as stored
        model=model,
        dataset=dataset,
        fingerprint=fingerprint,
        request={"given": {}, "defaulted": {}} if request is None else request,
        metrics=values.metrics,
        intervals=values.intervals,
        bootstrap=bootstrap,
        warnings=(*warnings, *values.warnings),
        timing=timing or {},
        environment=describe_environment() if environment is None else environment,
        outcomes=outcomes,
        name=name,
    )


def measure(
    task: Measurement[Any], options: Any, outcomes: Outcomes, resampling: Resampling, *, fewest: int = 2
) -> MetricValues:
    """Every metric of the task that is defined on the outcomes. With fewer than `fewest` examples none has an interval:
    every resample of one example is that example."""
    metrics = [m for m in task.measures(options) if all(column in outcomes.columns for column in m.needs)]
    values = measure_metrics(metrics, task.unit, outcomes, resampling, fewest=fewest)
    if metrics[0].name not in values.metrics:
        raise InferenceError(f"{metrics[0].name} is not defined on these {len(outcomes)} outcomes")
    return values


def measure_metrics(
    metrics: Sequence[Metric], unit: str, outcomes: Outcomes, resampling: Resampling, *, fewest: int = 2
) -> MetricValues:
    """Those of the metrics that are defined on the outcomes, each with its interval."""
    values = {metric.name: metric.value(outcomes.columns) for metric in metrics}
    undefined = [name for name, value in values.items() if not math.isfinite(value)]
    warnings = [f"{name} is not defined on these outcomes (constant predictions)" for name in undefined]
    defined = [metric for metric in metrics if metric.name not in undefined]
    intervals: dict[str, tuple[float, float] | None] = {metric.name: None for metric in defined}
    cluster = outcomes.clusters
    units, count = plural(unit), len(outcomes)
    if cluster is not None:
        units, count = "clusters", int(cluster.max()) + 1
    if count < fewest:
        warnings.append(f"no interval: too few {units} to resample, at least {fewest} are needed and {count} found")
    elif defined:
        drawn = _draw(defined, outcomes, count, resampling)
        for metric, row in zip(defined, drawn, strict=True):
            intervals[metric.name] = bootstrap.percentile_interval(
                row, confidence=resampling.confidence, units=count, spread=metric.spread
            )
        warnings += [
            f"{name} has no interval: it is undefined in too many resamples of {count} {units}"
            for name, ends in intervals.items()
            if ends is None
        ]
    return MetricValues({name: values[name] for name in intervals}, intervals, tuple(warnings))


def _draw(metrics: Sequence[Metric], outcomes: Outcomes, count: int, resampling: Resampling) -> Floats:
    """Every metric on the same resamples, float64[metrics, r]. What a metric prepares is some numbers for each example:
    of many examples, a few metrics are prepared at a time."""
    cluster, rows = outcomes.clusters, []
    for part in slices(len(metrics), max(1, _PREPARED // max(1, len(outcomes)))):
        if len(outcomes) > _MANY:
            give_back()
        statistics: list[Statistic] = [metric.statistic(outcomes.columns) for metric in metrics[part]]
        if cluster is not None:
            statistics = [bootstrap.grouped(statistic, cluster) for statistic in statistics]
        drawn = bootstrap.distribution(
            statistics, count, resamples=resampling.of(count), seed=resampling.seed, threads=resampling.threads
        )
        rows.append(drawn)
    return np.concatenate(rows)


def describe_environment() -> dict[str, Any]:
    """Python, system, processor, cores, and the versions of the packages that compute."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor_fact("model name") or platform.processor() or platform.machine(),
        "cores": available_cores(),
        "versions": {"calipers": calipers.__version__, **package_versions(*_PACKAGES)},
    }
