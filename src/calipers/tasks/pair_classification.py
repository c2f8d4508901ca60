"""Pair classification: how well a cross-encoder tells the class of a pair (paraphrase or not, entailment, …).

A model with one output is judged by its score, at the cut that is best on these data; one with several by its highest
output. The metrics that apply are those of the kind of model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.core import (
    Column,
    DataError,
    Dataset,
    DefaultData,
    Metric,
    Outcomes,
    PairScorer,
    Progress,
    RequestError,
    Task,
)
from calipers.core.options import Options, option
from calipers.metrics import classification as c
from calipers.tasks import pair_scores, similarity

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
            if not equals or not number.strip().isdigit():
                raise RequestError(f"`label_mapping` must be LABEL=NUMBER,…, found {part.strip()!r}")
            classes[label.strip()] = int(number)
        return classes

    def __post_init__(self) -> None:
        self.mapping()


def check(dataset: Dataset) -> None:
    if len(set(map(str, dataset.columns["label_column"]))) < 2:
        raise DataError(f"every pair in {dataset.source.path} has the same label: nothing can be told apart")


def run(model: PairScorer, dataset: Dataset, options: PairClassificationOptions, progress: Progress) -> Outcomes:
    """Outcomes per pair: `label`, and `score` (one output) or `prediction` (several)."""
    first, second = dataset.columns["input_column_1"], dataset.columns["input_column_2"]
    names = model.info.settings.get("label_names") or []
    labels = number_labels(dataset, options.mapping(), names)
    scores = pair_scores.ask(model, list(zip(first, second, strict=True)), dataset.ids, progress)
    classes = scores.shape[1] if scores.ndim == 2 else 1
    _refuse_unknown(labels, max(classes, 2), dataset)
    columns, counts, notes = _binary(scores, labels) if classes == 1 else _several(scores, labels, classes)
    return Outcomes(
        ids=dataset.ids,
        columns={"label": labels, **columns},
        texts={"text_1": tuple(first), "text_2": tuple(second)},
        counts={"pairs": len(labels), "classes": max(classes, 2), **counts},
        notes=notes,
    )


def number_labels(dataset: Dataset, mapping: Mapping[str, int], names: Sequence[str]) -> NDArray[np.int64]:
    """The labels as the model's class numbers: by the mapping, by number, or by the names in the model's files."""
    by_name = {name.casefold(): i for i, name in enumerate(names)}
    numbers = []
    for id, label in zip(dataset.ids, dataset.columns["label_column"], strict=True):
        found = mapping.get(str(label), label if isinstance(label, int) and not mapping else None)
        if found is None:
            found = by_name.get(str(label).casefold())
        if found is None:
            known = ", ".join(names) or "numbers only"
            raise DataError(
                f"the label {label!r} of row {id!r} is not a class of the model ({known}): "
                "say which with --label-mapping"
            )
        numbers.append(found)
    return np.array(numbers, dtype=np.int64)


def _refuse_unknown(labels: NDArray[np.int64], classes: int, dataset: Dataset) -> None:
    outside = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(outside):
        row = int(outside[0])
        raise DataError(
            f"the label {labels[row]} of row {dataset.ids[row]!r} is outside the model's classes 0 to {classes - 1}: "
            "say which is which with --label-mapping"
        )


def _binary(
    scores: NDArray[Any], labels: NDArray[np.int64]
) -> tuple[dict[str, Any], dict[str, float], tuple[str, ...]]:
    score = scores.reshape(len(scores))
    accuracy, f1 = c.best_accuracy(score, labels), c.best_f1(score, labels)
    counts = {"accuracy_threshold": float(accuracy.threshold), "f1_threshold": float(f1.threshold)}
    notes: tuple[str, ...] = ()
    turned = c.average_precision(-score, labels)
    if turned > c.average_precision(score, labels) + _FAR_BETTER:
        notes = (f"the scores point the other way: turned round, average precision would be {turned:.3f}",)
    return {"score": score}, counts, notes


def _several(
    scores: NDArray[Any], labels: NDArray[np.int64], classes: int
) -> tuple[dict[str, Any], dict[str, float], tuple[str, ...]]:
    prediction = scores.argmax(axis=1)
    best = c.permutation_gain(prediction, labels, classes)
    notes: tuple[str, ...] = ()
    if best.accuracy > c.accuracy(prediction, labels) + _FAR_BETTER:
        order = ",".join(f"{label}={number}" for number, label in enumerate(best.permutation))
        notes = (
            f"the classes seem to be in another order: with --label-mapping {order} "
            f"accuracy would be {best.accuracy:.3f}",
        )
    return {"prediction": prediction}, {}, notes


def _score(statistic: Any) -> Any:
    return lambda columns: statistic(columns["score"], columns["label"])


def _prediction(statistic: Any) -> Any:
    return lambda columns: statistic(columns["prediction"], columns["label"])


METRICS = (
    Metric("average_precision", "of the score", _score(c.average_precision_statistic), digits=4, needs=("score",)),
    Metric("accuracy", "at the best cut", _score(c.best_accuracy_statistic), digits=4, needs=("score",)),
    Metric("f1", "at the best cut", _score(c.best_f1_statistic), digits=4, needs=("score",)),
    Metric("precision", "at the cut of f1", _score(c.precision_at_best_f1_statistic), digits=4, needs=("score",)),
    Metric("recall", "at the cut of f1", _score(c.recall_at_best_f1_statistic), digits=4, needs=("score",)),
    Metric("mcc", "at the cut of f1", _score(c.mcc_at_best_f1_statistic), digits=4, needs=("score",)),
    Metric("f1_macro", "mean over classes", _prediction(c.f1_macro_statistic), digits=4, needs=("prediction",)),
    Metric("f1_weighted", "weighted by class", _prediction(c.f1_weighted_statistic), digits=4, needs=("prediction",)),
    Metric("f1_micro", "over all pairs", _prediction(c.accuracy_statistic), digits=4, needs=("prediction",)),
    Metric("accuracy", "of the highest output", _prediction(c.accuracy_statistic), digits=4, needs=("prediction",)),
    Metric("mcc", "of the highest output", _prediction(c.mcc_statistic), digits=4, needs=("prediction",)),
)

TASK = Task(
    name="pair-classification",
    aliases=(),
    about="how well a cross-encoder tells the class of a pair of texts",
    ability="score",
    unit="pair",
    columns=(
        Column("input_column_1", "sentence1", "text", "the first text"),
        Column("input_column_2", "sentence2", "text", "the second text"),
        Column("label_column", "label", "label", "the class: a number, or a name that the model knows"),
    ),
    default_data=DefaultData("nyu-mll/glue", "mrpc", "validation"),
    metrics=METRICS,
    check=check,
    text_ids=similarity.text_ids,
    run=run,
    options=PairClassificationOptions,
)
