"""The parts of a trust score: by hand, against plain loops, and at the edges."""

from __future__ import annotations

import numpy as np
import pytest

from calipers.metrics import codecs, trust
from calipers.metrics.trust import coherence, parts, parts_in, reliability, success

RNG = np.random.default_rng(3)
CORPUS = RNG.normal(size=(200, 16)) + 0.3
QUERIES = RNG.normal(size=(30, 16)) + 0.3
ROWS = RNG.integers(0, 200, size=(30, 10))
CODEC = codecs.fit("int8", CORPUS)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def loop(query: np.ndarray, neighbours: np.ndarray) -> tuple[float, float, float, float, float]:
    """One query, as the formulas read."""
    stored = CODEC.decode(CODEC.encode(query[None]))[0].astype(float)
    g = cosine(query, stored)
    k = len(neighbours)
    pairs = [cosine(neighbours[i], neighbours[j]) for i in range(k) for j in range(i + 1, k)]
    i = sum(pairs) / len(pairs)
    scores = [cosine(query, x) for x in neighbours]
    r = 2 / (1 / g + 1 / i) if g > 0 and i > 0 else 0.0
    return g, i, r, max(scores), max(scores) - min(scores)


def test_every_part_against_a_plain_loop() -> None:
    found = parts(QUERIES, CORPUS[ROWS], CODEC)
    expected = np.array([loop(q, CORPUS[rows]) for q, rows in zip(QUERIES, ROWS, strict=True)])
    for column, name in enumerate(("stability", "coherence", "reliability", "top_score", "margin")):
        assert getattr(found, name) == pytest.approx(expected[:, column], abs=1e-6), name


def test_rows_of_a_corpus_give_the_same_as_their_vectors() -> None:
    one, two = parts(QUERIES, CORPUS[ROWS], CODEC), parts_in(QUERIES, CORPUS, ROWS, CODEC)
    assert (one.features == two.features).all()
    assert (one.reliability == two.reliability).all()


def test_coherence_by_hand() -> None:
    corner = np.array([[[2.0, 0.0], [0.0, 5.0]]])
    same = np.ones((1, 10, 3))
    against = np.array([[[1.0, 0.0], [-3.0, 0.0]]])
    assert coherence(corner).tolist() == [0.0]
    assert coherence(same)[0] == pytest.approx(1.0, abs=1e-12)
    assert coherence(same)[0] <= 1.0
    assert coherence(against).tolist() == [-1.0]


def test_coherence_of_three_corners_of_a_triangle_is_minus_a_half() -> None:
    angles = np.array([0, 2, 4]) * np.pi / 3
    assert coherence(np.stack([np.cos(angles), np.sin(angles)], axis=1)[None])[0] == pytest.approx(-0.5)


def test_reliability_by_hand() -> None:
    g, i = np.array([1.0, 0.8, 0.0, 0.5, -0.2]), np.array([1.0, 0.4, 0.7, -0.1, -0.3])
    assert reliability(g, i).tolist() == pytest.approx([1.0, 2 * 0.32 / 1.2, 0.0, 0.0, 0.0])


def test_a_part_that_is_unknown_makes_the_reliability_unknown() -> None:
    assert np.isnan(reliability(np.array([np.nan, 0.5]), np.array([0.5, np.nan]))).all()


def test_a_query_without_a_direction_has_no_stability_and_no_scores() -> None:
    found = parts(np.zeros((1, 16)), CORPUS[ROWS[:1]], CODEC)
    assert np.isnan([found.stability[0], found.reliability[0], found.top_score[0], found.margin[0]]).all()
    assert np.isfinite(found.coherence[0])


@pytest.mark.parametrize("bad", [0.0, np.nan, np.inf])
def test_a_dead_neighbour_makes_the_coherence_unknown(bad: float) -> None:
    neighbours = CORPUS[ROWS[:2]].copy()
    neighbours[0, 3] = bad
    found = coherence(neighbours)
    assert np.isnan(found).tolist() == [True, False]


@pytest.mark.parametrize("there", [0, 1, 2, 9])
def test_fewer_neighbours_than_k(there: int) -> None:
    known = np.zeros((1, 10), bool)
    known[0, :there] = True
    neighbours = np.where(known[:, :, None], CORPUS[ROWS[:1]], np.nan)  # what is not there may hold anything
    found = parts(QUERIES[:1], neighbours, CODEC, present=known)
    if there > 1:
        expected = loop(QUERIES[0], CORPUS[ROWS[0, :there]])
        got = [found.stability[0], found.coherence[0], found.reliability[0], found.top_score[0], found.margin[0]]
        assert got == pytest.approx(expected, abs=1e-6)
    else:
        assert np.isnan([found.coherence[0], found.reliability[0], found.margin[0]]).all()
        assert np.isnan(found.top_score[0]) == (there == 0)
        assert not found.complete[0]


def test_missing_rows_are_minus_one() -> None:
    rows = ROWS[:1].copy()
    rows[0, 4:] = -1
    found = parts_in(QUERIES[:1], CORPUS, rows, CODEC)
    assert found.coherence[0] == pytest.approx(loop(QUERIES[0], CORPUS[ROWS[0, :4]])[1])


def test_the_order_of_neighbours_does_not_matter() -> None:
    turned = parts(QUERIES, CORPUS[ROWS[:, ::-1]], CODEC)
    assert turned.features == pytest.approx(parts(QUERIES, CORPUS[ROWS], CODEC).features, abs=1e-12)


def test_neither_batches_nor_lengths_change_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = parts(QUERIES, CORPUS[ROWS], CODEC).features
    assert parts(QUERIES * 7, CORPUS[ROWS] * 0.01, CODEC).features == pytest.approx(whole, abs=1e-6)
    monkeypatch.setattr(trust, "_CELLS", 500)
    assert (parts(QUERIES, CORPUS[ROWS], CODEC).features == whole).all()


def test_no_queries_have_no_parts() -> None:
    found = parts(QUERIES[:0], CORPUS[ROWS[:0]], CODEC)
    assert len(found) == 0
    assert found.features.shape == (0, 4)
    assert coherence(CORPUS[ROWS[:0]]).shape == (0,)


def test_no_neighbours_at_all() -> None:
    found = parts(QUERIES[:2], np.empty((2, 0, 16)), CODEC)
    assert np.isfinite(found.stability).all()
    assert np.isnan(found.features[:, 1:]).all()


def test_success_by_hand() -> None:
    rows = np.array([[0, 1], [1, 2], [2, -1], [0, 1], [0, 1]])
    qrels: list[dict[str, float]] = [{"b": 1}, {"a": 3}, {"c": 0, "a": 2}, {}, {"gone": 2}]
    found = success(rows, qrels, ["a", "b", "c"])
    assert found.tolist()[:3] + found.tolist()[4:] == [1.0, 0.0, 0.0, 0.0]
    assert np.isnan(found[3])


def test_success_counts_grades_from_a_level_on() -> None:
    assert success(np.array([[0]]), [{"a": 1}], ["a"], relevant_from=2).tolist() == [0.0]
    assert success(np.array([[-1]]), [{"a": 1}], ["a"]).tolist() == [0.0]


@pytest.mark.parametrize("scale", [1e-200, 1e-25, 1e20, 1e200])
def test_the_parts_do_not_depend_on_lengths(scale: float) -> None:
    expected, result = parts(QUERIES, CORPUS[ROWS], CODEC), parts(QUERIES * scale, CORPUS[ROWS] * scale, CODEC)
    np.testing.assert_allclose(result.features, expected.features, atol=1e-6)
