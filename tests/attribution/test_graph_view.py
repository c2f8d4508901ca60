"""Graphs without their Q/DQ pairs."""

from __future__ import annotations

from onnx import helper

from calipers.attribution.graph_view import kind_of, view
from tests.support.attributions import quantised_graph


def test_a_view_looks_through_pairs_and_names_owners() -> None:
    seen = view(quantised_graph())
    assert [n.name for n in seen.nodes] == ["lookup", "product"]
    assert seen.maker["y"].inputs == ("x", "w")
    assert {(r.name, r.weight, r.owners) for r in seen.rounded} == {
        ("x", False, ("lookup", "product")),
        ("w", True, ("product",)),
    }
    assert seen.restored_by(["product"]) == {"w"}
    assert seen.restored_by(["lookup", "product"]) == {"w", "x"}
    assert seen.owners_of(["x"]) == {"lookup", "product"}


def test_kinds_of_graphs() -> None:
    assert kind_of(quantised_graph()) == "qdq"
    empty = helper.make_model(helper.make_graph([], "g", [], []))
    assert kind_of(empty) == "float"
    empty.graph.node.append(helper.make_node("MatMulNBits", ["a"], ["b"]))
    assert kind_of(empty) == "integer"
