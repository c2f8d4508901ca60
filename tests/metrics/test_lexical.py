"""Character bigrams against plain loops and sets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.metrics import lexical
from calipers.metrics.lexical import bigrams, containment, jaccard
from tests.support.references import plain_jaccard


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
