"""A regression fails a test with the sentence of its verdict."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from calipers import Thresholds
from calipers.cli import run
from calipers.testing import assert_no_regression


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(1)
    texts, base = [f"text {i}" for i in range(120)], rng.normal(size=(120, 6)).astype(np.float32)
    unit = base / np.linalg.norm(base, axis=1, keepdims=True)
    lines = ["sentence1,sentence2,score"]
    lines += [f"{texts[i]},{texts[i + 60]},{float(unit[i] @ unit[i + 60]):.6f}" for i in range(60)]
    (tmp_path / "pairs.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    noise = rng.normal(size=base.shape).astype(np.float32)
    models = {"good": base, "same": base + 1e-4 * noise, "broken": noise, "doubtful": base + noise / 5}
    for name, vectors in models.items():
        np.save(tmp_path / f"{name}.npy", vectors)
        (tmp_path / f"{name}.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_passes_returns_its_verdicts(place: Path) -> None:
    verdicts = assert_no_regression("good.npy", "same.npy", dataset="pairs.csv")
    assert [verdict.label for verdict in verdicts] == ["PASS"]
    assert len(assert_no_regression("good.npy", "same.npy", "broken.npy", dataset="pairs.csv", any=True)) == 2


def test_a_regression_fails_with_its_sentence(place: Path) -> None:
    with pytest.raises(AssertionError, match=r"REGRESSION: .*broken.npy is a regression: cosine_spearman goes from"):
        assert_no_regression("good.npy", "same.npy", "broken.npy", dataset="pairs.csv")


def test_an_open_question_fails_unless_it_is_allowed(place: Path) -> None:
    check = partial(assert_no_regression, "good.npy", "doubtful.npy", dataset="pairs.csv")
    loose = {"cosine_spearman": Thresholds(90, 99, relative=False)}
    limit = -(check(thresholds=loose)[0].comparisons[0].delta or 0.0)
    thresholds = {"cosine_spearman": Thresholds(limit * 0.99, limit, relative=False)}
    with pytest.raises(AssertionError, match="INCONCLUSIVE"):
        check(thresholds=thresholds)
    check(thresholds=thresholds, allow_inconclusive=True)


@pytest.mark.parametrize(
    ("line", "option", "code"),
    [
        (["eval", "good.npy", "--dataset", "pairs.csv", "--samples", "0", "--no-store"], "--samples", 2),
        (["eval", "good.npy", "--dataste", "pairs.csv"], "--dataste", 2),
        (["eval", "absent.onnx", "--dataset", "pairs.csv", "--no-store"], None, 3),
        (["compare", "good.npy"], None, 2),
    ],
)
def test_errors_are_json_where_the_output_would_be(
    place: Path, capsys: pytest.CaptureFixture[str], line: list[str], option: str | None, code: int
) -> None:
    assert run([*line, "--json"]) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    error = json.loads(shown.err)
    assert (error["option"], error["exit"]) == (option, code)
    assert error["error"]
    run(line)
    assert capsys.readouterr().err == f"calipers: {error['error']}\n"
