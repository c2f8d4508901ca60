"""What scales, weights and float graphs show."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from calipers.attribution import qdq, reasons
from calipers.attribution.graph_view import Rounded
from tests.support.attributions import weight


def grid_weights(scale: float, zero: int, dtype: Any = np.int8) -> qdq.Weights:
    return qdq.Weights({"s": weight("s", scale), "z": weight("z", zero, dtype)}, {}, {})


ACTIVATION = Rounded("t", False, (), (), "s", "z")


@pytest.mark.parametrize(
    ("scale", "values", "words"),
    [
        (1e36, np.r_[-3.4e38, np.linspace(-3, 3, 50)], "mask constant of -3.4e+38"),
        (0.01, np.linspace(-9, 9, 200), "cut off, as if calibration had never seen"),
        (5.0, np.linspace(-1, 1, 200), "times the range that the rows use"),
        (3.0, np.r_[np.random.default_rng(0).normal(size=5000), 380.0], "outliers of"),
    ],
)
def test_what_is_wrong_with_a_range_is_said(scale: float, values: Any, words: str) -> None:
    assert any(words in reason for reason in reasons.of_activation(ACTIVATION, values, grid_weights(scale, 0)))


def test_a_sound_range_has_no_reason() -> None:
    assert reasons.of_activation(ACTIVATION, np.linspace(-1, 1, 200), grid_weights(1 / 127, 0)) == []


def weight_reasons(original: Any, integers: Any, scale: Any, axis: int = 1) -> list[str]:
    node = helper.make_node("DequantizeLinear", ["w_quantized", "s"], ["w_dq"], axis=axis)
    proto = helper.make_model(helper.make_graph([node], "g", [], []))
    held = {"w_quantized": weight("w_quantized", integers, np.int8), "s": weight("s", scale)}
    weights = qdq.Weights(held, {"w": weight("w", original)}, {"w_dq": "w"})
    return reasons.of_weight(Rounded("w", True, (), ("w_dq",), "s", ""), proto, weights)


def test_what_is_wrong_with_weights_is_said() -> None:
    rng = np.random.default_rng(0)
    sizes = np.exp(rng.normal(size=32))
    original = rng.normal(size=(32, 32)) * sizes
    scales = np.abs(original).max(axis=0) / 127
    integers = np.rint(original / scales)
    assert weight_reasons(original, integers, scales) == []
    assert "times the original" in weight_reasons(original, integers, 4 * scales)[0]
    assert "a wrong axis or order" in weight_reasons(original, integers, scales[::-1].copy())[0]
    step = np.abs(original).max() / 1.5
    few = weight_reasons(original, np.clip(np.rint(original / step), -1, 1), step)
    assert "3 levels, which is 2 bits" in few[0]


def test_a_float_graph_tells_of_dropout_and_a_lost_mask() -> None:
    mask = helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["b", "s"])
    drawn = helper.make_node("RandomUniformLike", ["x"], ["r"], name="drawn")
    lines = reasons.of_float_graph(onnx.helper.make_model(helper.make_graph([drawn], "g", [mask], [])))
    assert ["dropout was left on" in lines[0], "nothing reads attention_mask" in lines[1]] == [True, True]
    shape = helper.make_node("Shape", ["attention_mask"], ["s"])
    lines = reasons.of_float_graph(onnx.helper.make_model(helper.make_graph([shape], "g", [mask], [])))
    assert lines == ["attention_mask reaches no attention: the mask was dropped, and attention reaches the padding"]
