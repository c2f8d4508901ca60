"""What the outputs of a graph are, by their shapes in one run: token embeddings, vectors, scores, or logits over a
vocabulary. What a graph declares may be wrong or missing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calipers.core import ModelError
from calipers.models.onnx_session import Arrays
from calipers.models.options import ModelOptions
from calipers.models.tokenizer_files import Config

# Words in the names of outputs that tell scores from embeddings.
SCORES = ("logit", "score", "prob")
EMBEDDINGS = ("embed", "hidden", "pooler", "pooled")


def float_shapes(arrays: Arrays) -> dict[str, tuple[int, ...]]:
    """The shapes of the outputs that are floating-point numbers."""
    return {name: value.shape for name, value in arrays.items() if np.issubdtype(value.dtype, np.floating)}


def list_shapes(arrays: Arrays) -> str:
    """Outputs and shapes for an error: "logits [1, 2]"."""
    return ", ".join(f"{name} {list(value.shape)}" for name, value in arrays.items())


@dataclass(frozen=True)
class EncoderOutput:
    """The output that an encoder reads, "" where the graph has none, and whether it is pooled. `head` is what else the
    graph computes: such a graph was not made as an encoder."""

    name: str
    pooled: bool
    head: str = ""


def choose_output(
    arrays: Arrays, batch: tuple[int, ...], vocabulary: int, config: Config, options: ModelOptions
) -> EncoderOutput:
    """What an encoder reads of the outputs of one text; `batch` is [rows, length]."""
    shapes = float_shapes(arrays)
    tokens = [n for n, s in shapes.items() if len(s) == 3 and s[:2] == batch and s[2] > 1]
    flat = {n: (*s, 1)[1] for n, s in shapes.items() if 1 <= len(s) <= 2 and s[0] == batch[0]}
    # A pooled [b, d] beside token embeddings is BERT's pooler, which is no sentence vector, unless its name says so.
    named = [n for n, width in flat.items() if "sentence" in n.lower() and width > 1]
    if named and options.pooling is None:
        return EncoderOutput(named[0], pooled=True)
    if options.output and options.pooling and tokens:
        return EncoderOutput(options.output, pooled=False)
    logits = [n for n in tokens if is_vocabulary(n, shapes[n][2], vocabulary, config)]
    scores = [n for n, width in flat.items() if is_score(n, width, config) and n != options.output]
    head = "a masked language model" if logits else "a cross-encoder or classifier" if scores else ""
    if embeddings := [n for n in tokens if n not in logits]:
        return EncoderOutput(_last_layer(embeddings), pooled=False, head=head)
    if head:
        return EncoderOutput("", pooled=False, head=head)
    if vectors := [n for n, width in flat.items() if width > 1]:
        return EncoderOutput(vectors[0], pooled=True)
    raise ModelError(
        "the graph gives no embeddings: expected an output [batch, length, d] or [batch, d], "
        f"found {list_shapes(arrays)}"
    )


def is_vocabulary(name: str, width: int, vocabulary: int, config: Config) -> bool:
    """Whether an output has a logit for each token: by its width, which may be more than the tokenizer has.

    >>> is_vocabulary("logits", 88, 85, {"hidden_size": 32}), is_vocabulary("tokens", 32, 30, {"hidden_size": 32})
    (True, False)
    """
    if _is_hidden(width, config):
        return False
    named = any(word in name.lower() for word in ("logit", "prediction", "score"))
    return width in (vocabulary, config.get("vocab_size")) or (named and width >= vocabulary)


def is_score(name: str, width: int, config: Config) -> bool:
    """Whether an output [batch, width] holds the scores of a head: by its name, its width, or the labels of the config.

    >>> is_score("output", 3, {"id2label": {"0": "a", "1": "b", "2": "c"}}), is_score("output", 3, {})
    (True, False)
    """
    if width == 1 or _is_hidden(width, config):
        return width == 1
    labels = config.get("id2label")
    return any(word in name.lower() for word in SCORES) or (isinstance(labels, dict) and len(labels) == width)


def _is_hidden(width: int, config: Config) -> bool:
    return width in (config.get("hidden_size"), config.get("dim"), config.get("n_embd"))


def _last_layer(names: list[str]) -> str:
    """The token embeddings behind the last layer, where a graph gives those of several."""
    for words in (("last", "hidden"), ("token", "embedding")):
        if named := [name for name in names if all(word in name.lower() for word in words)]:
            return named[0]
    if len(names) > 1:
        raise ModelError(
            f"the graph gives several outputs of token embeddings ({', '.join(names)}) and none is called "
            "last_hidden_state: choose one with `ModelOptions.output`"
        )
    return names[0]
