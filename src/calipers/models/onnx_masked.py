"""Masked language models in ONNX Runtime, with the graph rewritten to read one position where that is exact."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from calipers.core import ModelError
from calipers.metrics.arrays import Ints
from calipers.models import masking
from calipers.models.batching import Batch
from calipers.models.masking import Logits, MaskedModel, MaskTokenizer
from calipers.models.onnx import OnnxModel, list_shapes, open_model
from calipers.models.onnx_session import Graph, open_graph
from calipers.models.options import ModelOptions
from calipers.models.source import Source
from calipers.models.tokenizer import USUAL_LIMIT, fast_backend, longest_input

POSITIONS = "calipers_positions"


def load(source: Source, options: ModelOptions) -> MaskedModel:
    used = ("model_id", "revision", "max_length", "device", "provider", "output", "batch_tokens", "batch_size")
    options.refuse_others("a masked language model in ONNX", *used)
    model = open_model(source, options)
    folder = model.layout.transformer
    longest = model.shortest(options.max_length, longest_input(folder)) or USUAL_LIMIT
    tokenizer = MaskTokenizer(fast_backend(folder), folder, max_length=longest)
    output, vocabulary = _find_logits(model, tokenizer, options)
    masking.refuse_misfit(tokenizer, vocabulary, folder)
    short, short_cut = _find_short_cut(model, output, tokenizer, vocabulary)
    kept = 1 if short else tokenizer.max_length
    batching = masking.bound_memory(model.work.batching, vocabulary, positions_kept=kept)
    model = replace(model, work=replace(model.work, batching=batching))
    settings = {"output": output, "max_length": tokenizer.max_length, "short_cut": short_cut}
    info = model.info(source, options, settings)
    return MaskedModel(short or _Full(model.graph, output), tokenizer, model.work, info)


class _Full:
    """The graph as it is: logits at every position, one of them kept."""

    def __init__(self, graph: Graph, output: str) -> None:
        self.graph, self.output = graph, output

    def __call__(self, batch: Batch, positions: Ints) -> Logits:
        logits = self.graph.run(batch, [self.output])[self.output]
        return np.asarray(logits[np.arange(len(logits)), positions], dtype=np.float32)


class _Short(_Full):
    """The rewritten graph: logits at one position."""

    def __call__(self, batch: Batch, positions: Ints) -> Logits:
        extra = {POSITIONS: positions.reshape(-1, 1, 1)}
        return np.asarray(self.graph.run(batch, [self.output], extra)[self.output][:, 0], dtype=np.float32)


def _find_logits(model: OnnxModel, tokenizer: MaskTokenizer, options: ModelOptions) -> tuple[str, int]:
    """The output [b, s, v] that is at least as wide as the vocabulary, found by running one row."""
    batching = model.work.batching
    batch = tokenizer.masks(batching.fixed_length or 4, rows=batching.fixed_rows or 1)
    arrays = model.try_outputs(batch, options)
    wide = {name: v.shape[2] for name, v in arrays.items() if v.ndim == 3 and v.shape[:2] == batch.ids.shape}
    fitting = {name: width for name, width in wide.items() if width >= tokenizer.vocab_size}
    if not fitting:
        raise ModelError(
            f"the graph gives no logits over the vocabulary of {tokenizer.vocab_size} tokens: found "
            f"{list_shapes(arrays)}; it is not a masked language model, or the tokenizer does not fit"
        )
    name = max(fitting, key=lambda n: fitting[n])
    return name, fitting[name]


def _find_short_cut(
    model: OnnxModel, output: str, tokenizer: MaskTokenizer, vocabulary: int
) -> tuple[_Short | None, str]:
    """The rewritten graph that is exact and saves most, if any, and what the settings say of it."""
    try:
        from calipers.models import onnx_rewrite
    except ImportError:
        return None, "none: rewriting the graph needs onnx (pip install onnx)"
    worst = None
    full, weights = _Full(model.graph, output), model.file.parent
    for name, content in onnx_rewrite.read_at_position(model.file, output, POSITIONS):
        try:
            graph = open_graph(content, provider=model.provider, weights=weights, extra=[POSITIONS])
            short = _Short(graph, output)
            worst = masking.difference(full, short, tokenizer, vocabulary, model.work)
        except Exception:  # a rewritten graph that does not load or run is one that is not taken
            worst = float("inf")
            continue
        if worst <= masking.EXACT:
            return short, f"at the masked position from {name} on"
    why = "the graph has no plain vocabulary projection" if worst is None else f"the short cut differs by {worst:.1e}"
    return None, f"none: the full pass is used ({why})"
