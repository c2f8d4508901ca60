"""Copies, intrinsic dimension and hubness against brute force, scikit-dimension and scipy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from numpy.typing import NDArray

from calipers.metrics import geometry, neighbours, search

N = 500


@pytest.fixture(scope="module")
def cloud() -> NDArray[np.float32]:
    rng = np.random.default_rng(0)
    return (rng.standard_normal((N, 48)) + 0.3).astype(np.float32)


def everyone(vectors: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    return np.arange(len(vectors)), np.ones(len(vectors), bool)


def plane(n: int, d: int, seed: int = 0) -> NDArray[np.float32]:
    """A piece of a d-dimensional plane in 384 dimensions that misses the origin, and stays so on the sphere."""
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.standard_normal((384, d + 1)))[0].T
    return ((rng.random((n, d)) - 0.5) @ axes[:d] + axes[d]).astype(np.float32)


def test_equal_rows_are_copies_and_nearly_equal_ones_are_not(cloud: NDArray[np.float32]) -> None:
    near = cloud[:1] + np.float32(1e-3)
    rows = np.concatenate([cloud, cloud[3:5], near])
    assert neighbours.first_copies(rows)[N:].tolist() == [3, 4, N + 2]


@pytest.mark.parametrize("scale", [3.0, 1 / 7, 1e20, 1e-25])
def test_copies_are_copies_at_any_length(cloud: NDArray[np.float32], scale: float) -> None:
    rows = np.concatenate([cloud, cloud * np.float32(scale), cloud * np.float32(0.3)])
    assert neighbours.first_copies(rows).tolist() == [*range(N)] * 3


def test_a_row_without_a_direction_has_no_copy(cloud: NDArray[np.float32]) -> None:
    with np.errstate(invalid="ignore"):
        first = neighbours.first_copies(np.concatenate([cloud[:2], 0.0 * cloud[:2], np.full((2, 48), np.nan)]))
    assert first.tolist() == [*range(6)]


def test_all_copies_of_a_crowd_are_recognised() -> None:
    """Vectors 1e-4 apart, each of them twice."""
    crowd = 1.0 + 1e-4 * np.random.default_rng(0).normal(size=(2000, 16)).astype(np.float32)
    both = np.concatenate([crowd, np.float32(1.7) * crowd])
    assert neighbours.first_copies(both).tolist() == [*range(2000)] * 2


def test_two_nn_is_that_of_scikit_dimension(cloud: NDArray[np.float32]) -> None:
    import skdim

    distances = neighbours.two_nearest(cloud, *everyone(cloud))
    vectors = geometry.unit(cloud).astype(np.float64)
    fit = skdim.id.TwoNN(discard_fraction=0.1).fit(vectors).dimension_
    likelihood = skdim.id.TwoNN(discard_fraction=0, method="mle").fit(vectors).dimension_
    assert neighbours.facco_fit(distances).value == pytest.approx(fit, abs=1e-6)
    # theirs is (n − 1) / Σ: unbiased
    assert neighbours.two_nn(distances).value * (N - 1) / N == pytest.approx(likelihood, abs=1e-6)


@pytest.mark.parametrize(("d", "tolerance"), [(1, 0.1), (2, 0.06), (5, 0.08), (10, 0.15)])
def test_the_dimension_of_a_plane_is_found(d: int, tolerance: float) -> None:
    """Beyond ten dimensions 3,000 points of a cube lie at its faces, and any estimate by neighbours falls short."""
    vectors = plane(1000 if d == 1 else 3000, d)
    distances = neighbours.two_nearest(vectors, *everyone(vectors))
    assert neighbours.two_nn(distances).value == pytest.approx(d, rel=tolerance)
    assert neighbours.facco_fit(distances).value == pytest.approx(d, rel=tolerance)


def test_errors_of_the_dimension_are_the_spread_over_new_samples() -> None:
    result = [neighbours.two_nearest(v, *everyone(v)) for v in (plane(400, 3, seed) for seed in range(25))]
    for estimate in (neighbours.two_nn, neighbours.facco_fit):
        values = [estimate(distances) for distances in result]
        spread = np.std([e.value for e in values], ddof=1)
        # neighbours of each other share a distance, so single ratios are not quite independent
        assert 0.6 < np.mean([e.standard_error for e in values]) / spread < 1.4


def test_the_influence_on_the_fit_is_that_of_a_small_weight(cloud: NDArray[np.float32]) -> None:
    """A jackknife that leaves out one ratio at a time spreads the same."""
    distances = neighbours.two_nearest(cloud, *everyone(cloud))
    result = neighbours.facco_fit(distances)
    without = np.array([neighbours.facco_fit(np.delete(distances, i, axis=0)).value for i in range(N)])
    jackknife = np.sqrt((N - 1) / N * ((without - without.mean()) ** 2).sum())
    assert result.standard_error == pytest.approx(jackknife, rel=0.05)


def test_copies_do_not_destroy_the_dimension() -> None:
    vectors = plane(1000, 3)
    twice = np.concatenate([vectors, vectors, vectors[:100]])
    first = neighbours.first_copies(twice)
    rows = np.flatnonzero(first == np.arange(len(twice)))
    alone = neighbours.two_nn(neighbours.two_nearest(vectors, *everyone(vectors)))
    kept = neighbours.two_nn(neighbours.two_nearest(twice, rows, first == np.arange(len(twice))))
    assert kept.value == pytest.approx(alone.value)
    assert kept.count == 1000


def test_copies_up_to_rounding_are_left_out_as_well() -> None:
    vectors = plane(500, 3)
    noisy = np.concatenate([vectors, vectors * (1 + np.float32(1e-6))])
    alone = neighbours.two_nn(neighbours.two_nearest(vectors, *everyone(vectors)))
    result = neighbours.two_nn(neighbours.two_nearest(noisy, *everyone(noisy)))
    assert result.value == pytest.approx(alone.value, rel=1e-3)


def test_too_few_neighbours_have_no_dimension() -> None:
    assert np.isnan(neighbours.two_nn(np.empty((0, 2))).value)
    assert np.isnan(neighbours.two_nn(np.array([[0.0, 1.0], [0.0, 1.0]])).value)
    assert np.isnan(neighbours.facco_fit(np.ones((5, 2))).value)
    assert np.isnan(neighbours.two_nearest(np.eye(2), *everyone(np.eye(2)))).all()


def test_the_scale_curve_of_a_plane_is_flat() -> None:
    vectors = plane(4000, 2)
    curve = neighbours.scale_curve(vectors, np.arange(1000), np.ones(4000, bool))
    assert [point.size for point in curve] == [2000, 1000, 500]
    for point in curve:
        assert abs(point.dimension.value - 2) < 4 * point.dimension.standard_error


def test_hubness_is_that_of_scipy_and_of_the_definition(cloud: NDArray[np.float32]) -> None:
    queries = np.random.default_rng(1).standard_normal((80, 48))
    result = search.nearest(queries, cloud, 10)[1]
    counts = neighbours.retrieval_counts(result, N)
    assert counts.sum() == 800
    assert neighbours.skewness(counts) == pytest.approx(scipy.stats.skew(counts), abs=1e-12)
    assert neighbours.gini(counts) == pytest.approx(np.abs(counts[:, None] - counts).sum() / (2 * N * counts.sum()))
    assert neighbours.never_retrieved(counts) == (counts == 0).sum() / N


@pytest.mark.parametrize("missing", [False, True])
def test_the_influence_of_a_query_is_what_is_lost_without_it(cloud: NDArray[np.float32], missing: bool) -> None:
    queries = np.random.default_rng(1).standard_normal((40, 48))
    result = search.nearest(queries, cloud, 6)[1]
    if missing:
        result[3, 2:] = -1
    figures = (neighbours.skewness, neighbours.gini, neighbours.never_retrieved)
    for estimate, figure in zip(neighbours.hubness(result, N), figures, strict=True):
        without = np.array([figure(neighbours.retrieval_counts(np.delete(result, q, axis=0), N)) for q in range(40)])
        lost = 39 * (without.mean() - without)
        scale = np.abs(estimate.influence).max() / np.abs(lost).max()  # below 1 where the jackknife is too wide
        np.testing.assert_allclose(estimate.influence, scale * lost, atol=1e-9)
        assert 0.3 < scale <= 1.0 + 1e-9
        assert estimate.value == figure(neighbours.retrieval_counts(result, N))


def test_equal_counts_have_no_skewness_and_none_no_gini() -> None:
    assert np.isnan(neighbours.skewness(np.ones(5)))
    assert neighbours.gini(np.ones(5)) == 0
    assert np.isnan(neighbours.gini(np.zeros(5)))


def test_a_random_search_has_the_skewness_of_chance() -> None:
    rng = np.random.default_rng(0)
    result = np.array([rng.choice(2000, 10, replace=False) for _ in range(400)])
    counts = neighbours.retrieval_counts(result, 2000)
    assert neighbours.skewness(counts) == pytest.approx(neighbours.chance_skewness(400, 10, 2000), abs=0.15)


@pytest.mark.parametrize(("queries", "dimensions"), [(200, 8), (600, 64)])
def test_the_errors_of_hubness_are_its_spread_over_other_queries(queries: int, dimensions: int) -> None:
    """The plain jackknife is 1.4 to 2.4 times as wide. 40 draws know the spread to about a tenth."""
    documents = np.random.default_rng(5).normal(size=(1000, dimensions))
    estimates = []
    for seed in range(40):
        drawn = np.random.default_rng([seed, 1]).normal(size=(queries, dimensions))
        rows = search.nearest(drawn, documents, 10)[1]
        estimates.append(neighbours.hubness(rows, len(documents)))
    for figure in zip(*estimates, strict=True):
        spread = np.std([estimate.value for estimate in figure])
        error = np.sqrt(np.mean([estimate.standard_error**2 for estimate in figure]))
        assert 0.7 < error / spread < 1.4
