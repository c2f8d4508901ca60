"""Markdown of runs, and code spans that text from data cannot break out of, held against a Markdown parser."""

from __future__ import annotations

from pathlib import Path

import pytest

from calipers import tasks
from calipers.core import DataSource, RequestError, printable
from calipers.rendering import markdown
from tests.support import verdicts as made
from tests.support.markdown import ATTACKS, html_of, tokens


@pytest.mark.parametrize("attack", ATTACKS[:-1])
def test_a_code_span_is_exactly_the_text(attack: str) -> None:
    spans = [t.content for t in tokens(f"- {markdown.code(attack)}") if t.type == "code_inline"]
    assert spans == [printable(attack)]


def test_a_summary_is_added_to_what_is_there(tmp_path: Path) -> None:
    file = tmp_path / "summary.md"
    markdown.append(file, "one\n")
    markdown.append(file, "two\n")
    assert file.read_text() == "one\n\ntwo\n"
    with pytest.raises(RequestError, match="cannot be written"):
        markdown.append(tmp_path / "no" / "folder.md", "x")


def test_runs_become_tables() -> None:
    result = made.result(warnings=("3 rows | were <b>blank</b>",))
    text = markdown.results_markdown([(result, tasks.find(result.task))])
    assert "| `cosine_spearman` | 82.05 | 80.10 to 83.90 | Spearman of cosine with gold, × 100 |" in text
    assert "| `dot_spearman` | 82.05 | – |" in text
    assert "> warning: `3 rows | were <b>blank</b>`" in text
    assert html_of(text) == []


def test_a_run_of_a_sample_says_so() -> None:
    sample = made.result(dataset=DataSource("pairs.csv", requested=3, rows_read=1379))
    text = markdown.results_markdown([(sample, tasks.find(sample.task))])
    assert "· 3 pairs (a random sample of 1,379 rows, seed 42) ·" in text
