"""Recipes in files, right and wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from calipers.artifacts.recipe import Recipe, read_recipe, write_recipe
from calipers.core import RequestError


@pytest.mark.parametrize("name", ["recipe.yaml", "recipe.json"])
def test_a_recipe_survives_its_file(tmp_path: Path, name: str) -> None:
    recipe = Recipe("w8a16", calibration="percentile", percentile=99.5, exclude=("a", "b*"), ranges={"x": (-1.0, 2.5)})
    write_recipe(recipe, tmp_path / name)
    assert read_recipe(tmp_path / name) == recipe


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("precision: w9a9", "`precision` must be one of fp32"),
        ("- a", "must be a mapping"),
        ("precison: w8a8", "unknown setting 'precison'"),
        ("precision: w8a8\nexclude: Softmax", "exclude must be a list of names"),
        ("precision: w8a8\nper_channel: 1", "per_channel must be bool"),
        ("precision: w8a8\nranges: {x: [2, 1]}", "two finite numbers that rise"),
        ("precision: int8-dynamic\nsymmetric: true", "`symmetric` does not apply"),
        ("a: [", "is not valid YAML"),
        ("!!python/object/apply:os.system ['true']", "is not valid YAML"),
    ],
)
def test_a_wrong_recipe_is_named(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "r.yaml").write_text(text)
    with pytest.raises(RequestError, match=expected):
        read_recipe(tmp_path / "r.yaml")
