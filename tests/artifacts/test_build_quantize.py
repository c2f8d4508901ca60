"""Ranges that are taken once, quantisation from them, recipes, and the check between two stages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from calipers.artifacts import api, calibrate, check, inputs
from calipers.artifacts.calibrate import Ranges, collect_ranges, read_ranges
from calipers.artifacts.graphs import FloatGraph, load_graph, quiet
from calipers.artifacts.inputs import Rows
from calipers.artifacts.quantize import drowned, quantize
from calipers.artifacts.recipe import Recipe, arguments, read_recipe, write_recipe
from calipers.artifacts.records import BuildOptions
from calipers.core import RequestError
from calipers.models.batching import pad
from calipers.models.onnx_session import open_graph
from tests.support import build_models as small


@pytest.fixture(scope="module")
def graph(built: Path) -> FloatGraph:
    return load_graph(built / "optimized" / "model.onnx")


@pytest.fixture(scope="module")
def rows(tiny_bert: Path, few_texts: Path) -> Rows:
    options = BuildOptions(calibration=str(few_texts))
    return api.plan(str(tiny_bert), Path("nowhere"), Recipe("w8a8"), options).rows


@pytest.fixture(scope="module")
def ranges(graph: FloatGraph, rows: Rows) -> Ranges:
    return collect_ranges(graph, rows)


def feeds(rows: Rows) -> list[dict[str, np.ndarray]]:
    return [{"input_ids": b.ids, "attention_mask": b.mask, "token_type_ids": b.type_ids} for b in inputs.single(rows)]


class Reader:
    """What onnxruntime's own calibration reads."""

    def __init__(self, rows: Rows) -> None:
        self._feeds = iter(feeds(rows))

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._feeds, None)


def answers(path: Path, rows: Rows) -> np.ndarray:
    return np.concatenate([open_graph(path).run(b)["logits"].ravel() for b in inputs.single(rows)])


def error(graph: FloatGraph, path: Path, rows: Rows, shape: tuple[int, int] | None = None) -> float:
    """Root mean square of the difference, as a share of the float graph's."""
    batches = check.cases(rows, shape)
    one, other = (check.outputs(open_graph(p).forward("logits"), batches) for p in (graph.path, path))
    found = check.compare(one, other, batches, against="float", bound=None)
    assert found.relative is not None
    return found.relative


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe("w8a8"),
        Recipe("w8a8", per_channel=True, symmetric=True, unsigned=True, exclude=("op:Softmax",)),
        Recipe("w8a16", ranges={"logits": (-3.0, 3.0)}),
    ],
)
def test_the_result_is_that_of_onnxruntimes_own_quantiser(
    graph: FloatGraph, rows: Rows, ranges: Ranges, tmp_path: Path, recipe: Recipe
) -> None:
    from onnxruntime.quantization import quantize_static

    ours = quantize(graph, tmp_path / "ours.onnx", recipe, ranges)
    call = arguments(recipe, graph.kinds)
    assert call.function.endswith("quantize_static")
    with quiet():
        quantize_static(graph.path, tmp_path / "theirs.onnx", Reader(rows), **call.keywords)
    mine, yours = onnx.load(ours.path).graph, onnx.load(tmp_path / "theirs.onnx").graph
    assert sorted(n.name for n in mine.node) == sorted(n.name for n in yours.node)
    np.testing.assert_allclose(answers(ours.path, rows), answers(tmp_path / "theirs.onnx", rows), atol=1e-6)


def test_nodes_know_the_module_that_they_come_from(graph: FloatGraph) -> None:
    softmax = next(node for node in graph.nodes if node.op_type == "Softmax")
    assert softmax.scope == "bert.encoder.layer.0.attention.self"


def test_minmax_is_what_the_rows_hold(graph: FloatGraph, rows: Rows, ranges: Ranges) -> None:
    values = answers(graph.path, rows)
    assert ranges.tensors["logits"] == (values.min(), values.max())
    seen = ranges.statistics["logits"]
    assert seen.count == len(values)
    assert seen.mean == pytest.approx(values.mean(), abs=1e-5)
    assert seen.std == pytest.approx(values.std(), rel=1e-5)
    assert ranges.rows == ("0", "1", "2", "3", "4")


def test_percentile_cuts_exactly(graph: FloatGraph, rows: Rows) -> None:
    values = np.sort(answers(graph.path, rows))
    found = collect_ranges(graph, rows, Recipe("w8a8", calibration="percentile", percentile=98.0))
    cut = int(0.01 * len(values))
    assert found.tensors["logits"] == (values[cut], values[-1 - cut])
    both = collect_ranges(graph, rows, Recipe("w8a8", calibration="percentile", percentile=98.0, symmetric=True))
    top = np.sort(np.abs(values))[-1 - int(0.02 * len(values))]
    assert both.tensors["logits"] == (-top, top)


def test_entropy_keeps_a_plain_range_and_cuts_off_one_far_value() -> None:
    rng = np.random.default_rng(0)
    plain = np.histogram(rng.normal(size=100_000), 2048, range=(-4, 4))[0]
    assert calibrate.information_limit(plain) > 0.6
    far = np.histogram(np.r_[rng.normal(size=100_000), 80.0], 2048, range=(-80, 80))[0]
    assert calibrate.information_limit(far) < 0.1


def test_entropy_ranges_lie_inside_what_was_seen(graph: FloatGraph, rows: Rows) -> None:
    found = collect_ranges(graph, rows, Recipe("w8a8", calibration="entropy"))
    for name, (low, high) in found.tensors.items():
        assert found.statistics[name].lowest <= low <= high <= found.statistics[name].highest


def test_ranges_are_the_same_from_a_file(ranges: Ranges, tmp_path: Path) -> None:
    ranges.save(tmp_path / "ranges.json")
    assert read_ranges(tmp_path / "ranges.json") == ranges


def test_an_excluded_node_reads_no_quantised_tensor(graph: FloatGraph, ranges: Ranges, tmp_path: Path) -> None:
    last = next(node for node in graph.nodes if "logits" in node.outputs)
    found = quantize(graph, tmp_path / "m.onnx", Recipe("w8a8", exclude=(last.name,)), ranges)
    nodes = onnx.load(found.path).graph.node
    assert found.excluded == (last.name,)
    kept = next(node for node in nodes if node.name == last.name)
    assert not [name for name in kept.output if "Quantize" in name]
    assert len(nodes) < len(onnx.load(quantize(graph, found.path, Recipe("w8a8"), ranges).path).graph.node)


def test_a_mask_in_the_scale_is_not_repaired_but_a_recipe_can_avoid_it(
    graph: FloatGraph, rows: Rows, tmp_path: Path
) -> None:
    """Padded rows put −3.4e38 into the range of the scores, and nothing is left of them: here as elsewhere."""
    shape = (1, 16)
    padded = collect_ranges(graph, rows, Recipe("w8a8"), shape=shape)
    hurt = [name for name, (low, _) in padded.tensors.items() if low < -1e30]
    assert hurt
    broken = quantize(graph, tmp_path / "broken.onnx", Recipe("w8a8"), padded)
    kept = quantize(graph, tmp_path / "kept.onnx", Recipe("w8a8", exclude=graph.touching(hurt)), padded)
    narrow = {name: (-40.0, max(1.0, padded.tensors[name][1])) for name in hurt}
    clipped = quantize(graph, tmp_path / "clipped.onnx", Recipe("w8a8", ranges=narrow), padded)
    recipes = (
        Recipe("w8a8"),
        Recipe("w8a8", exclude=graph.touching(hurt)),
        Recipe("w8a8", ranges=narrow),
    )
    warnings = [drowned(graph, padded, recipe) for recipe in recipes]
    assert "have the range of a mask" in warnings[0]
    assert warnings[1:] == ["", ""]
    worst, better, also = (error(graph, q.path, rows, shape) for q in (broken, kept, clipped))
    assert worst > 3 * better
    assert worst > 3 * also


def test_nothing_left_to_quantise_is_said(graph: FloatGraph, ranges: Ranges, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="every node that could be is excluded"):
        quantize(graph, tmp_path / "m.onnx", Recipe("int8-dynamic", exclude=("*",)))
    with pytest.raises(RequestError, match="`exclude` 'node_x' matches no node of the graph"):
        quantize(graph, tmp_path / "m.onnx", Recipe("w8a8", exclude=("node_x",)), ranges)
    with pytest.raises(RequestError, match="w8a8 needs calibration ranges"):
        quantize(graph, tmp_path / "m.onnx", Recipe("w8a8"))


def test_a_classifiers_gemm_is_quantised_though_its_weights_shape_is_written_down(tmp_path: Path) -> None:
    """torch's exporter notes the shapes of weights, and onnxruntime's quantiser transposes those of a Gemm."""
    rng, kinds = np.random.default_rng(0), onnx.TensorProto
    weights = {"table": (9, 8), "weight": (3, 8), "bias": (3,)}
    nodes = [
        onnx.helper.make_node("Gather", ["table", "input_ids"], ["tokens"]),
        onnx.helper.make_node("ReduceMax", ["tokens", "axes"], ["pooled"], keepdims=0),
        onnx.helper.make_node("Gemm", ["pooled", "weight", "bias"], ["logits"], transB=1),
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "classifier",
        [onnx.helper.make_tensor_value_info("input_ids", kinds.INT64, ["b", "s"])],
        [onnx.helper.make_tensor_value_info("logits", kinds.FLOAT, ["b", 3])],
        [
            *(onnx.numpy_helper.from_array(rng.normal(size=n).astype(np.float32), k) for k, n in weights.items()),
            onnx.numpy_helper.from_array(np.array([1]), "axes"),
        ],
        value_info=[onnx.helper.make_tensor_value_info("weight", kinds.FLOAT, [3, 8])],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, tmp_path / "float.onnx")
    found = quantize(load_graph(tmp_path / "float.onnx"), tmp_path / "m.onnx", Recipe("int8-dynamic"))
    assert found.operators["MatMulInteger"] == 1


@pytest.mark.parametrize("name", ["recipe.yaml", "recipe.json"])
def test_a_recipe_survives_its_file(tmp_path: Path, name: str) -> None:
    recipe = Recipe("w8a16", calibration="percentile", percentile=99.5, exclude=("a", "b*"), ranges={"x": (-1.0, 2.5)})
    write_recipe(recipe, tmp_path / name)
    assert read_recipe(tmp_path / name) == recipe


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("precision: w9a9", "`precision` must be one of fp32"),
        ("- a", "must be a mapping"),
        ("precison: w8a8", "unknown setting 'precison'"),
        ("precision: w8a8\nexclude: Softmax", "exclude must be a list of names"),
        ("precision: w8a8\nper_channel: 1", "per_channel must be bool"),
        ("precision: w8a8\nranges: {x: [2, 1]}", "two finite numbers that rise"),
        ("precision: int8-dynamic\nsymmetric: true", "`symmetric` does not apply"),
        ("a: [", "cannot be read"),
        ("!!python/object/apply:os.system ['true']", "cannot be read"),
    ],
)
def test_a_wrong_recipe_is_named(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "r.yaml").write_text(text)
    with pytest.raises(RequestError, match=expected):
        read_recipe(tmp_path / "r.yaml")


def test_the_cases_have_every_batch_size_padded_and_not(rows: Rows) -> None:
    found = check.cases(rows, None)
    assert {(b.ids.shape[0], b.padded) for b in found} == {(n, p) for n in (1, 2, 7) for p in (True, False)}
    assert {b.ids.shape[1] for b in found} == {8, 33, 64}
    assert all(b.ids.shape == (2, 10) for b in check.cases(rows, (2, 10)))


def test_padding_does_not_count_and_what_is_not_finite_does(rows: Rows) -> None:
    batch = pad(rows.tokens[:2], rows)
    zeros = np.zeros((*batch.ids.shape, 3), np.float32)
    other = zeros.copy()
    other[batch.mask == 0] = 5
    found = check.compare([zeros], [other], [batch], against="x", bound=1e-3)
    assert (found.largest, found.passed, found.unpadded, found.relative) == (0.0, True, None, None)
    other[0, 0, 0] = np.nan
    found = check.compare([zeros + 1], [other], [batch], against="x", bound=1e-3)
    assert (found.largest, found.passed) == (None, False)
    assert not replace(found, largest=2e-3).passed
    assert check.remarks(found) == ["some outputs are not finite"]


def test_a_pooled_graph_of_fixed_shape_gives_the_encoders_vectors(
    tiny_bert: Path,
    few_texts: Path,
    tmp_path: Path,
) -> None:
    from calipers import models

    out = tmp_path / "out"
    small.run(
        tiny_bert, out, "fp32", few_texts, task="sentence-similarity", static_shape=(2, 16), pooled=True, optimize=False
    )
    vectors = [
        models.load(models.find(f"{kind}:{place}"), models.ModelOptions()).encode(list(small.TEXTS))
        for kind, place in (("torch", tiny_bert), ("onnx", out))
    ]
    np.testing.assert_allclose(*vectors, atol=1e-5)
