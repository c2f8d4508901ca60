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
