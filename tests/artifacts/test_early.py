"""Wrong requests that are refused before a model is exported."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from calipers.artifacts import api, export
from calipers.artifacts.recipe import Recipe
from calipers.artifacts.records import BuildOptions
from calipers.cli import run as command
from calipers.cli.build import build
from calipers.cli.grouped import name_flags
from calipers.core import RequestError
from calipers.models import ModelOptions
from tests.support import build_models as small


@pytest.fixture
def no_export(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise AssertionError("the model was exported")

    monkeypatch.setattr(export, "export", fail)


@pytest.mark.usefixtures("no_export")
@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("op:Sofmax", "names no operator of ONNX; the nearest is op:Softmax"),
        ("encoder/layer.0/MatMul", "matches no node: those of an exported graph are called node_MatMul_118"),
        ("layer.0.*", "matches no node"),
    ],
)
@pytest.mark.parametrize("line", [["build"], ["attribute", "--task", "fill-mask", "--no-store"]])
def test_nodes_that_no_graph_has_are_refused_at_once(
    line: list[str],
    pattern: str,
    expected: str,
    tiny_bert: Path,
    few_texts: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    where = ["-o", str(tmp_path / "out"), "--calibration"] if line == ["build"] else ["--dataset"]
    words = [*line, str(tiny_bert), "--precision", "w8a8", "--exclude", pattern, *where, str(few_texts)]
    assert command(words) == 2
    assert expected in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.usefixtures("no_export")
def test_a_name_is_looked_up_in_the_float_graph_where_that_is_there(
    tiny_bert: Path, built: Path, few_texts: Path, tmp_path: Path
) -> None:
    options = BuildOptions(calibration=str(few_texts))
    recipe = Recipe("w8a8", exclude=("node_MatMul_99999",))
    with pytest.raises(RequestError, match="'node_MatMul_99999' matches no node of the graph: it has node_"):
        api.plan(str(tiny_bert), built, recipe, options)  # its stages were kept
    given = BuildOptions(calibration=str(few_texts), stages={"optimized": built / "optimized" / "model.onnx"})
    with pytest.raises(RequestError, match="matches no node of the graph"):
        api.plan(str(tiny_bert), tmp_path, recipe, given)


@pytest.mark.usefixtures("known_exports")
def test_a_name_is_looked_up_in_the_result_of_fp32(tiny_bert: Path, few_texts: Path, tmp_path: Path) -> None:
    small.run(tiny_bert, tmp_path / "out", "fp32", few_texts, keep_stages=False)
    recipe = Recipe("int4", exclude=("node_MatMul_99999",))
    with pytest.raises(RequestError, match="matches no node of the graph"):
        api.plan(str(tiny_bert), tmp_path / "out", recipe, BuildOptions())


@pytest.mark.usefixtures("no_export")
@pytest.mark.parametrize("precision", ["w8a8", "int8-dynamic"])
def test_an_input_that_is_quantised_already_is_reported(
    precision: str, built: Path, few_texts: Path, tmp_path: Path
) -> None:
    with pytest.raises(RequestError, match=r"model_w8a8\.onnx is already quantised \(\d+ QuantizeLinear, "):
        small.run(built / "model_w8a8.onnx", tmp_path / "out", precision, few_texts)
    with pytest.raises(RequestError, match=re.escape(f"quantized={built / 'model_w8a8.onnx'} where")):
        small.run(built / "model_w8a8.onnx", tmp_path / "out", precision, few_texts)
    stages = {"exported": built / "model_w8a8.onnx"}
    with pytest.raises(RequestError, match="is already quantised"):
        small.run(built / "model_w8a8.onnx", tmp_path / "out", precision, few_texts, stages=stages)


@pytest.mark.usefixtures("known_exports")
def test_half_precision_is_no_float_graph_to_begin_with(tiny_bert: Path, few_texts: Path, tmp_path: Path) -> None:
    small.run(tiny_bert, tmp_path / "half", "fp16", few_texts, keep_stages=False)
    with pytest.raises(RequestError, match=r"model_fp16\.onnx is already quantised \(\d+ weights in float16\)"):
        small.run(tmp_path / "half" / "model_fp16.onnx", tmp_path / "out", "int8-dynamic", few_texts)


def test_a_stage_that_is_not_there_is_refused_before_the_model_is_read(tmp_path: Path) -> None:
    options = BuildOptions(stages={"quantized": tmp_path / "none.onnx"})
    with pytest.raises(RequestError, match=r"`stages` quantized=.*none\.onnx: there is no such file"):
        api.plan("no-such-model", tmp_path, Recipe("w8a8"), options)


@pytest.mark.usefixtures("no_export")
def test_a_model_that_is_no_encoder_needs_texts_of_its_own(tiny_bert: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"w8a8 needs real texts of the model's own kind .* as `calibration`"):
        small.run(tiny_bert, tmp_path / "out", "w8a8", None)


def test_an_encoder_is_calibrated_on_bundled_texts_with_a_warning(tiny_bert: Path) -> None:
    options = BuildOptions(task="sentence-similarity", model_options=ModelOptions(pooling="mean"))
    plan = api.plan(str(tiny_bert), Path("unused"), Recipe("w8a8"), options)
    assert plan.calibration is not None
    assert len(plan.calibration) == 128  # both sentences of 64 pairs
    assert plan.warnings[0].startswith("warning: ranges are from bundled")
    flags = build.get_params(click.Context(build))
    assert name_flags(plan.warnings[0], flags).endswith("name texts of your own as --calibration")
    assert "bundled English sentences: other languages, subjects and lengths may exceed them" in plan.warnings[0]
    assert api.plan(str(tiny_bert), Path("unused"), Recipe("int8-dynamic"), options).warnings == ()
