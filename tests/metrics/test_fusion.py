"""Fusion of two rankings, against a loop in plain Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.metrics.fusion import Fusion, fuse
from calipers.metrics.search import Hits, sort_hits

Lists = list[dict[int, float]]  # per query: document → score
RANKINGS = st.lists(
    st.tuples(*[st.dictionaries(st.integers(0, 12), st.integers(-3, 3).map(float), max_size=9)] * 2), max_size=4
)
FUSIONS = (Fusion(), Fusion(constant=1, depth=3), Fusion(0.7), Fusion(0.0), Fusion(1.0, depth=2))


def hits(lists: Lists) -> Hits:
    rows = [(q, d, s) for q, scores in enumerate(lists) for d, s in scores.items()]
    query, document, score = (np.array([row[i] for row in rows]) for i in range(3))
    return sort_hits(query.astype(np.int64), document.astype(np.int64), score.astype(float), queries=len(lists))


def by_hand(first: dict[int, float], second: dict[int, float], fusion: Fusion) -> list[int]:
    sums: dict[int, float] = {}
    for share, scores in ((fusion.weight, first), (1 - (fusion.weight or 0), second)):
        order = sorted(scores, key=lambda document: (-scores[document], document))[: fusion.depth]
        low, high = (scores[order[-1]], scores[order[0]]) if order else (0, 0)
        for rank, document in enumerate(order, 1):
            if fusion.weight is None:
                part = 1 / (fusion.constant + rank)
            else:
                part = share * ((scores[document] - low) / (high - low) if high > low else 1)
            sums[document] = sums.get(document, 0.0) + part
    return sorted(sums, key=lambda document: (-sums[document], document))


@given(RANKINGS, st.sampled_from(FUSIONS))
def test_the_order_is_the_one_of_a_loop(lists: list[tuple[dict[int, float], dict[int, float]]], fusion: Fusion) -> None:
    fused = fuse(hits([a for a, _ in lists]), hits([b for _, b in lists]), fusion)
    parts = np.split(fused.documents, fused.offsets[1:-1]) if lists else []
    assert [part.tolist() for part in parts] == [by_hand(a, b, fusion) for a, b in lists]
    for part in np.split(fused.scores, fused.offsets[1:-1]):
        assert (np.diff(part) < 0).all()  # no two results of a query tie


def test_scores_by_hand() -> None:
    one, two = hits([{4: 0.9, 2: 0.5}]), hits([{2: 30.0, 7: 10.0, 9: 10.0}])
    fused = fuse(one, two, Fusion())
    assert fused.documents.tolist() == [2, 4, 7, 9]
    assert fused.scores.tolist() == pytest.approx([1 / 62 + 1 / 61, 1 / 61, 1 / 62, 1 / 63], abs=1e-15)
