"""Alignment, uniformity, anisotropy and principal directions against closed forms and plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.distance import pdist, squareform
from scipy.special import logsumexp

from calipers.metrics import geometry

N = 500


def unit(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    wide = rows.astype(np.float64)
    return wide / np.linalg.norm(wide, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def cloud() -> NDArray[np.float32]:
    """500 vectors of different lengths around a mean that is not zero."""
    rng = np.random.default_rng(0)
    return (rng.standard_normal((N, 48)) * rng.lognormal(size=(N, 1)) + 0.3).astype(np.float32)


@pytest.mark.parametrize("t", [0.5, 2.0, 10.0])
def test_uniformity_is_that_of_a_plain_loop(cloud: NDArray[np.float32], t: float) -> None:
    squares = pdist(unit(cloud), "sqeuclidean")
    expected = logsumexp(-t * squares) - np.log(len(squares))
    assert geometry.uniformity(cloud, t=t).value == pytest.approx(expected, abs=1e-7)


def test_uniformity_does_not_depend_on_blocks(cloud: NDArray[np.float32], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = geometry.uniformity(cloud)
    monkeypatch.setattr(geometry, "_BLOCK", 37)
    parts = geometry.uniformity(cloud)
    assert parts.value == pytest.approx(whole.value, abs=1e-7)
    np.testing.assert_allclose(parts.influence, whole.influence, atol=1e-5)


def test_uniformity_of_far_vectors_does_not_underflow() -> None:
    assert geometry.uniformity(np.eye(5), t=1000.0).value == pytest.approx(-2000.0, rel=1e-6)


def test_uniformity_of_one_point_is_zero_and_of_one_vector_unknown() -> None:
    assert geometry.uniformity(np.ones((10, 7))).value == pytest.approx(0.0, abs=1e-6)
    assert np.isnan(geometry.uniformity(np.ones((1, 7))).value)


def test_uniformity_of_the_uniform_sphere_has_its_closed_form() -> None:
    """On S² the inner product of two random points is uniform, so E exp(−4(1 − s)) = (1 − e⁻⁸) / 8."""
    sphere = np.random.default_rng(1).standard_normal((6000, 3))
    result = geometry.uniformity(sphere)
    assert abs(result.value - np.log((1 - np.exp(-8.0)) / 8)) < 4 * max(result.standard_error, 2e-4)


@pytest.mark.parametrize("k", [2, 5, 20])
def test_orthogonal_clusters_have_closed_forms(k: int) -> None:
    """k points, m copies of each: a pair is one point with probability (m − 1) / (km − 1), else orthogonal."""
    m = 10
    vectors = np.repeat(np.eye(k), m, axis=0)
    same = (m - 1) / (k * m - 1)
    rows = np.arange(len(vectors))
    result = geometry.moments(vectors)
    assert geometry.uniformity(vectors).value == pytest.approx(np.log(same + (1 - same) * np.exp(-4)), abs=1e-6)
    assert geometry.anisotropy(vectors, result, rows).value == pytest.approx(same, abs=1e-12)
    assert geometry.used_directions(result) == k - 1
    assert geometry.principal_share(vectors, result, rows, top=1).value == pytest.approx(1 / (k - 1))


def test_anisotropy_is_that_of_a_plain_loop(cloud: NDArray[np.float32]) -> None:
    cosines = unit(cloud) @ unit(cloud).T
    result = geometry.anisotropy(cloud, geometry.moments(cloud), np.arange(N))
    assert result.value == pytest.approx(cosines[~np.eye(N, dtype=bool)].mean(), abs=1e-6)


def test_centred_anisotropy_is_that_of_a_plain_loop(cloud: NDArray[np.float32]) -> None:
    moved = unit(cloud) - unit(cloud).mean(axis=0)
    moved /= np.linalg.norm(moved, axis=1, keepdims=True)
    result = geometry.centred_anisotropy(cloud, geometry.moments(cloud), np.arange(N))
    assert result.value == pytest.approx((moved @ moved.T)[~np.eye(N, dtype=bool)].mean(), abs=1e-6)


def test_one_point_has_anisotropy_one_and_no_variance() -> None:
    vectors, rows = np.ones((50, 8)), np.arange(50)
    result = geometry.moments(vectors)
    assert geometry.anisotropy(vectors, result, rows).value == pytest.approx(1.0, abs=1e-6)
    assert np.isnan(geometry.centred_anisotropy(vectors, result, rows).value)
    assert np.isnan(geometry.principal_share(vectors, result, rows, top=1).value)


@pytest.mark.parametrize("top", [1, 10])
def test_principal_shares_are_those_of_the_covariance(cloud: NDArray[np.float32], top: int) -> None:
    variances = np.linalg.eigvalsh(np.cov(unit(cloud).T))[::-1]
    result = geometry.principal_share(cloud, geometry.moments(cloud), np.arange(N), top=top)
    assert result.value == pytest.approx(variances[:top].sum() / variances.sum(), abs=1e-9)


@pytest.mark.parametrize("d", [2, 10, 100])
def test_used_directions_of_a_plane_are_its_dimension(d: int) -> None:
    rng = np.random.default_rng(2)
    plane = rng.standard_normal((1000, d)) @ rng.standard_normal((d, 384))
    assert geometry.used_directions(geometry.moments(plane.astype(np.float32))) == d


@pytest.mark.parametrize("alpha", [1.0, 2.0])
def test_alignment_is_the_mean_distance_of_pairs(cloud: NDArray[np.float32], alpha: float) -> None:
    table = squareform(pdist(unit(cloud)))
    expected = np.mean([table[i, i + 1] ** alpha for i in range(N - 1)])
    assert geometry.alignment(cloud[:-1], cloud[1:], alpha=alpha).value == pytest.approx(expected, abs=1e-6)
    assert geometry.alignment(cloud, cloud * 3).value == pytest.approx(0.0, abs=1e-12)
    assert np.isnan(geometry.alignment(cloud[:0], cloud[:0]).value)


def test_standard_errors_are_the_spread_over_new_samples() -> None:
    """The same population, drawn 60 times: what each draw says of its error is what the draws show."""
    rng = np.random.default_rng(3)
    scales = np.linspace(0.3, 1.5, 12)
    values: dict[str, list[float]] = {}
    errors: dict[str, list[float]] = {}
    rows = np.arange(300)
    for _ in range(60):
        vectors = rng.standard_normal((300, 12)) * scales + 0.7
        result = geometry.moments(vectors)
        for name, estimate in {
            "anisotropy": geometry.anisotropy(vectors, result, rows),
            "uniformity": geometry.uniformity(vectors),
            "share": geometry.principal_share(vectors, result, rows, top=2),
        }.items():
            values.setdefault(name, []).append(estimate.value)
            errors.setdefault(name, []).append(estimate.standard_error)
    for name in values:
        assert np.mean(errors[name]) / np.std(values[name], ddof=1) == pytest.approx(1.0, abs=0.3), name


def test_a_sample_of_rows_gives_the_same_error_and_contributions_of_the_same_mean(cloud: NDArray[np.float32]) -> None:
    whole = geometry.uniformity(cloud)
    part = whole.only(np.arange(0, N, 5))
    assert part.contributions.mean() == pytest.approx(whole.value, abs=1e-12)
    assert part.contributions.std(ddof=1) / np.sqrt(len(part.rows)) == pytest.approx(part.standard_error)
    assert part.standard_error == pytest.approx(whole.standard_error, rel=0.2)


def test_a_sampled_uniformity_is_within_its_error_of_the_exact_one(cloud: NDArray[np.float32]) -> None:
    exact = geometry.uniformity(cloud).value
    sampled = [geometry.uniformity(cloud, rows=geometry.sample(N, 150, seed=s)) for s in range(20)]
    inside = [abs(result.value - exact) < 2 * result.standard_error for result in sampled]
    assert not any(result.exact for result in sampled)
    assert np.mean(inside) >= 0.9


def test_unit_vectors_are_rounded_once(cloud: NDArray[np.float32]) -> None:
    np.testing.assert_array_equal(geometry.unit(cloud), unit(cloud).astype(np.float32))


def test_rows_without_a_direction_are_found() -> None:
    vectors = np.array([[1.0, 0.0], [0.0, 0.0], [np.nan, 1.0], [np.inf, 0.0]])
    length = geometry.norms(vectors)
    assert length[0] == 1
    assert length[1] == 0
    assert not np.isfinite(length[2:]).any()


# --- magnitudes ----------------------------------------------------------------------------------------------------

SCALES = [1.0, 2.0**70, 2.0**-70, 2.0**120, 2.0**-100, 1e20, 1e-25]


@pytest.mark.parametrize("scale", SCALES)
def test_a_direction_does_not_depend_on_the_length(scale: float) -> None:
    rows = np.random.default_rng(0).normal(size=(20, 8)).astype(np.float32)
    moved = (rows * np.float32(scale)).astype(np.float32)
    for make in (geometry.unit, geometry.unit_or_zero, geometry.unit_like):
        tolerance = 0 if np.log2(scale) % 1 == 0 else 2e-7  # a power of two keeps every bit
        np.testing.assert_allclose(make(moved), make(rows), rtol=0, atol=tolerance)
    np.testing.assert_allclose(geometry.norms(moved), geometry.norms(rows) * scale, rtol=1e-6)


def test_rows_of_all_lengths_stand_beside_each_other() -> None:
    rows = np.array([[3e30, 4e30], [3.0, 4.0], [3e-30, 4e-30], [3e-44, 0.0], [0.0, 0.0]], np.float32)
    expected = [[0.6, 0.8]] * 3 + [[1.0, 0.0], [0.0, 0.0]]
    np.testing.assert_allclose(geometry.unit_or_zero(rows), expected, atol=1e-7)
    np.testing.assert_allclose(geometry.unit_like(rows), expected, atol=1e-7)
    np.testing.assert_allclose(geometry.norms(rows), [5e30, 5.0, 5e-30, 3e-44, 0.0], rtol=2e-2)
    assert rows[0, 0] == np.float32(3e30)  # the caller's array is as it was


def test_float64_of_any_size_is_taken() -> None:
    rows = np.array([[3e200, 4e200], [3e-200, 4e-200]])
    for make in (geometry.unit, geometry.unit_or_zero, geometry.unit_like):
        np.testing.assert_allclose(make(rows), [[0.6, 0.8]] * 2, atol=1e-7)
    np.testing.assert_allclose(geometry.norms(rows), [5e200, 5e-200])


@pytest.mark.parametrize("kind", ["one long axis", "two equal axes", "clusters"])
def test_the_error_of_the_first_share_is_its_spread_over_other_texts(kind: str) -> None:
    """The plain error is 1.25 times as wide for two equal axes, and 1.4 times for clusters."""
    scales = {"one long axis": np.r_[4, np.ones(31)], "two equal axes": np.r_[3, 3, np.ones(30)]}
    centres = 2 * np.random.default_rng(0).normal(size=(20, 32))
    estimates = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=(300, 32)) * scales.get(kind, 1.0)
        rows += centres[rng.integers(0, 20, 300)] if kind == "clusters" else 0.0
        cloud = geometry.moments(rows)
        estimates.append(geometry.principal_share(rows, cloud, np.arange(300), top=1))
    spread = np.std([estimate.value for estimate in estimates])
    error = np.sqrt(np.mean([estimate.standard_error**2 for estimate in estimates]))
    assert 0.87 < error / spread < 1.25


@pytest.mark.parametrize("top", [1, 2, 8])
def test_more_directions_than_there_are_hold_all_of_the_variance(top: int) -> None:
    rows = np.random.default_rng(0).normal(size=(30, 2))
    share = geometry.principal_share(rows, geometry.moments(rows), np.arange(30), top=top)
    assert share.value == pytest.approx(1.0) if top > 1 else share.value < 1
    assert np.isfinite(share.standard_error)
