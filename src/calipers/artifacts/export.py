"""A PyTorch model to an ONNX graph, by torch.onnx's dynamo exporter, and that to an optimised one, by onnxruntime."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from calipers.artifacts.graphs import content_size, load_graph, quiet, read_proto, save_proto
from calipers.artifacts.inputs import Rows
from calipers.artifacts.records import BuildOptions
from calipers.core import InferenceError, ModelError, RequestError
from calipers.metrics.arrays import Vectors
from calipers.metrics.geometry import unit_like
from calipers.models.batching import Batch, Forward, pad
from calipers.models.heads import pool
from calipers.models.layout import read_modules
from calipers.models.tokenizer import Tokens
from calipers.models.tokenizer_files import first_line

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module
    from transformers import PreTrainedModel

_INLINE = 1_500_000_000  # bytes of weights that go into the file itself

# ability → its class in transformers, and the name of its first output.
HEADS = {
    "encode": ("AutoModel", "last_hidden_state"),
    "fill-mask": ("AutoModelForMaskedLM", "logits"),
    "score": ("AutoModelForSequenceClassification", "logits"),
}
# Files that make a folder a model: settings, tokenizer, vocabulary. Not weights, not code.
_SETTINGS = (
    *("config.json", "modules.json", "sentence_*_config.json", "config_sentence_transformers.json"),
    *("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "*.model", "*.jinja"),
)
# Values of model_type in config.json whose graphs onnxruntime's transformer optimiser fuses as "bert".
_FAMILIES = {
    *("bert", "roberta", "xlm-roberta", "camembert", "albert", "distilbert", "electra", "mpnet", "ernie"),
    *("deberta", "deberta-v2", "nomic_bert", "data2vec-text", "convbert", "layoutlm", "luke"),
}


@dataclass(frozen=True)
class ExportSource:
    """The model that artifacts are made of. `load` loads it in PyTorch, float32; None where there is only a graph."""

    folder: Path  # tokenizer and settings, as sentence-transformers lays them out
    fingerprint: str  # of weights and tokenizer
    model_id: str
    ability: str  # a key of HEADS
    load: Callable[[], PreTrainedModel] | None = field(repr=False, compare=False)
    pooling: str = "mean"  # for a pooled output
    normalize: bool = False
    size: int = 0  # bytes of weights
    family: str = ""  # model_type of config.json
    heads: int = 0  # of its attention
    width: int = 0  # of its hidden states

    def output(self, pooled: bool) -> str:
        return "sentence_embedding" if pooled else HEADS[self.ability][1]


def head_of(architecture: str) -> str:
    """The ability that an architecture of config.json is made for.

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
        f"the architecture {architecture} cannot be built: expected an encoder (…Model), a masked language model "
        "(…ForMaskedLM) or a classifier (…ForSequenceClassification); choose the head with `task`"
    )


def input_names(model: PreTrainedModel) -> list[str]:
    """The inputs of the model. Type ids are left out where it has only one type."""
    parameters = inspect.signature(model.forward).parameters
    names = ["input_ids", "attention_mask"]
    if "token_type_ids" in parameters and (getattr(model.config, "type_vocab_size", 0) or 0) > 1:
        names.append("token_type_ids")
    missing = [name for name in names if name not in parameters]
    if missing:
        raise ModelError(f"{type(model).__name__} cannot be exported: it takes no {missing[0]}")
    return names


def reference(model: PreTrainedModel, source: ExportSource, *, pooled: bool) -> Forward:
    """The model without the wrapper that is exported: graphs are checked against it."""
    import torch

    names = input_names(model)

    def forward(batch: Batch) -> Vectors:
        try:
            with torch.inference_mode():
                output = model(**dict(zip(names, _tensors(batch, names), strict=True)))[0]
        except Exception as error:
            raise InferenceError(f"PyTorch failed on a batch of {batch.ids.shape}: {first_line(error)}") from error
        values = np.asarray(output.float().numpy(), dtype=np.float32)
        if not pooled:
            return values
        vectors = pool(values, batch.mask, source.pooling)
        return unit_like(vectors) if source.normalize else vectors

    return forward


def export(model: PreTrainedModel, target: Path, source: ExportSource, rows: Rows, options: BuildOptions) -> None:
    """Write the graph to `target`. With a static shape its batch and length are fixed, else both are free."""
    import torch

    names, shape = input_names(model), options.static_shape
    batch = _example(rows, shape, types="token_type_ids" in names)
    free = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    attention = getattr(model.config, "_attn_implementation", None)
    _set_attention(model, "eager")
    try:
        with quiet(), torch.inference_mode(False):
            torch.onnx.export(
                _wrap(model, names, source, pooled=options.pooled).eval(),
                _tensors(batch, names),
                str(target),
                input_names=names,
                output_names=[source.output(options.pooled)],
                dynamic_shapes=None if shape else (tuple([free] * len(names)),),
                opset_version=options.opset,
                dynamo=True,
                external_data=source.size > _INLINE,
                verbose=False,
            )
    except Exception as error:
        innermost: BaseException = error  # the exporter wraps the cause in long messages
        while innermost.__cause__ is not None:
            innermost = innermost.__cause__
        raise ModelError(f"{type(model).__name__} cannot be exported: {first_line(innermost)[:300]}") from error
    finally:
        _set_attention(model, attention)
    save_proto(read_proto(target), target)


def _tensors(batch: Batch, names: list[str]) -> tuple[Tensor, ...]:
    import torch

    arrays = {"input_ids": batch.ids, "attention_mask": batch.mask, "token_type_ids": batch.type_ids}
    return tuple(torch.from_numpy(arrays[name].copy()) for name in names)


def _example(rows: Rows, shape: tuple[int, int] | None, *, types: bool) -> Batch:
    """Rows of different lengths: from a mask of ones the exporter may silently drop the mask."""
    count, width = shape or (3, min(12, rows.longest))
    lengths = [max(2, width * (i % 3 + 2) // 5) for i in range(count)]
    if count > 1:
        lengths[-1] = width
    ids = np.concatenate([row.ids for row in rows.tokens])
    kinds = [np.arange(length, dtype=np.int32) * 2 // length * types for length in lengths]
    tokens = [Tokens(np.resize(ids, length), kind) for length, kind in zip(lengths, kinds, strict=True)]
    return pad(tokens, rows, length=width)


def _wrap(model: PreTrainedModel, names: list[str], source: ExportSource, *, pooled: bool) -> Module:
    import torch

    class First(torch.nn.Module):  # type: ignore[misc]
        """The first output of a model, pooled on request."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *tensors: Tensor) -> Tensor:
            inputs = dict(zip(names, tensors, strict=True))
            output = self.model(**inputs)[0]
            return _pool_torch(output, inputs["attention_mask"], source) if pooled else output

    return First()


def _pool_torch(tokens: Tensor, mask: Tensor, source: ExportSource) -> Tensor:
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
        if source.pooling == "weightedmean":
            weights = weights * weights.cumsum(dim=1)
        total = weights.sum(dim=1)
        root = source.pooling == "mean_sqrt_len_tokens"
        vectors = (tokens * weights).sum(dim=1) / (total.sqrt() if root else total)
    return torch.nn.functional.normalize(vectors, dim=1) if source.normalize else vectors


def _set_attention(model: PreTrainedModel, kind: str | None) -> None:
    """Eager attention is exported to plain operators, which optimisers and quantisers recognise."""
    if kind and hasattr(model, "set_attn_implementation"):
        try:
            model.set_attn_implementation(kind)
        except (ValueError, ImportError, AttributeError):
            return  # the model has only one implementation


def optimizers(source: ExportSource) -> list[str]:
    """Those to try, the best first: fusions by the patterns of a family, then onnxruntime's extended level."""
    return ["transformers", "graph"] if source.family in _FAMILIES else ["graph"]


def optimize(graph: Path, target: Path, source: ExportSource, method: str) -> None:
    """The types of tensors are written too (see `load_graph`)."""
    try:
        with quiet():
            (_by_family if method == "transformers" else _by_runtime)(graph, target, source)
    except Exception as error:
        raise ModelError(f"onnxruntime cannot optimise {graph}: {first_line(error)}") from error
    save_proto(load_graph(target).proto, target)


def _by_family(graph: Path, target: Path, source: ExportSource) -> None:
    from onnxruntime.transformers.optimizer import optimize_model

    optimised = optimize_model(str(graph), "bert", num_heads=source.heads, hidden_size=source.width, opt_level=1)
    save_proto(optimised.model, target)


def _by_runtime(graph: Path, target: Path, source: ExportSource) -> None:
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    settings.optimized_model_filepath = str(target)
    settings.log_severity_level = 4
    if graph.stat().st_size != content_size(graph):
        name = "session.optimized_model_external_initializers_file_name"
        settings.add_session_config_entry(name, f"{target.name}.data")
    onnxruntime.InferenceSession(str(graph), settings, providers=["CPUExecutionProvider"])


def copy_settings(folder: Path, target: Path) -> None:
    """Put tokenizer, configuration and files of sentence-transformers in the same places as in the model's folder, in
    the place of those of a model that was built into `target` before."""
    for file in [file for place in {target, *_module_folders(target)} for file in _settings_in(place)]:
        file.unlink()
    for place in {folder, *_module_folders(folder)}:
        for file in _settings_in(place):
            copy = target / file.relative_to(folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)


def _module_folders(folder: Path) -> list[Path]:
    return [folder / module.path for module in read_modules(folder)]


def _settings_in(folder: Path) -> set[Path]:
    return {file for pattern in _SETTINGS for file in folder.glob(pattern) if file.is_file()}
