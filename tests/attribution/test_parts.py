"""Layers and roles from the structure of a graph alone."""

from __future__ import annotations

from collections.abc import Sequence

from calipers.artifacts.graphs import Node
from calipers.attribution import parts
from calipers.attribution.graph_view import GraphView, Rounded


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
