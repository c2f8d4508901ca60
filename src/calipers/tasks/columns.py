"""Columns that several tasks read or make: their declaration, the ids of their texts, and means over tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from calipers.core import Column, Columns, Dataset, Statistic
from calipers.metrics.means import ratio_statistic

TEXT = Column("input_column", "text", "text", "the text")
QUERY = Column("query_column", "query", "text", "the query")
PAIR = (
    Column("input_column_1", "sentence1", "text", "the first text"),
    Column("input_column_2", "sentence2", "text", "the second text"),
)


def text_ids(dataset: Dataset) -> Mapping[str, Sequence[str]]:
    """Text → the ids that its vector may be stored under: of every row that has it."""
    stored: dict[str, list[str]] = {}
    for id, text in zip(dataset.ids, dataset.columns[TEXT.key], strict=True):
        stored.setdefault(text, []).append(id)
    return stored


def pair_ids(dataset: Dataset) -> Mapping[str, Sequence[str]]:
    return ids_by_side(*((str(side), dataset.ids, dataset.columns[PAIR[side - 1].key]) for side in (1, 2)))


def ids_by_side(*sides: tuple[str, Sequence[str], Sequence[str]]) -> Mapping[str, Sequence[str]]:
    """Ids as ID/SIDE, for sides (name, ids, texts).

    >>> ids_by_side(("1", ["a"], ["x"]), ("2", ["a"], ["x"]))
    {'x': ['a/1', 'a/2']}
    """
    stored: dict[str, list[str]] = {}
    for side, ids, texts in sides:
        for id, text in zip(ids, texts, strict=True):
            stored.setdefault(text, []).append(f"{id}/{side}")
    return stored


def per_token(column: str, *, sign: float = 1.0) -> Callable[[Columns], Statistic]:
    """The sum of an outcome column over the number of tokens, times `sign`."""
    return lambda columns: ratio_statistic(sign * columns[column], columns["tokens"])
