"""attribute: every stage of a build on the same examples, the step that lost it, the nodes, and a recipe that passes."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from calipers import api, build, building, comparing, models, tasks
from calipers.attribute import culprits, divergence, fix, float_step, timing
from calipers.attribute import stages as steps
from calipers.attribute.scene import Scene, open_scene, requantize
from calipers.attribute.search import Ledger, Measured, OutOfBudget
from calipers.attribute.share import share_of_loss
from calipers.build.calibrate import calibration_settings
from calipers.build.graphs import content_size
from calipers.build.inputs import single
from calipers.core import (
    SILENT,
    Attribution,
    BillLine,
    CalipersError,
    Comparison,
    Culprit,
    Divergence,
    Fix,
    InferenceError,
    Label,
    Metric,
    ModelError,
    Progress,
    RequestError,
    Result,
    StageFigure,
    Thresholds,
)
from calipers.data import DataOptions
from calipers.models import ModelOptions
from calipers.store import Store

BUDGET = 24
_SEARCH_RESAMPLES = 1_000
_TIMED = 8  # rows


@dataclass(frozen=True)
class Request:
    """What to attribute. `build` says how the stages are made; its task is that of the protocol."""

    recipe: build.Recipe
    protocol: comparing.Protocol
    build: building.Wishes = field(default_factory=building.Wishes)
    fix: bool = False
    budget: int = BUDGET
    thresholds: Mapping[str, Thresholds] = field(default_factory=dict)
    confidence: float = api.CONFIDENCE
    resamples: int = api.RESAMPLES
    folder: Path | None = None  # where the stages go; None is a temporary place
    recipe_file: Path | None = None  # where the recipe of a fix goes; None is the folder

    def __post_init__(self) -> None:
        if self.budget < 0:
            raise RequestError(f"--budget must not be negative, found {self.budget}")


def attribute(
    model: str, request: Request, *, store: Store | None = None, progress: Progress = SILENT
) -> Attribution:
    """Build every stage, measure each on the same rows, and search the step that lost most for what lost it.

    What cannot be made or run ends the table there, with a note that says why and that error's exit code. The search
    and the fix use at most `budget` evaluations; those of the stages are not counted, being stored like any other.
    """
    start = time.perf_counter()
    if request.folder is None:
        with tempfile.TemporaryDirectory(prefix="calipers-attribute-") as place:
            found = _Work(model, replace(request, folder=Path(place) / "build"), store, progress).run()
    else:
        found = _Work(model, request, store, progress).run()
    return replace(found, seconds=round(time.perf_counter() - start, 2))


def place(store: Store, model: str, request: Request) -> Path:
    """Where the stages of a request are kept beside a store: the same request finds them again."""
    wish = request.build
    key = build.manifest.key_of(
        str(models.find(model).path or model),
        request.protocol.task,
        request.recipe.told(),
        {name: str(path) for name, path in wish.given.items()},
        [wish.optimize, wish.opset, wish.shape, wish.calibration, request.protocol.dataset],
    )
    return store.folder / "attribute" / f"{Path(model).name}-{request.recipe.precision}-{key[:8]}"


class _Work:
    """One attribution as it goes."""

    def __init__(self, model: str, request: Request, store: Store | None, progress: Progress) -> None:
        assert request.folder is not None
        self.model = model
        self.request = request
        self.folder = request.folder
        self.store = store
        self.progress = progress
        self.notes: list[str] = []
        self.exit_code = 0
        self.results: dict[str, Result] = {}
        self.task = tasks.find(request.protocol.task or api.TASK)

    def run(self) -> Attribution:
        self.build_request = building.build_request(
            self.model, self.folder, self.request.recipe, self._wishes(), progress=self.progress
        )
        manifest = self._build()
        figures = self._measure(manifest)
        lost = steps.lost_steps(figures)
        found: list[Culprit] = []
        parted: list[Divergence] = []
        mended: Fix | None = None
        ledger = Ledger(lambda tensors, what: Measured(None, "INVALID", passes=False), self.request.budget)
        if lost:
            try:
                if lost[0].stage == "quantized":
                    found, parted, mended, ledger = self._search(figures, lost[0])
                else:
                    found, parted = self._compare_floats(figures, lost[0])
                    mended = self._rebuild(figures, lost[0], ledger) if self.request.fix else None
            except CalipersError as error:
                self.notes.append(str(error))
        return self._answer(figures, lost, found, parted, mended, ledger)

    # --- the stages ----------------------------------------------------------------------------------------------

    def _wishes(self) -> building.Wishes:
        asked = self.request.protocol
        wish = self.request.build
        return replace(
            wish,
            task=asked.task or api.TASK,
            calibration=wish.calibration or asked.dataset,
            columns=wish.columns or asked.columns,
            data_options=wish.data_options if wish.data_options != DataOptions() else _others(asked.data_options),
            model_options=replace(asked.model_options, output=None, batch_tokens=None, batch_size=None),
            refuse=False,
        )

    def _build(self) -> build.Manifest | None:
        """As many stages as can be made."""
        wanted = self.build_request
        fewer = replace(
            wanted,
            recipe=build.Recipe("fp32"),
            calibration=None,
            given={name: path for name, path in wanted.given.items() if name != "quantized"},
        )
        for attempt in (wanted, fewer, replace(fewer, optimize=False, given=_only(fewer.given, "exported"))):
            try:
                return build.build(attempt, self.progress)
            except (ModelError, InferenceError, RequestError) as error:
                if str(error) not in self.notes:
                    self.notes.append(str(error))
                self.exit_code = self.exit_code or error.exit_code
        return None

    def _measure(self, manifest: build.Manifest | None) -> list[StageFigure]:
        found: list[StageFigure] = []
        if manifest is None:
            place = models.find(self.model)
            if place.backend != "torch":
                raise RequestError(self.notes[0])
            return [self._figure("torch", self.model, None, [])]
        for stage in manifest.stages:
            reference = self.model if stage.name == "torch" else stage.path
            found.append(self._figure(stage.name, reference, stage, found))
        return found

    def _figure(
        self, name: str, reference: str, stage: build.Stage | None, before: list[StageFigure]
    ) -> StageFigure:
        self.progress.start(f"Measuring the {name} stage", 0)
        reason: str | None = None
        try:
            self.results[name] = self.evaluate(reference, torch=name == "torch", store=self.store)
        except InferenceError as error:
            if not before:
                raise
            reason = str(error).removeprefix("INVALID: ")
        result = self.results.get(name)
        verdict = self._judge("torch" if "torch" in self.results else before[0].stage, name) if before else None
        step = self._judge(before[-1].stage, name) if before else None
        difference = stage.difference if stage else None
        return StageFigure(
            stage=name,
            path=reference,
            metrics=dict(result.metrics) if result else {},
            value=result.metrics[self.metric.name] if result else None,
            verdict=verdict,
            step=step,
            label=None if not before else verdict.label if verdict else "INVALID",
            size=stage.size if stage else 0,
            p50=stage.latency.p50 if stage else 0.0,
            p95=stage.latency.p95 if stage else 0.0,
            difference=difference.largest if difference else None,
            bound=difference.bound if difference else None,
            run=result.run_id if result and self.store else None,
            reason=reason,
            notes=stage.notes if stage else (),
        )

    def evaluate(self, reference: str, *, torch: bool = False, store: Store | None = None, full: bool = True) -> Result:
        asked = self.request.protocol
        return api.evaluate(
            reference,
            task=self.task.name,
            task_options=asked.task_options,
            dataset=asked.dataset,
            columns=asked.columns,
            model_options=_for_torch(asked.model_options) if torch else _for_graph(asked.model_options),
            data_options=asked.data_options,
            resamples=self.request.resamples if full else _SEARCH_RESAMPLES,
            confidence=self.request.confidence,
            store=store,
            reuse=store is not None,
            progress=self.progress,
        )

    def _judge(self, first: str, second: str) -> Comparison | None:
        """None where one of them is dead."""
        if first not in self.results or second not in self.results:
            return None
        return self.compare(self.results[first], self.results[second])

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

    @property
    def metric(self) -> Metric:
        """The one that decides: the task's primary metric."""
        options = next(iter(self.results.values())).options
        return self.task.measures(self.task.options(**options))[0]

    @property
    def baseline(self) -> Result:
        return next(iter(self.results.values()))

    # --- a step that rounds --------------------------------------------------------------------------------------

    def _search(
        self, figures: list[StageFigure], guilty: StageFigure
    ) -> tuple[list[Culprit], list[Divergence], Fix | None, Ledger]:
        scene = self._scene(figures, guilty)
        if not scene.where.understood:
            self.notes.append("the graph shows no attention to count layers by: its parts are pieces of equal size")
        ledger = Ledger(lambda tensors, what: self._try(scene, tensors, what), self.request.budget)
        self.progress.start("Looking for the first tensors that differ", 0)
        parted = scene.first_divergence()
        if scene.put_back is None:
            self.notes.append(
                f"{guilty.path} was made elsewhere and does not quantise by Q/DQ pairs: its nodes cannot be put back one "
                "by one, so that only the tensors' differences are told"
            )
            return [], parted, None, ledger
        found = culprits.find(scene, ledger, lambda measured: self._share(guilty, measured))
        self.notes += found.notes
        told = list(found.culprits)
        if told and (kernels := scene.kernel_reasons()):
            told[0] = replace(told[0], reasons=(*told[0].reasons, *kernels))
        mended = self._mend(scene, found, figures, guilty, ledger) if self.request.fix else None
        return told, parted, mended, ledger

    def _scene(self, figures: list[StageFigure], guilty: StageFigure) -> Scene:
        before = figures[[f.stage for f in figures].index("quantized") - 1]
        wanted = self.build_request
        given = "quantized" in wanted.given
        recipe = None if given else wanted.recipe
        ranges = None
        if recipe is not None and recipe.needs_ranges:
            ranges = self.ranges(build.load_graph(Path(before.path)), recipe)
        return open_scene(
            Path(guilty.path),
            Path(before.path),
            divergence.look_at(wanted.rows, wanted.shape),
            output=wanted.source.output(wanted.pooled),
            recipe=recipe,
            ranges=ranges,
        )

    def ranges(self, graph: build.FloatGraph, recipe: build.Recipe) -> build.Ranges:
        """Those that the build took, where they are of this graph, these rows and this method; else taken now."""
        rows = self.build_request.calibration
        assert rows is not None
        for file in (self.folder / "calibration").glob("*.json"):
            found = build.read_ranges(file)
            same = found.settings == calibration_settings(recipe) and found.rows == rows.ids
            if same and found.fingerprint == rows.fingerprint and set(graph.tensors) <= set(found.tensors):
                return found
        shape = self.build_request.shape
        return build.collect_ranges(graph, rows, recipe, shape=shape, progress=self.progress)

    def _try(self, scene: Scene, tensors: frozenset[str], what: str) -> Measured:
        assert scene.put_back is not None
        put_back = scene.put_back
        return self.measured(what, lambda target: put_back(tensors, target))

    def measured(self, what: str, write: Callable[[Path], tuple[str, ...]]) -> Measured:
        """Write a graph, measure it, and throw it away."""
        self.progress.start(what, 0)
        place = self.folder / f"trial-{time.time_ns()}"
        place.mkdir(parents=True)
        try:
            nodes = write(place / "model.onnx")
            result = self.evaluate(str(place / "model.onnx"), full=False)
        except InferenceError:
            return Measured(None, "INVALID", passes=False)
        finally:
            shutil.rmtree(place, ignore_errors=True)
        comparison = self.compare(self.baseline, result)
        value = result.metrics[self.metric.name]
        return Measured(value, comparison.label, comparison.estimate == "PASS", len(nodes), result)

    def _share(self, guilty: StageFigure, measured: Measured) -> tuple[float | None, tuple[float, float] | None]:
        broken = self.results.get(guilty.stage)
        if broken is None or measured.result is None:
            return None, None
        before = list(self.results.values())[list(self.results).index(guilty.stage) - 1]
        return share_of_loss(
            self.metric,
            before,
            broken,
            measured.result,
            confidence=self.request.confidence,
            seed=self.request.protocol.data_options.seed,
        )

    # --- the fix -------------------------------------------------------------------------------------------------

    def _mend(
        self, scene: Scene, found: culprits.Found, figures: list[StageFigure], guilty: StageFigure, ledger: Ledger
    ) -> Fix | None:
        """Other settings, then nodes in float, then both; the first that passes, built and measured for good."""
        recipe = None if "quantized" in self.build_request.given else self.build_request.recipe
        tried: tuple[str, build.Recipe] | None = None
        if recipe is not None:
            tried = self._other_settings(scene, recipe, ledger)
            if tried and tried[0].endswith("passes"):
                return self._settle(tried[0].removesuffix(" passes"), tried[1], frozenset(), scene, figures, guilty)
        if found.tensors is not None:
            return self._settle("nodes kept in float", recipe, found.tensors, scene, figures, guilty)
        if tried is None:
            return None
        everything = frozenset(t for c in found.culprits for t in c.tensors)
        return self._settle(f"{tried[0]} and nodes kept in float", tried[1], everything, scene, figures, guilty)

    def _other_settings(
        self, scene: Scene, recipe: build.Recipe, ledger: Ledger
    ) -> tuple[str, build.Recipe] | None:
        """The first settings that pass (told so), else those with the best metric, else None."""
        best: tuple[float, str, build.Recipe] | None = None
        sign = 1 if self.metric.higher_is_better else -1
        for how, other in fix.other_settings(recipe, scene):

            def write(target: Path, other: build.Recipe = other) -> tuple[str, ...]:
                ranges = self.ranges(scene.floats, other) if other.needs_ranges else None
                return requantize(scene, other, ranges, frozenset(), target)

            what = f"Trying {how}"
            try:
                measured = ledger.count(what, lambda write=write, what=what: self.measured(what, write))  # type: ignore[misc]
            except OutOfBudget:
                break
            if measured.passes:
                return f"{how} passes", other
            if measured.value is not None and (best is None or sign * measured.value > best[0]):
                best = sign * measured.value, how, other
        return best[1:] if best else None

    def _settle(
        self,
        how: str,
        recipe: build.Recipe | None,
        tensors: frozenset[str],
        scene: Scene,
        figures: list[StageFigure],
        guilty: StageFigure,
    ) -> Fix:
        """Build it where it stays, measure it like a stage, time it beside the others, and write its recipe."""
        target = self.folder / "fixed" / "model.onnx"
        target.parent.mkdir(parents=True, exist_ok=True)
        if recipe is None:
            assert scene.put_back is not None
            nodes = scene.put_back(tensors, target)
        else:
            ranges = self.ranges(scene.floats, recipe) if recipe.needs_ranges else None
            nodes = requantize(scene, recipe, ranges, tensors, target)
            recipe = replace(recipe, exclude=tuple(dict.fromkeys((*recipe.exclude, *nodes))))
        before = figures[[f.stage for f in figures].index(guilty.stage) - 1]
        told = how if not nodes else f"{how}: {len(nodes)}"
        mended = self._bill(told, target, Path(before.path), before, guilty, nodes)
        if recipe is None:
            wanted = self.build_request.recipe
            recipe = replace(wanted, exclude=nodes) if wanted.precision != "fp32" else None
        return self._with_recipe(mended, recipe, scene.floats.kinds)

    def _bill(
        self,
        how: str,
        target: Path,
        sound: Path,
        before: StageFigure,
        guilty: StageFigure,
        nodes: tuple[str, ...],
    ) -> Fix:
        value: float | None = None
        label: Label = "INVALID"
        passed = False
        try:
            result = self.evaluate(str(target), store=self.store)
            comparison = self.compare(self.baseline, result)
            value, label, passed = result.metrics[self.metric.name], comparison.label, comparison.estimate == "PASS"
        except InferenceError as error:
            self.notes.append(f"the fix cannot be measured: {error}")
        self.progress.start("Timing", 0)
        wanted = self.build_request
        rows = single(wanted.rows.take(_TIMED), wanted.shape)
        times = timing.p50s([sound, Path(guilty.path), target], rows, provider=wanted.provider)
        bill = (
            BillLine("float", before.value, before.label, before.size, times[0]),
            BillLine("broken", guilty.value, guilty.label, guilty.size, times[1]),
            BillLine("fixed", value, label, content_size(target), times[2]),
        )
        return Fix(how, passed, label, nodes, bill, str(target))

    def _with_recipe(self, found: Fix, recipe: build.Recipe | None, kinds: list[tuple[str, str]]) -> Fix:
        if recipe is None:
            return found
        file = self.request.recipe_file or self.folder / "fixed" / "recipe.yaml"
        build.write_recipe(recipe, file)
        try:
            told: str | None = fix.told_arguments(recipe, kinds)
        except RequestError as error:
            self.notes.append(f"the recipe has no form for onnxruntime's own quantiser: {error}")
            told = None
        return replace(found, recipe=recipe.told(), recipe_file=str(file), arguments=told)

    # --- a step that should change nothing -------------------------------------------------------------------------

    def _compare_floats(
        self, figures: list[StageFigure], guilty: StageFigure
    ) -> tuple[list[Culprit], list[Divergence]]:
        wanted = self.build_request
        batch = divergence.look_at(wanted.rows, wanted.shape)
        self.progress.start("Looking for the first tensor that differs", 0)
        before = figures[[f.stage for f in figures].index(guilty.stage) - 1]
        padded = any("attention mask" in note for note in guilty.notes)
        if before.stage != "torch":
            return float_step.between_graphs(Path(before.path), Path(guilty.path), batch, padded)
        assert wanted.source.load is not None
        loaded = wanted.source.load().eval()
        forward = build.export.reference(loaded, wanted.source, pooled=False)
        return float_step.from_torch(loaded, forward, Path(guilty.path), batch, padded)

    def _rebuild(self, figures: list[StageFigure], guilty: StageFigure, ledger: Ledger) -> Fix | None:
        """The stage made here instead of the one that was given; where it was made here, left out."""
        wanted = self.build_request
        given = {name: path for name, path in wanted.given.items() if name != guilty.stage}
        how = f"the {guilty.stage} stage made by calipers build"
        other = replace(wanted, given=given)
        if guilty.stage not in wanted.given:
            if guilty.stage != "optimized":
                return None
            how, other = "no optimisation", replace(wanted, optimize=False)
        if other.source.load is None and "exported" not in given:
            return None
        later = {"exported": ("optimized", "quantized"), "optimized": ("quantized",)}[guilty.stage]
        other = replace(other, given={n: p for n, p in given.items() if n not in later}, folder=self.folder / "fixed")
        if len(ledger.trials) >= ledger.budget:
            return None
        manifest = build.build(other, self.progress)
        before = figures[[f.stage for f in figures].index(guilty.stage) - 1]
        path = Path(manifest.stages[-1].path)
        sound = Path(before.path) if before.stage != "torch" else Path(manifest.stage("exported").path)
        sound = sound if sound.is_file() else path
        ledger.count(f"Building {how}", lambda: Measured(None, "PASS", passes=True))
        return self._bill(how, path, sound, before, guilty, ())

    # --- the answer --------------------------------------------------------------------------------------------

    def _answer(
        self,
        figures: list[StageFigure],
        lost: list[StageFigure],
        found: list[Culprit],
        parted: list[Divergence],
        mended: Fix | None,
        ledger: Ledger,
    ) -> Attribution:
        metric, baseline = self.metric, self.baseline
        return Attribution(
            model_id=baseline.model.model_id,
            task=self.task.name,
            precision=self.request.recipe.precision,
            metric=metric.name,
            higher_is_better=metric.higher_is_better,
            digits=metric.digits,
            unit=self.task.unit,
            examples=len(baseline.outcomes),
            dataset=baseline.dataset.path,
            stages=tuple(figures),
            guilty=lost[0].stage if lost else None,
            sentence=steps.sentence(figures, lost, metric.name),
            culprits=tuple(found),
            divergence=tuple(parted),
            trials=tuple(ledger.trials),
            fix=mended,
            evaluations=len(ledger.trials),
            budget=self.request.budget,
            notes=tuple(dict.fromkeys((*self.notes, *ledger.notes))),
            exit_code=self.exit_code or _code(figures, mended),
        )


def _code(figures: list[StageFigure], mended: Fix | None) -> int:
    """That of `compare` for the last stage, or for the fix where there is one."""
    label = mended.label if mended else figures[-1].label
    return {"REGRESSION": 1, "INVALID": 1, "INCONCLUSIVE": 5}.get(label or "PASS", 0)


def _others(options: DataOptions) -> DataOptions:
    """Other rows of the same data to calibrate on, as many as a build takes."""
    return replace(options, samples=None, seed=options.seed + 1, shuffle=True)


def _only(given: Mapping[str, Path], name: str) -> dict[str, Path]:
    return {key: path for key, path in given.items() if key == name}


def _for_torch(options: ModelOptions) -> ModelOptions:
    return replace(options, provider=None, output=None, device="cpu")


def _for_graph(options: ModelOptions) -> ModelOptions:
    return replace(
        options, model_id=None, revision=None, dtype="float32", allow_pickle=False, trust_remote_code=False
    )
