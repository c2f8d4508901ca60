"""Texts written another way: edits and shuffles."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from calipers.diagnosis.layers.edits import EDITS, edit, shuffles


def test_edits_are_seeded_and_change_something() -> None:
    texts = ["USB hub 3.0", "laptop", "犬小屋", "ﾉｰﾄﾊﾟｿｺﾝ 黒"]
    for kind in EDITS:
        once = edit(texts, kind, seed=1)
        assert once == edit(texts, kind, seed=1)
        assert all(new is None or new != old for old, new in zip(texts, once, strict=True))
    assert edit(["ﾉｰﾄﾊﾟｿｺﾝ"], "width", seed=0) == ["ノートパソコン"]


def test_every_shuffle_is_another_order_of_the_same_words() -> None:
    text = "to be or not to be"
    versions = shuffles(text, permutations=50, seed=[42, 1])
    assert len(versions) == 50
    assert text not in versions
    assert all(sorted(version.split()) == sorted(text.split()) for version in versions)
    assert versions == shuffles(text, permutations=50, seed=[42, 1])
    assert versions != shuffles(text, permutations=50, seed=[42, 2])


def test_real_japanese_sentences_are_shuffled_by_phrases(data: Callable[[str], Path]) -> None:
    lines = data("jsts/valid.jsonl").read_text(encoding="utf-8").splitlines()[:50]
    for text in (json.loads(line)["sentence1"] for line in lines):
        version = shuffles(text, permutations=1, seed=[0])[0]
        assert version != text
        assert sorted(version) == sorted("".join(text.split()))
