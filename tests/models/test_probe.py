"""Padding that leaks: answers equal a plain loop over single rows in every family, or a warning says they do not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calipers import models
from calipers.core import MaskedTokens
from calipers.models import ModelOptions
from calipers.models.probe import compare

torch = pytest.importorskip("torch")

import transformers  # noqa: E402

from tests.support.masked_models import FAMILIES, LEAKING, SMALL, make_model, make_tokenizer  # noqa: E402

TEXTS = [
    "cats",
    "the old dog runs",
    "dogs sleep",
    "slow readers sleeping in the garden near the big house on the street and not far",
    "the young children see a cat and a dog in the park , the house and the garden , and the old dog runs far . a cat "
    "sleeps near the street .",
]
PAIRS = [(TEXTS[0], TEXTS[1]), (TEXTS[4], TEXTS[2]), (TEXTS[1], TEXTS[3]), (TEXTS[2], TEXTS[2])]
EQUAL, ALONE, ANY = "tokens a batch, of equal length", "one row at a time", "1024 tokens a batch"
BATCHES = {**dict.fromkeys(LEAKING, EQUAL), "big_bird": ALONE, "bert": ANY}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    folders: dict[str, Path] = {}

    def get(family: str, head: str = "MaskedLM") -> Path:
        name = f"{family}-{head}"
        if name not in folders:
            changes = {"num_labels": 1} if head == "SequenceClassification" else {}
            folders[name] = make_model(family, tmp_path_factory.mktemp(name), head=head, **changes)
        return folders[name]

    return get


def load(folder: Path, ability: str = "encode", **options: Any) -> Any:
    return models.load(models.find(str(folder)), ModelOptions(**options), ability)


def plain(folder: Path, head: str, rows: Sequence[Any]) -> list[Any]:
    """What a fresh model gives for each row alone, and the row's tokens: all outputs at once would hide a history."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    kind = getattr(transformers, f"AutoModelFor{head}" if head else "AutoModel")
    outputs = []
    for row in rows:
        ids = (
            row if isinstance(row, torch.Tensor) else tokenizer(*([row] if isinstance(row, str) else row))["input_ids"]
        )
        model = kind.from_pretrained(folder).eval()
        inputs = {"input_ids": torch.as_tensor(ids).reshape(1, -1)}
        if isinstance(row, tuple) and "token_type_ids" in tokenizer.model_input_names:
            inputs["token_type_ids"] = torch.tensor([tokenizer(*row)["token_type_ids"]])
        with torch.no_grad():
            outputs.append(model(**inputs)[0][0])
    return outputs


@pytest.mark.parametrize("family", BATCHES)
def test_vectors_equal_a_plain_loop(made: Callable[..., Path], family: str) -> None:
    folder = made(family, "")
    model = load(folder)
    expected = [states.mean(0).numpy() for states in plain(folder, "", TEXTS)]
    np.testing.assert_allclose(model.encode(TEXTS), expected, atol=1e-5)
    np.testing.assert_allclose(model.encode(TEXTS[::-1])[::-1], expected, atol=1e-5)
    assert BATCHES[family] in model.info.settings["batching"]
    assert "batch_dependence" not in model.info.settings
    assert model.info.notes == ()


@pytest.mark.parametrize("family", BATCHES.keys() - {"fnet"})
def test_scores_equal_a_plain_loop(made: Callable[..., Path], family: str) -> None:
    folder = made(family, "SequenceClassification")
    model = load(folder, "score")
    logits = np.array([float(logit) for logit in plain(folder, "SequenceClassification", PAIRS)])
    np.testing.assert_allclose(model.score(PAIRS), 1 / (1 + np.exp(-logits)), atol=1e-5)
    assert BATCHES[family] in model.info.settings["batching"]


def questions(model: Any, texts: Sequence[str]) -> MaskedTokens:
    tokenized = model.tokenize(texts)
    text = np.array([i for i, t in enumerate(tokenized) for _ in t.scored], np.int32)
    position = np.concatenate([t.scored for t in tokenized]).astype(np.int32)
    return MaskedTokens([t.ids for t in tokenized], text, position, position + 1)


def plain_log_probs(folder: Path, queries: MaskedTokens, mask: int) -> np.ndarray:
    rows = []
    for number, position in zip(queries.text, queries.position, strict=True):
        ids = torch.tensor(queries.texts[number], dtype=torch.long)
        ids[position] = mask
        rows.append(ids)
    logits = plain(folder, "MaskedLM", rows)
    places = zip(queries.text, queries.position, logits, strict=True)
    return np.array([float(row[p].log_softmax(-1)[int(queries.texts[t][p])]) for t, p, row in places])


@pytest.mark.parametrize("family", BATCHES)
def test_log_probabilities_equal_a_plain_loop(made: Callable[..., Path], family: str) -> None:
    model = load(made(family), "fill-mask")
    queries = questions(model, TEXTS[1:4:2] if family != "big_bird" else [TEXTS[1], TEXTS[4]])
    expected = plain_log_probs(made(family), queries, model.tokenizer.mask_id)
    np.testing.assert_allclose(model.log_probs(queries)[0], expected, atol=1e-4)
    assert BATCHES[family] in model.info.settings["batching"]


class TestForced:
    """A batch size that the user requests is kept, and a warning has the size of the difference."""

    @pytest.mark.parametrize("option", [{"batch_size": 8}, {"batch_tokens": 512}])
    def test_an_encoder(self, made: Callable[..., Path], option: dict[str, int]) -> None:
        folder = made("convbert", "")
        model = load(folder, **option)
        moved = np.abs(model.encode(TEXTS) - load(folder).encode(TEXTS)).max()
        assert moved > 0.01
        assert "of equal length" not in model.info.settings["batching"]
        (note,) = model.info.notes
        assert "padding moves the outputs by up to" in note
        assert "% of the largest output" in note
        assert note.endswith("by default, rows of equal length share a batch")
        assert model.info.settings["batch_dependence"].startswith("outputs move by up to")

    def test_a_masked_model(self, made: Callable[..., Path]) -> None:
        (note,) = load(made("fnet"), "fill-mask", batch_size=3).info.notes
        assert "the results depend on the batches that were requested" in note

    def test_a_batch_of_one_needs_no_warning(self, made: Callable[..., Path]) -> None:
        assert load(made("fnet"), "fill-mask", batch_size=1).info.notes == ()

    def test_a_sound_model_needs_no_warning(self, made: Callable[..., Path]) -> None:
        assert load(made("bert"), "fill-mask", batch_size=3).info.notes == ()


class TestBigBird:
    """A short row replaces the sparse attention of BigBird by a full one, for good."""

    def test_the_probe_leaves_the_model_as_it_was_loaded(self, made: Callable[..., Path]) -> None:
        network = load(made("big_bird", "")).network
        assert network.changes_itself
        assert network.model.attention_type == "block_sparse"
        kinds = {type(layer.attention.self).__name__ for layer in network.model.encoder.layer}
        assert kinds == {"BigBirdBlockSparseAttention"}

    def test_answers_do_not_depend_on_what_ran_before(self, made: Callable[..., Path]) -> None:
        model = load(made("big_bird", ""), threads=4)
        first = model.encode(TEXTS[4:])
        model.encode(TEXTS[:1])
        np.testing.assert_array_equal(model.encode(TEXTS[4:]), first)
        np.testing.assert_array_equal(model.encode(TEXTS * 5)[4], first[0])

    def test_without_a_difference_in_short_rows_it_still_runs_alone(
        self, made: Callable[..., Path], tmp_path: Path
    ) -> None:
        folder = make_model("big_bird", tmp_path, head="", block_size=8, num_random_blocks=2)
        model = load(folder)
        assert ALONE in model.info.settings["batching"]
        assert "batch_dependence" not in model.info.settings
        (note,) = load(folder, batch_size=4).info.notes
        assert "changes its own modules" in note


class TestLongRows:
    """Rotations that change behind a length: a long row in the batch changes the short ones."""

    @pytest.fixture
    def longrope(self, tmp_path: Path) -> Path:
        factors = {"short_factor": [1.0] * 4, "long_factor": [8.0, 4.0, 2.0, 1.5], "rope_theta": 10_000.0}
        rope = {"rope_type": "longrope", "original_max_position_embeddings": 40, **factors}
        config = transformers.LlamaConfig(
            **{**SMALL, "max_position_embeddings": 256, "rope_parameters": rope, "num_key_value_heads": 4}
        )
        torch.manual_seed(0)
        transformers.AutoModel.from_config(config).save_pretrained(tmp_path)
        make_tokenizer(tmp_path)
        return tmp_path

    def test_vectors_equal_a_plain_loop(self, longrope: Path) -> None:
        texts = [*TEXTS, f"{TEXTS[4]} {TEXTS[3]}"]
        model = load(longrope)
        assert ALONE in model.info.settings["batching"]
        expected = [states.mean(0).numpy() for states in plain(longrope, "", texts)]
        np.testing.assert_allclose(model.encode(texts), expected, atol=1e-5)
        forced = load(longrope, batch_size=8)
        assert np.abs(forced.encode(texts)[:5] - expected[:5]).max() > 1e-3
        assert "the results depend on the batches that were requested" in forced.info.notes[0]


class TestModules:
    """Models that sentence-transformers' own modules run."""

    @pytest.fixture
    def dense(self, made: Callable[..., Path], tmp_path: Path) -> Callable[[str], Path]:
        sentence_transformers = pytest.importorskip("sentence_transformers")
        from sentence_transformers.sentence_transformer.modules import Dense, Pooling, Transformer

        def make(family: str) -> Path:
            torch.manual_seed(0)
            parts = [Transformer(str(made(family, ""))), Pooling(32), Dense(32, 8)]
            sentence_transformers.SentenceTransformer(modules=parts, device="cpu").save(str(tmp_path / family))
            return tmp_path / family

        return make

    @pytest.mark.parametrize("family", ["fnet", "big_bird", "bert"])
    def test_vectors_equal_a_plain_loop(self, dense: Callable[[str], Path], family: str) -> None:
        from sentence_transformers import SentenceTransformer

        folder = dense(family)
        model = load(folder)
        expected = [SentenceTransformer(str(folder), device="cpu").encode(text) for text in TEXTS]
        np.testing.assert_allclose(model.encode(TEXTS), expected, atol=1e-5)
        np.testing.assert_allclose(model.encode(TEXTS[:1] * 3 + TEXTS[4:])[3:], expected[4:], atol=1e-5)
        assert model.info.settings["through"] == "sentence-transformers"
        batches = {"fnet": "32 rows a batch, of equal length", "big_bird": ALONE, "bert": "32 rows a batch"}
        assert model.info.settings["batching"].partition(" (")[0] == batches[family]

    def test_a_requested_batch_is_kept_with_a_warning(self, dense: Callable[[str], Path]) -> None:
        model = load(dense("fnet"), batch_size=8)
        assert model.info.settings["batching"].startswith("8 rows a batch")
        assert "padding moves the outputs by up to" in model.info.notes[0]

    @pytest.mark.parametrize("family", ["convbert", "bert"])
    def test_scores_equal_a_plain_loop(self, made: Callable[..., Path], family: str, tmp_path: Path) -> None:
        """Padded on the left, BERT too depends on padding: it counts positions from the first one."""
        pytest.importorskip("sentence_transformers")
        folder = shutil.copytree(made(family, "SequenceClassification"), tmp_path / family)
        settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "padding_side": "left"}))
        model = load(folder, "score")
        logits = np.array([float(logit) for logit in plain(folder, "SequenceClassification", PAIRS)])
        np.testing.assert_allclose(model.score(PAIRS), 1 / (1 + np.exp(-logits)), atol=1e-5)
        assert "padding on the left" in model.info.settings["through"]
        assert "rows a batch, of equal length" in model.info.settings["batching"]


@pytest.mark.parametrize("family", FAMILIES)
def test_sound_families_keep_their_batches(made: Callable[..., Path], family: str) -> None:
    model = load(made(family), "fill-mask")
    assert model.info.settings["batching"] == ANY
    assert "batch_dependence" not in model.info.settings


@pytest.mark.parametrize("longest", [3, 4, 6])
def test_a_model_with_few_positions(made: Callable[..., Path], longest: int) -> None:
    model = load(made("convbert", ""), max_length=longest)
    alone = np.concatenate([model.encode([text]) for text in TEXTS])
    np.testing.assert_allclose(model.encode(TEXTS), alone, atol=1e-5)


def test_a_model_that_cannot_be_tried_says_so(made: Callable[..., Path], tmp_path: Path) -> None:
    """An embedding table that is smaller than the vocabulary: texts of its first words still work."""
    folder = make_model("bert", tmp_path, head="", vocab_size=20)
    model = load(folder)
    assert model.info.settings["batching"] == f"{ANY}; a trial of padding failed"
    assert model.encode(["the dog"]).shape == (1, 32)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rounding_of_half_precision_is_no_leak(made: Callable[..., Path], dtype: str) -> None:
    assert load(made("bert", ""), dtype=dtype).info.settings["batching"] == ANY
    assert EQUAL in load(made("convbert", ""), dtype=dtype).info.settings["batching"]


class TestCompare:
    def test_nan_in_both_is_no_difference(self) -> None:
        assert compare(np.array([[np.nan, 2.0]]), np.array([[np.nan, 2.0]])).difference == 0

    def test_nan_in_one_is(self) -> None:
        effect = compare(np.array([[1.0, 2.0]]), np.array([[np.nan, 2.0]]))
        assert effect.beyond(1e-4)
        assert "unknown" in str(effect)

    def test_the_scale_decides(self) -> None:
        a = np.array([[1e-20, -3e-20]])
        assert compare(a, a * 1.01).beyond(1e-4)
        assert not compare(a, a * 1.00001).beyond(1e-4)
        assert not compare(a, a * 1.01, least=0.1).beyond(1e-4)
