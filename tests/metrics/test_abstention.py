"""nAUC is mteb's."""

from __future__ import annotations

import numpy as np
import pytest

from calipers.metrics.abstention import nauc


@pytest.mark.parametrize("seed", range(5))
def test_nauc_is_the_one_that_mteb_publishes(seed: int) -> None:
    mteb = pytest.importorskip("mteb._evaluators.retrieval_metrics", reason="needs mteb")
    rng = np.random.default_rng(seed)
    quality = rng.random(73).round(seed)  # with ties
    confidence = (quality + rng.normal(size=73)).round(1)
    assert nauc(confidence, quality) == pytest.approx(mteb.nauc(confidence, quality), abs=1e-12)


def test_no_queries_and_queries_that_are_all_alike_have_none() -> None:
    assert np.isnan(nauc(np.empty(0), np.empty(0)))
    assert np.isnan(nauc(np.arange(5.0), np.ones(5)))
