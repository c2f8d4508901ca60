"""Data of another task are recognised, and the error names that task."""

from __future__ import annotations

from pathlib import Path

import pytest

from calipers import data, tasks
from calipers.core import DataError


@pytest.mark.parametrize(
    ("name", "content", "task", "expected"),
    [
        ("a.jsonl", '{"query": "q", "documents": []}', "sentence-similarity", "set `task` to reranking"),
        ("a.csv", "sentence1,sentence2,score\na,b,1\n", "fill-mask", "set `task` to sentence-similarity"),
        ("a.csv", "sentence1,sentence2,label\na,b,1\n", "sentence-similarity", "set `task` to pair-classification"),
        ("a.txt", "a text\n", "sentence-similarity", "set `task` to fill-mask"),
        (
            "a.jsonl",
            '{"sentence1": "a", "sentence2": "b", "score": 1}',
            "retrieval",
            "set `task` to sentence-similarity",
        ),
    ],
)
def test_a_file_of_another_task_is_named(name: str, content: str, task: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=expected):
        data.load_dataset(str(tmp_path / name), tasks.find(task))


def test_a_folder_with_a_corpus_is_for_retrieval(tmp_path: Path) -> None:
    for name in ("corpus.jsonl", "queries.jsonl"):
        (tmp_path / name).write_text('{"_id": "1", "text": "a"}\n', encoding="utf-8")
    with pytest.raises(DataError, match="a corpus with queries: set `task` to retrieval"):
        data.load_dataset(str(tmp_path), tasks.find("sentence-similarity"))


def test_what_is_of_no_kind_gets_no_hint(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,2\n", encoding="utf-8")
    with pytest.raises(DataError) as caught:
        data.load_dataset(str(tmp_path / "a.csv"), tasks.find("sentence-similarity"))
    assert "look like" not in str(caught.value)
