"""Vectors of any magnitude give the figures of the same vectors at a usual one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calipers import evaluate, trust
from calipers.core import InferenceError, InvalidOutput, ModelInfo, RequestError
from calipers.metrics import geometry
from calipers.metrics.magnitudes import common_power, single
from calipers.metrics.search import nearest_rows

RNG = np.random.default_rng(0)
VECTORS = RNG.normal(size=(40, 6)) * RNG.uniform(0.5, 2, (40, 1))
FACTORS = [2.0**700, 2.0**-700, 1e300, 1e-300, 2.0**130, 2.0**-140]
TEXTS = [f"text {i}" for i in range(40)]


def write(folder: Path, factor: float, kind: str = "npy") -> str:
    """The vectors of TEXTS in a file."""
    folder.mkdir(exist_ok=True)
    if kind == "npy":
        np.save(folder / "v.npy", VECTORS * factor)
        (folder / "v.txt").write_text("\n".join(TEXTS))
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({"text": TEXTS, "vector": list(VECTORS * factor)}), folder / "v.parquet")
    return str(folder / f"v.{kind}")


def make_data(folder: Path) -> tuple[str, str]:
    """Twenty pairs, and a search of ten queries among thirty documents."""
    pairs = [{"sentence1": TEXTS[i], "sentence2": TEXTS[39 - i], "score": (7 * i) % 20} for i in range(20)]
    (folder / "pairs.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in pairs))
    shop = folder / "shop"
    (shop / "qrels").mkdir(parents=True)
    rows = [json.dumps({"_id": f"d{i}", "text": TEXTS[10 + i]}) for i in range(30)]
    (shop / "corpus.jsonl").write_text("\n".join(rows) + "\n")
    rows = [json.dumps({"_id": f"q{i}", "text": TEXTS[i]}) for i in range(10)]
    (shop / "queries.jsonl").write_text("\n".join(rows) + "\n")
    (shop / "qrels" / "test.tsv").write_text("".join(f"q{i}\td{3 * i}\t1\n" for i in range(10)))
    return str(folder / "pairs.jsonl"), str(shop)


@pytest.mark.parametrize("kind", ["npy", "parquet"])
@pytest.mark.parametrize("factor", FACTORS)
def test_figures_do_not_depend_on_the_magnitude(tmp_path: Path, factor: float, kind: str) -> None:
    pairs, shop = make_data(tmp_path)
    usual, odd = write(tmp_path / "usual", 1.0, kind), write(tmp_path / "odd", factor, kind)
    of_pairs = [evaluate(place, dataset=pairs, resamples=100).metrics for place in (usual, odd)]
    assert of_pairs[1] == pytest.approx(of_pairs[0], abs=1e-5)
    for similarity in ("cosine", "dot", "euclidean", "manhattan"):
        options: dict[str, Any] = {"task_options": {"similarity": similarity}, "task": "retrieval", "resamples": 100}
        found = [evaluate(place, dataset=shop, **options).metrics for place in (usual, odd)]
        assert found[1] == pytest.approx(found[0], abs=1e-9)


class InMemory:
    """A model that gives float64."""

    info = ModelInfo("memory", "double", None, "cpu", "sha256:0")

    def __init__(self, factor: float) -> None:
        self._table, self._factor = dict(zip(TEXTS, VECTORS * factor, strict=True)), factor

    def encode(self, texts: Any, *, prompt: Any = None, progress: Any = None) -> Any:
        return np.array([self._table[text] if text in self._table else self._other(text) for text in texts])

    def _other(self, text: str) -> Any:
        """Of the odd queries that a trust score makes."""
        return np.random.default_rng(len(text)).normal(size=VECTORS.shape[1]) * self._factor


@pytest.mark.parametrize("factor", FACTORS)
def test_a_model_in_memory(tmp_path: Path, factor: float) -> None:
    pairs, shop = make_data(tmp_path)
    models: list[Any] = [InMemory(1.0), InMemory(factor)]
    usual, odd = (evaluate(model, dataset=pairs, resamples=100).metrics for model in models)
    assert odd == pytest.approx(usual, abs=1e-5)
    usual, odd = (evaluate(m, task="retrieval", dataset=shop, resamples=100).metrics for m in models)
    assert odd == pytest.approx(usual, abs=1e-9)
    usual, odd = (trust(model, shop, [TEXTS[3]]).scores.parts.reliability for model in models)
    np.testing.assert_allclose(odd, usual, rtol=1e-5)
    with pytest.raises(RequestError, match="beyond the range of float32, and dot depends on them"):
        evaluate(models[1], task="retrieval", dataset=shop, task_options={"similarity": "dot"})


@pytest.mark.parametrize("factor", [*FACTORS, 1e307])
def test_lengths_and_neighbours(factor: float) -> None:
    scaled = VECTORS * factor
    lengths = geometry.norms(scaled)
    assert np.isfinite(lengths).all()
    assert (lengths > 0).all()
    for similarity in ("cosine", "dot", "euclidean", "manhattan"):
        rows = nearest_rows(VECTORS[:9], VECTORS, 5, similarity=similarity)
        np.testing.assert_array_equal(nearest_rows(scaled[:9], scaled, 5, similarity=similarity), rows)


def test_a_length_that_no_float_holds_is_not_infinite() -> None:
    vectors = np.full((2, 8), 1.7e308)
    assert np.isfinite(geometry.norms(vectors)).all()
    np.testing.assert_allclose(geometry.unit(vectors), np.sqrt(1 / 8), rtol=1e-6)


def test_rows_that_do_not_fit_beside_others_keep_their_direction() -> None:
    table = np.array([[3e300, 4e300], [3e-300, 4e-300], [0.0, 0.0]])
    vectors = single(table, common_power(table))
    np.testing.assert_allclose(geometry.unit_like(vectors), [[0.6, 0.8], [0.6, 0.8], [0.0, 0.0]], rtol=1e-6)


def test_what_is_infinite_stays_invalid(tmp_path: Path) -> None:
    pairs, _ = make_data(tmp_path)
    np.save(tmp_path / "v.npy", np.where(VECTORS > 1.5, np.inf, VECTORS))
    (tmp_path / "v.txt").write_text("\n".join(TEXTS))
    with pytest.raises((InvalidOutput, InferenceError)):
        evaluate(str(tmp_path / "v.npy"), dataset=pairs)
