"""The graph that lost is the one that is examined, and the recipe of its fix gives the fix again."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

from calipers.artifacts import api as artifacts
from calipers.artifacts.graphs import content_hash
from calipers.artifacts.manifest import claim
from calipers.artifacts.recipe import Recipe, read_recipe
from calipers.artifacts.records import BuildOptions
from calipers.attribution import api
from calipers.attribution.records import Attribution, AttributionOptions
from calipers.core import RequestError, Thresholds
from calipers.runs.protocol import Protocol
from tests.support.exports import known_exports
from tests.support.faults import Sound
from tests.support.graph_form import check_form

pytestmark = pytest.mark.usefixtures("known_exports")

STRICT = {"cosine_spearman": Thresholds(1e-9, 2e-9)}  # so that there is something to fix


@pytest.fixture(scope="module")
def folder(sound: Sound, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """w8a8 from other texts than `attribute` would take, and fp32 beside it."""
    place = tmp_path_factory.mktemp("held")
    (place / "texts.txt").write_text("the dog runs\na cat sleeps near the house\n")
    options = BuildOptions(task=sound.task, calibration=str(place / "texts.txt"))
    with known_exports():
        for recipe in (Recipe("w8a8"), Recipe("fp32")):
            artifacts.build(str(sound.folder), place / "built", recipe=recipe, options=options)
    return place / "built"


def attribute(model: Path, sound: Sound, work: Path, *, fix: bool = False, **options: object) -> Attribution:
    settings = AttributionOptions(fix=fix, budget=3, resamples=200, thresholds=STRICT, work=work, **options)  # type: ignore[arg-type]
    protocol = Protocol(task=sound.task, dataset=str(sound.data))
    return api.attribute(str(model), recipe=Recipe("w8a8"), protocol=protocol, options=settings)


def test_the_graph_of_a_folder_is_examined_and_its_fix_reproduces(sound: Sound, folder: Path, tmp_path: Path) -> None:
    result = attribute(sound.folder, sound, tmp_path / "work", fix=True, built=folder)
    examined = tmp_path / "work" / "quantized-w8a8" / "model.onnx"
    assert content_hash(examined) == content_hash(folder / "model_w8a8.onnx")
    # The float graph of the folder was checked there against PyTorch: it is not exported again.
    assert [stage.title for stage in result.stages] == ["torch", "optimized", "w8a8"]
    assert result.stages[1].path == str(folder / "model.onnx")
    assert any(note.startswith("examined: ") for note in result.notes)
    assert result.fix is not None
    assert result.fix.recipe_file is not None
    assert [line.name for line in result.fix.frontier]
    assert all(line.size > 0 and line.p50 > 0 for line in result.fix.frontier if line.value is not None)
    recipe = read_recipe(Path(result.fix.recipe_file))
    assert recipe.calibrated["graph"] == content_hash(folder / "model.onnx")
    options = BuildOptions(task=sound.task)  # without texts
    again = artifacts.build(str(sound.folder), tmp_path / "again", recipe=recipe, options=options)
    assert Path(again.model).read_bytes() == Path(result.fix.graph).read_bytes()
    check_form(Path(result.fix.graph))


def test_a_folder_of_graphs_brings_its_own_float_graph(sound: Sound, folder: Path, tmp_path: Path) -> None:
    result = attribute(folder, sound, tmp_path / "work", fix=True)
    assert [stage.title for stage in result.stages] == ["model.onnx", "w8a8"]
    assert result.model_id == "built/model.onnx"
    assert result.fix is not None
    assert result.fix.recipe is not None
    again = artifacts.build(
        str(folder / "model.onnx"),
        tmp_path / "again",
        recipe=read_recipe(Path(str(result.fix.recipe_file))),
        options=BuildOptions(task=sound.task, optimize=False),
    )
    assert Path(again.model).read_bytes() == Path(result.fix.graph).read_bytes()
    with pytest.raises(RequestError, match=r"`built` .* holds no model_w8a16\.onnx: its precisions are w8a8, fp32"):
        api.attribute(
            str(sound.folder),
            recipe=Recipe("w8a16"),
            protocol=Protocol(task=sound.task, dataset=str(sound.data)),
            options=AttributionOptions(built=folder),
        )


def test_a_graph_without_a_manifest_is_taken_as_it_is(sound: Sound, folder: Path, tmp_path: Path) -> None:
    """As repositories on the hub have them: weights, and graphs in a folder `onnx`."""
    model = tmp_path / "model"
    shutil.copytree(sound.folder, model)
    (model / "onnx").mkdir()
    shutil.copy(folder / "model_w8a8.onnx", model / "onnx")
    result = attribute(model, sound, tmp_path / "work", fix=True)
    assert result.stages[-1].title == "model_w8a8.onnx"
    assert result.fix is not None
    assert result.fix.recipe is None
    check_form(Path(result.fix.graph))
    assert any("its repair has no recipe" in note for note in result.notes)


def test_a_work_folder_in_use_is_refused_before_anything_is_measured(sound: Sound, tmp_path: Path) -> None:
    with claim(tmp_path / "work"), pytest.raises(RequestError, match="wait for it, or name another `work`"):
        attribute(sound.folder, sound, tmp_path / "work")


@pytest.mark.parametrize("other_texts", [False, True])
def test_columns_have_names_of_the_users_own(sound: Sound, folder: Path, tmp_path: Path, other_texts: bool) -> None:
    rows = [json.loads(line) for line in sound.data.read_text().splitlines()]
    with (tmp_path / "pairs.csv").open("w", newline="") as file:
        names = ("sentence1", "sentence2", "score")
        csv.writer(file).writerows([("left", "right", "human"), *([row[name] for name in names] for row in rows)])
    texts = str(folder.parent / "texts.txt") if other_texts else None
    columns = {"input_column_1": "left", "input_column_2": "right", "score_column": "human"}
    result = api.attribute(
        str(sound.folder),
        recipe=Recipe("w8a8"),
        protocol=Protocol(task=sound.task, dataset=str(tmp_path / "pairs.csv"), columns=columns),
        build=BuildOptions(calibration=texts),
        options=AttributionOptions(resamples=200, work=tmp_path / "work", built=folder),
    )
    assert [stage.value is not None for stage in result.stages] == [True] * 3
    measured = "the ranges are taken from rows that are measured too"
    assert any(note.startswith(measured) for note in result.notes) != other_texts
