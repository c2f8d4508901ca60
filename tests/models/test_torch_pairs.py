"""Cross-encoders in PyTorch and ONNX against sentence-transformers, plain loops and the tokenizer's own truncation."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from calipers import models
from calipers.core import ModelError, PairScorer, RequestError
from calipers.models import ModelOptions
from calipers.models.heads import ACTIVATIONS
from tests.support.cross_encoders import NLI, copy_tokenizer, tiny
from tests.support.exporting import export_cross_encoder, fix_shape

Pair = tuple[str, str]
SHORT: list[Pair] = [
    ("when does the bakery open", "The bakery opens at seven."),
    ("bread", "Two reboots were logged by the monitor, one at noon and one at midnight."),
    ("a", ""),
    ("when does the bakery open", "Tulips bloom in spring."),
    ("who sold the red bicycle", "He sold the red bicycle to a neighbour for very little."),
]


def load(reference: str | Path, **options: Any) -> PairScorer:
    return models.load(models.find(str(reference)), ModelOptions(**options), "score")  # type: ignore[return-value]


def theirs(folder: Path, pairs: Sequence[Pair], **arguments: Any) -> np.ndarray:
    model = CrossEncoder(str(folder), device="cpu", local_files_only=True, model_kwargs={"dtype": torch.float32})
    return model.predict(list(pairs), show_progress_bar=False, **arguments)


def loop(folder: Path, pairs: Sequence[Pair], max_length: int = 512) -> np.ndarray:
    """Logits, one pair at a time, by transformers alone."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    rows = []
    with torch.inference_mode():
        for a, b in pairs:
            tokens = tokenizer([a], [b], truncation="longest_first", max_length=max_length, return_tensors="pt")
            rows.append(model(**tokens).logits[0].numpy())
    return np.array(rows)


def change(folder: Path, name: str, **entries: Any) -> Path:
    path = folder / name
    path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | entries))
    return folder


@pytest.fixture
def one(tmp_path: Path, minilm: Path) -> Path:
    return tiny(tmp_path / "one", minilm, labels=1)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory, minilm: Path) -> Path:
    return tiny(tmp_path_factory.mktemp("three"), minilm, labels=3)


@pytest.fixture(scope="module")
def reranker(model: Callable[[str], Path]) -> Path:
    return model("ms-marco-MiniLM-L12-v2-dequant")


@pytest.fixture(scope="module")
def passages(data: Callable[[str], Path]) -> list[Pair]:
    """Twenty pairs of four queries, and one document that is far too long."""
    lines = data("trec-dl/dl19-bm25-top100.jsonl").read_text(encoding="utf-8").splitlines()[:4]
    rows = [json.loads(line) for line in lines]
    pairs = [(row["query"], document["text"]) for row in rows for document in row["documents"][:5]]
    return [*pairs[::2], (rows[0]["query"], " ".join(b for _, b in pairs)), *pairs[1::2]]


@pytest.fixture(scope="module")
def logits(reranker: Path, passages: list[Pair]) -> np.ndarray:
    return theirs(reranker, passages, activation_fn=torch.nn.Identity())


def test_the_reranker_gives_what_sentence_transformers_and_a_plain_loop_give(
    reranker: Path, passages: list[Pair], logits: np.ndarray, tmp_path: Path
) -> None:
    found = load(reranker).score(passages)
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-logits)), atol=1e-5)
    bare = shutil.copytree(reranker, tmp_path / "bare", copy_function=os.symlink)
    config = json.loads((reranker / "config.json").read_text())
    (bare / "config.json").unlink()
    change(bare, "config.json", **config, sentence_transformers={"activation_fn": "torch.nn.modules.linear.Identity"})
    np.testing.assert_allclose(load(bare).score(passages), logits, atol=1e-5)
    np.testing.assert_allclose(loop(reranker, passages[6:14])[:, 0], logits[6:14], atol=1e-5)


def test_the_int8_reranker_is_near_it_and_runs_row_by_row(
    weights: Callable[[str], Path], passages: list[Pair], logits: np.ndarray
) -> None:
    scorer = load(weights("ms-marco-MiniLM-L12-v2-int8"))
    found = scorer.score(passages)
    assert np.abs(found - logits).max() < 1.0
    assert "one row at a time" in scorer.info.settings["batching"]
    assert "no config.json: the logits are given as they are" in scorer.info.settings["activation"]
    np.testing.assert_array_equal(scorer.score(passages[3:4]), found[3:4])


def test_order_repeats_batches_and_threads_move_nothing(three: Path) -> None:
    expected = load(three).score(SHORT)
    assert expected.shape == (5, 3)
    np.testing.assert_allclose(expected, loop(three, SHORT), atol=1e-5)
    order = np.array([4, 0, 0, 3, 1, 2, 0, 4])
    found = load(three).score([SHORT[i] for i in order])
    np.testing.assert_allclose(found, expected[order], atol=1e-5)
    assert (found[1] == found[2]).all()
    assert (found[0] == found[7]).all()
    assert (found[0] != load(three).score([SHORT[4][::-1]])).all()  # which text comes first matters
    for wish in ({"batch_size": 1}, {"batch_size": 3}, {"batch_tokens": 40}):
        np.testing.assert_allclose(load(three, **wish).score(SHORT), expected, atol=1e-5)
    np.testing.assert_array_equal(*(load(three, batch_size=2, threads=n).score(SHORT) for n in (1, 2)))


@pytest.mark.parametrize("longest", [5, 16, 40])
def test_a_long_pair_is_cut_as_the_tokenizer_cuts_longest_first(three: Path, longest: int) -> None:
    words = SHORT[1][1].split() + SHORT[4][1].split()
    pairs = [(" ".join(words[:n]), " ".join(words[: 16 - n] * 3)) for n in (1, 4, 9, 15)]
    scorer = load(three, max_length=longest)
    assert scorer.info.settings["max_length"] == longest
    np.testing.assert_allclose(scorer.score(pairs), loop(three, pairs, longest), atol=1e-5)
    with pytest.raises(RequestError, match="at least 5"):
        load(three, max_length=4)


# --- activation, labels, prompts -------------------------------------------------------------------------------

NEW = {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity", "version": "5.1.0"}}
OLD = {"sbert_ce_default_activation_function": "torch.nn.modules.activation.Tanh"}


def saved(folder: Path, **arguments: Any) -> Path:
    """What sentence-transformers itself writes of the model."""
    CrossEncoder(str(folder), device="cpu", local_files_only=True, **arguments).save_pretrained(str(folder / "saved"))
    return folder / "saved"


@pytest.mark.parametrize(
    ("labels", "config", "given", "activation"),
    [
        (1, {}, None, "Sigmoid (one label)"),
        (3, {}, None, "Identity (several labels)"),
        (1, OLD, None, "Tanh (config.json)"),
        (1, {**NEW, **OLD}, None, "Identity (config.json)"),
        (3, {"sentence_transformers": {"activation_fn": None}, **OLD}, None, "Identity (several labels)"),
        (3, OLD, torch.nn.Softmax(), "Softmax (config_sentence_transformers.json)"),
    ],
)
@pytest.mark.filterwarnings("ignore:Implicit dimension choice")
def test_the_activation_is_the_one_that_sentence_transformers_takes(
    tmp_path: Path, minilm: Path, labels: int, config: dict[str, Any], given: Any, activation: str
) -> None:
    folder = change(tiny(tmp_path / "m", minilm, labels), "config.json", **config)
    folder = saved(folder, activation_fn=given) if given else folder
    scorer = load(folder)
    assert scorer.info.settings["activation"] == activation
    assert (scorer.info.settings["labels"], scorer.info.settings["label_names"]) == (labels, NLI[:labels])
    np.testing.assert_allclose(scorer.score(SHORT), theirs(folder, SHORT), atol=1e-5)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.filterwarnings("ignore:Implicit dimension choice")
def test_an_activation_is_torchs(name: str) -> None:
    logits = np.array([[0.0, 3.5, -2.0], [-200.0, 90.0, 20.0], [-30.0, -31.0, 1e4]])
    expected = getattr(torch.nn, name)().eval()(torch.from_numpy(logits)).numpy()
    np.testing.assert_allclose(ACTIVATIONS[name](logits), expected, rtol=1e-9, atol=1e-12)


def test_every_activation_without_parameters_is_in_the_table() -> None:
    """The others have parameters, need arguments, or change the number of labels."""
    others = {"MultiheadAttention", "PReLU", "Threshold", "GLU", "Softmax2d"}
    assert {*ACTIVATIONS} == {*torch.nn.modules.activation.__all__, "Identity"} - others


@pytest.mark.parametrize("asked", ["trap.Activation", "torch.hub.load", "torch.nn.modules.activation.Threshold", 7])
def test_an_activation_that_is_not_plain_is_refused_and_not_imported(
    one: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: object
) -> None:
    (tmp_path / "trap.py").write_text("class Activation:\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    change(one, "config.json", sentence_transformers={"activation_fn": asked})
    with pytest.raises(ModelError, match=r"names the activation .* nothing that a model names is imported"):
        load(one)
    assert "trap" not in sys.modules


def test_the_models_prompt_goes_before_the_first_text(one: Path) -> None:
    plain = {name: load(one, prompt="").score([(name + a, b) for a, b in SHORT]) for name in ("search: ", "case: ")}
    folder = saved(one, prompts={"web": "search: ", "law": "case: "}, default_prompt_name="web")
    np.testing.assert_array_equal(load(folder).score(SHORT), plain["search: "])
    np.testing.assert_array_equal(load(folder, prompt_name="law").score(SHORT), plain["case: "])
    np.testing.assert_allclose(load(folder).score(SHORT), theirs(folder, SHORT), atol=1e-5)


# --- ONNX ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [1, 3])
def test_a_graph_gives_what_pytorch_gives_in_any_shape(tmp_path: Path, minilm: Path, labels: int) -> None:
    folder = tiny(tmp_path / "torch", minilm, labels)
    graph = export_cross_encoder(folder, tmp_path / "onnx")
    expected = load(folder, max_length=64).score(SHORT)
    for rows, length in ((None, None), (1, 64), (2, None)):
        scorer = load(fix_shape(graph, tmp_path / f"{rows}x{length}", rows=rows, length=length), max_length=64)
        np.testing.assert_allclose(scorer.score(SHORT), expected, atol=1e-4)
        assert scorer.info.settings["label_names"] == NLI[:labels]
    assert load(graph).score([]).shape == load(folder).score([]).shape == expected[:0].shape
    (graph.parent / "config.json").unlink()
    np.testing.assert_allclose(load(graph).score(SHORT), loop(folder, SHORT).reshape(expected.shape), atol=1e-4)


# --- refusals, and what sentence-transformers runs -------------------------------------------------------------


def test_an_embedding_model_is_refused(minilm: Path, minilm_onnx: Path) -> None:
    for reference in (minilm, minilm_onnx):
        with pytest.raises(ModelError, match=r"cannot score pairs.*this is an embedding model"):
            load(reference)


@pytest.mark.parametrize("part", ["classifier", "pooler"])
def test_a_classifier_that_lacks_a_part_of_its_head_is_refused(one: Path, part: str) -> None:
    from safetensors.torch import load_file, save_file

    whole = load_file(one / "model.safetensors")
    save_file({k: v for k, v in whole.items() if part not in k}, one / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=f"lack 2 tensors, '.*{part}"):
        load(one)


def test_a_causal_reranker_goes_through_sentence_transformers(tmp_path: Path, minilm: Path) -> None:
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.cross_encoder.modules import LogitScore
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=30522, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, initializer_range=0.3,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(copy_tokenizer(minilm, tmp_path / "base"))
    base = Transformer(str(tmp_path / "base"), transformer_task="text-generation")
    head = LogitScore(true_token_id=2748, false_token_id=2053)
    CrossEncoder(modules=[base, head], device="cpu").save_pretrained(str(tmp_path / "m"))
    scorer = load(tmp_path / "m")
    assert "LogitScore" in scorer.info.settings["through"]
    np.testing.assert_allclose(scorer.score(SHORT * 2), theirs(tmp_path / "m", SHORT * 2), atol=1e-5)
    modules = tmp_path / "m" / "modules.json"
    modules.write_text(modules.read_text().replace("sentence_transformers.cross_encoder.modules.logit_score", "trap"))
    with pytest.raises(ModelError, match="`trust_remote_code`"):
        load(tmp_path / "m")


def test_a_cross_encoder_is_an_encoder_only_on_request(minilm: Path, tmp_path: Path) -> None:
    source = models.find(str(tiny(tmp_path / "m", minilm)))
    with pytest.raises(ModelError, match="a cross-encoder or classifier, and no embedding model: pass `pooling`"):
        models.load(source, ModelOptions())
    assert models.load(source, ModelOptions(pooling="mean")).info.settings["pooling"] == "mean"
