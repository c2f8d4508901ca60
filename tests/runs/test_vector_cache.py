"""Vectors kept on disk: found again by content, written whole or not at all, bounded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calipers.core import SILENT, ModelInfo
from calipers.models import ModelOptions
from calipers.runs import embedding, vector_cache
from calipers.runs.vector_cache import CachedEncoder, VectorCache, text_key


class Lengths:
    """An encoder for tests that counts its calls: the length of a text, and 1."""

    info = ModelInfo("test", "lengths", None, "cpu", "none")

    def __init__(self, fail_at: int | None = None) -> None:
        self.asked: list[str] = []
        self.fail_at = fail_at

    def encode(self, texts: Any, *, prompt: str | None = None, progress: Any = SILENT) -> Any:
        self.asked += texts
        if self.fail_at is not None and len(self.asked) >= self.fail_at:
            raise KeyboardInterrupt
        return np.array([[len((prompt or "") + text), 1.0] for text in texts], np.float32)


def test_the_same_texts_are_encoded_once(tmp_path: Path) -> None:
    model, cache = Lengths(), VectorCache(tmp_path)
    for _ in range(2):
        encoder = CachedEncoder(model, "m", cache)
        assert encoder.encode(["a", "bb"]).tolist() == [[1, 1], [2, 1]]
    assert model.asked == ["a", "bb"]
    assert (encoder.encoded, encoder.reused) == (0, 2)
    assert isinstance(encoder.encode(["a", "bb"]), np.memmap)


def test_model_prompt_texts_and_order_make_the_key() -> None:
    keys = [
        text_key(*question)
        for question in (
            ("m", None, ["a", "b"]),
            ("n", None, ["a", "b"]),
            ("m", "", ["a", "b"]),
            ("m", "None", ["a", "b"]),
            ("m", None, ["b", "a"]),
            ("m", None, ["a", "b", ""]),
            ("m", None, ["ab"]),
        )
    ]
    assert len(set(keys)) == len(keys)


def test_another_prompt_is_another_vector(tmp_path: Path) -> None:
    encoder = CachedEncoder(Lengths(), "m", VectorCache(tmp_path))
    assert encoder.encode(["a"], prompt="query: ")[0, 0] == 8
    assert encoder.encode(["a"])[0, 0] == 1


def test_without_an_identity_or_a_cache_every_text_is_asked_for(tmp_path: Path) -> None:
    for identity, cache in ((None, VectorCache(tmp_path)), ("m", None)):
        model = Lengths()
        encoder = CachedEncoder(model, identity, cache)
        encoder.encode(["a"])
        encoder.encode(["a"])
        assert model.asked == ["a", "a"]
    assert not list(tmp_path.iterdir())


def test_a_large_corpus_is_written_window_by_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_cache, "WINDOW", 2)
    texts = ["a" * n for n in range(1, 6)]
    assert CachedEncoder(Lengths(), "m", VectorCache(tmp_path)).encode(texts)[:, 0].tolist() == [1, 2, 3, 4, 5]


def test_a_run_that_is_stopped_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_cache, "WINDOW", 2)
    with pytest.raises(KeyboardInterrupt):
        CachedEncoder(Lengths(fail_at=3), "m", VectorCache(tmp_path)).encode(["a", "b", "c", "d"])
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_is_made_again(tmp_path: Path) -> None:
    cache = VectorCache(tmp_path)
    CachedEncoder(Lengths(), "m", cache).encode(["a"])
    (file,) = tmp_path.iterdir()
    for content in (b"", b"no vectors", file.read_bytes()[:-4]):
        file.write_bytes(content)
        assert CachedEncoder(Lengths(), "m", cache).encode(["a"]).tolist() == [[1, 1]]


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    encoder = CachedEncoder(Lengths(), "m", VectorCache(tmp_path, most_bytes=350))  # a file takes 168 bytes
    encoder.encode(["a"])
    encoder.encode(["bb"])
    for age, file in enumerate(sorted(tmp_path.iterdir(), key=lambda f: f.stat().st_mtime)):
        os.utime(file, (age, age))
    assert encoder.encode(["a"])[0, 0] == 1  # used now
    encoder.encode(["ccc"])
    kept = {np.load(file)[0, 0] for file in tmp_path.iterdir()}
    assert kept == {1, 3}


def test_one_that_alone_is_too_large_stays_for_this_run(tmp_path: Path) -> None:
    encoder = CachedEncoder(Lengths(), "m", VectorCache(tmp_path, most_bytes=1))
    assert encoder.encode(["a"]).tolist() == [[1, 1]]


def test_a_folder_that_cannot_be_written_costs_no_result(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    encoder = CachedEncoder(Lengths(), "m", VectorCache(tmp_path / "file"))
    assert encoder.encode(["a"]).tolist() == [[1, 1]]
    assert "`no_cache`" in encoder.damaged[0]


def test_abilities_of_the_model_are_passed_on() -> None:
    model: Any = Lengths()
    assert not hasattr(CachedEncoder(model, None, None), "pieces")
    model.pieces = lambda words: [[word] for word in words]
    assert CachedEncoder(model, None, None).pieces(["a"]) == [["a"]]


def test_a_baseline_and_a_second_run_share_vectors(tmp_path: Path, model: Any, data: Any) -> None:
    material = embedding.read(embedding.CorpusInputs(pairs=str(data("jsts/valid.jsonl"))))
    cache, reference = VectorCache(tmp_path), f"static:{model('potion-base-4m-int8')}"
    for texts, reused in ((0, 0), (1, 1)):
        encoder, _ = embedding.open_encoder(reference, embedding.text_ids(material), ModelOptions(), cache)
        embedding.embed(encoder, material, embedding.SearchOptions(), SILENT)
        assert bool(encoder.reused) == bool(reused)
        assert bool(encoder.encoded) == (not texts)


@pytest.mark.parametrize("prefix", ["", "vectors:"])
def test_vectors_that_are_given_are_not_kept_again(tmp_path: Path, prefix: str) -> None:
    texts = ["one mug", "two mugs", "red bag"]
    np.save(tmp_path / "v.npy", np.eye(3, 4, dtype=np.float32))
    (tmp_path / "v.txt").write_text("\n".join(texts) + "\n")
    (tmp_path / "corpus.txt").write_text("\n".join(texts) + "\n")
    material = embedding.read(embedding.CorpusInputs(corpus=str(tmp_path / "corpus.txt")))
    reference, kept = f"{prefix}{tmp_path / 'v.npy'}", tmp_path / "store"
    encoder, _ = embedding.open_encoder(reference, embedding.text_ids(material), ModelOptions(), VectorCache(kept))
    space = embedding.embed(encoder, material, embedding.SearchOptions(), SILENT)
    assert space.corpus.vectors.shape == (3, 4)
    assert not kept.exists()


def test_noise_of_the_same_shape_is_not_taken_for_vectors(tmp_path: Path) -> None:
    first = CachedEncoder(Lengths(), "m", VectorCache(tmp_path))
    expected = np.array(first.encode(["a", "bb"]))
    (file,) = tmp_path.glob("*.npy")
    content = bytearray(file.read_bytes())
    content[130] ^= 1  # a bit of the array
    file.write_bytes(content)
    second = CachedEncoder(Lengths(), "m", VectorCache(tmp_path))
    assert np.array_equal(second.encode(["a", "bb"]), expected)
    assert (second.encoded, second.reused) == (2, 0)
    assert "checksum" in second.damaged[0]
    np.save(file, np.random.default_rng(0).random(expected.shape, np.float32))
    third = CachedEncoder(Lengths(), "m", VectorCache(tmp_path))
    assert np.array_equal(third.encode(["a", "bb"]), expected)
    assert third.damaged
