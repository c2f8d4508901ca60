"""Rows as they were read to rows as a task needs them: named, typed and checked, with the place in every error."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calipers.core import Column, DataError, Document, RequestError
from calipers.core.datasets import read_class
from calipers.core.errors import boundary, quote
from calipers.data.readers import Row

ID_COLUMN = "id_column"
_COMMA = re.compile(r"-?\d+,\d+")
_USUAL_IDS = ("id", "_id", "query_id")


@dataclass(frozen=True)
class Record:
    """A row of a task. `values` are by column key; `where` and `id_column` are for messages."""

    id: str
    where: str
    values: Mapping[str, Any]
    blank: bool
    id_column: str = "_id"
    cluster: str = ""


def map_columns(columns: Sequence[Column], mapping: Mapping[str, str]) -> dict[str, str]:
    """Column key → name in the data, the user's names over the defaults."""
    keys = [*(column.key for column in columns), ID_COLUMN]
    for key in mapping:
        if key not in keys:
            raise RequestError(f"`columns` {key}=… is not a column of this task: it has {', '.join(keys)}")
    names = {column.key: mapping.get(column.key, column.default) for column in columns}
    return {**names, ID_COLUMN: mapping[ID_COLUMN]} if ID_COLUMN in mapping else names


def records(
    rows: Iterator[Row], columns: Sequence[Column], names: Mapping[str, str], cluster: str | None = None
) -> Iterator[Record]:
    """Rows with the values of `columns`, found under `names`; the first row decides which column holds the ids, and
    `cluster` names the one with the source of a row."""
    id_column: str | None = None
    for number, row in enumerate(rows):
        if number == 0:
            id_column = id_column_of(row, names)
        if row.values and all(value is None or value == "" for value in row.values.values()):
            yield Record("", row.where, {}, blank=True)
            continue
        with boundary(DataError, row.where):
            values = {column.key: _value(row, column, names[column.key]) for column in columns}
        yield Record(
            id=str(number) if id_column is None else read_id(row, id_column),
            where=row.where,
            values=values,
            blank=any(column.kind == "text" and not str(values[column.key]).strip() for column in columns),
            id_column=id_column or "",
            cluster=read_id(row, cluster) if cluster else "",
        )


def id_column_of(first: Row, names: Mapping[str, str]) -> str | None:
    """The column that holds the ids, by the first row; None where rows are numbered."""
    return names.get(ID_COLUMN, next((name for name in _USUAL_IDS if name in first.values), "")) or None


def read_id(row: Row, name: str) -> str:
    """The id in this column, as text; without one the row is refused."""
    id = row.values.get(name)
    if id is None or id == "":
        if name not in row.values:
            raise DataError(f"{row.where}: there is no column {name!r}; found {', '.join(map(str, row.values))}")
        raise _unexpected(row, name, "an id", None)
    return read_text(str(id), row, name)


def _value(row: Row, column: Column, name: str) -> object:
    if name not in row.values:
        if column.optional:
            return None
        raise DataError(
            f"{row.where}: there is no column {name!r}; found {', '.join(map(str, row.values)) or 'none'} "
            f"(name another one with `columns` {column.key}=NAME)"
        )
    return _READERS[column.kind](row.values[name], row, name)


def read_text(value: object, row: Row, name: str) -> str:
    """A value of this column that must be a text; nothing is an empty one."""
    if value is None:
        return ""  # a missing text is a blank one: skipped and counted
    if not isinstance(value, str):
        raise _unexpected(row, name, "a text", value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise DataError(f"{row.where}, column {name!r}: expected Unicode text, found half a surrogate pair") from None
    return value


def read_number(value: Any, row: Row, name: str) -> float:
    """A value of this column that must be a finite number, or a text that is one."""
    try:
        if isinstance(value, bool):
            raise TypeError
        if isinstance(value, str) and "_" in value:
            raise ValueError  # Python reads 1_0 as ten
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        comma = " (write decimals with a point)" if isinstance(value, str) and _COMMA.fullmatch(value.strip()) else ""
        raise _unexpected(row, name, "a number", value, comma) from None
    if not math.isfinite(number):
        raise _unexpected(row, name, "a finite number", value)
    return number


def _label(value: object, row: Row, name: str) -> str | int:
    """A class: its name or its number."""
    label = read_class(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else None
    if label is None:
        raise _unexpected(row, name, "a label (a name or a whole number)", value)
    return label


def _texts(value: object, row: Row, name: str) -> list[str]:
    """A list of texts; a single text is a list of one, nothing is an empty list."""
    if value is None:
        return []
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list):
        raise _unexpected(row, name, "a text or a list of texts", value)
    return [read_text(item, row, name) for item in items]


def _documents(value: object, row: Row, name: str) -> list[Document]:
    """A list of texts, or of objects with `text` and, if known, `id` and `relevance`."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise _unexpected(row, name, "a list of documents", value)
    return [_document(item, row, f"{name}[{i}]") for i, item in enumerate(value)]


def _document(value: object, row: Row, name: str) -> Document:
    if isinstance(value, str):
        return Document(read_text(value, row, name))
    if not isinstance(value, dict) or "text" not in value:
        raise _unexpected(row, name, "a text or an object with text", value)
    title, text = value.get("title"), read_text(value["text"], row, name)
    relevance = value.get("relevance")
    return Document(
        text=f"{title} {text}".strip() if title else text,
        id=None if value.get("id") is None else str(value["id"]),
        relevance=None if relevance is None else read_number(relevance, row, f"{name}.relevance"),
    )


_READERS: dict[str, Callable[[object, Row, str], object]] = {
    "text": read_text,
    "number": read_number,
    "label": _label,
    "texts": _texts,
    "documents": _documents,
}


def _unexpected(row: Row, name: str, expected: str, value: object, hint: str = "") -> DataError:
    shown = "nothing" if value is None or value == "" else quote(value)
    return DataError(f"{row.where}, column {name!r}: expected {expected}, found {shown}{hint}")
