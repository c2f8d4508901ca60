"""One tokenizer: torch, ONNX and static models tokenize a folder's texts as sentence-transformers does."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calipers import models
from calipers.core import ModelError
from calipers.models import ModelOptions, tokenizer_files
from tests.support.build_models import make_bert
from tests.support.cross_encoders import tiny
from tests.support.exporting import export, export_cross_encoder
from tests.support.tokenizer_settings import TEXTS, with_graph, write_modules, write_static, write_tokenizer


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny encoder; beside it, in `graph`, its export."""
    folder = make_bert(tmp_path_factory.mktemp("bert"))
    export(folder, folder / "graph")
    return folder


@pytest.fixture(scope="module")
def scorer(minilm: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny cross-encoder; beside it, in `graph`, its export."""
    folder = tiny(tmp_path_factory.mktemp("scorer"), minilm)
    export_cross_encoder(folder, folder / "graph")
    return folder


def encode(reference: Path, texts: list[str] = TEXTS, **options: Any) -> np.ndarray:
    model: Any = models.load(models.find(str(reference)), ModelOptions(**options))
    return np.asarray(model.encode(texts))


def by_sentence_transformers(folder: Path) -> np.ndarray:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    prompt = (json.loads((folder / "config_sentence_transformers.json").read_text()).get("prompts") or {}).get("q", "")
    return np.stack([model.encode(text, prompt=prompt) for text in TEXTS])


def make(bert: Path, folder: Path, **case: Any) -> Path:
    """The tiny encoder in a folder of its own, with these settings."""
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(bert / name, folder)
    kind = case.get("kind", "BertTokenizer")
    own = {"tokenizer_class": kind} if kind else {}
    write_tokenizer(
        folder, cased=case.get("cased", True), added=case.get("added", []), **own, **case.get("tokenizer", {})
    )
    write_modules(
        folder,
        sentence=case.get("sentence", {}),
        name=case.get("name", "sentence_bert_config.json"),
        prompts=case.get("prompts", {}),
        pooling=case.get("pooling", {"pooling_mode_mean_tokens": True}),
    )
    return folder


def check(bert: Path, place: Path, **case: Any) -> None:
    folder = make(bert, place / "model", **case)
    expected = by_sentence_transformers(folder)
    np.testing.assert_allclose(encode(folder), expected, atol=1e-4)
    graph = with_graph(folder, bert / "graph" / "model.onnx", place / "onnx")
    np.testing.assert_allclose(encode(graph), expected, atol=1e-4)


CASES: dict[str, dict[str, Any]] = {
    "lower case in tokenizer_config.json": {"tokenizer": {"do_lower_case": True}},
    "cased in tokenizer_config.json": {"cased": False, "tokenizer": {"do_lower_case": False}},
    "no settings but the class": {},
    "accents": {"cased": False, "tokenizer": {"strip_accents": False}},
    "accents of a cased model": {"tokenizer": {"do_lower_case": False, "strip_accents": True}},
    "a token only in tokenizer_config.json": {"tokenizer": {"do_lower_case": False}, "added": ["<extra>"]},
    "a token of a plain tokenizer": {"kind": "PreTrainedTokenizerFast", "added": ["<extra>"]},
    "cut on the left": {"tokenizer": {"truncation_side": "left"}, "sentence": {"max_seq_length": 7}},
    "cut on the left, plain": {
        "kind": "PreTrainedTokenizerFast",
        "tokenizer": {"truncation_side": "left"},
        "sentence": {"max_seq_length": 7},
    },
    "an older file's length": {"name": "sentence_roberta_config.json", "sentence": {"max_seq_length": 6}},
    "an older file's case": {
        "kind": "PreTrainedTokenizerFast",
        "name": "sentence_distilbert_config.json",
        "sentence": {"do_lower_case": True},
    },
    "the length of a call": {"sentence": {"processing_kwargs": {"text": {"max_length": 6}}}},
    "a call without special tokens": {"sentence": {"processing_kwargs": {"common": {"add_special_tokens": False}}}},
    "arguments of the tokenizer": {"sentence": {"processor_kwargs": {"do_lower_case": True, "model_max_length": 9}}},
    "older arguments of the tokenizer": {
        "sentence": {"tokenizer_args": {"truncation_side": "left"}, "max_seq_length": 6}
    },
    "no class at all": {"kind": None},
    "no special tokens in tokenizer.json": {"tokenizer": {"template": False, "do_lower_case": False}},
    "another mark inside words": {"tokenizer": {"prefix": "@@", "do_lower_case": False}},
    "no special tokens, plain": {"kind": "PreTrainedTokenizerFast", "tokenizer": {"template": False}},
}


@pytest.mark.parametrize("name", list(CASES))
def test_torch_and_onnx_tokenize_as_sentence_transformers(name: str, bert: Path, tmp_path: Path) -> None:
    check(bert, tmp_path, **CASES[name])


@st.composite
def draw_settings(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["BertTokenizer", "BertTokenizerFast", "PreTrainedTokenizerFast", None]))
    tokenizer: dict[str, Any] = {
        "do_lower_case": st.booleans(),
        "strip_accents": st.sampled_from([None, True, False]),
        "truncation_side": st.sampled_from(["left", "right"]),
        "tokenize_chinese_chars": st.booleans(),
        "template": st.booleans(),
    }
    sentence = {"max_seq_length": st.integers(4, 20), "do_lower_case": st.booleans()}
    names = ("bert", "roberta", "xlm-roberta")
    prompts = draw(st.sampled_from([{}, {"q": "the Dog : "}, {"q": "É "}]))
    return {
        "kind": kind,
        "cased": draw(st.booleans()),
        "added": draw(st.sampled_from([[], ["<extra>"], ["x1", "<extra>"]])),
        "tokenizer": draw(st.fixed_dictionaries({}, optional=tokenizer)),
        "sentence": draw(st.fixed_dictionaries({}, optional=sentence)),
        "name": f"sentence_{draw(st.sampled_from(names))}_config.json",
        "prompts": prompts,
        "pooling": {"pooling_mode_mean_tokens": True, "include_prompt": draw(st.booleans())},
    }


@given(case=draw_settings())
@settings(max_examples=25)
def test_any_settings_give_the_same_vectors_in_torch_and_onnx(bert: Path, case: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as place:
        check(bert, Path(place), **case)


@given(cased=st.booleans(), truncation=st.sampled_from([None, 3, 9]), side=st.sampled_from(["left", "right"]))
@settings(max_examples=10)
def test_any_settings_give_the_vectors_of_static_embedding(cased: bool, truncation: int | None, side: str) -> None:
    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_tokenizer(folder, cased=cased, added=[])
        backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
        if truncation:
            backend.enable_truncation(truncation, direction=side)
        backend.save(str(folder / "tokenizer.json"))
        write_static(folder)
        expected = SentenceTransformer(str(folder), device="cpu", local_files_only=True).encode(TEXTS)
        np.testing.assert_allclose(encode(folder), expected, atol=1e-4)


@pytest.mark.parametrize(
    ("special", "added", "settings"),
    [
        ({"sep_token": "[CLS]"}, [], {}),
        ({"sep_token": "[CLS]"}, ["<extra>"], {}),  # beside added_tokens_decoder the older file does not count
        ({"cls_token": {"content": "[MASK]", "normalized": False}}, [], {}),
        ({"unk_token": "[PAD]"}, [], {}),
        ({"extra_special_tokens": ["<extra>"]}, [], {"extra_special_tokens": ["x1"]}),
        ({"sep_token": "[CLS]"}, [], {"tokenizer_class": "PreTrainedTokenizerFast"}),
    ],
)
def test_the_older_file_of_special_tokens_counts_as_in_transformers(
    special: dict[str, Any], added: list[str], settings: dict[str, Any], tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    write_tokenizer(tmp_path, cased=False, added=added, **{"tokenizer_class": "BertTokenizer", **settings})
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(special))
    backend = tokenizer_files.prepare(tmp_path).backend
    theirs = AutoTokenizer.from_pretrained(str(tmp_path), local_files_only=True)
    assert [backend.encode(text).ids for text in TEXTS] == [theirs(text)["input_ids"] for text in TEXTS]


@pytest.mark.parametrize("inputs", [["input_ids", "attention_mask"], ["input_ids", "token_type_ids", "attention_mask"]])
def test_a_pair_has_the_type_ids_that_its_tokenizer_names(inputs: list[str], scorer: Path, tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder

    folder = Path(shutil.copytree(scorer, tmp_path / "m", ignore=shutil.ignore_patterns("graph")))
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "model_input_names": inputs}))
    graph = with_graph(folder, scorer / "graph" / "model.onnx", tmp_path / "onnx")
    pairs = [("bread", "The bakery opens at seven."), ("a", "b")]
    expected = CrossEncoder(str(folder), device="cpu", local_files_only=True).predict(pairs)
    for place in (folder, graph):
        loaded: Any = models.load(models.find(str(place)), ModelOptions(), "score")
        np.testing.assert_allclose(loaded.score(pairs), expected, atol=1e-5)


def test_without_transformers_settings_that_it_would_apply_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    write_tokenizer(tmp_path, cased=True, added=[], tokenizer_class="BertTokenizer", do_lower_case=False)
    assert tokenizer_files.prepare(tmp_path).type_ids
    write_tokenizer(tmp_path, cased=True, added=[], tokenizer_class="BertTokenizer", do_lower_case=True)
    with pytest.raises(ModelError, match="needs transformers for do_lower_case"):
        tokenizer_files.prepare(tmp_path)


def test_the_arguments_of_the_config_are_applied(bert: Path, tmp_path: Path) -> None:
    folder = make(bert, tmp_path / "m", sentence={"config_kwargs": {"hidden_act": "relu"}})
    np.testing.assert_allclose(encode(folder), by_sentence_transformers(folder), atol=1e-5)
    plain = make(bert, tmp_path / "plain")
    assert np.abs(encode(folder) - encode(plain)).max() > 0.01


def test_what_only_sentence_transformers_honours_is_run_by_it(bert: Path, tmp_path: Path) -> None:
    sentence = {"processing_kwargs": {"text": {"truncation": False, "split_special_tokens": True}}}
    folder = make(bert, tmp_path / "m", sentence=sentence)
    np.testing.assert_allclose(encode(folder), by_sentence_transformers(folder), atol=1e-5)


@pytest.mark.parametrize("kind", ["custom_st.Transformer", "custom_st.Pooling"])
@pytest.mark.parametrize("backend", ["torch", "onnx"])
def test_a_module_of_the_models_own_is_refused(kind: str, backend: str, bert: Path, tmp_path: Path) -> None:
    folder = make(bert, tmp_path / "m")
    rows = json.loads((folder / "modules.json").read_text())
    rows["Pooling" in kind]["type"] = kind
    (folder / "modules.json").write_text(json.dumps(rows))
    place = folder if backend == "torch" else with_graph(folder, bert / "graph" / "model.onnx", tmp_path / "onnx")
    with pytest.raises(ModelError, match=kind):
        encode(place)


@pytest.mark.parametrize(
    "settings",
    [
        {"added_tokens_decoder": ["x"]},
        {"tokenizer_class": "BertTokenizer", "tokenize_chinese_chars": "no"},
        {"truncation_side": "top", "tokenizer_class": "TokenizersBackend"},
    ],
)
def test_settings_that_are_none_are_an_error_of_the_model(settings: dict[str, Any], tmp_path: Path) -> None:
    write_tokenizer(tmp_path, cased=False, added=[], **settings)
    with pytest.raises(ModelError):
        tokenizer_files.prepare(tmp_path)


def test_a_tokenizer_that_transformers_cannot_load_is_read_from_its_file(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, cased=False, added=[], tokenizer_class="T5Tokenizer")
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    assert tokenizer_files.prepare(tmp_path).backend.encode("the dog").ids == [2, 5, 7, 3]


@pytest.mark.parametrize(
    ("normalizer", "words"),
    [
        ([{"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}] * 40, "1.1e+12 times as long"),
        (
            [
                {
                    "type": "Sequence",
                    "normalizers": [{"type": "Replace", "pattern": {"Regex": "."}, "content": "b" * 9_999}],
                }
            ],
            "1e+04",
        ),
        ([{"type": "Precompiled", "precompiled_charsmap": "////////"}], "of its normalizer is damaged"),
    ],
)
@pytest.mark.parametrize("escaped", [False, True])
def test_a_normalizer_that_would_end_the_process_is_refused(
    normalizer: list[dict[str, Any]], words: str, escaped: bool, bert: Path, tmp_path: Path
) -> None:
    content = json.loads((bert / "tokenizer.json").read_text())
    text = json.dumps({**content, "normalizer": {"type": "Sequence", "normalizers": normalizer}})
    for word in ("Replace", "Precompiled") if escaped else ():
        text = text.replace(f'"{word}"', f'"\\u00{ord(word[0]):x}{word[1:]}"')
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(ModelError, match=re.escape(words)):
        tokenizer_files.load_backend(tmp_path)
