"""The largest inner products: against sorting all of them, for any number of threads and any order of rows."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.metrics import products
from calipers.metrics.arrays import Vectors
from calipers.metrics.products import fastest_product, largest_products


def whole(seed: int, count: int, dimensions: int, levels: int) -> Vectors:
    """Small whole numbers: float32 products are exact, and many are equal."""
    return np.random.default_rng(seed).integers(-levels, levels + 1, (count, dimensions)).astype(np.float32)


def sorted_whole(queries: Vectors, rows: Vectors, k: int) -> tuple[Vectors, np.ndarray]:
    scores = queries.astype(np.float64) @ rows.astype(np.float64).T
    places = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, places, axis=1).astype(np.float32), places


@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 300), st.integers(1, 9), st.integers(1, 3))
def test_equal_numbers_in_the_order_of_rows(seed: int, queries: int, rows: int, levels: int, threads: int) -> None:
    a, b = whole(seed, queries, 5, levels), whole(seed + 1, rows, 5, levels)
    k = min(rows, 1 + seed % 60)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "_CELLS", 1_024)  # blocks of some rows, so that the filter works
        scores, places, _ = largest_products(a, b, k, threads=threads)
    expected = sorted_whole(a, b, k)
    np.testing.assert_array_equal(scores, expected[0])
    np.testing.assert_array_equal(places, expected[1])


@given(st.integers(0, 2**32 - 1), st.integers(1, 20), st.integers(1, 300), st.integers(1, 9))
def test_what_must_be_exceeded(seed: int, queries: int, rows: int, levels: int) -> None:
    a, b = whole(seed, queries, 5, levels), whole(seed + 1, rows, 5, levels)
    k = min(rows, 1 + seed % 60)
    above = np.random.default_rng(seed).choice([-np.inf, -3, 0, 3, 1e9], queries).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "_CELLS", 1_024)
        scores, places, _ = largest_products(a, b, k, above=above)
    expected, rows_of = sorted_whole(a, b, k)
    exceeds = expected > above[:, None]
    np.testing.assert_array_equal(scores, np.where(exceeds, expected, -np.inf))
    np.testing.assert_array_equal(places, np.where(exceeds, rows_of, -1))


@pytest.mark.parametrize("order", ["ascending", "descending", "equal"])
def test_orders_that_defeat_the_filter(order: str) -> None:
    line = np.arange(30_000, dtype=np.float32) / 8
    line = {"ascending": line, "descending": line[::-1], "equal": np.ones_like(line)}[order]
    rows = np.ascontiguousarray(np.stack([line, np.ones_like(line)], axis=1))
    queries = np.array([[1, 0], [0.5, 1], [0, 1]], np.float32)
    scores, places, _ = largest_products(queries, rows, 100)
    expected = sorted_whole(queries, rows, 100)
    np.testing.assert_array_equal(scores, expected[0])
    np.testing.assert_array_equal(places, expected[1])


def test_the_products_of_pytorch_find_the_same() -> None:
    pytest.importorskip("torch")
    queries, rows = whole(1, 30, 16, 3), whole(2, 9_000, 16, 3)
    columns, result = np.ascontiguousarray(queries.T), np.empty((9_000, 30), np.float32)
    products.torch_product(rows, columns, result)
    np.testing.assert_array_equal(result, rows @ columns)
    rows.flags.writeable = False
    products.torch_product(rows[:8_000], columns, result[:8_000])
    np.testing.assert_array_equal(result, rows @ columns)


def test_pytorch_is_not_used_where_it_rounds_to_bfloat16() -> None:
    torch = pytest.importorskip("torch")
    before = torch.get_float32_matmul_precision()
    fastest_product.cache_clear()
    try:
        torch.set_float32_matmul_precision("medium")
        assert fastest_product("torch" in sys.modules) is products.numpy_product
    finally:
        torch.set_float32_matmul_precision(before)
        fastest_product.cache_clear()
