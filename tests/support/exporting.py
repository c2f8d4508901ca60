"""ONNX graphs for tests and benchmarks: a float32 export of an encoder, and the same graph with its shape fixed."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import onnx
import torch
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification

from tests.support.exports import export_once


class _First(torch.nn.Module):
    """The first output of a model: token embeddings, or logits."""

    def __init__(self, model: torch.nn.Module, names: list[str]) -> None:
        super().__init__()
        self.model = model
        self.names = names

    def forward(self, *tensors):  # type: ignore[no-untyped-def]
        return self.model(**dict(zip(self.names, tensors, strict=True)))[0]


def export(folder: Path, target: Path, *, attention: str = "eager") -> Path:
    """`target/model.onnx` with dynamic batch and length, the tokenizer and settings beside it."""
    model = AutoModel.from_pretrained(folder, dtype=torch.float32, attn_implementation=attention)
    return _export(model, folder, target, ["input_ids", "attention_mask", "token_type_ids"], "last_hidden_state")


def export_masked_lm(folder: Path, target: Path, *, attention: str = "eager") -> Path:
    model = AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float32, attn_implementation=attention)
    return _export(model, folder, target, ["input_ids", "attention_mask"], "logits")


def export_cross_encoder(folder: Path, target: Path, *, attention: str = "eager") -> Path:
    model = AutoModelForSequenceClassification.from_pretrained(
        folder, dtype=torch.float32, attn_implementation=attention
    )
    return _export(model, folder, target, ["input_ids", "attention_mask", "token_type_ids"], "logits")


def _export(model: torch.nn.Module, folder: Path, target: Path, names: list[str], output: str) -> Path:
    # The examples are ragged and padded: from a mask of ones the exporter would drop the mask.
    mask = torch.ones(3, 12, dtype=torch.long)
    mask[0, 5:], mask[2, 9:] = 0, 0
    ids = torch.randint(5, model.config.vocab_size, (3, 12), generator=torch.Generator().manual_seed(0))
    pad = model.config.pad_token_id or 0
    examples = {"input_ids": torch.where(mask > 0, ids, pad), "attention_mask": mask, "token_type_ids": 0 * mask}
    longest = model.config.max_position_embeddings
    shape = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=longest)}
    target.mkdir(parents=True, exist_ok=True)

    def make(path: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                _First(model, names).eval(),
                tuple(examples[name] for name in names),
                path,
                input_names=names,
                output_names=[output],
                dynamic_shapes=(tuple([shape] * len(names)),),
                dynamo=True,
                external_data=False,
                verbose=False,
            )

    export_once(make, target / "model.onnx", model, names, output)
    copy_settings(folder, target)
    return target / "model.onnx"


def copy_settings(folder: Path, target: Path) -> None:
    for file in (*folder.glob("*.json"), *folder.glob("1_Pooling/*.json")):
        (target / file.relative_to(folder)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target / file.relative_to(folder))


def fix_shape(graph: Path, target: Path, *, rows: int | None, length: int | None) -> Path:
    """The same graph, demanding exactly this many rows and tokens where they are given."""
    model = onnx.load(graph)
    for value in model.graph.input:
        for dimension, size in zip(value.type.tensor_type.shape.dim, (rows, length), strict=True):
            if size is not None:
                dimension.ClearField("dim_param")
                dimension.dim_value = size
    del model.graph.value_info[:]
    target.mkdir(parents=True, exist_ok=True)
    copy_settings(graph.parent, target)
    onnx.save(model, target / "model.onnx")
    return target / "model.onnx"
