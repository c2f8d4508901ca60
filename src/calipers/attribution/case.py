"""One attribution in progress: what was requested, what was measured, and the evaluations that are left."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from calipers import tasks
from calipers.artifacts.calibrate import Ranges
from calipers.artifacts.graphs import FloatGraph, content_size
from calipers.artifacts.inputs import latencies, single
from calipers.artifacts.recipe import Recipe
from calipers.artifacts.records import Latency
from calipers.artifacts.stages import BuildPlan
from calipers.attribution.records import AttributionOptions, StageFigure
from calipers.attribution.trials import INVALID, Evaluation, Ledger
from calipers.comparison import api as comparison
from calipers.comparison.records import Comparison
from calipers.core import InferenceError, Metric, Progress, Result, Task, Within
from calipers.models.onnx_session import Graph, open_graph
from calipers.runs import api as runs
from calipers.runs.protocol import Protocol
from calipers.runs.store import Store

_TRIAL_RESAMPLES = 1_000
_TIMED_ROWS = 8
_TIMED_ROUNDS = 5


@dataclass
class Case:
    """`results` are those of the stages that could be measured, in order; the first is the baseline."""

    protocol: Protocol
    options: AttributionOptions
    plan: BuildPlan
    store: Store | None
    progress: Progress
    results: dict[str, Result] = field(default_factory=dict)
    stages: list[StageFigure] = field(default_factory=list)
    lost: list[StageFigure] = field(default_factory=list)  # stages whose step does not pass, the largest loss first
    notes: list[str] = field(default_factory=list)
    built: dict[str, Path] = field(default_factory=dict)  # other precisions that are there already → their graphs
    folder: Path | None = None  # where the graph that is examined was, and its float graph may be
    ledger: Ledger = field(init=False)
    step: Progress = field(init=False)  # of what is being done
    _sound: Graph | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.step = self.progress
        self.ledger = Ledger(lambda tensors, what: INVALID, self.options.budget)

    def begin(self, what: str) -> None:
        """Show what is done from now on."""
        self.step = Within(self.progress, what)
        self.step.start("", 0)

    @property
    def guilty(self) -> StageFigure:
        """The stage whose step lost most."""
        return self.lost[0]

    @property
    def before(self) -> StageFigure:
        """The stage before the guilty one."""
        return self.stages[[stage.stage for stage in self.stages].index(self.guilty.stage) - 1]

    @property
    def recipe(self) -> Recipe | None:
        """How the quantised graph was made; None where it was made elsewhere."""
        return None if "quantized" in self.plan.stages else self.plan.recipe

    @property
    def task(self) -> Task[Any]:
        return tasks.find(self.protocol.task or runs.TASK)

    @property
    def baseline(self) -> Result:
        return next(iter(self.results.values()))

    @property
    def metric(self) -> Metric:
        """The task's primary metric, which decides."""
        return self.task.measures(self.task.options(**self.baseline.options))[0]

    def evaluate(self, reference: str, *, torch: bool = False, trial: bool = False) -> Result:
        """A trial is not stored, and its intervals, which nothing reads, are coarser. It is made here of a stage that
        was run here: it needs no process of its own."""
        protocol, given = self.protocol, self.protocol.model_options
        if torch:
            model_options = replace(given, provider=None, output=None, device="cpu")
        else:  # a stage has its settings beside it
            plain = replace(given, dtype="float32", allow_pickle=False, trust_remote_code=False)
            model_options = replace(plain, model_id=None, revision=None, file_name=None)
            if trial and given.sandbox == "auto":
                model_options = replace(model_options, sandbox="never")
        store = None if trial else self.store
        return runs.evaluate(
            reference,
            task=self.task.name,
            task_options=protocol.task_options,
            dataset=protocol.dataset,
            columns=protocol.columns,
            model_options=model_options,
            data_options=protocol.data_options,
            resamples=_TRIAL_RESAMPLES if trial else self.options.resamples,
            confidence=self.options.confidence,
            store=store,
            reuse=store is not None,
            timed=False,
            progress=self.step,
        )

    def compare(self, first: Result, second: Result) -> Comparison:
        verdict = comparison.compare(
            first,
            [second],
            thresholds={k: v for k, v in self.options.thresholds.items() if k == self.metric.name},
            metrics=(self.metric.name,),
            confidence=self.options.confidence,
            resamples=self.options.resamples,
            worst=0,
        )[0]
        return verdict.comparisons[0]

    def judge(self, first: str, second: str) -> Comparison | None:
        """Compare two stages by name; None where one of them could not be measured."""
        if first not in self.results or second not in self.results:
            return None
        return self.compare(self.results[first], self.results[second])

    def assess(self, graph: Path, *, trial: bool = False) -> Evaluation:
        """Evaluate a graph and compare it with the baseline."""
        result = self.evaluate(str(graph), trial=trial)
        verdict = self.compare(self.baseline, result)
        value = result.metrics[self.metric.name]
        return Evaluation(value, verdict.label, verdict.estimate == "PASS", result=result)

    def try_out(self, what: str, write: Callable[[Path], tuple[str, ...]]) -> Evaluation:
        """Write a graph, evaluate it and delete it. `write` returns the nodes that the graph keeps in float."""
        self.begin(what)
        folder = self.plan.folder / f"trial-{time.time_ns()}"
        folder.mkdir(parents=True)
        try:
            graph = folder / "model.onnx"
            nodes = write(graph)
            return self.with_costs(replace(self.assess(graph, trial=True), nodes=len(nodes)), graph)
        except InferenceError:
            return INVALID
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def with_costs(self, evaluation: Evaluation, graph: Path) -> Evaluation:
        """The evaluation with the size of its graph, and its time beside the stage before the guilty one."""
        if not self.lost or self.before.stage == "torch":
            return replace(evaluation, size=content_size(graph))
        sound, other = self.latencies([Path(self.before.path), graph])
        return replace(evaluation, size=content_size(graph), p50=other.p50, speedup=other.times_as_fast(sound))

    def latencies(self, graphs: Sequence[Path]) -> list[Latency]:
        """Of one row on one thread. The graphs take turns, so that other work on the machine slows them all alike."""
        self.step.start("Timing", 0)
        plan = self.plan
        batches = single(plan.rows.take(_TIMED_ROWS), plan.shape)
        opened = [self._open(path) for path in graphs]
        return latencies([graph.run for graph in opened], batches, rounds=_TIMED_ROUNDS, provider=plan.provider)

    def _open(self, path: Path) -> Graph:
        """The graph that every other one is timed beside is opened once."""
        if str(path) != self.before.path:
            return open_graph(path, provider=self.plan.provider)
        if self._sound is None:
            self._sound = open_graph(path, provider=self.plan.provider)
        return self._sound

    def ranges(self, graph: FloatGraph, recipe: Recipe) -> Ranges | None:
        return self.plan.ranges(graph, recipe, self.step)
