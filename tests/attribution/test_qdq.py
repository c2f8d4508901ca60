"""Tensors of Q/DQ graphs restored, for good and by a switch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

from calipers.attribution import qdq
from calipers.attribution.graph_view import kind_of, view
from tests.support.attributions import BATCH, quantised_graph


def run(proto: Any) -> Any:
    import onnxruntime

    settings = onnxruntime.SessionOptions()  # as it is written: fused, a product with int8 weights rounds more
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    return session.run(None, {"input_ids": BATCH.ids})[0]


def test_restoring_takes_the_pair_away_and_leaves_the_rest() -> None:
    proto = quantised_graph()
    seen = view(proto)
    weights = qdq.weights_of(proto, seen, None)
    table = numpy_helper.to_array(proto.graph.initializer[0])
    kernel = np.array([[1.0, -0.5], [0.25, 0.75]], np.float32)
    rounded = np.rint(table / 0.5) * 0.5
    np.testing.assert_allclose(run(proto), rounded[BATCH.ids] @ kernel, atol=1e-6)
    restored = qdq.restore(proto, seen, ["x"], weights)
    np.testing.assert_allclose(run(restored), table[BATCH.ids] @ kernel, atol=1e-6)
    assert {n.op_type for n in restored.graph.node} == {"Gather", "DequantizeLinear", "MatMul"}
    everything = qdq.restore(proto, seen, ["x", "w"], weights)
    assert kind_of(everything) == "float"
    np.testing.assert_allclose(run(everything), table[BATCH.ids] @ kernel, atol=1e-6)


def test_one_switchboard_answers_for_every_set_of_restored_tensors() -> None:
    proto = quantised_graph()
    seen = view(proto)
    weights = qdq.weights_of(proto, seen, None)
    board = qdq.Switchboard(proto, seen, weights, "y")
    for chosen in ([], ["x"], ["w"], ["x", "w"]):
        expected = run(qdq.restore(proto, seen, chosen, weights))
        np.testing.assert_allclose(board.run(BATCH, chosen), expected, atol=1e-6)
    assert qdq.suspicions(board, [["x"], ["w"]], BATCH) == pytest.approx([0.2, 0.0], abs=0.15)
