"""Evaluators of sentence-transformers, theirs and ours, on the same random rows and scores."""

from __future__ import annotations

import csv
import logging
import re
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from calipers.interop import sentence_transformers as ours
from tests.support.scorers import FixedScorer

NAMES = ours.__all__
COMPAT = "sentence-transformers"
LOGGERS = ("calipers.interop.sentence_transformers", "sentence_transformers.cross_encoder.evaluation")


def observe(evaluator: Any, model: Any, folder: Path) -> dict[str, Any]:
    """All that an evaluator reports in two calls, or the fact that it fails."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    loggers = [logging.getLogger(name) for name in LOGGERS]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            metrics = [evaluator(model, str(folder), *when) for when in ((), (0.5, 20))]
    except Exception as error:
        return {"fails": True, "error": error}
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
            logger.setLevel(logging.NOTSET)
    return {
        "fails": False,
        "metrics": metrics,
        "files": {path.name: path.read_bytes().decode() for path in folder.iterdir()},
        "lines": lines,
        "primary": evaluator.primary_metric,
        "card": model.model_card_data.metrics,
        "config": evaluator.get_config_dict(),
        "description": evaluator.description,
    }


_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def numbers(text: str) -> list[float]:
    return [float(cell) for row in csv.reader(text.splitlines()[1:]) for cell in row]


def frame(text: str) -> tuple[str, int, int]:
    """Header, rows and ends of lines."""
    return text.splitlines()[0], text.count("\n"), text.count("\r")


def assert_parity(mine: Any, other: Any, make_model: Callable[[], Any]) -> None:
    with tempfile.TemporaryDirectory() as a, tempfile.TemporaryDirectory() as b:
        actual, expected = observe(mine, make_model(), Path(a)), observe(other, make_model(), Path(b))
    assert actual["fails"] == expected["fails"], (actual.get("error"), expected.get("error"))
    if actual["fails"]:
        return
    for one, two in zip(actual["metrics"], expected["metrics"], strict=True):
        assert list(one) == list(two)
        assert one == pytest.approx(two, abs=1e-9, nan_ok=True)
        assert all(type(value) is float for value in one.values())
    assert actual["files"].keys() == expected["files"].keys()
    for name, text in expected["files"].items():
        assert frame(actual["files"][name]) == frame(text)
        assert numbers(actual["files"][name]) == pytest.approx(numbers(text), abs=1e-9, nan_ok=True)
    assert_same_lines(actual["lines"], expected["lines"])
    for key in ("primary", "config", "description"):
        assert actual[key] == expected[key]
    assert actual["card"] == pytest.approx(expected["card"], abs=1e-9, nan_ok=True)


def assert_same_lines(actual: list[str], expected: list[str]) -> None:
    """The same words and numbers. Two figures that agree to 1e-9 may be rounded to neighbouring digits: 53.37 and 53.38
    for 0.53375."""
    assert len(actual) == len(expected)
    for one, two in zip(actual, expected, strict=True):
        assert _NUMBER.sub("0", one) == _NUMBER.sub("0", two)
        ours, theirs = ([float(number) for number in _NUMBER.findall(line)] for line in (one, two))
        assert ours == pytest.approx(theirs, abs=0.010001, rel=0.0, nan_ok=True)


TEXTS = [f"text {i}" for i in range(40)]
QUERIES = [f"query {i}" for i in range(3)]
LEVELS = np.array([-2.5, -1.0, 0.0, 0.1, 0.25, 0.7, 0.7000001, 3.0])
SEEDS = st.integers(0, 2**32 - 1)


class ScoreTable(dict[tuple[str, str], Any]):
    """Scores by pair. A failing property prints its arguments, so 1,600 scores are shown by their number and levels."""

    def __repr__(self) -> str:
        return f"<{len(self)} scores, {len({repr(value) for value in self.values()})} distinct>"


@st.composite
def score_tables(draw: st.DrawFn, first: Sequence[str] = TEXTS, outputs: int = 0) -> ScoreTable:
    """Scores of all pairs: all tied, many ties, few ties or none; with `outputs`, as many for each pair."""
    rng, levels = np.random.default_rng(draw(SEEDS)), draw(st.sampled_from([1, 2, 8, None]))
    shape = (len(first), len(TEXTS), outputs) if outputs else (len(first), len(TEXTS))
    table = rng.normal(size=shape) if levels is None else LEVELS[rng.integers(levels, size=shape)]
    return ScoreTable({(a, b): table[i, j] for i, a in enumerate(first) for j, b in enumerate(TEXTS)})


@st.composite
def samples(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Short lists with every awkward case, or lists of up to 60 documents; repeats in both."""
    rng, short = np.random.default_rng(draw(SEEDS)), st.lists(st.sampled_from(TEXTS[:6]), max_size=4)
    rows = []
    for i in range(draw(st.sampled_from([3, 2, 1, 0]))):
        few = draw(st.sampled_from([False, False, True]))
        positive = draw(short) if few else rng.choice(TEXTS, rng.integers(5)).tolist()
        others = draw(short) if few else rng.choice(TEXTS, rng.integers(2, 60)).tolist()
        key = draw(st.sampled_from(["documents", "documents", "negative"]))
        single = positive and draw(st.booleans())
        rows.append({"query": QUERIES[i % 3], "positive": positive[0] if single else positive, key: others})
    return rows


def pair_rows(values: st.SearchStrategy[Any], least: int = 0) -> st.SearchStrategy[list[tuple[str, str, Any]]]:
    return st.lists(st.tuples(st.sampled_from(TEXTS), st.sampled_from(TEXTS), values), min_size=least, max_size=30)


def rerank(
    rows: list[dict[str, Any]], score: Callable[[str, str], Any] = lambda q, d: -ord(d[0]), **options: Any
) -> Any:
    """Documents are single letters, which the scorer keeps in alphabetical order."""
    evaluator = ours.CrossEncoderRerankingEvaluator(rows, **options)
    return evaluator(FixedScorer(score)), evaluator
