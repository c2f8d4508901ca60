"""Graphs whose answers depend on padding or on the rows beside them: run without either, or with a warning."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import calipers
from calipers import models
from calipers.artifacts.calibrate import read_ranges
from calipers.artifacts.export import copy_settings
from calipers.artifacts.graphs import load_graph
from calipers.artifacts.quantize import quantize
from calipers.artifacts.recipe import Recipe
from calipers.comparison.verdict import differences
from calipers.core import MaskedTokens
from calipers.models import ModelOptions
from tests.support.tiny_graphs import mixing, table_rows, tiny

TEXTS = ["bread", "Tulips bloom in spring.", "Two reboots were logged by the monitor at night.", "snow", "a b c"]
PAIRS = [(TEXTS[0], TEXTS[2]), (TEXTS[2], TEXTS[1]), (TEXTS[3], TEXTS[3])]
BREAD = [101, 7852, 102]  # [CLS] bread [SEP]
EQUAL, ALONE = "tokens a batch, of equal length (padding moves", "one row at a time"


def load(graph: Path, ability: str = "encode", **options: Any) -> Any:
    return models.load(models.find(str(graph)), ModelOptions(**options), ability)


def size(note: str) -> float:
    """The number in "moves its outputs by up to 0.75, …"."""
    match = re.search(r"by up to ([0-9.e+-]+), ", note)
    assert match, note
    return float(match[1])


def questions(model: Any) -> MaskedTokens:
    texts = [text.ids for text in model.tokenize(TEXTS)]
    ones = np.ones(len(texts), np.int32)
    return MaskedTokens(texts, np.arange(len(texts), dtype=np.int32), ones, ones + 1)


class TestPaddingThatLeaks:
    def test_vectors(self, minilm: Path, tmp_path: Path) -> None:
        model = load(mixing(tmp_path, minilm))
        np.testing.assert_allclose(model.encode(TEXTS)[0], 2 * table_rows(BREAD).mean(0), atol=1e-5)
        assert EQUAL in model.info.settings["batching"]
        assert model.info.notes == ()

    def test_scores(self, minilm: Path, tmp_path: Path) -> None:
        model = load(mixing(tmp_path, minilm, head="score"), "score")
        np.testing.assert_allclose(model.score(PAIRS), [model.score([pair])[0] for pair in PAIRS], atol=1e-5)
        assert EQUAL in model.info.settings["batching"]

    def test_log_probabilities(self, minilm: Path, tmp_path: Path) -> None:
        graph = mixing(tmp_path, minilm, head="logits")
        model, alone = load(graph, "fill-mask"), load(graph, "fill-mask", batch_size=1)
        np.testing.assert_allclose(
            model.log_probs(questions(model))[0], alone.log_probs(questions(alone))[0], atol=1e-5
        )
        assert EQUAL in model.info.settings["batching"]

    def test_a_graph_that_pools_without_a_mask(self, minilm: Path, tmp_path: Path) -> None:
        graph = tiny(tmp_path / "g", minilm, inputs={"input_ids": TensorProto.INT64}, output="pooled")
        np.testing.assert_allclose(load(graph).encode(TEXTS)[0], table_rows(BREAD).mean(0), atol=1e-6)

    def test_a_requested_batch_is_kept_with_a_warning(self, minilm: Path, tmp_path: Path) -> None:
        model = load(mixing(tmp_path, minilm), batch_size=5)
        assert model.info.settings["batching"] == "5 rows a batch (as requested)"
        assert size(model.info.notes[0]) > 0.1
        assert np.abs(model.encode(TEXTS)[0] - 2 * table_rows(BREAD).mean(0)).max() > 0.1


class TestLongRows:
    """What happens to long rows only is seen in rows as long as the model takes."""

    @pytest.mark.parametrize("of", ["length", "batch"])
    @pytest.mark.parametrize(("head", "ability"), [("tokens", "encode"), ("score", "score"), ("logits", "fill-mask")])
    def test_a_leak_beyond_a_length(self, minilm: Path, tmp_path: Path, head: str, ability: str, of: str) -> None:
        model = load(mixing(tmp_path, minilm, of=of, head=head, beyond=100), ability)
        assert (EQUAL if of == "length" else ALONE) in model.info.settings["batching"]

    def test_vectors_are_those_of_single_rows(self, minilm: Path, tmp_path: Path) -> None:
        model = load(mixing(tmp_path, minilm, beyond=100))
        texts = [*TEXTS, "bread " * 150, "snow and tulips " * 40]
        alone = np.concatenate([model.encode([text]) for text in texts])
        np.testing.assert_allclose(model.encode(texts), alone, atol=1e-5)
        np.testing.assert_allclose(alone[0], table_rows(BREAD).mean(0), atol=1e-5)

    def test_a_plain_architecture_is_not_tried(self, minilm: Path, tmp_path: Path) -> None:
        """Its float graph cannot do that: the trial is saved."""
        graph = mixing(tmp_path, minilm, beyond=100)
        (tmp_path / "config.json").write_text('{"model_type": "bert"}')
        assert load(graph).info.settings["batching"] == "512 tokens a batch"


class TestRowsThatMoveEachOther:
    def test_every_row_runs_alone(self, minilm: Path, tmp_path: Path) -> None:
        model = load(mixing(tmp_path, minilm, of="batch"))
        np.testing.assert_allclose(model.encode(TEXTS)[0], 2 * table_rows(BREAD).mean(0), atol=1e-5)
        assert f"{ALONE} (the rows of a batch move each other's outputs" in model.info.settings["batching"]

    def test_in_a_graph_with_a_fixed_number_of_rows_it_is_copied(self, minilm: Path, tmp_path: Path) -> None:
        model = load(mixing(tmp_path, minilm, of="batch", shape=(3, None)))
        np.testing.assert_allclose(model.encode(TEXTS)[0], 2 * table_rows(BREAD).mean(0), atol=1e-5)

    def test_a_fixed_number_of_rows_of_equal_length(self, minilm: Path, tmp_path: Path) -> None:
        model = load(mixing(tmp_path, minilm, shape=(3, None)))
        np.testing.assert_allclose(model.encode(TEXTS)[0], 2 * table_rows(BREAD).mean(0), atol=1e-5)
        assert "3 rows a batch, of equal length" in model.info.settings["batching"]


class TestFixedLength:
    """Padding cannot be avoided: a warning has the size of the difference, and `compare` names it."""

    @pytest.mark.parametrize("frozen", [False, True])
    @pytest.mark.parametrize(("head", "ability"), [("tokens", "encode"), ("score", "score"), ("logits", "fill-mask")])
    def test_a_leak_is_a_warning_with_its_size(
        self, minilm: Path, tmp_path: Path, head: str, ability: str, frozen: bool
    ) -> None:
        graph = mixing(tmp_path, minilm, head=head, shape=(1, 40), frozen=frozen)
        model = load(graph, ability)
        (note,) = model.info.notes
        assert "pads every row to 40 tokens" in note
        assert size(note) == size(model.info.settings["batch_dependence"]) > 0.05

    def test_the_size_is_the_difference_to_a_row_without_padding(self, minilm: Path, tmp_path: Path) -> None:
        free = load(mixing(tmp_path / "free", minilm))
        fixed = load(mixing(tmp_path / "fixed", minilm, shape=(1, 40)))
        rows = free.tokenizer.sample([6, 6, 10, 32])
        moved = []
        for row in rows:
            states, pad = table_rows(row.ids.tolist()), table_rows([0])
            mean = (states.sum(0) + (40 - len(row.ids)) * pad[0]) / 40
            moved.append(np.abs(mean - states.mean(0)).max())
        assert size(fixed.info.notes[0]) == pytest.approx(max(moved), rel=0.05)

    def test_a_sound_graph_needs_no_warning(self, minilm: Path, tmp_path: Path) -> None:
        inputs = {"input_ids": TensorProto.INT64, "attention_mask": TensorProto.INT64}
        model = load(tiny(tmp_path / "g", minilm, inputs=inputs, shape=(1, 40)))
        assert model.info.notes == ()
        assert "batch_dependence" not in model.info.settings

    def test_rows_that_move_each_other_run_alone(self, minilm: Path, tmp_path: Path) -> None:
        assert ALONE in load(mixing(tmp_path, minilm, of="batch", shape=(None, 40))).info.settings["batching"]

    def test_the_result_and_a_comparison_name_it(self, minilm: Path, pairs: Path, tmp_path: Path) -> None:
        graphs = [mixing(tmp_path / name, minilm, shape=shape) for name, shape in (("a", (None, None)), ("b", (1, 40)))]
        free, fixed = (calipers.evaluate(str(graph), dataset=str(pairs), resamples=50) for graph in graphs)
        assert not any("padding" in warning for warning in free.warnings)
        assert any("pads every row to 40 tokens" in warning for warning in fixed.warnings)
        assert differences(free, fixed)["batch_dependence"][1].startswith("outputs move by up to")


class TestStaticallyQuantised:
    """A mask that is rounded with the scores is clipped: padding gets a share of the attention."""

    def test_answers_equal_those_alone(self, built: Path, tmp_path: Path) -> None:
        (file,) = (built / "calibration").iterdir()
        floats = load_graph(built / "optimized" / "model.onnx")
        graph = quantize(floats, tmp_path / "model.onnx", Recipe("w8a8"), read_ranges(file), masks=()).path
        copy_settings(built, tmp_path)
        model, alone = load(graph, "fill-mask"), load(graph, "fill-mask", batch_size=1)
        np.testing.assert_allclose(
            model.log_probs(questions(model))[0], alone.log_probs(questions(alone))[0], atol=1e-5
        )
        assert EQUAL in model.info.settings["batching"]
        assert load(graph, "fill-mask", batch_size=8).info.notes

    @pytest.mark.parametrize("graph", ["exported/model.onnx", "model_w8a8.onnx"])
    def test_a_graph_of_ours_keeps_its_batches(self, graph: str, built: Path) -> None:
        model = load(built / graph, "fill-mask")
        assert model.info.settings["batching"] == "512 tokens a batch"
