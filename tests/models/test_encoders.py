"""One contract for every backend, and what is particular to torch and static models."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from calipers import models
from calipers.core import Encoder, ModelError, RequestError
from calipers.core.choices import POOLINGS
from calipers.models import ModelOptions
from calipers.models.layout import open_tokenizer, read_layout
from tests.support.build_models import make_bert
from tests.support.masked_models import make_tokenizer

TEXTS = [
    "The bakery opens at seven.",
    "a",
    "The bakery opens at seven.",
    "Rain is expected tonight, with strong winds along the coast and some snow on higher ground, say forecasters.",
    "朝の便は欠航になりました。",
    "  spaces   inside and around  ",
]


def load(reference: str | Path, **options: object) -> Encoder:
    return models.load(models.find(str(reference)), ModelOptions(**options))  # type: ignore[arg-type]


class Recorder:
    def __init__(self) -> None:
        self.total = self.done = 0

    def start(self, label: str, total: int) -> None:
        self.total = total

    def advance(self, count: int) -> None:
        self.done += count


@pytest.fixture(scope="session")
def torch_minilm(minilm: Path) -> Encoder:
    return load(minilm)


@pytest.fixture(params=["torch", "onnx", "static", "vectors"])
def encoder(request: pytest.FixtureRequest, tmp_path: Path) -> Encoder:
    if request.param == "torch":
        return request.getfixturevalue("torch_minilm")
    if request.param == "onnx":
        return load(request.getfixturevalue("minilm_onnx"))
    if request.param == "static":
        return load(request.getfixturevalue("model")("potion-base-4m-int8"))
    distinct = list(dict.fromkeys(TEXTS))
    np.save(tmp_path / "v.npy", np.random.default_rng(0).normal(size=(len(distinct), 4)).astype(np.float32))
    (tmp_path / "v.txt").write_text("\n".join(distinct), encoding="utf-8")
    return load(tmp_path / "v.npy")


class TestContract:
    def test_one_float32_row_per_text(self, encoder: Encoder) -> None:
        vectors = encoder.encode(TEXTS)
        assert vectors.dtype == np.float32
        assert vectors.shape[0] == len(TEXTS)
        assert np.isfinite(vectors).all()

    def test_repeated_texts_have_the_same_bits(self, encoder: Encoder) -> None:
        vectors = encoder.encode(TEXTS)
        np.testing.assert_array_equal(vectors[0], vectors[2])

    def test_the_order_is_the_one_asked(self, encoder: Encoder) -> None:
        np.testing.assert_allclose(encoder.encode(TEXTS[::-1])[::-1], encoder.encode(TEXTS), atol=1e-6)

    def test_the_same_request_gives_the_same_bits(self, encoder: Encoder) -> None:
        np.testing.assert_array_equal(encoder.encode(TEXTS), encoder.encode(TEXTS))

    def test_alone_or_in_company_a_text_has_the_same_vector(self, encoder: Encoder) -> None:
        together = encoder.encode(TEXTS)
        np.testing.assert_allclose([encoder.encode([text])[0] for text in TEXTS], together, atol=2e-6)

    def test_progress_ends_at_its_total(self, encoder: Encoder) -> None:
        progress = Recorder()
        encoder.encode(TEXTS, progress=progress)
        assert progress.done == progress.total

    def test_it_says_what_it_is(self, encoder: Encoder) -> None:
        info = encoder.info
        assert info.backend in models.BACKENDS
        assert info.model_id
        assert info.fingerprint.startswith("sha256:")
        json.dumps(dict(info.settings), allow_nan=False)


def test_torch_gives_what_sentence_transformers_gives(minilm: Path, torch_minilm: Encoder) -> None:
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(minilm), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(torch_minilm.encode(TEXTS), theirs, atol=2e-6)


@pytest.mark.parametrize("options", [{"batch_size": 1}, {"batch_size": 7}, {"batch_tokens": 64}, {"threads": 1}])
def test_batches_and_threads_do_not_matter(minilm: Path, torch_minilm: Encoder, options: dict[str, int]) -> None:
    np.testing.assert_allclose(load(minilm, **options).encode(TEXTS), torch_minilm.encode(TEXTS), atol=1e-6)


def test_torch_leaves_the_number_of_threads_as_it_was(torch_minilm: Encoder) -> None:
    import torch

    before = torch.get_num_threads()
    torch_minilm.encode(TEXTS)
    assert torch.get_num_threads() == before
    assert threading.active_count() < 20


def test_models_in_several_threads_leave_the_number_of_threads_as_it_was() -> None:
    """Two computations that overlap: the first to begin ends first, and the second one saw the first one's setting."""
    import torch

    from calipers.metrics.threads import torch_threads

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        first, second = torch_threads(1), torch_threads(1)
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert torch.get_num_threads() == 1
        second.__exit__(None, None, None)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_every_pooling_equals_a_plain_loop(minilm: Path, pooling: str) -> None:
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer, network = AutoTokenizer.from_pretrained(minilm), AutoModel.from_pretrained(minilm).eval()
    ways = {
        "mean": lambda h: h.mean(0),
        "cls": lambda h: h[0],
        "max": lambda h: h.max(0).values,
        "last": lambda h: h[-1],
        "weightedmean": lambda h: sum(place * h[place - 1] for place in range(1, len(h) + 1)) / sum(range(len(h) + 1)),
        "mean_sqrt_len_tokens": lambda h: h.sum(0) / len(h) ** 0.5,
    }
    with torch.inference_mode():
        wanted = [
            ways[pooling](network(**tokenizer(t, return_tensors="pt")).last_hidden_state[0]).numpy() for t in TEXTS
        ]
    found = load(minilm, pooling=pooling, normalize=False).encode(TEXTS)
    np.testing.assert_allclose(found, wanted, atol=2e-5)


@pytest.fixture
def copy(minilm: Path, tmp_path: Path) -> Path:
    """The model's folder, to be changed. The weights are a link."""
    target = tmp_path / "copy"
    shutil.copytree(minilm, target, ignore=shutil.ignore_patterns("*.safetensors"))
    (target / "model.safetensors").symlink_to(minilm / "model.safetensors")
    return target


def test_prompts_length_and_case_come_from_the_models_files(copy: Path, torch_minilm: Encoder) -> None:
    (copy / "config_sentence_transformers.json").write_text(
        json.dumps({"prompts": {"query": "query: ", "passage": "passage: "}, "default_prompt_name": "query"})
    )
    (copy / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 6, "do_lower_case": True}))
    found = load(copy)
    assert found.info.settings["prompt"] == "query: "
    assert found.info.settings["max_length"] == 6
    # [CLS] query : fresh bread [SEP]: the rest is cut off.
    wanted = torch_minilm.encode(["query: fresh bread"])
    np.testing.assert_allclose(found.encode(["Fresh BREAD from the bakery"]), wanted, atol=1e-6)
    assert load(copy, prompt_name="passage").info.settings["prompt"] == "passage: "
    with pytest.raises(RequestError, match=r"no prompt named 'title'.*passage, query"):
        load(copy, prompt_name="title")


@pytest.mark.parametrize(
    "config",
    [
        {"word_embedding_dimension": 384, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False},
        {"embedding_dimension": 384, "pooling_mode": "cls", "include_prompt": True},
    ],
    ids=["old format", "new format"],
)
def test_pooling_comes_from_the_models_files(copy: Path, minilm: Path, config: dict[str, object]) -> None:
    (copy / "1_Pooling" / "config.json").write_text(json.dumps(config))
    found = load(copy)
    assert found.info.settings["pooling"] == "cls"
    np.testing.assert_allclose(found.encode(TEXTS), load(minilm, pooling="cls").encode(TEXTS), atol=1e-6)


def test_without_a_normalise_module_vectors_keep_their_length(copy: Path) -> None:
    modules = json.loads((copy / "modules.json").read_text())
    (copy / "modules.json").write_text(json.dumps(modules[:2]))
    assert not np.allclose(np.linalg.norm(load(copy).encode(TEXTS), axis=1), 1, atol=0.1)
    assert np.linalg.norm(load(copy, normalize=True).encode(TEXTS), axis=1) == pytest.approx(np.ones(len(TEXTS)))


def test_a_model_with_a_dense_module_goes_through_sentence_transformers(minilm: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense

    theirs = SentenceTransformer(str(minilm), device="cpu")
    theirs.append(Dense(in_features=384, out_features=16))
    theirs.save(str(tmp_path / "dense"))
    ours = load(tmp_path / "dense")
    assert ours.info.settings["through"] == "sentence-transformers"
    assert ours.encode(TEXTS).shape == (len(TEXTS), 16)
    np.testing.assert_allclose(ours.encode(TEXTS), theirs.encode(TEXTS), atol=2e-6)
    for option in ({"pooling": "cls"}, {"batch_tokens": 64}):
        with pytest.raises(RequestError, match=f"`{next(iter(option))}`"):
            load(tmp_path / "dense", **option)


def test_half_precision_weights_are_loaded_as_float32_unless_asked(minilm: Path, copy: Path) -> None:
    from safetensors.numpy import load_file, save_file

    whole = load_file(minilm / "model.safetensors")
    halves = {name: t.astype(np.float16) if t.dtype == np.float32 else t for name, t in whole.items()}
    (copy / "model.safetensors").unlink()
    save_file(halves, copy / "model.safetensors", metadata={"format": "pt"})
    (copy / "config.json").write_text((copy / "config.json").read_text().replace("{", '{"dtype": "float16",', 1))
    import torch

    assert next(load(copy).network.model.parameters()).dtype == torch.float32  # type: ignore[attr-defined]
    half = load(copy, dtype="float16").network.model  # type: ignore[attr-defined]
    assert next(half.parameters()).dtype == torch.float16


def test_pickled_weights_need_a_word(minilm: Path, copy: Path, torch_minilm: Encoder) -> None:
    import torch
    from safetensors.torch import load_file

    (copy / "model.safetensors").unlink()
    torch.save(load_file(minilm / "model.safetensors"), copy / "pytorch_model.bin")
    with pytest.raises(ModelError, match="`allow_pickle`"):
        load(copy)
    np.testing.assert_array_equal(load(copy, allow_pickle=True).encode(TEXTS), torch_minilm.encode(TEXTS))


def test_code_of_a_model_runs_only_when_it_is_trusted(copy: Path, tmp_path: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    mark = tmp_path / "the-code-was-run"
    (copy / "own.py").write_text(
        f"open({str(mark)!r}, 'w').close()\nfrom transformers import BertModel\nclass Own(BertModel): pass\n"
    )
    (copy / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoModel": "own.Own"}}))
    with pytest.raises(ModelError, match="`trust_remote_code`"):
        load(copy)
    assert not mark.exists()
    load(copy, trust_remote_code=True)
    assert mark.exists()
    (copy / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoModel": "other/repo--own.Own"}}))
    with pytest.raises(ModelError, match=r"`ModelOptions\.revision`"):
        load(copy, trust_remote_code=True)


def test_weights_that_lack_a_layer_are_refused(minilm: Path, copy: Path) -> None:
    from safetensors.numpy import load_file, save_file

    tensors = load_file(minilm / "model.safetensors")
    kept = {name: t for name, t in tensors.items() if "layer.3.output" not in name}
    (copy / "model.safetensors").unlink()
    save_file(kept, copy / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match="lack 4 tensors"):
        load(copy)


def test_a_hub_id_is_found_in_the_hubs_cache(minilm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache laid out as the hub's: blobs, a snapshot of symlinks, and a ref; no network."""
    commit = "c0ffee" + "0" * 34
    cache = tmp_path / "hub" / "models--some-team--some-model"
    (cache / "refs").mkdir(parents=True)
    (cache / "refs" / "main").write_text(commit)
    for file in (f for f in minilm.rglob("*") if f.is_file()):
        link = cache / "snapshots" / commit / file.relative_to(minilm)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    found = load("some-team/some-model")
    assert found.info.model_id == "some-team/some-model"
    assert found.encode(["bread"]).shape == (1, 384)
    with pytest.raises(ModelError, match="some-team/other"):
        load("some-team/other")


def test_tokens_are_those_of_transformers(minilm: Path) -> None:
    from transformers import AutoTokenizer

    wanted = AutoTokenizer.from_pretrained(minilm)(TEXTS)["input_ids"]
    found = open_tokenizer(read_layout(minilm), max_length=256).encode(TEXTS)
    assert [row.ids.tolist() for row in found] == wanted


def test_static_gives_what_model2vec_gives(model: Callable[[str], Path]) -> None:
    from model2vec import StaticModel

    folder = model("potion-base-4m-int8")
    texts = [*TEXTS, "zzqx ☃ 犬", "word " * 700]
    wanted = StaticModel.from_pretrained(folder).encode(texts)
    np.testing.assert_allclose(load(folder).encode(texts), wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("reference", "backend"),
    [
        ("http://host/v1", "http"),
        ("org/model", "torch"),
        ("org/model/onnx/model.onnx", "onnx"),
        ("onnx:org/model", "onnx"),
    ],
)
def test_a_reference_tells_its_backend(reference: str, backend: str) -> None:
    assert models.find(reference).backend == backend


POSITIONS = {"max_position_embeddings": 20, "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 1}
HEADS = {"num_attention_heads": 4, "intermediate_size": 48, "pad_token_id": 0}
FAMILIES: dict[str, dict[str, object]] = {
    "gpt2": {"vocab_size": 64, "n_positions": 19, "n_embd": 32, "n_layer": 1, "n_head": 4},
    "data2vec-text": {**POSITIONS, **HEADS},
    "esm": {**POSITIONS, **HEADS, "position_embedding_type": "absolute"},
    "lilt": {**POSITIONS, **HEADS, "hidden_size": 48, "channel_shrink_ratio": 2},
}


@pytest.mark.parametrize("family", list(FAMILIES))
def test_a_text_beyond_the_positions_is_cut(family: str, tmp_path: Path) -> None:
    import torch
    from transformers import AutoConfig, AutoModel

    torch.manual_seed(0)
    AutoModel.from_config(AutoConfig.for_model(family, **FAMILIES[family])).save_pretrained(tmp_path)
    make_tokenizer(tmp_path)
    long = "the dog runs near the house . " * 20
    np.testing.assert_array_equal(load(tmp_path).encode([long]), load(tmp_path, max_length=19).encode([long]))


@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_text_without_tokens_is_a_zero_vector_beside_any_other(pooling: str, tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    folder = make_bert(tmp_path / "m")
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    content = json.loads(backend.to_str())
    (folder / "tokenizer.json").write_text(json.dumps({**content, "post_processor": None}), encoding="utf-8")
    encoder = load(folder, pooling=pooling, batch_size=8)
    for texts in ([""], ["", "the dog"], ["", "the dog runs near the house in the park"]):
        assert not encoder.encode(texts)[0].any()
        assert encoder.encode(texts)[1:].any() == (len(texts) > 1)
