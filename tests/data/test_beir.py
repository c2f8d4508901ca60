"""BEIR folders: what is read, what is counted, and what is refused with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from calipers.core import DataError
from calipers.data import DataOptions, beir
from tests.support.samples import write_jsonl

CORPUS = [
    {"_id": "d1", "title": "Cats", "text": "The cat sleeps on the sofa."},
    {"_id": "d2", "title": "", "text": "Dogs bark at night."},
    {"_id": "d3", "text": "  A ship sails.  ", "metadata": {"year": 1901}},
    {"_id": 4, "title": "Bread", "text": ""},
    {"_id": "blank", "title": " ", "text": ""},
]
QUERIES = [
    {"_id": "q1", "text": "sleeping cat"},
    {"_id": "q2", "text": "barking"},
    {"_id": "q3", "text": "nobody asked"},
]
QRELS = "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\nq2\td2\t1\nq2\tgone\t1\nq9\td1\t1\n"


def make_folder(folder: Path, qrels: str = QRELS, *, name: str = "test.tsv") -> Path:
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    write_jsonl(folder / "corpus.jsonl", CORPUS)
    write_jsonl(folder / "queries.jsonl", QUERIES)
    (folder / "qrels" / name).write_text(qrels, encoding="utf-8")
    return folder


def test_a_folder_is_queries_judgements_and_a_corpus(tmp_path: Path) -> None:
    found = beir.load(str(make_folder(tmp_path)))
    assert found.ids == ("q1", "q2")
    assert found.columns == {"query": ["sleeping cat", "barking"], "qrels": [{"d1": 2, "d2": 0}, {"d2": 1, "gone": 1}]}
    corpus = found.tables["corpus"]
    assert corpus.ids == ("d1", "d2", "d3", "4")
    assert corpus.columns["text"] == [
        "Cats The cat sleeps on the sofa.",
        "Dogs bark at night.",
        "A ship sails.",
        "Bread",
    ]
    assert found.counts == {
        "documents": 4,
        "documents_blank": 1,
        "judged_documents_missing": 1,
        "queries_unjudged": 1,
        "judged_queries_missing": 1,
    }
    assert (found.source.split, found.source.rows_read) == ("test", 2)


@pytest.mark.parametrize(
    "qrels",
    [
        QRELS.split("\n", 1)[1],
        QRELS.replace("\t", " ").split("\n", 1)[1],
        "score\tcorpus-id\tquery-id\n2\td1\tq1\n0\td2\tq1\n1\td2\tq2\n1\tgone\tq2\n1\td1\tq9\n",
        "q1 0 d1 2\r\nq1 0 d2 0\r\n\r\nq2 0 d2 1\nq2 Q0 gone 1\nq9 0 d1 1",
        "q1\t0\td1\t2\nq1\t0\td2\t0\nq2\t0\td2\t1\nq2\t0\tgone\t1\nq9\t0\td1\t1.0\n",
        QRELS + "q1\td1\t2\n",
    ],
    ids=["no header", "spaces", "other order", "TREC", "TREC with tabs", "a line twice"],
)
def test_every_form_of_judgements_gives_the_same(tmp_path: Path, qrels: str) -> None:
    plain = beir.load(str(make_folder(tmp_path / "a")))
    other = beir.load(str(make_folder(tmp_path / "b", qrels)))
    assert (other.columns, other.fingerprint) == (plain.columns, plain.fingerprint)


@pytest.mark.parametrize(
    ("qrels", "message"),
    [
        (QRELS + "q1\td1\t1\n", r"test.tsv, line 7: query 'q1' and document 'd1' have the grade 1 here and 2 above"),
        (QRELS + "q1\td1\n", r"test.tsv, line 7: expected 3 fields as before, found 2"),
        (QRELS + "q1\td3\tgood\n", r"test.tsv, line 7, column .grade.: expected a number, found 'good'"),
        (QRELS + "q1\td3\tnan\n", r"test.tsv, line 7, column .grade.: expected a finite number"),
        ("q1 d1\n", r"test.tsv, line 1: expected query-id, corpus-id, score \(BEIR\).*found 2 field"),
        ("q8\td1\t1\n", "has no query to measure"),
        ("", "has no query to measure"),
    ],
)
def test_bad_judgements_are_named_by_line(tmp_path: Path, qrels: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        beir.load(str(make_folder(tmp_path, qrels)))


@pytest.mark.parametrize(
    ("file", "row", "message"),
    [
        (
            "corpus",
            {"_id": "d2", "text": "again"},
            "corpus.jsonl, line 6: the id 'd2' is already used at corpus.jsonl, line 2",
        ),
        ("queries", {"_id": "q2", "text": "again"}, "queries.jsonl, line 4: the id 'q2' is already used at"),
        ("corpus", {"text": "no id"}, "corpus.jsonl, line 6: there is no column '_id'"),
        ("corpus", {"_id": "d6", "body": "x"}, "corpus.jsonl, line 6: there is no 'text'; found _id, body"),
        ("corpus", {"_id": "d6", "text": 7}, "corpus.jsonl, line 6, column 'text': expected a text, found 7"),
        ("corpus", {"_id": "d6", "title": ["x"], "text": "x"}, "line 6, column 'title': expected a text"),
    ],
)
def test_bad_rows_are_named_by_line(tmp_path: Path, file: str, row: dict[str, object], message: str) -> None:
    make_folder(tmp_path)
    write_jsonl(tmp_path / f"{file}.jsonl", [*(CORPUS if file == "corpus" else QUERIES), row])
    with pytest.raises(DataError, match=message):
        beir.load(str(tmp_path))


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no dataset at"):
        beir.load(str(tmp_path / "nowhere"))
    make_folder(tmp_path, name="dev.tsv")
    assert beir.load(str(tmp_path)).source.split == "dev"  # the only one there is
    with pytest.raises(DataError, match=r"no qrels of 'test': it has dev \(choose one with `split`\)"):
        beir.load(str(tmp_path), DataOptions(split="test"))
    (tmp_path / "corpus.jsonl").unlink()
    with pytest.raises(DataError, match=r"has no corpus\.jsonl"):
        beir.load(str(tmp_path))


def test_samples_choose_queries_and_never_documents(tmp_path: Path) -> None:
    write_jsonl(make_folder(tmp_path) / "queries.jsonl", [{"_id": f"q{i}", "text": f"query {i}"} for i in range(50)])
    (tmp_path / "qrels" / "test.tsv").write_text("".join(f"q{i} 0 d1 1\n" for i in range(50)))
    some = beir.load(str(tmp_path), DataOptions(samples=7))
    assert len(some) == 7
    assert list(some.ids) == sorted(some.ids, key=lambda id: int(id[1:]))
    assert len(some.tables["corpus"]) == 4
    assert beir.load(str(tmp_path), DataOptions(samples=7)).fingerprint == some.fingerprint
    assert beir.load(str(tmp_path), DataOptions(samples=7, seed=1)).ids != some.ids
    assert beir.load(str(tmp_path), DataOptions(samples=7, shuffle=False)).ids == tuple(f"q{i}" for i in range(7))


def test_the_fingerprint_covers_queries_judgements_and_corpus(tmp_path: Path) -> None:
    found = {beir.load(str(make_folder(tmp_path / "a"))).fingerprint}
    found.add(beir.load(str(make_folder(tmp_path / "b", QRELS.replace("d1\t2", "d1\t3")))).fingerprint)
    write_jsonl(make_folder(tmp_path / "c") / "corpus.jsonl", CORPUS[:3])
    found.add(beir.load(str(tmp_path / "c")).fingerprint)
    write_jsonl(make_folder(tmp_path / "d") / "queries.jsonl", [QUERIES[0], {"_id": "q2", "text": "barks"}])
    found.add(beir.load(str(tmp_path / "d")).fingerprint)
    assert len(found) == 4


def test_taking_rows_keeps_the_corpus(tmp_path: Path) -> None:
    found = beir.load(str(make_folder(tmp_path)))
    assert found.take([1]).tables == found.tables
    assert found.take([0, 1]).fingerprint == found.fingerprint != found.take([1]).fingerprint


def test_judgements_of_another_corpus_are_refused_and_of_a_sample_are_not(tmp_path: Path) -> None:
    make_folder(tmp_path, "q1\tx1\t1\nq2\tx2\t1\n")
    with pytest.raises(DataError, match=r"none of the 2 documents that .* judges is in the corpus: it judges x1, x2"):
        beir.load(str(tmp_path))
    make_folder(tmp_path, "q1\tx1\t1\nq2\td1\t1\n")
    for seed in range(4):  # whichever of the two queries is drawn
        assert len(beir.load(str(tmp_path), DataOptions(samples=1, seed=seed))) == 1
