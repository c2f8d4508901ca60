"""Where tensors diverge."""

from __future__ import annotations

import numpy as np
import pytest

from calipers.attribution import divergence
from tests.support.attributions import BATCH


def test_signal_to_noise_looks_at_real_tokens_only() -> None:
    true = np.ones((2, 3, 4))
    found = true + 0.1
    found[0, 2] = 50  # padding
    assert divergence.sqnr(true, found, BATCH) == pytest.approx(20.0)
    assert divergence.sqnr(true, true, BATCH) == np.inf
    assert divergence.sqnr(true, true * np.nan, BATCH) is None


def test_the_first_lost_tensor_is_the_one_behind_which_nothing_is_found_again() -> None:
    rng = np.random.default_rng(0)
    before = {name: rng.normal(size=(2, 3, 8)) for name in "abcd"}
    after = {"x": before["b"] + 1e-6, "y": rng.normal(size=(2, 3, 8))}
    assert divergence.first_lost(before, after, BATCH) == "c"  # a was fused away: b is there again
    assert divergence.first_lost(before, before, BATCH) is None
