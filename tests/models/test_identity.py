"""One identity of a model: an ingredient that is changed alone changes every key that is made of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from calipers import models
from calipers.artifacts import api as artifacts
from calipers.artifacts.recipe import Recipe
from calipers.artifacts.records import BuildOptions
from calipers.core import RequestError
from calipers.interop.mteb import as_mteb
from calipers.models import ModelOptions, identity
from calipers.reliability import Trust
from calipers.reliability import api as reliability
from calipers.reliability.api import TrustOptions
from calipers.runs.vector_cache import VectorCache
from tests.support.build_models import make_bert
from tests.support.samples import write_jsonl
from tests.support.tokenizer_settings import write_modules, write_tokenizer

DOCUMENTS = [
    *("the dog runs", "a cat sleeps near the house", "the children read", "big old street", "small young park"),
    *("readers see the cats", "the Dog sees the garden", "not far and not near", "quick dogs run", "slow cats sleep"),
]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny encoder of sentence-transformers whose transformer has a folder of its own."""
    folder = tmp_path_factory.mktemp("identity")
    inner = make_bert(folder / "0_Transformer")
    write_tokenizer(inner, cased=False, added=[], tokenizer_class="BertTokenizer")
    pooling = {"pooling_mode_mean_tokens": True, "include_prompt": True}
    write_modules(folder, sentence={}, name="config.json", prompts={"query": "the "}, pooling=pooling)
    (folder / "config.json").unlink()
    rows = json.loads((folder / "modules.json").read_text())
    rows[0]["path"] = inner.name
    (folder / "modules.json").write_text(json.dumps(rows))
    (inner / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 32}))
    return folder


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    write_jsonl(folder / "corpus.jsonl", [{"_id": f"d{i}", "text": text} for i, text in enumerate(DOCUMENTS)])
    return folder


def edit(name: str, **entries: Any) -> Callable[[Path], None]:
    """A change of a JSON file."""

    def change(folder: Path) -> None:
        content = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**content, **entries}))

    return change


def other_weights(folder: Path) -> None:
    file = folder / "0_Transformer" / "model.safetensors"
    tensors = load_file(file)
    name = next(name for name in tensors if "word_embeddings" in name)
    save_file({**tensors, name: tensors[name] * np.float32(1.01)}, file, metadata={"format": "pt"})


def other_vocabulary(folder: Path) -> None:
    file = folder / "0_Transformer" / "tokenizer.json"
    content = json.loads(file.read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary["dog"], vocabulary["cat"] = vocabulary["cat"], vocabulary["dog"]
    file.write_text(json.dumps(content))


def normalized(folder: Path) -> None:
    rows = json.loads((folder / "modules.json").read_text())
    rows.append({"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"})
    (folder / "modules.json").write_text(json.dumps(rows))


FILES: dict[str, Callable[[Path], None]] = {
    "weights": other_weights,
    "config.json": edit("0_Transformer/config.json", hidden_act="relu"),
    "tokenizer.json": other_vocabulary,
    "tokenizer_config.json": edit("0_Transformer/tokenizer_config.json", do_lower_case=False),
    "the length": edit("0_Transformer/sentence_bert_config.json", max_seq_length=8),
    "the modules": normalized,
    "the pooling": edit("1_Pooling/config.json", pooling_mode_mean_tokens=False, pooling_mode_cls_token=True),
    "the prompt in the pooling": edit("1_Pooling/config.json", include_prompt=False),
    "the dimensions": edit("config_sentence_transformers.json", truncate_dim=8),
    "the prompts": edit("config_sentence_transformers.json", prompts={"query": "a "}, default_prompt_name="query"),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "prompt": {"prompt": "zzz "},
    "normalize": {"normalize": True},
    "max_length": {"max_length": 4},
    "pooling": {"pooling": "cls"},
    "dtype": {"dtype": "float16"},
    "truncate_dim": {"truncate_dim": "8"},
}
NOT_BUILT = ("dtype", "truncate_dim")  # options that a build does not take


def keys(folder: Path, corpus: Path, **options: Any) -> dict[str, str]:
    """The key of a run, of a build's stages, of vectors and of an mteb result."""
    model_options, source = ModelOptions(**options), models.find(str(folder))
    facts = json.dumps(identity.identity(source, model_options, "encode"), sort_keys=True, default=str)
    building = BuildOptions(model_options=ModelOptions(**{k: v for k, v in options.items() if k not in NOT_BUILT}))
    plan = artifacts.plan(str(folder), corpus / "out", Recipe("fp32"), building)
    return {
        "run and vectors": facts,
        "stages": f"{plan.source.fingerprint} {plan.rows.digest} {plan.source.pooling} {plan.source.normalize}",
        "mteb": as_mteb(str(folder), options=model_options).mteb_model_meta.revision,
    }


def copy(folder: Path, target: Path) -> Path:
    return Path(shutil.copytree(folder, target))


@pytest.mark.parametrize("name", list(FILES))
def test_a_file_that_changes_alone_changes_every_key(name: str, encoder: Path, corpus: Path, tmp_path: Path) -> None:
    before = keys(encoder, corpus)
    assert keys(copy(encoder, tmp_path / "same"), corpus) == before
    FILES[name](other := copy(encoder, tmp_path / "other"))
    after = keys(other, corpus)
    assert [key for key in before if before[key] == after[key]] == []


@pytest.mark.parametrize("name", list(OPTIONS))
def test_an_option_that_changes_alone_changes_every_key(name: str, encoder: Path, corpus: Path) -> None:
    before, after = keys(encoder, corpus), keys(encoder, corpus, **OPTIONS[name])
    assert {key for key in before if before[key] == after[key]} == ({"stages"} if name in NOT_BUILT else set())


@pytest.fixture(scope="module")
def fitted(encoder: Path, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("trust") / "t"
    reliability.trust(str(encoder), str(corpus), options=TrustOptions(k=3)).trust.save(file)
    return file


@pytest.mark.parametrize("name", [*FILES, *OPTIONS, "query_prompt"])
def test_a_trust_score_refuses_what_differs(
    name: str, fitted: Path, encoder: Path, corpus: Path, tmp_path: Path
) -> None:
    folder = copy(encoder, tmp_path / "m")
    FILES.get(name, lambda folder: None)(folder)
    prompt = "zzz " if name == "query_prompt" else None
    with pytest.raises(RequestError, match="files differ" if name in FILES else name):
        reliability.trust(
            str(folder),
            str(corpus),
            ["the dog"],
            options=TrustOptions(load=fitted, query_prompt=prompt),
            model_options=ModelOptions(**OPTIONS.get(name, {})),
        )


def test_a_trust_score_is_used_with_other_batches(fitted: Path, encoder: Path, corpus: Path) -> None:
    answer = reliability.trust(
        str(encoder),
        str(corpus),
        ["the dog"],
        options=TrustOptions(load=fitted),
        model_options=ModelOptions(batch_size=2, threads=1),
    )
    assert answer.notes == ()


def test_a_trust_score_of_an_earlier_version_opens_with_a_warning(
    fitted: Path, encoder: Path, corpus: Path, tmp_path: Path
) -> None:
    """Its fingerprint covered the weights alone, and it names no settings."""
    trust = Trust.load(fitted)
    about = {key: value for key, value in trust.about.items() if key != "model_settings"}
    replace(trust, about=about | {"model_fingerprint": "sha256:old"}).save(tmp_path / "old")
    answer = reliability.trust(str(encoder), str(corpus), ["the dog"], options=TrustOptions(load=tmp_path / "old"))
    (note,) = answer.notes
    assert "an earlier version" in note
    replace(trust, about=about | {"model_fingerprint": "sha256:old", "model": "another"}).save(tmp_path / "other")
    with pytest.raises(RequestError, match="fitted for another"):
        reliability.trust(str(encoder), str(corpus), ["the dog"], options=TrustOptions(load=tmp_path / "other"))


def by_id(folder: Path, ids: list[str]) -> Path:
    table = np.eye(len(ids), dtype=np.float32) + 0.1
    np.save(folder / "v.npy", table)
    (folder / "v.ids").write_text("\n".join(ids), encoding="utf-8")
    return folder / "v.npy"


@pytest.mark.parametrize("suffix", ["", "/document"])
def test_trust_takes_vectors_by_id_as_diagnose_names_them(suffix: str, corpus: Path, tmp_path: Path) -> None:
    file = by_id(tmp_path, [f"d{i}{suffix}" for i in range(len(DOCUMENTS))])
    answer = reliability.trust(str(file), str(corpus), options=TrustOptions(k=3))
    assert len(answer.corpus) == len(DOCUMENTS)


def test_vectors_by_id_follow_a_corpus_that_is_numbered_anew(tmp_path: Path) -> None:
    from calipers.runs import embedding

    cache = VectorCache(tmp_path / "cache")
    file = by_id(tmp_path, ["d0/document", "d1/document"])
    table = np.load(file)
    for ids in (["d0", "d1"], ["d1", "d0"]):
        names = {text: [f"{id}/document"] for text, id in zip(DOCUMENTS, ids, strict=False)}
        encoder, _ = embedding.open_encoder(str(file), names, ModelOptions(), cache)
        expected = table if ids[0] == "d0" else table[::-1]
        np.testing.assert_array_equal(encoder.encode(DOCUMENTS[:2]), expected)


def test_a_revision_is_refused_where_nothing_comes_from_the_hub(tmp_path: Path) -> None:
    source, pinned = models.Source("onnx", "./m", tmp_path), ModelOptions(revision="abc")
    with pytest.raises(RequestError, match=r"is for models of the hub, and \./m is on this machine"):
        models.load(source, pinned)
    (tmp_path / "m.onnx").write_bytes(b"")
    here, hub = str(tmp_path / "m.onnx"), "someone/model"
    assert models.options_beside(here, pinned, [here, hub]).revision is None
    assert models.options_beside(hub, pinned, [here, hub]) == pinned
    assert models.options_beside(here, pinned, [here]) == pinned  # and is refused when it is loaded
