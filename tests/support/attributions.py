"""An attribution made by hand, a padded batch and initializers, for the tests of attribution."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from calipers.attribution.records import Attribution, BillLine, Culprit, Divergence, Fix, StageFigure
from calipers.attribution.trials import Evaluation, Ledger
from calipers.models.batching import Batch
from tests.support.verdicts import comparison

BATCH = Batch(np.array([[1, 2, 0], [3, 1, 2]]), np.zeros((2, 3), np.int64), np.array([[1, 1, 0], [1, 1, 1]]), rows=2)


def weight(name: str, values: Any, dtype: Any = np.float32) -> Any:
    return numpy_helper.from_array(np.asarray(values, dtype), name)


LOST = comparison(label="REGRESSION", baseline=82.0, candidate=72.0, delta=-10.0, interval=(-12.0, -8.0))


SAME = comparison(baseline=82.0, candidate=82.0, delta=0.0, interval=(0.0, 0.0))


def stage(name: str, **changes: object) -> StageFigure:
    first = name == "torch"
    known = StageFigure(
        stage=name,
        path=f"/x/{name}",
        metrics={"cosine_spearman": 82.0},
        value=82.0,
        verdict=None if first else SAME,
        step=None if first else SAME,
        label=None if first else "PASS",
        size=90_000_000,
        p50=12.5,
        p95=20.0,
        difference=None if first else 1e-6,
        bound=None if first else 1e-3,
    )
    return replace(known, **changes)  # type: ignore[arg-type]


CULPRIT = Culprit(
    "layer 3 feed-forward", 3, "feed-forward", ("node_a", "node_b"), ("t",), 0.4, 81.0, 0.9, (0.8, 0.97), ("outliers",)
)


FIX = Fix(
    how="nodes kept in float: 2 of 139",
    passed=True,
    label="PASS",
    nodes=("node_a", "node_b"),
    bill=(BillLine("float", 82.0, "PASS", 90_000_000, 12.0), BillLine("fixed", 81.5, "PASS", 26_000_000, 8.0)),
    graph="/tmp/fixed/model.onnx",
    recipe={"precision": "w8a8", "exclude": ["node_a", "node_b"]},
    recipe_file="/tmp/fixed/recipe.yaml",
    arguments="quantize_static(\n    a=1,\n)",
)


WHOLE = Attribution(
    model_id="m",
    task="sentence-similarity",
    precision="w8a8",
    metric="cosine_spearman",
    higher_is_better=True,
    digits=2,
    unit="pair",
    examples=100,
    dataset="pairs.csv",
    stages=(
        stage("torch"),
        stage("exported"),
        stage("quantized", verdict=LOST, step=LOST, label="REGRESSION", value=72.0, difference=1.8, bound=None),
    ),
    guilty="quantized",
    sentence="The loss comes from quantisation.",
    culprits=(CULPRIT,),
    divergence=(Divergence("t", "node_a", "layer 3 feed-forward", 14.2),),
    fix=FIX,
    evaluations=5,
    budget=24,
    notes=("a note",),
)


def quantised_graph() -> Any:
    """table[ids] → Q/DQ → product with a weight in int8 → output; nodes in an order that no one promised."""
    nodes = [
        helper.make_node("MatMul", ["x_dq", "w_dq"], ["y"], name="product"),
        helper.make_node("DequantizeLinear", ["w_quantized", "w_s", "w_z"], ["w_dq"], name="dqw"),
        helper.make_node("DequantizeLinear", ["x_q", "x_s", "x_z"], ["x_dq"], name="dqx"),
        helper.make_node("QuantizeLinear", ["x", "x_s", "x_z"], ["x_q"], name="qx"),
        helper.make_node("Gather", ["table", "input_ids"], ["x"], name="lookup"),
    ]
    initializers = [
        weight("table", [[0.1, 0.9], [1.2, -0.6], [0.33, 0.77], [-1.0, 0.2]]),
        weight("x_s", 0.5), weight("x_z", 0, np.int8), weight("w_s", 0.25), weight("w_z", 0, np.int8),
        weight("w_quantized", [[4, -2], [1, 3]], np.int8),
    ]  # fmt: skip
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["b", "s"])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", "s", 2])
    graph = helper.make_graph(nodes, "g", [ids], [out], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def counted(guilty: set[str], budget: int = 50) -> Ledger:
    def evaluate(tensors: frozenset[str], what: str) -> Evaluation:
        passes = guilty <= tensors
        return Evaluation(float(passes), "PASS" if passes else "REGRESSION", passes, len(tensors))

    return Ledger(evaluate, budget)
