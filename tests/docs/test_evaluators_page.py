"""docs/evaluators.md: its Python runs on a small cross-encoder, its figures and CSV columns are measured."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers.cross_encoder import evaluation as theirs

from calipers.interop import sentence_transformers as ours
from tests.support.cross_encoders import tiny
from tests.support.evaluators import COMPAT
from tests.support.scorers import FixedCrossEncoder

PAGE = (Path(__file__).parents[2] / "docs" / "evaluators.md").read_text(encoding="utf-8")
RERANKING, CLASSIFICATION, CORRELATION = (
    f"CrossEncoder{kind}Evaluator" for kind in ("Reranking", "Classification", "Correlation")
)


def rows_of(title: str) -> list[list[str]]:
    """The cells of the table under a title, without its head."""
    section = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


@pytest.fixture
def one_thread() -> Iterator[None]:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.filterwarnings("ignore")
def test_the_python_of_the_page_runs(minilm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny(tmp_path / "reranker", minilm)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__document__"}
    alone, compared, trained = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    for block in (alone, compared):
        exec(compile(block, "evaluators.md", "exec"), names)
    assert names["evaluator"].outcomes.columns["ndcg@10"] == pytest.approx(names["before"].columns["ndcg@10"])
    assert len(list((tmp_path / "results").glob("*_shop_results_@10.csv"))) == 1
    exec(compile(trained, "evaluators.md", "exec"), names)
    state = names["trainer"].state
    history = [log["eval_shop_ndcg@10"] for log in state.log_history if "eval_shop_ndcg@10" in log]
    assert len(history) == 3
    assert state.best_metric == max(history)
    assert len(next((tmp_path / "trained/eval").glob("*.csv")).read_text().splitlines()) == 4


# --- where the default differs -------------------------------------------------------------------------------------


def sample(positive: str, documents: str, query: str = "q", key: str = "documents") -> dict[str, Any]:
    return {"query": query, "positive": list(positive), key: list(documents)}


IN_ORDER = {(query, text): -float(ord(text)) for query in "qr" for text in "abcdz"}
DEAD = {("q", "a"): 0.5, ("q", "b"): math.nan, ("q", "c"): 1.0}
PAIRS = [["q", "a"], ["q", "b"], ["q", "c"]]

# First words of the row → evaluator, its arguments, and the model.
CASES: dict[str, tuple[str, tuple[Any, ...], FixedCrossEncoder]] = {
    "positive and negative": (
        RERANKING, ([sample("a", "b", key="negative")],), FixedCrossEncoder(dict.fromkeys(IN_ORDER, 0.5)),
    ),
    "c and z": (RERANKING, ([sample("cz", "abcd")], 10, False), FixedCrossEncoder(IN_ORDER)),
    "z positive": (RERANKING, ([sample("z", "abc")],), FixedCrossEncoder(IN_ORDER)),
    "b positive": (RERANKING, ([sample("b", "aab")],), FixedCrossEncoder(IN_ORDER)),
    "one perfect": (RERANKING, ([sample("a", "ab"), sample("", "ab", "r")],), FixedCrossEncoder(IN_ORDER)),
    "one positive": (RERANKING, ([sample("a", "", key="negative")],), FixedCrossEncoder(IN_ORDER)),
    "a and b": (RERANKING, ([sample("ab", "")],), FixedCrossEncoder(IN_ORDER)),
    "all labels 0": (CLASSIFICATION, (PAIRS, [0, 0, 0]), FixedCrossEncoder(IN_ORDER)),
    "correlation of one": (CORRELATION, (PAIRS[:1], [1.0]), FixedCrossEncoder(IN_ORDER)),
    "no samples": (RERANKING, ([],), FixedCrossEncoder({})),
    "a NaN among the scores, correlation": (CORRELATION, (PAIRS, [0, 1, 2]), FixedCrossEncoder(DEAD)),
    "a NaN among the scores, several": (
        CLASSIFICATION,
        (PAIRS[:2], [0, 1]),
        FixedCrossEncoder({("q", "a"): [0.5, 0.2], ("q", "b"): [0.0, math.nan]}, num_labels=2),
    ),
}  # fmt: skip


def figures(evaluator: Any, model: FixedCrossEncoder, keys: list[str]) -> str:
    try:
        with np.errstate(all="ignore"):
            metrics = evaluator(model)
    except Exception:
        return "error"
    return ", ".join("NaN" if math.isnan(metrics[key]) else f"{metrics[key]:.4f}" for key in keys)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", rows_of("Where the default differs"), ids=lambda row: row[0][:40])
def test_the_table_has_the_figures_of_both(row: list[str]) -> None:
    case, other, default, _ = row
    (start,) = [start for start in CASES if case.startswith(start)]
    name, arguments, model = CASES[start]
    keys = re.findall(r"`([\w@]+)`", case.rpartition(": ")[2])
    assert keys
    assert figures(getattr(theirs, name)(*arguments), model, keys) == other
    assert figures(getattr(ours, name)(*arguments, compat=COMPAT), model, keys) == other
    assert figures(getattr(ours, name)(*arguments), model, keys) == default


def test_every_case_is_in_the_table() -> None:
    assert len(rows_of("Where the default differs")) == len(CASES)


# --- CSV files -----------------------------------------------------------------------------------------------------


def test_the_files_and_columns_are_written(tmp_path: Path) -> None:
    several = FixedCrossEncoder({("q", "a"): [0.5, 0.2], ("q", "b"): [0.0, 0.1]}, num_labels=2)
    calls = [
        (ours.CrossEncoderRerankingEvaluator([sample("a", "ab")], name="NAME"), FixedCrossEncoder(IN_ORDER)),
        (ours.CrossEncoderClassificationEvaluator(PAIRS, [0, 1, 0], name="NAME"), FixedCrossEncoder(IN_ORDER)),
        (ours.CrossEncoderClassificationEvaluator(PAIRS[:2], [0, 1], name="NAME"), several),
        (ours.CrossEncoderCorrelationEvaluator(PAIRS, [0.0, 1.0, 2.0], name="NAME"), FixedCrossEncoder(IN_ORDER)),
    ]
    stated = [row for row in rows_of("CSV files") if "NanoBEIR" not in row[0]]
    for i, ((evaluator, model), (file, columns)) in enumerate(zip(calls, stated, strict=True)):
        evaluator(model, str(tmp_path / str(i)))
        (written,) = (tmp_path / str(i)).iterdir()
        assert f"`{written.name}`" in file or file.startswith("the same")
        assert f"`{written.read_text().splitlines()[0]}`" == columns
