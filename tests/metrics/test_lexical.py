"""Character bigrams and partial rank correlations against plain loops, sets and scipy."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.metrics import lexical
from calipers.metrics.bootstrap import grouped
from calipers.metrics.correlation import partial_spearman, partial_spearman_statistic, spearman
from calipers.metrics.lexical import bigrams, containment, jaccard


def plain_set(text: str) -> set[str]:
    text = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return {text[i : i + 2] for i in range(len(text) - 1)}


def plain_jaccard(a: str, b: str) -> float:
    one, other = plain_set(a), plain_set(b)
    return len(one & other) / len(one | other) if one | other else float("nan")


def one(a: str, b: str) -> float:
    return float(jaccard(bigrams([a, b]), np.array([0]), np.array([1]))[0])


class TestJaccard:
    def test_a_case_by_hand(self) -> None:
        # ni ig gh ht and na ac ch ht: one of seven
        assert one("night", "nacht") == pytest.approx(1 / 7)
        # re ed and re ed d␣ ␣m mu ug: two of six
        assert one("red", "RED  mug") == pytest.approx(2 / 6)

    def test_width_and_case_do_not_matter(self) -> None:
        assert one("ﾍｯﾄﾞﾎﾝ ＢＯＳＥ", "ヘッドホン bose") == 1.0
        assert one("STRASSE", "straße") == 1.0

    def test_texts_without_a_bigram(self) -> None:
        assert np.isnan(one("", "x"))
        assert one("", "xy") == 0.0
        assert one("x", "xy") == 0.0
        assert len(jaccard(bigrams([]), np.empty(0, np.int64), np.empty(0, np.int64))) == 0
        assert np.isnan(jaccard(bigrams(["", ""]), np.array([0]), np.array([1]))[0])

    def test_a_pair_over_the_end_of_a_text_is_none(self) -> None:
        assert one("ab", "cd") == 0.0
        assert float(jaccard(bigrams(["ab", "cd", "bc"]), np.array([2]), np.array([0]))[0]) == 0.0

    def test_characters_beyond_the_basic_plane_and_lone_surrogates(self) -> None:
        assert one("𠮷野家", "𠮷野") == pytest.approx(1 / 2)
        assert one("a\ud800b", "a\ud800") == pytest.approx(1 / 2)

    @given(st.lists(st.text(max_size=12), min_size=1, max_size=8))
    def test_any_texts_equal_the_plain_loop(self, texts: list[str]) -> None:
        left, right = (
            np.array(x) for x in zip(*[(i, j) for i in range(len(texts)) for j in range(len(texts))], strict=True)
        )
        expected = [plain_jaccard(texts[i], texts[j]) for i, j in zip(left, right, strict=True)]
        np.testing.assert_allclose(jaccard(bigrams(texts), left, right), expected)

    def test_pairs_in_parts_are_the_same(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rng = np.random.default_rng(0)
        texts = ["".join(rng.choice(list("abcdef "), rng.integers(0, 30))) for _ in range(40)]
        left, right = rng.integers(0, 40, 300), rng.integers(0, 40, 300)
        whole = jaccard(bigrams(texts), left, right)
        monkeypatch.setattr(lexical, "_LOOKED_UP", 7)
        np.testing.assert_array_equal(jaccard(bigrams(texts), left, right), whole)

    def test_containment_is_the_share_of_the_left_text(self) -> None:
        sets = bigrams(["mug", "a mug", "", "plate"])
        result = containment(sets, np.array([0, 1, 2, 0]), np.array([1, 0, 0, 3]))
        np.testing.assert_allclose(result, [1.0, 0.5, np.nan, 0.0])


def by_residuals(x: np.ndarray, y: np.ndarray, *others: np.ndarray) -> float:
    """scipy's ranks, least squares, and the correlation of what is left."""
    from scipy.stats import pearsonr, rankdata

    design = np.column_stack([np.ones(len(x)), *map(rankdata, others)])

    def left(values: np.ndarray) -> np.ndarray:
        ranks = rankdata(values)
        return ranks - design @ np.linalg.lstsq(design, ranks, rcond=None)[0]

    return float(pearsonr(left(x), left(y)).statistic)


class TestPartial:
    @pytest.mark.parametrize("columns", [1, 2, 3])
    def test_it_is_the_correlation_of_residual_ranks(self, columns: int) -> None:
        rng = np.random.default_rng(columns)
        base = rng.normal(size=200)
        others = [(base + rng.normal(size=200)).round(1) for _ in range(columns)]
        x, y = (base + rng.normal(size=200)).round(1), np.clip((base + rng.normal(size=200)).round(), -1, 1)
        assert partial_spearman(x, y, *others) == pytest.approx(by_residuals(x, y, *others), abs=1e-9)

    def test_without_anything_given_it_is_spearman(self) -> None:
        rng = np.random.default_rng(0)
        x, y = rng.normal(size=50), rng.normal(size=50)
        assert partial_spearman(x, y) == spearman(x, y)

    def test_what_is_explained_wholly_leaves_nothing(self) -> None:
        x = np.arange(10.0)
        assert np.isnan(partial_spearman(x, np.arange(10.0) % 3, x**3))
        assert np.isnan(partial_spearman(x, np.ones(10), np.arange(10.0) % 4))

    def test_a_common_cause_is_taken_out(self) -> None:
        rng = np.random.default_rng(1)
        cause = rng.normal(size=4000)
        x, y = cause + rng.normal(size=4000), cause + rng.normal(size=4000)
        assert spearman(x, y) > 0.4
        assert abs(partial_spearman(x, y, cause)) < 0.05

    def test_groups_are_drawn_together(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rng = np.random.default_rng(2)
        x, y, g = rng.normal(size=(3, 60))
        group = np.sort(rng.integers(0, 7, 60))
        counts = rng.integers(1, 4, size=(7, 5))
        monkeypatch.setattr("calipers.metrics.bootstrap._CHUNK_CELLS", 100)
        result = grouped(partial_spearman_statistic(x, y, g), group)(counts)
        for column, value in enumerate(result):
            rows = np.repeat(np.arange(60), counts[group, column])
            assert value == pytest.approx(by_residuals(x[rows], y[rows], g[rows]), abs=1e-9)
