"""What a diagnosis reads: separate files, ESCI tables, pairs, terms and paraphrases; and how they are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from calipers.core import DataError, RequestError
from calipers.data import corpora
from tests.support.samples import write_jsonl


@pytest.fixture
def files(tmp_path: Path) -> Path:
    write_jsonl(tmp_path / "corpus.jsonl", [{"_id": "d1", "title": "Red", "text": "chair"}, {"_id": "d2", "text": "b"}])
    (tmp_path / "queries.txt").write_text("red chair\n\ntable\n", encoding="utf-8")
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n0\td1\t2\n", encoding="utf-8")
    return tmp_path


def test_three_files_make_a_dataset(files: Path) -> None:
    names = {"corpus": "corpus.jsonl", "queries": "queries.txt", "qrels": "qrels.tsv"}
    found = corpora.load(**{key: str(files / name) for key, name in names.items()})
    assert (found.ids, found.columns["query"], found.columns["qrels"]) == (("0",), ["red chair"], [{"d1": 2.0}])
    assert found.tables["corpus"].columns["text"] == ["Red chair", "b"]


def test_columns_are_not_kept_but_can_be_read_again(files: Path) -> None:
    rows = [{"_id": "d1", "text": "chair", "specs": {"colour": "red"}}, {"_id": "d2", "text": "", "brand": "LG"}]
    write_jsonl(files / "corpus.jsonl", rows)
    noticed = []
    found = corpora.load(corpus=str(files / "corpus.jsonl"), notice=lambda id, row: noticed.append((id, row)))
    corpus = found.tables["corpus"]
    assert list(corpus.columns) == ["text"]
    assert noticed == [("d1", rows[0])]  # a document without a text is none
    assert corpus.read_again is not None
    assert list(corpus.read_again()) == list(corpus.read_again()) == [("d1", rows[0]), ("d2", rows[1])]


def test_without_judgements_every_query_is_asked(files: Path) -> None:
    found = corpora.load(corpus=str(files / "corpus.jsonl"), queries=str(files / "queries.txt"))
    assert (found.ids, found.columns["qrels"]) == (("0", "2"), [{}, {}])  # the blank line is left out


def test_a_corpus_alone_has_no_queries(files: Path) -> None:
    found = corpora.load(corpus=str(files / "corpus.jsonl"))
    assert (len(found), found.tables["corpus"].ids) == (0, ("d1", "d2"))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "there is no corpus"),
        ({"dataset": "x", "corpus": "y"}, "mutually exclusive"),
        ({"corpus": "y", "qrels": "z"}, "`queries`"),
    ],
)
def test_inputs_that_exclude_each_other_are_refused(inputs: dict[str, str], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        corpora.load(**inputs)


def test_judgements_of_other_queries_are_refused(files: Path) -> None:
    (files / "other.tsv").write_text("query-id\tcorpus-id\tscore\nx\td1\t2\n", encoding="utf-8")
    with pytest.raises(DataError, match="judges none of the 3 queries"):
        corpora.load(
            corpus=str(files / "corpus.jsonl"), queries=str(files / "queries.txt"), qrels=str(files / "other.tsv")
        )


ESCI = "query_id,query,product_id,product_title,esci_label\n1,desk,p1,Desk,Exact\n1,desk,p2,Lamp,C\n"


def test_a_table_of_esci_pairs_is_a_dataset(tmp_path: Path) -> None:
    (tmp_path / "esci.csv").write_text(ESCI)
    found = corpora.load(dataset=str(tmp_path / "esci.csv"))
    assert found.columns["qrels"] == [{"p1": 3.0, "p2": 1.0}]
    assert corpora.has_esci_labels(str(tmp_path / "esci.csv"), None)


@pytest.mark.parametrize(
    ("row", "message"),
    [("1,desk,p3,Desk,X", "expected one of E, S, C, I"), ("1,table,p3,Desk,E", "has another query here")],
)
def test_a_faulty_esci_table_names_the_line(tmp_path: Path, row: str, message: str) -> None:
    (tmp_path / "esci.csv").write_text(f"{ESCI}{row}\n")
    with pytest.raises(DataError, match=f"line 4.*{message}"):
        corpora.load(dataset=str(tmp_path / "esci.csv"))


def test_real_esci_labels_are_read(data: Path) -> None:
    found = corpora.load(dataset=str(data("esci-sample/esci.csv")))  # type: ignore[operator]
    assert len(found) == 200
    assert {grade for grades in found.columns["qrels"] for grade in grades.values()} == {0.0, 1.0, 2.0, 3.0}


def test_pairs_from_a_score_on_are_positive(tmp_path: Path) -> None:
    rows = [{"sentence1": f"a{i}", "sentence2": "b", "score": i} for i in range(6)]
    file = str(write_jsonl(tmp_path / "pairs.jsonl", rows))  # type: ignore[arg-type]
    assert corpora.load_pairs(file).left == ("a4", "a5")  # from 0.8 of the highest score on
    assert corpora.load_pairs(file, above=2.5).left == ("a3", "a4", "a5")
    with pytest.raises(DataError, match="no positive pair"):
        corpora.load_pairs(file, above=9)


def test_pairs_without_a_score_are_all_positive(tmp_path: Path) -> None:
    file = str(write_jsonl(tmp_path / "pairs.jsonl", [{"anchor": "a", "positive": "b"}]))
    assert corpora.load_pairs(file).right == ("b",)
    with pytest.raises(RequestError, match="`pairs_above`"):
        corpora.load_pairs(file, above=1)


def test_terms_are_read_once_each(tmp_path: Path) -> None:
    (tmp_path / "terms.txt").write_text("HbA1c\n\nHbA1c\nmTOR\n")
    assert corpora.load_terms(str(tmp_path / "terms.txt")) == ("HbA1c", "mTOR")


def test_paraphrases_in_their_three_forms(tmp_path: Path) -> None:
    (tmp_path / "same.txt").write_text("tv\ttelevision set\n")
    write_jsonl(tmp_path / "lists.jsonl", [{"id": "g", "texts": ["tv", "television set"]}])
    write_jsonl(tmp_path / "rows.jsonl", [{"group": "g", "text": "tv"}, {"group": "g", "text": "television set"}])
    for name in ("same.txt", "lists.jsonl", "rows.jsonl"):
        assert corpora.load_paraphrases(str(tmp_path / name)).texts == (("tv", "television set"),)
    (tmp_path / "same.txt").write_text("tv\n")
    with pytest.raises(DataError, match="one text only; a group needs"):
        corpora.load_paraphrases(str(tmp_path / "same.txt"))
