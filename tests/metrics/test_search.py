"""Exact search against brute force: by inner product over windows, and by distance among vectors in hand."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.spatial.distance import cdist, pdist, squareform

from calipers.metrics import geometry, search
from calipers.metrics.measures import MEASURES
from calipers.metrics.search import Wanted, exact_search

N = 500


@pytest.fixture(scope="module")
def cloud() -> NDArray[np.float32]:
    rng = np.random.default_rng(0)
    return (rng.standard_normal((N, 48)) + 0.3).astype(np.float32)


def all_distances(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    table = squareform(pdist(geometry.unit(vectors).astype(np.float64)))
    np.fill_diagonal(table, np.inf)
    return table


@pytest.mark.parametrize("window", [64, 32_768])
def test_neighbours_are_those_of_brute_force(
    cloud: NDArray[np.float32], window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_NEAREST_WINDOW", window)
    monkeypatch.setattr(search, "_QUERIES", 100)
    table = all_distances(cloud)
    order = np.argsort(table, axis=1)[:, :10]
    distances, result = search.nearest_own(cloud, np.arange(N), 10)
    np.testing.assert_array_equal(result, order)
    np.testing.assert_allclose(distances, np.take_along_axis(table, order, axis=1), atol=1e-12)


def test_neighbours_come_from_a_mapped_file_and_from_those_allowed(cloud: NDArray[np.float32], tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", cloud)
    mapped = np.load(tmp_path / "v.npy", mmap_mode="r")
    allowed = np.arange(N) % 3 == 0
    result = search.nearest(mapped[:20], mapped, 5, exclude=np.arange(20), allowed=allowed)[1]
    table = all_distances(cloud)[:20]
    table[:, ~allowed] = np.inf
    np.testing.assert_array_equal(result, np.argsort(table, axis=1)[:, :5])


def test_missing_neighbours_are_said_to_be_missing() -> None:
    distances, result = search.nearest_own(np.eye(3), np.arange(3), 5)
    assert (result[:, 2:] == -1).all()
    assert np.isinf(distances[:, 2:]).all()
    assert search.nearest(np.eye(3)[:0], np.eye(3), 2)[1].shape == (0, 2)


@pytest.mark.parametrize("window", [37, 400, 999, 5000])
@pytest.mark.parametrize("k", [1, 10, 150])
def test_search_equals_a_stable_sort_and_ignores_windows(window: int, k: int) -> None:
    """Half of the documents are copies of a few others, so ties fall on the cut."""
    rng = np.random.default_rng(0)
    documents = rng.normal(size=(999, 12)).astype(np.float32)
    documents[500:] = documents[rng.integers(0, 20, 499)]
    queries = rng.normal(size=(30, 12)).astype(np.float32)
    products = (queries.astype(np.float64)[:, None] * documents.astype(np.float64)[None]).sum(axis=2)
    wanted = np.argsort(-products, axis=1, kind="stable")[:, :k]
    hits = exact_search(queries, [documents[i : i + window] for i in range(0, 999, window)], k)
    np.testing.assert_array_equal(hits.documents.reshape(30, k), wanted)
    last = np.take_along_axis(products, wanted, axis=1)
    np.testing.assert_allclose(hits.scores.reshape(30, k), last, rtol=1e-14)
    np.testing.assert_array_equal(hits.left_out, (products >= last[:, -1:]).sum(axis=1) - k)


@pytest.mark.parametrize("window", [7, 60, 500])
def test_a_cut_through_a_tie_keeps_what_is_wanted_and_counts_the_rest(window: int) -> None:
    """A tie at the cut that grows, vanishes behind a better document, and comes again at another score."""
    rng = np.random.default_rng(1)
    documents = rng.integers(0, 3, size=(300, 2)).astype(np.float32)
    queries = rng.integers(0, 3, size=(20, 2)).astype(np.float32)
    pairs = Wanted(rng.integers(0, 20, 400), rng.integers(0, 300, 400))
    hits = exact_search(queries, [documents[i : i + window] for i in range(0, 300, window)], 10, pairs)
    products = queries.astype(np.float64) @ documents.T.astype(np.float64)
    for query, row in enumerate(products):
        order = np.argsort(-row, kind="stable")
        tied = [d for d in order[10:] if row[d] == row[order[9]]]
        extra = [d for d in tied if d in set(pairs.document[pairs.query == query])]
        mine = hits.documents[hits.offsets[query] : hits.offsets[query + 1]].tolist()
        assert mine == [*order[:10], *extra]
        assert hits.left_out[query] == len(tied) - len(extra)


def test_memory_is_bounded_however_many_documents_tie() -> None:
    """200 queries × 50,000 equal documents: 10 million pairs, of which 2,000 stay."""
    tracemalloc.start()
    hits = exact_search(np.ones((200, 2), np.float32), [np.ones((50_000, 2), np.float32)], 10)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (hits.left_out == 49_990).all()
    assert len(hits.documents) == 2_000
    assert peak < 400e6


def test_search_of_little_gives_what_there_is() -> None:
    result = exact_search(np.ones((2, 3), np.float32), [np.zeros((0, 3)), np.ones((2, 3))], 5)
    assert result.documents.tolist() == [0, 1, 0, 1]
    assert exact_search(np.ones((2, 3), np.float32), [], 5).offsets.tolist() == [0, 0, 0]
    assert exact_search(np.ones((0, 3), np.float32), [np.ones((2, 3))], 5).offsets.tolist() == [0]


@pytest.mark.parametrize("scale", [1e20, 1e30, 1e-25])
def test_products_beyond_float32_are_ranked(scale: float) -> None:
    rng = np.random.default_rng(0)
    queries, documents = (rng.normal(size=(n, 16)).astype(np.float32) for n in (12, 300))
    plain = exact_search(queries, [documents], 20)
    factor = np.float32(scale)
    moved = exact_search(queries * factor, [documents[:100] * factor, documents[100:] * factor], 20)
    np.testing.assert_array_equal(moved.documents, plain.documents)
    np.testing.assert_allclose(moved.scores, plain.scores * scale**2, rtol=1e-5)


@pytest.mark.parametrize("scale", [1.0, 1e25, 1e-30])
@pytest.mark.parametrize(("name", "metric"), [("euclidean", "euclidean"), ("manhattan", "cityblock")])
def test_a_search_by_distance_is_that_of_brute_force(
    cloud: NDArray[np.float32], name: str, metric: str, scale: float
) -> None:
    vectors = (cloud * scale).astype(np.float32)
    table = cdist(vectors[:40].astype(np.float64), vectors.astype(np.float64), metric)
    order = np.argsort(table, axis=1, kind="stable")[:, :7]
    hits = exact_search(vectors[:40], [vectors[:123], vectors[123:]], 7, measure=MEASURES[name])
    np.testing.assert_array_equal(hits.documents.reshape(40, 7), order)
    np.testing.assert_allclose(-hits.scores.reshape(40, 7), np.take_along_axis(table, order, axis=1), rtol=1e-12)


@pytest.mark.parametrize("name", ["euclidean", "manhattan"])
def test_equal_distances_tie_in_the_order_of_the_documents(name: str) -> None:
    documents = np.repeat(np.array([[3.0, 4.0], [-3.0, 4.0]], np.float32), 100, axis=0)
    hits = exact_search(np.zeros((1, 2), np.float32), [documents], 5, measure=MEASURES[name])
    assert hits.documents.tolist() == [0, 1, 2, 3, 4]
    assert hits.left_out.tolist() == [195]
    assert hits.scores.tolist() == [{"euclidean": -5.0, "manhattan": -7.0}[name]] * 5


@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean"])
@pytest.mark.parametrize("seed", range(6))
def test_ranges_that_are_searched_apart_are_merged_to_the_same_bits(seed: int, similarity: str) -> None:
    """Whole numbers, so that many documents tie at the cut; judged ones among them."""
    rng = np.random.default_rng(seed)
    corpus, queries = (rng.integers(-1, 2, size=(n, 4)).astype(np.float32) for n in (300, 12))
    wanted = Wanted(rng.integers(0, 12, 40), rng.integers(0, 300, 40))
    measure, k = MEASURES[similarity], int(rng.integers(1, 40))
    whole = exact_search(queries, [corpus[:100], corpus[100:]], k, wanted, measure)
    ends = [0, *sorted(rng.integers(0, 301, 4).tolist()), 300]
    parts = [
        exact_search(queries, [corpus[a:b][:7], corpus[a:b][7:]], k, wanted, measure, first=a)
        for a, b in pairwise(ends)
    ]
    order = rng.permutation(len(parts))
    merged = search.merge_hits([parts[i] for i in order], k, wanted)
    for name in ("offsets", "documents", "scores", "left_out"):
        np.testing.assert_array_equal(getattr(merged, name), getattr(whole, name), err_msg=name)


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(0, 200), st.sampled_from([0, 4, 10**9]))
def test_results_are_sorted_alike_with_a_table_and_without(seed: int, queries: int, size: int, uneven: int) -> None:
    rng = np.random.default_rng(seed)
    query, document = rng.integers(0, queries, size), rng.permutation(size)
    score = rng.choice([-np.inf, -1.5, 0.0, 2.0, 7.25], size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "_UNEVEN", uneven)
        hits = search.sort_hits(query, document, score, queries=queries)
    order = np.lexsort((document, -score, query))
    np.testing.assert_array_equal(hits.documents, document[order])
    np.testing.assert_array_equal(hits.scores, score[order])
    np.testing.assert_array_equal(hits.queries, query[order])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_table_in_hand_is_searched_as_it_lies_where_it_can_be(dtype: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "WINDOW", 3)
    monkeypatch.setattr(search, "_VIEWED", 5)
    table = np.arange(22, dtype=dtype).reshape(11, 2)
    windows = list(search.windows_of(table))
    np.testing.assert_array_equal(np.concatenate(windows), table.astype(np.float32))
    assert [len(window) for window in windows] == ([5, 5, 1] if dtype is np.float32 else [3, 3, 3, 2])
    assert all(np.shares_memory(window, table) == (dtype is np.float32) for window in windows)
    turned = list(search.windows_of(np.asfortranarray(table.astype(np.float32))))
    assert [len(window) for window in turned] == [3, 3, 3, 2], "a view of it would be copied whole"


@pytest.mark.parametrize("together", [1, 60, 1 << 18])
def test_queries_in_groups_find_the_same(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_RESULTS", together)
    numbers = np.random.default_rng(2).integers(-2, 3, size=(230, 6)).astype(np.float32)  # with many ties
    queries, corpus = numbers[:30], numbers[30:]
    wanted = Wanted(np.repeat(np.arange(30), 2), np.tile([3, 150], 30))
    hits = exact_search(queries, [corpus[:70], corpus[70:]], 12, wanted)
    scores = queries.astype(np.float64) @ corpus.T
    for i in range(30):
        found, last = hits.documents[hits.offsets[i] : hits.offsets[i + 1]], np.sort(scores[i])[-12]
        expected = np.lexsort((np.arange(200), -scores[i]))[:12].tolist()
        more = [d for d in (3, 150) if scores[i, d] == last and d not in expected]
        assert found.tolist() == expected + more
        assert len(found) + hits.left_out[i] == (scores[i] >= last).sum()
