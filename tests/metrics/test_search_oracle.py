"""Exact search against a brute force in float64: ties, copies, more results than documents, zero vectors, half
precision, mapped files, one thread and two, windows of any size; and with FAISS's generic kernel in the process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.metrics import search
from calipers.metrics.arrays import Array, Floats
from calipers.metrics.measures import MEASURES
from calipers.metrics.search import exact_search
from calipers.metrics.threads import at_most


def brute_force(queries: Array, documents: Array, similarity: str) -> Floats:
    """Every score in float64, higher is closer, float64[q, n]."""
    a, b = queries.astype(np.float64)[:, None], documents.astype(np.float64)[None]
    if similarity == "euclidean":
        return np.asarray(-np.sqrt(np.square(a - b).sum(axis=2)))
    return np.asarray(-np.abs(a - b).sum(axis=2) if similarity == "manhattan" else (a * b).sum(axis=2))


def in_windows(documents: Array, size: int) -> Iterator[Array]:
    return (documents[i : i + size] for i in range(0, len(documents), size))


def check(queries: Array, documents: Array, k: int, window: int, similarity: str, threads: int) -> None:
    table = brute_force(queries, documents, similarity)
    order = np.argsort(-table, axis=1, kind="stable")[:, :k]
    with at_most(threads):
        hits = exact_search(queries, in_windows(documents, window), k, measure=MEASURES[similarity])
    shape = len(queries), min(k, len(documents))
    np.testing.assert_array_equal(hits.documents.reshape(shape), order)
    scores = np.take_along_axis(table, order, axis=1)
    np.testing.assert_allclose(hits.scores.reshape(shape), scores, rtol=1e-12, atol=1e-300)
    tied = (table == scores[:, -1:]).sum(axis=1) - (scores == scores[:, -1:]).sum(axis=1)
    np.testing.assert_array_equal(hits.left_out, tied if k <= len(documents) else 0)


@given(
    seed=st.integers(0, 2**32 - 1),
    documents=st.integers(1, 400),
    k=st.integers(1, 60),
    window=st.integers(1, 450),
    similarity=st.sampled_from(["dot", "euclidean", "manhattan"]),
    threads=st.integers(1, 2),
    dtype=st.sampled_from([np.float32, np.float16]),
)
def test_ties_and_copies(
    seed: int, documents: int, k: int, window: int, similarity: str, threads: int, dtype: type
) -> None:
    """Small whole numbers, which tie nearly everywhere; copies of rows, and rows of zeros."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(-2, 3, (documents, 1 + seed % 6)).astype(dtype)
    rows[rng.random(documents) < 0.3] = rows[0]
    rows[rng.random(documents) < 0.2] = 0
    queries = rng.integers(-2, 3, (1 + seed % 9, rows.shape[1])).astype(dtype)
    check(queries, rows, k, max(window, documents // 40), similarity, threads)


@pytest.mark.parametrize("similarity", ["dot", "euclidean", "manhattan"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_mapped_file(tmp_path: Path, dtype: type, similarity: str) -> None:
    rng = np.random.default_rng(3)
    vectors = rng.standard_normal((3_000, 40)).astype(dtype)
    vectors[1_500:2_000] = vectors[7]
    np.save(tmp_path / "vectors.npy", vectors)
    mapped = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    for window, threads in ((611, 2), (5_000, 1)):
        check(vectors[:23] + dtype(0.5), mapped, 70, window, similarity, threads)


def test_near_ties_are_decided_in_float64() -> None:
    """Documents that differ by less than float32 products can tell."""
    rng = np.random.default_rng(5)
    rows = np.repeat(rng.standard_normal((1, 64)).astype(np.float32), 3_000, axis=0)
    places = rng.integers(0, 64, 3_000)
    rows[np.arange(3_000), places] = np.nextafter(rows[np.arange(3_000), places], np.float32(9))
    check(rng.standard_normal((6, 64)).astype(np.float32), rows, 50, 1_234, "dot", 2)


@pytest.mark.parametrize("window", [50, 32_768])
def test_neighbours_among_copies_are_the_earlier_ones(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_NEAREST_WINDOW", window)
    vectors = np.tile(np.eye(4, dtype=np.float32), (200, 1))
    rows = search.nearest(np.eye(4)[:2], vectors, 20)[1]
    assert rows.tolist() == [[4 * i + query for i in range(20)] for query in range(2)]


PRESCOTT = """
import os
os.environ.pop("OPENBLAS_CORETYPE", None)
import numpy as np
os.environ["OPENBLAS_CORETYPE"] = "PRESCOTT"
import faiss
from calipers.metrics.kernels import loaded_kernels
from calipers.metrics.search import exact_search
def refuse(*arguments, **options):
    raise AssertionError("a product of FAISS")
faiss.knn = faiss.pairwise_distances = refuse
faiss.IndexFlat.search = faiss.IndexFlatIP.search = faiss.IndexFlatL2.search = refuse
kernels = {kernel.owner: kernel.architecture.lower() for kernel in loaded_kernels()}
rng = np.random.default_rng(0)
queries, documents = (rng.standard_normal((n, 384), dtype=np.float32) for n in (64, 20_000))
hits = exact_search(queries, [documents], 10)
table = queries.astype(np.float64) @ documents.T.astype(np.float64)
right = np.argsort(-table, axis=1, kind="stable")[:, :10].reshape(-1)
print(kernels.get("faiss_cpu", "none"), bool((hits.documents == right).all()))
"""


def test_the_generic_kernel_of_faiss_does_not_slow_the_search() -> None:
    """As on a processor that FAISS's OpenBLAS does not recognise: no product is FAISS's."""
    done = subprocess.run([sys.executable, "-c", PRESCOTT], capture_output=True, text=True, check=True)
    kernel, right = done.stdout.split()
    if kernel != "prescott":
        pytest.skip("this faiss has no OpenBLAS whose kernel can be forced")
    assert right == "True"
