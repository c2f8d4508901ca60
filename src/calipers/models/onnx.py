"""ONNX Runtime encoders: any graph that takes token ids and gives token embeddings or pooled vectors.

Nothing about a model family is assumed: inputs are fed by the graph's own names and types, the output is chosen by
its shape, and a batch is padded to what the graph demands and to nothing more.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.core import SILENT, InferenceError, ModelError, ModelInfo, Progress, RequestError
from calipers.models import batching, hub
from calipers.models.layout import EncoderSettings, read_layout, settle
from calipers.models.options import ModelOptions
from calipers.models.pooling import pool, unit
from calipers.models.source import Source
from calipers.models.tokenizer import (
    Tokenizer,
    counts_from_padding,
    first_line,
    open_tokenizer,
    read_json,
)

_BATCH_TOKENS = 512  # fastest of 256 … 2048 for a 6 × 384 BERT on two cores (bench/similarity.py)

# The short names people type, and the provider that ONNX Runtime means by them.
_PROVIDERS = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "gpu": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "rocm": "ROCMExecutionProvider",
    "migraphx": "MIGraphXExecutionProvider",
    "dml": "DmlExecutionProvider",
    "qnn": "QNNExecutionProvider",
    "npu": "QNNExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "vitisai": "VitisAIExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
    "xnnpack": "XnnpackExecutionProvider",
}
_DTYPES: dict[str, type[np.generic]] = {
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
}
# An input's part is told by its name; every exporter in use keeps one of these words in it.
_PARTS = (
    ("mask", "mask"),
    ("type", "type"),
    ("segment", "type"),
    ("position", "position"),
    ("ids", "ids"),
    ("token", "ids"),
)


def load(source: Source, options: ModelOptions) -> OnnxEncoder:
    used = ("model_id", "revision", "pooling", "normalize", "prompt", "prompt_name", "max_length", "device", "provider")
    options.refuse_others("an ONNX graph", *used, "output", "batch_tokens", "batch_size")
    provider = choose_provider(options)
    file = graph_file(source, options)
    folder = settings_folder(file, options)
    layout = read_layout(folder)
    settings = settle(layout, options)
    session = open_session(file, provider)
    graph = read_graph(session, file, read_json(layout.transformer / "config.json"))
    if graph.length and (settings.max_length is None or settings.max_length > graph.length):
        settings = replace(settings, max_length=graph.length)
    tokenizer = open_tokenizer(layout.transformer, max_length=settings.max_length, lower_case=settings.lower_case)
    size = choose_batching(file, graph, options)
    output = _choose_output(session, graph, tokenizer, size, options)
    info = ModelInfo(
        backend="onnx",
        model_id=options.model_id or (folder_name(file) if source.path else source.reference),
        path=str(file),
        device=f"{options.device} ({provider})",
        fingerprint=hub.fingerprint(content_files(file, layout.transformer)),
        settings={
            "provider": provider,
            "output": output.name,
            "pooling": "in the graph" if output.pooled else settings.pooling,
            "pooling_assumed": settings.pooling_assumed and not output.pooled,
            "normalize": settings.normalize,
            "prompt": settings.prompt,
            "max_length": tokenizer.max_length,
            "shape": graph.shape,
            "batching": str(size),
        },
    )
    return OnnxEncoder(session, graph, output, tokenizer, settings, size, options.workers, info)


@dataclass(frozen=True)
class Input:
    name: str
    part: str  # "ids", "mask", "type" or "position"
    dtype: type[np.generic]


@dataclass(frozen=True)
class Graph:
    """What a graph asks for. `rows` and `length` are set where its shape is fixed."""

    inputs: tuple[Input, ...]
    rows: int | None
    length: int | None
    first_position: int

    @property
    def shape(self) -> str:
        return f"[{self.rows or 'any'}, {self.length or 'any'}]"

    def feeds(self, batch: batching.Batch) -> dict[str, NDArray[Any]]:
        values = {"ids": batch.ids, "mask": batch.mask, "type": batch.type_ids}
        if any(i.part == "position" for i in self.inputs):
            values["position"] = np.broadcast_to(np.arange(batch.ids.shape[1]), batch.ids.shape) + self.first_position
        return {i.name: np.ascontiguousarray(values[i.part], dtype=i.dtype) for i in self.inputs}


@dataclass(frozen=True)
class Output:
    name: str
    pooled: bool


class OnnxEncoder:
    def __init__(
        self,
        session: Any,
        graph: Graph,
        output: Output,
        tokenizer: Tokenizer,
        settings: EncoderSettings,
        size: batching.Batching,
        workers: int,
        info: ModelInfo,
    ) -> None:
        self.info = info
        self._session = session
        self._graph = graph
        self._output = output
        self._tokenizer = tokenizer
        self._settings = settings
        self._batching = size
        self._workers = workers

    def encode(self, texts: Sequence[str], *, progress: Progress = SILENT) -> NDArray[np.float32]:
        return batching.encode(
            [self._settings.prompt + text for text in texts],
            tokenizer=self._tokenizer,
            forward=self._forward,
            batching=self._batching,
            workers=self._workers,
            progress=progress,
        )

    def _forward(self, batch: batching.Batch) -> NDArray[np.float32]:
        found = run(self._session, [self._output.name], self._graph, batch)[0].astype(np.float32, copy=False)
        vectors = found if self._output.pooled else pool(found, batch.mask, self._settings.pooling)
        return unit(vectors) if self._settings.normalize else vectors


def run(
    session: Any,
    outputs: list[str],
    graph: Graph,
    batch: batching.Batch,
    more: dict[str, NDArray[Any]] | None = None,
) -> list[NDArray[Any]]:
    """The named outputs; `more` are inputs that are not made from the batch."""
    try:
        found: list[NDArray[Any]] = session.run(outputs, graph.feeds(batch) | (more or {}))
    except Exception as error:  # onnxruntime's errors have no common base class
        raise InferenceError(f"ONNX Runtime failed on a batch of {batch.ids.shape}: {first_line(error)}") from error
    return found


def choose_provider(options: ModelOptions) -> str:
    import onnxruntime

    asked = options.provider or options.device
    known = onnxruntime.get_all_providers()
    name = _PROVIDERS.get(asked.lower(), asked)
    if name not in known:
        raise RequestError(f"unknown execution provider {asked!r}: expected one of {', '.join(_PROVIDERS)}")
    here = available_providers()
    if name not in here:
        raise RequestError(
            f"the execution provider {name} is not in this build of onnxruntime (it has {', '.join(here)}): "
            "install the onnxruntime package made for it"
        )
    return str(name)


def available_providers() -> list[str]:
    import onnxruntime

    return [str(name) for name in onnxruntime.get_available_providers()]


def open_session(file: Path, provider: str, *, content: bytes | None = None) -> Any:
    """A session whose calls run on the calling thread: the workers of `batching.encode` are the parallelism.

    `content` is a graph made from the file: its external weights still lie beside the file.
    """
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    settings.inter_op_num_threads = 1
    settings.log_severity_level = 4
    if content is not None:
        settings.add_session_config_entry("session.model_external_initializers_file_folder_path", str(file.parent))
    try:
        session = onnxruntime.InferenceSession(content or str(file), settings, providers=[provider])
    except Exception as error:
        raise ModelError(f"ONNX Runtime cannot load {file}: {first_line(error)}") from error
    if session.get_providers()[0] != provider:
        raise ModelError(f"ONNX Runtime fell back to {session.get_providers()[0]}: {provider} cannot run {file}")
    return session


def read_graph(session: Any, file: Path, config: dict[str, Any]) -> Graph:
    inputs = []
    rows: set[int] = set()
    lengths: set[int] = set()
    for found in session.get_inputs():
        part = next((part for word, part in _PARTS if word in found.name.lower()), None)
        dtype = _DTYPES.get(found.type)
        if part is None or dtype is None or len(found.shape) != 2:
            raise ModelError(
                f"{file} does not take text: its input {found.name!r} is {found.type}{list(found.shape)}, "
                "and only token ids, masks, type ids and positions of shape [batch, length] can be fed"
            )
        inputs.append(Input(found.name, part, dtype))
        rows |= {found.shape[0]} if isinstance(found.shape[0], int) else set()
        lengths |= {found.shape[1]} if isinstance(found.shape[1], int) else set()
    if sum(i.part == "ids" for i in inputs) != 1 or len(rows) > 1 or len(lengths) > 1:
        names = ", ".join(i.name for i in inputs) or "none"
        raise ModelError(f"{file} does not take text: expected one input of token ids, found {names}")
    first = (config.get("pad_token_id") or 0) + 1 if counts_from_padding(config) else 0
    return Graph(tuple(inputs), next(iter(rows), None), next(iter(lengths), None), first)


def choose_batching(file: Path, graph: Graph, options: ModelOptions) -> batching.Batching:
    fixed = {"fixed_rows": graph.rows, "fixed_length": graph.length}
    if graph.rows:
        return batching.Batching(None, graph.rows, f"the graph's shape is {graph.shape}", **fixed)
    if options.batch_size or options.batch_tokens:
        return batching.Batching(options.batch_tokens, options.batch_size, "as asked", **fixed)
    if quantises_dynamically(file):
        return batching.Batching(None, 1, "the graph quantises activations per batch", **fixed)
    return batching.Batching(_BATCH_TOKENS, None, "", **fixed)


def quantises_dynamically(file: Path) -> bool:
    """Whether a row's answer depends on its neighbours: one range is taken over the whole batch.

    DynamicQuantizeLinear and the fused DynamicQuantizeMatMul do that. Operator names stand in the file as plain
    text, so it is searched as bytes: a 2 GB graph is not parsed for one bit, and the onnx package is not needed.
    """
    with file.open("rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(b"DynamicQuantize") >= 0


def _choose_output(
    session: Any, graph: Graph, tokenizer: Tokenizer, size: batching.Batching, options: ModelOptions
) -> Output:
    """Run one text and look at the shapes, because what a graph declares may be wrong or missing."""
    names = [output.name for output in session.get_outputs()]
    if options.output and options.output not in names:
        raise RequestError(f"the graph has no output {options.output!r}: it has {', '.join(names)}")
    batch = batching.pad(tokenizer.encode(["The quick brown fox."]), tokenizer.pad_id, size)
    wanted = [options.output] if options.output else names
    try:
        found = dict(zip(wanted, run(session, wanted, graph, batch), strict=True))
    except InferenceError as error:
        raise ModelError(f"the graph cannot be run on a short text: {error}") from error
    shapes = {
        name: np.shape(value) for name, value in found.items() if np.issubdtype(np.asarray(value).dtype, np.floating)
    }
    tokens = [n for n, s in shapes.items() if len(s) == 3 and s[:2] == batch.ids.shape and s[2] > 1]
    pooled = [n for n, s in shapes.items() if len(s) == 2 and s[0] == batch.ids.shape[0] and s[1] > 1]
    # A pooled [b, d] beside token embeddings is BERT's pooler, which is no sentence vector, unless it says it is.
    named = [n for n in pooled if "sentence" in n.lower()]
    if named and options.pooling is None:
        return Output(named[0], pooled=True)
    if tokens:
        if shapes[tokens[0]][2] == tokenizer.vocab_size:
            raise ModelError(
                f"the graph's output {tokens[0]!r} is {tokenizer.vocab_size} wide, one logit per vocabulary entry: "
                "this is a masked language model, not an embedding model"
            )
        return Output(tokens[0], pooled=False)
    if pooled:
        return Output(pooled[0], pooled=True)
    raise ModelError(
        "the graph gives no embeddings: expected an output [batch, length, d] or [batch, d], "
        f"found {', '.join(f'{n} {list(np.shape(v))}' for n, v in found.items())}"
    )


def graph_file(source: Source, options: ModelOptions) -> Path:
    if source.path is None:
        repository = "/".join(source.reference.split("/")[:2])
        inside = source.reference[len(repository) + 1 :]
        patterns = [*hub.SETTINGS, *([inside, f"{inside}*"] if inside else ["*.onnx*", "onnx/model.onnx*"])]
        place = hub.fetch(repository, revision=options.revision, patterns=patterns) / inside
    else:
        place = source.path
    if place.is_file():
        return place
    files = sorted(place.glob("*.onnx")) or sorted(place.glob("onnx/*.onnx"))
    plain = [f for f in files if f.name == "model.onnx"] or files
    if len(plain) == 1:
        return plain[0]
    if not files:
        raise ModelError(f"there is no .onnx file in {place}")
    raise ModelError(f"{place} holds several graphs, name one: {', '.join(f.name for f in files)}")


def settings_folder(file: Path, options: ModelOptions) -> Path:
    """Where tokenizer and settings are: --model-id, beside the graph, or one folder up as on the hub."""
    if options.model_id:
        folder = Path(options.model_id).expanduser()
        if folder.is_dir():
            return folder
        return hub.fetch(options.model_id, revision=options.revision, patterns=hub.SETTINGS)
    for folder in (file.parent, file.parent.parent):
        if any((folder / name).exists() for name in ("tokenizer.json", "tokenizer_config.json", "modules.json")):
            return folder
    raise ModelError(
        f"there is no tokenizer beside {file}: put tokenizer.json there, or name a folder or hub id with --model-id"
    )


def content_files(file: Path, folder: Path) -> list[Path]:
    """The files that decide what comes out: graph, external weights, tokenizer."""
    weights = [p for p in file.parent.iterdir() if p.name.startswith(file.name) and p.is_file()]
    weights += [p for p in file.parent.glob(f"{file.stem}*.data") if p not in weights]
    return [*weights, *(p for p in [folder / "tokenizer.json"] if p.exists())]


def folder_name(file: Path) -> str:
    return f"{(file.parent.parent if file.parent.name == 'onnx' else file.parent).resolve().name}/{file.name}"
