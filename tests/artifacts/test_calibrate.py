"""Ranges of real rows by each method, and their file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calipers.artifacts import calibrate
from calipers.artifacts.calibrate import Ranges, collect_ranges, read_ranges
from calipers.artifacts.graphs import FloatGraph
from calipers.artifacts.inputs import Rows
from calipers.artifacts.recipe import Recipe
from tests.support import build_models as small


def test_minmax_is_what_the_rows_hold(graph: FloatGraph, rows: Rows, ranges: Ranges) -> None:
    values = small.logits(graph.path, rows)
    assert ranges.tensors["logits"] == (values.min(), values.max())
    seen = ranges.statistics["logits"]
    assert seen.count == len(values)
    assert seen.mean == pytest.approx(values.mean(), abs=1e-5)
    assert seen.std == pytest.approx(values.std(), rel=1e-5)
    assert ranges.rows == ("0", "1", "2", "3", "4")


def test_percentile_cuts_exactly(graph: FloatGraph, rows: Rows) -> None:
    values = np.sort(small.logits(graph.path, rows))
    found = collect_ranges(graph, rows, Recipe("w8a8", calibration="percentile", percentile=98.0))
    cut = int(0.01 * len(values))
    assert found.tensors["logits"] == (values[cut], values[-1 - cut])
    both = collect_ranges(graph, rows, Recipe("w8a8", calibration="percentile", percentile=98.0, symmetric=True))
    top = np.sort(np.abs(values))[-1 - int(0.02 * len(values))]
    assert both.tensors["logits"] == (-top, top)


def test_entropy_keeps_a_plain_range_and_cuts_off_one_far_value() -> None:
    rng = np.random.default_rng(0)
    plain = np.histogram(rng.normal(size=100_000), 2048, range=(-4, 4))[0]
    assert calibrate.information_limit(plain) > 0.6
    far = np.histogram(np.r_[rng.normal(size=100_000), 80.0], 2048, range=(-80, 80))[0]
    assert calibrate.information_limit(far) < 0.1


def test_entropy_ranges_lie_inside_what_was_seen(graph: FloatGraph, rows: Rows) -> None:
    found = collect_ranges(graph, rows, Recipe("w8a8", calibration="entropy"))
    for name, (low, high) in found.tensors.items():
        assert found.statistics[name].lowest <= low <= high <= found.statistics[name].highest


def test_ranges_are_the_same_from_a_file(ranges: Ranges, tmp_path: Path) -> None:
    ranges.save(tmp_path / "ranges.json")
    assert read_ranges(tmp_path / "ranges.json") == ranges
