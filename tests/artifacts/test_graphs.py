"""What a loaded graph says of its nodes."""

from __future__ import annotations

from calipers.artifacts.graphs import FloatGraph


def test_nodes_know_the_module_that_they_come_from(graph: FloatGraph) -> None:
    softmax = next(node for node in graph.nodes if node.op_type == "Softmax")
    assert softmax.scope == "bert.encoder.layer.0.attention.self"
