"""Padding must not reach a quantised graph: the mask stays in float, and the check compares padded with alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from calipers.artifacts import check
from calipers.artifacts.calibrate import Ranges
from calipers.artifacts.check import PaddingLeaks
from calipers.artifacts.graphs import FloatGraph, load_graph
from calipers.artifacts.inputs import Rows
from calipers.artifacts.masks import mask_nodes
from calipers.artifacts.quantize import quantize
from calipers.artifacts.recipe import Recipe
from calipers.data import DataOptions
from calipers.models.onnx_session import open_graph
from tests.support import build_models as small

Find = Callable[[str], Path]


def kinds_of(graph: FloatGraph, names: tuple[str, ...]) -> Counter[str]:
    kinds = dict(graph.kinds)
    return Counter(kinds[name] for name in names)


def test_the_nodes_from_the_mask_to_the_softmax_are_named_and_no_others(graph: FloatGraph) -> None:
    kinds = kinds_of(graph, mask_nodes(graph))
    assert kinds["Softmax"] == kinds["Add"] == 1
    assert not kinds.keys() & {"MatMul", "Gemm", "LayerNormalization", "SkipLayerNormalization"}


@pytest.mark.parametrize("constant", [-3.4e38, -10_000.0])
@pytest.mark.parametrize("way", ["add", "where"])
def test_a_mask_is_recognised_by_its_constant_where_the_graph_makes_it_from_the_ids(
    constant: float, way: str, tmp_path: Path
) -> None:
    """No input is called a mask: 1 − (id > 0), times the constant, added to the scores; or a Where."""
    rng = np.random.default_rng(0)
    weights = {"table": rng.normal(size=(9, 8)), "far": np.array(constant), "one": np.array(1.0)}
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["x"], name="lookup"),
        helper.make_node("Transpose", ["x"], ["xt"], name="turn", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["x", "xt"], ["scores"], name="product"),
        helper.make_node("Greater", ["input_ids", "zero"], ["real"], name="real"),
        helper.make_node("Unsqueeze", ["real", "axis"], ["wide"], name="widen"),
        *(
            [
                helper.make_node("Cast", ["wide"], ["ones"], name="cast", to=TensorProto.FLOAT),
                helper.make_node("Sub", ["one", "ones"], ["hidden"], name="invert"),
                helper.make_node("Mul", ["hidden", "far"], ["mask"], name="scale"),
                helper.make_node("Add", ["scores", "mask"], ["masked"], name="apply"),
            ]
            if way == "add"
            else [helper.make_node("Where", ["wide", "scores", "far"], ["masked"], name="apply")]
        ),
        helper.make_node("Softmax", ["masked"], ["shares"], name="softmax"),
        helper.make_node("MatMul", ["shares", "x"], ["tokens"], name="mix"),
    ]
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["b", "s"])
    out = helper.make_tensor_value_info("tokens", TensorProto.FLOAT, ["b", "s", 8])
    held = [numpy_helper.from_array(values.astype(np.float32), name) for name, values in weights.items()]
    held += [numpy_helper.from_array(np.array(0), "zero"), numpy_helper.from_array(np.array([1]), "axis")]
    opset = [helper.make_opsetid("", 21)]
    proto = helper.make_model(helper.make_graph(nodes, "g", [ids], [out], held), opset_imports=opset, ir_version=10)
    onnx.save(proto, tmp_path / "m.onnx")
    names = set(mask_nodes(load_graph(tmp_path / "m.onnx")))
    assert {"apply", "softmax"} <= names
    assert not names & {"product", "mix", "lookup", "turn"}


@pytest.mark.parametrize("precision", ["w8a8", "w8a16"])
def test_rows_padded_and_alone_agree_where_they_did_not(
    precision: str, graph: FloatGraph, rows: Rows, ranges: Ranges, tmp_path: Path
) -> None:
    recipe = Recipe(precision)
    leaks = []
    for name, masks in (("elsewhere", ()), ("ours", None)):
        path = quantize(graph, tmp_path / f"{name}.onnx", recipe, ranges, masks=masks).path
        leaks.append(check.leak(open_graph(path).forward("logits"), rows, None, precision=precision))
    assert leaks[0].largest is not None
    assert leaks[1].largest is not None
    assert leaks[1].largest <= 1e-4
    assert leaks[1].passed
    if precision == "w8a8":
        assert leaks[0].largest > 1e-3
        assert not leaks[0].passed
        assert "run rows one at a time" in check.leak_remarks(leaks[0])[0]


def test_a_graph_of_fixed_length_is_tried_with_other_tokens_in_its_padding(
    tiny_bert: Path, few_texts: Path, tmp_path: Path
) -> None:
    built = small.run(tiny_bert, tmp_path / "out", "w8a8", few_texts, static_shape=(2, 16))
    leak = built.stages[-1].leak
    assert leak is not None
    assert leak.how == "other tokens in it"
    assert leak.largest is not None
    assert leak.largest <= 1e-4


@pytest.mark.usefixtures("known_exports")
def test_a_build_whose_padding_leaks_is_refused(
    tiny_bert: Path, few_texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from calipers.artifacts import quantize as module

    monkeypatch.setattr(module, "mask_nodes", lambda graph: ())
    with pytest.raises(PaddingLeaks, match=r"its outputs move by .* with the padding .*; the bound is 0\.0001"):
        small.run(tiny_bert, tmp_path / "out", "w8a8", few_texts)
    assert not list((tmp_path / "out").glob("*.onnx"))
    kept = small.run(tiny_bert, tmp_path / "out", "w8a8", few_texts, accept_differences=True)
    assert "with the padding" in " ".join(kept.stages[-1].notes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("all-MiniLM-L6-v2", "stsb/dev.jsonl"),
        ("rxnmapper-albert-mlm-smiles", "smiles/reactions.txt"),
        ("sapiens-roberta-mlm-antibody-vh", "antibodies/vh.txt"),
    ],
)
def test_real_models_do_not_leak(name: str, texts: str, weights: Find, model: Find, data: Find, tmp_path: Path) -> None:
    folder = (weights if name.startswith("all") else model)(name)
    for precision in ("w8a8", "w8a16", "int4", "fp16"):
        built = small.run(folder, tmp_path, precision, data(texts), data_options=DataOptions(samples=16))
        leak = built.stages[-1].leak
        assert leak is not None
        assert leak.passed
        if precision != "fp16":
            assert leak.largest is not None
            assert leak.largest <= 1e-4
