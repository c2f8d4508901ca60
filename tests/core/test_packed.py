"""Packed texts are a sequence like any other, for Python and for Arrow."""

from __future__ import annotations

import mmap
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from calipers.core import packed
from calipers.core.packed import PackedTexts, TextPacker, TextPlaces, may_repeat

TEXTS = ["one", "", "größer 大きい", "line\nbreak", "🙂", "last"]


def pack(texts: list[str], monkeypatch: pytest.MonkeyPatch) -> PackedTexts:
    monkeypatch.setattr(packed, "_IN_MEMORY", 4)
    packer = TextPacker()
    for text in texts:
        packer.append(text)
    result = packer.finish()
    assert isinstance(result, PackedTexts)
    return result


def test_packed_texts_are_a_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = pack(TEXTS, monkeypatch)
    assert list(texts) == TEXTS
    assert len(texts) == len(TEXTS)
    assert [texts[i] for i in range(-6, 6)] == TEXTS + TEXTS
    assert texts[1:5:2] == TEXTS[1:5:2]
    assert "🙂" in texts
    with pytest.raises(IndexError):
        texts[6]


def test_arrow_reads_the_bytes_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = pack(TEXTS, monkeypatch)
    assert pa.table({"text": texts})["text"].to_pylist() == TEXTS


@pytest.mark.parametrize("memory", [4, 1 << 20])
def test_what_arrow_holds_is_packed_as_it_is(memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "_IN_MEMORY", memory)
    monkeypatch.setattr(packed, "_FEW", 2)
    packer = TextPacker()
    for part in (TEXTS[:3], TEXTS[3:3], TEXTS[3:]):
        packer.append_arrow(pa.array(["not this", *part, "nor this"]).slice(1, len(part)))
    texts = packer.finish()
    assert isinstance(texts, PackedTexts)
    assert list(texts) == TEXTS
    assert pa.table({"text": texts})["text"].to_pylist() == TEXTS


def test_bytes_that_are_no_text_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "_FEW", 0)
    packer = TextPacker()
    packer.append("one")
    broken = pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\xff"))
    with pytest.raises(pa.ArrowInvalid):
        packer.append_arrow(broken)


def test_a_few_texts_stay_a_list() -> None:
    packer = TextPacker()
    for text in TEXTS:
        packer.append(text)
    assert packer.finish() == TEXTS


def test_many_texts_cost_eight_bytes_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "_IN_MEMORY", 1 << 16)
    tracemalloc.start()
    packer = TextPacker()
    for i in range(50_000):
        packer.append(f"a text of some words and the number {i}")
    texts = packer.finish()
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert texts[49_999] == "a text of some words and the number 49999"
    assert held < 12 * 50_000 + (1 << 17)


@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTNEED"), reason="this system cannot release pages")
def test_what_was_read_is_not_held() -> None:
    packer = TextPacker()
    for i in range(40_000):
        packer.append(f"{i:01000}")
    texts = packer.finish()
    before = file_pages()
    assert sum(len(text) for text in texts) == 40_000_000
    assert len(texts[:20_000]) == 20_000
    assert all(texts[i] for i in range(40_000))
    assert file_pages() - before < 16_000  # kB, of 40,000
    assert texts[39_999] == f"{39_999:01000}"


def file_pages() -> int:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(next(line for line in status.splitlines() if line.startswith("RssFile")).split()[1])


def test_many_short_texts_are_packed_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "_FEW", 3)
    packer = TextPacker()
    for text in TEXTS:
        packer.append(text)
    texts = packer.finish()
    assert isinstance(texts, PackedTexts)
    assert (texts, texts[2:4], len(packer)) == (TEXTS, TEXTS[2:4], len(TEXTS))


def test_packed_texts_equal_any_sequence_of_the_same_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = pack(TEXTS, monkeypatch)
    monkeypatch.setattr(packed, "_AT_ONCE", 4)
    assert texts == TEXTS
    assert texts == tuple(TEXTS)
    assert texts == pack(TEXTS, monkeypatch)
    assert texts != TEXTS[:-1]
    assert texts != [*TEXTS[:-1], "other"]
    assert texts != 6


def test_places_are_those_of_every_repetition(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"text {i % 7}" for i in range(40)]
    places = TextPlaces(pack(texts, monkeypatch))
    assert all(places.of(text) == [i for i, each in enumerate(texts) if each == text] for text in {*texts, "absent"})


def test_texts_of_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "hash", lambda text: 7, raising=False)
    assert [TextPlaces(TEXTS).of(text) for text in (*TEXTS, "x")] == [[0], [1], [2], [3], [4], [5], []]
    assert may_repeat(["a", "b"])  # it may: who asks looks closer
