"""A float graph, its rows and their ranges, which several tests quantise."""

from __future__ import annotations

from pathlib import Path

import pytest

from calipers.artifacts import api
from calipers.artifacts.calibrate import Ranges, collect_ranges
from calipers.artifacts.graphs import FloatGraph, load_graph
from calipers.artifacts.inputs import Rows
from calipers.artifacts.recipe import Recipe
from calipers.artifacts.records import BuildOptions


@pytest.fixture(scope="session")
def graph(built: Path) -> FloatGraph:
    return load_graph(built / "optimized" / "model.onnx")


@pytest.fixture(scope="session")
def rows(tiny_bert: Path, few_texts: Path) -> Rows:
    options = BuildOptions(calibration=str(few_texts))
    return api.plan(str(tiny_bert), Path("nowhere"), Recipe("w8a8"), options).rows


@pytest.fixture(scope="session")
def ranges(graph: FloatGraph, rows: Rows) -> Ranges:
    return collect_ranges(graph, rows)
