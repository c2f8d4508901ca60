"""Rows as they were read to rows as a task wants them: named, typed and checked, with the place in every error."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calipers.core import Column, DataError, Document, RequestError
from calipers.data.readers import Row

ID_COLUMN = "id_column"
_COMMA = re.compile(r"-?\d+,\d+")
_USUAL_IDS = ("id", "_id", "query_id")


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
            id=str(number) if id_column is None else read_id(row, id_column),
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


def read_id(row: Row, name: str) -> str:
    """The id in this column, as text; without one the row is refused."""
    found = row.values.get(name)
    if found is None or found == "":
        if name not in row.values:
            raise DataError(f"{row.where}: there is no column {name!r}; found {', '.join(map(str, row.values))}")
        raise DataError(f"{row.where}, column {name!r}: expected an id, found nothing")
    return str(found)


def _value(row: Row, column: Column, name: str) -> Any:
    if name not in row.values:
        if column.optional:
            return None
        raise DataError(
            f"{row.where}: there is no column {name!r}; found {', '.join(map(str, row.values)) or 'none'} "
            f"(--column {column.key}=NAME says which to use)"
        )
    found = row.values[name]
    return _READERS[column.kind](found, row, name)


def read_text(found: Any, row: Row, name: str) -> str:
    """A value of this column that must be a text; nothing is an empty one."""
    if found is None:
        return ""  # a missing text is a blank one: skipped and counted
    if not isinstance(found, str):
        raise DataError(f"{row.where}, column {name!r}: expected a text, found {_show(found)}")
    try:
        found.encode()
    except UnicodeEncodeError:
        raise DataError(f"{row.where}, column {name!r}: expected Unicode text, found half a surrogate pair") from None
    return found


def read_number(found: Any, row: Row, name: str) -> float:
    """A value of this column that must be a finite number, or a text that is one."""
    try:
        if isinstance(found, bool):
            raise TypeError
        if isinstance(found, str) and "_" in found:
            raise ValueError  # Python reads 1_0 as ten
        number = float(found)
    except (TypeError, ValueError, OverflowError):
        comma = " (write decimals with a point)" if isinstance(found, str) and _COMMA.fullmatch(found.strip()) else ""
        raise DataError(f"{row.where}, column {name!r}: expected a number, found {_show(found)}{comma}") from None
    if not math.isfinite(number):
        raise DataError(f"{row.where}, column {name!r}: expected a finite number, found {_show(found)}")
    return number


def _label(found: Any, row: Row, name: str) -> str | int:
    """A class: its name or its number."""
    if isinstance(found, str) and found.strip():
        return int(found) if found.strip().lstrip("-").isdigit() else found.strip()
    if isinstance(found, (int, float)) and not isinstance(found, bool) and found == int(found):
        return int(found)
    raise DataError(f"{row.where}, column {name!r}: expected a label (a name or a whole number), found {_show(found)}")


def _texts(found: Any, row: Row, name: str) -> list[str]:
    """A list of texts; a single text is a list of one, nothing is an empty list."""
    if found is None:
        return []
    items = [found] if isinstance(found, str) else found
    if not isinstance(items, list):
        raise DataError(f"{row.where}, column {name!r}: expected a text or a list of texts, found {_show(found)}")
    return [read_text(item, row, name) for item in items]


def _documents(found: Any, row: Row, name: str) -> list[Document]:
    """A list of texts, or of objects with `text` and, if known, `id` and `relevance`."""
    if found is None:
        return []
    if not isinstance(found, list):
        raise DataError(f"{row.where}, column {name!r}: expected a list of documents, found {_show(found)}")
    return [_document(item, row, f"{name}[{i}]") for i, item in enumerate(found)]


def _document(found: Any, row: Row, name: str) -> Document:
    if isinstance(found, str):
        return Document(read_text(found, row, name))
    if not isinstance(found, dict) or "text" not in found:
        raise DataError(f"{row.where}, column {name!r}: expected a text or an object with text, found {_show(found)}")
    title, text = found.get("title"), read_text(found["text"], row, name)
    relevance = found.get("relevance")
    return Document(
        text=f"{title} {text}".strip() if title else text,
        id=None if found.get("id") is None else str(found["id"]),
        relevance=None if relevance is None else read_number(relevance, row, f"{name}.relevance"),
    )


_READERS: dict[str, Callable[[Any, Row, str], Any]] = {
    "text": read_text,
    "number": read_number,
    "label": _label,
    "texts": _texts,
    "documents": _documents,
}


def _show(found: Any) -> str:
    text = "nothing" if found is None or found == "" else repr(found)
    return text if len(text) <= 60 else f"{text[:57]}…"
