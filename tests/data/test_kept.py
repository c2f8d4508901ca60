"""Rows kept as columns while they are read: the same dataset, the same results, the same errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

import calipers
from calipers.core import DataError, packed, room
from calipers.core.packed import PackedTexts
from calipers.data import DataOptions, beir, kept, load_rows
from calipers.runs.store import Store
from calipers.tasks import find
from tests.support.samples import write_jsonl

COLUMNS = find("sentence-similarity").columns
ROWS = [{"sentence1": f"left {i}", "sentence2": f"right {i}", "score": float(i % 5)} for i in range(60)]


@pytest.fixture
def packing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if sixty rows were millions."""
    monkeypatch.setattr(packed, "_IN_MEMORY", 64)
    monkeypatch.setattr(packed, "_FEW", 10)
    monkeypatch.setattr(kept, "_MANY", 10)


def test_packed_rows_have_the_fingerprint_of_plain_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = str(write_jsonl(tmp_path / "rows.jsonl", [*ROWS, {"sentence1": " ", "sentence2": "x", "score": 1}]))
    plain = load_rows(file, COLUMNS)
    monkeypatch.setattr(packed, "_IN_MEMORY", 64)
    monkeypatch.setattr(packed, "_FEW", 10)
    monkeypatch.setattr(kept, "_MANY", 10)
    rows = load_rows(file, COLUMNS)
    assert isinstance(rows.columns["input_column_1"], PackedTexts)
    assert isinstance(rows.ids, PackedTexts)
    assert {key: list(values) for key, values in rows.columns.items()} == plain.columns
    assert (rows.fingerprint, rows.ids, rows.source) == (plain.fingerprint, plain.ids, plain.source)
    assert (rows.source.rows_read, rows.source.rows_blank) == (61, 1)
    sample = load_rows(file, COLUMNS, options=DataOptions(samples=7))
    assert len(sample) == 7


@pytest.mark.usefixtures("packing")
def test_packed_rows_are_measured_stored_and_compared(tmp_path: Path) -> None:
    file = str(write_jsonl(tmp_path / "rows.jsonl", ROWS))
    texts = [str(row[key]) for row in ROWS for key in ("sentence1", "sentence2")]
    np.save(tmp_path / "v.npy", np.random.default_rng(0).normal(size=(len(texts), 4)).astype(np.float32))
    (tmp_path / "v.txt").write_text("\n".join(texts))
    store = Store(tmp_path / "store")
    result = calipers.evaluate(str(tmp_path / "v.npy"), dataset=file, resamples=100, store=store)
    again = store.load(result.run_id)
    assert list(again.outcomes.texts["text_2"]) == [row["sentence2"] for row in ROWS]
    assert again.metrics == result.metrics
    assert [verdict.label for verdict in calipers.compare(result, [again])] == ["PASS"]


@pytest.mark.usefixtures("packing")
def test_a_repeated_id_is_refused_with_both_places(tmp_path: Path) -> None:
    rows = [{**row, "id": str(i % 50)} for i, row in enumerate(ROWS)]
    file = str(write_jsonl(tmp_path / "rows.jsonl", rows))
    with pytest.raises(DataError, match=r"rows\.jsonl, line 51.*the id '0' is already used at rows\.jsonl, line 1;"):
        load_rows(file, COLUMNS)


@pytest.mark.usefixtures("packing")
def test_columns_of_mixed_kinds_keep_their_values(tmp_path: Path) -> None:
    rows = [{"sentence1": f"a{i}", "sentence2": f"b{i}", "label": i % 2 if i < 5 else "name"} for i in range(30)]
    columns = find("pair-classification").columns
    labels = load_rows(str(write_jsonl(tmp_path / "rows.jsonl", rows)), columns).columns
    assert len(next(iter(labels.values()))) == 30


def corpus(folder: Path, rows: int = 40) -> Path:
    (folder / "qrels").mkdir(parents=True)
    write_jsonl(
        folder / "corpus.jsonl", [{"_id": f"d{i}", "text": f"text {i}" if i != 5 else " "} for i in range(rows)]
    )
    write_jsonl(folder / "queries.jsonl", [{"_id": f"q{i}", "text": f"query {i}"} for i in range(12)])
    (folder / "qrels" / "test.tsv").write_text("".join(f"q{i}\td{2 * i}\t1\n" for i in range(12)))
    return folder


def stored_vectors(file: Path, rows: int = 40) -> str:
    ids = [f"d{i}/document" for i in range(rows)] + [f"q{i}/query" for i in range(12)]
    vectors = np.random.default_rng(0).normal(size=(len(ids), 4)).astype(np.float32)
    pyarrow.parquet.write_table(pyarrow.table({"id": ids, "vector": list(vectors)}), file)
    return str(file)


def test_a_packed_corpus_and_packed_vectors_give_the_same_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, vectors = str(corpus(tmp_path / "beir")), stored_vectors(tmp_path / "v.parquet")
    plain = calipers.evaluate(vectors, task="retrieval", dataset=folder, resamples=50)
    monkeypatch.setattr(packed, "_IN_MEMORY", 64)
    monkeypatch.setattr(packed, "_FEW", 10)
    monkeypatch.setattr(room, "_IN_MEMORY", 64)
    rows = beir.load(folder)
    assert isinstance(rows.tables["corpus"].ids, PackedTexts)
    assert isinstance(rows.tables["corpus"].columns["text"], PackedTexts)
    again = calipers.evaluate(vectors, task="retrieval", dataset=folder, resamples=50)
    assert (again.metrics, again.intervals, again.fingerprint) == (plain.metrics, plain.intervals, plain.fingerprint)
    assert (
        again.outcomes.details["results"]["document"].tolist() == plain.outcomes.details["results"]["document"].tolist()
    )


def test_a_repeated_id_of_a_corpus_is_refused_even_on_a_blank_text(tmp_path: Path) -> None:
    folder = corpus(tmp_path / "beir")
    with (folder / "corpus.jsonl").open("a") as file:
        file.write('{"_id": "d5", "text": "again"}\n')
    with pytest.raises(DataError, match=r"line 41: the id 'd5' is already used at .*line 6"):
        beir.load(str(folder))
