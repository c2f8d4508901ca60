"""Data in: every format, folder and hub layout gives the same rows, the same fingerprint, or one clear sentence."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from calipers import data, tasks
from calipers.core import DataError, Dataset, RequestError
from calipers.data import DataOptions
from tests.conftest import PAIRS, Run, write_jsonl

COLUMNS = tasks.find("sentence-similarity").columns
# sha256 of the five lines '["a", "The bakery opens at seven.", "Bread is sold from seven.", 3.5]\n' …
PAIRS_FINGERPRINT = "sha256:3c745bfd998b060d8d3d45e68d67e2d3b6a5d9b1c19cd9cc5eb4d1d7a3cf28fd"
ROWS = [
    {"id": "1", "sentence1": 'He said "no".', "sentence2": "Line one\nline two; end", "score": 2.5},
    {"id": "2", "sentence1": "五千円以上, 送料無料", "sentence2": "tab\there | pipe", "score": 5.0},
    {"id": "3", "sentence1": "naïve café 🎉", "sentence2": "back\\slash", "score": 0.0},
]


def load(path: Path | str, *, columns: Mapping[str, str] | None = None, **options: Any) -> Dataset:
    return data.load(str(path), COLUMNS, mapping=columns or {}, options=DataOptions(**options))


def text(path: Path, content: str) -> Path:
    path.write_bytes(content.encode())
    return path


# --- formats ---------------------------------------------------------------------------------------------------


def write_csv(path: Path, delimiter: str) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(ROWS[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(ROWS)


def write_gzip(path: Path) -> None:
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in ROWS).encode()))


FORMATS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "jsonl": ("rows.jsonl", lambda path: write_jsonl(path, ROWS)),
    "ndjson": ("rows.ndjson", lambda path: write_jsonl(path, ROWS)),
    "jsonl, blank lines": ("rows.jsonl", lambda path: text(path, "\n\r\n".join(["", *map(json.dumps, ROWS), ""]))),
    "jsonl.gz": ("rows.jsonl.gz", write_gzip),
    "JSONL.GZ": ("ROWS.JSONL.GZ", write_gzip),
    "json list": ("rows.json", lambda path: text(path, json.dumps(ROWS))),
    "json lists": ("rows.json", lambda path: text(path, json.dumps({key: [r[key] for r in ROWS] for key in ROWS[0]}))),
    "json object": ("rows.json", lambda path: text(path, json.dumps({"version": 2, "data": ROWS}))),
    "csv comma": ("rows.csv", lambda path: write_csv(path, ",")),
    "csv semicolon": ("rows.csv", lambda path: write_csv(path, ";")),
    "tsv": ("rows.tsv", lambda path: write_csv(path, "\t")),
    "parquet": (
        "rows.parquet",
        lambda path: pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), path, row_group_size=2),
    ),
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
    file, write = FORMATS[name]
    write(tmp_path / file)
    plain = load(tmp_path / file)
    (tmp_path / file).write_bytes(b"\xef\xbb\xbf" + (tmp_path / file).read_bytes())
    assert load(tmp_path / file).fingerprint == plain.fingerprint


REFUSED = {
    "field count": ("a.csv", "id,sentence1,sentence2,score\n1,x,y\n", "a.csv, line 2: expected 4 fields .* found 3"),
    "line after a quoted newline": ("a.csv", 'id,sentence1,sentence2,score\n1,"x\nx",y,1\n2,x,y,z\n', "line 4.*'z'"),
    "quote never closed": ("a.csv", 'id,score,sentence1,sentence2\n1,1,x,"y\n2,2,x,y\n', "a.csv"),
    "column named twice": ("a.csv", "id,score,sentence1,sentence2,sentence2\n1,1,x,y,z\n", "'sentence2'"),
    "missing column": ("a.jsonl", '{"id": 1, "sentence1": "x", "score": 1}\n', "a.jsonl, line 1: .*'sentence2'"),
    "broken json": ("a.jsonl", '{"id": 1\n', "a.jsonl, line 1: not valid JSON"),
    "json too deep": ("a.jsonl", "[" * 100_000 + "\n", "a.jsonl, line 1"),
    "not an object": ("a.jsonl", "[1, 2]\n", "a.jsonl, line 1: expected an object .* found list"),
    "text is a number": ("a.jsonl", '{"id": 1, "sentence1": 7, "sentence2": "y", "score": 1}', "expected a text.* 7"),
    "no number": ("a.jsonl", '{"id": 1, "sentence1": "x", "sentence2": "y", "score": "good"}', "a number.*'good'"),
    "boolean": ("a.jsonl", '{"id": 1, "sentence1": "x", "sentence2": "y", "score": true}', "a number, found True"),
    "not finite": ("a.jsonl", '{"id": 1, "sentence1": "x", "sentence2": "y", "score": NaN}', "a finite number"),
    "huge integer": (
        "a.jsonl",
        f'{{"id": 1, "sentence1": "x", "sentence2": "y", "score": 1{"0" * 400}}}',
        "line 1, column 'score'",
    ),
    "lone surrogate": (
        "a.jsonl",
        '{"id": 1, "sentence1": "x\\ud800", "sentence2": "y", "score": 1}',
        "line 1, column 'sentence1'",
    ),
    "unknown ending": ("a.xml", "<rows/>", "unknown format: expected .jsonl"),
    "empty": ("a.jsonl", "", "holds no row"),
    "not parquet": ("a.parquet", "nonsense", "a.parquet cannot be read as parquet"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_data_is_one_sentence_with_the_place(name: str, tmp_path: Path) -> None:
    file, content, message = REFUSED[name]
    with pytest.raises(DataError, match=message):
        load(text(tmp_path / file, content))


def test_text_that_is_not_utf_8_is_refused_with_the_byte(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("id,sentence1,sentence2,score\n1,café,y,1\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"a\.csv, after line \d: expected UTF-8, found the byte 0xe9"):
        load(tmp_path / "a.csv")


@pytest.mark.parametrize("path", ["./gone.jsonl", "a/b/c", "gone.parquet", "~nobody-here/pairs.jsonl", "/" + 300 * "x"])
def test_a_path_that_is_not_there_is_not_looked_for_on_the_hub(path: str) -> None:
    with pytest.raises(DataError, match="no such file or folder"):
        load(path)


# --- folders ---------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "folder"
    place.mkdir()
    write_jsonl(place / "train.jsonl", PAIRS[:2])
    write_jsonl(place / "test.jsonl", PAIRS[2:])
    return place


def test_a_folder_gives_its_test_split_unless_another_is_asked_for(folder: Path) -> None:
    assert load(folder).ids == ("c", "d", "e")
    assert load(folder, split="train").ids == ("a", "b")


def test_an_unknown_split_is_refused_with_the_splits_there_are(folder: Path) -> None:
    with pytest.raises(DataError, match=r"no split 'dev': it has test, train \(--split\)"):
        load(folder, split="dev")


def test_shards_under_data_are_one_split_in_order(tmp_path: Path, pairs: Path) -> None:
    (tmp_path / "shards" / "data").mkdir(parents=True)
    for i, rows in enumerate((PAIRS[:3], PAIRS[3:])):
        shard = tmp_path / "shards" / "data" / f"test-0000{i}-of-00002.parquet"
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), shard)
    assert load(tmp_path / "shards").ids == ("a", "b", "c", "d", "e")
    assert load(tmp_path / "shards", split="test").fingerprint == load(pairs).fingerprint


def test_a_folder_with_one_split_needs_no_name_for_it(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    write_jsonl(tmp_path / "one" / "validation.jsonl", PAIRS)
    assert len(load(tmp_path / "one")) == 5


def test_a_split_in_two_formats_is_not_read_twice(folder: Path) -> None:
    write_jsonl(folder / "test.ndjson", PAIRS[2:])
    with pytest.raises(DataError, match=r"test\.jsonl.*test\.ndjson"):
        load(folder, columns={"id_column": ""})


def test_the_hubs_flags_are_refused_for_a_file(pairs: Path) -> None:
    with pytest.raises(RequestError, match="are for the hub"):
        load(pairs, name="en")


# --- columns, ids, fingerprint, blanks -------------------------------------------------------------------------


def test_columns_may_have_other_names_and_the_fingerprint_stays(tmp_path: Path, pairs: Path) -> None:
    other = [{"key": r["id"], "a": r["sentence1"], "b": r["sentence2"], "y": r["score"], "x": 1} for r in PAIRS]
    named = {"input_column_1": "a", "input_column_2": "b", "score_column": "y", "id_column": "key"}
    (tmp_path / "elsewhere").mkdir()
    found = load(write_jsonl(tmp_path / "elsewhere" / "other.ndjson", other), columns=named)
    assert found.ids == ("a", "b", "c", "d", "e")
    assert found.source.columns_mapping == named
    assert found.fingerprint == load(pairs).fingerprint == PAIRS_FINGERPRINT


def test_an_unknown_column_key_is_refused_with_those_there_are(pairs: Path) -> None:
    with pytest.raises(RequestError, match="label=… is not a column of this task: it has input_column_1"):
        load(pairs, columns={"label": "score"})


@pytest.mark.parametrize(
    ("extra", "wish", "expected"),
    [
        pytest.param({"id": "x{}"}, None, ("x0", "x1"), id="id"),
        pytest.param({"_id": "y{}"}, None, ("y0", "y1"), id="_id"),
        pytest.param({"id": "x{}", "_id": "y{}"}, None, ("x0", "x1"), id="id before _id"),
        pytest.param({"id": "x{}", "key": "z{}"}, "key", ("z0", "z1"), id="another column"),
        pytest.param({}, None, ("0", "1"), id="no id column"),
        pytest.param({"id": "same"}, "", ("0", "1"), id="numbered on demand"),
    ],
)
def test_ids_come_from(extra: dict[str, str], wish: str | None, expected: tuple[str, ...], tmp_path: Path) -> None:
    bare = [{k: v for k, v in row.items() if k != "id"} for row in PAIRS[:2]]
    rows = [row | {key: value.format(i) for key, value in extra.items()} for i, row in enumerate(bare)]
    columns = {} if wish is None else {"id_column": wish}
    assert load(write_jsonl(tmp_path / "ids.jsonl", rows), columns=columns).ids == expected


def test_a_repeated_id_is_refused_with_both_places(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"line 6, column 'id': the id 'a' stands already at ids\.jsonl, line 1"):
        load(write_jsonl(tmp_path / "ids.jsonl", [*PAIRS, PAIRS[0]]))


def test_an_id_column_that_is_not_there_is_refused_with_the_columns_there_are(pairs: Path) -> None:
    with pytest.raises(DataError, match="'uuid'.*sentence1, sentence2, score"):
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


def test_data_with_blank_rows_only_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no row to measure: all 2 rows have a blank text"):
        load(write_jsonl(tmp_path / "blank.jsonl", [row | {"sentence1": ""} for row in PAIRS[:2]]))


@pytest.mark.parametrize(("name", "count"), [("english", 120), ("japanese", 40)])
def test_the_sample_data_that_the_package_carries_is_sound(name: str, count: int) -> None:
    found = load(data.sample(name))
    assert len(found) == len(set(found.ids)) == found.source.rows_read == count
    assert all(0 <= score <= 5 for score in found.columns["score_column"])
    assert len(set(zip(found.columns["input_column_1"], found.columns["input_column_2"], strict=True))) == count
    assert all(any(ord(c) > 0x3000 for c in t) == (name == "japanese") for t in found.columns["input_column_1"])
