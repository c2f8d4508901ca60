"""What a comparison of many examples holds, in bytes an example."""

from __future__ import annotations

import tracemalloc

import numpy as np

from calipers.comparison import evidence
from calipers.core import Outcomes
from calipers.tasks.similarity import METRICS

EXAMPLES = 200_000


def test_evidence_holds_the_influence_of_each_metric_and_nothing_else() -> None:
    rng = np.random.default_rng(0)
    gold, ids = rng.integers(0, 6, EXAMPLES).astype(np.float64), tuple(map(str, range(EXAMPLES)))
    a, b = (Outcomes(ids, {"gold": gold, "cosine": gold + rng.standard_normal(EXAMPLES)}) for _ in range(2))
    metrics = [metric for metric in METRICS if not metric.minor]
    tracemalloc.start()
    gathered = evidence.gather(metrics, a, b, evidence.DrawnUnits(EXAMPLES), resamples=2, seed=1, threads=1)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(gathered) == 2
    assert held < 34 * EXAMPLES  # two numbers for each metric
