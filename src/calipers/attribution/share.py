"""The share of a loss that a restoration brings back, and its interval."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from calipers.core import Metric, Result
from calipers.metrics import bootstrap

RESAMPLES = 2_000


def share_of_loss(
    metric: Metric, baseline: Result, broken: Result, restored: Result, *, confidence: float, seed: int
) -> tuple[float | None, tuple[float, float] | None]:
    """(restored − broken) / (baseline − broken), and the middle of it over paired resamples.

    1 is all of the loss, 0 nothing; below 0 the restoration makes it worse. Where nothing was lost there is no share;
    where the loss is within 0 in too many resamples, no interval.
    """
    columns = [result.outcomes.columns for result in (baseline, broken, restored)]
    values = [metric.value(c) for c in columns]
    if not all(map(math.isfinite, values)) or values[0] == values[1]:
        return None, None
    drawn = bootstrap.distribution(
        [metric.statistic(c) for c in columns], len(baseline.outcomes), resamples=RESAMPLES, seed=seed
    )
    shares = _ratio(drawn[2] - drawn[1], drawn[0] - drawn[1])
    return (values[2] - values[1]) / (values[0] - values[1]), bootstrap.percentile_interval(
        shares, confidence=confidence
    )


def _ratio(gained: NDArray[np.float64], lost: NDArray[np.float64]) -> NDArray[np.float64]:
    """NaN where a resample lost nothing, or has another sign than most: a share of that means nothing."""
    sign = np.sign(np.nanmedian(lost)) or 1.0
    safe = np.where(lost * sign > 0, lost, np.nan)
    return np.asarray(gained / safe)
