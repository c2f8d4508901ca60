"""The folder of a build: whole stages or none, and nothing of others touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from calipers.artifacts.manifest import read_builds, read_manifest, write_builds
from calipers.core import ModelError, RequestError
from tests.support import build_models as small


def test_what_a_killed_build_left_is_not_taken_for_a_stage(
    tiny_bert: Path, built: Path, few_texts: Path, tmp_path: Path
) -> None:
    folder = small.copy_build(built, tmp_path / "out")
    half = folder / ".optimized.123.part"
    half.mkdir()
    (half / "model.onnx").write_bytes(b"half")
    cut = folder / "optimized" / "model.onnx"
    cut.write_bytes(cut.read_bytes()[:1000])
    found = small.run(tiny_bert, folder, "w8a8", few_texts)
    assert not half.exists()
    assert [stage.reused for stage in found.stages] == [True, True, False, True]


def test_a_folder_with_several_precisions_names_them(built: Path, tmp_path: Path) -> None:
    folder = small.copy_build(built, tmp_path / "out")
    manifest = read_builds(folder)["w8a8"]
    write_builds({"w8a8": manifest, "w8a16": manifest}, folder)
    with pytest.raises(RequestError, match=r"`precision` must be among those that .* holds: w8a8, w8a16"):
        read_manifest(folder)
    assert read_manifest(folder, "w8a8").precision == "w8a8"


def test_a_build_that_fails_leaves_no_stage(tiny_bert: Path, few_texts: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(b"nothing")
    with pytest.raises(ModelError, match=r"bad\.onnx"):
        small.run(tiny_bert, tmp_path / "out", "fp32", few_texts, stages={"exported": bad})
    assert not (tmp_path / "out" / "exported").exists()
    assert not (tmp_path / "out" / "model.onnx").exists()


def test_a_folder_of_other_things_is_left_alone(tiny_bert: Path, few_texts: Path, tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("mine")
    with pytest.raises(RequestError, match="was not made by a build"):
        small.run(tiny_bert, tmp_path, "fp32", few_texts)


def test_a_build_that_is_repeated_leaves_nothing_beside_its_result(
    tiny_bert: Path, built: Path, few_texts: Path, tmp_path: Path
) -> None:
    folder = small.copy_build(built, tmp_path / "out")
    for _ in range(2):
        small.run(tiny_bert, folder, "w8a8", few_texts)
    assert list(folder.glob(".*.part")) == []


def test_a_notebook_shows_the_stages(built: Path) -> None:
    manifest = read_manifest(built)
    assert repr(manifest).endswith("w8a8: torch, exported, optimized, quantized)")
    page = manifest._repr_html_()
    assert page.count("<tr>") == 5
    assert "<td>none: the first</td>" in page
