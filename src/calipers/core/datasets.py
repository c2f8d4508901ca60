"""Datasets: rows as named columns, where they came from, and their fingerprint."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple


@dataclass(frozen=True)
class Column:
    """A column that a task reads. `key` is its name for the task, `default` its usual name in the data."""

    key: str
    default: str
    kind: Literal["text", "number", "label", "texts", "documents"]
    about: str
    optional: bool = False


@dataclass(frozen=True)
class Document:
    """A text that may be ranked, and how relevant it is where the data say so."""

    text: str
    id: str | None = None
    relevance: float | None = None


@dataclass(frozen=True)
class DataSource:
    """Where the rows came from, and how they were chosen."""

    path: str
    name: str | None = None
    split: str | None = None
    revision: str | None = None
    requested: int | None = None  # how many rows; None: every row
    shuffle: bool = True
    seed: int = 42
    streaming: bool = False
    cluster: str | None = None  # the column whose equal values are drawn together
    columns_mapping: Mapping[str, str] = field(default_factory=dict)
    rows_read: int = 0
    rows_blank: int = 0


class Listed(NamedTuple):
    """Listed by their ids: what a ranker is given."""

    ids: Sequence[str]
    texts: Sequence[str]


@dataclass(frozen=True)
class Dataset:
    """Rows as named columns (by column key), an id for each, and a fingerprint of both.

    `tables` are further rows that all of these refer to, such as the corpus of a search; the fingerprint covers them.
    `counts` are facts about the reading. `read_again` yields the rows as they are stored, (id, all columns), blank rows
    included: columns that a task does not read are not kept.
    """

    ids: Sequence[str]  # a tuple, or packed texts of many rows
    columns: Mapping[str, Sequence[Any]]
    source: DataSource
    fingerprint: str
    tables: Mapping[str, Dataset] = field(default_factory=dict)
    counts: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # what a reader should be warned of
    clusters: tuple[str, ...] = ()  # the source of each row, where rows of one source are drawn together
    read_again: Callable[[], Iterator[tuple[str, Mapping[str, Any]]]] | None = field(
        default=None, compare=False, repr=False
    )

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Sequence[int]) -> Dataset:
        """A dataset of these rows, in this order, with a fingerprint of its own."""
        ids = tuple(self.ids[i] for i in rows)
        columns = {key: [values[i] for i in rows] for key, values in self.columns.items()}
        return Dataset(
            ids,
            columns,
            self.source,
            fingerprint(ids, columns, self.tables),
            self.tables,
            self.counts,
            clusters=tuple(self.clusters[i] for i in rows) if self.clusters else (),
        )


def fingerprint(
    ids: Sequence[str], columns: Mapping[str, Sequence[Any]], tables: Mapping[str, Dataset] | None = None
) -> str:
    """SHA-256 over ids and values, row by row, then over the fingerprints of the tables that the rows refer to; not
    over where the columns came from and what they were called."""
    total = hashlib.sha256()
    for row in zip(ids, *columns.values(), strict=True):
        total.update(json.dumps(row, ensure_ascii=True, sort_keys=True, default=vars).encode() + b"\n")
    for table in (tables or {}).values():
        total.update(table.fingerprint.encode() + b"\n")
    return f"sha256:{total.hexdigest()}"


_WHOLE = re.compile(r"[+-]?\d+(\.0*)?", re.ASCII)
_MOST_CLASSES = 2**31  # a larger number is no class


def read_class(value: str | float) -> str | int | None:
    """A class number, also where a table wrote it with decimals; else a name; None for what is neither.

    >>> read_class("1.0"), read_class(" -2 "), read_class("--5"), read_class("1.5"), read_class(float("nan"))
    (1, -2, '--5', '1.5', None)
    """
    if isinstance(value, str) and not _WHOLE.fullmatch(value.strip()):
        return value.strip() or None
    number = float(value) if isinstance(value, str) or abs(value) < _MOST_CLASSES else math.nan
    return int(number) if abs(number) < _MOST_CLASSES and number.is_integer() else None
