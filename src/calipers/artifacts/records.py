"""What to build, and what was built: the options, a record for each stage, and the manifest of them all."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calipers.core import RequestError, html_table
from calipers.core.inputs import expand
from calipers.core.options import Options, option
from calipers.data import DataOptions
from calipers.models import ModelOptions
from calipers.rendering import tables
from calipers.rendering.numbers import megabytes, times

if TYPE_CHECKING:
    from rich.console import Console

SCHEMA = 2
# Precision → its file in the folder of a build. transformers.js has the first four names.
FILES = {
    "fp32": "model.onnx",
    "fp16": "model_fp16.onnx",
    "int8-dynamic": "model_quantized.onnx",
    "int4": "model_q4.onnx",
    "w8a8": "model_w8a8.onnx",
    "w8a16": "model_w8a16.onnx",
}
STAGES = ("torch", "exported", "optimized", "quantized")
OPSET = 21  # the first with 16-bit quantisation
OPSETS = range(18, 24)  # what the dynamo exporter writes and onnxruntime reads
_CLOSE, _COARSE = 0.1, 0.3  # shares of the outputs' RMS: 20 and 10 dB of signal to noise


@dataclass(frozen=True)
class BuildOptions(Options):
    """How the stages are made. None and empty: as the model's files and the task say."""

    task: str | None = option(
        None, "Which head: the one that the task needs. Default: what config.json is made for.", group="What"
    )
    pooled: bool = option(False, "Encoders: give sentence vectors, pooled as the model's files say.", group="What")
    static_shape: tuple[int, int] | None = option(
        None, "Fix batch and length. Default: both are free.", group="What", metavar="1x512"
    )
    opset: int = option(OPSET, f"Of the exported graph. Default: {OPSET}.", group="What")
    optimize: bool = option(True, "Fuse operators before quantising. Default: yes.", group="What", off="--no-optimize")
    accept_differences: bool = option(
        False, "Keep a float stage that differs from the one before it, and note it. Default: refuse it.", group="What"
    )
    keep_stages: bool = option(
        False, "Keep the stages before the result, each in a folder of its name. Default: no.", group="What"
    )
    force: bool = option(False, "Replace what other settings made in the folder. Default: refuse.", group="What")
    calibration: str | None = option(
        None,
        "Real texts for w8a8 and w8a16: a file, a folder or a hub id, with a column text or the task's columns. "
        "Default: for encoders bundled English sentences, with a warning.",
        group="Calibration",
        metavar="D",
    )
    columns: Mapping[str, str] = field(default_factory=dict)  # of the calibration data
    data_options: DataOptions = field(default_factory=DataOptions)  # of the calibration data
    model_options: ModelOptions = field(default_factory=ModelOptions)
    stages: Mapping[str, Path] = field(default_factory=dict)  # stage → a graph made elsewhere in its place
    excluded_ids: frozenset[str] = frozenset()  # rows that ranges are not taken from, where there are others

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.opset not in OPSETS:
            raise RequestError(f"`opset` must be {OPSETS[0]} to {OPSETS[-1]}, found {self.opset}")
        for name in self.stages:
            if name not in STAGES[1:]:
                raise RequestError(f"`stages` must be among {', '.join(STAGES[1:])}, found {name!r}")


def parse_shape(text: str | None) -> tuple[int, int] | None:
    """
    >>> parse_shape("1x512")
    (1, 512)
    """
    if text is None:
        return None
    match = re.fullmatch(r"([1-9]\d*)[x,]([1-9]\d*)", text)
    if not match:
        raise RequestError(f"`static_shape` must be ROWSxLENGTH such as 1x512, found {text!r}")
    return int(match[1]), int(match[2])


def parse_stages(pairs: Sequence[str]) -> dict[str, Path]:
    """
    >>> sorted(parse_stages(["exported=model.onnx"]))
    ['exported']
    """
    stages = {}
    for pair in pairs:
        name, _, file = pair.partition("=")
        if not file:
            raise RequestError(f"`stages` must be NAME=FILE, found {pair!r}")
        stages[name] = expand(file)
    return stages


@dataclass(frozen=True)
class Difference:
    """Between the outputs of two stages at real tokens. Numbers are None where an output is not finite."""

    against: str
    largest: float | None  # absolute
    relative: float | None  # RMS of the difference divided by the RMS of the earlier stage
    padded: float | None  # the largest in batches with padding, and in those without
    unpadded: float | None
    rows: int  # of the batch with the largest difference
    length: int
    is_padded: bool
    bound: float | None  # a larger difference is refused; None where rounding is intended
    cases: int
    as_it_stands: bool = False  # the worst is of a session that does not optimise the graph

    @property
    def passed(self) -> bool:
        """Whether the bound holds, where there is one. Output that is not finite never passes a bound."""
        return self.bound is None or (self.largest is not None and self.largest <= self.bound)

    @property
    def place(self) -> str:
        """The batch with the largest difference."""
        return f"batch {self.rows}, length {self.length}, {'padded' if self.is_padded else 'unpadded'}"

    @property
    def size(self) -> str:
        """The largest one, as tables have it."""
        return "not finite" if self.largest is None else f"{self.largest:.2e}"

    def __str__(self) -> str:
        return f"{self.size} ({self.place})"


@dataclass(frozen=True)
class Leak:
    """How far padding moves the outputs at real tokens: rows alone against the same rows padded, or, where the length
    is fixed, other tokens in the padding. None: an output is not finite."""

    largest: float | None  # absolute
    bound: float | None  # a larger difference is refused; None where the precision cannot hold one
    how: str

    @property
    def passed(self) -> bool:
        return self.bound is None or (self.largest is not None and self.largest <= self.bound)

    def __str__(self) -> str:
        return "not finite" if self.largest is None else f"{self.largest:.1e}"


@dataclass(frozen=True)
class Latency:
    """Of one row at a time on one thread, in milliseconds, over the real rows that were timed."""

    p50: float
    p95: float
    rows: int
    tokens: float  # in a row, on average
    cpu: float = 0.0  # the median of processor time, which other work on the machine does not lengthen

    def times_as_fast(self, other: Latency) -> float | None:
        """How many times as fast this is as the other, by processor time; None where either was not timed."""
        return round(other.cpu / self.cpu, 3) if self.cpu > 0 and other.cpu > 0 else None


@dataclass(frozen=True)
class Stage:
    """One artifact: where it is, what it costs, how far it is from the stage before it."""

    name: str  # one of STAGES
    path: str  # "" where the stage was not kept
    key: str  # over its inputs and settings: a stage with the same key is not made again
    sha256: str
    size: int  # bytes
    latency: Latency
    difference: Difference | None  # None for the first stage
    leak: Leak | None = None  # of a quantised stage
    speedup: float | None = None  # times as fast as the float graph that is quantised, by processor time
    precision: str = ""  # of a quantised stage
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    reused: bool = False  # kept from an earlier build

    @property
    def title(self) -> str:
        """As tables call it: a quantised stage by its precision."""
        return self.precision or self.name

    def to_dict(self) -> dict[str, Any]:
        return {"schema": SCHEMA, "title": self.title, **asdict(self)}


@dataclass(frozen=True)
class Manifest:
    """What a build made. `model` is the result, named after its precision, with tokenizer and settings beside it."""

    folder: str
    model: str  # the file that is the result
    model_id: str
    ability: str
    precision: str
    key: str  # over everything that was requested: the same request is answered by what is there
    stages: tuple[Stage, ...]
    recipe: Mapping[str, Any]
    settings: Mapping[str, Any]
    calibration: Mapping[str, Any] | None  # dataset, ids of the rows, fingerprint
    checked_on: Mapping[str, Any]
    versions: Mapping[str, str]
    created: str

    def stage(self, name: str) -> Stage:
        return next(stage for stage in self.stages if stage.name == name)

    def to_dict(self) -> dict[str, Any]:
        """An entry of manifest.json, which has one for each precision."""
        return {"schema": SCHEMA, **asdict(self), "stages": [stage.to_dict() for stage in self.stages]}

    def rows(self) -> list[dict[str, str]]:
        """The table of stages, as a person reads it."""
        return [_row(stage) for stage in self.stages]

    def __repr__(self) -> str:
        return f"Manifest({self.model_id}, {self.precision}: {', '.join(stage.name for stage in self.stages)})"

    def _repr_html_(self) -> str:
        """The table of stages, for notebooks."""
        rows = self.rows()
        title = f"{self.model_id}, {self.precision}: {self.model}"
        return html_table(title, tuple(rows[0]), [tuple(row.values()) for row in rows])


def _row(stage: Stage) -> dict[str, str]:
    difference = stage.difference
    return {
        "stage": stage.title,
        "size": megabytes(stage.size),
        "p50, ms": f"{stage.latency.p50:.2f}",
        "p95, ms": f"{stage.latency.p95:.2f}",
        "speed": times(stage.speedup),
        "difference": difference.size if difference else "",
        "relative": _share(difference.relative) if difference else "",
        "verdict": _verdict(difference) if difference else "",
        "padding": str(stage.leak) if stage.leak else "",
        "note": "; ".join(stage.notes),
    }


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1%}" if value >= 0.001 else f"{value:.1e}"


def _verdict(difference: Difference) -> str:
    """A word for the difference of outputs, by its size alone. Only a metric decides about a quantised stage."""
    if difference.largest is None:
        return "broken"
    if difference.bound is not None:
        return "same" if difference.passed else "differs"
    share = difference.relative
    if share is None:
        return "unknown"
    return "close" if share < _CLOSE else "coarse: measure it" if share < _COARSE else "far: measure it"


def _folded(*row: str) -> tables.Row:
    """The cells of a row in two lines, for a narrow terminal."""
    stage, size, p50, p95, speed, difference, relative, verdict, padding = row
    pairs = ((stage, size), (speed, ""), (p50, p95), (difference, relative), (verdict, padding))
    return [tables.Cell(above, below=below) for above, below in pairs]


def show_build(console: Console, manifest: Manifest, name_flags: Callable[[str], str] = str) -> None:
    """The facts of the build, then a line for each stage. `name_flags` puts flags in the place of parameters."""
    facts = {"Result": manifest.model}
    if rows := manifest.calibration:
        facts["Calibrated"] = f"{rows['method']} over {rows['rows']} texts of {rows['dataset']}"
    rows = manifest.checked_on
    facts["Checked"] = f"at batch sizes 1, 2 and 7, padded and not, on {rows['rows']} texts of {rows['dataset']}"
    made = [stage.name for stage in manifest.stages if not stage.reused]
    facts["Made now"] = ", ".join(made) or "nothing: every stage was there"
    tables.show_facts(console, f"{manifest.model_id}  ·  {manifest.precision}", facts.items())
    table = [{key: row[key] for key in row if key != "note"} for row in manifest.rows()]
    header, *folded = [_folded(*cells) for cells in (tuple(table[0]), *(tuple(row.values()) for row in table))]
    tables.show_folded(console, table, header, folded)
    for stage in manifest.stages:
        for note in stage.notes:
            is_warning = note.startswith("warning: ")
            tables.say(console, f"{stage.title}: {name_flags(note)}", "yellow" if is_warning else "")
