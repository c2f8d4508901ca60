"""The token embeddings before the head of a graph are those that PyTorch gives without the head."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calipers.core import ModelError
from calipers.models import ModelOptions, load_model
from tests.support.cross_encoders import copy_tokenizer, tiny
from tests.support.exporting import export_cross_encoder, export_masked_lm

transformers = pytest.importorskip("transformers")

TEXTS = ["bread", "The old bakery opens at seven and sells warm bread.", "It rains."]
SIZES: dict[str, dict[str, object]] = {
    "bert": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48},
}
SIZES["albert"] = SIZES["bert"] | {"embedding_size": 16, "hidden_act": "gelu_new"}


def make(kind: str, head: str, folder: Path, tokenizer: Path) -> Path:
    """A model with random weights, wide enough that a mistake shows."""
    import torch

    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **SIZES[kind], vocab_size=30522, initializer_range=0.3)
    getattr(transformers, head).from_config(config).save_pretrained(copy_tokenizer(tokenizer, folder))
    return folder


def same_vectors(folder: Path, graph: Path, pooling: str) -> None:
    options = ModelOptions(pooling=pooling, max_length=64)
    with_torch, with_onnx = (load_model(f"{at}", options=options) for at in (folder, graph))
    assert "an embedding model was expected" in " ".join(with_onnx.info.notes)
    expected, vectors = with_torch.encode(TEXTS), with_onnx.encode(TEXTS)  # type: ignore[attr-defined]
    np.testing.assert_allclose(vectors, expected, atol=2e-5)


SLOW = {"marks": pytest.mark.slow}  # an export each


@pytest.mark.parametrize("kind", ["bert", pytest.param("albert", **SLOW), pytest.param("distilbert", **SLOW)])
def test_the_states_of_a_masked_language_model(kind: str, minilm: Path, tmp_path: Path) -> None:
    folder = make(kind, "AutoModelForMaskedLM", tmp_path / "torch", minilm)
    same_vectors(folder, export_masked_lm(folder, tmp_path / "graph"), "mean")


@pytest.mark.parametrize("labels", [3, pytest.param(1, **SLOW)])
def test_the_states_of_a_cross_encoder(labels: int, minilm: Path, tmp_path: Path) -> None:
    """Without a config it is refused by its outputs."""
    folder = tiny(tmp_path / "torch", minilm, labels)
    graph = export_cross_encoder(folder, tmp_path / "graph")
    same_vectors(folder, graph, "cls")
    (graph.parent / "config.json").unlink()
    with pytest.raises(ModelError, match="a cross-encoder or classifier, and no embedding model: pass `pooling` mean"):
        load_model(str(graph))


@pytest.mark.slow
def test_an_export_without_the_head_is_still_of_a_masked_language_model(minilm: Path, tmp_path: Path) -> None:
    from tests.support.exporting import export

    folder = make("bert", "AutoModelForMaskedLM", tmp_path / "torch", minilm)
    graph = export(folder, tmp_path / "graph")
    with pytest.raises(ModelError, match="BertForMaskedLM, a masked language model, and no embedding model"):
        load_model(str(graph))
    same_vectors(folder, graph, "mean")
