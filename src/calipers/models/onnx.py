"""ONNX Runtime encoders: any graph that takes token ids and gives token embeddings or pooled vectors.

The output is chosen by its shape, from one run: what a graph declares may be wrong or missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from calipers.core import InferenceError, ModelError, ModelInfo, RequestError
from calipers.metrics.arrays import Vectors
from calipers.models import hub
from calipers.models.batching import Batch, Batching, Work
from calipers.models.layout import Layout, prompt_settings, read_layout, settle
from calipers.models.onnx_files import folder_name, graph_file, quantises_dynamically, settings_folder, weight_files
from calipers.models.onnx_session import Arrays, Graph, choose_provider, open_graph
from calipers.models.options import ModelOptions
from calipers.models.pooling import PooledEncoder
from calipers.models.source import Source
from calipers.models.tokenizer import Config, Tokenizer, open_tokenizer, read_json

_BATCH_TOKENS = 512  # fastest of 256 … 2048 for a 6 × 384 BERT on two cores (bench/similarity.py)


def load(source: Source, options: ModelOptions) -> OnnxEncoder:
    used = ("model_id", "revision", "pooling", "normalize", "prompt", "prompt_name", "max_length", "device", "provider")
    options.refuse_others("an ONNX graph", *used, "output", "batch_tokens", "batch_size")
    model = open_model(source, options)
    settings = settle(model.layout, options)
    settings = replace(settings, max_length=model.shortest(settings.max_length))
    tokenizer = open_tokenizer(model.layout.transformer, max_length=settings.max_length, lower_case=settings.lower_case)
    output, pooled = _choose_output(model, tokenizer, options)
    reported = {
        "output": output,
        "pooling": "in the graph" if pooled else settings.pooling,
        "pooling_assumed": settings.pooling_assumed and not pooled,
        "normalize": settings.normalize,
        **prompt_settings(model.layout, settings, options),
        "max_length": tokenizer.max_length,
    }
    info = replace(model.info(source, options, reported), notes=() if pooled else _missing_modules(model.layout))
    return OnnxEncoder(tokenizer, model.work, info, settings, model.graph, output, pooled)


def _missing_modules(layout: Layout) -> tuple[str, ...]:
    if not layout.further:
        return ()
    return (
        f"the model's files name {', '.join(layout.further)}, which is not in the graph and is not run: "
        "these are not the vectors that sentence-transformers gives",
    )


@dataclass(frozen=True, eq=False)
class OnnxEncoder(PooledEncoder):
    graph: Graph
    output: str
    pooled: bool  # in the graph

    def embed(self, batch: Batch) -> Vectors:
        return self.graph.forward(self.output)(batch)

    def tokens_to_skip(self, prompt: str) -> int:
        skip = super().tokens_to_skip(prompt)
        if skip and self.pooled:
            raise RequestError(
                f"{self.info.model_id} was trained without its prompt in the pooling, and its graph pools all tokens: "
                "set `prompt` to '', or choose an output of token embeddings with `ModelOptions.output`"
            )
        return skip


@dataclass(frozen=True)
class OnnxModel:
    """An open graph and what its files say, whatever it computes. `folder` holds its tokenizer and settings."""

    file: Path
    folder: Path
    layout: Layout
    config: Config
    provider: str
    graph: Graph
    work: Work

    def shortest(self, *lengths: int | None) -> int | None:
        """The least of the lengths that are set, the graph's among them."""
        return min((n for n in (*lengths, self.graph.length) if n), default=None)

    def try_outputs(self, batch: Batch, options: ModelOptions) -> Arrays:
        """What one batch gives, by the name of the output: the requested one, or all."""
        if options.output and options.output not in self.graph.outputs:
            raise RequestError(f"the graph has no output {options.output!r}: it has {', '.join(self.graph.outputs)}")
        try:
            arrays = self.graph.run(batch, [options.output] if options.output else None)
        except InferenceError as error:
            raise ModelError(f"the graph cannot be run on a short text: {error}") from error
        return {name: np.asarray(value) for name, value in arrays.items()}

    def info(self, source: Source, options: ModelOptions, settings: Mapping[str, object]) -> ModelInfo:
        """What every ONNX model reports, and the `settings` of its kind."""
        tokenizer = self.layout.transformer / "tokenizer.json"
        files = [*weight_files(self.file), *([tokenizer] if tokenizer.exists() else [])]
        model_id = options.model_id or (folder_name(self.file) if source.path else source.reference)
        device = f"{options.device} ({self.provider})"
        shape = {"shape": self.graph.dimensions, "batching": str(self.work.batching)}
        settings = {"provider": self.provider, **settings, **shape}
        return ModelInfo("onnx", model_id, str(self.file), device, hub.fingerprint(files), settings)


def open_model(source: Source, options: ModelOptions) -> OnnxModel:
    provider = choose_provider(options)
    file = graph_file(source, options)
    folder = settings_folder(file, options)
    layout = read_layout(folder)
    config = read_json(layout.transformer / "config.json")
    graph = open_graph(file, provider=provider)
    work = Work(_choose_batching(file, graph, options), options.workers)
    return OnnxModel(file, folder, layout, config, provider, graph, work)


def _choose_batching(file: Path, graph: Graph, options: ModelOptions) -> Batching:
    if graph.rows:
        free = Batching(None, graph.rows, f"the graph's shape is {graph.dimensions}")
    else:
        free = free_batching(file, options)
    return replace(free, fixed_rows=graph.rows, fixed_length=graph.length)


def free_batching(file: Path, options: ModelOptions) -> Batching:
    """The batches of a graph whose shape leaves them free."""
    if options.batch_size or options.batch_tokens:
        return Batching(options.batch_tokens, options.batch_size, "as asked")
    if quantises_dynamically(file):
        return Batching(None, 1, "the graph quantises activations per batch")
    return Batching(_BATCH_TOKENS, None, "")


def float_shapes(arrays: Arrays) -> dict[str, tuple[int, ...]]:
    """The shapes of the outputs that are floating-point numbers."""
    return {name: value.shape for name, value in arrays.items() if np.issubdtype(value.dtype, np.floating)}


def list_shapes(arrays: Arrays) -> str:
    """Outputs and shapes for an error: "logits [1, 2]"."""
    return ", ".join(f"{name} {list(value.shape)}" for name, value in arrays.items())


def _choose_output(model: OnnxModel, tokenizer: Tokenizer, options: ModelOptions) -> tuple[str, bool]:
    """The output to read and whether it is pooled, by the shapes that one text gives."""
    batch = model.work.pad(tokenizer.encode(["The quick brown fox."]), tokenizer)
    arrays = model.try_outputs(batch, options)
    shapes = float_shapes(arrays)
    tokens = [n for n, s in shapes.items() if len(s) == 3 and s[:2] == batch.ids.shape and s[2] > 1]
    pooled = [n for n, s in shapes.items() if len(s) == 2 and s[0] == batch.ids.shape[0] and s[1] > 1]
    # A pooled [b, d] beside token embeddings is BERT's pooler, which is no sentence vector, unless its name says so.
    named = [n for n in pooled if "sentence" in n.lower()]
    if named and options.pooling is None:
        return named[0], True
    if tokens:
        if shapes[tokens[0]][2] == tokenizer.vocab_size:
            raise ModelError(
                f"the graph's output {tokens[0]!r} is {tokenizer.vocab_size} wide, one logit per vocabulary entry: "
                "this is a masked language model, not an embedding model"
            )
        return tokens[0], False
    if pooled:
        return pooled[0], True
    raise ModelError(
        "the graph gives no embeddings: expected an output [batch, length, d] or [batch, d], "
        f"found {list_shapes(arrays)}"
    )
