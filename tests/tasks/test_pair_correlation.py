"""Pair correlation by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import calipers
from tests.support.samples import write_jsonl
from tests.support.scorers import Lexical


def test_pair_correlation_by_hand(tmp_path: Path) -> None:
    rows = [
        {"sentence1": "a b", "sentence2": s, "score": g} for s, g in (("a b", 5), ("a x", 1), ("x y", 2), ("b a", 4))
    ]
    file = write_jsonl(tmp_path / "rows.jsonl", rows)
    result = calipers.evaluate(Lexical(), task="pair-correlation", dataset=str(file), resamples=50)
    # Ranks of the scores 1, 1/2, 0, 1: 3.5, 2, 1, 3.5; of gold 4, 1, 2, 3.
    assert result.metrics["spearman"] == pytest.approx(3.5 / np.sqrt(4.5 * 5))
