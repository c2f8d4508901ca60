"""The check between two stages: its cases, what counts, and stages that are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calipers.artifacts import check
from calipers.artifacts.check import StageRefused
from calipers.artifacts.inputs import Rows
from calipers.models.batching import pad
from tests.support import build_models as small


def test_the_cases_have_every_batch_size_padded_and_not(rows: Rows) -> None:
    found = check.cases(rows, None)
    assert {(b.ids.shape[0], b.padded) for b in found} == {(n, p) for n in (1, 2, 7) for p in (True, False)}
    assert {b.ids.shape[1] for b in found} == {8, 33, 64}
    assert all(b.ids.shape == (2, 10) for b in check.cases(rows, (2, 10)))


def test_padding_does_not_count_and_what_is_not_finite_does(rows: Rows) -> None:
    batch = pad(rows.tokens[:2], rows)
    zeros = np.zeros((*batch.ids.shape, 3), np.float32)
    other = zeros.copy()
    other[batch.mask == 0] = 5
    found = check.compare([zeros], [other], [batch], against="x", bound=1e-3)
    assert (found.largest, found.passed, found.unpadded, found.relative) == (0.0, True, None, None)
    other[0, 0, 0] = np.nan
    found = check.compare([zeros + 1], [other], [batch], against="x", bound=1e-3)
    assert (found.largest, found.passed) == (None, False)
    assert not replace(found, largest=2e-3).passed
    assert check.remarks(found) == ["some outputs are not finite"]


def test_an_export_from_a_mask_of_ones_is_refused_with_the_figures(
    tiny_bert: Path, few_texts: Path, tmp_path: Path
) -> None:
    bad = small.careless_export(tiny_bert, tmp_path / "bad.onnx", mask_of_ones=True)
    with pytest.raises(StageRefused, match=r"exported graph is refused.*padded.*attention mask") as caught:
        small.run(tiny_bert, tmp_path / "out", "fp32", few_texts, stages={"exported": bad})
    found = caught.value.difference
    assert found.is_padded
    assert found.padded is not None
    assert found.unpadded is not None
    assert found.padded > 1e-3 > 1e-4 > found.unpadded
    assert not (tmp_path / "out" / "exported").exists()
    kept = small.run(
        tiny_bert,
        tmp_path / "out",
        "fp32",
        few_texts,
        stages={"exported": bad},
        accept_differences=True,
        optimize=False,
    )
    assert "attention mask" in " ".join(kept.stage("exported").notes)


def test_dropout_that_was_left_on_is_refused(tiny_bert: Path, built: Path, few_texts: Path, tmp_path: Path) -> None:
    """onnxruntime's own optimisation takes such a dropout out, so the graph is also run as it stands."""
    bad = small.with_dropout(built / "exported" / "model.onnx", tmp_path / "bad.onnx")
    with pytest.raises(StageRefused, match="exported graph is refused") as caught:
        small.run(tiny_bert, tmp_path / "out", "fp32", few_texts, stages={"exported": bad})
    assert caught.value.difference.as_it_stands


@pytest.mark.slow
def test_dropout_that_an_export_left_on_is_refused(tiny_bert: Path, few_texts: Path, tmp_path: Path) -> None:
    bad = small.careless_export(tiny_bert, tmp_path / "bad.onnx", training=True)
    with pytest.raises(StageRefused, match="exported graph is refused"):
        small.run(tiny_bert, tmp_path / "out", "fp32", few_texts, stages={"exported": bad})
