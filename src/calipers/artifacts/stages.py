"""The walk: PyTorch → exported → optimised → quantised, each checked against the stage before it, each made once."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calipers.artifacts import calibrate, check, export, graphs, manifest, quantize
from calipers.artifacts.calibrate import Ranges
from calipers.artifacts.check import PaddingLeaks, StageRefused
from calipers.artifacts.export import ExportSource
from calipers.artifacts.graphs import FloatGraph
from calipers.artifacts.inputs import FixedShape, Rows, latencies, output_name, short_path, single
from calipers.artifacts.processor import gains_nothing
from calipers.artifacts.recipe import Recipe
from calipers.artifacts.records import FILES, BuildOptions, Difference, Latency, Leak, Manifest, Stage
from calipers.core import SILENT, InferenceError, ModelError, Progress, RequestError
from calipers.core.files import ONNX_RUNTIMES, package_versions, uninterrupted
from calipers.metrics.arrays import Vectors
from calipers.models.batching import Forward
from calipers.models.onnx_session import CPU, open_graph
from calipers.rendering.numbers import megabytes

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_CODE = 2  # raised when this code would make another artifact of the same settings
_PACKAGES = ("calipers", "torch", "transformers", "onnx", "onnxscript", *ONNX_RUNTIMES, "numpy")
_TIMED_ROWS = 16
_TIMED_ROUNDS = 2

_UNTIMED = Latency(0.0, 0.0, 0, 0.0)

Make = Callable[[Path], list[str]]  # writes a graph to the path and returns notes


@dataclass(frozen=True)
class BuildPlan:
    """What to build, of what, where. Each stage is checked and timed on `rows`, which are real texts."""

    source: ExportSource
    folder: Path
    recipe: Recipe
    rows: Rows
    options: BuildOptions
    calibration: Rows | None = None  # what ranges are taken from, for w8a8 and w8a16
    provider: str = CPU
    warnings: tuple[str, ...] = ()  # about the texts

    def __post_init__(self) -> None:
        shape = self.options.static_shape
        if shape and (shape[0] < 1 or not 2 <= shape[1] <= self.rows.longest):
            size = "x".join(map(str, shape))
            raise RequestError(f"`static_shape` {size} does not fit: the model takes 2 to {self.rows.longest} tokens")
        if self.options.pooled and self.source.ability != "encode":
            raise RequestError(
                f"`pooled` is for encoders, and {self.source.model_id} is built for {self.source.ability}"
            )
        if not len(self.rows):
            raise RequestError("a build needs at least one real text to check the stages on")
        if self.source.load is None and "exported" not in self.stages:
            raise RequestError(
                "a build without PyTorch weights needs a graph to begin with: the exported one in `stages`"
            )

    @property
    def stages(self) -> Mapping[str, Path]:
        """Stage → a graph made elsewhere in its place."""
        return self.options.stages

    @property
    def output(self) -> str:
        """The name of the output that every stage has."""
        return self.source.output(self.options.pooled)

    @cached_property
    def shape(self) -> FixedShape | None:
        """What every stage fixes of its shape: as requested, or as graphs made elsewhere have it."""
        if self.options.static_shape:
            return self.options.static_shape
        shapes: list[FixedShape] = []
        for path in filter(Path.is_file, self.stages.values()):
            with suppress(ModelError):  # its own stage says that it cannot be opened
                graph = open_graph(path, provider=self.provider)
                shapes.append((graph.rows, graph.length))
        rows, length = (next((shape[axis] for shape in shapes if shape[axis]), None) for axis in (0, 1))
        return (rows, length) if rows or length else None

    def ranges(self, graph: FloatGraph, recipe: Recipe, progress: Progress) -> Ranges | None:
        """Those that the recipe brings; else those taken before of the same graph, rows and method; else taken now.
        None: not needed."""
        if recipe.calibrated:
            return calibrate.stored_ranges(recipe)
        rows = self.calibration
        if not recipe.needs_ranges or rows is None:
            return None
        settings, content = calibrate.calibration_settings(recipe), graphs.content_hash(graph.path)
        key = manifest.key_of(_CODE, content, settings, rows.fingerprint, list(rows.ids), rows.digest, self.shape)
        file = self.folder / "calibration" / f"{key[:24]}.json"
        if file.exists():
            return calibrate.read_ranges(file)
        ranges = calibrate.collect_ranges(graph, rows, recipe, shape=self.shape, progress=progress)
        file.parent.mkdir(exist_ok=True)
        ranges.save(file)
        return ranges


def make(plan: BuildPlan, progress: Progress = SILENT) -> Manifest:
    """Make the graph of the plan's precision, `folder/FILE`, with tokenizer and settings beside it; or find it made.
    Stages before it are kept only on request, `folder/STAGE/model.onnx` each of them."""
    precision, key = plan.recipe.precision, _request(plan)
    with manifest.claim(plan.folder):
        if earlier := manifest.finished(plan.folder, precision, key, stages=plan.options.keep_stages):
            return earlier
        keep = plan.options.keep_stages or (plan.folder / "exported").exists()
        if not manifest.finished(plan.folder, precision, key, stages=False):
            manifest.check_room(plan.folder, precision, plan.source.fingerprint, force=plan.options.force)
        floats = None if keep or precision == "fp32" else _float_stage(plan, plan.folder)
        with nullcontext(plan.folder) if keep else manifest.scratch(plan.folder) as folder:
            work = _Work(replace(plan, folder=folder), progress, floats)
            stages = work.run(torch=not floats and plan.source.load is not None)
            with uninterrupted():
                return _place(plan, work, stages, key, keep=keep)


def _float_stage(plan: BuildPlan, folder: Path) -> Stage | None:
    """The stage that fp32 ended with in this folder, where this plan would make the same graph again: five precisions
    in one folder then cost one export. None where anything differs, or the file was changed."""
    built = manifest.read_builds(folder).get("fp32")
    if built is None or {*plan.stages} - {"quantized"} or plan.options.pooled:
        return None
    settings = {**_settings(plan), "given": {}}  # a quantised graph that is given has the same float one
    same = built.settings == settings and built.ability == plan.source.ability
    if not same or built.versions != package_versions(*_PACKAGES) or not manifest.is_unchanged(built.stages[-1]):
        return None
    differences = [stage.difference for stage in built.stages if stage.difference]
    if not (plan.options.accept_differences or all(difference.passed for difference in differences)):
        return None
    largest = max(differences, key=lambda d: math.inf if d.largest is None else d.largest, default=None)
    return replace(built.stages[-1], reused=True, difference=largest)


def _place(plan: BuildPlan, work: _Work, stages: list[Stage], key: str, *, keep: bool) -> Manifest:
    """Put the last stage, the model's settings and the record into the folder: until then it is as it was."""
    place = plan.folder / FILES[plan.recipe.precision]
    export.copy_settings(plan.source.folder, plan.folder)
    manifest.place_result(Path(stages[-1].path), place)
    stages = [stage if keep or stage.name == "torch" else replace(stage, path="") for stage in stages]
    stages[-1] = replace(stages[-1], path=str(place), sha256=graphs.content_hash(place))
    built = _manifest(plan, work, stages, key)
    manifest.add_build(built, plan.folder)
    return built


def make_stages(plan: BuildPlan, progress: Progress = SILENT, *, built: Path | None = None) -> Manifest:
    """Make and keep the stages in the folder, for a search in them. The last becomes no file of the folder. Where the
    folder `built` holds the float graph of this plan, checked, it is not exported again."""
    checked = replace(plan, options=replace(plan.options, accept_differences=False))
    with manifest.claim(plan.folder):
        work = _Work(plan, progress, _float_stage(checked, built) if built else None)
        stages = work.run(torch=plan.source.load is not None)
        export.copy_settings(plan.source.folder, plan.folder)
        return _manifest(plan, work, stages, _request(plan))


def _request(plan: BuildPlan) -> str:
    """A key over everything that can change what is built or what its record says."""
    options, texts = plan.options, plan.calibration
    return manifest.key_of(
        *(_CODE, plan.source.fingerprint, plan.source.ability, plan.recipe.to_dict(), plan.provider, plan.shape),
        *(options.pooled, options.static_shape, options.opset, options.optimize, options.accept_differences),
        {name: graphs.content_hash(path) for name, path in plan.stages.items() if path.is_file()},
        [list(plan.rows.ids), plan.rows.digest, texts and [list(texts.ids), texts.digest]],
        package_versions(*_PACKAGES),
    )


def _manifest(plan: BuildPlan, work: _Work, stages: Sequence[Stage], key: str) -> Manifest:
    return Manifest(
        folder=str(plan.folder),
        model=stages[-1].path,
        model_id=plan.source.model_id,
        ability=plan.source.ability,
        precision=plan.recipe.precision,
        key=key,
        stages=tuple(stages),
        recipe=work.recipe.to_dict(),
        settings=_settings(plan),
        calibration=work.calibrated_on,
        checked_on=_described(plan.rows),
        versions=package_versions(*_PACKAGES),
        created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    )


def _settings(plan: BuildPlan) -> dict[str, Any]:
    options = plan.options
    return {
        "opset": options.opset,
        "static_shape": list(options.static_shape) if options.static_shape else None,
        "pooled": options.pooled,
        "optimize": options.optimize,
        "provider": plan.provider,
        "source": plan.source.fingerprint,
        "given": {name: path.name for name, path in plan.stages.items()},
    }


def _described(rows: Rows) -> dict[str, Any]:
    return {"dataset": short_path(rows.path), "fingerprint": rows.fingerprint, "rows": len(rows), "ids": list(rows.ids)}


def _other_graph(recipe: Recipe, before: Stage) -> str:
    """A note where the ranges of a recipe are of another float graph: the result is not what it was made with."""
    graph = recipe.calibrated.get("graph")
    if not graph or graph == before.sha256:
        return ""
    return (
        "the recipe was made with another float graph (other versions, options or weights): the result differs from it"
    )


def _large(name: str, size: int, before: Stage | None) -> list[str]:
    """A remark where a quantised graph is larger than half of the float one, which is what float16 has."""
    if name != "quantized" or before is None or size <= 0.55 * before.size:
        return []
    return [
        f"larger than fp16 (about {megabytes(before.size // 2)}): only matrix products shrink, embeddings stay float"
    ]


class _Work:
    """One build in progress: the model and the outputs of the last stage are computed when needed, and once."""

    def __init__(self, plan: BuildPlan, progress: Progress, floats: Stage | None = None) -> None:
        self.plan = plan
        self.progress = progress
        self.floats = floats  # the float stage that is there: nothing before it is made
        self.batches = check.cases(plan.rows, plan.shape)
        self.recipe = plan.recipe  # with the ranges that were taken for it
        self.calibrated_on: dict[str, Any] | None = None
        self._outputs: dict[str, list[Vectors]] = {}

    def run(self, *, torch: bool) -> list[Stage]:
        plan = self.plan
        stages = [self._torch()] if torch else []
        stages += [self.floats] if self.floats else self._float_stages(stages[-1] if stages else None)
        if plan.recipe.precision != "fp32" or "quantized" in plan.stages:
            stages.append(self._quantized(stages[-1]))
        return self._timed(stages)

    def _float_stages(self, before: Stage | None) -> list[Stage]:
        exported = self._exported(before)
        optimized = self.plan.options.optimize or "optimized" in self.plan.stages
        return [exported, self._optimized(exported)] if optimized else [exported]

    def _timed(self, stages: Sequence[Stage]) -> list[Stage]:
        """All stages in turn on the same rows, also those that were there: other texts have other latencies."""
        self.progress.start("Timing", 0)
        forwards = [
            self._torch_forward() if stage.name == "torch" else self._forward(Path(stage.path), stage.name, None)
            for stage in stages
        ]
        batches, provider = single(self.plan.rows.take(_TIMED_ROWS), self.plan.shape), self.plan.provider
        times = latencies(forwards, batches, rounds=_TIMED_ROUNDS, provider=provider)
        floats = max(place for place, stage in enumerate(stages) if stage.name in ("exported", "optimized"))
        speeds = [time.times_as_fast(times[floats]) for time in times]
        return [
            replace(stage, latency=time, speedup=speed, notes=(*stage.notes, *gains_nothing(stage, speed, self.recipe)))
            for stage, time, speed in zip(stages, times, speeds, strict=True)
        ]

    def _torch(self) -> Stage:
        source = self.plan.source
        return Stage(
            *("torch", str(source.folder), source.fingerprint, source.fingerprint, source.size, _UNTIMED, None),
            reused=True,
        )

    def _exported(self, before: Stage | None) -> Stage:
        source, options = self.plan.source, self.plan.options
        if "exported" in options.stages:
            return self._given("exported", before)
        settings: dict[str, Any] = {"opset": options.opset, "shape": options.static_shape, "pooled": options.pooled}
        if options.pooled:
            settings |= {"pooling": source.pooling, "normalize": source.normalize}

        def make(target: Path) -> list[str]:
            model = self.model
            self.progress.start("Exporting", 0)
            export.export(model, target, source, self.plan.rows, options)
            return []

        packages = package_versions("torch", "transformers", "onnx", "onnxscript")
        return self._stage("exported", before, {**settings, "made_with": packages}, [make], "Exporting")

    def _optimized(self, before: Stage) -> Stage:
        source = self.plan.source
        if "optimized" in self.plan.stages:
            return self._given("optimized", before)
        methods = export.optimizers(source)
        notes = []
        if methods == ["graph"]:
            family = source.family or "this model"
            notes = [f"onnxruntime has no transformer fusions for {family}: its general graph optimisation was used"]

        def make(method: str, target: Path) -> list[str]:
            export.optimize(Path(before.path), target, source, method)
            return notes

        settings = {"methods": methods, "made_with": package_versions(*ONNX_RUNTIMES, "onnx")}
        return self._stage("optimized", before, settings, [partial(make, m) for m in methods], "Optimising")

    def _quantized(self, before: Stage) -> Stage:
        recipe = self.plan.recipe
        if "quantized" in self.plan.stages:
            return self._given("quantized", before)
        rows = self.plan.calibration if recipe.needs_texts else None
        if recipe.needs_texts and rows is None:
            raise RequestError(f"{recipe.precision} needs texts to calibrate on: name a dataset as `calibration`")
        data = {"rows": list(rows.ids), "fingerprint": rows.fingerprint, "tokens": rows.digest} if rows else None
        self.calibrated_on = {**_described(rows), "method": recipe.calibration} if rows else None
        if recipe.calibrated:
            source, ids = recipe.calibrated, recipe.calibrated.get("rows", [])
            self.calibrated_on = {**source, "rows": len(ids), "ids": list(ids), "method": recipe.calibration}

        @cache
        def loaded() -> tuple[FloatGraph, Ranges | None]:
            graph = graphs.load_graph(Path(before.path))
            return graph, self.plan.ranges(graph, recipe, self.progress)

        def make(target: Path) -> list[str]:
            graph, ranges = loaded()
            quantized = quantize.quantize(graph, target, recipe, ranges)
            other = _other_graph(recipe, before)
            counts = ", ".join(f"{count} {name}" for name, count in quantized.operators.items())
            kept = f"{len(quantized.excluded)} nodes kept in float" if quantized.excluded else ""
            masks = quantize.drowned(graph, ranges, recipe) if ranges else ""
            return [note for note in (counts, kept, masks, other, *self.plan.warnings) if note]

        packages = package_versions(*ONNX_RUNTIMES, "onnx")
        settings = {"recipe": recipe.to_dict(), "calibration": data, "made_with": packages}
        stage = self._stage("quantized", before, settings, [make], f"Quantising to {recipe.precision}")
        if recipe.needs_texts:
            self.recipe = calibrate.with_ranges(recipe, loaded()[1], before.sha256)
        return stage

    def _given(self, name: str, before: Stage | None) -> Stage:
        """A graph made elsewhere in the place of a stage, checked like one made here."""
        path = self.plan.stages[name]

        def make(target: Path) -> list[str]:
            graphs.copy_graph(path, target)
            return [f"given: {path.name}"]

        return self._stage(name, before, {"given": graphs.content_hash(path)}, [make], f"Checking {path.name}")

    def _stage(
        self, name: str, before: Stage | None, settings: Mapping[str, Any], ways: Sequence[Make], label: str
    ) -> Stage:
        """Make, check, time and keep a stage; or find it done. Of several ways the first that passes is taken."""
        plan = self.plan
        origin = before.sha256 if before else plan.source.fingerprint
        key = manifest.key_of(name, _CODE, origin, settings, plan.output, plan.provider)
        home = plan.folder / (f"quantized-{plan.recipe.precision}" if name == "quantized" else name)
        earlier = manifest.read_stage(home, key)
        accepts = plan.options.accept_differences
        if earlier and (earlier.difference is None or earlier.difference.passed or accepts):
            return replace(earlier, path=str(home / "model.onnx"), reused=True)
        self.progress.start(label, 0)
        start = time.perf_counter()
        with manifest.unfinished(home) as part:
            graph = part / "model.onnx"
            notes, forward, difference = self._first_that_passes(name, graph, before, ways)
            leak = self._leak(name, forward, before)
            size = graphs.content_size(graph)
            stage = Stage(
                name=name,
                path=str(home / "model.onnx"),
                key=key,
                sha256=graphs.content_hash(graph),
                size=size,
                latency=_UNTIMED,
                difference=difference,
                leak=leak,
                precision=plan.recipe.precision if name == "quantized" else "",
                settings=settings,
                notes=(*notes, *check.remarks(difference), *check.leak_remarks(leak), *_large(name, size, before)),
                seconds=round(time.perf_counter() - start, 2),
            )
            manifest.write_stage(stage, part)
        return stage

    def _leak(self, name: str, forward: Forward, before: Stage | None) -> Leak | None:
        """How far padding moves a quantised stage. One made here must not move more than the float stage; one made
        elsewhere is reported."""
        if name != "quantized":
            return None
        plan, precision = self.plan, "" if "quantized" in self.plan.stages else self.plan.recipe.precision
        leak = check.leak(forward, plan.rows, plan.shape, precision=precision)
        if leak.passed or plan.options.accept_differences or before is None:
            return leak
        sound = check.leak(self._forward(Path(before.path), before.name, None), plan.rows, plan.shape, precision="fp32")
        if sound.largest is not None and sound.largest <= check.LEAK_BOUND:
            raise PaddingLeaks(leak)
        return replace(leak, bound=None)  # a model that reads its padding

    def _first_that_passes(
        self, name: str, graph: Path, before: Stage | None, ways: Sequence[Make]
    ) -> tuple[list[str], Forward, Difference | None]:
        failed: list[str] = []
        for i, make in enumerate(ways):
            last = i + 1 == len(ways)
            try:
                notes = make(graph)
                forward = self._forward(graph, name, before)
                refuse = not (self.plan.options.accept_differences and last)
                return [*failed, *notes], forward, self._compare(graph, forward, name, before, refuse=refuse)
            except (ModelError, InferenceError) as error:
                if last:
                    raise
                failed.append(f"the first method failed: {error}")
                shutil.rmtree(graph.parent)
                graph.parent.mkdir()
        raise AssertionError("there is always a way")

    def _compare(
        self, graph: Path, forward: Forward, name: str, before: Stage | None, *, refuse: bool
    ) -> Difference | None:
        """With the stage before. A float graph is also run without optimisation: a session's optimisation may remove a
        dropout that is on, while calibration and other runtimes do not."""
        if before is None:
            return None
        reference = self._outputs_of(before)
        bound = check.bound_of(name, self.plan.recipe.precision, reference, self.batches)
        outputs = [forward(batch) for batch in self.batches]
        difference = check.compare(reference, outputs, self.batches, against=before.name, bound=bound)
        if name != "quantized":
            run = self._forward(graph, name, before, optimize=False)
            plain = [run(batch) for batch in self.batches]
            unoptimized = check.compare(reference, plain, self.batches, against=before.name, bound=bound)
            both = difference, replace(unoptimized, as_it_stands=True)
            difference = max(both, key=lambda d: math.inf if d.largest is None else d.largest)
        if refuse and not difference.passed:
            raise StageRefused(name, difference)
        self._outputs = {name: outputs}
        return difference

    def _forward(self, graph: Path, name: str, before: Stage | None, *, optimize: bool = True) -> Forward:
        opened = open_graph(graph, provider=self.plan.provider, name=f"the {name} graph", optimize=optimize)
        output = self.plan.output
        if before is None:
            return opened.forward(output_name(opened, output))
        like = self._outputs_of(before)[0]
        return opened.forward(check.find_output(opened, output, like, self.batches[0]))

    def _outputs_of(self, stage: Stage) -> list[Vectors]:
        if stage.name not in self._outputs:
            torch = stage.name == "torch"
            forward = self._torch_forward() if torch else self._forward(Path(stage.path), stage.name, None)
            self._outputs = {stage.name: [forward(batch) for batch in self.batches]}
        return self._outputs[stage.name]

    def _torch_forward(self) -> Forward:
        return export.reference(self.model, self.plan.source, pooled=self.plan.options.pooled)

    @cached_property
    def model(self) -> PreTrainedModel:
        assert self.plan.source.load is not None
        self.progress.start("Loading the model", 0)
        return self.plan.source.load().eval()
