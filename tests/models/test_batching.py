"""How texts are put into batches."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from calipers.models.batching import Batching, plan

BUDGET = 256


@given(lengths=st.lists(st.integers(1, 600), max_size=200), most_rows=st.none() | st.integers(1, 9))
def test_every_row_is_in_one_batch_and_no_batch_is_beyond_the_budget(lengths: list[int], most_rows: int | None) -> None:
    array = np.array(lengths, np.int64)
    batches = plan(array, Batching(BUDGET, None, "", most_rows=most_rows))
    assert sorted(row for batch in batches for row in batch.tolist()) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * array[batch].max() <= BUDGET
        assert len(batch) <= (most_rows or len(batch))
    heads = [array[batch].max() for batch in batches]
    assert heads == sorted(heads, reverse=True)


def test_the_last_batches_are_smaller_unless_a_size_is_requested() -> None:
    lengths = np.full(1_000, 16)
    sizes = [len(batch) for batch in plan(lengths, Batching(BUDGET, None, ""))]
    assert sizes[:50] == [16] * 50
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes[-4:]) == 4
    requested = [len(batch) for batch in plan(lengths, Batching(BUDGET, None, "", forced=True))]
    assert requested == [16] * 62 + [8]


def test_batches_of_one_length() -> None:
    lengths = np.array([3, 5, 3, 5, 3])
    batches = plan(lengths, Batching(BUDGET, None, "", equal_lengths=True, forced=True))
    assert [batch.tolist() for batch in batches] == [[1, 3], [0, 2, 4]]
