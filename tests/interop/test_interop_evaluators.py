"""Our evaluators for sentence-transformers: the installed ones' figures on the same scores, and where ours differ."""

from __future__ import annotations

import csv
import logging
import math
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers.cross_encoder import evaluation as theirs

from calipers.core import SILENT, ModelInfo
from calipers.interop import sentence_transformers as ours

NAMES = ours.__all__
COMPAT = "sentence-transformers"
LOGGERS = ("calipers.interop.sentence_transformers", "sentence_transformers.cross_encoder.evaluation")


class Card:
    """What a model card was told last."""

    def set_evaluation_metrics(self, evaluator: Any, metrics: dict[str, Any], epoch: float, steps: int) -> None:
        self.told = metrics


class Given:
    """A CrossEncoder whose scores of pairs are given."""

    def __init__(self, scores: dict[tuple[str, str], Any], num_labels: int = 1, dtype: Any = np.float32) -> None:
        self.scores, self.num_labels, self.dtype = scores, num_labels, dtype
        self.model_card_data, self.calls = Card(), []

    def predict(self, pairs: Sequence[Sequence[str]], **asked: Any) -> np.ndarray:
        self.calls.append([tuple(pair) for pair in pairs])
        return np.array([self.scores[a, b] for a, b in pairs], dtype=self.dtype)


class Scorer:
    """One of our PairScorers, with scores that are given."""

    info = ModelInfo("test", "given", None, "cpu", "sha256:0")

    def __init__(self, score: Callable[[str, str], Any]) -> None:
        self._score = score

    def score(self, pairs: Sequence[tuple[str, str]], *, progress: Any = SILENT) -> np.ndarray:
        progress.start("pairs", len(pairs))
        progress.advance(len(pairs))
        return np.array([self._score(a, b) for a, b in pairs], dtype=np.float32)


def said(evaluator: Any, model: Any, folder: Path) -> dict[str, Any]:
    """All that an evaluator says in two calls, or the fact that it fails."""
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
            found = [evaluator(model, str(folder), *when) for when in ((), (0.5, 20))]
    except Exception as error:
        return {"fails": True, "error": error}
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
            logger.setLevel(logging.NOTSET)
    return {
        "fails": False,
        "metrics": found,
        "files": {path.name: path.read_bytes().decode() for path in folder.iterdir()},
        "lines": lines,
        "primary": evaluator.primary_metric,
        "card": model.model_card_data.told,
        "config": evaluator.get_config_dict(),
        "description": evaluator.description,
    }


def numbers(text: str) -> list[float]:
    return [float(cell) for row in csv.reader(text.splitlines()[1:]) for cell in row]


def frame(text: str) -> tuple[str, int, int]:
    """Header, rows and ends of lines."""
    return text.splitlines()[0], text.count("\n"), text.count("\r")


def assert_parity(mine: Any, other: Any, make_model: Callable[[], Any]) -> None:
    with tempfile.TemporaryDirectory() as a, tempfile.TemporaryDirectory() as b:
        found, expected = said(mine, make_model(), Path(a)), said(other, make_model(), Path(b))
    assert found["fails"] == expected["fails"], (found.get("error"), expected.get("error"))
    if found["fails"]:
        return
    for one, two in zip(found["metrics"], expected["metrics"], strict=True):
        assert list(one) == list(two)
        assert one == pytest.approx(two, abs=1e-9, nan_ok=True)
        assert all(type(value) is float for value in one.values())
    assert found["files"].keys() == expected["files"].keys()
    for name, text in expected["files"].items():
        assert frame(found["files"][name]) == frame(text)
        assert numbers(found["files"][name]) == pytest.approx(numbers(text), abs=1e-9, nan_ok=True)
    for key in ("lines", "primary", "config", "description"):
        assert found[key] == expected[key]
    assert found["card"] == pytest.approx(expected["card"], abs=1e-9, nan_ok=True)


# --- parity ----------------------------------------------------------------------------------------------------

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


@given(samples(), score_tables(QUERIES), st.booleans(), st.integers(1, 12), st.sampled_from(["", "dev"]))
def test_reranking_is_theirs_in_compat_mode(rows: Any, scores: Any, always: bool, k: int, name: str) -> None:
    options = {"at_k": k, "always_rerank_positives": always, "name": name}
    assert_parity(
        ours.CrossEncoderRerankingEvaluator(rows, compat=COMPAT, **options),
        theirs.CrossEncoderRerankingEvaluator(rows, **options),
        lambda: Given(scores),
    )


@given(pair_rows(st.integers(0, 1)), score_tables(), st.sampled_from(["", "dev"]), st.sampled_from([np.float32, float]))
def test_classification_by_one_output_is_theirs(rows: Any, scores: Any, name: str, dtype: Any) -> None:
    pairs, labels = [[a, b] for a, b, _ in rows], [label for _, _, label in rows]
    assert_parity(
        ours.CrossEncoderClassificationEvaluator(pairs, labels, name=name, compat=COMPAT),
        theirs.CrossEncoderClassificationEvaluator(pairs, labels, name=name),
        lambda: Given(scores, dtype=dtype),
    )


@given(pair_rows(st.integers(0, 4), least=1), score_tables(outputs=3))
def test_classification_by_several_outputs_is_theirs(rows: Any, scores: Any) -> None:
    pairs, labels = [[a, b] for a, b, _ in rows], [label for _, _, label in rows]
    assert_parity(
        ours.CrossEncoderClassificationEvaluator(pairs, labels, name="nli", compat=COMPAT),
        theirs.CrossEncoderClassificationEvaluator(pairs, labels, name="nli"),
        lambda: Given(scores, num_labels=3),
    )


@given(pair_rows(st.floats(0, 5, width=16)), score_tables(), st.sampled_from([None, math.nan, math.inf]))
def test_correlation_is_theirs(rows: Any, scores: Any, dead: float | None) -> None:
    pairs, gold = [[a, b] for a, b, _ in rows], [value for _, _, value in rows]
    if rows and dead is not None:
        scores = ScoreTable({**scores, tuple(pairs[0]): dead})
    assert_parity(
        ours.CrossEncoderCorrelationEvaluator(pairs, gold, name="sts", compat=COMPAT),
        theirs.CrossEncoderCorrelationEvaluator(pairs, gold, name="sts"),
        lambda: Given(scores),
    )


# --- the honest figures, by hand -------------------------------------------------------------------------------


def rerank(
    rows: list[dict[str, Any]], score: Callable[[str, str], Any] = lambda q, d: -ord(d[0]), **options: Any
) -> Any:
    """Documents are single letters, which the scorer keeps in alphabetical order."""
    evaluator = ours.CrossEncoderRerankingEvaluator(rows, **options)
    return evaluator(Scorer(score)), evaluator


@given(
    st.lists(st.sampled_from("abcdefgh"), max_size=10), st.lists(st.sampled_from("abcdefgh"), max_size=5), st.booleans()
)
def test_an_identity_reranker_changes_nothing(documents: list[str], positive: list[str], always: bool) -> None:
    first_stage = [*dict.fromkeys(documents), *dict.fromkeys(p for p in positive if p not in documents)]
    found, evaluator = rerank(
        [{"query": "q", "positive": positive, "documents": documents}],
        lambda q, d: -first_stage.index(d),
        always_rerank_positives=always,
        at_k=3,
    )
    for key in ("map", "mrr@3", "ndcg@3"):
        assert found[key] == pytest.approx(found[f"base_{key}"], abs=1e-12, nan_ok=True)
        assert math.isnan(found[key]) == (not positive)
    assert evaluator.outcomes.counts["without_relevant"] == (not positive)


def test_the_known_fault_is_only_in_compat_mode() -> None:
    row = {"query": "q", "positive": ["c", "z"], "documents": ["a", "b", "c", "d"]}
    honest, _ = rerank([row], always_rerank_positives=False)
    assert honest["ndcg@10"] == honest["base_ndcg@10"] == pytest.approx(0.5 / (1 + 1 / np.log2(3)))
    fault = ours.CrossEncoderRerankingEvaluator([row], always_rerank_positives=False, compat=COMPAT)
    assert fault(Scorer(lambda q, d: -ord(d)))["ndcg@10"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("row", "always", "value"),
    [
        ({"positive": ["a"], "negative": []}, True, 1.0),
        ({"positive": "a", "documents": ["a"]}, False, 1.0),
        ({"positive": ["a", "b"], "documents": []}, True, 1.0),
        ({"positive": ["a", "b"], "documents": []}, False, 0.0),
        ({"positive": ["z"], "documents": ["a", "b"]}, False, 0.0),
        ({"positive": [], "documents": ["a", "b"]}, True, math.nan),
    ],
)
def test_awkward_samples_have_stated_answers(row: dict[str, Any], always: bool, value: float) -> None:
    found, _ = rerank([{"query": "q", **row}], always_rerank_positives=always)
    assert set(found.values()) == {value} or all(map(math.isnan, found.values()))
    assert math.isnan(found["map"]) == math.isnan(value)
    assert ("base_map" in found) == ("documents" in row)


def test_tied_documents_have_the_expected_value_in_every_metric() -> None:
    """One positive tied with one negative: it is first or second, each in half of the orders."""
    found, _ = rerank([{"query": "q", "positive": ["b"], "negative": ["a"]}], lambda q, d: 0.5)
    assert found == pytest.approx({"map": 0.75, "mrr@10": 0.75, "ndcg@10": (1 + 1 / np.log2(3)) / 2})


def test_queries_without_positives_are_left_out_of_the_mean_and_not_scored() -> None:
    rows = [{"query": "q", "positive": ["b"], "negative": ["a"]}, {"query": "r", "positive": [], "negative": ["a"]}]
    asked: list[str] = []
    found, evaluator = rerank(rows, lambda q, d: asked.append(q) or -ord(d))  # type: ignore[func-returns-value]
    assert found["map"] == pytest.approx(0.5)
    assert evaluator.outcomes.columns["map"] == pytest.approx([0.5, np.nan], nan_ok=True)
    assert set(asked) == {"q"}


@pytest.mark.parametrize("name", [name for name in NAMES if "NanoBEIR" not in name])
def test_nothing_to_evaluate_is_nan_and_a_warning(name: str, caplog: pytest.LogCaptureFixture) -> None:
    arguments = ([],) if "Reranking" in name else ([], [])
    evaluator = getattr(ours, name)(*arguments, name="dev")
    found = evaluator(Given({}))
    assert all(map(math.isnan, found.values()))
    assert evaluator.primary_metric in found
    assert "nothing to evaluate" in caplog.text
    with pytest.raises(ValueError, match="nothing to evaluate"):
        getattr(ours, name)(*arguments, compat=COMPAT)(Given({}))


def test_labels_without_positives_are_nan_and_in_compat_mode_0() -> None:
    pairs, model = [["a", "b"], ["a", "c"]], Scorer(lambda a, b: ord(b))
    honest = ours.CrossEncoderClassificationEvaluator(pairs, [0, 0])(model)
    assert honest["accuracy"] == 1
    assert all(math.isnan(honest[key]) for key in ("f1", "f1_threshold", "precision", "recall", "average_precision"))
    compat = ours.CrossEncoderClassificationEvaluator(pairs, [0, 0], compat=COMPAT)(model)
    assert compat["average_precision"] == compat["f1"] == 0
