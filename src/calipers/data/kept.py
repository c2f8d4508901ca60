"""Every row of a table as columns while it is read: a million rows are no million objects."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from calipers.core import DataError, Dataset, DataSource, fingerprint
from calipers.core.packed import TextPacker, as_kept, may_repeat
from calipers.data.choose import choose
from calipers.data.columns import Record

_MANY = 100_000  # rows: numbers of fewer are a list


class KeptRows:
    """The ids, places and values of records. Texts are packed, numbers are eight bytes, all else are objects."""

    def __init__(self) -> None:
        self._ids, self._places, self._clusters = TextPacker(), TextPacker(), TextPacker()
        self._columns: dict[str, _Column] = {}
        self._id_column = ""

    def __len__(self) -> int:
        return len(self._ids)

    def append(self, record: Record) -> None:
        if not len(self):
            self._columns = {key: _Column(value) for key, value in record.values.items()}
            self._id_column = record.id_column
        self._ids.append(record.id)
        self._places.append(record.where)
        if record.cluster:  # of all rows or of none
            self._clusters.append(record.cluster)
        for key, value in record.values.items():
            self._columns[key].append(value)

    def finish(self, source: DataSource) -> Dataset:
        """At least one row, with different ids."""
        ids = as_kept(self._ids.finish())
        if may_repeat(ids):
            self._refuse_repeated(ids)
        columns = {key: column.finish() for key, column in self._columns.items()}
        clusters = tuple(self._clusters.finish()) if source.cluster else ()
        return Dataset(ids, columns, source, fingerprint(ids, columns), clusters=clusters)

    def _refuse_repeated(self, ids: Sequence[str]) -> None:
        places, first = self._places.finish(), dict[str, int]()
        for row, id in enumerate(ids):
            if first.setdefault(id, row) != row:
                raise DataError(
                    f"{places[row]}, column {self._id_column!r}: the id {id!r} is already used at "
                    f"{places[first[id]]}; name another column with `columns` id_column=NAME, "
                    "or number the rows with `columns` id_column="
                )


class _Column:
    def __init__(self, first: object) -> None:
        self._texts = TextPacker() if isinstance(first, str) else None
        self._numbers = array("d") if type(first) is float else None
        self._others: list[Any] = []

    def append(self, value: Any) -> None:
        if self._texts is not None and isinstance(value, str):
            self._texts.append(value)
        elif self._numbers is not None and type(value) is float:
            self._numbers.append(value)
        else:
            if self._texts is not None or self._numbers is not None:  # kinds are mixed
                self._others = list(self.finish())
                self._texts = self._numbers = None
            self._others.append(value)

    def finish(self) -> Sequence[Any]:
        if self._texts is not None:
            return self._texts.finish()
        if self._numbers is None:
            return self._others
        return self._numbers if len(self._numbers) > _MANY else self._numbers.tolist()


def keep(records: Iterable[Record], source: DataSource) -> Dataset:
    """The rows that `source` requests and that are not blank, in their order: all, or as `choose` chooses."""
    rows, passed = KeptRows(), _Passed()
    chosen: Iterable[Record] = passed.count(records)
    if source.requested is not None:
        sample = choose(records, source)
        chosen, passed.seen, passed.blank = sample.kept, sample.seen, sample.blank
    for record in chosen:
        rows.append(record)
    if not len(rows):
        said = f": all {passed.seen} rows have a blank text" if passed.seen else ""
        raise DataError(f"{source.path} holds no row to measure{said}")
    return rows.finish(replace(source, rows_read=passed.seen, rows_blank=passed.blank))


class _Passed:
    """How many rows passed, and how many of them are blank."""

    def __init__(self) -> None:
        self.seen = self.blank = 0

    def count(self, records: Iterable[Record]) -> Iterator[Record]:
        """Those that are not blank."""
        for record in records:
            self.seen += 1
            self.blank += record.blank
            if not record.blank:
                yield record
