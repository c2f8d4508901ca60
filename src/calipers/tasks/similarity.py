"""Sentence similarity: how well closeness of vectors agrees with people's scores of sentence pairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from calipers.core import (
    Column,
    Columns,
    DataError,
    Dataset,
    DefaultData,
    Encoder,
    InvalidOutput,
    Metric,
    NoOptions,
    Outcomes,
    Progress,
    Statistic,
    Task,
    Thresholds,
    name_some,
)
from calipers.metrics.correlation import pearson_statistic, spearman_statistic
from calipers.metrics.geometry import unit_like

_ROWS = 4096  # pairs whose vectors are held in float64 at a time
_CONSTANT = 1e-9  # cosines that differ by less than this differ by rounding only

Floats = NDArray[np.float64]


def check(dataset: Dataset) -> None:
    gold = dataset.columns["score_column"]
    if len(gold) < 3:
        raise DataError(
            f"{dataset.source.path} gives {len(gold)} pair(s): a correlation needs at least 3 to mean anything"
        )
    if list(dataset.columns["input_column_1"]) == list(dataset.columns["input_column_2"]):
        raise DataError(f"both columns of {dataset.source.path} hold the same texts: is --column right?")
    if min(gold) == max(gold):
        raise DataError(
            f"every score in {dataset.source.path} is {gold[0]:g}: a correlation with constant scores does not exist"
        )


def text_ids(dataset: Dataset) -> Mapping[str, Sequence[str]]:
    ids: dict[str, list[str]] = {}
    for side in (1, 2):
        for id, text in zip(dataset.ids, dataset.columns[f"input_column_{side}"], strict=True):
            ids.setdefault(text, []).append(f"{id}/{side}")
    return ids


def run(model: Encoder, dataset: Dataset, options: NoOptions, progress: Progress) -> Outcomes:
    """Outcomes: `gold` and, for each way of comparing vectors, the predicted similarity (higher is closer)."""
    first, second = dataset.columns["input_column_1"], dataset.columns["input_column_2"]
    vectors = model.encode([*first, *second], progress=progress)
    a, b = vectors[: len(first)], vectors[len(first) :]
    _refuse_dead(a, b, dataset.ids)
    predicted = {name: np.empty(len(a)) for name in _SIMILARITIES}
    for start in range(0, len(a), _ROWS):
        rows = slice(start, start + _ROWS)
        for name, similarity in _SIMILARITIES.items():
            predicted[name][rows] = similarity(a[rows].astype(np.float64), b[rows].astype(np.float64))
    if np.ptp(predicted["cosine"]) < _CONSTANT:
        raise InvalidOutput(
            f"the model gives every one of {len(a)} pairs the same cosine, {predicted['cosine'][0]:.6f} "
            f"(rows {name_some(dataset.ids)})",
            dataset.ids,
        )
    return Outcomes(
        ids=dataset.ids,
        columns={"gold": np.array(dataset.columns["score_column"], dtype=np.float64), **predicted},
        texts={"text_1": tuple(first), "text_2": tuple(second)},
    )


def cosine(a: Floats, b: Floats) -> Floats:
    """1 - |â - b̂|² / 2: the cosine, and exactly 1 for equal vectors, so that equal pairs tie.

    >>> cosine(np.array([[3.0, 4.0]]), np.array([[4.0, 3.0]]))
    array([0.96])
    """
    return np.asarray(1.0 - 0.5 * np.square(unit_like(a) - unit_like(b)).sum(axis=1))


def dot(a: Floats, b: Floats) -> Floats:
    return np.asarray(np.einsum("ij,ij->i", a, b))


def euclidean(a: Floats, b: Floats) -> Floats:
    return np.asarray(-np.linalg.norm(a - b, axis=1))


def manhattan(a: Floats, b: Floats) -> Floats:
    return np.asarray(-np.abs(a - b).sum(axis=1))


def _refuse_dead(a: NDArray[np.float32], b: NDArray[np.float32], ids: tuple[str, ...]) -> None:
    finite = np.isfinite(a).all(axis=1) & np.isfinite(b).all(axis=1)
    if not finite.all():
        raise _invalid("NaN or infinite numbers", np.flatnonzero(~finite), ids)
    alive = a.any(axis=1) & b.any(axis=1)
    if not alive.all():
        raise _invalid("zero vectors", np.flatnonzero(~alive), ids)


def _invalid(what: str, rows: NDArray[np.int64], ids: tuple[str, ...]) -> InvalidOutput:
    dead = [ids[i] for i in rows]
    return InvalidOutput(f"the model gives {what} for {len(dead)} of {len(ids)} pairs (rows {name_some(dead)})", dead)


def _points(statistic: Callable[[Floats, Floats], Statistic], column: str) -> Callable[[Columns], Statistic]:
    """A correlation with gold, times 100."""

    def prepare(columns: Columns) -> Statistic:
        correlation = statistic(columns[column], columns["gold"])
        return lambda counts: 100.0 * correlation(counts)

    return prepare


_SIMILARITIES = {"cosine": cosine, "dot": dot, "euclidean": euclidean, "manhattan": manhattan}
_CORRELATIONS = {"spearman": spearman_statistic, "pearson": pearson_statistic}

METRICS = tuple(
    Metric(
        name=f"{similarity}_{correlation}",
        about=f"{correlation.capitalize()} of {similarity} with gold, × 100",
        statistic=_points(statistic, similarity),
        thresholds=Thresholds(2.0, 4.0, relative=False)
        if similarity == "cosine" and correlation == "spearman"
        else Thresholds(0.05, 0.10),
        minor=similarity != "cosine",
    )
    for similarity in _SIMILARITIES
    for correlation, statistic in _CORRELATIONS.items()
)

TASK = Task(
    name="sentence-similarity",
    aliases=("feature-extraction",),
    about="agreement of vector similarity with people's scores of sentence pairs",
    ability="encode",
    unit="pair",
    columns=(
        Column("input_column_1", "sentence1", "text", "the first text"),
        Column("input_column_2", "sentence2", "text", "the second text"),
        Column("score_column", "score", "number", "how similar they are, on any rising scale"),
    ),
    default_data=DefaultData("mteb/stsbenchmark-sts", None, "test"),
    metrics=METRICS,
    check=check,
    text_ids=text_ids,
    run=run,
)
