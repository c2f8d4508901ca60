"""Columns that several tasks read or make: their declaration, the ids of their texts, and means over tokens."""

from __future__ import annotations

from collections.abc import Callable

from calipers.core import Column, Columns, Dataset, Statistic
from calipers.core.text_ids import TextIds
from calipers.metrics.means import ratio_statistic

TEXT = Column("input_column", "text", "text", "the text")
QUERY = Column("query_column", "query", "text", "the query")
PAIR = (
    Column("input_column_1", "sentence1", "text", "the first text"),
    Column("input_column_2", "sentence2", "text", "the second text"),
)


def text_ids(dataset: Dataset) -> TextIds:
    """Text → the ids that its vector may be stored under: of every row that has it."""
    return TextIds(("", dataset.ids, dataset.columns[TEXT.key]))


def pair_ids(dataset: Dataset) -> TextIds:
    return TextIds(*((str(side), dataset.ids, dataset.columns[PAIR[side - 1].key]) for side in (1, 2)))


def per_token(column: str, *, sign: float = 1.0) -> Callable[[Columns], Statistic]:
    """The sum of an outcome column over the number of tokens, times `sign`."""
    return lambda columns: ratio_statistic(sign * columns[column], columns["tokens"])
