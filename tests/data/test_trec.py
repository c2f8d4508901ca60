"""TREC files: runs are written; runs and judgements are read, and refused with their line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from calipers.core import DataError, RequestError
from calipers.data import trec


def test_a_run_survives_a_round_trip(tmp_path: Path) -> None:
    results = [("q1", "d1", 0.1 + 0.2), ("q1", "d2", -1e-300), ("q2", "d1", 3.0)]
    trec.write_run(tmp_path / "run.txt", results, tag="bm25")
    assert (tmp_path / "run.txt").read_text().splitlines()[1] == "q1 Q0 d2 2 -1e-300 bm25"
    assert trec.read_run(tmp_path / "run.txt") == {"q1": {"d1": 0.1 + 0.2, "d2": -1e-300}, "q2": {"d1": 3.0}}
    (tmp_path / "qrels.txt").write_text("q1 0 d1 2\nq1 0 d2 0\nq2 0 d1 0.5\n")
    assert trec.read_qrels(tmp_path / "qrels.txt") == {"q1": {"d1": 2.0, "d2": 0.0}, "q2": {"d1": 0.5}}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("q1 Q0 d2 2 0.5", r"run.txt, line 2: expected 6 fields \(query Q0 document rank score tag\), found 5"),
        ("q1 Q0 d2 2 high me", "run.txt, line 2, column 'score': expected a number, found 'high'"),
        ("q1 Q0 d2 2 1_0 me", "found '1_0'"),
        ("q1 Q0 d1 2 0.5 me", "run.txt, line 2: the document 'd1' occurs already in the results of query 'q1'"),
    ],
)
def test_bad_runs_are_named_by_line(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "run.txt").write_text(f"q1 Q0 d1 1 0.7 me\n{line}\n")
    with pytest.raises(DataError, match=message):
        trec.read_run(tmp_path / "run.txt")


def test_an_id_with_a_space_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="cannot hold the id 'd 1'"):
        trec.write_run(tmp_path / "run.txt", [("q1", "d 1", 1.0)])
    with pytest.raises(RequestError, match="cannot be written"):
        trec.write_run(tmp_path / "no" / "run.txt", [])


def test_trec_evals_own_files_are_read(data: Callable[[str], Path]) -> None:
    qrels, run = trec.read_qrels(data("trec-eval/qrels.test")), trec.read_run(data("trec-eval/results.test"))
    assert {q: sum(g > 0 for g in grades.values()) for q, grades in qrels.items()}["301"] == 474
    assert len(run["301"]) == 500


@pytest.mark.parametrize(
    "text",
    [
        "q1\td1\t2\t\nq1\td2\t0\t\n",  # a tab at the end
        "q1 0\td1\t2\nq1\t0 d2 0\n",  # tabs and spaces
        "query-id\tcorpus-id\tscore\tsource\nq1\td1\t2\tme\nq1\td2\t0\tyou\n",  # a fourth column
        "source\tquery-id\tcorpus-id\tscore\nme\tq1\td1\t2\nyou\tq1\td2\t0\n",
        "topic iter docid relevance\nq1 0 d1 2\nq1 0 d2 0\n",
        "qid\tdoc\tesci_label\nq1\td1\t2\nq1\td2\t0\n",
        "q1\t0\td1\t2\r\n\r\nq1\t0\td2\t0\r\n",
    ],
)
def test_judgements_are_read_however_their_fields_are_separated(tmp_path: Path, text: str) -> None:
    (tmp_path / "qrels.tsv").write_bytes(text.encode())
    assert trec.read_qrels(tmp_path / "qrels.tsv") == {"q1": {"d1": 2.0, "d2": 0.0}}


def test_ids_with_spaces_are_read_between_tabs(tmp_path: Path) -> None:
    (tmp_path / "qrels.tsv").write_text("red wine\td 1\t1\n")
    assert trec.read_qrels(tmp_path / "qrels.tsv") == {"red wine": {"d 1": 1.0}}


@pytest.mark.parametrize("document", ["d1", "d 6"])
def test_the_0_of_an_id_is_not_the_field_of_trec(tmp_path: Path, document: str) -> None:
    (tmp_path / "qrels.tsv").write_text(f"query-id\tcorpus-id\tscore\nq 0\t{document}\t1\nq1\t{document}\t2\n")
    assert trec.read_qrels(tmp_path / "qrels.tsv") == {"q 0": {document: 1.0}, "q1": {document: 2.0}}


@pytest.mark.parametrize("first", ["q1\td1\thigh", "q1 0 d1 x", "q1\t0\td1\t1_0"])
def test_a_bad_grade_on_the_first_line_is_no_header(tmp_path: Path, first: str) -> None:
    (tmp_path / "qrels.tsv").write_text(f"{first}\nq1\td2\t1\n")
    with pytest.raises(DataError, match=r"qrels.tsv, line 1, column 'grade': expected a number, found"):
        trec.read_qrels(tmp_path / "qrels.tsv")


def test_a_line_of_another_width_is_refused(tmp_path: Path) -> None:
    (tmp_path / "qrels.tsv").write_text("q1\td1\t1\nq1\td2\t1\tme\n")
    with pytest.raises(DataError, match="line 2: expected 3 fields as before, found 4"):
        trec.read_qrels(tmp_path / "qrels.tsv")
