"""`calipers compare` through the real command line, with real models."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.support.samples import Run, write_jsonl


def noisy(model: Path, folder: Path, scale: float) -> Path:
    """A copy whose weights in one layer are multiplied by 1 + scale × noise."""
    from safetensors.numpy import load_file, save_file

    shutil.copytree(model, folder, dirs_exist_ok=True)
    weights, rng = load_file(folder / "model.safetensors"), np.random.default_rng(0)
    for name, values in weights.items():
        if "layer.3." in name and name.endswith("dense.weight"):
            weights[name] = (values * (1 + scale * rng.normal(size=values.shape))).astype(np.float32)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def comparison(printed: str) -> dict[str, Any]:
    """The comparison that decides."""
    (found,) = (c for c in json.loads(printed)["comparisons"] if c["decides"])
    return found


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made-up vectors of three models for 200 pairs: a good one, one a little worse, one that is noise."""
    folder, rng = tmp_path_factory.mktemp("rows"), np.random.default_rng(5)
    score = np.round(rng.random(200) * 20) / 4
    pairs = [
        {"id": f"p{i}", "sentence1": f"left {i}", "sentence2": f"right {i}", "score": s} for i, s in enumerate(score)
    ]
    texts = [str(row[key]) for row in pairs for key in ("sentence1", "sentence2")]
    for name, noise in (("good", 0.1), ("slightly", 0.12), ("broken", 2.0)):
        angle = (1 - score / 5) * 1.5 + np.random.default_rng(7).normal(0, noise, 200)
        vectors = np.zeros((400, 2), dtype=np.float32)
        vectors[0::2, 0], vectors[1::2] = 1.0, np.stack([np.cos(angle), np.sin(angle)], axis=1)
        np.save(folder / f"{name}.npy", vectors)
        (folder / f"{name}.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    return write_jsonl(folder / "pairs.jsonl", pairs)


def test_a_good_candidate_passes_and_a_broken_one_fails(calipers: Run, rows: Path) -> None:
    good, slightly, broken = (rows.with_name(f"{name}.npy") for name in ("good", "slightly", "broken"))
    done = calipers("compare", good, slightly, "--dataset", rows, "--json")
    assert done.returncode == 0, done.stderr
    found = comparison(done.stdout)
    assert (found["metric"], found["label"], found["examples"]) == ("cosine_spearman", "PASS", 200)
    named = json.loads(calipers("compare", good, slightly, "--dataset", rows, "--json", "--model-id", "mine").stdout)
    assert (named["baseline"]["model_id"], named["candidates"][0]["model_id"]) == ("good", "mine")
    assert found["interval"][0] <= found["delta"] <= found["interval"][1]
    assert found["delta"] == pytest.approx(found["candidate"] - found["baseline"])
    failed = calipers("compare", good, broken, "--dataset", rows, "--json")
    assert (failed.returncode, comparison(failed.stdout)["label"]) == (1, "REGRESSION")


def test_stored_runs_are_compared_without_their_models(calipers: Run, rows: Path, tmp_path: Path) -> None:
    for name in ("good", "slightly"):
        shutil.copy(rows.with_name(f"{name}.npy"), tmp_path / f"{name}.npy")
        shutil.copy(rows.with_name(f"{name}.txt"), tmp_path / f"{name}.txt")
        assert calipers("eval", "-m", tmp_path / f"{name}.npy", "--dataset", rows).returncode == 0
        (tmp_path / f"{name}.npy").unlink()
    runs = [line["run_id"] for line in json.loads(calipers("runs", "list", "--json").stdout)]
    done = calipers("compare", runs[1], "latest")
    assert done.returncode == 0, done.stderr
    assert "PASS" in done.stdout
    refused = calipers("compare", runs[1], "latest", "--dataset", rows)
    assert refused.returncode == 2
    assert "stored runs are compared as they are" in refused.stderr


def test_a_model_beside_a_stored_run_is_asked_the_same(calipers: Run, rows: Path) -> None:
    good, slightly = (rows.with_name(f"{name}.npy") for name in ("good", "slightly"))
    calipers("eval", "-m", good, "--dataset", rows, "--samples", "50", "--seed", "3")
    done = calipers("compare", "latest", slightly, "--json")
    assert done.returncode in (0, 5), done.stderr
    assert comparison(done.stdout)["examples"] == 50


def test_runs_over_other_rows_are_refused_in_one_sentence(calipers: Run, rows: Path) -> None:
    good = rows.with_name("good.npy")
    calipers("eval", "-m", good, "--dataset", rows, "--samples", "50")
    calipers("eval", "-m", good, "--dataset", rows, "--samples", "51")
    first, second = (line["run_id"] for line in json.loads(calipers("runs", "list", "--json").stdout))
    done = calipers("compare", first, second)
    assert done.returncode == 2
    assert "these runs cannot be compared: the examples differ (51 and 50)" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_thresholds_change_the_label_without_running_a_model(calipers: Run, rows: Path, tmp_path: Path) -> None:
    good, slightly = (rows.with_name(f"{name}.npy") for name in ("good", "slightly"))
    for side in (good, slightly):
        calipers("eval", "-m", side, "--dataset", rows)
    second, first = (line["run_id"] for line in json.loads(calipers("runs", "list", "--json").stdout))
    strict = calipers("compare", first, second, "--threshold", "cosine_spearman=0.01,0.02")
    assert strict.returncode == 1
    config = tmp_path / "calipers.yaml"
    config.write_text("compare:\n  thresholds:\n    cosine_spearman: 0.01, 50\n  fail_on: at-risk\n")
    assert calipers("compare", first, second, "--config", config).returncode == 1
    assert calipers("compare", first, second, "--config", config, "--fail-on", "regression").returncode == 0


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--threshold", "cosine_spearman=9"], "expected two numbers such as 5%,10% or 2.0,4.0"),
        (["--threshold", "cosine_spearman=5%,3"], "expected two numbers"),
        (["--threshold", "cosine_spearman=4,2"], "must not be above the second"),
        (["--threshold", "nonsense=4,5"], "the baseline has no metric 'nonsense'"),
        (["--metric", "nonsense"], "the baseline has no metric 'nonsense'"),
        (["--confidence", "1.5"], "--confidence must be between 0.5 and 1"),
        (["--confidence", "1e-300"], "--confidence must be between 0.5 and 1"),
        (["--confidence", "1"], "--confidence must be between 0.5 and 1"),
        (["--config", "nowhere.yaml"], "cannot be read"),
        (["--resamples", "1"], "--resamples must be at least 100, found 1"),
        (["--worst", "-1"], "--worst must be at least 0, found -1"),
    ],
)
def test_bad_requests_are_one_sentence(calipers: Run, rows: Path, flags: list[str], told: str) -> None:
    good = rows.with_name("good.npy")
    done = calipers("compare", good, good, "--dataset", rows, *flags)
    assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1), done.stderr
    assert told in done.stderr


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "expected a section `compare:`"),
        ("thresholds:\n  cosine_spearman: 1, 2\n", "expected a section `compare:`"),
        ("- compare\n", "expected a section `compare:`"),
        ("compare: 3\n", "expected a section `compare:`"),
        ("compare:\n  worst: 1\n  worst: 2\n", "line 3: the key 'worst' is there twice"),
        ("compare: {metrics: 5}\n", "`metrics` must be a list of names, found 5"),
        ("compare: {metrics: [[a]]}\n", "`metrics` must be a list of names, found [['a']]"),
    ],
)
def test_a_config_of_another_form_is_refused(calipers: Run, tmp_path: Path, content: str, words: str) -> None:
    config = tmp_path / "gate.yaml"
    config.write_text(content)
    done = calipers("compare", "latest", "latest", "--config", config)
    assert done.returncode == 2
    assert words in done.stderr


def test_a_stored_run_cannot_be_asked_for_agreement(calipers: Run) -> None:
    done = calipers("compare", "20261116-065937-7d618a", "latest", "--unlabelled")
    assert done.returncode == 2
    assert "is a stored run: name two models" in done.stderr


def test_dead_output_is_invalid_with_its_rows(calipers: Run, rows: Path, tmp_path: Path) -> None:
    dead = np.load(rows.with_name("good.npy"))
    dead[6] = np.nan
    np.save(tmp_path / "dead.npy", dead)
    shutil.copy(rows.with_name("good.txt"), tmp_path / "dead.txt")
    done = calipers("compare", rows.with_name("good.npy"), tmp_path / "dead.npy", "--dataset", rows, "--json")
    assert done.returncode == 1
    found = comparison(done.stdout)
    assert (found["label"], found["candidate"], found["delta"]) == ("INVALID", None, None)
    assert "p3" in found["reason"]


def test_ci_files_are_written(calipers: Run, rows: Path, tmp_path: Path) -> None:
    good, broken = rows.with_name("good.npy"), rows.with_name("broken.npy")
    summary, junit = tmp_path / "summary.md", tmp_path / "junit.xml"
    summary.write_text("before\n")
    done = calipers(
        "compare", good, broken, "--dataset", rows, "--junit", junit, env={"GITHUB_STEP_SUMMARY": str(summary)}
    )
    assert done.returncode == 1
    assert len(ElementTree.parse(junit).getroot().findall(".//failure")) >= 1
    written = summary.read_text(encoding="utf-8")
    assert written.startswith("before\n")
    assert "REGRESSION" in written


def test_several_candidates_share_holms_correction(calipers: Run, rows: Path) -> None:
    good, slightly, broken = (rows.with_name(f"{name}.npy") for name in ("good", "slightly", "broken"))
    done = calipers("compare", good, slightly, broken, "--dataset", rows, "--json")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert len({c["candidate_name"] if "candidate_name" in c else str(c) for c in found["comparisons"]}) >= 2
    assert all(c["adjusted_p"] >= c["p_value"] > 0 for c in found["comparisons"])


def test_a_noisy_layer_is_a_regression(
    calipers: Run, minilm: Path, data: Callable[[str], Path], tmp_path: Path
) -> None:
    stsb, broken = data("stsb/test.jsonl"), noisy(minilm, tmp_path / "noisy", 2.0)
    done = calipers("compare", minilm, broken, "--dataset", stsb, "--samples", "100", "--json")
    assert (done.returncode, comparison(done.stdout)["label"]) == (1, "REGRESSION"), done.stderr


@pytest.mark.slow
def test_the_published_uint8_graph_passes_on_all_of_stsb(
    calipers: Run, weights: Callable[[str], Path], data: Callable[[str], Path]
) -> None:
    float32, uint8 = weights("all-MiniLM-L6-v2"), weights("all-MiniLM-L6-v2-quint8")
    done = calipers("compare", float32, uint8, "--dataset", data("stsb/test.jsonl"), "--json")
    assert done.returncode == 0, done.stderr
    found = comparison(done.stdout)
    assert (found["label"], found["examples"]) == ("PASS", 1379)
    # int8 kernels differ by processor: -0.1241 on one, -0.1261 on another; the rows and the label do not
    assert found["delta"] == pytest.approx(81.9084 - 82.0325, abs=0.01)
    assert found["interval"][0] < found["delta"] < found["interval"][1]


def test_thirty_rows_do_not_settle_it_and_the_number_told_does(
    calipers: Run, weights: Callable[[str], Path], data: Callable[[str], Path]
) -> None:
    sides = weights("all-MiniLM-L6-v2"), weights("all-MiniLM-L6-v2-quint8")
    flags = ("--dataset", data("stsb/test.jsonl"), "--threshold", "cosine_spearman=1.5,3", "--json", "--samples")
    few = calipers("compare", *sides, *flags, "30")
    told = comparison(few.stdout)
    assert (few.returncode, told["label"]) == (5, "INCONCLUSIVE")
    assert 30 < told["settled_by"] < 1379
    more = calipers("compare", *sides, *flags, str(told["settled_by"]))
    assert (more.returncode, comparison(more.stdout)["label"]) == (0, "PASS")


def test_a_graph_that_returns_nan_is_invalid(
    calipers: Run, minilm: Path, minilm_onnx: Path, rows: Path, tmp_path: Path
) -> None:
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(minilm_onnx)
    for tensor in graph.graph.initializer:
        if "layer.5" in tensor.name and tensor.data_type == onnx.TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(np.full(tuple(tensor.dims), np.nan, np.float32), tensor.name))
    folder = tmp_path / "dead"
    shutil.copytree(minilm_onnx.parent, folder, ignore=shutil.ignore_patterns("*.onnx", "*.data"))
    onnx.save(graph, folder / "model.onnx")
    done = calipers("compare", minilm_onnx, folder / "model.onnx", "--dataset", rows, "--samples", "20", "--json")
    assert (done.returncode, comparison(done.stdout)["label"]) == (1, "INVALID"), done.stderr
