"""Tables of pictures: the cone and its points of reference against plain numpy, and a map that says what it keeps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from calipers.diagnosis.layers import PairVectors, Space, Texts, shapes

Array = NDArray[Any]


def unit(rows: Array) -> Array:
    wide = np.asarray(rows, np.float64)
    return np.asarray(wide / np.linalg.norm(wide, axis=1, keepdims=True))


def texts(name: str, vectors: Array) -> Texts:
    return Texts(tuple(f"{name}{i}" for i in range(len(vectors))), [name] * len(vectors), vectors)


@pytest.fixture(scope="module")
def space() -> Space:
    rng = np.random.default_rng(3)
    shared = rng.standard_normal(24) * 2
    documents = (rng.standard_normal((300, 24)) + shared).astype(np.float32)
    queries = (documents[:40] + rng.standard_normal((40, 24))).astype(np.float32)
    return Space(texts("d", documents), texts("q", queries), [{f"d{i}": 1.0, "d299": 0.0} for i in range(40)])


def tables(space: Space) -> dict[str, Any]:
    return dict(shapes.tables(space, alpha=2.0, t=2.0, seed=1))


def test_the_cone_has_every_positive_pair_and_the_mean_of_all_pairs(space: Space) -> None:
    cone = tables(space)["cone"]
    assert (cone["random"].sum(), cone["positive"].sum()) == (20_000, 40)
    middles = cone["low"] + 0.025
    cosines = unit(space.corpus.vectors) @ unit(space.corpus.vectors).T
    mean = (cosines.sum() - 300) / (300 * 299)
    assert (cone["random"] * middles).sum() / 20_000 == pytest.approx(mean, abs=0.01)
    assert space.queries is not None
    own = np.sum(unit(space.queries.vectors) * unit(space.corpus.vectors[:40]), axis=1)
    assert cone["positive"].tolist() == np.histogram(own, np.linspace(-1, 1, 41))[0].tolist()


def test_pairs_that_are_given_come_before_judgements(space: Space) -> None:
    left = space.corpus.vectors[:7]
    given = Space(space.corpus, pairs=PairVectors(tuple("abcdefg"), left, left))
    assert tables(given)["cone"]["positive"].tolist() == [0] * 39 + [7]


def test_points_of_reference(space: Space) -> None:
    rows = {name: (x, y) for name, x, y in zip(*tables(space)["references"].values(), strict=True)}
    assert rows["all at one point"] == (0.0, 0.0)
    drawn = unit(np.random.default_rng(0).standard_normal((2000, 24)))
    apart = 2 - 2 * (drawn @ drawn.T)[np.triu_indices(2000, 1)]
    assert rows["random directions"] == pytest.approx((np.log(np.exp(-2 * apart).mean()), apart.mean()), abs=0.01)
    documents = unit(space.corpus.vectors)
    moved = unit(documents - documents.mean(axis=0))
    apart = 2 - 2 * (moved @ moved.T)[np.triu_indices(300, 1)]
    assert space.queries is not None
    asked = unit(unit(space.queries.vectors) - documents.mean(axis=0))
    aligned = np.square(asked - moved[:40]).sum(axis=1).mean()
    assert rows["mean removed"] == pytest.approx((np.log(np.exp(-2 * apart).mean()), aligned), abs=1e-5)


def test_without_positive_pairs_there_are_still_references(space: Space) -> None:
    made = tables(Space(space.corpus))
    assert made["references"]["name"].tolist() == ["all at one point", "random directions"]
    assert not made["cone"]["positive"].any()


def test_a_flat_space_is_kept_whole_and_a_deep_one_is_not(space: Space) -> None:
    rng = np.random.default_rng(0)
    turns = rng.uniform(0, 1.2, (120, 1))
    flat = np.concatenate([np.cos(turns), np.sin(turns), np.zeros((120, 6))], axis=1)
    succeeds = np.array([1.0, 0.0, np.nan])
    table, kept = shapes.project(flat, flat[:3], succeeds, seed=0)
    assert kept > 0.97
    assert table["kind"].tolist() == ["document"] * 120 + ["succeeds", "fails", "query"]
    np.testing.assert_allclose(table["x"][:3], table["x"][120:], atol=1e-6)
    deep = rng.standard_normal((400, 64))
    _, kept = shapes.project(deep, deep[:3], succeeds, seed=0)
    assert kept < 0.15


def test_a_map_of_three_documents_makes_no_claim() -> None:
    three = np.eye(3)
    _, kept = shapes.project(three, three[:1], np.array([1.0]), seed=0)
    assert 0 <= kept <= 1
    _, kept = shapes.project(three[:2], three[:1], np.array([1.0]), seed=0)
    assert np.isnan(kept)
