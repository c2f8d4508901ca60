"""Classification: scores against 0/1 labels, and classes against classes, for one sample or many resamples at once.

Scores against labels: a row is called positive if its score is at or above a threshold. The best threshold is searched
along one sort of the scores, between whole groups of equal scores, and anew in every resample. Classes against classes:
everything follows from sums of counts over the cells of the confusion matrix. Every figure is in 0–1 (MCC in -1–1),
higher is better. NaN: everything of no rows; F1, its precision, recall and threshold, and average precision without
positives. MCC is 0, as scikit-learn has it, where labels or predictions are all of one class.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calipers.metrics.arrays import Bools, Counts, Floats, Ints, Statistic, once, refuse_rows, share, tie_starts
from calipers.metrics.jackknife import Jackknifed
from calipers.metrics.running import running_sum

_FEW_CLASSES = 8  # 8! = 40,320 orders are tried one and all


class BestAccuracy(NamedTuple):
    accuracy: float
    threshold: float


class BestF1(NamedTuple):
    f1: float
    threshold: float
    precision: float
    recall: float


class Relabelling(NamedTuple):
    permutation: tuple[int, ...]  # for each class of the model, the label that it should stand for
    accuracy: float


def best_accuracy(scores: ArrayLike, labels: ArrayLike) -> BestAccuracy:
    """The highest accuracy that a threshold reaches, and the highest such threshold.

    `scores` float[n], finite; `labels` 0 or 1. The cuts are: above all scores (the next number of the scores' own
    type), midway between neighbouring scores, at the lowest score. No rows: NaN, NaN.

    >>> best_accuracy([0.9, 0.6, 0.5, 0.2], [1, 0, 1, 0])
    BestAccuracy(accuracy=0.75, threshold=0.75)
    """
    tally, threshold = _plain_cut(_most_accurate, scores, labels)
    return BestAccuracy(float(_accuracy(tally)[0]), threshold)


def best_f1(scores: ArrayLike, labels: ArrayLike) -> BestF1:
    """The highest F1 of the positives that a threshold reaches, with its threshold, precision and recall.

    As in `best_accuracy`, but calling nothing positive is no choice. No rows or no positives: NaN throughout.

    >>> best_f1([0.9, 0.6, 0.5, 0.2], [1, 0, 1, 0])
    BestF1(f1=0.8, threshold=0.35, precision=0.6666666666666666, recall=1.0)
    """
    tally, threshold = _plain_cut(_highest_f1, scores, labels)
    f1, precision, recall = (float(value(tally)[0, 0]) for value in (_f1, _precision, _recall))
    return BestF1(f1, threshold if f1 > 0 else np.nan, precision, recall)


def average_precision(scores: ArrayLike, labels: ArrayLike) -> float:
    """Σ (gain in recall) · precision, down the scores; whole groups of equal scores count as one step.

    No rows or no positives: NaN (scikit-learn warns and says 0). All scores equal: the share of positives.

    >>> round(average_precision([0.9, 0.6, 0.5, 0.2], [1, 0, 1, 0]), 6)
    0.833333
    """
    return once(average_precision_statistic(scores, labels), np.size(labels))


def average_precision_statistic(scores: ArrayLike, labels: ArrayLike) -> Statistic:
    cuts = _cuts(scores, labels)

    def statistic(counts: Counts) -> Floats:
        t = cuts.tally(counts)
        steps = np.diff(t.hits, axis=0) * t.hits[1:] / np.maximum(t.taken[1:], 1)
        return share(steps.sum(axis=0), t.positives)

    return Jackknifed(statistic, lambda: _precision_left_out(cuts))


def _precision_left_out(cuts: _Cuts) -> Floats:
    """Average precision without each row: the steps above it stay as they are; those from its own on have one row less,
    and one hit less if it is a positive."""
    hits, taken = (sums[:, 0] for sums in cuts.tally(np.ones((len(cuts.order), 1)))[:2])
    gains, fewer = np.diff(hits), np.maximum(taken[1:] - 1, 1)
    above = np.append(0.0, np.cumsum(gains * hits[1:] / taken[1:]))
    below = [np.append(np.cumsum((gains * (hits[1:] - lost) / fewer)[::-1])[::-1], 0.0) for lost in (0, 1)]
    own = np.append((hits[1:] - 1) / fewer, 0.0)  # the hit that a positive's own step no longer gains
    place, label = cuts.first_cuts() - 1, cuts.labels()
    return share(above[place] + np.stack(below)[label, place] - label * own[place], hits[-1] - label)


def permutation_gain(predictions: ArrayLike, labels: ArrayLike, classes: int) -> Relabelling:
    """The order of the labels under which the model's classes would be right most often.

    The given order wins ties. Up to 8 classes every order is tried. Above that, two classes are swapped as long as a
    swap gains, the best swap first: it finds every order that makes all rows right. No rows: the given order, NaN.

    >>> permutation_gain([0, 1, 2, 2], [1, 2, 0, 0], 3)
    Relabelling(permutation=(1, 2, 0), accuracy=1.0)
    """
    predicted, actual = _two_columns(predictions, labels)
    outside = (np.minimum(predicted, actual) < 0) | (np.maximum(predicted, actual) >= classes)
    refuse_rows(outside, f"a prediction or a label is outside 0 … {classes - 1}")
    cells = np.bincount(predicted * classes + actual, minlength=classes**2).reshape(classes, classes)
    best = _best_of_all(cells) if classes <= _FEW_CLASSES else _best_by_swaps(cells)
    right = cells[np.arange(classes), best].sum()
    return Relabelling(tuple(best.tolist()), float(right / len(actual)) if len(actual) else np.nan)


def _best_of_all(cells: Ints) -> Ints:
    """The given order is the first of the permutations, and argmax takes the first of equals."""
    orders = np.array(list(permutations(range(len(cells)))))
    return np.asarray(orders[cells[np.arange(len(cells)), orders].sum(axis=1).argmax()])


def _best_by_swaps(cells: Ints) -> Ints:
    """O(classes²) a swap, and each gains a row at least."""
    order = np.arange(len(cells))
    while True:
        moved = cells[:, order]
        kept = np.diag(moved)
        gain = moved + moved.T - kept - kept[:, None]
        a, b = np.unravel_index(gain.argmax(), gain.shape)
        if gain[a, b] <= 0:
            return order
        order[[a, b]] = order[[b, a]]


class _Tally(NamedTuple):
    """Sums of counts for each cut [cuts, r] or for each class [classes, r]: hits, rows called so, rows labelled so
    (for cuts [r], the same at each); and all rows [r]."""

    hits: Floats
    taken: Floats
    positives: Floats
    rows: Floats

    def at(self, gain: Value) -> _Tally:
        """What the best cut of each resample, the first of those with the highest gain, makes of the two classes."""
        cut = gain(self).argmax(axis=0)
        hits, taken = (sums[cut, np.arange(len(cut))] for sums in (self.hits, self.taken))
        return _two_classes(hits, taken, self.positives, self.rows)


def _two_classes(hits: Floats, taken: Floats, positives: Floats, rows: Floats) -> _Tally:
    """The positive class first, then the negative one."""
    others, misses = rows - taken, positives - hits
    labelled = np.stack([positives, rows - positives])
    return _Tally(np.stack([hits, others - misses]), np.stack([taken, others]), labelled, rows)


Value = Callable[[_Tally], Floats]


class _Cuts(NamedTuple):
    """Places to cut, cut 0 being above all scores. Only those below a group with a positive are kept: to go down by
    negatives alone makes accuracy and F1 worse, and adds nothing to average precision."""

    scores: NDArray[np.floating[Any]]  # from high to low
    order: Ints  # rows by score, from high to low
    positives: Ints  # those of them that are positive
    ends: Ints  # the last place of each group with a positive
    reached: Ints  # positives above each cut

    def tally(self, counts: Counts) -> _Tally:
        weights = counts.astype(np.float64)
        hits = np.zeros((len(self.positives) + 1, weights.shape[1]))
        hits[1:] = running_sum(weights[self.positives])
        taken = np.zeros((len(self.reached), weights.shape[1]))
        taken[1:] = running_sum(weights[self.order])[self.ends]
        return _Tally(hits[self.reached], taken, hits[-1], weights.sum(axis=0))

    def labels(self) -> Ints:
        """1 for each positive row, 0 for the others."""
        labels = np.zeros(len(self.order), np.int64)
        labels[self.positives] = 1
        return labels

    def first_cuts(self) -> Ints:
        """For each row the first cut that takes it in; the number of cuts where none does."""
        first = np.empty(len(self.order), np.int64)
        first[self.order] = np.searchsorted(self.ends, np.arange(len(self.order))) + 1
        return first

    def left_out(self, gain: Value, value: Value) -> Floats:
        """A figure at the cut with the highest gain, without each row. Above the row's own cut the sums stay, from it
        on they are one less: the best of either part is a running maximum, for positives and for negatives."""
        whole, first, label = self.tally(np.ones((len(self.order), 1))), self.first_cuts(), self.labels()
        rows = np.full(len(label), len(label) - 1.0)
        positives = whole.positives[0] - label
        chosen = np.zeros(len(label), np.int64)
        for lost in (0, 1):
            gains = []
            for fewer in (0, 1):  # above the row's cut, and from it on
                tally = (whole.hits - lost * fewer, whole.taken - fewer, whole.positives - lost, whole.rows - 1)
                gains.append(np.nan_to_num(gain(_Tally(*tally))[:, 0], nan=-np.inf))
            above, below = _first_highest(gains[0]), _last_to_first_highest(gains[1])
            here = np.flatnonzero(label == lost)
            up, down = above[first[here] - 1], below[np.minimum(first[here], len(below) - 1)]
            better = (first[here] < len(below)) & (gains[1][down] > gains[0][up])
            chosen[here] = np.where(better, down, up)
        inside = (chosen >= first).astype(np.float64)
        hits, taken = whole.hits[chosen, 0] - inside * label, whole.taken[chosen, 0] - inside
        return value(_two_classes(hits, taken, positives, rows))

    def threshold(self, cut: int) -> float:
        """Midway to the next score; never one that would let the next score in, or leave this one out."""
        if not len(self.scores):
            return np.nan
        with np.errstate(over="ignore"):
            if cut == 0:
                return float(np.nextafter(self.scores[0], self.scores.dtype.type(np.inf)))
            score, below = self.scores[self.ends[cut - 1] :].take([0, 1], mode="clip")
            middle = (score + below) / 2
        return float(middle if below < middle <= score else score)


def _cuts(scores: ArrayLike, labels: ArrayLike) -> _Cuts:
    values, positive = _scores_and_labels(scores, labels)
    order = np.argsort(-values, kind="stable")
    values, positive = values[order], positive[order]
    ends = np.append(tie_starts(values), len(values))[1:] - 1
    reached = np.append(0, np.cumsum(positive)[ends])
    has_positive = np.diff(reached) > 0
    return _Cuts(values, order, order[positive], ends[has_positive], np.append(0, reached[1:][has_positive]))


def _first_highest(values: Floats) -> Ints:
    """For each place, where the highest value up to it is, the first of equal ones."""
    return np.maximum.accumulate(
        np.where(values > np.append(-np.inf, np.maximum.accumulate(values)[:-1]), np.arange(len(values)), 0)
    )


def _last_to_first_highest(values: Floats) -> Ints:
    """For each place, where the highest value from it on is, the first of equal ones."""
    backwards = values[::-1]
    rises = backwards >= np.append(-np.inf, np.maximum.accumulate(backwards)[:-1])
    return len(values) - 1 - np.maximum.accumulate(np.where(rises, np.arange(len(values)), 0))[::-1]


def _most_accurate(tally: _Tally) -> Floats:
    return 2 * tally.hits - tally.taken


def _highest_f1(tally: _Tally) -> Floats:
    return np.nan_to_num(_f1(tally))


def _plain_cut(gain: Value, scores: ArrayLike, labels: ArrayLike) -> tuple[_Tally, float]:
    cuts = _cuts(scores, labels)
    tally = cuts.tally(np.ones((len(cuts.order), 1), dtype=np.int64))
    return tally.at(gain), cuts.threshold(int(gain(tally).argmax(axis=0)[0]))


def _accuracy(t: _Tally) -> Floats:
    return share(t.hits.sum(axis=0), t.rows)


def _precision(t: _Tally) -> Floats:
    return share(t.hits, t.taken)


def _recall(t: _Tally) -> Floats:
    return share(t.hits, t.positives)


def _f1(t: _Tally) -> Floats:
    """NaN without hits, to be taken for 0. By way of precision and recall, as sentence-transformers does it: the last
    bit decides which of two equally good cuts comes out as the better one."""
    precision, recall = _precision(t), _recall(t)
    return share(2 * precision * recall, precision + recall)


def _mcc(t: _Tally) -> Floats:
    covariance = t.hits.sum(axis=0) * t.rows - (t.taken * t.positives).sum(axis=0)
    variances = (t.rows**2 - (t.taken**2).sum(axis=0)) * (t.rows**2 - (t.positives**2).sum(axis=0))
    # The covariance is exactly 0 where a variance is.
    return np.where(t.rows > 0, covariance / np.sqrt(np.where(variances > 0, variances, 1)), np.nan)


def _of_classes(value: Value, predictions: ArrayLike, labels: ArrayLike) -> Statistic:
    """Memory: one array of the shape of `counts`, and one row of it for each cell of the confusion matrix in use."""
    predicted, actual = _two_columns(predictions, labels)
    classes, codes = np.unique(np.stack([actual, predicted]), return_inverse=True)
    cells, cell = np.unique(codes[0] * len(classes) + codes[1], return_inverse=True)
    label, prediction = np.divmod(cells, max(1, len(classes)))
    order = np.argsort(cell, kind="stable")
    starts = tie_starts(cell[order])
    each = np.arange(len(classes))[:, None]
    by_label, by_prediction = (each == label).astype(np.float64), (each == prediction).astype(np.float64)

    def tally(sums: Floats) -> _Tally:
        actual = by_label @ sums  # whole numbers: the order of a sum does not matter
        return _Tally((by_label * by_prediction) @ sums, by_prediction @ sums, actual, actual.sum(axis=0))

    def statistic(counts: Counts) -> Floats:
        return value(tally(np.add.reduceat(np.asarray(counts, np.float64)[order], starts, axis=0)))

    def left_out() -> Floats:
        counts = np.repeat(np.bincount(cell).astype(np.float64)[:, None], len(cells), axis=1) - np.eye(len(cells))
        return value(tally(counts))[cell]  # rows of one cell are alike

    return Jackknifed(statistic, left_out)


def _scores_and_labels(scores: ArrayLike, labels: ArrayLike) -> tuple[NDArray[np.floating[Any]], Bools]:
    """Scores keep their own type of float: a midpoint and the next number above depend on it."""
    values, gold = np.asarray(scores), np.asarray(labels)
    if values.ndim != 1 or values.shape != gold.shape:
        raise ValueError(f"expected one score and one label a row, found shapes {values.shape} and {gold.shape}")
    values = values if np.issubdtype(values.dtype, np.floating) else values.astype(np.float64)
    refuse_rows(~np.isfinite(values), "scores are not finite")
    refuse_rows((gold != 0) & (gold != 1), "labels are neither 0 nor 1")
    return values, np.asarray(gold == 1)


def _two_columns(predictions: ArrayLike, labels: ArrayLike) -> tuple[Ints, Ints]:
    """Both as class numbers, int64[n]."""
    predicted, gold = np.asarray(predictions), np.asarray(labels)
    if predicted.ndim not in (1, 2) or gold.ndim != 1 or len(predicted) != len(gold):
        raise ValueError(
            f"expected a class or logits, and a label a row; found shapes {predicted.shape} and {gold.shape}"
        )
    if predicted.ndim == 2 and predicted.shape[1] < 2:
        raise ValueError(f"expected logits of two or more classes, found shape {predicted.shape}")
    if predicted.ndim == 2:
        refuse_rows(np.isnan(predicted).any(axis=1), "logits are NaN")
        predicted = predicted.argmax(axis=1)
    for name, column in (("predictions", predicted), ("labels", gold)):
        refuse_rows(~(np.isfinite(column) & (column == np.floor(column))), f"{name} are no whole numbers")
    return predicted.astype(np.int64), gold.astype(np.int64)


Maker = Callable[[ArrayLike, ArrayLike], Statistic]


def _at(gain: Value, value: Value) -> Maker:
    """The statistic of scores and labels at the best cut of each resample. Memory: half a dozen arrays of the shape of
    `counts`, in float64."""

    def make(scores: ArrayLike, labels: ArrayLike) -> Statistic:
        cuts = _cuts(scores, labels)
        return Jackknifed(lambda counts: value(cuts.tally(counts).at(gain)), lambda: cuts.left_out(gain, value))

    return make


def _plain(make: Maker) -> Callable[[ArrayLike, ArrayLike], float]:
    """The figure of predictions int[n] (or logits [n, classes]: the largest counts, the first of equal ones) and labels
    int[n], every row counted once."""
    return lambda predictions, labels: once(make(predictions, labels), np.size(labels))


best_accuracy_statistic = _at(_most_accurate, _accuracy)
best_f1_statistic = _at(_highest_f1, lambda t: _f1(t)[0])
precision_at_best_f1_statistic = _at(_highest_f1, lambda t: _precision(t)[0])
recall_at_best_f1_statistic = _at(_highest_f1, lambda t: _recall(t)[0])
# Without positives there is no best cut to take it at.
mcc_at_best_f1_statistic = _at(_highest_f1, lambda t: np.where(t.positives[0] > 0, _mcc(t), np.nan))

accuracy_statistic: Maker = partial(_of_classes, _accuracy)
# Over the hits and misses of all classes together, which is the accuracy where each row has one class.
f1_micro_statistic = accuracy_statistic
# The mean over the classes that occur among labels or predictions, in a resample among its own.
f1_macro_statistic: Maker = partial(
    _of_classes, lambda t: share(np.nansum(_f1(t), axis=0), np.count_nonzero(t.taken + t.positives, axis=0))
)
f1_weighted_statistic: Maker = partial(_of_classes, lambda t: share(np.nansum(_f1(t) * t.positives, axis=0), t.rows))
mcc_statistic: Maker = partial(_of_classes, _mcc)  # 1 is perfect, 0 is chance

accuracy, f1_macro, f1_weighted = _plain(accuracy_statistic), _plain(f1_macro_statistic), _plain(f1_weighted_statistic)
f1_micro, mcc = accuracy, _plain(mcc_statistic)
