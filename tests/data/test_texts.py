"""The one reader of texts with ids: ids, titles, blank texts, and what is refused with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from calipers.core import DataError
from calipers.data.texts import TextRows, file_rows, load_texts
from tests.support.samples import write_jsonl


def test_texts_are_read_with_care(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "twice.jsonl", [{"_id": "a", "text": "x"}, {"_id": "a", "text": "y"}])
    write_jsonl(tmp_path / "none.jsonl", [{"_id": "a", "body": "x"}])
    write_jsonl(
        tmp_path / "title.jsonl", [{"_id": 7, "title": "T", "text": "x"}, {"_id": 8, "title": None, "text": ""}]
    )
    with pytest.raises(DataError, match="the id 'a' is already used"):
        load_texts(str(tmp_path / "twice.jsonl"), "corpus")
    with pytest.raises(DataError, match="there is no 'text'; found _id, body"):
        load_texts(str(tmp_path / "none.jsonl"), "corpus")
    found = load_texts(str(tmp_path / "title.jsonl"), "corpus")
    assert (found.ids, found.columns["text"], found.source.rows_blank) == (("7",), ["T x"], 1)


def test_rows_without_an_id_are_numbered_or_refused(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("red mug\n\nblue mug\n", encoding="utf-8")
    assert load_texts(str(tmp_path / "lines.txt"), "queries").ids == ("0", "2")
    assert file_rows(tmp_path / "lines.txt", first_number=0).load().ids == ("0", "2")
    with pytest.raises(DataError, match=r"lines\.txt, line 1: there is no column '_id'; found text"):
        file_rows(tmp_path / "lines.txt").load()


def test_a_folder_gives_the_file_of_the_name(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "queries.jsonl", [{"id": "q", "text": "x"}])
    assert load_texts(str(tmp_path), "queries").ids == ("q",)
    with pytest.raises(DataError, match=r"has no corpus\.jsonl"):
        load_texts(str(tmp_path), "corpus")


def test_rows_that_are_read_again_keep_their_ids_and_columns(tmp_path: Path) -> None:
    rows = [{"text": "x", "colour": "red"}, {"text": "", "colour": "blue"}]
    texts = file_rows(write_jsonl(tmp_path / "rows.jsonl", rows), first_number=0).load()
    assert texts.ids == ("0",)
    assert texts.read_again is not None
    assert list(texts.read_again()) == [("0", rows[0]), ("1", rows[1])]


def test_a_file_without_a_text_is_refused() -> None:
    with pytest.raises(DataError, match=r"nothing\.jsonl holds no text"):
        TextRows(lambda: iter(()), "nothing.jsonl").load()
