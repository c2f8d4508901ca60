"""No code of a model runs, nothing is unpickled and nothing blocks without permission, at any depth of its folder."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from calipers.core import ModelError
from calipers.models import ModelOptions, find
from calipers.models.layout import known_class
from calipers.models.safety import check_folder

FIRST = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}


@pytest.fixture
def folder(tiny_bert: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_bert, tmp_path / "model"))


def check(folder: Path, **options: Any) -> None:
    check_folder(find(f"torch:{folder}"), folder, ModelOptions(**options))


@pytest.mark.parametrize(
    "name",
    [
        "evil.Evil", "sentence_transformers.evil.Evil", "sentence_transformers.models.evil.Pooling",
        "sentence_transformersX.models.Pooling", "sentence_transformers.models.LambdaTokenPooling", "os.system",
        "sentence_transformers.util.import_from_string", "sentence_transformers.models..Pooling", "Pooling",
    ],
)  # fmt: skip
def test_only_listed_classes_are_known(name: str, folder: Path) -> None:
    assert known_class(name) is None
    (folder / "modules.json").write_text(json.dumps([FIRST, {"path": "1", "type": name}]))
    with pytest.raises(ModelError, match="code of its own"):
        check(folder)
    check(folder, trust_remote_code=True)


@pytest.mark.parametrize(
    "name",
    [
        "sentence_transformers.models.Pooling", "sentence_transformers.models.Pooling.Pooling",
        "sentence_transformers.sentence_transformer.modules.static_embedding.StaticEmbedding",
        "sentence_transformers.base.modules.dense.Dense", "sentence_transformers.sparse_encoder.models.SpladePooling",
    ],
)  # fmt: skip
def test_classes_of_sentence_transformers_pass(name: str) -> None:
    assert known_class(name) == name.rsplit(".", 1)[-1]


@pytest.mark.parametrize("place", ["", "1_Dense", "a/b/Dense"])
def test_a_pickle_is_refused_at_any_depth(place: str, folder: Path) -> None:
    (folder / place).mkdir(parents=True, exist_ok=True)
    (folder / place / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    if not place:
        (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="unpickling can run code"):
        check(folder)
    check(folder, allow_pickle=True)


@pytest.mark.parametrize(("shard", "words"), [("evil.bin", "unpickling"), ("../evil.safetensors", "leads out")])
def test_an_index_names_safe_files_of_the_folder_only(shard: str, words: str, folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": shard}}))
    with pytest.raises(ModelError, match=words):
        check(folder)


@pytest.mark.parametrize("name", ["tokenizer.json", "deep/notes.txt"])
def test_a_pipe_is_refused_and_not_opened(name: str, folder: Path) -> None:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    with pytest.raises(ModelError, match="found a pipe"):
        check(folder)


def test_an_activation_of_a_nested_module_is_not_imported(folder: Path) -> None:
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "config.json").write_text(json.dumps({"activation_function": "evil.Evil"}))
    with pytest.raises(ModelError, match="nothing that a model names is imported"):
        check(folder)


@pytest.mark.parametrize("values", [{"num_hidden_layers": 10**5}, {"text_config": {"n_layer": 1e300}}, {"depth": 2001}])
def test_a_network_of_endless_layers_is_not_built(values: dict[str, Any], folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **values}))
    with pytest.raises(ModelError, match="expected at most 2,000"):
        check(folder)
