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


def logits(folder: Path, tokenizer: Path) -> Path:
    """[b, s] ids to [b, s, 30522] by OneHot: as wide as the vocabulary."""
    graph = helper.make_graph(
        [helper.make_node("OneHot", ["input_ids", "depth", "values"], ["logits"])],
        "mlm",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["b", "s"])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["b", "s", 30522])],
        [
            numpy_helper.from_array(np.array(30522, np.int64), "depth"),
            numpy_helper.from_array(np.array([0, 1], np.float32), "values"),
        ],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), folder / "m.onnx")
    shutil.copy(tokenizer / "tokenizer.json", folder)
    return folder / "m.onnx"
