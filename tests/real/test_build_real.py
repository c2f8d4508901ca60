"""Real models through all stages and precisions: minutes, so `make test-slow` runs it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from calipers.artifacts.api import build
from calipers.artifacts.recipe import make_recipe
from calipers.artifacts.records import Manifest
from calipers.data import DataOptions
from calipers.models import ModelOptions
from calipers.runs import api
from tests.support import build_models as small
from tests.support.graph_form import check_form, dimensions

pytestmark = pytest.mark.slow
Find = Callable[[str], Path]

QUANTISED = ("int8-dynamic", "w8a8", "w8a16", "int4", "fp16")


def build_all(model: Path, folder: Path, calibration: Path, **options: object) -> dict[str, Manifest]:
    return {
        precision: small.run(model, folder, precision, calibration, data_options=DataOptions(samples=16), **options)
        for precision in QUANTISED
    }


def check_as_others_do(graph: Path) -> None:
    """onnx's checker, the names of dimensions, and a session of plain onnxruntime with a batch that nothing froze."""
    import numpy as np
    import onnxruntime

    # A score has no sequence: its second dimension is the number of labels.
    assert all(row[:2] in (["batch", "sequence"], ["batch", 1]) for row in dimensions(check_form(graph))), graph
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    feeds = {value.name: np.ones((3, 5), np.int64) for value in session.get_inputs()}
    assert np.isfinite(session.run(None, feeds)[0]).all(), graph


def check_all(found: dict[str, Manifest]) -> None:
    for precision, manifest in found.items():
        for stage in manifest.stages[1:3]:
            assert stage.difference is not None
            assert stage.difference.passed, (precision, stage)
        for stage in manifest.stages[1:]:
            check_as_others_do(Path(stage.path))
        last = manifest.stages[-1]
        assert last.difference is not None
        assert last.difference.largest is not None, (precision, last)
        assert last.size < 0.7 * manifest.stage("optimized").size, (precision, last)
        assert last.leak is not None
        assert last.leak.passed, (precision, last)


def perplexity(graph: Path, data: Path) -> float:
    """One row at a time."""
    result = api.evaluate(
        f"onnx:{graph}", task="fill-mask", dataset=str(data), model_options=ModelOptions(batch_size=1), resamples=2
    )
    return result.metrics["pseudo_perplexity"]


def test_albert_comes_out_as_well_as_it_should(model: Find, data: Find, tmp_path: Path) -> None:
    """The reference figures are of another export, so the third digit differs: 1.420, 1.444 and 1.481."""
    reactions = data("smiles/reactions.txt")
    found = build_all(model("rxnmapper-albert-mlm-smiles"), tmp_path / "out", reactions)
    check_all(found)
    figures = {name: perplexity(tmp_path / f"out/quantized-{name}/model.onnx", reactions) for name in QUANTISED}
    assert perplexity(tmp_path / "out/optimized/model.onnx", reactions) == pytest.approx(1.41443, abs=2e-5)
    assert figures["fp16"] == pytest.approx(1.41443, abs=3e-3)
    assert figures["int8-dynamic"] == pytest.approx(1.420, abs=0.01)
    # Masks stay in float, so int8 is as good as float on any processor; onnxruntime's own quantiser gives 1.4567.
    assert figures["w8a16"] == pytest.approx(1.41443, abs=0.02)
    assert figures["w8a8"] == pytest.approx(1.41443, abs=0.02)


def test_roberta_goes_through(model: Find, data: Find, tmp_path: Path) -> None:
    sequences = data("antibodies/vh.txt")
    check_all(build_all(model("sapiens-roberta-mlm-antibody-vh"), tmp_path / "out", sequences))
    assert perplexity(tmp_path / "out/optimized/model.onnx", sequences) == pytest.approx(2.5170539, abs=1e-4)


def test_a_reranker_goes_through(model: Find, data: Find, tmp_path: Path) -> None:
    pairs = data("trec-dl/dl19-bm25-top100.jsonl")
    found = build_all(model("ms-marco-MiniLM-L12-v2-dequant"), tmp_path / "out", pairs)
    check_all(found)
    assert found["w8a8"].ability == "score"


def test_an_encoder_is_measured_alike_at_every_float_stage(weights: Find, data: Find, tmp_path: Path) -> None:
    sts = data("stsb/dev.jsonl")
    check_all(build_all(weights("all-MiniLM-L6-v2"), tmp_path / "out", sts))
    values = [
        api.evaluate(
            reference, dataset=str(data("stsb/test.jsonl")), data_options=DataOptions(samples=200), resamples=2
        ).metrics["cosine_spearman"]
        for reference in (f"torch:{weights('all-MiniLM-L6-v2')}", f"onnx:{tmp_path}/out/optimized/model.onnx")
    ]
    assert values[0] == pytest.approx(values[1], abs=1e-3)


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("all-MiniLM-L6-v2", "stsb/dev.jsonl"),
        ("rxnmapper-albert-mlm-smiles", "smiles/reactions.txt"),
        ("sapiens-roberta-mlm-antibody-vh", "antibodies/vh.txt"),
    ],
)
def test_the_recipe_of_a_real_model_gives_the_same_bytes(
    name: str, texts: str, weights: Find, model: Find, data: Find, tmp_path: Path
) -> None:
    folder = (weights if name.startswith("all") else model)(name)
    first = small.run(folder, tmp_path / "first", "w8a8", data(texts), data_options=DataOptions(samples=16))
    recipe = make_recipe(first.recipe, "manifest")
    again = build(str(folder), tmp_path / "again", recipe=recipe)
    assert Path(again.model).read_bytes() == Path(first.model).read_bytes()


@pytest.mark.parametrize("family", ["roberta", "distilbert", "deberta-v2", "modernbert", "mpnet", "electra"])
def test_every_family_is_exported_and_optimised_exactly(family: str, few_texts: Path, tmp_path: Path) -> None:
    from tests.support.masked_models import make_model

    (tmp_path / "model").mkdir()
    make_model(family, tmp_path / "model")
    found = small.run(tmp_path / "model", tmp_path / "out", "fp32", few_texts)
    assert all(stage.difference is not None and stage.difference.passed for stage in found.stages[1:])


def test_a_killed_build_can_be_taken_up(tiny_bert: Path, few_texts: Path, tmp_path: Path) -> None:
    """Killed in the middle of exporting: nothing is taken for a stage, and the next build makes all of them."""
    import subprocess
    import sys
    import time

    out = tmp_path / "out"
    line = [
        sys.executable,
        "-m",
        "calipers",
        "build",
        str(tiny_bert),
        "--precision",
        "fp32",
        "-o",
        str(out),
        "--keep-stages",
    ]
    process = subprocess.Popen([*line, "--keep-stages", "--calibration", str(few_texts)], stderr=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while not list(out.glob(".exported.*.part")) and time.monotonic() < until and process.poll() is None:
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert not (out / "manifest.json").exists()
    assert not (out / "exported").exists()
    found = small.run(tiny_bert, out, "fp32", few_texts)
    assert [stage.reused for stage in found.stages] == [True, False, False]
    assert not list(out.glob(".*.part"))
