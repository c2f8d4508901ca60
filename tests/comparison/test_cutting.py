"""Stored runs on the same few examples; one candidate that passes among several; a summary without a verdict."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import calipers
from calipers.cli import run


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Forty pairs, vectors of a good model, of one that is as good and of a broken one, and runs of them."""
    rng = np.random.default_rng(5)
    texts = [f"text {i}" for i in range(80)]
    base = rng.normal(size=(80, 8)).astype(np.float32)
    gold = [float(a @ b / np.linalg.norm(a) / np.linalg.norm(b)) for a, b in zip(base[:40], base[40:], strict=True)]
    rows = [{"id": f"r{i}", "sentence1": texts[i], "sentence2": texts[i + 40], "score": gold[i]} for i in range(40)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    noise = rng.normal(size=base.shape).astype(np.float32)
    for name, vectors in (("good", base), ("same", base + 1e-4 * noise), ("broken", noise)):
        np.save(tmp_path / f"{name}.npy", vectors)
        (tmp_path / f"{name}.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    monkeypatch.setenv("CALIPERS_STORE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    for name in ("good", "same", "broken"):
        calipers.evaluate(f"{name}.npy", dataset="pairs.jsonl", store=calipers.Store(), name=name)
    return tmp_path


def test_stored_runs_are_cut_to_the_rows_that_eval_takes(place: Path) -> None:
    few = calipers.evaluate("broken.npy", dataset="pairs.jsonl", data_options=calipers.DataOptions(samples=12, seed=3))
    protocol = calipers.Protocol(data_options=calipers.DataOptions(samples=12, seed=3))
    (verdict,) = calipers.compare("good", ["broken"], protocol=protocol, store=calipers.Store())
    assert verdict.candidate is not None
    assert verdict.candidate.outcomes.ids == few.outcomes.ids
    assert verdict.candidate.metrics["cosine_spearman"] == few.metrics["cosine_spearman"]
    assert verdict.comparisons[0].examples == 12
    assert (verdict.baseline.dataset.requested, verdict.baseline.dataset.seed) == (12, 3)


def test_a_model_beside_a_stored_run_is_measured_on_the_same_sample(place: Path) -> None:
    protocol = calipers.Protocol(data_options=calipers.DataOptions(samples=12))
    (verdict,) = calipers.compare("good", ["same.npy"], protocol=protocol, store=calipers.Store())
    assert verdict.comparisons[0].examples == 12


def test_more_examples_than_the_runs_share_are_refused(place: Path) -> None:
    protocol = calipers.Protocol(data_options=calipers.DataOptions(samples=41))
    with pytest.raises(calipers.RequestError, match="`samples` is 41, and these runs have 40 examples in common"):
        calipers.compare("good", ["broken"], protocol=protocol, store=calipers.Store())


def test_any_asks_for_one_that_passes(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", "good", "same", "broken"]) == 1
    assert "the worst of 2 candidates decides, broken (REGRESSION)" in capsys.readouterr().out.splitlines()[-1]
    assert run(["compare", "good", "same", "broken", "--any", "--junit", "v.xml", "-o", "v.json"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("PASS  1 of 2 candidates passes; 1 REGRESSION (broken).")
    assert out.splitlines()[-1].startswith("Exit code 0: --any, and 1 of 2 candidates passes, the smallest is same.")
    assert json.loads((place / "v.json").read_text())["gate"] == {"rule": "any", "fail_on": "regression", "exit": 0}
    assert 'failures="0"' in (place / "v.xml").read_text()
    assert run(["compare", "good", "broken", "broken", "--any"]) == 1


def test_worst_examples_are_five_for_one_candidate_and_none_for_several(place: Path) -> None:
    store = calipers.Store()
    assert [len(v.worst) for v in calipers.compare("good", ["broken"], store=store)] == [5]
    assert [len(v.worst) for v in calipers.compare("good", ["broken", "same"], store=store)] == [0, 0]
    assert len(calipers.compare("good", ["broken", "same"], store=store, worst=2)[0].worst) == 2


@pytest.mark.parametrize(("words", "code"), [(["--dataset", "absent.csv"], 2), ([], 3)])
def test_a_summary_is_written_without_a_verdict(place: Path, words: list[str], code: int) -> None:
    candidate = "absent.onnx" if code == 3 else "same.npy"
    assert run(["compare", "good.npy", candidate, "--dataset", "pairs.jsonl", *words, "--markdown", "s.md"]) == code
    summary = (place / "s.md").read_text(encoding="utf-8")
    assert summary.startswith(f"## No verdict: `{candidate}` against `good.npy`")
    assert "absent" in summary


def test_the_store_keeps_the_label_of_the_newest_verdict(place: Path) -> None:
    calipers.compare("good", ["broken"], store=calipers.Store())
    assert {line.name: line.label for line in calipers.Store().list()} == {
        "good": "",
        "same": "",
        "broken": "REGRESSION",
    }
