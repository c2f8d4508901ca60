"""The bench that every stage and every trial is put on: the same rows, one metric, a verdict against the baseline."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from calipers import artifacts as build
from calipers import tasks
from calipers.artifacts.calibrate import calibration_settings
from calipers.artifacts.inputs import single
from calipers.attribution import timing
from calipers.attribution.request import Request
from calipers.attribution.search import Measured
from calipers.comparison import api as comparing
from calipers.comparison.records import Comparison
from calipers.core import InferenceError, Metric, Progress, Result, Task
from calipers.models import ModelOptions
from calipers.runs import api
from calipers.runs.store import Store

_SEARCH_RESAMPLES = 1_000
_TIMED = 8  # rows


@dataclass
class Bench:
    """`results` are those of the stages that could be measured, in their order; the first is the baseline."""

    request: Request
    build_request: build.BuildRequest
    store: Store | None
    progress: Progress
    results: dict[str, Result] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.build_request.folder

    @property
    def task(self) -> Task:
        return tasks.find(self.request.protocol.task or api.TASK)

    @property
    def baseline(self) -> Result:
        return next(iter(self.results.values()))

    @property
    def metric(self) -> Metric:
        """The one that decides: the task's primary metric."""
        return self.task.measures(self.task.options(**self.baseline.options))[0]

    def evaluate(self, reference: str, *, torch: bool = False, trial: bool = False) -> Result:
        """A trial is not stored and has coarser intervals, which nobody reads."""
        asked = self.request.protocol
        store = None if trial else self.store
        return api.evaluate(
            reference,
            task=self.task.name,
            task_options=asked.task_options,
            dataset=asked.dataset,
            columns=asked.columns,
            model_options=_for_torch(asked.model_options) if torch else _for_graph(asked.model_options),
            data_options=asked.data_options,
            resamples=_SEARCH_RESAMPLES if trial else self.request.resamples,
            confidence=self.request.confidence,
            store=store,
            reuse=store is not None,
            progress=self.progress,
        )

    def compare(self, first: Result, second: Result) -> Comparison:
        verdict = comparing.compare(
            first,
            [second],
            thresholds={k: v for k, v in self.request.thresholds.items() if k == self.metric.name},
            metrics=(self.metric.name,),
            confidence=self.request.confidence,
            resamples=self.request.resamples,
            worst=0,
        )[0]
        return verdict.comparisons[0]

    def judge(self, first: str, second: str) -> Comparison | None:
        """Two stages by name; None where one of them is dead."""
        if first not in self.results or second not in self.results:
            return None
        return self.compare(self.results[first], self.results[second])

    def try_out(self, what: str, write: Callable[[Path], tuple[str, ...]]) -> Measured:
        """Write a graph (which says what nodes it keeps in float), measure it, and throw it away."""
        self.progress.start(what, 0)
        place = self.folder / f"trial-{time.time_ns()}"
        place.mkdir(parents=True)
        try:
            nodes = write(place / "model.onnx")
            result = self.evaluate(str(place / "model.onnx"), trial=True)
        except InferenceError:
            return Measured(None, "INVALID", passes=False)
        finally:
            shutil.rmtree(place, ignore_errors=True)
        found = self.compare(self.baseline, result)
        value = result.metrics[self.metric.name]
        return Measured(value, found.label, found.estimate == "PASS", len(nodes), result)

    def latencies(self, graphs: Sequence[Path]) -> list[tuple[float, float]]:
        """p50 and p95 of each, in milliseconds for one row on one thread, timed in turn."""
        self.progress.start("Timing", 0)
        wanted = self.build_request
        return timing.latencies(graphs, single(wanted.rows.take(_TIMED), wanted.shape), provider=wanted.provider)

    def ranges(self, graph: build.FloatGraph, recipe: build.Recipe) -> build.Ranges | None:
        """Those that the build took, where they are of this graph, these rows and this method; else taken now."""
        rows = self.build_request.calibration
        if not recipe.needs_ranges or rows is None:
            return None
        for file in (self.folder / "calibration").glob("*.json"):
            found = build.read_ranges(file)
            same = found.settings == calibration_settings(recipe) and found.rows == rows.ids
            if same and found.fingerprint == rows.fingerprint and set(graph.tensors) <= set(found.tensors):
                return found
        shape = self.build_request.shape
        found = build.collect_ranges(graph, rows, recipe, shape=shape, progress=self.progress)
        (self.folder / "calibration").mkdir(exist_ok=True)
        found.save(self.folder / "calibration" / f"{time.time_ns()}.json")
        return found


def _for_torch(options: ModelOptions) -> ModelOptions:
    return replace(options, provider=None, output=None, device="cpu")


def _for_graph(options: ModelOptions) -> ModelOptions:
    """The settings of a stage lie beside it."""
    return replace(options, model_id=None, revision=None, dtype="float32", allow_pickle=False, trust_remote_code=False)
