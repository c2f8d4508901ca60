"""A PyTorch model to an ONNX graph, by torch.onnx's dynamo exporter.

The examples are ragged and padded: from a mask of ones the exporter may drop the mask and say nothing.
"""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from calipers.artifacts.graphs import quiet
from calipers.artifacts.inputs import Batch, Floats, Forward, Rows, first_line, pad
from calipers.core import InferenceError, ModelError, RequestError

OPSET = 21  # the first with 16-bit quantisation
OPSETS = range(18, 24)  # what the dynamo exporter writes and onnxruntime reads
_INLINE = 1_500_000_000  # bytes of weights that go into the file itself

# ability → transformers' class for it, and what its first output is called.
HEADS = {
    "encode": ("AutoModel", "last_hidden_state"),
    "fill-mask": ("AutoModelForMaskedLM", "logits"),
    "score": ("AutoModelForSequenceClassification", "logits"),
}
# Files that make a folder a model: settings, tokenizer, vocabulary. Not weights, not code.
_SETTINGS = (
    *("config.json", "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"),
    *("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "*.model"),
)


@dataclass(frozen=True)
class Source:
    """The model that artifacts are made of. `load` gives it in PyTorch, float32; None where a graph is all there is."""

    folder: Path  # tokenizer and settings, as sentence-transformers lays them out
    fingerprint: str  # of weights and tokenizer
    model_id: str
    ability: str  # a key of HEADS
    load: Callable[[], Any] | None = field(repr=False, compare=False)
    pooling: str = "mean"  # for a pooled output
    normalize: bool = False
    size: int = 0  # bytes of weights
    family: str = ""  # model_type of config.json
    heads: int = 0  # of its attention
    width: int = 0  # of its hidden states

    def output(self, pooled: bool) -> str:
        return "sentence_embedding" if pooled else HEADS[self.ability][1]


def head_of(architecture: str) -> str:
    """The ability that a config's architecture is made for.

    >>> head_of("AlbertForMaskedLM"), head_of("BertForSequenceClassification"), head_of("BertModel")
    ('fill-mask', 'score', 'encode')
    """
    if architecture.endswith(("ForMaskedLM", "ForPreTraining")):
        return "fill-mask"
    if architecture.endswith("ForSequenceClassification"):
        return "score"
    if architecture == "" or architecture.endswith("Model"):
        return "encode"
    raise RequestError(
        f"the architecture {architecture} is none that can be built: expected an encoder (…Model), a masked language "
        "model (…ForMaskedLM) or a classifier (…ForSequenceClassification); --task says which head to take"
    )


def input_names(model: Any) -> list[str]:
    """What the model takes. Type ids are left out where it has one type only."""
    takes = inspect.signature(model.forward).parameters
    names = ["input_ids", "attention_mask"]
    if "token_type_ids" in takes and (getattr(model.config, "type_vocab_size", 0) or 0) > 1:
        names.append("token_type_ids")
    missing = [name for name in names if name not in takes]
    if missing:
        raise ModelError(f"{type(model).__name__} cannot be exported: it takes no {missing[0]}")
    return names


def reference(model: Any, source: Source, *, pooled: bool) -> Forward:
    """The model itself, without the wrapper that is exported: what a graph is checked against."""
    import torch

    names = input_names(model)

    def forward(batch: Batch) -> Floats:
        arrays = {"input_ids": batch.ids, "attention_mask": batch.mask, "token_type_ids": batch.types}
        try:
            with torch.inference_mode():
                found = model(**{name: torch.from_numpy(arrays[name].copy()) for name in names})[0]
        except Exception as error:
            raise InferenceError(f"PyTorch fails on a batch of {batch.ids.shape}: {first_line(error)}") from error
        values = np.asarray(found.float().numpy(), dtype=np.float32)
        return pool(values, batch.mask, source) if pooled else values

    return forward


def pool(tokens: Floats, mask: np.ndarray[Any, Any], source: Source) -> Floats:
    """[b, s, d] to [b, d]: the numpy half of what the wrapper does in PyTorch."""
    weights = mask[:, :, None].astype(np.float32)
    if source.pooling == "cls":
        vectors = tokens[:, 0]
    elif source.pooling == "max":
        vectors = np.where(weights > 0, tokens, -np.inf).max(axis=1)
    elif source.pooling == "last":
        vectors = tokens[np.arange(len(tokens)), mask.sum(axis=1) - 1]
    else:
        vectors = (tokens * weights).sum(axis=1) / weights.sum(axis=1)
    if source.normalize:
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return vectors.astype(np.float32)


def export(
    model: Any,
    target: Path,
    source: Source,
    rows: Rows,
    *,
    opset: int = OPSET,
    shape: tuple[int, int] | None = None,
    pooled: bool = False,
) -> Path:
    """Write the graph to `target`. With a shape its batch and length are fixed, else both are free."""
    import torch

    names = input_names(model)
    batch = example(rows, shape, types="token_type_ids" in names)
    arrays = {"input_ids": batch.ids, "attention_mask": batch.mask, "token_type_ids": batch.types}
    free = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    attention = getattr(model.config, "_attn_implementation", None)
    _set_attention(model, "eager")
    try:
        with quiet(), torch.inference_mode(False):
            torch.onnx.export(
                _wrap(model, names, source, pooled=pooled).eval(),
                tuple(torch.from_numpy(arrays[name].copy()) for name in names),
                str(target),
                input_names=names,
                output_names=[source.output(pooled)],
                dynamic_shapes=None if shape else (tuple([free] * len(names)),),
                opset_version=opset,
                dynamo=True,
                external_data=source.size > _INLINE,
                verbose=False,
            )
    except Exception as error:
        raise ModelError(f"{type(model).__name__} cannot be exported: {_reason(error)}") from error
    finally:
        _set_attention(model, attention)
    return target


def example(rows: Rows, shape: tuple[int, int] | None, *, types: bool) -> Batch:
    """What the exporter sees: rows of different lengths, none of them as long as the batch is wide but one."""
    count, width = shape or (3, min(12, rows.longest))
    lengths = [max(2, width * (i % 3 + 2) // 5) for i in range(count)]
    if count > 1:
        lengths[-1] = width
    tokens = [np.resize(np.concatenate(rows.tokens), length) for length in lengths]
    kinds = [np.arange(length) * 2 // length if types else np.zeros(length, np.int64) for length in lengths]
    return pad(tokens, kinds, rows, length=width)


def _wrap(model: Any, names: list[str], source: Source, *, pooled: bool) -> Any:
    import torch

    class First(torch.nn.Module):  # type: ignore[misc]
        """The first output of a model, pooled if asked."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *tensors: Any) -> Any:
            inputs = dict(zip(names, tensors, strict=True))
            found = self.model(**inputs)[0]
            return _pool_torch(found, inputs["attention_mask"], source) if pooled else found

    return First()


def _pool_torch(tokens: Any, mask: Any, source: Source) -> Any:
    import torch

    weights = mask.unsqueeze(-1).to(tokens.dtype)
    if source.pooling == "cls":
        vectors = tokens[:, 0]
    elif source.pooling == "max":
        vectors = torch.where(weights > 0, tokens, torch.finfo(tokens.dtype).min).amax(dim=1)
    elif source.pooling == "last":
        places = (mask.sum(dim=1) - 1).reshape(-1, 1, 1).expand(-1, 1, tokens.shape[2])
        vectors = tokens.gather(1, places).squeeze(1)
    else:
        vectors = (tokens * weights).sum(dim=1) / weights.sum(dim=1)
    return torch.nn.functional.normalize(vectors, dim=1) if source.normalize else vectors


def _set_attention(model: Any, kind: str | None) -> None:
    """Eager attention exports to the plain operators that optimisers and quantisers know."""
    if kind and hasattr(model, "set_attn_implementation"):
        try:
            model.set_attn_implementation(kind)
        except (ValueError, ImportError, AttributeError):
            return  # a model that has one implementation only


def _reason(error: BaseException) -> str:
    """The innermost cause: the exporter wraps it in pages about itself."""
    while error.__cause__ is not None:
        error = error.__cause__
    return first_line(error)[:300]


def copy_settings(folder: Path, target: Path) -> None:
    """Tokenizer, configuration and sentence-transformers' files, in the places that they have in the model's folder."""
    for pattern in _SETTINGS:
        for file in (*folder.glob(pattern), *folder.glob(f"*/{pattern}")):
            if file.is_file():
                place = target / file.relative_to(folder)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, place)
