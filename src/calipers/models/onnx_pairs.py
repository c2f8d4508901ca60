"""Cross-encoders in ONNX Runtime: any graph that takes token ids and gives one or several numbers for a pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.core import SILENT, InferenceError, ModelError, ModelInfo, Progress, RequestError
from calipers.models import batching, hub
from calipers.models.heads import Head, Pair, Scores, read_head, told_settings
from calipers.models.layout import EncoderSettings, Layout, read_layout, settle
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
from calipers.models.tokenizer import Tokenizer, open_tokenizer, read_json

# Words in the names of outputs that tell scores from embeddings.
_SCORES = ("logit", "score", "prob")
_EMBEDDINGS = ("embed", "hidden", "pooler", "pooled")


def load(source: Source, options: ModelOptions) -> OnnxScorer:
    used = ("model_id", "revision", "prompt", "prompt_name", "max_length", "device", "provider", "output")
    options.refuse_others("a cross-encoder in ONNX", *used, "batch_tokens", "batch_size")
    provider = choose_provider(options)
    file = graph_file(source, options)
    folder = settings_folder(file, options)
    layout = read_layout(folder)
    session = open_session(file, provider)
    config = read_json(layout.transformer / "config.json")
    graph = read_graph(session, file, config)
    settings = settle(layout, options)
    lengths = [n for n in (settings.max_length, graph.length) if n]
    tokenizer = open_tokenizer(
        layout.transformer, max_length=min(lengths, default=None), lower_case=settings.lower_case, pairs=True
    )
    size = choose_batching(file, graph, options)
    output, labels = _find_scores(session, graph, tokenizer, size, options)
    _refuse_embeddings(file, config, labels)
    head = _head(folder, layout, labels)
    settings = replace(settings, max_length=tokenizer.max_length)
    info = ModelInfo(
        backend="onnx",
        model_id=options.model_id or (folder_name(file) if source.path else source.reference),
        path=str(file),
        device=f"{options.device} ({provider})",
        fingerprint=hub.fingerprint(content_files(file, layout.transformer)),
        settings={
            "through": "onnxruntime",
            "provider": provider,
            "output": output,
            **told_settings(head, settings),
            "shape": graph.shape,
            "batching": str(size),
        },
    )
    return OnnxScorer(session, graph, output, tokenizer, head, settings, size, options.workers, info)


class OnnxScorer:
    def __init__(
        self,
        session: Any,
        graph: Graph,
        output: str,
        tokenizer: Tokenizer,
        head: Head,
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
        self._head = head
        self._settings = settings
        self._batching = size
        self._workers = workers

    def score(self, pairs: Sequence[Pair], *, progress: Progress = SILENT) -> Scores:
        """float32[n], or float32[n, labels]; no pairs give no rows."""
        if not pairs:
            return self._head.none()
        logits = batching.score(
            [(self._settings.prompt + a, b) for a, b in pairs],
            tokenizer=self._tokenizer,
            forward=self._forward,
            batching=self._batching,
            workers=self._workers,
            progress=progress,
        )
        return self._head.finish(logits)

    def _forward(self, batch: batching.Batch) -> Scores:
        found: NDArray[Any] = run(self._session, [self._output], self._graph, batch)[0]
        return found.astype(np.float32, copy=False).reshape(len(batch.ids), -1)


def _head(folder: Path, layout: Layout, labels: int) -> Head:
    """As PyTorch would do it with the same files; without any, the graph is all there is to go by."""
    files = (layout.transformer / "config.json", folder / "config_sentence_transformers.json")
    if any(file.exists() for file in files):
        return read_head(folder, layout, labels=labels)
    return Head(labels, (), "Identity", "there is no config.json: the logits are given as they are")


def _find_scores(
    session: Any, graph: Graph, tokenizer: Tokenizer, size: batching.Batching, options: ModelOptions
) -> tuple[str, int]:
    """The output [b], [b, 1] or [b, labels] and its labels, found by running one pair."""
    names = [output.name for output in session.get_outputs()]
    if options.output and options.output not in names:
        raise RequestError(f"the graph has no output {options.output!r}: it has {', '.join(names)}")
    wanted = [options.output] if options.output else names
    batch = batching.pad(tokenizer.encode_pairs([("bread", "The bakery opens.")]), tokenizer.pad_id, size)
    try:
        found = dict(zip(wanted, map(np.asarray, run(session, wanted, graph, batch)), strict=True))
    except InferenceError as error:
        raise ModelError(f"the graph cannot be run on a short pair: {error}") from error
    shapes = {name: value.shape for name, value in found.items() if np.issubdtype(value.dtype, np.floating)}
    flat = {n: (*s, 1)[1] for n, s in shapes.items() if 1 <= len(s) <= 2 and s[0] == len(batch.ids)}
    named = {n: labels for n, labels in flat.items() if any(word in n.lower() for word in _SCORES)}
    plain = {n: labels for n, labels in flat.items() if not any(word in n.lower() for word in _EMBEDDINGS)}
    embeds = any(len(s) == 3 for s in shapes.values()) or bool(flat and not plain)
    chosen = flat if options.output else named or ({} if embeds else plain)
    if chosen:
        return next(iter(chosen.items()))
    told = ", ".join(f"{n} {list(v.shape)}" for n, v in found.items())
    if embeds:
        raise ModelError(
            f"the graph cannot score pairs, it gives {told}: this is an embedding model or a masked language model"
        )
    raise ModelError(
        f"the graph gives no scores: expected an output [batch], [batch, 1] or [batch, labels], got {told}"
    )


def _refuse_embeddings(file: Path, config: dict[str, Any], labels: int) -> None:
    """A pooled embedding [b, d] has the shape of d labels: the config knows how many there are.

    >>> _refuse_embeddings(Path("m.onnx"), {"hidden_size": 384}, labels=384)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    calipers.core.ModelError: m.onnx cannot score pairs: it gives 384 numbers for one ...
    """
    named = config.get("id2label")
    expected = len(named) if isinstance(named, dict) else None
    if (expected and labels != expected) or (expected is None and labels == config.get("hidden_size")):
        raise ModelError(
            f"{file} cannot score pairs: it gives {labels} numbers for one and its config.json names "
            f"{expected or 'no'} labels, so this is an embedding model, or the config is another model's"
        )
