"""Sums over many rows are those over all at once."""

from __future__ import annotations

import numpy as np
import pytest

from calipers.metrics import moments


def test_sums_of_windows_are_the_sums_of_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x, y, counts = rng.normal(size=100), rng.normal(size=100), rng.integers(0, 4, size=(100, 7))
    expected = [(column[:, None] * counts).sum(axis=0) for column in (x, y, x * x, x * y, y * y)]
    np.testing.assert_allclose(moments.moment_sums(x, y)(counts), expected, rtol=1e-13, atol=1e-13)
    monkeypatch.setattr(moments, "_ROWS", 33)
    np.testing.assert_allclose(moments.moment_sums(x, y)(counts), expected, rtol=1e-13, atol=1e-13)
