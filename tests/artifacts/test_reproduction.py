"""A recipe gives the same bytes again: from another folder, with other texts at hand, or with none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from calipers.artifacts import api
from calipers.artifacts.calibrate import stored_ranges
from calipers.artifacts.graphs import FloatGraph, content_hash
from calipers.artifacts.manifest import read_manifest
from calipers.artifacts.quantize import quantize
from calipers.artifacts.recipe import Recipe, make_recipe, read_recipe, write_recipe
from calipers.artifacts.records import BuildOptions
from calipers.core import RequestError
from tests.support import build_models as small


@pytest.mark.usefixtures("known_exports")
@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_the_recipe_of_a_manifest_gives_the_same_bytes(
    suffix: str, tiny_bert: Path, built: Path, tmp_path: Path, few_texts: Path
) -> None:
    recipe = make_recipe(read_manifest(built).recipe, "manifest")
    assert recipe.calibrated["rows"] == ["0", "1", "2", "3", "4"]
    assert recipe.calibrated["dataset"] == f"{few_texts.parent.name}/texts.txt"
    write_recipe(recipe, tmp_path / f"recipe.{suffix}")
    again = read_recipe(tmp_path / f"recipe.{suffix}")
    assert again == recipe
    (tmp_path / "other.txt").write_text("big old street , small young park and the readers\n")
    for name, texts in (("none", None), ("other", str(tmp_path / "other.txt"))):
        made = api.build(str(tiny_bert), tmp_path / name, recipe=again, options=BuildOptions(calibration=texts))
        assert content_hash(Path(made.model)) == read_manifest(built).stages[-1].sha256
        assert (Path(made.model)).read_bytes() == (built / "model_w8a8.onnx").read_bytes()
        assert not [note for note in made.stages[-1].notes if "another float graph" in note]


def test_a_recipe_of_another_float_graph_says_so(tiny_bert: Path, built: Path, tmp_path: Path) -> None:
    recipe = make_recipe(read_manifest(built).recipe, "manifest")
    folder = small.copy_build(built, tmp_path / "out")
    other = Recipe("w8a8", calibrated={**recipe.calibrated, "graph": "0"}, ranges=recipe.ranges)
    made = api.build(str(tiny_bert), folder, recipe=other, options=BuildOptions(force=True))
    assert "the recipe was made with another float graph" in " ".join(made.stages[-1].notes)


def test_a_recipe_without_a_range_that_the_graph_needs_is_refused(
    graph: FloatGraph, built: Path, tmp_path: Path
) -> None:
    recipe = make_recipe(read_manifest(built).recipe, "manifest")
    fewer = replace(recipe, ranges={name: ends for name, ends in recipe.ranges.items() if name != "logits"})
    with pytest.raises(RequestError, match=r"the recipe has no range of logits: it was made for another graph"):
        quantize(graph, tmp_path / "m.onnx", fewer, stored_ranges(fewer))


@pytest.mark.parametrize("precision", ["fp16", "int8-dynamic", "int4"])
def test_two_builds_give_the_same_bytes(
    precision: str, tiny_bert: Path, few_texts: Path, built: Path, tmp_path: Path
) -> None:
    one = small.run(tiny_bert, tmp_path / "one", precision, few_texts, keep_stages=False)
    other = small.run(tiny_bert, small.copy_build(built, tmp_path / "other"), precision, few_texts)
    assert one.stages[-1].sha256 == other.stages[-1].sha256
