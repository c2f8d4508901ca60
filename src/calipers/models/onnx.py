"""ONNX Runtime encoders: any graph that takes token ids and gives token embeddings or pooled vectors.

Nothing about a model family is assumed: inputs are fed by the graph's own names and types, the output is chosen by
its shape, and a batch is padded to what the graph demands and to nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.core import SILENT, InferenceError, ModelError, ModelInfo, Progress, RequestError
from calipers.models import batching, hub
from calipers.models.layout import EncoderSettings, Layout, read_layout, settle, told_prompts
from calipers.models.onnx_files import quantises_dynamically, weight_files
from calipers.models.options import ModelOptions
from calipers.models.pooling import pool, unit
from calipers.models.source import Source
from calipers.models.tokenizer import Tokenizer, counts_from_padding, first_line, open_tokenizer, read_json

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
    opened = open_graph(source, options)
    settings = settle(opened.layout, options)
    settings = replace(settings, max_length=opened.graph.limit(settings.max_length))
    tokenizer = open_tokenizer(
        opened.layout.transformer, max_length=settings.max_length, lower_case=settings.lower_case
    )
    output = _choose_output(opened, tokenizer, options)
    told = {
        "output": output.name,
        "pooling": "in the graph" if output.pooled else settings.pooling,
        "pooling_assumed": settings.pooling_assumed and not output.pooled,
        "normalize": settings.normalize,
        **told_prompts(opened.layout, settings, options),
        "max_length": tokenizer.max_length,
    }
    info = replace(opened.info(source, options, told), notes=() if output.pooled else _left_out(opened.layout))
    return OnnxEncoder(opened, output, tokenizer, settings, options.workers, info)


def _left_out(layout: Layout) -> tuple[str, ...]:
    if not layout.further:
        return ()
    return (
        f"the model's files ask for {', '.join(layout.further)}, which is not in the graph and is not run: "
        "these are not the vectors that sentence-transformers gives",
    )


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

    def limit(self, *lengths: int | None) -> int | None:
        """The least of the lengths that are known, the graph's own among them."""
        return min((n for n in (*lengths, self.length) if n), default=None)

    def feeds(self, batch: batching.Batch) -> dict[str, NDArray[Any]]:
        values = {"ids": batch.ids, "mask": batch.mask, "type": batch.type_ids}
        if any(i.part == "position" for i in self.inputs):
            values["position"] = np.broadcast_to(np.arange(batch.ids.shape[1]), batch.ids.shape) + self.first_position
        return {i.name: np.ascontiguousarray(values[i.part], dtype=i.dtype) for i in self.inputs}


@dataclass(frozen=True)
class Opened:
    """A graph ready to run. `layout` and `config` are of the folder with its tokenizer and settings."""

    file: Path
    folder: Path
    layout: Layout
    config: dict[str, Any]
    provider: str
    session: Any
    graph: Graph
    size: batching.Batching

    def run(
        self, outputs: list[str], batch: batching.Batch, more: dict[str, NDArray[Any]] | None = None
    ) -> list[NDArray[Any]]:
        """The named outputs; `more` are inputs that are not made from the batch."""
        try:
            found: list[NDArray[Any]] = self.session.run(outputs, self.graph.feeds(batch) | (more or {}))
        except Exception as error:  # onnxruntime's errors have no common base class
            raise InferenceError(f"ONNX Runtime failed on a batch of {batch.ids.shape}: {first_line(error)}") from error
        return found

    def try_outputs(self, batch: batching.Batch, options: ModelOptions) -> dict[str, NDArray[Any]]:
        """What one batch gives, by the name of the output: what a graph declares may be wrong or missing."""
        names = [output.name for output in self.session.get_outputs()]
        if options.output and options.output not in names:
            raise RequestError(f"the graph has no output {options.output!r}: it has {', '.join(names)}")
        wanted = [options.output] if options.output else names
        try:
            return dict(zip(wanted, map(np.asarray, self.run(wanted, batch)), strict=True))
        except InferenceError as error:
            raise ModelError(f"the graph cannot be run on a short text: {error}") from error

    def info(self, source: Source, options: ModelOptions, told: dict[str, Any]) -> ModelInfo:
        """What every ONNX model says of itself, and `told`, which is of its kind."""
        return ModelInfo(
            backend="onnx",
            model_id=options.model_id or (folder_name(self.file) if source.path else source.reference),
            path=str(self.file),
            device=f"{options.device} ({self.provider})",
            fingerprint=hub.fingerprint(content_files(self.file, self.layout.transformer)),
            settings={"provider": self.provider, **told, "shape": self.graph.shape, "batching": str(self.size)},
        )


def open_graph(source: Source, options: ModelOptions) -> Opened:
    provider = choose_provider(options)
    file = graph_file(source, options)
    folder = settings_folder(file, options)
    layout = read_layout(folder)
    config = read_json(layout.transformer / "config.json")
    session = open_session(file, provider)
    graph = read_graph(session, file, config)
    return Opened(file, folder, layout, config, provider, session, graph, choose_batching(file, graph, options))


@dataclass(frozen=True)
class Output:
    name: str
    pooled: bool


@dataclass(frozen=True, eq=False)
class OnnxEncoder:
    opened: Opened
    output: Output
    tokenizer: Tokenizer
    settings: EncoderSettings
    workers: int
    info: ModelInfo

    def encode(
        self, texts: Sequence[str], *, prompt: str | None = None, progress: Progress = SILENT
    ) -> NDArray[np.float32]:
        prompt = self.settings.prompt if prompt is None else prompt
        skip = self.settings.tokens_to_skip(prompt, self.tokenizer)
        if skip and self.output.pooled:
            raise RequestError(
                f"{self.info.model_id} was trained without its prompt in the pooling, and its graph pools all tokens: "
                "take the prompt away with --prompt '', or read token embeddings with --graph-output"
            )
        return batching.encode(
            [prompt + text for text in texts],
            tokenizer=self.tokenizer,
            forward=partial(self._forward, skip=skip),
            batching=self.opened.size,
            workers=self.workers,
            progress=progress,
        )

    def pieces(self, words: Sequence[str]) -> list[list[str | None]]:
        """The sub-words of each word, for a look at the tokenizer; see Tokenizer.pieces."""
        return self.tokenizer.pieces(words)

    def _forward(self, batch: batching.Batch, skip: int = 0) -> NDArray[np.float32]:
        found = self.opened.run([self.output.name], batch)[0].astype(np.float32, copy=False)
        vectors = found if self.output.pooled else pool(found, batch.mask, self.settings.pooling, skip=skip)
        return unit(vectors) if self.settings.normalize else vectors


def choose_provider(options: ModelOptions) -> str:
    import onnxruntime

    name = provider_name(options)
    if name not in onnxruntime.get_all_providers():
        asked = options.provider or options.device
        raise RequestError(f"unknown execution provider {asked!r}: expected one of {', '.join(_PROVIDERS)}")
    here = available_providers()
    if name not in here:
        raise RequestError(
            f"the execution provider {name} is not in this build of onnxruntime (it has {', '.join(here)}): "
            "install the onnxruntime package made for it"
        )
    return name


def provider_name(options: ModelOptions) -> str:
    asked = options.provider or options.device
    return _PROVIDERS.get(asked.lower(), asked)


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
    if graph.rows:
        free = batching.Batching(None, graph.rows, f"the graph's shape is {graph.shape}")
    else:
        free = free_batching(file, options)
    return replace(free, fixed_rows=graph.rows, fixed_length=graph.length)


def free_batching(file: Path, options: ModelOptions) -> batching.Batching:
    """The batches of a graph whose shape leaves them free."""
    if options.batch_size or options.batch_tokens:
        return batching.Batching(options.batch_tokens, options.batch_size, "as asked")
    if quantises_dynamically(file):
        return batching.Batching(None, 1, "the graph quantises activations per batch")
    return batching.Batching(_BATCH_TOKENS, None, "")


def _choose_output(opened: Opened, tokenizer: Tokenizer, options: ModelOptions) -> Output:
    """Run one text and look at the shapes."""
    batch = batching.pad(tokenizer.encode(["The quick brown fox."]), tokenizer.pad_id, opened.size)
    found = opened.try_outputs(batch, options)
    shapes = {name: value.shape for name, value in found.items() if np.issubdtype(value.dtype, np.floating)}
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
        f"found {', '.join(f'{n} {list(v.shape)}' for n, v in found.items())}"
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
    return [*weight_files(file), *(p for p in [folder / "tokenizer.json"] if p.exists())]


def folder_name(file: Path) -> str:
    return f"{(file.parent.parent if file.parent.name == 'onnx' else file.parent).resolve().name}/{file.name}"
