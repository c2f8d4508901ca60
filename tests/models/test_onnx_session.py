"""A graph in an open session: what it is fed, what it gives, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from calipers.core import InferenceError, ModelError
from calipers.metrics.threads import torch_threads
from calipers.models.batching import pad
from calipers.models.onnx_session import open_graph
from calipers.models.tokenizer import Tokens
from tests.support.tiny_graphs import WIDTH, table_rows, tiny


class Padding:
    pad_id = 0
    first_position = 2


def rows(*lengths: int) -> list[Tokens]:
    return [Tokens(np.arange(1, n + 1, dtype=np.int32), np.zeros(n, np.int32)) for n in lengths]


def test_rows_are_padded_cut_and_filled_up() -> None:
    batch = pad(rows(3, 1), Padding(), rows=3, length=2)
    assert batch.ids.tolist() == [[1, 2], [1, 0], [1, 2]]
    assert batch.mask.tolist() == [[1, 1], [1, 0], [1, 1]]
    assert batch.positions.tolist() == [[2, 3]] * 3
    assert batch.rows == 2
    assert batch.padded
    assert not pad(rows(2, 2), Padding()).padded


@pytest.mark.parametrize("kind", [TensorProto.INT32, TensorProto.INT64])
@pytest.mark.parametrize("optimize", [True, False])
def test_positions_are_fed_in_the_graphs_own_type(minilm: Path, tmp_path: Path, kind: int, optimize: bool) -> None:
    graph = open_graph(
        tiny(tmp_path / "g", minilm, inputs={"input_ids": kind, "position_ids": kind}, output="tokens+pooled"),
        optimize=optimize,
    )
    assert set(graph.outputs) == {"tokens", "pooled"}
    batch = pad(rows(3), Padding())
    wanted = table_rows([1, 2, 3]) + np.array([[2], [3], [4]])
    arrays = graph.run(batch)
    np.testing.assert_allclose(arrays["tokens"], wanted[None], atol=1e-6)
    np.testing.assert_allclose(arrays["pooled"], [wanted.mean(0)], atol=1e-6)
    np.testing.assert_allclose(graph.forward("tokens")(batch), wanted[None], atol=1e-6)


def test_a_fixed_shape_is_a_fact_of_the_graph(minilm: Path, tmp_path: Path) -> None:
    inputs = {"input_ids": TensorProto.INT64}
    free = open_graph(tiny(tmp_path / "a", minilm, inputs=inputs))
    half = open_graph(tiny(tmp_path / "b", minilm, inputs=inputs, shape=(2, "s")))
    whole = open_graph(tiny(tmp_path / "c", minilm, inputs=inputs, shape=(2, 4)))
    assert [(g.rows, g.length) for g in (free, half, whole)] == [(None, None), (2, None), (2, 4)]
    assert [g.dimensions for g in (free, half, whole)] == ["[any, any]", "[2, any]", "[2, 4]"]
    assert whole.run(pad(rows(3), Padding(), rows=2, length=4))["tokens"].shape == (2, 4, WIDTH)
    with pytest.raises(InferenceError, match=r"ONNX Runtime failed to run .*m\.onnx on a batch of \(1, 3\)"):
        whole.run(pad(rows(3), Padding()))


def scaled() -> bytes:
    """ids [b, s] times an input that no batch makes."""
    graph = helper.make_graph(
        [
            helper.make_node("Cast", ["input_ids"], ["floats"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["floats", "factor"], ["scaled"]),
        ],
        "scaled",
        [
            helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["b", "s"]),
            helper.make_tensor_value_info("factor", TensorProto.FLOAT, []),
        ],
        [helper.make_tensor_value_info("scaled", TensorProto.FLOAT, ["b", "s"])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model)
    return model.SerializeToString()


def test_inputs_that_no_batch_makes_are_named_or_refused() -> None:
    graph = open_graph(scaled(), name="the scaled graph", extra=["factor"])
    factor = {"factor": np.array(2.5, np.float32)}
    assert graph.run(pad(rows(2), Padding()), extra=factor)["scaled"].tolist() == [[2.5, 5.0]]
    with pytest.raises(ModelError, match=r"the scaled graph does not take text: its input 'factor' is tensor\(float\)"):
        open_graph(scaled(), name="the scaled graph")


def test_a_file_that_is_no_graph_is_named(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"no graph")
    with pytest.raises(ModelError, match=r"CPUExecutionProvider cannot run .*m\.onnx: ONNX Runtime cannot load it"):
        open_graph(tmp_path / "m.onnx")


def test_threads_of_pytorch_are_left_alone_where_it_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with torch_threads(1):
        pass
