"""Prompts: one contract for every encoder, and sentence-transformers as the reference where pooling leaves them out."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from calipers import models
from calipers.core import Encoder, RequestError
from calipers.core.choices import POOLINGS
from calipers.models import ModelOptions
from calipers.models.heads import pool
from calipers.tasks import retrieval
from tests.support.endpoint import serving
from tests.support.tiny_graphs import tiny

TEXTS = ["fresh bread", "a", "Rain is expected tonight, with strong winds along the coast.", "fresh bread"]
NAMED = {"query": "query: ", "passage": "passage: "}


def load(reference: str | Path, **options: Any) -> Encoder:
    return models.load(models.find(str(reference)), ModelOptions(**options))  # type: ignore[return-value]


def copy(source: Path, target: Path, **general: Any) -> Path:
    """A model's folder whose files speak of prompts. What is not written is a link."""
    shutil.copytree(source, target, copy_function=os.symlink)
    (target / "config_sentence_transformers.json").unlink(missing_ok=True)
    (target / "config_sentence_transformers.json").write_text(json.dumps(general))
    return target


def leave_prompts_out(folder: Path, pooling: str) -> Path:
    file = folder / "1_Pooling" / "config.json"
    file.unlink()
    file.write_text(json.dumps({"embedding_dimension": 384, "pooling_mode": pooling, "include_prompt": False}))
    return folder


@pytest.fixture(scope="module")
def dense(minilm: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that sentence-transformers runs for us."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense

    network = SentenceTransformer(str(minilm), device="cpu", prompts=NAMED, default_prompt_name="query")
    network.append(Dense(in_features=384, out_features=16))
    network.save(str(tmp_path_factory.mktemp("dense")))
    return Path(tmp_path_factory.getbasetemp()) / "dense0"


@pytest.fixture(params=["torch", "modules", "onnx", "static", "http"])
def own(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Encoder]:
    """An encoder of each backend with `query: ` as its own prompt."""
    if request.param == "http":
        with serving() as endpoint:
            yield load(f"{endpoint.url}/v1", prompt="query: ")
        return
    places = {
        "torch": lambda: request.getfixturevalue("minilm"),
        "modules": lambda: request.getfixturevalue("dense"),
        "onnx": lambda: request.getfixturevalue("minilm_onnx").parent,
        "static": lambda: request.getfixturevalue("model")("potion-base-4m-int8"),
    }
    yield load(copy(places[request.param](), tmp_path / "own", prompts=NAMED, default_prompt_name="query"))


def test_a_prompt_stands_before_the_text_instead_of_the_models_own(own: Encoder) -> None:
    plain = own.encode(["x " + text for text in TEXTS], prompt="")
    np.testing.assert_allclose(own.encode(TEXTS, prompt="x "), plain, atol=1e-6)
    default = own.encode(["query: " + text for text in TEXTS], prompt="")
    np.testing.assert_allclose(own.encode(TEXTS), default, atol=1e-6)
    assert np.abs(default - plain).max() > 1e-3
    assert own.info.settings["prompt"] == "query: "


def test_the_named_prompts_are_told_unless_the_user_chose_one(own: Encoder) -> None:
    if own.info.backend == "http":
        assert "prompts" not in own.info.settings  # an endpoint has no files
        return
    assert own.info.settings["prompts"] == NAMED
    folder = Path(own.info.path or "")
    folder = folder.parent if folder.is_file() else folder
    for asked in ({"prompt": ""}, {"prompt_name": "passage"}):
        assert "prompts" not in load(folder, **asked).info.settings
    assert (load(folder, prompt="").encode(TEXTS) == own.encode(TEXTS, prompt="")).all()


def test_queries_and_passages_are_encoded_as_sentence_transformers_encodes_them(minilm: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    folder = copy(minilm, tmp_path / "m", prompts={**NAMED, "text": "text: "}, default_prompt_name="text")
    theirs, ours = SentenceTransformer(str(folder), device="cpu"), load(folder)
    query, passage = retrieval.prompts(ours.info, retrieval.RetrievalOptions())
    np.testing.assert_allclose(ours.encode(TEXTS, prompt=query), theirs.encode_query(TEXTS), atol=2e-6)
    # Theirs has an empty prompt "document" where the files name none, and takes it before "passage".
    wanted = theirs.encode_document(TEXTS, prompt_name="passage")
    np.testing.assert_allclose(ours.encode(TEXTS, prompt=passage), wanted, atol=2e-6)
    np.testing.assert_allclose(ours.encode(TEXTS), theirs.encode(TEXTS), atol=2e-6)


@pytest.mark.parametrize("pooling", ["mean", "cls", "max", "lasttoken", "weightedmean", "mean_sqrt_len_tokens"])
def test_a_prompt_that_pooling_leaves_out_is_left_out(
    minilm: Path, minilm_onnx: Path, tmp_path: Path, pooling: str
) -> None:
    from sentence_transformers import SentenceTransformer

    folder = leave_prompts_out(copy(minilm, tmp_path / "m"), pooling)
    theirs = SentenceTransformer(str(folder), device="cpu")
    graph = load(leave_prompts_out(copy(minilm_onnx.parent, tmp_path / "g"), pooling))
    ours = load(folder)
    for prompt in ("Represent the sentence: ", "x", ""):
        wanted = theirs.encode(TEXTS, prompt=prompt)
        np.testing.assert_allclose(ours.encode(TEXTS, prompt=prompt), wanted, atol=2e-6)
        np.testing.assert_allclose(load(folder, prompt=prompt).encode(TEXTS), wanted, atol=2e-6)
        np.testing.assert_allclose(graph.encode(TEXTS, prompt=prompt), wanted, atol=2e-5)


def test_a_graph_that_pools_cannot_leave_a_prompt_out(minilm: Path, tmp_path: Path) -> None:
    graph = tiny(tmp_path / "g", minilm, inputs={"input_ids": TensorProto.INT64}, output="pooled")
    shutil.copytree(minilm / "1_Pooling", tmp_path / "g" / "1_Pooling")
    shutil.copy(minilm / "modules.json", tmp_path / "g")
    leave_prompts_out(tmp_path / "g", "mean")
    assert load(graph).encode(["bread"], prompt="").shape == (1, 8)
    with pytest.raises(RequestError, match="without its prompt in the pooling, and its graph pools all tokens"):
        load(graph).encode(["bread"], prompt="query: ")


def test_a_graph_says_which_modules_it_lacks(dense: Path, minilm_onnx: Path) -> None:
    assert "name Dense, which is not in the graph" in load(minilm_onnx, model_id=str(dense)).info.notes[0]
    assert load(minilm_onnx).info.notes == ()


def test_vectors_that_are_computed_take_no_prompt(vectors: Path) -> None:
    for prompt in ("query: ", ""):
        with pytest.raises(RequestError, match=r"a prompt does not apply to .*: its vectors are already computed"):
            load(vectors).encode(["Rain is expected tonight."], prompt=prompt)


def test_pooling_of_what_a_prompt_leaves() -> None:
    tokens = np.array([[[2.0], [4.0], [9.0], [7.0]]], np.float32)
    mask = np.array([[1, 1, 1, 0]])
    found = {mode: pool(tokens, mask, mode, skip=1)[0, 0] for mode in POOLINGS}
    # Weights of the tokens' places, 2 and 3; a sum over the root of 2.
    weighted, root = pytest.approx(35 / 5), pytest.approx(13 / 2**0.5)
    assert found == {
        "mean": 6.5,
        "cls": 4.0,
        "max": 9.0,
        "last": 9.0,
        "weightedmean": weighted,
        "mean_sqrt_len_tokens": root,
    }
    assert pool(tokens, mask, "mean", skip=3).tolist() == [[0.0]]
