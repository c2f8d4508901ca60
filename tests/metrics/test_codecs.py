"""Codecs: hand-computed codes, plain loops, packing, and dead or constant input."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from calipers.metrics import codecs
from calipers.metrics.codecs import CODECS, Codec, stability

RNG = np.random.default_rng(7)
CORPUS = (RNG.normal(size=(600, 24)) + 0.2).astype(np.float32)
QUERIES = (RNG.normal(size=(40, 24)) + 0.2).astype(np.float32)
TABLES = {"low": np.array([0.0, -1.0], np.float32), "step": np.array([0.1, 0.5], np.float32)}


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def test_int8_by_hand() -> None:
    codec = Codec("int8", 2, TABLES)
    codes = codec.encode(np.array([[3.0, 4.0], [-1.0, 0.0]]))  # 0.6 and 0.8 are 6 and 3.6 steps; -1 is clipped, 0 is 2
    assert codes.tolist() == [[6, 4], [0, 2]]
    assert codec.decode(codes).tolist() == pytest.approx(np.array([[0.6, 1.0], [0.0, 0.0]]))
    assert stability(np.array([[3.0, 4.0]]), codec)[0] == pytest.approx((0.36 + 0.8) / np.hypot(0.6, 1.0))


def test_int4_packs_two_dimensions_into_a_byte() -> None:
    tables = {"low": np.zeros(3, np.float32), "step": np.full(3, 0.1, np.float32)}
    codec = Codec("int4", 3, tables)
    codes = codec.encode(np.array([[0.6, 0.0, 0.8]]))
    assert codes.tolist() == [[0x60, 0x80]]
    assert codec.decode(codes)[0].tolist() == pytest.approx([0.6, 0.0, 0.8])


def test_int4_clips_at_fifteen() -> None:
    codec = Codec("int4", 2, {"low": np.zeros(2, np.float32), "step": np.full(2, 0.01, np.float32)})
    assert codec.encode(np.array([[0.6, 0.8]])).tolist() == [[0xFF]]


def test_binary_is_the_sign_and_decodes_to_the_mean_of_its_side() -> None:
    codec = codecs.fit("binary", np.array([[0.6, 0.8], [0.8, -0.6], [-1.0, 0.0]]))
    assert codec.tables["sides"].tolist() == pytest.approx(np.array([[-1.0, -0.3], [0.7, 0.8]]))
    codes = codec.encode(np.array([[0.5, -2.0]]))
    assert codes.tolist() == [[0b10000000]]
    assert codec.decode(codes)[0].tolist() == pytest.approx([0.7, -0.3])


def test_a_side_that_the_corpus_lacks_mirrors_the_other() -> None:
    codec = codecs.fit("binary", np.array([[0.6, 0.8], [0.8, 0.6]]))
    assert codec.tables["sides"].tolist() == pytest.approx(np.array([[-0.7, -0.7], [0.7, 0.7]]))


def test_pq_takes_the_nearest_centroid_of_each_part() -> None:
    codec = codecs.fit("pq", CORPUS)
    centroids = codec.tables["centroids"]
    assert centroids.shape == (3, 256, 8)
    rows = unit(QUERIES)
    nearest = [
        [int(((rows[i, 8 * p : 8 * p + 8] - centroids[p]) ** 2).sum(axis=1).argmin()) for p in range(3)]
        for i in range(len(rows))
    ]
    assert codec.encode(QUERIES).tolist() == nearest
    assert codec.decode(codec.encode(QUERIES))[0].tolist() == centroids[np.arange(3), nearest[0]].ravel().tolist()


@pytest.mark.parametrize(("rows", "dimensions", "shape"), [(1, 8, (1, 1, 8)), (5, 6, (1, 5, 6)), (300, 7, (1, 256, 7))])
def test_pq_of_small_or_odd_corpora(rows: int, dimensions: int, shape: tuple[int, ...]) -> None:
    codec = codecs.fit("pq", RNG.normal(size=(rows, dimensions)))
    assert codec.tables["centroids"].shape == shape


def test_pq_is_exact_where_every_vector_has_its_centroid() -> None:
    few = CORPUS[:50]
    assert stability(few, codecs.fit("pq", few)) == pytest.approx(np.ones(50), abs=1e-6)


def test_pq_of_a_prime_number_of_dimensions_has_parts_of_one() -> None:
    codec = codecs.fit("pq", RNG.normal(size=(300, 11)))
    assert codec.tables["centroids"].shape == (11, 256, 1)


def test_ranges_are_percentiles_of_each_dimension() -> None:
    for name, low, high, levels in (("int8", 0.1, 99.9, 255), ("int4", 1, 99, 15)):
        tables = codecs.fit(name, CORPUS).tables
        wanted = np.percentile(unit(CORPUS), [low, high], axis=0)
        assert tables["low"] == pytest.approx(wanted[0], abs=1e-6)
        assert tables["low"] + levels * tables["step"] == pytest.approx(wanted[1], abs=1e-5)


@pytest.mark.parametrize("name", CODECS)
def test_stability_against_a_plain_loop(name: str) -> None:
    codec = codecs.fit(name, CORPUS)
    decoded = codec.decode(codec.encode(QUERIES))
    expected = [cosine(np.float64(x), np.float64(y)) for x, y in zip(QUERIES, decoded, strict=True)]
    assert stability(QUERIES, codec) == pytest.approx(expected, abs=1e-6)


def test_more_bits_keep_more() -> None:
    kept = {name: float(stability(QUERIES, codecs.fit(name, CORPUS)).mean()) for name in CODECS}
    assert 1.0 >= kept["fp16"] > kept["int8"] > kept["int4"] > kept["binary"] > 0.7
    assert {name: codecs.fit(name, CORPUS).bits for name in CODECS} == pytest.approx(
        {"fp16": 16, "int8": 8, "int4": 4, "binary": 1, "pq": 1}
    )


@pytest.mark.parametrize("name", CODECS)
def test_the_length_of_a_vector_does_not_matter(name: str) -> None:
    codec = codecs.fit(name, CORPUS)
    assert stability(QUERIES * 1000, codec) == pytest.approx(stability(QUERIES, codec), abs=1e-6)


@pytest.mark.parametrize("name", CODECS)
def test_a_vector_without_a_direction_has_no_stability(name: str) -> None:
    codec = codecs.fit(name, CORPUS)
    dead = np.stack([np.zeros(24), np.full(24, np.nan), np.full(24, np.inf), CORPUS[0]])
    assert np.isnan(stability(dead, codec)).tolist() == [True, True, True, False]


@pytest.mark.parametrize("name", CODECS)
def test_a_constant_corpus_is_kept_as_it_is(name: str) -> None:
    codec = codecs.fit(name, np.ones((20, 24)))
    assert stability(np.ones((1, 24)), codec) == pytest.approx([1.0], abs=1e-6)


@pytest.mark.parametrize("name", CODECS)
def test_no_queries_have_no_stabilities(name: str) -> None:
    assert stability(QUERIES[:0], codecs.fit(name, CORPUS)).shape == (0,)


@pytest.mark.parametrize("name", CODECS)
def test_the_same_seed_gives_the_same_codec(name: str) -> None:
    one, two = codecs.fit(name, CORPUS, seed=3), codecs.fit(name, CORPUS, seed=3)
    assert all((one.tables[key] == two.tables[key]).all() for key in one.tables)


def test_one_at_a_time_is_the_same_as_all_at_once() -> None:
    for name in CODECS:
        codec = codecs.fit(name, CORPUS)
        alone = np.concatenate([stability(QUERIES[i : i + 1], codec) for i in range(len(QUERIES))])
        assert np.abs(alone - stability(QUERIES, codec)).max() < 1e-6


def test_rounding_never_leaves_the_range_of_a_cosine() -> None:
    values = stability(np.repeat(CORPUS[:1], 5000, axis=0), codecs.fit("fp16", CORPUS))
    assert values.max() <= 1.0
    assert all(a == b for a, b in pairwise(values[:50]))


def test_dead_rows_of_the_corpus_are_left_out() -> None:
    with_dead = np.concatenate([CORPUS, np.zeros((3, 24)), np.full((2, 24), np.nan)])
    assert np.isfinite(codecs.fit("binary", with_dead).tables["sides"]).all()


def test_what_cannot_be_fitted_is_refused() -> None:
    with pytest.raises(ValueError, match="no codec 'zip': expected fp16, int8"):
        codecs.fit("zip", CORPUS)
    with pytest.raises(ValueError, match="at least one vector"):
        codecs.fit("int8", np.zeros((4, 3)))
