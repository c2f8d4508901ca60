"""Searches in a changed space, against plain numpy with every cosine in one matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from calipers.metrics import adjusted

Array = NDArray[Any]


def unit(rows: Array) -> Array:
    wide = np.asarray(rows, np.float64)
    return np.asarray(wide / np.linalg.norm(wide, axis=1, keepdims=True))


def best(scores: Array, k: int) -> list[list[int]]:
    order: list[list[int]] = np.argsort(-scores, axis=1, kind="stable")[:, :k].tolist()
    return order


@pytest.fixture(scope="module")
def space() -> tuple[Array, Array]:
    """A cone: all vectors share a direction. Lengths differ."""
    rng = np.random.default_rng(5)
    shared = rng.standard_normal(16) * 3
    queries, documents = (rng.standard_normal((n, 16)) + shared for n in (23, 400))
    lengths = rng.uniform(0.2, 5, (400, 1))
    return queries.astype(np.float32), (documents * lengths).astype(np.float32)


def test_the_mean_removed(space: tuple[Array, Array]) -> None:
    queries, documents = unit(space[0]), unit(space[1])
    mean = documents.mean(axis=0)
    expected = best(unit(queries - mean) @ unit(documents - mean).T, 7)
    assert adjusted.nearest_centred(*space, 7).tolist() == expected
    assert expected != best(queries @ documents.T, 7)


def test_half_of_the_dimensions(space: tuple[Array, Array]) -> None:
    queries, documents = (unit(rows[:, :8]) for rows in space)
    assert adjusted.nearest_cut(*space, 7).tolist() == best(queries @ documents.T, 7)


def test_csls_as_the_paper_has_it(space: tuple[Array, Array]) -> None:
    cosines = unit(space[0]) @ unit(space[1]).T
    of_query = np.sort(cosines, axis=1)[:, -10:].mean(axis=1)
    of_document = np.sort(cosines, axis=0)[-10:].mean(axis=0)
    expected = best(2 * cosines - of_query[:, None] - of_document, 7)
    assert adjusted.nearest_csls(*space, 7).tolist() == expected
    np.testing.assert_allclose(adjusted.hub_crowding(*space), of_document, atol=1e-6)


def test_few_queries_and_few_documents() -> None:
    one = np.array([[1.0, 0.0]], np.float32)
    documents = np.array([[1.0, 0.1], [0.2, 1.0]], np.float32)
    for search in (adjusted.nearest_centred, adjusted.nearest_cut, adjusted.nearest_csls):
        rows = search(one, documents, 5)
        assert rows.shape == (1, 5)
        assert sorted(rows[0].tolist()) == [-1, -1, -1, 0, 1]


def test_a_vector_that_loses_its_direction_is_no_error() -> None:
    documents = np.array([[0.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0]], np.float32)
    assert adjusted.nearest_cut(documents, documents, 1).tolist()[1] == [1]
