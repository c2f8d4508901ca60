"""The figures of the evaluators over pairs: classification with one or several outputs, and correlation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.core import Outcomes
from calipers.interop._asking import Scores, one_score, refuse_dead
from calipers.metrics import classification
from calipers.metrics.correlation import pearson, spearman


@dataclass(frozen=True)
class Found:
    """What an evaluator has to say: `metrics` in the order of the CSV's `headers`, the log `lines`, the outcomes."""

    metrics: Mapping[str, Any]
    primary: str
    headers: Sequence[str]
    lines: Sequence[str]
    outcomes: Outcomes


def as_tuples(pairs: Sequence[Sequence[str]]) -> list[tuple[str, str]]:
    return [(first, second) for first, second in pairs]


def check_lengths(pairs: Sequence[Any], values: Sequence[Any], what: str) -> None:
    if len(pairs) != len(values):
        raise ValueError(f"sentence_pairs and {what} must have the same length: found {len(pairs)} and {len(values)}")


def binary(scores: Scores, labels: NDArray[Any], *, compat: bool) -> Found:
    """`scores` [n] or [n, 1]; `labels` 0 or 1. Without positives NaN, in compat mode 0."""
    score = one_score(scores, "classification by a threshold")
    ids = _ids(labels)
    refuse_dead(score, ids)
    accuracy, f1 = classification.best_accuracy(score, labels), classification.best_f1(score, labels)
    figures = {
        "accuracy": accuracy.accuracy,
        "accuracy_threshold": accuracy.threshold,
        "f1": f1.f1,
        "f1_threshold": f1.threshold,
        "precision": f1.precision,
        "recall": f1.recall,
        "average_precision": classification.average_precision(score, labels),
    }
    if compat:
        figures = {key: 0.0 if np.isnan(value) else value for key, value in figures.items()}
    thresholds = {key: value for key, value in figures.items() if key.endswith("_threshold")}
    return Found(
        # A threshold is a score, and a CSV shows it with the digits of one.
        metrics=figures | {key: _like(score, value) for key, value in thresholds.items()},
        primary="average_precision",
        headers=["Accuracy", "Accuracy_Threshold", "F1", "F1_Threshold", "Precision", "Recall", "Average_Precision"],
        lines=_binary_lines(figures),
        outcomes=Outcomes(ids, {"label": labels, "score": score}, counts={"pairs": len(labels), **thresholds}),
    )


def _binary_lines(figures: Mapping[str, float]) -> list[str]:
    percent = {key: f"{value * 100:.2f}" for key, value in figures.items()}
    return [
        f"Accuracy:          {percent['accuracy']}\t(Threshold: {figures['accuracy_threshold']:.4f})",
        f"F1:                {percent['f1']}\t(Threshold: {figures['f1_threshold']:.4f})",
        f"Precision:         {percent['precision']}",
        f"Recall:            {percent['recall']}",
        f"Average Precision: {percent['average_precision']}",
    ]


def several(scores: Scores, labels: NDArray[Any], *, compat: bool) -> Found:
    """`scores` [n, classes]; `labels` are class numbers. No rows: NaN."""
    ids = _ids(labels)
    if not compat:
        refuse_dead(scores, ids)
    prediction = scores.argmax(axis=1) if len(labels) else np.zeros(0, dtype=np.int64)
    kinds = {
        "Macro": classification.f1_macro,
        "Micro": classification.f1_micro,
        "Weighted": classification.f1_weighted,
    }
    figures = {kind: f1(prediction, labels) for kind, f1 in kinds.items()}
    return Found(
        metrics={f"f1_{kind.lower()}": value for kind, value in figures.items()},
        primary="f1_macro",
        headers=[f"{kind}_F1" for kind in kinds],
        lines=[f"{f'{kind} F1:':<19} {value * 100:.2f}" for kind, value in figures.items()],
        outcomes=Outcomes(ids, {"label": labels, "prediction": prediction}, counts={"pairs": len(labels)}),
    )


def correlation(scores: Scores, gold: Sequence[float], *, compat: bool) -> Found:
    """`scores` [n] or [n, 1]. NaN where either is constant, and of fewer than two pairs (compat: a ValueError)."""
    score, target = one_score(scores, "correlation"), np.asarray(gold, dtype=np.float64)
    ids = _ids(target)
    if compat and len(target) < 2:
        raise ValueError("a correlation needs at least two pairs: sentence-transformers fails here and so does compat")
    if not compat:
        refuse_dead(score, ids)
        if not np.isfinite(target).all():
            raise ValueError(f"gold scores are not finite in rows {np.flatnonzero(~np.isfinite(target))[:10].tolist()}")
    linear, by_rank = _correlations(target, score.astype(np.float64))
    return Found(
        metrics={"pearson": linear, "spearman": by_rank},
        primary="spearman",
        headers=["Pearson_Correlation", "Spearman_Correlation"],
        lines=[f"Correlation:\tPearson: {linear:.4f}\tSpearman: {by_rank:.4f}"],
        outcomes=Outcomes(ids, {"gold": target, "score": score}, counts={"pairs": len(target)}),
    )


def _correlations(gold: NDArray[np.float64], score: NDArray[np.float64]) -> tuple[float, float]:
    """Pearson of infinite values is NaN; they do have ranks, which NaN has not."""
    both = np.concatenate([gold, score])
    if len(gold) < 2 or np.isnan(both).any():
        return np.nan, np.nan
    return pearson(gold, score) if np.isfinite(both).all() else np.nan, spearman(gold, score)


def _ids(values: NDArray[Any]) -> tuple[str, ...]:
    return tuple(str(i) for i in range(len(values)))


def _like(score: Scores, value: float) -> Any:
    return score.dtype.type(value) if np.issubdtype(score.dtype, np.floating) else value
