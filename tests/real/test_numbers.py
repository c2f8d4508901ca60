"""The figures that the reference implementations give on real data and real weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import calipers
from calipers import DataOptions, ModelOptions
from calipers.core import Result
from tests.support.exporting import fix_shape

Named = Callable[[str], Path]


def measure(model: Path, rows: Path, *, samples: int | None = None, **options: object) -> Result:
    return calipers.evaluate(
        str(model),
        dataset=str(rows),
        model_options=ModelOptions(**options),  # type: ignore[arg-type]
        data_options=DataOptions(samples=samples),
        resamples=200,
    )


def test_minilm_in_torch(minilm: Path, data: Named) -> None:
    result = measure(minilm, data("stsb/test.jsonl"))
    assert result.metrics["cosine_spearman"] == pytest.approx(82.032467, abs=0.0005)
    assert result.metrics["cosine_pearson"] == pytest.approx(82.740642, abs=0.0005)
    assert len(result.outcomes) == 1379


def test_minilm_in_onnx(minilm_onnx: Path, data: Named) -> None:
    result = measure(minilm_onnx, data("stsb/test.jsonl"))
    assert result.metrics["cosine_spearman"] == pytest.approx(82.032467, abs=0.0005)


def test_the_authors_uint8_graph(weights: Named, data: Named) -> None:
    graph = weights("all-MiniLM-L6-v2-quint8")
    assert measure(graph, data("stsb/test.jsonl")).metrics["cosine_spearman"] == pytest.approx(81.908, abs=0.02)


def test_potion(model: Named, data: Named) -> None:
    result = measure(model("potion-base-4m-int8"), data("stsb/test.jsonl"))
    assert result.metrics["cosine_spearman"] == pytest.approx(74.31, abs=0.02)


def test_bge_with_cls_pooling_equals_a_plain_loop(weights: Named, data: Named) -> None:
    import json

    import onnxruntime
    from scipy.stats import spearmanr
    from transformers import AutoTokenizer

    folder = weights("bge-small-en-v1.5-int8")
    rows = [json.loads(line) for line in data("stsb/test.jsonl").read_text().splitlines()[:300]]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(folder / "model.onnx", settings)

    def vector(text: str) -> np.ndarray:
        first = session.run(None, dict(tokenizer(text, return_tensors="np")))[0][0, 0]
        return first / np.linalg.norm(first)

    cosines = [vector(row["sentence1"]) @ vector(row["sentence2"]) for row in rows]
    wanted = 100 * spearmanr(cosines, [row["score"] for row in rows]).statistic
    result = calipers.evaluate(
        str(folder),
        dataset=str(data("stsb/test.jsonl")),
        model_options=ModelOptions(pooling="cls"),
        data_options=DataOptions(samples=300, shuffle=False),
        resamples=200,
    )
    assert result.metrics["cosine_spearman"] == pytest.approx(wanted, abs=0.01)
    assert wanted > 80


@pytest.fixture(scope="module")
def plain(minilm: Path, data: Named) -> Result:
    return measure(minilm, data("stsb/test.jsonl"), samples=200)


@pytest.mark.parametrize("options", [{"batch_size": 1}, {"batch_size": 7}, {"batch_size": 64}, {"threads": 1}], ids=str)
def test_batches_and_threads_move_no_metric(minilm: Path, data: Named, plain: Result, options: dict[str, int]) -> None:
    other = measure(minilm, data("stsb/test.jsonl"), samples=200, **options)
    assert plain.fingerprint == other.fingerprint
    for name, value in plain.metrics.items():
        assert other.metrics[name] / 100 == pytest.approx(value / 100, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"batch_size": 1}, {"batch_size": 7}, {"batch_size": 64}, {"threads": 1}], ids=str)
@pytest.mark.parametrize("backend", ["torch", "onnx"])
def test_batches_and_threads_move_no_metric_on_all_rows(
    minilm: Path, minilm_onnx: Path, data: Named, backend: str, options: dict[str, int]
) -> None:
    folder = minilm if backend == "torch" else minilm_onnx
    found = measure(folder, data("stsb/test.jsonl"), **options).metrics["cosine_spearman"]
    assert found / 100 == pytest.approx(0.82032467, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(None, None), (1, 512), (1, 128), (8, 64)], ids=str)
def test_every_shape_of_the_export_gives_the_torch_figure(
    minilm: Path, minilm_onnx: Path, data: Named, tmp_path: Path, shape: tuple[int | None, int | None]
) -> None:
    """On the rows of which nothing is truncated at 64 tokens."""
    from calipers.models.layout import open_tokenizer, read_layout
    from tests.support.samples import write_jsonl

    rows = short_rows(data("stsb/test.jsonl"), open_tokenizer(read_layout(minilm), max_length=512))
    assert len(rows) > 1300
    file = write_jsonl(tmp_path / "short.jsonl", rows)
    fixed = fix_shape(minilm_onnx, tmp_path / "fixed", rows=shape[0], length=shape[1])
    wanted = measure(minilm, file).metrics["cosine_spearman"]
    assert measure(fixed, file).metrics["cosine_spearman"] == pytest.approx(wanted, abs=0.01)


def short_rows(file: Path, tokenizer) -> list[dict[str, object]]:  # type: ignore[no-untyped-def]
    import json

    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    lengths = [[len(t.ids) for t in tokenizer.encode([r["sentence1"], r["sentence2"]])] for r in rows]
    return [row for row, both in zip(rows, lengths, strict=True) if max(both) <= 64]
