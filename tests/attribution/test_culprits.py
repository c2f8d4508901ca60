"""The share of a loss that a restoration brings back."""

from __future__ import annotations

import numpy as np
import pytest

from calipers.attribution import culprits
from calipers.core import Metric, Outcomes
from calipers.metrics.means import mean_statistic
from tests.support.verdicts import result


def test_the_share_of_a_loss_is_what_came_back() -> None:
    metric = Metric("mean", "", lambda c: mean_statistic(c["value"]))
    base = np.random.default_rng(0).normal(10, 1, 200)
    ids = tuple(map(str, range(200)))
    sound, broken, mended = (result(outcomes=Outcomes(ids, {"value": base - less})) for less in (0, 4, 1))
    found, interval = culprits.share_of_loss(metric, sound, broken, mended, confidence=0.95, seed=1)
    assert found == pytest.approx(0.75)
    assert interval == pytest.approx((0.75, 0.75))
    assert culprits.share_of_loss(metric, sound, sound, mended, confidence=0.9, seed=1) == (None, None)
