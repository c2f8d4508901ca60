"""Pair correlation: how well a cross-encoder's scores agree with people's scores of the same pairs."""

from __future__ import annotations

import numpy as np

from calipers.core import Dataset, DefaultData, Metric, NoOptions, Outcomes, PairScorer, Progress, Task
from calipers.metrics.correlation import kendall_statistic, pearson_statistic, spearman_statistic
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


METRICS = (
    Metric("spearman", "rank correlation with gold", lambda c: spearman_statistic(c["score"], c["gold"]), digits=4),
    Metric("pearson", "linear correlation with gold", lambda c: pearson_statistic(c["score"], c["gold"]), digits=4),
    Metric("kendall", "tau-b with gold", lambda c: kendall_statistic(c["score"], c["gold"]), digits=4),
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
