"""Recipes in files, right and wrong."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from calipers.artifacts.recipe import Recipe, read_recipe, refuse_ineffective, write_recipe
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
        ("precision: w8a8\npercentile: 99.9", "`percentile` is for the calibration method percentile, found minmax"),
        ("precision: w8a8\ncalibration: entropy\npercentile: 99.9", "`percentile` is for the calibration method"),
        ("a: [", "is not valid YAML"),
        ("!!python/object/apply:os.system ['true']", "is not valid YAML"),
    ],
)
def test_a_wrong_recipe_is_named(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "r.yaml").write_text(text)
    with pytest.raises(RequestError, match=expected):
        read_recipe(tmp_path / "r.yaml")


CALIBRATED = {"ranges": {"x": (-1.0, 2.5)}, "calibrated": {"dataset": "d", "fingerprint": "f", "rows": ["1"]}}


@pytest.mark.parametrize(
    ("recipe", "chosen", "expected"),
    [
        (Recipe("w8a8"), "percentile", "is for the calibration method percentile"),
        (Recipe("w8a8"), "block_size", "does not apply to the precision w8a8"),
        (Recipe("fp16"), "per_channel", "does not apply to the precision fp16"),
        (Recipe("w8a8", **CALIBRATED), "calibration", "the recipe brings the ranges"),  # type: ignore[arg-type]
        (Recipe("w8a8", **CALIBRATED), "smooth", "the recipe brings the ranges"),  # type: ignore[arg-type]
    ],
)
def test_a_setting_that_changes_nothing_is_refused_at_its_default_too(
    recipe: Recipe, chosen: str, expected: str
) -> None:
    with pytest.raises(RequestError, match=expected):
        refuse_ineffective(recipe, [chosen])


def test_settings_that_count_are_taken() -> None:
    refuse_ineffective(Recipe("w8a8", calibration="percentile"), ["calibration", "percentile", "symmetric", "exclude"])
    refuse_ineffective(Recipe("w8a8", **CALIBRATED), ["per_channel", "symmetric"])  # type: ignore[arg-type]


def test_rows_of_a_calibration_are_a_list(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("{precision: w8a8, calibrated: {rows: 5}}")
    with pytest.raises(RequestError, match="calibrated must be dataset, fingerprint, rows, graph"):
        read_recipe(path)


def test_the_page_lists_every_setting() -> None:
    page = (Path(__file__).parents[2] / "docs" / "build.md").read_text()
    block = page.split("```yaml\n")[1].split("```")[0]
    assert {line.split(":")[0] for line in block.splitlines()} == {entry.name for entry in fields(Recipe)}
