"""Masked language models in ONNX Runtime, with the graph rewritten to read one position where that is exact."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.core import SILENT, MaskedTokens, ModelError, ModelInfo, Progress, TokenizedText
from calipers.models import hub, masking
from calipers.models.batching import Batch, Batching
from calipers.models.onnx import (
    Graph,
    choose_batching,
    choose_provider,
    content_files,
    folder_name,
    graph_file,
    open_session,
    read_graph,
    run,
    settings_folder,
)
from calipers.models.options import ModelOptions
from calipers.models.source import Source
from calipers.models.tokenizer import USUAL_LIMIT, fast_backend, longest_input, read_json

POSITIONS = "calipers_positions"


def load(source: Source, options: ModelOptions) -> OnnxMaskedLM:
    used = ("model_id", "revision", "max_length", "device", "provider", "output", "batch_tokens", "batch_size")
    options.refuse_others("a masked language model in ONNX", *used)
    provider = choose_provider(options)
    file = graph_file(source, options)
    folder = settings_folder(file, options)
    session = open_session(file, provider)
    graph = read_graph(session, file, read_json(folder / "config.json"))
    limits = (options.max_length, longest_input(folder), graph.length)
    tokenizer = masking.MaskTokenizer(
        fast_backend(folder), folder, max_length=min((n for n in limits if n), default=USUAL_LIMIT)
    )
    size = choose_batching(file, graph, options)
    output, vocabulary = _find_logits(session, graph, tokenizer, size, options)
    masking.refuse_misfit(tokenizer, vocabulary, folder)
    full = _Full(session, graph, output)
    short, told = _find_short_cut(file, provider, full, tokenizer, vocabulary, size)
    size = masking.bound_memory(size, vocabulary, positions_kept=1 if short else tokenizer.max_length)
    info = ModelInfo(
        backend="onnx",
        model_id=options.model_id or (folder_name(file) if source.path else source.reference),
        path=str(file),
        device=f"{options.device} ({provider})",
        fingerprint=hub.fingerprint(content_files(file, folder)),
        settings={
            "provider": provider,
            "output": output,
            "max_length": tokenizer.max_length,
            "shape": graph.shape,
            "short_cut": told,
            "batching": str(size),
        },
    )
    return OnnxMaskedLM(short or full, tokenizer, size, options.workers, info)


class OnnxMaskedLM:
    def __init__(
        self, forward: masking.Forward, tokenizer: masking.MaskTokenizer, size: Batching, workers: int, info: ModelInfo
    ) -> None:
        self.info = info
        self.max_length = tokenizer.max_length
        self._forward = forward
        self._tokenizer = tokenizer
        self._batching = size
        self._workers = workers

    def tokenize(self, texts: Sequence[str], *, truncate: bool = True) -> list[TokenizedText]:
        return self._tokenizer.encode(texts, truncate=truncate)

    def log_probs(
        self, questions: MaskedTokens, *, progress: Progress = SILENT
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return masking.ask(
            questions,
            forward=self._forward,
            tokenizer=self._tokenizer,
            batching=self._batching,
            workers=self._workers,
            progress=progress,
        )


class _Full:
    """The graph as it is: logits at every position, of which one is kept."""

    def __init__(self, session: Any, graph: Graph, output: str) -> None:
        self.session, self.graph, self.output = session, graph, output

    def __call__(self, batch: Batch, positions: NDArray[np.int64]) -> NDArray[np.float32]:
        logits = run(self.session, [self.output], self.graph, batch)[0]
        return np.asarray(logits[np.arange(len(logits)), positions], dtype=np.float32)


class _Short(_Full):
    """The rewritten graph: logits at the position asked for."""

    def __call__(self, batch: Batch, positions: NDArray[np.int64]) -> NDArray[np.float32]:
        extra = {POSITIONS: positions.reshape(-1, 1, 1)}
        return np.asarray(run(self.session, [self.output], self.graph, batch, extra)[0][:, 0], dtype=np.float32)


def _find_logits(
    session: Any, graph: Graph, tokenizer: masking.MaskTokenizer, size: Batching, options: ModelOptions
) -> tuple[str, int]:
    """The output [b, s, v] that is at least as wide as the vocabulary, found by running one row."""
    ids = np.full((size.fixed_rows or 1, size.fixed_length or 4), tokenizer.mask_id)
    batch = Batch(ids, np.zeros_like(ids), np.ones_like(ids), rows=1)
    names = [options.output] if options.output else [output.name for output in session.get_outputs()]
    shapes = {name: value.shape for name, value in zip(names, run(session, names, graph, batch), strict=True)}
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


def _find_short_cut(
    file: Path, provider: str, full: _Full, tokenizer: masking.MaskTokenizer, vocabulary: int, size: Batching
) -> tuple[_Short | None, str]:
    try:
        from calipers.models import onnx_rewrite
    except ImportError:
        return None, "none: rewriting the graph needs onnx (pip install onnx)"
    worst = None
    for name, content in onnx_rewrite.read_at_position(file, full.output, POSITIONS):
        try:
            short = _Short(open_session(file, provider, content=content), full.graph, full.output)
            worst = masking.difference(full, short, tokenizer, vocabulary, size)
        except Exception:  # a rewritten graph that does not load or run is one that is not taken
            worst = float("inf")
            continue
        if worst <= masking.EXACT:
            return short, f"at the masked position from {name} on"
    why = "the graph has no plain vocabulary projection" if worst is None else f"the short cut differs by {worst:.1e}"
    return None, f"none: the full pass is used ({why})"
