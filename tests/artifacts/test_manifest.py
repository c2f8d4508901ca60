"""The folder of a build: whole stages or none, and nothing of others touched."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from calipers.artifacts.manifest import read_builds, read_manifest, write_builds
from calipers.artifacts.records import Latency, show_build
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
    assert "<th>difference</th>" in page


def test_at_100_columns_every_stage_has_one_line(built: Path) -> None:
    manifest = read_manifest(built)
    slow = Latency(115.88, 1223.59, 16, 13.7, 8.4)
    coarse = replace(manifest.stages[-1].difference, relative=0.29)  # type: ignore[type-var]
    stages = [replace(stage, latency=slow, size=1_390_400_000) for stage in manifest.stages]
    stages[-1] = replace(stages[-1], difference=coarse)
    console = Console(file=io.StringIO(), force_terminal=True, width=100, record=True)
    show_build(console, replace(manifest, stages=tuple(stages)))
    lines = console.export_text().splitlines()
    start = next(place for place, line in enumerate(lines) if line.split()[:1] == ["stage"])
    names = [line.split()[0] for line in lines[start + 2 : start + 6]]
    assert names == ["torch", "exported", "optimized", "w8a8"]
    assert "coarse: measure it" in lines[start + 5]


def test_at_80_columns_no_number_is_broken(built: Path) -> None:
    manifest = read_manifest(built)
    slow = Latency(115.88, 1223.59, 16, 13.7, 8.4)
    stages = [replace(stage, latency=slow, size=1_390_400_000, speedup=12.5) for stage in manifest.stages]
    console = Console(file=io.StringIO(), force_terminal=True, width=80, record=True)
    show_build(console, replace(manifest, stages=tuple(stages)))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    assert [text.count(part) for part in ("115.88", "1223.59", "1390.4 MB", "12.5 ×")] == [4] * 4
