"""Sentence similarity: how well closeness of vectors agrees with people's scores of sentence pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import eq

import numpy as np

from calipers.core.datasets import Column, Dataset
from calipers.core.errors import DataError
from calipers.core.models import Encoder, Progress
from calipers.core.outcomes import WITHOUT_VECTOR, Columns, Outcomes
from calipers.core.packed import as_kept
from calipers.core.results import DefaultData, Metric, Statistic, Task, Thresholds
from calipers.metrics.arrays import Bools, Floats, Vectors, slices
from calipers.metrics.correlation import pearson_statistic, spearman_statistic
from calipers.metrics.exchange import ranks, standard_scores
from calipers.metrics.geometry import unit_like
from calipers.metrics.jackknife import Jackknifed
from calipers.metrics.magnitudes import common_power
from calipers.tasks import columns, outputs
from calipers.tasks.sizes import SizeOptions, at_sizes, first_numbers

_PAIRS = 32_768  # whose vectors are held at a time
_ROWS = 4096  # the same in float64
_POWERS = {"dot": 2, "euclidean": 1, "manhattan": 1}  # of the scale of vectors, that a similarity grows by


def check(dataset: Dataset) -> None:
    gold, path = dataset.columns["score_column"], dataset.source.path
    if len(gold) < 3:
        raise DataError(f"{path} gives {len(gold)} pair(s): a correlation needs at least 3 to mean anything")
    if all(map(eq, dataset.columns["input_column_1"], dataset.columns["input_column_2"])):
        raise DataError(f"both columns of {path} hold the same texts: check which `columns` are read")
    if min(gold) == max(gold):
        raise DataError(f"every score in {path} is {gold[0]:g}: a correlation with constant scores does not exist")


def run(model: Encoder, dataset: Dataset, options: SizeOptions, progress: Progress) -> Outcomes:
    """Outcomes: `gold` and, for each way of comparing vectors, the predicted similarity (higher is closer), NaN where a
    text has no vector."""
    first, second = dataset.columns["input_column_1"], dataset.columns["input_column_2"]
    parts = [_answer(model, first[rows], second[rows], options, progress) for rows in slices(len(first), _PAIRS)]
    largest = max(part.power for part in parts)
    dead, unread = (np.concatenate([getattr(part, name) for part in parts]) for name in ("dead", "unread"))
    outputs.refuse_rows(dead, dataset.ids, "NaN or infinite numbers", "pairs")
    outputs.refuse_unread(unread, dataset.ids, "pairs")
    predicted = {
        name: np.concatenate([np.ldexp(p.predicted[name], _POWERS.get(name, 0) * (p.power - largest)) for p in parts])
        for name in parts[0].predicted
    }
    for values in predicted.values():
        values[unread] = np.nan
    read = np.flatnonzero(~unread)
    answer = f"the same cosine, {predicted['cosine'][read[0]]:.6f},"
    if np.ptp(predicted["cosine"][read]) <= outputs.ROUNDING:
        ids = [dataset.ids[i] for i in read.tolist()]
        outputs.refuse_constant(predicted["cosine"][read], ids, answer, "pairs", rounding=outputs.ROUNDING)
    return Outcomes(
        ids=dataset.ids,
        columns={
            "gold": np.array(dataset.columns["score_column"], dtype=np.float64),
            **predicted,
            **({WITHOUT_VECTOR: unread} if unread.any() else {}),
        },
        texts={"text_1": as_kept(first), "text_2": as_kept(second)},
        counts={"pairs_without_vector": int(unread.sum())} if unread.any() else {},
        notes=outputs.note_unread(unread, dataset.ids, "pairs", "its own correlations leave them out"),
    )


@dataclass(frozen=True, eq=False)
class _Answers:
    """The similarities of some pairs, by name; which of them have a vector that is not finite, or of zeros. Vectors
    were divided by 2 to the `power`."""

    predicted: dict[str, Floats]
    dead: Bools
    unread: Bools
    power: int


def _answer(
    model: Encoder, first: Sequence[str], second: Sequence[str], options: SizeOptions, progress: Progress
) -> _Answers:
    vectors = model.encode([*first, *second], progress=progress)
    if power := common_power(vectors):  # of a model in memory: float64 products of such numbers overflow
        vectors = np.ldexp(vectors, -power)
    a, b = vectors[: len(first)], vectors[len(first) :]
    dead = outputs.not_finite(a) | outputs.not_finite(b)
    if dead.any():  # it is refused, with the rows of all parts
        return _Answers({}, dead, np.zeros(len(a), np.bool_), power)
    predicted = _predict(a, b)
    for size in options.dimensions:
        short_a, short_b = first_numbers(a, size), first_numbers(b, size)
        predicted[f"cosine/{size}"] = np.where(
            outputs.is_zero(short_a) | outputs.is_zero(short_b), np.nan, _predict(short_a, short_b)["cosine"]
        )
    return _Answers(predicted, dead, outputs.is_zero(a) | outputs.is_zero(b), power)


def _predict(a: Vectors, b: Vectors) -> dict[str, Floats]:
    """Every similarity of every pair, float64[n]; the cosine of a pair with a vector of zeros means nothing."""
    predicted = {name: np.empty(len(a)) for name in _SIMILARITIES}
    for rows in slices(len(a), _ROWS):
        for name, similarity in _SIMILARITIES.items():
            predicted[name][rows] = similarity(a[rows].astype(np.float64), b[rows].astype(np.float64))
    return predicted


def fail(outcomes: Columns, rows: Bools) -> Columns:
    """Outcomes in which these pairs are as wrong as can be: as near as the nearest pair where people say that they are
    far from each other, and as far as the furthest where people say that they are near.

    >>> fail({"gold": np.array([0.0, 5.0]), "cosine": np.array([np.nan, 0.8])}, np.array([True, False]))["cosine"]
    array([0.8, 0.8])
    """
    if not rows.any():
        return outcomes
    high = outcomes["gold"] >= np.median(outcomes["gold"])
    failed = {}
    for name in outcomes.keys() & _SIMILARITIES.keys():
        values = outcomes[name]
        failed[name] = np.where(rows, np.where(high, np.nanmin(values), np.nanmax(values)), values)
    return {**outcomes, **failed}


def cosine(a: Floats, b: Floats) -> Floats:
    """1 - |â - b̂|² / 2: the cosine, and exactly 1 for equal vectors, so that equal pairs tie.

    >>> cosine(np.array([[3.0, 4.0]]), np.array([[4.0, 3.0]]))
    array([0.96])
    """
    return np.asarray(1.0 - 0.5 * np.square(unit_like(a) - unit_like(b)).sum(axis=1))


def _points(statistic: Callable[[Floats, Floats], Jackknifed], column: str) -> Callable[[Columns], Statistic]:
    """A correlation with gold, times 100, over the pairs that have a similarity."""

    def prepare(outcomes: Columns) -> Statistic:
        pair = [outcomes["gold"], outcomes[column]]
        has_value = ~np.isnan(pair[1])
        if has_value.all():  # of a million pairs the columns are most of the memory: neither copied nor held here
            return statistic(pair.pop(), pair.pop()).then(lambda points: 100.0 * points)
        gold, values = (each[has_value] for each in pair)
        among = statistic(values, gold).among(np.flatnonzero(has_value), len(has_value))
        return among.then(lambda points: 100.0 * points)

    return prepare


_SIMILARITIES: dict[str, Callable[[Floats, Floats], Floats]] = {
    "cosine": cosine,
    "dot": lambda a, b: np.einsum("ij,ij->i", a, b),
    "euclidean": lambda a, b: -np.linalg.norm(a - b, axis=1),
    "manhattan": lambda a, b: -np.abs(a - b).sum(axis=1),
}
_PRIMARY = Thresholds(2.0, 4.0, relative=False)
_CORRELATIONS = {"spearman": (spearman_statistic, ranks), "pearson": (pearson_statistic, standard_scores)}

METRICS = tuple(
    Metric(
        name=f"{similarity}_{correlation}",
        about=f"{correlation.capitalize()} of {similarity} with gold, × 100",
        statistic=_points(statistic, similarity),
        thresholds=_PRIMARY if (similarity, correlation) == ("cosine", "spearman") else Thresholds(0.05, 0.10),
        minor=similarity != "cosine",
        fail=fail,
        exchange=exchange,
    )
    for similarity in _SIMILARITIES
    for correlation, (statistic, exchange) in _CORRELATIONS.items()
)


def metrics_for(options: SizeOptions) -> tuple[Metric, ...]:
    return (*METRICS, *at_sizes([metric for metric in METRICS if not metric.minor], options.dimensions))


TASK = Task(
    name="sentence-similarity",
    aliases=("feature-extraction",),
    about="agreement of vector similarity with people's scores of sentence pairs",
    ability="encode",
    unit="pair",
    columns=(*columns.PAIR, Column("score_column", "score", "number", "how similar they are, on any rising scale")),
    default_data=DefaultData("mteb/stsbenchmark-sts", None, "test"),
    metrics=METRICS,
    check=check,
    text_ids=columns.pair_ids,
    run=run,
    options=SizeOptions,
    metrics_for=metrics_for,
)
