"""Masked language models in ONNX Runtime, with the graph rewritten to read one position where that is exact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calipers.core import SILENT, MaskedTokens, ModelError, ModelInfo, Progress, TokenizedText
from calipers.models import masking
from calipers.models.batching import Batch, Batching
from calipers.models.onnx import Opened, open_graph, open_session
from calipers.models.options import ModelOptions
from calipers.models.source import Source
from calipers.models.tokenizer import USUAL_LIMIT, fast_backend, longest_input

POSITIONS = "calipers_positions"


def load(source: Source, options: ModelOptions) -> OnnxMaskedLM:
    used = ("model_id", "revision", "max_length", "device", "provider", "output", "batch_tokens", "batch_size")
    options.refuse_others("a masked language model in ONNX", *used)
    opened = open_graph(source, options)
    folder = opened.layout.transformer
    longest = opened.graph.limit(options.max_length, longest_input(folder)) or USUAL_LIMIT
    tokenizer = masking.MaskTokenizer(fast_backend(folder), folder, max_length=longest)
    output, vocabulary = _find_logits(opened, tokenizer, options)
    masking.refuse_misfit(tokenizer, vocabulary, folder)
    full = _Full(opened, output)
    short, short_cut = _find_short_cut(full, tokenizer, vocabulary)
    kept = 1 if short else tokenizer.max_length
    opened = replace(opened, size=masking.bound_memory(opened.size, vocabulary, positions_kept=kept))
    told = {"output": output, "max_length": tokenizer.max_length, "short_cut": short_cut}
    info = opened.info(source, options, told)
    return OnnxMaskedLM(short or full, tokenizer, opened.size, options.workers, info)


@dataclass(frozen=True, eq=False)
class OnnxMaskedLM:
    forward: masking.Forward
    tokenizer: masking.MaskTokenizer
    size: Batching
    workers: int
    info: ModelInfo

    @property
    def max_length(self) -> int:
        return self.tokenizer.max_length

    def tokenize(self, texts: Sequence[str], *, truncate: bool = True) -> list[TokenizedText]:
        return self.tokenizer.encode(texts, truncate=truncate)

    def log_probs(
        self, questions: MaskedTokens, *, progress: Progress = SILENT
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return masking.ask(
            questions,
            forward=self.forward,
            tokenizer=self.tokenizer,
            batching=self.size,
            workers=self.workers,
            progress=progress,
        )

    def distributions(self, questions: MaskedTokens) -> NDArray[np.float32]:
        return masking.distributions(
            questions,
            forward=self.forward,
            tokenizer=self.tokenizer,
            batching=self.size,
            workers=self.workers,
        )


class _Full:
    """The graph as it is: logits at every position, of which one is kept."""

    def __init__(self, opened: Opened, output: str) -> None:
        self.opened, self.output = opened, output

    def __call__(self, batch: Batch, positions: NDArray[np.int64]) -> NDArray[np.float32]:
        logits = self.opened.run([self.output], batch)[0]
        return np.asarray(logits[np.arange(len(logits)), positions], dtype=np.float32)


class _Short(_Full):
    """The rewritten graph: logits at the position asked for."""

    def __call__(self, batch: Batch, positions: NDArray[np.int64]) -> NDArray[np.float32]:
        extra = {POSITIONS: positions.reshape(-1, 1, 1)}
        return np.asarray(self.opened.run([self.output], batch, extra)[0][:, 0], dtype=np.float32)


def _find_logits(opened: Opened, tokenizer: masking.MaskTokenizer, options: ModelOptions) -> tuple[str, int]:
    """The output [b, s, v] that is at least as wide as the vocabulary, found by running one row."""
    ids = np.full((opened.size.fixed_rows or 1, opened.size.fixed_length or 4), tokenizer.mask_id)
    batch = Batch(ids, np.zeros_like(ids), np.ones_like(ids), rows=1)
    shapes = {name: value.shape for name, value in opened.try_outputs(batch, options).items()}
    wide = {name: s[2] for name, s in shapes.items() if len(s) == 3 and s[:2] == ids.shape}
    fitting = {name: width for name, width in wide.items() if width >= tokenizer.vocab_size}
    if not fitting:
        found = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
        raise ModelError(
            f"the graph gives no logits over the vocabulary of {tokenizer.vocab_size} tokens: found {found}; "
            "it is no masked language model, or the tokenizer does not fit"
        )
    name = max(fitting, key=lambda n: fitting[n])
    return name, fitting[name]


def _find_short_cut(full: _Full, tokenizer: masking.MaskTokenizer, vocabulary: int) -> tuple[_Short | None, str]:
    opened = full.opened
    try:
        from calipers.models import onnx_rewrite
    except ImportError:
        return None, "none: rewriting the graph needs onnx (pip install onnx)"
    worst = None
    for name, content in onnx_rewrite.read_at_position(opened.file, full.output, POSITIONS):
        try:
            session = open_session(opened.file, opened.provider, content=content)
            short = _Short(replace(opened, session=session), full.output)
            worst = masking.difference(full, short, tokenizer, vocabulary, opened.size)
        except Exception:  # a rewritten graph that does not load or run is one that is not taken
            worst = float("inf")
            continue
        if worst <= masking.EXACT:
            return short, f"at the masked position from {name} on"
    why = "the graph has no plain vocabulary projection" if worst is None else f"the short cut differs by {worst:.1e}"
    return None, f"none: the full pass is used ({why})"
