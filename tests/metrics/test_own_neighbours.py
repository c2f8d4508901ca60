"""The search by bounds against float64 brute force and against the search that takes all products."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from calipers.metrics import geometry, neighbours, own_neighbours, search
from calipers.metrics.own_neighbours import PairSearch, Turn, choose_turn, two_nearest_others
from calipers.metrics.threads import at_most

Vectors = NDArray[np.float32]
Space = Callable[[int], Vectors]  # so many rows of it
D = 48


def clusters(n: int, centres: int = 40, spread: float = 0.5, seed: int = 0) -> Vectors:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((centres, D))[rng.integers(0, centres, n)]
    return (rows + spread * rng.standard_normal((n, D)) * np.geomspace(1, 0.1, D)).astype(np.float32)


def isotropic(n: int) -> Vectors:
    return np.random.default_rng(1).standard_normal((n, D)).astype(np.float32)


def cone(n: int) -> Vectors:
    return isotropic(n) + np.float32(8.0)


def collapsed(n: int) -> Vectors:
    return np.float32(1.0) + np.float32(1e-4) * isotropic(n)


def decaying(n: int) -> Vectors:
    """Heads that hold nearly all."""
    return isotropic(n) * np.geomspace(1, 1e-3, D).astype(np.float32)


def line(n: int) -> Vectors:
    """Tails without any length."""
    return np.stack([np.cos(np.arange(n)), np.sin(np.arange(n)), *np.zeros((D - 2, n))], axis=1).astype(np.float32)


def equal(n: int) -> Vectors:
    return np.repeat(clusters(-(-n // 3)), 3, axis=0)[:n]


SPACES = [clusters, isotropic, cone, collapsed, decaying, line, equal]


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of a few rows, so that small spaces have many."""
    sizes = {"_HELD": 300 * D, "_WINDOW": 130, "_QUERIES": 32, "_ROWS": 48, "_PAIRS": 64, "_SEED": 100, "_KEPT": 500}
    for name, size in sizes.items():
        monkeypatch.setattr(own_neighbours, name, size)


def turn_of(vectors: Vectors, head: int) -> Turn:
    rows = geometry.unit(vectors).astype(np.float64)
    return Turn(np.linalg.eigh(rows.T @ rows)[1][:, ::-1].astype(np.float32), head)


def two_nearest(vectors: Vectors, rows: NDArray[np.int64], head: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """As the module searches, with heads of a length that is given."""
    asked = PairSearch(vectors, rows, turn_of(vectors, head), most=len(vectors))
    asked.among(np.setdiff1d(np.arange(len(vectors)), rows))
    asked.among_own()
    return asked.settle()


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("head", [1, 12, 47])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.usefixtures("tiny")
def test_distances_are_those_of_all_products(space: Space, head: int, threads: int) -> None:
    vectors = space(700)
    rows = np.sort(geometry.sample(700, 290, seed=2))
    with at_most(threads):
        distances, sure = two_nearest(vectors, rows, head)
    np.testing.assert_array_equal(distances[sure], search.nearest_own(vectors, rows, 2)[0][sure])
    assert space is collapsed or sure.mean() > 0.95


@pytest.mark.parametrize("space", SPACES)
def test_distances_are_those_of_float64(space: Space) -> None:
    vectors, rows = space(400), np.arange(0, 400, 2)
    distances, sure = two_nearest(vectors, rows, 16)
    units = geometry.unit(vectors).astype(np.float64)
    gaps = np.linalg.norm(units[rows, None] - units[None], axis=2)
    gaps[np.arange(len(rows)), rows] = np.inf
    np.testing.assert_allclose(distances[sure], np.sort(gaps, axis=1)[sure, :2], atol=1e-12)


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("m", [1, 2, 31, 32, 33, 100, 299, 700])
def test_any_number_of_rows_searches(m: int) -> None:
    vectors, rows = clusters(700), np.sort(geometry.sample(700, m, seed=3))
    distances, sure = two_nearest(vectors, rows, 24)
    assert sure.mean() > 0.95
    np.testing.assert_array_equal(distances[sure], search.nearest_own(vectors, rows, 2)[0][sure])


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_few_rows(n: int) -> None:
    vectors = clusters(n)
    distances, sure = two_nearest(vectors, np.arange(n), 24)
    assert sure.tolist() == [n > 2] * n
    np.testing.assert_array_equal(distances[sure], search.nearest_own(vectors, np.arange(n), 2)[0][sure])


def test_a_row_without_a_direction_is_found_by_none_and_finds_none() -> None:
    vectors = clusters(300)
    with np.errstate(invalid="ignore"):
        turn = turn_of(vectors, 24)
        vectors[7] = 0
        asked = PairSearch(vectors, np.arange(150), turn, most=300)
        asked.among(np.arange(150, 300))
        asked.among_own()
        distances, sure = asked.settle()
    assert np.flatnonzero(~sure).tolist() == [7]
    rest = np.delete(vectors, 7, axis=0)
    np.testing.assert_array_equal(distances[sure], search.nearest_own(rest, np.arange(149), 2)[0])


@pytest.mark.usefixtures("tiny")
def test_only_allowed_rows_are_found_and_groups_find_each_other() -> None:
    vectors = decaying(900)
    allowed = np.random.default_rng(4).random(900) < 0.8
    rows = np.flatnonzero(allowed)
    distances, sure = two_nearest_others(vectors, rows, allowed)
    assert sure.mean() > 0.95
    np.testing.assert_array_equal(distances[sure], search.nearest_own(vectors, rows, 2, allowed=allowed)[0][sure])


def test_a_space_in_which_rounding_decides_is_left_to_all_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_neighbours, "_LOOKED", 50)
    sure = two_nearest(collapsed(2000), np.arange(2000), 24)[1]
    assert not sure.any()


def test_bounds_that_do_not_pay_are_not_taken() -> None:
    assert choose_turn(isotropic(3000), np.arange(3000)) is None
    assert choose_turn(isotropic(2), np.arange(2)) is None
    turn = choose_turn(decaying(3000), np.arange(3000))
    assert turn is not None
    assert turn.head < D // 2


@pytest.mark.parametrize("space", SPACES)
def test_two_nearest_are_the_same_by_either_search(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    """What copies are and what has no two neighbours does not depend on the search."""
    vectors = np.concatenate([space(800), space(30), np.float32(1 + 1e-6) * space(60)])
    rows, allowed = np.arange(len(vectors)), np.ones(len(vectors), bool)
    expected = neighbours.two_nearest(vectors, rows, allowed)
    monkeypatch.setattr(neighbours, "_MANY", 0)
    np.testing.assert_array_equal(neighbours.two_nearest(vectors, rows, allowed), expected)


@pytest.mark.parametrize("space", SPACES)
def test_the_scale_curve_is_the_same_by_either_search(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, allowed = space(4200), np.arange(4200) % 20 > 0
    expected = neighbours.scale_curve(vectors, np.arange(300), allowed)
    monkeypatch.setattr(neighbours, "_MANY", 1 << 18)  # only the larger levels
    curve = neighbours.scale_curve(vectors, np.arange(300), allowed)
    assert [point.size for point in curve] == [point.size for point in expected]
    for point, other in zip(curve, expected, strict=True):
        np.testing.assert_array_equal(point.dimension.value, other.dimension.value)


def test_rows_that_are_not_allowed_do_not_find_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, rows, allowed = decaying(600), np.arange(200), np.arange(600) >= 100
    expected = neighbours.two_nearest(vectors, rows, allowed)
    monkeypatch.setattr(neighbours, "_MANY", 0)
    np.testing.assert_array_equal(neighbours.two_nearest(vectors, rows, allowed), expected)
