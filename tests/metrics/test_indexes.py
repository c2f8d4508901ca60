"""Searches of an index in production against the exact one."""

from __future__ import annotations

import numpy as np
import pytest

from calipers.metrics import codecs, indexes, overlap, search


@pytest.mark.parametrize("codec", ["fp16", "int8", "binary", "pq"])
def test_stored_vectors_find_about_the_same(codec: str) -> None:
    rng = np.random.default_rng(0)
    vectors, queries = rng.normal(size=(600, 32)), rng.normal(size=(40, 32))
    exact = search.nearest(queries, vectors, 10)[1]
    result = overlap.jaccard(
        exact, indexes.nearest_stored(queries, vectors, 10, codec=codecs.fit(codec, vectors))
    ).mean()
    assert result > {"fp16": 0.99, "int8": 0.85, "binary": 0.15, "pq": 0.25}[codec]


@pytest.mark.parametrize("index", indexes.INDEXES)
def test_an_index_finds_most_and_the_same_every_time(index: str) -> None:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(20, 16))
    vectors = centres[rng.integers(0, 20, 2000)] + 0.2 * rng.normal(size=(2000, 16))
    queries = vectors[:50] + 0.05 * rng.normal(size=(50, 16))
    exact = search.nearest(queries, vectors, 10)[1]
    result = indexes.nearest_indexed(queries, vectors, 10, index=index)
    assert overlap.jaccard(exact, result).mean() > 0.9
    assert np.array_equal(result, indexes.nearest_indexed(queries, vectors, 10, index=index))


def test_an_index_over_a_few_documents_works() -> None:
    vectors = np.random.default_rng(0).normal(size=(5, 4))
    for index in indexes.INDEXES:
        result = indexes.nearest_indexed(vectors[:2], vectors, 10, index=index)
        assert result.shape == (2, 10)
        assert set(result[0][result[0] >= 0].tolist()) == set(range(5))
