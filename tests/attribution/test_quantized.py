"""Quantised graphs of every precision: suspected and restored."""

from __future__ import annotations

from pathlib import Path

import pytest

from calipers.artifacts.quantize import quantize
from calipers.artifacts.recipe import Recipe
from calipers.attribution.divergence import look_at
from calipers.attribution.quantized import open_quantized
from calipers.models.onnx_session import open_graph
from tests.support.faults import Sound


@pytest.mark.parametrize("precision", ["w8a16", "int8-dynamic", "int4", "fp16"])
def test_parts_of_every_precision_can_be_suspected_and_put_back(sound: Sound, tmp_path: Path, precision: str) -> None:
    recipe = Recipe(precision)
    ranges = sound.ranges if recipe.needs_ranges else None
    quantize(sound.floats, tmp_path / "q.onnx", recipe, ranges)
    graph = open_quantized(
        tmp_path / "q.onnx", sound.optimized, look_at(sound.rows), output=None, recipe=recipe, ranges=ranges
    )
    assert {part.layer for part in graph.parts} >= {0, 1, 2}
    hurts = graph.damages([part.tensors for part in graph.parts])
    assert all(hurt == hurt for hurt in hurts)
    assert max(hurts) > 0
    assert graph.restorable
    nodes = graph.put_back(frozenset(graph.parts[0].tensors), tmp_path / "restored.onnx")
    assert nodes
    assert open_graph(tmp_path / "restored.onnx").outputs
