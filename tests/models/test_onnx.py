"""ONNX graphs of every shape, with any input names and types."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from calipers import models
from calipers.core import Encoder, ModelError, RequestError
from calipers.models import ModelOptions
from calipers.models.onnx_files import quantises_dynamically
from tests.support.exporting import fix_shape
from tests.support.tiny_graphs import WIDTH, logits, table_rows, tiny

SHORT = [
    "The bakery opens at seven.",
    "a",
    "Two reboots were logged by the monitor.",
    "bread",
    "Tulips bloom in spring.",
]


def load(reference: str | Path, **options: object) -> Encoder:
    return models.load(models.find(str(reference)), ModelOptions(**options))  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(1, 512), (1, 128), (8, 64), (3, None), (None, 32)], ids=str)
def test_a_fixed_shape_gives_the_dynamic_figures(
    minilm: Path, minilm_onnx: Path, tmp_path: Path, shape: tuple[int | None, int | None]
) -> None:
    fixed = load(fix_shape(minilm_onnx, tmp_path / "fixed", rows=shape[0], length=shape[1]))
    np.testing.assert_allclose(fixed.encode(SHORT), load(minilm).encode(SHORT), atol=2e-5)


def test_a_fixed_length_cuts_long_texts(minilm: Path, minilm_onnx: Path, tmp_path: Path) -> None:
    long = "the price of fresh bread rose again " * 5
    fixed = load(fix_shape(minilm_onnx, tmp_path / "fixed", rows=None, length=16))
    assert fixed.info.settings["max_length"] == 16
    np.testing.assert_allclose(fixed.encode([long]), load(minilm, max_length=16).encode([long]), atol=2e-5)


BREAD = [101, 7852, 102]  # [CLS] bread [SEP]


@pytest.mark.parametrize("kind", [TensorProto.INT32, TensorProto.INT64])
@pytest.mark.parametrize("mask", ["attention_mask", "input_mask:0"])
def test_inputs_are_fed_by_the_graphs_own_names_and_types(minilm: Path, tmp_path: Path, kind: int, mask: str) -> None:
    graph = tiny(tmp_path / "g", minilm, inputs={"src_tokens": kind, mask: kind})
    np.testing.assert_allclose(load(graph).encode(["bread"]), [table_rows(BREAD).mean(0)], atol=1e-6)


def test_the_pad_token_does_not_count(minilm: Path, tmp_path: Path) -> None:
    encoder = load(tiny(tmp_path / "g", minilm, inputs={"input_ids": TensorProto.INT64}), batch_size=8)
    both = encoder.encode(["bread", "bread and butter and a good deal of jam"])
    np.testing.assert_allclose(both[0], table_rows(BREAD).mean(0), atol=1e-6)


def test_positions_and_types_are_fed_where_the_graph_asks(minilm: Path, tmp_path: Path) -> None:
    inputs = {"input_ids": TensorProto.INT64, "position_ids": TensorProto.INT64, "segment_ids": TensorProto.INT64}
    wanted = (table_rows(BREAD) + np.arange(3)[:, None]).mean(0)
    np.testing.assert_allclose(load(tiny(tmp_path / "g", minilm, inputs=inputs)).encode(["bread"]), [wanted], atol=1e-6)


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ({"batch_size": 4}, "`batch_size` is not"),
        ({"batch_tokens": 99}, "`batch_tokens` is not"),
        ({"max_length": 99}, "at most 16"),
    ],
)
def test_a_fixed_shape_refuses_other_batches(
    flag: dict[str, int], words: str, minilm_onnx: Path, tmp_path: Path
) -> None:
    with pytest.raises(RequestError, match=words):
        load(fix_shape(minilm_onnx, tmp_path / "fixed", rows=2, length=16), **flag)


def test_a_graph_that_pools_refuses_a_pooling(minilm: Path, tmp_path: Path) -> None:
    graph = tiny(tmp_path / "g", minilm, inputs={"input_ids": TensorProto.INT64}, output="pooled")
    with pytest.raises(RequestError, match=r"`pooling` is not supported for .*: its output 'pooled' is already pooled"):
        load(graph, pooling="cls")


def test_a_pooled_output_is_taken_as_it_is(minilm: Path, tmp_path: Path) -> None:
    encoder = load(tiny(tmp_path / "g", minilm, inputs={"input_ids": TensorProto.INT64}, output="pooled"), batch_size=1)
    assert encoder.info.settings["pooling"] == "in the graph"
    np.testing.assert_allclose(encoder.encode(["bread"]), [table_rows(BREAD).mean(0)], atol=1e-6)


def test_token_embeddings_win_over_a_pooler_unless_it_is_asked_for(minilm: Path, tmp_path: Path) -> None:
    graph = tiny(tmp_path / "g", minilm, inputs={"input_ids": TensorProto.INT64}, output="pooled+tokens")
    assert load(graph).info.settings["output"] == "tokens"
    assert load(graph, output="pooled").info.settings["output"] == "pooled"
    with pytest.raises(RequestError, match="pooled, tokens"):
        load(graph, output="nonsense")


def test_a_graph_in_the_hubs_layout_finds_its_tokenizer_one_folder_up(minilm: Path, tmp_path: Path) -> None:
    graph = tiny(tmp_path / "g", minilm, inputs={"input_ids": TensorProto.INT64})
    (tmp_path / "g" / "onnx").mkdir()
    graph.rename(tmp_path / "g" / "onnx" / "model.onnx")
    assert load(tmp_path / "g").encode(["bread"]).shape == (1, WIDTH)


def test_model_id_names_the_folder_of_the_tokenizer(minilm: Path, tmp_path: Path) -> None:
    graph = tiny(tmp_path / "g", minilm, inputs={"input_ids": TensorProto.INT64})
    (tmp_path / "g" / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match="`model_id`"):
        load(graph)
    assert load(graph, model_id=str(minilm)).encode(["bread"]).shape == (1, WIDTH)


def test_several_graphs_in_a_folder_ask_for_a_name(minilm: Path, tmp_path: Path) -> None:
    graph = tiny(tmp_path / "g", minilm, inputs={"input_ids": TensorProto.INT64})
    shutil.copy(graph, graph.with_name("n.onnx"))
    with pytest.raises(ModelError, match=r"m\.onnx, n\.onnx"):
        load(tmp_path / "g")
    shutil.copy(graph, graph.with_name("model.onnx"))
    with pytest.raises(ModelError, match=r"m\.onnx, model\.onnx, n\.onnx; .* itself, such as .*/m\.onnx$"):
        load(tmp_path / "g")
    assert load(tmp_path / "g", file_name="n.onnx").info.path == str(tmp_path / "g" / "n.onnx")
    with pytest.raises(ModelError, match=r"`file_name` 'x\.onnx' is not in .*: it holds m\.onnx, model\.onnx, n\.onnx"):
        load(tmp_path / "g", file_name="x.onnx")
    with pytest.raises(RequestError, match="`file_name` chooses a graph of a folder"):
        load(graph, file_name="n.onnx")


def test_logits_over_the_vocabulary_are_no_embeddings(minilm: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="masked language model"):
        load(logits(tmp_path, minilm))


def test_a_dynamically_quantised_graph_runs_row_by_row_unless_asked(minilm_onnx: Path, tmp_path: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    shutil.copytree(minilm_onnx.parent, tmp_path / "q", ignore=shutil.ignore_patterns("*.onnx*"))
    quantize_dynamic(minilm_onnx, tmp_path / "q" / "model.onnx", weight_type=QuantType.QUInt8)
    assert quantises_dynamically(tmp_path / "q" / "model.onnx")
    assert not quantises_dynamically(minilm_onnx)
    alone = load(tmp_path / "q")
    assert "one row at a time" in alone.info.settings["batching"]
    np.testing.assert_array_equal(alone.encode(SHORT), np.concatenate([alone.encode([t]) for t in SHORT]))
    batched = load(tmp_path / "q", batch_size=5)
    assert "5 rows a batch (as requested)" in batched.info.settings["batching"]
    assert not np.array_equal(batched.encode(SHORT), alone.encode(SHORT))


def test_threads_change_no_bit(minilm_onnx: Path) -> None:
    one, two = load(minilm_onnx, threads=1).encode(SHORT * 9), load(minilm_onnx, threads=2).encode(SHORT * 9)
    np.testing.assert_array_equal(one, two)


def test_a_vocabulary_that_is_wider_than_the_tokenizer_is_no_embedding(minilm: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="masked language model"):
        load(logits(tmp_path, minilm, width=30528))
    (tmp_path / "config.json").write_text('{"model_type": "bert", "hidden_size": 32, "vocab_size": 30600}')
    with pytest.raises(ModelError, match="masked language model"):
        load(logits(tmp_path, minilm, name="output_0", width=30600))


def with_layers(graph: Path, *names: str) -> Path:
    """The graph with its token embeddings under several names, each but the last of them zero."""
    proto = onnx.load(graph)
    source, width = proto.graph.output[0].name, WIDTH
    zeros = onnx.helper.make_node("Sub", [source, source], ["zeros"])
    copies = [onnx.helper.make_node("Identity", ["zeros" if name != names[-1] else source], [name]) for name in names]
    proto.graph.node.extend([zeros, *copies])
    del proto.graph.output[:]
    shape = ["b", "s", width]
    proto.graph.output.extend(onnx.helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in names)
    onnx.save(proto, graph)
    return graph


def test_of_several_layers_the_last_is_taken(minilm: Path, tmp_path: Path) -> None:
    graph = tiny(tmp_path / "g", minilm, inputs={"input_ids": TensorProto.INT64, "attention_mask": TensorProto.INT64})
    encoder = load(with_layers(graph, "hidden_states_0", "last_hidden_state"))
    np.testing.assert_allclose(encoder.encode(["bread"]), [table_rows(BREAD).mean(0)], atol=1e-6)
    graph = tiny(tmp_path / "h", minilm, inputs={"input_ids": TensorProto.INT64, "attention_mask": TensorProto.INT64})
    with_layers(graph, "layer_0", "layer_1")
    with pytest.raises(ModelError, match=r"several outputs of token embeddings \(layer_0, layer_1\)"):
        load(graph)
    assert load(graph, output="layer_1").encode(["bread"]).any()
