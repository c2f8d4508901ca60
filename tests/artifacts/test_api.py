"""Plans from references, and `calipers build` as a command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calipers.artifacts import api as artifacts
from calipers.artifacts.manifest import read_manifest
from calipers.artifacts.recipe import Recipe, write_recipe
from calipers.artifacts.records import BuildOptions
from calipers.cli import run as command
from calipers.core import RequestError
from tests.support import build_models as small


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (["--precision", "w8a8", "--static-shape", "512"], "--static-shape must be ROWSxLENGTH"),
        (["--precision", "fp32", "--static-shape", "1x900"], "the model takes 2 to 64 tokens"),
        (["--precision", "fp32", "--opset", "9"], "--opset must be 18 to 23"),
        (["--precision", "int4", "--per-channel"], "--per-channel does not apply to the precision int4"),
        (
            ["--precision", "fp32", "--stage", "best=x.onnx"],
            "--stage must be among exported, optimized, quantized",
        ),
        (["--precision", "fp32", "--stage", "exported=none.onnx"], "--stage exported=none.onnx: there is no such file"),
        (["--precision", "fp32", "--pooled", "--task", "fill-mask"], "--pooled is for encoders"),
        (["--precision", "fp32", "--ep", "qnn"], "QNNExecutionProvider is not in this build"),
        (["--precision", "fp32", "--normalize"], "--normalize has no effect without --pooled"),
        (["--precision", "fp32", "--model-revision", "abc"], "--model-revision is for models of the hub"),
        (["--precision", "fp32", "--split", "train"], "--split is not supported for a build without texts of its own"),
        (["--precision", "fp32", "--column", "a=b"], "--column has no effect without --calibration"),
        ([], "--precision is missing"),
    ],
)
def test_a_wrong_request_is_one_sentence(
    tiny_bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], line: list[str], expected: str
) -> None:
    assert command(["build", str(tiny_bert), "-o", str(tmp_path / "out"), *line]) == 2
    assert expected in capsys.readouterr().err


def test_the_command_prints_a_line_for_each_stage(
    tiny_bert: Path, built: Path, few_texts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["build", str(tiny_bert), "--precision", "w8a8", "--calibration", str(few_texts), "-o", str(built)]
    assert command(line) == 0
    shown = capsys.readouterr().out
    assert "nothing: every stage was there" in shown
    assert [word in shown for word in ("torch", "exported", "optimized", "w8a8")] == [True] * 4
    assert "quantized" not in shown
    assert command([*line, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["precision"] == "w8a8"


def test_a_recipe_file_is_what_the_flags_are(tiny_bert: Path, built: Path, few_texts: Path, tmp_path: Path) -> None:
    folder = small.copy_build(built, tmp_path / "out")
    file = tmp_path / "recipe.yaml"
    write_recipe(Recipe("w8a8", exclude=("op:Softmax",)), file)
    line = ["build", str(tiny_bert), "--recipe", str(file), "--calibration", str(few_texts), "-o", str(folder)]
    assert command([*line, "--force"]) == 0
    found = read_manifest(folder)
    assert found.recipe["exclude"] == ["op:Softmax"]
    assert "1 nodes kept in float" in " ".join(found.stage("quantized").notes)
    assert len(list((folder / "calibration").iterdir())) == 1  # the ranges were found again


def test_zero_texts_are_refused(tiny_bert: Path, few_texts: Path, tmp_path: Path) -> None:
    plan = artifacts.plan(str(tiny_bert), tmp_path, Recipe("fp32"))
    with pytest.raises(RequestError, match="at least one real text"):
        replace(plan, rows=plan.rows.take(0))
    assert np.all([len(row.ids) for row in plan.rows.tokens])


def test_ranges_come_from_rows_that_are_not_measured_where_there_are_any(tiny_bert: Path, few_texts: Path) -> None:
    def ids(excluded: set[str]) -> set[str]:
        options = BuildOptions(calibration=str(few_texts), excluded_ids=frozenset(excluded))
        plan = artifacts.plan(str(tiny_bert), few_texts.parent / "unused", Recipe("w8a8"), options)
        assert plan.calibration is not None
        return set(plan.calibration.ids)

    assert ids({"1", "3"}) == {"0", "2", "4"}
    assert ids({"0", "1", "2", "3", "4"}) == {"0", "1", "2", "3", "4"}
