"""Graphs as other tools accept them: onnx's checker and shape inference, names of dimensions, domains, nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from calipers.artifacts.form import in_order, tidy
from tests.support import build_models as small
from tests.support.graph_form import check_form, dimensions


@pytest.fixture(scope="module")
def fixed(tiny_bert: Path, few_texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stages of a fixed shape."""
    folder = tmp_path_factory.mktemp("fixed") / "out"
    small.run(tiny_bert, folder, "fp32", few_texts, static_shape=(2, 16))
    return folder


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8-dynamic", "w8a8", "w8a16", "int4"])
@pytest.mark.parametrize("shape", [None, (2, 16)])
def test_every_stage_of_every_precision_passes_the_checker(
    precision: str,
    shape: tuple[int, int] | None,
    tiny_bert: Path,
    few_texts: Path,
    tmp_path: Path,
    built: Path,
    fixed: Path,
) -> None:
    folder = small.copy_build(fixed if shape else built, tmp_path / "out")
    manifest = small.run(tiny_bert, folder, precision, few_texts, static_shape=shape)
    for stage in manifest.stages[1:]:
        proto = check_form(Path(stage.path))
        expected = list(shape) if shape else ["batch", "sequence"]
        assert all(row[:2] == expected for row in dimensions(proto)), stage.name
        symbols = {d.dim_param for v in proto.graph.value_info for d in v.type.tensor_type.shape.dim}
        assert symbols <= {"", "batch", "sequence"}
    size = shape or (3, 5)
    session = onnxruntime.InferenceSession(manifest.model, providers=["CPUExecutionProvider"])
    feeds = {value.name: np.ones(size, np.int64) for value in session.get_inputs()}
    assert np.isfinite(session.run(None, feeds)[0]).all()


def test_nothing_of_the_machine_is_in_a_graph(built: Path) -> None:
    content = (built / "exported" / "model.onnx").read_bytes()
    assert b"site-packages" not in content
    assert b"pkg.torch" not in content


def test_nodes_come_behind_what_they_read_whatever_the_file_says() -> None:
    assert in_order(["xyz", "x y", "i x"], lambda node: node[:-1], lambda node: node[-1]) == ["i x", "x y", "xyz"]


def test_a_node_that_only_a_subgraph_reads_comes_first() -> None:
    """An If whose branch reads a tensor that is made behind it in the file."""
    inner = helper.make_graph(
        [helper.make_node("Identity", ["late"], ["inside"])],
        "branch",
        [],
        [helper.make_tensor_value_info("inside", TensorProto.FLOAT, ["s1", "s2"])],
    )
    nodes = [
        helper.make_node("If", ["yes"], ["y"], then_branch=inner, else_branch=inner),
        helper.make_node("Neg", ["x"], ["late"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["s1", "s2"]),
            helper.make_tensor_value_info("yes", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["s1", "s2"])],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    proto = tidy(helper.make_model(graph, opset_imports=opsets, ir_version=10))
    assert [node.op_type for node in proto.graph.node] == ["Neg", "If"]
    assert [entry.domain for entry in proto.opset_import] == [""]
    onnx.checker.check_model(proto, full_check=True)
