"""Static models against model2vec and sentence-transformers, whose rules differ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers import models as tokenizer_models

from calipers import models
from calipers.core import ModelError, RequestError
from calipers.models import ModelOptions
from tests.support.tokenizer_settings import TEXTS, write_static, write_tokenizer

LONG = " ".join(["the dog sees the cat near the house"] * 80)


def encode(reference: str | Path, texts: list[str], **options: Any) -> np.ndarray:
    model: Any = models.load(models.find(str(reference)), ModelOptions(**options))
    return np.asarray(model.encode(texts))


def by_sentence_transformers(folder: Path, texts: list[str]) -> np.ndarray:
    from sentence_transformers import SentenceTransformer

    return np.asarray(SentenceTransformer(str(folder), device="cpu", local_files_only=True).encode(texts))


def by_model2vec(folder: Path, texts: list[str]) -> np.ndarray:
    from model2vec import StaticModel

    return StaticModel.from_pretrained(folder).encode(texts)


def test_static_embedding_keeps_long_texts_and_unknown_tokens(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, cased=False, added=[])
    write_static(tmp_path)
    texts = [*TEXTS, LONG, f"{LONG} zebra zebra"]
    np.testing.assert_allclose(encode(tmp_path, texts), by_sentence_transformers(tmp_path, texts), atol=1e-5)
    assert np.abs(encode(tmp_path, [LONG]) - encode(tmp_path, [LONG], max_length=5)).max() > 0.01


def test_a_dense_layer_behind_it_is_run(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, StaticEmbedding

    write_tokenizer(tmp_path, cased=False, added=[])
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=8), Dense(8, 3)]).save(str(tmp_path / "m"))
    expected = by_sentence_transformers(tmp_path / "m", TEXTS)
    np.testing.assert_allclose(encode(tmp_path / "m", TEXTS), expected, atol=1e-5)
    with pytest.raises(ModelError, match="Dense"):
        encode(f"static:{tmp_path / 'm'}", TEXTS)
    with pytest.raises(RequestError, match="max_length"):
        encode(tmp_path / "m", TEXTS, max_length=4)


@pytest.mark.parametrize("config", [{}, {"max_length": 4}, {"max_length": None}, {"max_length": 6, "normalize": True}])
def test_model2vec_cuts_where_its_config_says(config: dict[str, Any], tmp_path: Path) -> None:
    write_tokenizer(tmp_path, cased=False, added=[])
    write_static(tmp_path, kind="model2vec", **config)
    texts = [*TEXTS, LONG]
    np.testing.assert_allclose(encode(tmp_path, texts), by_model2vec(tmp_path, texts), atol=1e-5)


@pytest.mark.parametrize("length", ["", [], 0, 1.5, "4"])
def test_a_length_that_is_none_is_an_error_of_the_model(length: object, tmp_path: Path) -> None:
    write_tokenizer(tmp_path, cased=False, added=[])
    write_static(tmp_path, kind="model2vec", max_length=length)
    with pytest.raises(ModelError, match="expected a whole number from 1 on"):
        encode(tmp_path, TEXTS)


def test_model2vec_leaves_the_unknown_pieces_of_a_unigram_tokenizer_out(tmp_path: Path) -> None:
    scores = [("<unk>", 0.0), ("▁the", -1.0), ("▁dog", -1.5), ("▁", -3.0), ("s", -2.0)]
    tokenizer = Tokenizer(tokenizer_models.Unigram(scores, unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    write_static(tmp_path, kind="model2vec")
    texts = ["the dogs", "the zebra", "zebra"]
    np.testing.assert_allclose(encode(tmp_path, texts), by_model2vec(tmp_path, texts), atol=1e-5)


def test_a_table_in_a_modules_own_folder_is_read(tmp_path: Path) -> None:
    inner = tmp_path / "0_StaticEmbedding"
    inner.mkdir()
    write_tokenizer(inner, cased=False, added=[])
    write_static(inner)
    rows = json.loads((inner / "modules.json").read_text())
    rows[0]["path"] = inner.name
    (tmp_path / "modules.json").write_text(json.dumps(rows))
    (inner / "modules.json").unlink()
    np.testing.assert_allclose(encode(tmp_path, TEXTS), by_sentence_transformers(tmp_path, TEXTS), atol=1e-5)
