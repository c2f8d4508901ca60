"""ONNX graphs of a few nodes, with inputs of any name and type."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTH = 8


def tiny(
    folder: Path,
    tokenizer: Path,
    *,
    inputs: dict[str, int],
    output: str = "tokens",
    shape: tuple[int | str, int | str] = ("b", "s"),
) -> Path:
    """A graph whose token embedding is a row of a table times its mask, with inputs of any name and type."""
    table = np.random.default_rng(0).normal(size=(30522, WIDTH)).astype(np.float32)
    ids, *others = inputs
    nodes = [
        helper.make_node("Cast", [ids], ["ids64"], to=TensorProto.INT64),
        helper.make_node("Gather", ["table", "ids64"], ["rows"]),
    ]
    value = "rows"
    for name in others:
        nodes += [
            helper.make_node("Cast", [name], [f"{name}_f"], to=TensorProto.FLOAT),
            helper.make_node("Unsqueeze", [f"{name}_f", "two"], [f"{name}_3"]),
            helper.make_node("Mul" if "mask" in name else "Add", [value, f"{name}_3"], [f"after_{name}"]),
        ]
        value = f"after_{name}"
    ends = {"tokens": ("Identity", [value]), "pooled": ("ReduceMean", [value, "one"])}
    for kind in output.split("+"):
        operator, arguments = ends[kind]
        attributes = {"keepdims": 0} if operator == "ReduceMean" else {}
        nodes.append(helper.make_node(operator, arguments, [kind], **attributes))
    shapes = {"tokens": [*shape, WIDTH], "pooled": [shape[0], WIDTH]}
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(name, kind, list(shape)) for name, kind in inputs.items()],
        [helper.make_tensor_value_info(kind, TensorProto.FLOAT, shapes[kind]) for kind in output.split("+")],
        [
            numpy_helper.from_array(table, "table"),
            numpy_helper.from_array(np.array([2], np.int64), "two"),
            numpy_helper.from_array(np.array([1], np.int64), "one"),
        ],
    )
    folder.mkdir(exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), folder / "m.onnx")
    shutil.copy(tokenizer / "tokenizer.json", folder)
    return folder / "m.onnx"


def table_rows(ids: list[int]) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(30522, WIDTH)).astype(np.float32)[ids]


def logits(folder: Path, tokenizer: Path, *, name: str = "logits", width: int = 30522) -> Path:
    """[b, s] ids to [b, s, width] by OneHot: by default as wide as the vocabulary."""
    graph = helper.make_graph(
        [helper.make_node("OneHot", ["input_ids", "depth", "values"], [name])],
        "mlm",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["b", "s"])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["b", "s", width])],
        [
            numpy_helper.from_array(np.array(width, np.int64), "depth"),
            numpy_helper.from_array(np.array([0, 1], np.float32), "values"),
        ],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), folder / "m.onnx")
    shutil.copy(tokenizer / "tokenizer.json", folder)
    return folder / "m.onnx"


def mixing(
    folder: Path,
    tokenizer: Path,
    *,
    of: str = "length",
    head: str = "tokens",
    shape: tuple[int | None, int | None] = (None, None),
    frozen: bool = False,
    beyond: int = 0,
) -> Path:
    """A graph that is given a mask and does not use it: to each row of the table it adds the mean of all rows `of` the
    length, padding included, or of the batch, where there are more tokens than `beyond`. The head gives tokens, one
    score or logits; `frozen` reshapes to the shape, so that no other fits."""
    table = np.random.default_rng(0).normal(size=(30522, WIDTH)).astype(np.float32)
    dims = [rows or name for rows, name in zip(shape, "bs", strict=True)]
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["rows"]),
        helper.make_node("ReduceMean", ["rows", of], ["mean"], keepdims=1),
        helper.make_node("Shape", ["input_ids"], ["tokens_of"], start=1),
        helper.make_node("Greater", ["tokens_of", "beyond"], ["is_long"]),
        helper.make_node("Cast", ["is_long"], ["factor"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["mean", "factor"], ["added"]),
        helper.make_node("Add", ["rows", "added"], ["mixed"]),
        helper.make_node("Reshape" if frozen else "Identity", ["mixed", *["shape"][: int(frozen)]], ["tokens"]),
        helper.make_node("Transpose", ["table"], ["across"], perm=[1, 0]),
    ]
    ends = {
        "tokens": [],
        "score": [
            helper.make_node("Gather", ["tokens", "zero"], ["first"], axis=1),
            helper.make_node("ReduceSum", ["first", "one"], ["logits"], keepdims=1),
        ],
        "logits": [helper.make_node("MatMul", ["tokens", "across"], ["logits"])],
    }
    widths = {"tokens": [*dims, WIDTH], "score": [dims[0], 1], "logits": [*dims, 30522]}
    values = {
        "beyond": [beyond],
        "length": [1],
        "batch": [0, 1],
        "one": [1],
        "shape": [*(n or -1 for n in shape), WIDTH],
    }
    graph = helper.make_graph(
        nodes + ends[head],
        "mixing",
        [helper.make_tensor_value_info(name, TensorProto.INT64, dims) for name in ("input_ids", "attention_mask")],
        [helper.make_tensor_value_info("tokens" if head == "tokens" else "logits", TensorProto.FLOAT, widths[head])],
        [
            numpy_helper.from_array(table, "table"),
            numpy_helper.from_array(np.array(0, np.int64), "zero"),
            *(numpy_helper.from_array(np.array(value, np.int64), name) for name, value in values.items()),
        ],
    )
    folder.mkdir(exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), folder / "m.onnx")
    shutil.copy(tokenizer / "tokenizer.json", folder)
    return folder / "m.onnx"
