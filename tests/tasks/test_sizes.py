"""The same measurement at several sizes of a vector, against separate runs at each size."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import calipers
from calipers import models
from calipers.core import SILENT, Dataset, DataSource, ModelInfo, RequestError
from calipers.metrics import bootstrap
from calipers.metrics.correlation import spearman_statistic
from calipers.models import ModelOptions
from calipers.runs.store import Store
from calipers.tasks.retrieval import TwoStage
from tests.support.retrieving import run
from tests.support.samples import Run, write_jsonl

SIZES = "4,2,all"


@pytest.fixture
def forty(tmp_path: Path) -> tuple[Path, Path]:
    """Forty pairs, and vectors of 8 numbers for their texts."""
    rng = np.random.default_rng(1)
    rows = [{"sentence1": f"a{i}", "sentence2": f"b{i}", "score": float(rng.integers(0, 6))} for i in range(40)]
    texts = [str(row[key]) for row in rows for key in ("sentence1", "sentence2")]
    np.save(tmp_path / "v.npy", rng.normal(size=(len(texts), 8)).astype(np.float32))
    (tmp_path / "v.txt").write_text("\n".join(texts))
    return tmp_path / "v.npy", write_jsonl(tmp_path / "forty.jsonl", rows)


def measure(forty: tuple[Path, Path], size: Any, **others: Any) -> calipers.Result:
    model, data = forty
    options = ModelOptions(truncate_dim=size)
    return calipers.evaluate(str(model), dataset=str(data), model_options=options, resamples=300, **others)


def test_every_size_is_a_run_of_its_own_with_a_paired_interval(forty: tuple[Path, Path]) -> None:
    curve, whole = measure(forty, SIZES), measure(forty, None)
    rows = [row for row in curve.curve if row.metric == "cosine_spearman"]
    assert [row.dimensions for row in rows] == [2, 4, None]
    assert [row.examples for row in rows] == [40, 40, 40]
    assert rows[-1].value == curve.metrics["cosine_spearman"] == whole.metrics["cosine_spearman"]
    assert rows[-1].interval == whole.intervals["cosine_spearman"]
    for row in rows[:-1]:
        alone = measure(forty, row.dimensions)
        assert row.value == alone.metrics["cosine_spearman"]
        assert row.interval == alone.intervals["cosine_spearman"]
        assert row.delta == pytest.approx(row.value - rows[-1].value)
        columns = (alone.outcomes.columns, whole.outcomes.columns)
        part, full = (spearman_statistic(c["cosine"], c["gold"]) for c in columns)
        drawn = bootstrap.distribution([part, full], 40, resamples=300, seed=42)
        tail = (1 - bootstrap.expanded(0.95, 40)) / 2
        low, high = np.quantile(100 * (drawn[0] - drawn[1]), [tail, 1 - tail])
        assert row.delta_interval == pytest.approx((low, high))


def test_the_files_of_a_model_do_not_shorten_whole_vectors(forty: tuple[Path, Path]) -> None:
    assert measure(forty, "all").metrics == measure(forty, None).metrics
    with pytest.raises(RequestError, match=r"`truncate_dim` must be at most 8, the size of the vectors, found 9"):
        measure(forty, "2,9")


def test_a_stored_curve_is_found_again(forty: tuple[Path, Path], tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    first = measure(forty, SIZES, store=store)
    again = measure(forty, SIZES, store=store, reuse=True)
    assert again.run_id == first.run_id
    assert again.curve == first.curve
    assert measure(forty, "3,all", store=store, reuse=True).run_id != first.run_id


def test_the_command_shows_a_row_for_each_size(forty: tuple[Path, Path], calipers: Run) -> None:
    model, data = forty
    shown = calipers("eval", model, "--dataset", data, "--truncate-dim", SIZES, "--resamples", "50")
    assert shown.returncode == 0, shown.stderr
    lines = [line.split() for line in shown.stdout.splitlines()]
    table = lines[next(i for i, words in enumerate(lines) if words[:2] == ["first", "numbers"]) :]
    assert [words[0] for words in table if words and words[0] in ("2", "4", "all")] == ["2", "4", "all"]
    document = json.loads(calipers("eval", model, "--dataset", data, "--truncate-dim", SIZES, "--json").stdout)
    rows = [row for row in document["curve"] if row["metric"] == "cosine_spearman"]
    assert [(row["dimensions"], row["examples"]) for row in rows] == [(2, 40), (4, 40), (None, 40)]
    assert document["metrics"]["cosine_spearman_delta/2"] == rows[0]["delta"]


class Counting:
    """Vectors of 6 numbers for words, and how often they were asked for."""

    def __init__(self) -> None:
        self.info = ModelInfo("test", "counting", None, "cpu", "sha256:1")
        self.calls = 0

    def encode(self, texts: Sequence[str], *, prompt: str | None = None, progress: object = SILENT) -> np.ndarray:
        self.calls += 1
        return np.array([np.random.default_rng(list(t.encode())).normal(size=6) for t in texts], np.float32)

    def score(self, pairs: Sequence[tuple[str, str]], *, progress: object = SILENT) -> np.ndarray:
        return np.arange(len(pairs), dtype=np.float32)


class First(Counting):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def encode(self, texts: Sequence[str], **others: Any) -> np.ndarray:
        return super().encode(texts)[:, : self.size]


def judged() -> Dataset:
    source, corpus = DataSource("made"), {f"d{i}": f"document {i}" for i in range(30)}
    table = Dataset(tuple(corpus), {"text": list(corpus.values())}, source, "sha256:c")
    qrels = [{f"d{(3 * q + j) % 30}": 1.0 + j for j in range(3)} for q in range(9)]
    columns: dict[str, Any] = {"query": [f"query {q}" for q in range(9)], "qrels": qrels}
    return Dataset(tuple(map(str, range(9))), columns, source, "sha256:q", {"corpus": table})


def test_a_search_in_the_first_numbers_encodes_once() -> None:
    model = Counting()
    outcomes = run(model, judged(), dimensions=(2, 4))
    assert model.calls == 2  # queries and documents
    for size in (2, 4):
        alone = run(First(size), judged())
        np.testing.assert_array_equal(outcomes.columns[f"ndcg@10/{size}"], alone.columns["ndcg@10"])
        np.testing.assert_array_equal(outcomes.columns[f"recall@10/{size}"], alone.columns["recall@10"])


def test_several_sizes_need_vectors() -> None:
    with pytest.raises(RequestError, match="`truncate_dim` takes several sizes without `rerank` only"):
        run(TwoStage(Counting(), Counting()), judged(), dimensions=(2,))
    with pytest.raises(RequestError, match=r"`truncate_dim` takes several sizes for .* only, not for fill-mask"):
        calipers.evaluate("x", task="fill-mask", dataset="y", model_options=ModelOptions(truncate_dim="2,4"))
    with pytest.raises(RequestError, match="`truncate_dim` is not supported for"):
        models.load(models.find("bm25"), ModelOptions(truncate_dim=4), "retrieve")
