"""Pair correlation: how well a cross-encoder's scores agree with people's scores of the same pairs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from calipers.core import Dataset, DefaultData, Metric, NoOptions, Outcomes, PairScorer, Progress, Task
from calipers.metrics.arrays import Floats, Statistic
from calipers.metrics.correlation import kendall_statistic, pearson_statistic, spearman_statistic
from calipers.metrics.exchange import Exchange, ranks, standard_scores
from calipers.tasks import columns, outputs, similarity


def run(model: PairScorer, dataset: Dataset, options: NoOptions, progress: Progress) -> Outcomes:
    """Outcomes: `gold` and `score` per pair."""
    first, second = dataset.columns["input_column_1"], dataset.columns["input_column_2"]
    pairs = list(zip(first, second, strict=True))
    scores = outputs.score_once(model, pairs, dataset.ids, progress, "pair-correlation")
    return Outcomes(
        ids=dataset.ids,
        columns={
            "gold": np.array(dataset.columns["score_column"], dtype=np.float64),
            "score": scores.astype(np.float64),
        },
        texts={"text_1": tuple(first), "text_2": tuple(second)},
    )


def _metric(name: str, about: str, statistic: Callable[[Floats, Floats], Statistic], exchange: Exchange) -> Metric:
    return Metric(name, about, lambda c: statistic(c["score"], c["gold"]), digits=4, exchange=exchange)


METRICS = (
    _metric("spearman", "rank correlation with gold", spearman_statistic, ranks),
    _metric("pearson", "linear correlation with gold", pearson_statistic, standard_scores),
    _metric("kendall", "tau-b with gold", kendall_statistic, ranks),
)

TASK = Task(
    name="pair-correlation",
    about="agreement of a cross-encoder's scores with people's scores of sentence pairs",
    ability="score",
    unit="pair",
    columns=similarity.TASK.columns,
    default_data=DefaultData("mteb/stsbenchmark-sts", None, "test"),
    metrics=METRICS,
    check=similarity.check,
    text_ids=columns.pair_ids,
    run=run,
)
