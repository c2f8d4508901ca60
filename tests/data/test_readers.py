"""Data in: every format, folder and hub layout gives the same rows, the same fingerprint, or one clear sentence."""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from calipers import data, tasks
from calipers.core import DataError, Dataset, RequestError
from calipers.data import DataOptions, readers
from tests.support.samples import PAIRS, write_jsonl

COLUMNS = tasks.find("sentence-similarity").columns
# sha256 of the five lines '["a", "The bakery opens at seven.", "Bread is sold from seven.", 3.5]\n' …
PAIRS_FINGERPRINT = "sha256:3c745bfd998b0f154983d5883bafefe3722cd76e804274f4583e7e5c95cda340"
ROWS = [
    {"id": "1", "sentence1": 'He said "no".', "sentence2": "Line one\nline two; end", "score": 2.5},
    {"id": "2", "sentence1": "五千円以上, 送料無料", "sentence2": "tab\there | pipe", "score": 5.0},
    {"id": "3", "sentence1": "naïve café 🎉", "sentence2": "back\\slash", "score": 0.0},
]


def load(path: Path | str, *, columns: Mapping[str, str] | None = None, **options: Any) -> Dataset:
    return data.load_rows(str(path), COLUMNS, mapping=columns or {}, options=DataOptions(**options))


def text(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def write_csv(path: Path, delimiter: str) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(ROWS[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(ROWS)


def write_parquet(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path, row_group_size=2)


LINES = "".join(json.dumps(row) + "\n" for row in ROWS)
FORMATS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "jsonl": ("rows.jsonl", lambda path: write_jsonl(path, ROWS)),
    "ndjson": ("rows.ndjson", lambda path: write_jsonl(path, ROWS)),
    "jsonl, blank lines": ("rows.jsonl", lambda path: text(path, "\n" + LINES.replace("\n", "\r\n \n"))),
    "jsonl.gz": ("rows.jsonl.gz", lambda path: text(path, gzip.compress(LINES.encode()))),
    "JSONL.GZ": ("ROWS.JSONL.GZ", lambda path: text(path, gzip.compress(LINES.encode()))),
    "json list": ("rows.json", lambda path: text(path, json.dumps(ROWS))),
    "json lists": ("rows.json", lambda path: text(path, json.dumps({k: [row[k] for row in ROWS] for k in ROWS[0]}))),
    "json object": ("rows.json", lambda path: text(path, json.dumps({"version": 2, "data": ROWS}))),
    "csv comma": ("rows.csv", lambda path: write_csv(path, ",")),
    "csv semicolon": ("rows.csv", lambda path: write_csv(path, ";")),
    "tsv": ("rows.tsv", lambda path: write_csv(path, "\t")),
    "parquet": ("rows.parquet", lambda path: write_parquet(path, ROWS)),
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_dataset_and_fingerprint(name: str, tmp_path: Path) -> None:
    file, write = FORMATS[name]
    write(tmp_path / file)
    found = load(tmp_path / file)
    assert found.ids == ("1", "2", "3")
    assert found.columns["input_column_1"] == [row["sentence1"] for row in ROWS]
    assert found.columns["input_column_2"] == [row["sentence2"] for row in ROWS]
    assert found.columns["score_column"] == [2.5, 5.0, 0.0]
    assert found.fingerprint == load(write_jsonl(tmp_path / "same.jsonl", ROWS)).fingerprint


@pytest.mark.parametrize("name", ["jsonl", "json list", "csv comma", "tsv"])
def test_a_byte_order_mark_is_not_content(name: str, tmp_path: Path) -> None:
    path = tmp_path / FORMATS[name][0]
    FORMATS[name][1](path)
    plain = load(path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert load(path).fingerprint == plain.fingerprint


ROW = '{"id": 1, "sentence1": %s, "sentence2": "y", "score": %s}'
GOOD = ROW % ('"x"', "1")
REFUSED = {
    "field count": ("a.csv", "id,sentence1,sentence2,score\n1,x,y\n", "a.csv, line 2: expected 4 fields .* found 3"),
    "line after a quoted newline": ("a.csv", 'id,sentence1,sentence2,score\n1,"x\nx",y,1\n2,x,y,z\n', "line 4.*'z'"),
    "quote never closed": ("a.csv", 'id,score,sentence1,sentence2\n1,1,x,"y\n2,2,x,y\n', "a.csv"),
    "column named twice": ("a.csv", "id,score,sentence1,sentence2,sentence2\n1,1,x,y,z\n", "'sentence2'"),
    "missing column": ("a.jsonl", '{"id": 1, "sentence1": "x", "score": 1}\n', "a.jsonl, line 1: .*'sentence2'"),
    "broken json": ("a.jsonl", '{"id": 1\n', "a.jsonl, line 1: not valid JSON"),
    "json too deep": ("a.jsonl", "[" * 100_000 + "\n", "a.jsonl, line 1"),
    "not an object": ("a.jsonl", "[1, 2]\n", "a.jsonl, line 1: expected an object .* found list"),
    "text is a number": ("a.jsonl", ROW % ("7", "1"), "line 1, column 'sentence1': expected a text, found 7"),
    "lone surrogate": ("a.jsonl", ROW % (r'"x\ud800"', "1"), "line 1, column 'sentence1'"),
    "no number": ("a.jsonl", ROW % ('"x"', '"good"'), "line 1, column 'score': expected a number, found 'good'"),
    "boolean": ("a.jsonl", ROW % ('"x"', "true"), "expected a number, found True"),
    "not finite": ("a.jsonl", ROW % ('"x"', "NaN"), "expected a finite number, found nan"),
    "huge integer": ("a.jsonl", ROW % ('"x"', "1" + 400 * "0"), "line 1, column 'score'"),
    "latin-1": ("a.csv", b"id,sentence1,sentence2,score\n1,caf\xe9,y,1\n", "expected UTF-8, found the byte 0xe9"),
    "repeated id": ("a.jsonl", f"{GOOD}\n\n{GOOD}", "line 3, column 'id': the id '1' is already used at .*, line 1"),
    "blank only": ("a.jsonl", ROW % ('" "', "1"), "holds no row to measure: all 1 rows have a blank text"),
    "unknown ending": ("a.xml", "<rows/>", "unknown format: expected .jsonl"),
    "empty": ("a.jsonl", "", "holds no row"),
    "not parquet": ("a.parquet", "nonsense", "a.parquet cannot be read as parquet"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_data_is_one_sentence_with_the_place(name: str, tmp_path: Path) -> None:
    file, content, message = REFUSED[name]
    with pytest.raises(DataError, match=message):
        load(text(tmp_path / file, content))


@pytest.mark.parametrize("path", ["./gone.jsonl", "a/b/c", "gone.parquet", "~nobody-here/pairs.jsonl", "/" + 300 * "x"])
def test_a_path_that_is_not_there_is_not_looked_for_on_the_hub(path: str) -> None:
    with pytest.raises(DataError, match="no such file or folder"):
        load(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_jsonl(text(tmp_path / "folder" / "train.jsonl", ""), PAIRS[:2])
    return write_jsonl(tmp_path / "folder" / "test.jsonl", PAIRS[2:]).parent


def test_a_folder_gives_its_test_split_unless_another_is_asked_for(folder: Path) -> None:
    assert load(folder).ids == ("c", "d", "e")
    assert load(folder, split="train").ids == ("a", "b")


def test_an_unknown_split_is_refused_with_the_splits_there_are(folder: Path) -> None:
    with pytest.raises(DataError, match=r"no split 'dev': it has test, train \(choose one with `split`\)"):
        load(folder, split="dev")


def test_shards_under_data_are_one_split_in_order(tmp_path: Path, pairs: Path) -> None:
    write_parquet(tmp_path / "shards" / "data" / "test-00000-of-00002.parquet", PAIRS[:3])
    write_parquet(tmp_path / "shards" / "data" / "test-00001-of-00002.parquet", PAIRS[3:])
    assert load(tmp_path / "shards").ids == ("a", "b", "c", "d", "e")
    assert load(tmp_path / "shards", split="test").fingerprint == load(pairs).fingerprint


def test_a_folder_with_one_split_needs_no_name_for_it(tmp_path: Path) -> None:
    text(tmp_path / "one" / "validation.jsonl", LINES)
    assert load(tmp_path / "one").ids == ("1", "2", "3")


def test_a_split_in_two_formats_is_not_read_twice(folder: Path) -> None:
    write_jsonl(folder / "test.ndjson", PAIRS[2:])
    with pytest.raises(DataError, match=r"test\.jsonl.*test\.ndjson"):
        load(folder, columns={"id_column": ""})


def test_what_a_file_or_the_task_does_not_have_is_refused(pairs: Path) -> None:
    with pytest.raises(RequestError, match=r"`DataOptions\.name` and `revision` are for the hub"):
        load(pairs, name="en")
    with pytest.raises(RequestError, match="`columns` label=… is not a column of this task: it has input_column_1"):
        load(pairs, columns={"label": "score"})


def test_columns_may_have_other_names_and_the_fingerprint_stays(tmp_path: Path, pairs: Path) -> None:
    other = [{"key": r["id"], "a": r["sentence1"], "b": r["sentence2"], "y": r["score"], "x": 1} for r in PAIRS]
    named = {"input_column_1": "a", "input_column_2": "b", "score_column": "y", "id_column": "key"}
    found = load(write_jsonl(tmp_path / "other.ndjson", other), columns=named)
    assert found.ids == ("a", "b", "c", "d", "e")
    assert found.source.columns_mapping == named
    assert found.fingerprint == load(pairs).fingerprint == PAIRS_FINGERPRINT


IDS = {
    "id": ({"id": "x{}"}, None, ("x0", "x1")),
    "_id": ({"_id": "y{}"}, None, ("y0", "y1")),
    "id before _id": ({"_id": "y{}", "id": "x{}"}, None, ("x0", "x1")),
    "another column": ({"id": "x{}", "key": "z{}"}, "key", ("z0", "z1")),
    "the row number where there is none": ({}, None, ("0", "1")),
    "the row number on demand": ({"id": "same"}, "", ("0", "1")),
}


@pytest.mark.parametrize("name", IDS)
def test_ids_come_from(name: str, tmp_path: Path) -> None:
    extra, wish, expected = IDS[name]
    bare = [{k: v for k, v in row.items() if k != "id"} for row in PAIRS[:2]]
    rows = [row | {key: value.format(i) for key, value in extra.items()} for i, row in enumerate(bare)]
    columns = {} if wish is None else {"id_column": wish}
    assert load(write_jsonl(tmp_path / "ids.jsonl", rows), columns=columns).ids == expected


def test_an_id_column_that_is_not_there_is_refused_with_the_columns_there_are(pairs: Path) -> None:
    with pytest.raises(DataError, match=r"'uuid'.*sentence1, sentence2, score"):
        load(pairs, columns={"id_column": "uuid"})


CHANGES = {
    "text": [*PAIRS[:4], PAIRS[4] | {"sentence1": "Rain is expected tonight"}],
    "score": [*PAIRS[:4], PAIRS[4] | {"score": 4.99}],
    "id": [*PAIRS[:4], PAIRS[4] | {"id": "f"}],
    "order": [*PAIRS[:3], PAIRS[4], PAIRS[3]],
    "fewer rows": PAIRS[:4],
    "texts swapped": [PAIRS[0] | {"sentence1": PAIRS[0]["sentence2"], "sentence2": PAIRS[0]["sentence1"]}, *PAIRS[1:]],
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_fingerprint_changes_with(change: str, tmp_path: Path) -> None:
    assert load(write_jsonl(tmp_path / "changed.jsonl", CHANGES[change])).fingerprint != PAIRS_FINGERPRINT


@pytest.mark.parametrize("blank", ["", " \t\u3000", None], ids=["empty", "spaces", "null"])
def test_blank_and_null_texts_are_skipped_and_counted(blank: str | None, tmp_path: Path) -> None:
    rows = [PAIRS[0], PAIRS[1] | {"sentence1": blank}, PAIRS[2] | {"sentence2": blank}, *PAIRS[3:]]
    found = load(write_jsonl(tmp_path / "blank.jsonl", rows))
    assert found.ids == ("a", "d", "e")
    assert (found.source.rows_read, found.source.rows_blank) == (5, 2)


def test_a_row_without_anything_is_a_blank_row(tmp_path: Path) -> None:
    found = load(text(tmp_path / "sheet.csv", "id,sentence1,sentence2,score\na,x,y,1\nb,x,z,2\n,,,\n"))
    assert found.ids == ("a", "b")
    assert found.source.rows_blank == 1


@pytest.mark.parametrize(("name", "count"), [("english", 120), ("japanese", 40)])
def test_the_sample_data_that_the_package_carries_is_sound(name: str, count: int) -> None:
    found = load(data.sample(name))
    assert len(found) == len(set(found.ids)) == found.source.rows_read == count
    assert all(0 <= score <= 5 for score in found.columns["score_column"])
    assert len(set(zip(found.columns["input_column_1"], found.columns["input_column_2"], strict=True))) == count
    assert all(any(ord(c) > 0x3000 for c in t) == (name == "japanese") for t in found.columns["input_column_1"])


# The hub, through the real `datasets`: a folder laid out like a repository there.
HUB_ROWS = {("en", None): PAIRS, ("en", "train"): PAIRS[:2], ("ja", "test"): PAIRS[::-1]}
README = """---
configs:
- {config_name: en, data_files: [{split: test, path: data/test-*}, {split: train, path: data/train-*}]}
- {config_name: ja, data_files: [{split: test, path: ja/test-*}]}
---
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    config = pytest.importorskip("datasets", reason="the package datasets is not installed").config
    monkeypatch.setattr(config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    place = tmp_path / "repository"
    write_parquet(place / "data" / "test-00000-of-00001.parquet", PAIRS)
    write_parquet(place / "data" / "train-00000-of-00001.parquet", PAIRS[:2])
    write_parquet(place / "ja" / "test-00000-of-00001.parquet", PAIRS[::-1])
    return text(place / "README.md", README).parent


streamed = pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streaming"])


@streamed
@pytest.mark.parametrize(("name", "split"), HUB_ROWS)
def test_a_hub_dataset_has_the_same_rows_and_fingerprint_as_a_file(
    name: str, split: str | None, streaming: bool, repository: Path, tmp_path: Path
) -> None:
    found = load(f"hub:{repository}", name=name, split=split, streaming=streaming)
    same = load(write_jsonl(tmp_path / "same.jsonl", HUB_ROWS[name, split]))
    assert (found.ids, found.columns, found.fingerprint) == (same.ids, same.columns, same.fingerprint)
    assert found.source.split == (split or "test")


HUB_REFUSED = {
    "unknown split": ({"name": "en", "split": "dev"}, ("dev", "test", "train")),
    "unknown configuration": ({"name": "fr"}, ("fr", "en", "ja")),
    "configuration left out": ({}, ("en", "ja")),
}


@streamed
@pytest.mark.parametrize("name", HUB_REFUSED)
def test_a_hub_dataset_is_refused_with_the_choices_there_are(name: str, streaming: bool, repository: Path) -> None:
    options, expected = HUB_REFUSED[name]
    with pytest.raises(DataError) as caught:
        load(f"hub:{repository}", streaming=streaming, **options)
    assert "\n" not in str(caught.value)
    assert all(re.search(rf"\b{name}\b", str(caught.value)) for name in expected)


@streamed
def test_a_hub_dataset_that_breaks_on_the_way_says_why(streaming: bool, repository: Path, tmp_path: Path) -> None:
    text(tmp_path / "broken" / "test.jsonl", json.dumps(PAIRS[0]) + '\n{"id":\n')
    with pytest.raises(DataError, match="JSON parse error"):
        load(f"hub:{tmp_path / 'broken'}", streaming=streaming)


def test_a_quote_in_a_tsv_swallows_no_row(tmp_path: Path) -> None:
    rows = [
        "id\ttext",
        '1\t"a quote that opens',
        '2\tand one 5" long',
        '3\t"whole ""cell"""',
        '4\t"a\ttab"',
        "5\tplain",
    ]
    file = tmp_path / "t.tsv"
    file.write_text("\r\n".join(rows) + "\r\n")
    texts = [row.values["text"] for row in readers.read(file, None)]
    assert texts == ['"a quote that opens', 'and one 5" long', 'whole "cell"', "a\ttab", "plain"]
    file.write_text('id\ttext\tscore\n1\t"opens\t3\n2\tcloses 5"\t4\n3\ta\t"two\nlines"\n')
    rows_read = [list(row.values.values()) for row in readers.read(file, None)]
    assert rows_read == [["1", '"opens', "3"], ["2", 'closes 5"', "4"], ["3", "a", "two\nlines"]]


def test_a_file_is_the_split_that_its_name_says(tmp_path: Path) -> None:
    path = tmp_path / "test.jsonl"
    path.write_text('{"text": "one"}\n', encoding="utf-8")
    assert readers.choose_split(path, "test") == "test"
    assert readers.choose_split(path, None) is None
    with pytest.raises(DataError, match=r"`split` is 'dev', and .*test\.jsonl is one file"):
        readers.choose_split(path, "dev")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("p.csv", ",".join(f"c{i}" for i in range(20_000)) + "\n", "columns=N"),
        ("p.jsonl", '{"a": ' + "[" * 200 + "]" * 200 + "}\n", "nesting=N"),
        ("p.jsonl", "x" * 17_000_000, "line=N"),
        ("p.tsv", "a\tb\n" + "\n" * 1_100_000, "blank=N"),
    ],
    ids=["columns", "nesting", "line", "blank"],
)
def test_above_a_limit_there_is_a_sentence_that_names_it(name: str, content: str, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=f"raise it with `input_limit` {words}"):
        list(readers.read(tmp_path / name, None))


def test_a_small_file_may_not_stand_for_a_large_one(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl.gz").write_bytes(gzip.compress(b'{"a": 1}\n' * 3_000_000))
    with pytest.raises(DataError, match="decompresses to more than"):
        next(iter(readers.read(tmp_path / "p.jsonl.gz", None)))  # before a row is parsed


def test_parquet_with_two_columns_of_one_name_is_refused(tmp_path: Path) -> None:
    column = pyarrow.array(["a"])
    table = pyarrow.Table.from_arrays([column, column], ["text", "text"])
    pyarrow.parquet.write_table(table, tmp_path / "p.parquet")
    with pytest.raises(DataError, match="the column 'text' twice"):
        list(readers.read(tmp_path / "p.parquet", None))


@pytest.mark.parametrize("kind", ["pipe", "device", "kernel"])
def test_only_regular_files_are_read(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    os.mkfifo(path) if kind == "pipe" else path.symlink_to({"device": "/dev/zero", "kernel": "/proc/self/maps"}[kind])
    with pytest.raises(DataError, match="regular file"):
        list(readers.read(path, None))
