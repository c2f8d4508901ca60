"""Classification figures against hand-computed values, scikit-learn, sentence-transformers and repeated rows."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from sklearn import metrics as sk

from calipers.metrics import classification as c

Pairs = list[tuple[float, int]]

labels_01 = st.integers(0, 1)
tied = st.integers(-4, 4).map(lambda i: i / 4)
any_finite = st.floats(-10, 10) | st.floats(-1e30, 1e30)
rows_01 = st.lists(st.tuples(tied, labels_01), max_size=30) | st.lists(st.tuples(any_finite, labels_01), max_size=30)
classes = st.lists(st.tuples(st.integers(-1, 4), st.integers(-1, 4)), min_size=1, max_size=30)


def columns(rows: Pairs, dtype: Any = np.float64) -> tuple[np.ndarray, np.ndarray]:
    return np.array([s for s, _ in rows], dtype=dtype), np.array([y for _, y in rows], dtype=np.int64)


def quiet(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """The oracles warn of sets without positives, or of one class; we answer for them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments, **options)


def close(result: object, wanted: object) -> None:
    np.testing.assert_allclose(np.array(result), np.array(wanted), rtol=1e-12, atol=1e-12)


@pytest.fixture(scope="module")
def theirs() -> Any:
    evaluation = pytest.importorskip("sentence_transformers.sentence_transformer.evaluation")
    return evaluation.BinaryClassificationEvaluator


# Scores against 0/1 labels


def mcc_at(scores: Any, labels: Any, threshold: float) -> float:
    """At a threshold that was chosen beforehand; NaN without one."""
    return math.nan if math.isnan(threshold) else c.mcc(np.asarray(scores) >= threshold, labels)


def test_best_cuts_by_hand() -> None:
    # Down the scores, tp / taken: 1/1, then the tie of two 1/3, then 2/4 and 2/5. Correct of five: 3 above all scores,
    # then 4, 2, 3, 2. F1: 2/3, 2/5, 4/6, 4/7, and the first of the two equal ones is taken.
    scores, labels = [9.0, 7, 7, 4, 1], [1, 0, 0, 1, 0]
    assert c.best_accuracy(scores, labels) == (4 / 5, 8.0)
    assert c.best_f1(scores, labels) == (pytest.approx(2 / 3), 8.0, 1.0, 0.5)
    assert c.average_precision(scores, labels) == pytest.approx(1 / 2 * 1 + 1 / 2 * 2 / 4)
    # At 4: tp 2, fp 2, fn 0, tn 1: (2 · 1 - 2 · 0) / sqrt(4 · 2 · 3 · 1)
    assert mcc_at(scores, labels, 4) == pytest.approx(2 / math.sqrt(24))


@given(rows_01.filter(bool), st.sampled_from([np.float64, np.float32]))
def test_best_cuts_are_those_of_sentence_transformers(theirs: Any, rows: Pairs, dtype: Any) -> None:
    scores, labels = columns(rows, dtype)
    assert c.best_accuracy(scores, labels) == quiet(theirs.find_best_acc_and_threshold, scores, labels, True)
    f1, precision, recall, threshold = quiet(theirs.find_best_f1_and_threshold, scores, labels, True)
    # They say 0 for all four without positives, and we NaN.
    assert tuple(np.nan_to_num(c.best_f1(scores, labels))) == (f1, threshold, precision, recall)
    close(np.nan_to_num(c.average_precision(scores, labels)), quiet(sk.average_precision_score, labels, scores))


@given(st.lists(labels_01, min_size=1, max_size=8))
def test_a_midpoint_that_rounds_does_not_let_the_next_score_in(theirs: Any, labels: list[int]) -> None:
    steps = 1 + np.arange(len(labels)) * np.finfo(np.float32).eps
    scores, gold = steps.astype(np.float32), np.array(labels)
    assert c.best_accuracy(scores, gold) == theirs.find_best_acc_and_threshold(scores, gold, True)
    result = c.best_accuracy(scores, gold)
    assert result.accuracy == np.mean((scores >= result.threshold) == gold)


def test_a_midpoint_that_overflows_still_cuts_where_it_should() -> None:
    assert c.best_f1([1.7e308, 1.6e308], [1, 0]).threshold == 1.7e308
    assert c.best_f1([-1.6e308, -1.7e308], [1, 0]).threshold == -1.6e308


@given(rows_01.filter(bool))
def test_the_threshold_gives_the_figures_that_come_with_it(rows: Pairs) -> None:
    scores, labels = columns(rows)
    best = c.best_accuracy(scores, labels)
    assert best.accuracy == sk.accuracy_score(labels, scores >= best.threshold)
    result = c.best_f1(scores, labels)
    if labels.any():
        close(result.f1, sk.f1_score(labels, scores >= result.threshold))
        wanted = quiet(sk.matthews_corrcoef, labels, scores >= result.threshold)
        close(mcc_at(scores, labels, result.threshold), wanted)


def at_best_f1(scores: np.ndarray, labels: np.ndarray) -> float:
    return mcc_at(scores, labels, c.best_f1(scores, labels).threshold)


BINARY: list[tuple[Any, Callable[[np.ndarray, np.ndarray], float]]] = [
    (c.best_accuracy_statistic, lambda s, y: c.best_accuracy(s, y).accuracy),
    (c.best_f1_statistic, lambda s, y: c.best_f1(s, y).f1),
    (c.precision_at_best_f1_statistic, lambda s, y: c.best_f1(s, y).precision),
    (c.recall_at_best_f1_statistic, lambda s, y: c.best_f1(s, y).recall),
    (c.mcc_at_best_f1_statistic, at_best_f1),
    (c.average_precision_statistic, c.average_precision),
    (lambda s, y: c.mcc_statistic(s >= 0.1, y), lambda s, y: mcc_at(s, y, 0.1)),
]
CLASSES: list[tuple[Any, Callable[[np.ndarray, np.ndarray], float]]] = [
    (c.accuracy_statistic, c.accuracy),
    (c.f1_macro_statistic, c.f1_macro),
    (c.f1_micro_statistic, c.f1_micro),
    (c.f1_weighted_statistic, c.f1_weighted),
    (c.mcc_statistic, c.mcc),
]


def check_resamples(pairs: list[Any], first: np.ndarray, second: np.ndarray, seed: int) -> None:
    drawn = np.random.default_rng(seed).integers(0, 4, size=(len(first), 4))
    counts = np.concatenate([drawn, np.zeros((len(first), 1), dtype=int)], axis=1)
    for statistic, plain in pairs:
        wanted = [plain(np.repeat(first, n), np.repeat(second, n)) for n in counts.T]
        np.testing.assert_allclose(statistic(first, second)(counts), wanted, rtol=1e-12, atol=1e-12)


@given(rows_01, st.integers(0, 2**32))
def test_a_cut_is_searched_anew_in_every_resample(rows: Pairs, seed: int) -> None:
    check_resamples(BINARY, *columns(rows), seed)


@given(classes, st.integers(0, 2**32))
def test_classes_resampled_by_counts_equal_the_repeated_rows(rows: list[tuple[int, int]], seed: int) -> None:
    check_resamples(CLASSES, *np.array(rows).T, seed)


@pytest.mark.parametrize(
    ("scores", "labels", "accuracy", "f1", "precision"),
    [
        ([], [], (math.nan, math.nan), (math.nan,) * 4, math.nan),
        ([2.0], [1], (1.0, 2.0), (1.0, 2.0, 1.0, 1.0), 1.0),
        ([2.0], [0], (1.0, math.nextafter(2, 3)), (math.nan,) * 4, math.nan),
        ([1.0, 0], [0, 0], (1.0, math.nextafter(1, 2)), (math.nan,) * 4, math.nan),
        ([1.0, 0], [1, 1], (1.0, 0.0), (1.0, 0.0, 1.0, 1.0), 1.0),
        ([5.0] * 4, [1, 0, 0, 0], (0.75, math.nextafter(5, 6)), (0.4, 5.0, 0.25, 1.0), 0.25),
    ],
    ids=["no rows", "one positive", "one negative", "no positives", "no negatives", "all scores equal"],
)
def test_every_edge_has_its_answer(
    scores: list[float], labels: list[int], accuracy: Any, f1: Any, precision: Any
) -> None:
    close(c.best_accuracy(scores, labels), accuracy)
    close(c.best_f1(scores, labels), f1)
    close(c.average_precision(scores, labels), precision)
    assert c.best_accuracy(scores, labels).threshold == accuracy[1] or not scores
    # One class among the labels leaves nothing to correlate with.
    assert mcc_at(scores, labels, 1.5) == 0 or not scores


def test_the_order_of_tied_rows_changes_nothing() -> None:
    for labels in ([1, 0, 0, 1, 0], [0, 0, 1, 0, 1]):
        assert c.average_precision([1.0] * 5, labels) == 0.4
        assert c.best_f1([1.0] * 5, labels) == (pytest.approx(4 / 7), 1.0, 0.4, 1.0)


@pytest.mark.parametrize("figure", [c.best_accuracy, c.best_f1, c.average_precision])
def test_scores_and_labels_that_cannot_be_are_refused_with_their_rows(figure: Any) -> None:
    with pytest.raises(ValueError, match=r"scores are not finite in rows \[1, 2\]"):
        figure([0.0, math.nan, math.inf], [0, 1, 0])
    with pytest.raises(ValueError, match=r"labels are neither 0 nor 1 in rows \[2\]"):
        figure([0.0, 1, 2], [0, 1, 2])
    with pytest.raises(ValueError, match=r"shapes \(2,\) and \(3,\)"):
        figure([0.0, 1], [0, 1, 1])
    with pytest.raises(ValueError, match=r"rows \[0, 1, 2, 3, 4, 5, 6, 7, 8, 9\] and 5 more"):
        figure([math.nan] * 15, [0] * 15)


# Classes against classes


def test_f1_of_classes_by_hand() -> None:
    # Hits 1, 1, 0, 0; predicted 2, 1, 0, 1; labelled 1, 2, 1, 0: F1 2/3, 2/3, 0, 0.
    predictions, labels = [0, 1, 0, 3], [0, 1, 1, 2]
    assert c.f1_macro(predictions, labels) == pytest.approx(1 / 3)
    assert c.f1_weighted(predictions, labels) == pytest.approx((2 / 3 + 2 * 2 / 3) / 4)
    assert c.f1_micro(predictions, labels) == c.accuracy(predictions, labels) == 0.5
    # 2 hits · 4 rows - (2 · 1 + 1 · 2) = 4; 16 - 6 and 16 - 6.
    assert c.mcc(predictions, labels) == pytest.approx(4 / 10)


@given(classes)
def test_figures_of_classes_are_those_of_scikit_learn(rows: list[tuple[int, int]]) -> None:
    predictions, labels = np.array(rows).T
    close(c.accuracy(predictions, labels), sk.accuracy_score(labels, predictions))
    close(c.mcc(predictions, labels), quiet(sk.matthews_corrcoef, labels, predictions))
    for average, ours in (("macro", c.f1_macro), ("micro", c.f1_micro), ("weighted", c.f1_weighted)):
        close(ours(predictions, labels), sk.f1_score(labels, predictions, average=average, zero_division=0))


def test_no_rows_of_classes_give_nan_and_one_row_its_figure() -> None:
    assert all(math.isnan(plain(np.array([]), np.array([]))) for _, plain in CLASSES)
    assert [plain(np.array([1]), np.array([1])) for _, plain in CLASSES] == [1, 1, 1, 1, 0]
    assert math.isnan(c.accuracy(np.zeros((0, 3)), []))


def test_of_equal_logits_the_first_class_is_taken_and_nan_is_refused() -> None:
    assert c.accuracy([[1.0, 1.0], [-np.inf, 0.0]], [0, 1]) == 1
    with pytest.raises(ValueError, match=r"logits are NaN in rows \[1\]"):
        c.mcc([[0.0, 1], [math.nan, 1]], [0, 1])
    with pytest.raises(ValueError, match=r"two or more classes, found shape \(2, 1\)"):
        c.f1_macro([[0.0], [1.0]], [0, 1])
    with pytest.raises(ValueError, match=r"predictions are no whole numbers in rows \[0\]"):
        c.f1_macro([0.5, 1.0], [0, 1])
    with pytest.raises(ValueError, match=r"labels are no whole numbers in rows \[1\]"):
        c.f1_weighted([0, 1], [0, math.nan])


class GivenScores:
    """What an evaluator asks of a model."""

    def __init__(self, scores: np.ndarray) -> None:
        self.scores = scores
        self.num_labels = 1 if scores.ndim == 1 else scores.shape[1]
        self.model_card_data = SimpleNamespace(set_evaluation_metrics=lambda *_: None)

    def predict(self, *_: object, **__: object) -> np.ndarray:
        return self.scores


@pytest.mark.parametrize("outputs", [1, 3])
def test_the_whole_cross_encoder_evaluator_agrees(outputs: int) -> None:
    evaluation = pytest.importorskip("sentence_transformers.cross_encoder.evaluation")
    rng = np.random.default_rng(outputs)
    labels = rng.integers(0, max(2, outputs), size=200)
    scores = np.round(rng.normal(size=(200, outputs)) + np.eye(max(2, outputs))[labels][:, -outputs:], 1)
    given_scores = (scores[:, 0] if outputs == 1 else scores).astype(np.float32)
    evaluator = evaluation.CrossEncoderClassificationEvaluator([["a", "b"]] * 200, labels.tolist())
    wanted = evaluator(GivenScores(given_scores))
    if outputs == 1:
        best, f1 = c.best_accuracy(given_scores, labels), c.best_f1(given_scores, labels)
        result = [*best, f1.f1, f1.threshold, f1.precision, f1.recall, c.average_precision(given_scores, labels)]
    else:
        result = [figure(given_scores, labels) for figure in (c.f1_macro, c.f1_micro, c.f1_weighted)]
    close(result, list(wanted.values()))


# A wrong order of labels


@given(classes)
def test_the_best_of_few_orders_is_the_best_assignment(rows: list[tuple[int, int]]) -> None:
    predictions, labels = np.array(rows).T + 1
    result = c.permutation_gain(predictions, labels, 6)
    cells = np.zeros((6, 6))
    np.add.at(cells, (predictions, labels), 1)
    close(result.accuracy, cells[linear_sum_assignment(cells, maximize=True)].sum() / len(rows))
    assert sorted(result.permutation) == list(range(6))
    close(c.accuracy(np.array(result.permutation)[predictions], labels), result.accuracy)


@given(st.permutations(range(12)), st.integers(0, 2**32))
def test_an_order_that_makes_all_rows_right_is_found_among_many_classes(order: list[int], seed: int) -> None:
    predictions = np.random.default_rng(seed).permutation(np.arange(60) % 12)
    assert c.permutation_gain(predictions, np.array(order)[predictions], 12) == (tuple(order), 1.0)


def test_the_given_order_stays_where_no_other_is_better() -> None:
    assert c.permutation_gain([0, 1, 1], [1, 0, 1], 3) == ((1, 0, 2), pytest.approx(2 / 3))
    assert c.permutation_gain([0, 0], [0, 1], 2) == ((0, 1), 0.5)
    assert c.permutation_gain(np.arange(9), np.arange(9), 9) == (tuple(range(9)), 1.0)
    no_rows = c.permutation_gain([], [], 3)
    assert no_rows.permutation == (0, 1, 2)
    assert math.isnan(no_rows.accuracy)
    with pytest.raises(ValueError, match=r"outside 0 … 2 in rows \[1\]"):
        c.permutation_gain([0, 1], [0, 3], 3)
