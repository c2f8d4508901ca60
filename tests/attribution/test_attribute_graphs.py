"""What attribution sees in a graph, by hand: pairs looked through, tensors put back, layers and roles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from calipers.artifacts.graphs import Node
from calipers.attribution import parts, qdq
from calipers.attribution.graph_view import GraphView, Rounded, in_order, kind_of, view
from calipers.models.batching import Batch

BATCH = Batch(np.array([[1, 2, 0], [3, 1, 2]]), np.zeros((2, 3), np.int64), np.array([[1, 1, 0], [1, 1, 1]]), rows=2)


def weight(name: str, values: Any, dtype: Any = np.float32) -> Any:
    return numpy_helper.from_array(np.asarray(values, dtype), name)


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


def test_a_view_looks_through_pairs_and_names_owners() -> None:
    seen = view(quantised_graph())
    assert [n.name for n in seen.nodes] == ["lookup", "product"]
    assert seen.named["product"].inputs == ("x", "w")
    assert {(r.name, r.weight, r.owners) for r in seen.rounded} == {
        ("x", False, ("lookup", "product")),
        ("w", True, ("product",)),
    }
    assert seen.restored_by(["product"]) == {"w"}
    assert seen.restored_by(["lookup", "product"]) == {"w", "x"}
    assert seen.owners_of(["x"]) == {"lookup", "product"}


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


def test_nodes_come_behind_what_they_read_whatever_the_file_says() -> None:
    nodes = [Node("c", "Add", ("x", "y"), ("z",)), Node("b", "Add", ("x",), ("y",)), Node("a", "Add", ("i",), ("x",))]
    assert [n.name for n in in_order(nodes)] == ["a", "b", "c"]


def test_kinds_of_graphs() -> None:
    assert kind_of(quantised_graph()) == "qdq"
    empty = helper.make_model(helper.make_graph([], "g", [], []))
    assert kind_of(empty) == "float"
    empty.graph.node.append(helper.make_node("MatMulNBits", ["a"], ["b"]))
    assert kind_of(empty) == "integer"


# --- layers and roles ----------------------------------------------------------------------------------------------


def encoder(layers: int, *, norm: str = "LayerNormalization", attention: bool = True) -> GraphView:
    """A post-norm encoder as a bare chain of operators, under names that say nothing."""
    nodes = [
        Node("n0", "Cast", ("attention_mask",), ("m",)),
        Node("n1", "Gather", ("table", "input_ids"), ("e",)),
        Node("n2", norm, ("e", "g"), ("h0",)),
    ]
    for i in range(layers):
        h, t = f"h{i}", lambda name, i=i: f"{name}{i}"
        kinds: Sequence[tuple[str, tuple[str, ...], str]] = [
            ("MatMul", (h, "wq"), t("q")),
            ("MatMul", (h, "wv"), t("v")),
            ("MatMul", (t("q"), t("q")), t("qk")),
            ("Add", (t("qk"), "m"), t("sum")),
            ("Softmax" if attention else "Relu", (t("sum"),), t("p")),
            ("MatMul", (t("p"), t("v")), t("pv")),
            ("MatMul", (t("pv"), "wo"), t("o")),
            (norm, (t("o"), h), t("a")),
            ("MatMul", (t("a"), "w1"), t("up")),
            ("Gelu", (t("up"),), t("act")),
            ("MatMul", (t("act"), "w2"), t("down")),
            (norm, (t("down"), t("a")), f"h{i + 1}"),
        ]
        nodes += [Node(f"l{i}{k}", kind, inputs, (out,)) for k, (kind, inputs, out) in enumerate(kinds)]
    nodes.append(Node("last", "MatMul", (f"h{layers}", "wh"), ("logits",)))
    rounded = tuple(Rounded(n.outputs[0], False, (n.name,)) for n in nodes[1:])
    weights = frozenset({"table", "g", "wq", "wv", "wo", "w1", "w2", "wh"})
    return GraphView(tuple(nodes), ("input_ids", "attention_mask"), ("logits",), weights, rounded)


def test_layers_and_roles_are_found_from_the_structure_alone() -> None:
    graph = encoder(2)
    where = parts.locate(graph)
    assert where.understood
    assert where.layers == 2
    roles = {n.outputs[0]: where.places[n.name] for n in graph.nodes}
    assert roles["e"] == roles["h0"] == (None, "embeddings")
    assert roles["q0"] == roles["v0"] == (0, "attention input")
    assert roles["qk1"] == roles["p1"] == (1, "attention scores")
    assert roles["pv0"] == roles["o0"] == roles["a0"] == (0, "attention output")
    assert roles["up0"] == roles["down0"] == roles["h1"] == (0, "feed-forward")
    assert roles["q1"] == (1, "attention input")
    assert roles["logits"] == (None, "head")
    assert where.masked == {"m", "sum0", "sum1"}


def test_every_rounded_tensor_is_in_one_group_and_the_mask_in_its_own() -> None:
    graph = encoder(2)
    found = parts.group(graph, parts.locate(graph))
    names = [name for g in found for name in g.tensors]
    assert sorted(names) == sorted(r.name for r in graph.rounded)
    mask = next(g for g in found if g.name == "mask")
    assert set(mask.tensors) == {"sum0", "sum1"}
    assert [found[0].name, found[-1].name] == ["embeddings", "head"]


def test_a_graph_without_attention_is_cut_in_pieces() -> None:
    graph = encoder(4, attention=False)
    where = parts.locate(graph)
    assert not where.understood
    found = parts.group(graph, where)
    assert 2 <= len(found) <= 12
    assert sum(len(g.tensors) for g in found) == len(graph.rounded)
