"""Cross-encoders in ONNX Runtime: any graph that takes token ids and gives one or several numbers for a pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.core import SILENT, ModelError, ModelInfo, Progress
from calipers.models import batching
from calipers.models.heads import Head, Pair, Scores, read_head, told_settings
from calipers.models.layout import Layout, settle
from calipers.models.onnx import Opened, open_graph
from calipers.models.options import ModelOptions
from calipers.models.source import Source
from calipers.models.tokenizer import Tokenizer, open_tokenizer

# Words in the names of outputs that tell scores from embeddings.
_SCORES = ("logit", "score", "prob")
_EMBEDDINGS = ("embed", "hidden", "pooler", "pooled")


def load(source: Source, options: ModelOptions) -> OnnxScorer:
    used = ("model_id", "revision", "prompt", "prompt_name", "max_length", "device", "provider", "output")
    options.refuse_others("a cross-encoder in ONNX", *used, "batch_tokens", "batch_size")
    opened = open_graph(source, options)
    settings = settle(opened.layout, options)
    tokenizer = open_tokenizer(
        opened.layout.transformer,
        max_length=opened.graph.limit(settings.max_length),
        lower_case=settings.lower_case,
        pairs=True,
    )
    output, labels = _find_scores(opened, tokenizer, options)
    _refuse_embeddings(opened.file, opened.config, labels)
    head = _head(opened.folder, opened.layout, labels)
    settings = replace(settings, max_length=tokenizer.max_length)
    told = {"through": "onnxruntime", "output": output, **told_settings(head, settings)}
    info = opened.info(source, options, told)
    return OnnxScorer(opened, output, tokenizer, head, settings.prompt, options.workers, info)


@dataclass(frozen=True, eq=False)
class OnnxScorer:
    opened: Opened
    output: str
    tokenizer: Tokenizer
    head: Head
    prompt: str
    workers: int
    info: ModelInfo

    def score(self, pairs: Sequence[Pair], *, progress: Progress = SILENT) -> Scores:
        """float32[n], or float32[n, labels]; no pairs give no rows."""
        if not pairs:
            return self.head.none()
        logits = batching.score(
            [(self.prompt + a, b) for a, b in pairs],
            tokenizer=self.tokenizer,
            forward=self._forward,
            batching=self.opened.size,
            workers=self.workers,
            progress=progress,
        )
        return self.head.finish(logits)

    def _forward(self, batch: batching.Batch) -> Scores:
        found: NDArray[Any] = self.opened.run([self.output], batch)[0]
        return found.astype(np.float32, copy=False).reshape(len(batch.ids), -1)


def _head(folder: Path, layout: Layout, labels: int) -> Head:
    """As PyTorch would do it with the same files; without any, the graph is all there is to go by."""
    files = (layout.transformer / "config.json", folder / "config_sentence_transformers.json")
    if any(file.exists() for file in files):
        return read_head(folder, layout, labels=labels)
    return Head(labels, (), "Identity", "there is no config.json: the logits are given as they are")


def _find_scores(opened: Opened, tokenizer: Tokenizer, options: ModelOptions) -> tuple[str, int]:
    """The output [b], [b, 1] or [b, labels] and its labels, found by running one pair."""
    batch = batching.pad(tokenizer.encode_pairs([("bread", "The bakery opens.")]), tokenizer.pad_id, opened.size)
    found = opened.try_outputs(batch, options)
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
    calipers.core.errors.ModelError: m.onnx cannot score pairs: it gives 384 numbers for one ...
    """
    named = config.get("id2label")
    expected = len(named) if isinstance(named, dict) else None
    if (expected and labels != expected) or (expected is None and labels == config.get("hidden_size")):
        raise ModelError(
            f"{file} cannot score pairs: it gives {labels} numbers for one and its config.json names "
            f"{expected or 'no'} labels, so this is an embedding model, or the config is another model's"
        )
