"""ONNX graphs for tests and benchmarks: a float32 export of an encoder, and the same graph with its shape fixed."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import onnx
import torch
from transformers import AutoModel, AutoTokenizer


class _TokenEmbeddings(torch.nn.Module):
    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, token_type_ids):  # type: ignore[no-untyped-def]
        return self.model(
            input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
        ).last_hidden_state


def export(folder: Path, target: Path, *, attention: str = "eager") -> Path:
    """`target/model.onnx` with dynamic batch and length, the tokenizer and settings beside it."""
    model = AutoModel.from_pretrained(folder, dtype=torch.float32, attn_implementation=attention)
    # The examples are ragged and padded: from a mask of ones the exporter would drop the mask.
    tokens = AutoTokenizer.from_pretrained(folder)(
        ["a short one", "a text that is quite a bit longer than the first", "two words"],
        padding=True,
        return_tensors="pt",
    )
    shape = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=512)}
    names = ["input_ids", "attention_mask", "token_type_ids"]
    target.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            _TokenEmbeddings(model).eval(),
            tuple(tokens[name] for name in names),
            target / "model.onnx",
            input_names=names,
            output_names=["last_hidden_state"],
            dynamic_shapes=[shape] * 3,
            dynamo=True,
            external_data=False,
            verbose=False,
        )
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
