"""Words, word order and fragmentation: splitting, shuffling, and what tokenizers make of words."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, pre_tokenizers, trainers

from calipers import models
from calipers.core import SILENT, Encoder, read_figures
from calipers.diagnosis.layers import Space, Texts, geometry, words
from calipers.diagnosis.layers.edits import shuffles
from calipers.diagnosis.layers.geometry import GeometryOptions
from calipers.models.tokenizer import Tokenizer
from calipers.models.tokenizer_files import Prepared
from calipers.shop.sample import make

Loader = Callable[[str], Path]


@pytest.fixture(scope="module")
def potion(model: Loader) -> Encoder:
    source = models.find(f"static:{model('potion-base-4m-int8')}")
    return models.load(source, models.ModelOptions(), "encode")  # type: ignore[return-value]


def space_of(model: Encoder, texts: Sequence[str], terms: Sequence[str] = ()) -> Space:
    ids = tuple(f"d{i}" for i in range(len(texts)))
    return Space(Texts(ids, list(texts), model.encode(list(texts))), terms=terms)


def test_japanese_and_chinese_fall_into_phrases() -> None:
    japanese = words.split("レンガの建物の前を女性が歩いています。")
    assert japanese == words.Split(("レンガの", "建物の", "前を", "女性が", "歩いています。"), ("",) * 4)
    chinese = words.split("今天是晴天。")
    assert len(chinese.words) > 1
    assert chinese.join(chinese.words) == "今天是晴天。"
    assert words.split("ソニー WH-1000XM5 wireless headphones", "space").gaps == (" ",) * 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ナイキ 赤 シューズ", ["ナイキ", "赤", "シューズ"]),
        ("ナイキ　赤い シューズを 買う", ["ナイキ", "赤い", "シューズを", "買う"]),
        ("500ml 水筒 サーモス", ["500ml", "水筒", "サーモス"]),
        ("Sony ソニー headphones", ["Sony", "ソニー", "headphones"]),
        ("  \n", []),
        ("", []),
    ],
)
def test_spaces_come_before_phrases(text: str, expected: list[str]) -> None:
    split = words.split(text)
    assert list(split.words) == expected
    assert split.join(split.words) == text.strip()


def test_a_shuffled_text_keeps_its_spaces() -> None:
    for version in shuffles("ナイキ 赤  シューズ", permutations=10, seed=[1]):
        assert [len(gap) for gap in re.findall(r"\s+", version)] == [1, 2]
        assert sorted(version.split()) == sorted(["ナイキ", "赤", "シューズ"])
    for version in shuffles("赤い靴を買う 白い靴", permutations=5, seed=[1]):
        assert version.count(" ") == 1


def test_the_spaced_queries_of_the_sample_shop_are_shuffled() -> None:
    """Each of several words has another order; one word has none."""
    texts = [query.text for query in make().queries if words.writes_no_spaces(query.text)]
    spaced = [text for text in texts if len(text.split()) > 1]
    assert len(spaced) >= 50
    assert all(shuffles(text, permutations=1, seed=[0]) for text in spaced)


def test_texts_with_one_order_are_skipped_and_counted(potion: Encoder) -> None:
    texts = Texts(
        ("a", "b", "c"), ["laptop", "echo echo", "red laptop"], potion.encode(["laptop", "echo", "red laptop"])
    )
    rows, options = np.arange(3), GeometryOptions(permutations=2)
    versions = [several or [] for several in geometry.shuffle(texts, rows, options)]
    moved = geometry.distances_to(potion, texts, rows, versions, SILENT)
    assert [len(several) for several in versions] == [0, 0, 2]
    assert np.isnan(moved[:2]).all()
    assert moved[2] == pytest.approx(0.0, abs=1e-12)


def test_only_texts_of_one_word_leave_word_order_unknown(potion: Encoder) -> None:
    outcomes = geometry.run(potion, space_of(potion, ["laptop", "mouse", "screen"]), GeometryOptions(), SILENT)
    figure = next(f for f in read_figures(outcomes) if f.name == "word_order_sensitivity")
    assert figure.value is None
    assert "none of 3 texts" in str(figure.reason)
    assert outcomes.counts["one_word_texts"] == 3


def test_a_transformer_sees_the_order_of_words(minilm: Path) -> None:
    model = models.load(models.find(str(minilm)), models.ModelOptions(), "encode")
    asked = ["the dog bites the man", "a flight from Paris to Rome", "is coffee better than tea"]
    texts = Texts(("a", "b", "c"), asked, model.encode(asked))  # type: ignore[attr-defined]
    versions = [several or [] for several in geometry.shuffle(texts, np.arange(3), GeometryOptions(permutations=2))]
    moved = geometry.distances_to(model, texts, np.arange(3), versions, SILENT)  # type: ignore[arg-type]
    assert (moved > 0.005).all()
    shuffled = model.encode([versions[0][0]])[0]  # type: ignore[attr-defined]
    assert texts.vectors[0] @ shuffled < 0.995
    assert model.pieces(["laptop"]) == [["laptop"]]  # type: ignore[attr-defined]


def test_a_text_that_cannot_be_split_costs_this_text(potion: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    parse = words._parser("ja")

    def refuse(language: str) -> Callable[[str], Sequence[str]]:
        def parse_or_fail(run: str) -> Sequence[str]:
            if "天気" in run:
                raise ValueError("no phrases")
            return parse(run)

        return parse_or_fail

    monkeypatch.setattr(words, "_parser", refuse)
    with pytest.raises(words.Unsplittable, match="今日は天気です"):
        words.split("今日は天気です。")
    space = space_of(potion, ["今日は天気です。", "red laptop", "blue mouse"])
    outcomes = geometry.run(potion, space, GeometryOptions(), SILENT)
    figures = {f.name: f for f in read_figures(outcomes)}
    assert figures["fragmentation"].value == 1.0
    assert figures["word_order_sensitivity"].value == pytest.approx(0.0, abs=1e-12)
    assert (outcomes.counts["unsplit"], outcomes.counts["unsplit_texts"]) == (1, 1)


def test_an_unknown_piece_is_shown_as_such() -> None:
    assert words.Term("龘x", (None, "##x"), 2).shown == "[UNK]·x"
    assert words.Term("laptop", ("▁", "lap", "##", "##top"), 2).shown == "lap·top"


def test_sub_words_of_texts_are_compared_as_the_model_sees_them(potion: Encoder) -> None:
    """What the vocabulary lacks is one and the same to the model; punctuation is nothing in common."""
    assert isinstance(potion, words.ShowsPieces)
    unknown, other, red, red_too, blue = words.piece_sets(
        potion, ["ᚠᚢᚦ", "ᚱᚲᚷ!", "red laptop!", "a Red, thing!", "blue!"]
    )
    assert (unknown, other) == ({None}, {None})
    assert "red" in red & red_too
    assert not red & blue


def byte_level() -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(["a red laptop and a red mouse"] * 20, trainer)
    return backend


def metaspace() -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(
        tokenizers.models.Unigram(
            [("<unk>", -9.0), ("▁", -3.0), ("▁red", -1.0), ("lap", -2.0), ("top", -2.0)], unk_id=0
        )
    )
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    return backend


def test_pieces_are_those_of_a_word_inside_a_text() -> None:
    """At the head of a text a byte-level tokenizer knows no 'Ġred', and would split what it has as one."""
    tokenizer = Tokenizer(Prepared(byte_level()), max_length=8, pad_id=0)
    assert tokenizer.pieces(["red"]) == [["Ġred"]]
    assert len(tokenizer.pieces(["zebra" * 20])[0]) > 8
    assert len(tokenizer.encode(["zebra" * 20])[0].ids) == 8


def test_pieces_that_the_vocabulary_lacks_are_none() -> None:
    tokenizer = Tokenizer(Prepared(metaspace()), max_length=64, pad_id=0)
    assert tokenizer.pieces(["red", "laptop"]) == [["▁red"], ["▁", "lap", "top"]]
    assert None in tokenizer.pieces(["zebra"])[0]


def test_fragmentation_counts_words_of_texts_by_hand(potion: Encoder) -> None:
    """red and laptop are whole; the model number is not; 🜁 is not in the vocabulary, and no word either."""
    assert isinstance(potion, words.ShowsPieces)
    found = words.fragment(potion, ["red laptop!", "red XPS-13 red", "🜁 —", ""])
    assert found.words.tolist() == [2, 3, 0, 0]
    assert found.split.tolist() == [0, 1, 0, 0]
    assert found.pieces.tolist() == [2, 2 + len(potion.pieces(["XPS-13"])[0]), 0, 0]
    assert [term.word for term in found.worst] == ["XPS-13"]


def test_terms_are_measured_beside_the_corpus(potion: Encoder) -> None:
    space = space_of(potion, ["red laptop", "blue mouse", "green screen"], terms=["laptop", "ᚠᚢᚦ"])
    outcomes = geometry.run(potion, space, GeometryOptions(), SILENT)
    figures = {f.name: f for f in read_figures(outcomes)}
    assert figures["fragmentation"].value == 1.0
    assert figures["terms_unknown_words"].value == 0.5
    assert "never reach the model" in str(figures["terms_unknown_words"].warning)
    assert outcomes.ids[-2:] == ("0:laptop/term", "1:ᚠᚢᚦ/term")
