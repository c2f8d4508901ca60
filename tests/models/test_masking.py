"""Words and unknown tokens of a masked language model's tokenizer."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from calipers.models.layout import read_layout
from calipers.models.masking import MaskTokenizer

PIECES = ["<unk>", "[MASK]", "▁the", "▁dog", "s", "▁run", "ning", "▁", "the", "dog"]


def open_unigram(folder: Path, *, splits: bool) -> MaskTokenizer:
    """A Unigram tokenizer; unless it `splits`, spaces are inside one word, as in Gemma's."""
    tokenizer = Tokenizer(models.Unigram([(piece, -1.0) for piece in PIECES], unk_id=0))
    if splits:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    else:
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.add_special_tokens(["[MASK]"])
    tokenizer.save(str(folder / "tokenizer.json"))
    return MaskTokenizer(read_layout(folder), max_length=32)


@pytest.mark.parametrize("splits", [False, True])
def test_words_are_told_apart_whatever_the_tokenizer(splits: bool, tmp_path: Path) -> None:
    (text,) = open_unigram(tmp_path, splits=splits).encode(["the dogs running"])
    numbers = {word: i for i, word in enumerate(dict.fromkeys(text.words.tolist()))}
    sizes = [text.words.tolist().count(word) for word in numbers]
    assert sizes[-2:] == [2, 2]  # ▁dog s, ▁run ning
    assert len(sizes) == 3
    assert text.spaced is not splits


def test_whitespace_at_the_ends_makes_no_word(tmp_path: Path) -> None:
    (text,) = open_unigram(tmp_path, splits=False).encode([" the  dog "])
    assert len(set(text.words.tolist())) in (2, 3)  # a space behind the last word may be a token of its own


def test_unknown_pieces_of_a_unigram_tokenizer_are_counted(tmp_path: Path) -> None:
    (text,) = open_unigram(tmp_path, splits=True).encode(["the zebra"])
    assert text.unknown == sum(id == 0 for id in text.ids.tolist()) > 0
