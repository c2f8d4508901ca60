"""Rows as they were read to rows as a task wants them: named, typed and checked, with the place in every error."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calipers.core import Column, DataError, RequestError
from calipers.data.readers import Row

ID_COLUMN = "id_column"
_USUAL_IDS = ("id", "_id")


@dataclass(frozen=True)
class Record:
    id: str
    id_column: str
    where: str
    values: Mapping[str, Any]
    blank: bool


def map_columns(columns: Sequence[Column], mapping: Mapping[str, str]) -> dict[str, str]:
    """Column key → name in the data, the user's names over the defaults."""
    keys = [column.key for column in columns]
    unknown = [key for key in mapping if key not in (*keys, ID_COLUMN)]
    if unknown:
        raise RequestError(
            f"--column {unknown[0]}=… is not a column of this task: it has {', '.join([*keys, ID_COLUMN])}"
        )
    named = {column.key: mapping.get(column.key, column.default) for column in columns}
    return {**named, ID_COLUMN: mapping[ID_COLUMN]} if ID_COLUMN in mapping else named


def records(rows: Iterator[Row], columns: Sequence[Column], named: Mapping[str, str]) -> Iterator[Record]:
    id_column = None
    for number, row in enumerate(rows):
        if number == 0:
            id_column = _find_id_column(row, named)
        if row.values and all(value is None or value == "" for value in row.values.values()):
            yield Record(id="", id_column=id_column or "", where=row.where, values={}, blank=True)
            continue
        values = {column.key: _value(row, column, named[column.key]) for column in columns}
        yield Record(
            id=str(number) if id_column is None else _id(row, id_column),
            id_column=id_column or "",
            where=row.where,
            values=values,
            blank=any(column.kind == "text" and not str(values[column.key]).strip() for column in columns),
        )


def _find_id_column(row: Row, named: Mapping[str, str]) -> str | None:
    wished = named.get(ID_COLUMN)
    if wished == "":
        return None
    if wished is not None:
        return wished
    return next((name for name in _USUAL_IDS if name in row.values), None)


def _id(row: Row, name: str) -> str:
    found = row.values.get(name)
    if found is None or found == "":
        if name not in row.values:
            raise DataError(f"{row.where}: there is no column {name!r}; found {', '.join(map(str, row.values))}")
        raise DataError(f"{row.where}, column {name!r}: expected an id, found nothing")
    return str(found)


def _value(row: Row, column: Column, name: str) -> str | float:
    if name not in row.values:
        raise DataError(
            f"{row.where}: there is no column {name!r}; found {', '.join(map(str, row.values)) or 'none'} "
            f"(--column {column.key}=NAME says which to use)"
        )
    found = row.values[name]
    return _text(found, row, name) if column.kind == "text" else _number(found, row, name)


def _text(found: Any, row: Row, name: str) -> str:
    if found is None:
        return ""  # a missing text is a blank one: skipped and counted
    if not isinstance(found, str):
        raise DataError(f"{row.where}, column {name!r}: expected a text, found {_show(found)}")
    try:
        found.encode()
    except UnicodeEncodeError:
        raise DataError(f"{row.where}, column {name!r}: expected Unicode text, found half a surrogate pair") from None
    return found


def _number(found: Any, row: Row, name: str) -> float:
    try:
        if isinstance(found, bool):
            raise TypeError
        if isinstance(found, str) and "_" in found:
            raise ValueError  # Python reads 1_0 as ten
        number = float(found)
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"{row.where}, column {name!r}: expected a number, found {_show(found)}") from None
    if not math.isfinite(number):
        raise DataError(f"{row.where}, column {name!r}: expected a finite number, found {_show(found)}")
    return number


def _show(found: Any) -> str:
    text = "nothing" if found is None or found == "" else repr(found)
    return text if len(text) <= 60 else f"{text[:57]}…"
