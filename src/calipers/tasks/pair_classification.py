"""Pair classification: how well a cross-encoder tells the class of a pair (paraphrase or not, entailment, …).

A model with one output is judged by its score, at the cut that is best on these data, as published figures are, and at
cuts that were chosen on other pairs (cross-fitted), which a verdict depends on; one with several by its highest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calipers.core.datasets import Column, Dataset, read_class
from calipers.core.errors import DataError, RequestError, name_some
from calipers.core.models import PairScorer, Progress
from calipers.core.options import Options, option
from calipers.core.outcomes import Outcomes
from calipers.core.results import DefaultData, Metric, Statistic, Task
from calipers.metrics import classification as c
from calipers.metrics import cross_fit
from calipers.metrics.arrays import Array, Ints
from calipers.metrics.exchange import as_they_are, ranks
from calipers.tasks import outputs
from calipers.tasks.columns import PAIR, pair_ids

_FAR_BETTER = 0.2  # a permutation of the classes that gains so much accuracy is worth a warning


@dataclass(frozen=True)
class PairClassificationOptions(Options):
    label_mapping: str | None = option(
        None, "The model's class number of each label in the data.", group="Task", metavar="LABEL=N,…"
    )

    def mapping(self) -> dict[str, int]:
        """Label in the data → the model's class."""
        classes: dict[str, int] = {}
        for part in (self.label_mapping or "").split(","):
            label, equals, number = part.strip().rpartition("=")
            if not part.strip():
                continue
            if not equals or not (number.strip().isascii() and number.strip().isdigit()):
                raise RequestError(f"`label_mapping` must be LABEL=NUMBER,…, found {part.strip()!r}")
            key = str(read_class(label))  # as the labels of the data are read: 1.0 is the class 1
            if classes.setdefault(key, int(number)) != int(number):
                raise RequestError(f"`label_mapping` gives {key!r} two classes, {classes[key]} and {int(number)}")
        return classes

    def __post_init__(self) -> None:
        self.mapping()


def check(dataset: Dataset) -> None:
    if len(set(map(str, dataset.columns["label_column"]))) < 2:
        raise DataError(f"every pair in {dataset.source.path} has the same label: expected at least two labels")


def run(model: PairScorer, dataset: Dataset, options: PairClassificationOptions, progress: Progress) -> Outcomes:
    """Outcomes per pair: `label`, and `score` (one output) or `prediction` (several)."""
    first, second = dataset.columns["input_column_1"], dataset.columns["input_column_2"]
    unused = _unused_keys(dataset, options.mapping())
    labels = number_labels(dataset, options.mapping(), model.info.settings.get("label_names") or [])
    scores = outputs.score_pairs(model, list(zip(first, second, strict=True)), dataset.ids, progress)
    classes = scores.shape[1] if scores.ndim == 2 else 1
    _refuse_unknown(labels, max(classes, 2), dataset)
    named = dict(zip(map(str, dataset.columns["label_column"]), labels.tolist(), strict=True))
    columns, counts, notes = _binary(scores, labels) if classes == 1 else _several(scores, labels, classes, named)
    return Outcomes(
        ids=dataset.ids,
        columns={"label": labels, **columns},
        texts={"text_1": tuple(first), "text_2": tuple(second)},
        counts={"pairs": len(labels), "classes": max(classes, 2), **counts},
        notes=(*unused, *notes),
    )


def settle(options: PairClassificationOptions, dataset: Dataset) -> PairClassificationOptions:
    """Before a model is loaded: a mapping of labels that the data do not have is refused."""
    _unused_keys(dataset, options.mapping())
    return options


def _unused_keys(dataset: Dataset, mapping: Mapping[str, int]) -> tuple[str, ...]:
    """A note on labels of the mapping that are not in a sample of the data; where all rows were read, an error."""
    labels = sorted(set(map(str, dataset.columns["label_column"])))
    unused = [label for label in mapping if label not in labels]
    if not unused:
        return ()
    if dataset.source.requested is None:
        source = f"the labels of {dataset.source.path} are {name_some(labels)}"
        raise RequestError(f"`label_mapping` names {name_some(unused)}, and {source}")
    return (f"the sample has no row with the label {name_some(unused)} of the label mapping",)


def number_labels(dataset: Dataset, mapping: Mapping[str, int], names: Sequence[str]) -> Ints:
    """The labels as the model's class numbers: by the mapping, by number, or by the names in the model's files."""
    by_name = {name.casefold(): i for i, name in enumerate(names)}
    numbers = []
    for id, label in zip(dataset.ids, dataset.columns["label_column"], strict=True):
        named = by_name.get(str(label).casefold())
        number = mapping.get(str(label), label if isinstance(label, int) and not mapping else named)
        if number is None:
            classes = ", ".join(names) or "numbers only"
            raise DataError(
                f"the label {label!r} of row {id!r} is not a class of the model ({classes}): "
                "name its class with `label_mapping`"
            )
        numbers.append(number)
    return np.array(numbers, dtype=np.int64)


def _refuse_unknown(labels: Ints, classes: int, dataset: Dataset) -> None:
    outside = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(outside):
        row = int(outside[0])
        raise DataError(
            f"the label {labels[row]} of row {dataset.ids[row]!r} is outside the model's classes 0 to {classes - 1}: "
            "name the class of each label with `label_mapping`"
        )


_Measured = tuple[dict[str, Array], dict[str, float], tuple[str, ...]]  # outcome columns, counts, notes


def _binary(scores: Array, labels: Ints) -> _Measured:
    score = scores.reshape(len(scores))
    accuracy, f1 = c.best_accuracy(score, labels), c.best_f1(score, labels)
    counts = {"accuracy_threshold": float(accuracy.threshold), "f1_threshold": float(f1.threshold)}
    turned = c.average_precision(-score, labels)
    backwards = turned > c.average_precision(score, labels) + _FAR_BETTER
    note = f"the scores point the other way: turned round, average precision would be {turned:.3f}"
    columns, notes = _cross_fit(score, labels)
    return {"score": score, **columns}, counts, (note, *notes) if backwards else notes


def _cross_fit(score: Array, labels: Ints) -> tuple[dict[str, Array], tuple[str, ...]]:
    """What pairs are called by thresholds that were chosen without them; a note where there are too few pairs."""
    best = {
        _CALLED_BY_F1: lambda scores, gold: c.best_f1(scores, gold).threshold,
        _CALLED_BY_ACCURACY: lambda scores, gold: c.best_accuracy(scores, gold).threshold,
    }
    called = {name: cross_fit.calls(score, labels, threshold) for name, threshold in best.items()}
    columns = {name: values for name, values in called.items() if values is not None}
    few = f"f1 and accuracy have no cross-fitted figure: it needs at least {cross_fit.FEWEST} pairs of either label"
    return columns, () if columns else (few,)


def _several(scores: Array, labels: Ints, classes: int, named: Mapping[str, int]) -> _Measured:
    """`named` is the class that each label of the data was taken for."""
    prediction = scores.argmax(axis=1)
    best = c.permutation_gain(prediction, labels, classes)
    if best.accuracy <= c.accuracy(prediction, labels) + _FAR_BETTER:
        return {"prediction": prediction}, {}, ()
    order = ",".join(f"{label}={best.permutation.index(number)}" for label, number in sorted(named.items()))
    note = f"the classes seem to be in another order: with the label mapping {order} accuracy would be "
    return {"prediction": prediction}, {}, (f"{note}{best.accuracy:.3f}",)


_CALLED_BY_F1, _CALLED_BY_ACCURACY = "called_by_f1", "called_by_accuracy"  # 1: positive


def _cross_fitted(name: str, column: str, statistic: Callable[[Any, Any], Statistic], **options: Any) -> Metric:
    about = "at cuts chosen on other pairs, which is not optimistic"
    return Metric(
        f"{name}_cross_fitted",
        about,
        lambda columns: statistic(columns[column], columns["label"]),
        digits=4,
        needs=(column,),
        spread=cross_fit.SPREAD,
        **options,
    )


def _metric(
    column: str, name: str, about: str, statistic: Callable[[Any, Any], Statistic], decided_by: str = ""
) -> Metric:
    """A metric of the models whose outcomes have this column."""
    return Metric(
        name,
        about,
        lambda columns: statistic(columns[column], columns["label"]),
        digits=4,
        needs=(column,),
        exchange=ranks if column == "score" else as_they_are,
        decided_by=decided_by,
    )


METRICS = (
    _metric("score", "average_precision", "of the score", c.average_precision_statistic),
    _metric("score", "accuracy", "at the best cut", c.best_accuracy_statistic, "accuracy_cross_fitted"),
    _cross_fitted("accuracy", _CALLED_BY_ACCURACY, cross_fit.accuracy_of_calls),
    _metric("score", "f1", "at the best cut", c.best_f1_statistic, "f1_cross_fitted"),
    _cross_fitted("f1", _CALLED_BY_F1, cross_fit.f1_of_calls, exchange=as_they_are),
    _metric("score", "precision", "at the cut of f1", c.precision_at_best_f1_statistic),
    _metric("score", "recall", "at the cut of f1", c.recall_at_best_f1_statistic),
    _metric("score", "mcc", "at the cut of f1", c.mcc_at_best_f1_statistic),
    _metric("prediction", "f1_macro", "mean over classes", c.f1_macro_statistic),
    _metric("prediction", "f1_weighted", "weighted by class", c.f1_weighted_statistic),
    _metric("prediction", "f1_micro", "over all pairs", c.accuracy_statistic),
    _metric("prediction", "accuracy", "of the highest output", c.accuracy_statistic),
    _metric("prediction", "mcc", "of the highest output", c.mcc_statistic),
)

TASK = Task(
    name="pair-classification",
    about="how well a cross-encoder tells the class of a pair of texts",
    ability="score",
    unit="pair",
    columns=(*PAIR, Column("label_column", "label", "label", "the class: a number, or a name that the model knows")),
    default_data=DefaultData("nyu-mll/glue", "mrpc", "validation"),
    metrics=METRICS,
    check=check,
    settle=settle,
    text_ids=pair_ids,
    run=run,
    options=PairClassificationOptions,
)
