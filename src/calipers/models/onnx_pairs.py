"""Cross-encoders in ONNX Runtime: any graph that takes token ids and gives one or several numbers for a pair."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from calipers.core import ModelError
from calipers.models.batching import Batch
from calipers.models.heads import Head, HeadScorer, Scores, head_settings, read_head
from calipers.models.layout import Layout, settle
from calipers.models.onnx import OnnxModel, float_shapes, list_shapes, open_model
from calipers.models.onnx_session import Graph
from calipers.models.options import ModelOptions
from calipers.models.source import Source
from calipers.models.tokenizer import Config, Tokenizer, open_tokenizer

# Words in the names of outputs that tell scores from embeddings.
_SCORES = ("logit", "score", "prob")
_EMBEDDINGS = ("embed", "hidden", "pooler", "pooled")


def load(source: Source, options: ModelOptions) -> OnnxScorer:
    used = ("model_id", "revision", "prompt", "prompt_name", "max_length", "device", "provider", "output")
    options.refuse_others("a cross-encoder in ONNX", *used, "batch_tokens", "batch_size")
    model = open_model(source, options)
    settings = settle(model.layout, options)
    tokenizer = open_tokenizer(
        model.layout.transformer,
        max_length=model.shortest(settings.max_length),
        lower_case=settings.lower_case,
        pairs=True,
    )
    output, labels = _find_scores(model, tokenizer, options)
    _refuse_embeddings(model.file, model.config, labels)
    head = _head(model.folder, model.layout, labels)
    settings = replace(settings, max_length=tokenizer.max_length)
    reported = {"through": "onnxruntime", "output": output, **head_settings(head, settings)}
    info = model.info(source, options, reported)
    return OnnxScorer(tokenizer, model.work, info, head, settings.prompt, model.graph, output)


@dataclass(frozen=True, eq=False)
class OnnxScorer(HeadScorer):
    graph: Graph
    output: str

    def logits(self, batch: Batch) -> Scores:
        return self.graph.forward(self.output)(batch).reshape(len(batch.ids), -1)


def _head(folder: Path, layout: Layout, labels: int) -> Head:
    """As PyTorch would read it from the same files; without any, the logits are the scores."""
    files = (layout.transformer / "config.json", folder / "config_sentence_transformers.json")
    if any(file.exists() for file in files):
        return read_head(folder, layout, labels=labels)
    return Head(labels, (), "Identity", "there is no config.json: the logits are given as they are")


def _find_scores(model: OnnxModel, tokenizer: Tokenizer, options: ModelOptions) -> tuple[str, int]:
    """The output [b], [b, 1] or [b, labels] and its labels, found by running one pair."""
    batch = model.work.pad(tokenizer.encode_pairs([("bread", "The bakery opens.")]), tokenizer)
    arrays = model.try_outputs(batch, options)
    shapes = float_shapes(arrays)
    flat = {n: (*s, 1)[1] for n, s in shapes.items() if 1 <= len(s) <= 2 and s[0] == len(batch.ids)}
    named = {n: labels for n, labels in flat.items() if any(word in n.lower() for word in _SCORES)}
    plain = {n: labels for n, labels in flat.items() if not any(word in n.lower() for word in _EMBEDDINGS)}
    embeds = any(len(s) == 3 for s in shapes.values()) or bool(flat and not plain)
    chosen = flat if options.output else named or ({} if embeds else plain)
    if chosen:
        return next(iter(chosen.items()))
    if embeds:
        raise ModelError(
            f"the graph cannot score pairs, it gives {list_shapes(arrays)}: "
            "this is an embedding model or a masked language model"
        )
    raise ModelError(
        "the graph gives no scores: expected an output [batch], [batch, 1] or [batch, labels], "
        f"found {list_shapes(arrays)}"
    )


def _refuse_embeddings(file: Path, config: Config, labels: int) -> None:
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
