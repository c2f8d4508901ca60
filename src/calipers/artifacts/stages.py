"""The walk: PyTorch → exported → optimised → quantised, each checked against the stage before it, each made once."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from calipers.artifacts import calibrate, check, export, graphs, manifest, optimize
from calipers.artifacts.check import Difference, StageRefused
from calipers.artifacts.export import OPSET, OPSETS, Source
from calipers.artifacts.inputs import CPU, Floats, Forward, Rows, open_graph, single
from calipers.artifacts.manifest import Manifest, Stage
from calipers.artifacts.quantize import drowned
from calipers.artifacts.quantize import quantize as quantize_graph
from calipers.artifacts.recipe import Recipe
from calipers.artifacts.timing import latency
from calipers.core import SILENT, InferenceError, ModelError, Progress, RequestError

STAGES = ("torch", "exported", "optimized", "quantized")
_CODE = 1  # raised when this code would make another artifact of the same settings
_TIMED = 16  # rows

Make = Callable[[Path], list[str]]  # writes a graph to the path and returns notes


@dataclass(frozen=True)
class BuildRequest:
    """What to build, of what, where. `rows` are real texts: each stage is checked and timed on them."""

    source: Source
    folder: Path
    recipe: Recipe
    rows: Rows
    calibration: Rows | None = None  # what ranges are taken from, for w8a8 and w8a16
    given: Mapping[str, Path] = field(default_factory=dict)  # stage → a graph made elsewhere
    optimize: bool = True
    opset: int = OPSET
    shape: tuple[int, int] | None = None  # rows and length, where they shall be fixed
    pooled: bool = False
    refuse: bool = True  # a float stage that differs too much; else it is kept and noted
    provider: str = CPU

    def __post_init__(self) -> None:
        if self.opset not in OPSETS:
            raise RequestError(f"--opset must be {OPSETS[0]} to {OPSETS[-1]}, found {self.opset}")
        if self.shape and (self.shape[0] < 1 or not 2 <= self.shape[1] <= self.rows.longest):
            told = "x".join(map(str, self.shape))
            raise RequestError(f"--static-shape {told} does not fit: the model takes 2 to {self.rows.longest} tokens")
        for name in self.given:
            if name not in STAGES[1:]:
                raise RequestError(f"--stage {name}=… is no stage: expected one of {', '.join(STAGES[1:])}")
        if self.pooled and self.source.ability != "encode":
            raise RequestError(
                f"--pooled is for encoders, and {self.source.model_id} is built to {self.source.ability}"
            )
        if not len(self.rows):
            raise RequestError("a build needs at least one real text to check the stages on")
        if self.source.load is None and "exported" not in self.given:
            raise RequestError("a build without PyTorch weights needs a graph to begin with: --stage exported=FILE")


def build(request: BuildRequest, progress: Progress = SILENT) -> Manifest:
    """Make every stage that is not there yet, and say what came of it.

    `folder/model.onnx` is the last stage, `folder/STAGE/model.onnx` each of them, with the tokenizer and settings in
    `folder`. A stage whose inputs are what they were is not made again; one that was not finished is not there.
    """
    with manifest.claim(request.folder):
        work = _Work(request, progress)
        export.copy_settings(request.source.folder, request.folder)
        done = work.run()
        result = manifest.place_result(Path(done[-1].path), request.folder)
        found = Manifest(
            folder=str(request.folder),
            model=str(result),
            model_id=request.source.model_id,
            ability=request.source.ability,
            precision=request.recipe.precision,
            stages=tuple(done),
            recipe=request.recipe.told(),
            settings=_settings(request),
            calibration=work.calibrated_on,
            checked_on=_told_rows(request.rows),
            versions=manifest.versions(),
            created=manifest.now(),
        )
        manifest.write_manifest(found, request.folder)
    return found


def _settings(request: BuildRequest) -> dict[str, Any]:
    return {
        "opset": request.opset,
        "static_shape": list(request.shape) if request.shape else None,
        "pooled": request.pooled,
        "optimize": request.optimize,
        "provider": request.provider,
        "source": request.source.fingerprint,
        "given": {name: str(path) for name, path in request.given.items()},
    }


def _told_rows(rows: Rows) -> dict[str, Any]:
    return {"dataset": rows.path, "fingerprint": rows.fingerprint, "rows": len(rows), "ids": list(rows.ids)}


class _Work:
    """One build as it goes: the model and the answers of the last stage are got when they are needed, and once."""

    def __init__(self, request: BuildRequest, progress: Progress) -> None:
        self.request = request
        self.progress = progress
        self.shape = request.shape or _given_shape(request)
        self.batches = check.cases(request.rows, self.shape)
        self.timed = single(request.rows.take(_TIMED), self.shape)
        self.calibrated_on: dict[str, Any] | None = None
        self._model: Any = None
        self._answers: dict[str, list[Floats]] = {}

    def run(self) -> list[Stage]:
        done: list[Stage] = []
        if self.request.source.load is not None:
            done.append(self._torch())
        done.append(self._exported(done[-1] if done else None))
        if self.request.optimize or "optimized" in self.request.given:
            done.append(self._optimized(done[-1]))
        if self.request.recipe.precision != "fp32" or "quantized" in self.request.given:
            done.append(self._quantized(done[-1]))
        return done

    def _torch(self) -> Stage:
        source = self.request.source
        key = manifest.key_of("torch", _CODE, source.fingerprint, self.shape, manifest.versions("torch"))
        found = manifest.read_stage(self.request.folder / "torch", key)
        if found:
            return replace(found, reused=True)
        timed = latency(self._torch_forward(), self.timed)
        stage = Stage("torch", str(source.folder), key, source.fingerprint, source.size, timed, None)
        with _part(self.request.folder, "torch") as part:
            manifest.write_whole(part / "stage.json", manifest.to_json(stage))
        return stage

    def _exported(self, before: Stage | None) -> Stage:
        request = self.request
        if "exported" in request.given:
            return self._given("exported", before)
        settings: dict[str, Any] = {"opset": request.opset, "shape": request.shape, "pooled": request.pooled}
        if request.pooled:
            settings |= {"pooling": request.source.pooling, "normalize": request.source.normalize}

        def make(target: Path) -> list[str]:
            export.export(
                self.model, target, request.source, request.rows, opset=request.opset, shape=request.shape,
                pooled=request.pooled,
            )  # fmt: skip
            return []

        packages = manifest.versions("torch", "transformers", "onnx", "onnxscript")
        return self._stage("exported", "exported", before, {**settings, "made_with": packages}, [make], "Exporting")

    def _optimized(self, before: Stage) -> Stage:
        source = self.request.source
        if "optimized" in self.request.given:
            return self._given("optimized", before)
        ways = optimize.methods(source)
        notes = []
        if ways == ["graph"]:
            family = source.family or "this model"
            notes = [f"onnxruntime has no transformer fusions for {family}: its own graph optimisation was used"]

        def maker(way: str) -> Make:
            def make(target: Path) -> list[str]:
                optimize.optimize(Path(before.path), target, source, way)
                return notes

            return make

        settings = {"methods": ways, "made_with": manifest.versions("onnxruntime", "onnx")}
        return self._stage("optimized", "optimized", before, settings, [maker(way) for way in ways], "Optimising")

    def _quantized(self, before: Stage) -> Stage:
        recipe = self.request.recipe
        if "quantized" in self.request.given:
            return self._given("quantized", before)
        rows = self.request.calibration
        if recipe.needs_ranges and rows is None:
            raise RequestError(f"{recipe.precision} needs texts to calibrate on: --calibration DATASET")
        data = {"rows": list(rows.ids), "fingerprint": rows.fingerprint} if recipe.needs_ranges and rows else None
        if recipe.needs_ranges and rows:
            self.calibrated_on = {**_told_rows(rows), "method": recipe.calibration}

        def make(target: Path) -> list[str]:
            graph = graphs.load_graph(Path(before.path))
            ranges = self._ranges(graph, before, rows) if recipe.needs_ranges and rows else None
            found = quantize_graph(graph, target, recipe, ranges)
            counted = ", ".join(f"{count} {name}" for name, count in found.operators.items())
            kept = f"{len(found.excluded)} nodes kept in float" if found.excluded else ""
            masks = drowned(graph, ranges, recipe) if ranges else ""
            return [note for note in (counted, kept, masks) if note]

        settings = {"recipe": recipe.told(), "calibration": data, "made_with": manifest.versions("onnxruntime", "onnx")}
        place = f"quantized-{recipe.precision}"
        return self._stage("quantized", place, before, settings, [make], f"Quantising to {recipe.precision}")

    def _ranges(self, graph: graphs.FloatGraph, before: Stage, rows: Rows) -> calibrate.Ranges:
        """From the folder where they were taken before, of the same graph on the same rows in the same way."""
        recipe = self.request.recipe
        settings = calibrate.calibration_settings(recipe)
        key = manifest.key_of(_CODE, before.sha256, settings, rows.fingerprint, list(rows.ids), self.shape)
        file = self.request.folder / "calibration" / f"{key[:24]}.json"
        if file.exists():
            return calibrate.read_ranges(file)
        ranges = calibrate.collect_ranges(graph, rows, recipe, shape=self.shape, progress=self.progress)
        file.parent.mkdir(exist_ok=True)
        ranges.save(file)
        return ranges

    def _given(self, name: str, before: Stage | None) -> Stage:
        """A graph made elsewhere in the place of a stage, checked as ours are."""
        path = self.request.given[name]
        if not path.is_file():
            raise RequestError(f"--stage {name}={path}: there is no such file")

        def make(target: Path) -> list[str]:
            graphs.copy_graph(path, target)
            return [f"given: {path}"]

        settings = {"given": graphs.content_hash(path)}
        place = f"quantized-{self.request.recipe.precision}" if name == "quantized" else name
        return self._stage(name, place, before, settings, [make], f"Checking {path.name}")

    def _stage(
        self,
        name: str,
        place: str,
        before: Stage | None,
        settings: Mapping[str, Any],
        ways: Sequence[Make],
        label: str,
    ) -> Stage:
        """Make, check, time and move in; or find it done. Of several ways the first is taken that passes."""
        request = self.request
        origin = before.sha256 if before else request.source.fingerprint
        output = request.source.output(request.pooled)
        key = manifest.key_of(name, _CODE, origin, settings, output, request.provider)
        home = request.folder / place
        found = manifest.read_stage(home, key)
        if found and (found.difference is None or found.difference.passed or not request.refuse):
            return replace(found, path=str(home / "model.onnx"), reused=True)
        self.progress.start(label, 0)
        start = time.perf_counter()
        with _part(request.folder, place) as part:
            graph = part / "model.onnx"
            notes, forward, difference = self._first_that_passes(name, graph, before, ways)
            stage = Stage(
                name=name,
                path=str(home / "model.onnx"),
                key=key,
                sha256=graphs.content_hash(graph),
                size=graphs.content_size(graph),
                latency=latency(forward, self.timed),
                difference=difference,
                settings=settings,
                notes=(*notes, *check.remarks(difference)),
                seconds=round(time.perf_counter() - start, 2),
            )
            manifest.write_whole(part / "stage.json", manifest.to_json(stage))
        return stage

    def _first_that_passes(
        self, name: str, graph: Path, before: Stage | None, ways: Sequence[Make]
    ) -> tuple[list[str], Forward, Difference | None]:
        failed: list[str] = []
        for i, make in enumerate(ways):
            last = i + 1 == len(ways)
            try:
                notes = make(graph)
                forward = self._forward(graph, name, before)
                refuse = self.request.refuse or not last
                return [*failed, *notes], forward, self._compare(graph, forward, name, before, refuse=refuse)
            except (ModelError, InferenceError) as error:
                if last:
                    raise
                failed.append(f"the first way was not taken: {error}")
                for file in graph.parent.iterdir():
                    file.unlink()
        raise AssertionError("there is always a way")

    def _compare(
        self, graph: Path, forward: Forward, name: str, before: Stage | None, *, refuse: bool
    ) -> Difference | None:
        """Against the stage before. A float graph is also run as it stands: a session's own optimisation may take out
        a dropout that is on, and calibration and other runtimes would not."""
        if before is None:
            return None
        reference = self._answers_of(before)
        bound = self._bound(name, reference)
        found = check.answers(forward, self.batches)
        difference = check.compare(reference, found, self.batches, against=before.name, bound=bound)
        if name != "quantized":
            plain = check.answers(self._forward(graph, name, before, optimize=False), self.batches)
            stands = check.compare(reference, plain, self.batches, against=before.name, bound=bound)
            difference = check.worse(difference, replace(stands, as_it_stands=True))
        if refuse and not difference.passed:
            raise StageRefused(name, difference)
        self._answers = {name: found}
        return difference

    def _bound(self, name: str, reference: list[Floats]) -> float | None:
        if name != "quantized":
            return check.FLOAT_BOUND
        return check.half_bound(reference, self.batches) if self.request.recipe.precision == "fp16" else None

    def _forward(self, graph: Path, name: str, before: Stage | None, *, optimize: bool = True) -> Forward:
        opened = open_graph(graph, provider=self.request.provider, what=f"the {name} graph", optimize=optimize)
        output = self.request.source.output(self.request.pooled)
        if before is None:
            return opened.forward(output if output in opened.outputs else next(iter(opened.outputs)))
        like = self._answers_of(before)[0]
        return opened.forward(check.find_output(opened, output, like, self.batches[0]))

    def _answers_of(self, stage: Stage) -> list[Floats]:
        if stage.name not in self._answers:
            forward = (
                self._torch_forward() if stage.name == "torch" else self._forward(Path(stage.path), stage.name, None)
            )
            self._answers = {stage.name: check.answers(forward, self.batches)}
        return self._answers[stage.name]

    def _torch_forward(self) -> Forward:
        return export.reference(self.model, self.request.source, pooled=self.request.pooled)

    @property
    def model(self) -> Any:
        if self._model is None:
            assert self.request.source.load is not None
            self.progress.start("Loading the model", 0)
            self._model = self.request.source.load().eval()
        return self._model


class _part:
    """A folder that becomes the stage when all went well, and nothing otherwise."""

    def __init__(self, folder: Path, place: str) -> None:
        self._home = folder / place
        self._part = folder / f".{place}.{os.getpid()}.part"

    def __enter__(self) -> Path:
        shutil.rmtree(self._part, ignore_errors=True)
        self._part.mkdir()
        return self._part

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            manifest.move_in(self._part, self._home)
        else:
            shutil.rmtree(self._part, ignore_errors=True)


def _given_shape(request: BuildRequest) -> tuple[int, int] | None:
    """The shape that a given graph demands; every stage is then asked in it."""
    for path in request.given.values():
        if path.is_file() and (shape := open_graph(path, provider=request.provider, what=str(path)).shape()):
            return shape
    return None
