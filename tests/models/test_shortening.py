"""Vectors cut to their first numbers: by the model's files and by the user, in every backend."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calipers import models
from calipers.core import Encoder, RequestError
from calipers.models import ModelOptions
from tests.support.endpoint import serving

TEXTS = ["The bakery opens at seven.", "a", "Rain is expected tonight."]


def load(reference: str | Path, **options: Any) -> Encoder:
    return models.load(models.find(str(reference)), ModelOptions(**options))  # type: ignore[return-value]


@pytest.fixture
def endpoint() -> Iterator[str]:
    with serving() as server:
        yield server.url


@pytest.fixture
def cut(minilm: Path, tmp_path: Path) -> Path:
    """all-MiniLM-L6-v2 whose files say 32."""
    folder = tmp_path / "cut"
    shutil.copytree(minilm, folder)
    file = folder / "config_sentence_transformers.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "truncate_dim": 32, "similarity_fn_name": "dot"}))
    return folder


def test_the_files_of_a_model_say_how_many_numbers_are_kept(cut: Path) -> None:
    from sentence_transformers import SentenceTransformer

    model = load(cut)
    theirs = SentenceTransformer(str(cut), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(model.encode(TEXTS), theirs, atol=2e-6)
    assert theirs.shape == (3, 32)
    assert model.info.settings["truncate_dim"] == 32
    assert model.info.settings["similarity_fn_name"] == "dot"


def test_the_option_overrides_the_files(cut: Path, minilm: Path) -> None:
    whole = load(minilm).encode(TEXTS)
    np.testing.assert_array_equal(load(cut, truncate_dim=8).encode(TEXTS), whole[:, :8])
    np.testing.assert_array_equal(load(cut, truncate_dim="all").encode(TEXTS), whole)
    assert "truncate_dim" not in load(cut, truncate_dim="all").info.settings


@pytest.mark.parametrize("backend", ["torch", "onnx", "static", "vectors", "http"])
def test_every_backend_keeps_the_first_numbers(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if backend == "vectors":
        np.save(tmp_path / "v.npy", np.random.default_rng(0).normal(size=(3, 12)).astype(np.float32))
        (tmp_path / "v.txt").write_text("\n".join(TEXTS))
        reference: Any = tmp_path / "v.npy"
    elif backend == "http":
        reference = request.getfixturevalue("endpoint")
    elif backend == "static":
        reference = request.getfixturevalue("model")("potion-base-4m-int8")
    else:
        reference = request.getfixturevalue({"torch": "minilm", "onnx": "minilm_onnx"}[backend])
    model = load(reference, truncate_dim=5)
    np.testing.assert_array_equal(model.encode(TEXTS), load(reference).encode(TEXTS)[:, :5])
    assert model.info.settings["truncate_dim"] == 5
    with pytest.raises(RequestError, match=r"`truncate_dim` must be at most .* the size of the vectors, found 9999"):
        load(reference, truncate_dim=9999).encode(TEXTS)
    with pytest.raises(RequestError, match=r"`truncate_dim` must be sizes above 0, .*, found '999"):
        load(reference, truncate_dim="9" * 5_000)


def test_a_requested_normalisation_comes_last(minilm: Path) -> None:
    lengths = np.linalg.norm(load(minilm, truncate_dim=16).encode(TEXTS), axis=1)
    assert (lengths < 0.9).all()
    lengths = np.linalg.norm(load(minilm, truncate_dim=16, normalize=True).encode(TEXTS), axis=1)
    np.testing.assert_allclose(lengths, 1.0, atol=1e-6)


@pytest.mark.parametrize("value", [0, -3, "", "x", "32,x", "32,32", "all,all", "1.5", True])
def test_a_size_that_is_none_is_refused(value: object) -> None:
    with pytest.raises(RequestError, match="`truncate_dim` must be sizes above 0"):
        ModelOptions(truncate_dim=value)  # type: ignore[arg-type]


def test_several_sizes_are_not_a_model(minilm: Path) -> None:
    assert ModelOptions(truncate_dim="64,32").sizes == (32, 64)
    with pytest.raises(RequestError, match="several sizes for sentence-similarity and retrieval only"):
        load(minilm, truncate_dim="32,64,all")
