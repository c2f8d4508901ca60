"""How often each query was asked, where the file of queries says so in a column `count` or `frequency`."""

from __future__ import annotations

from pathlib import Path

from calipers.core import DataError, DataSource
from calipers.data import beir_parts, columns, readers

COLUMNS = ("count", "frequency")


def load(*, dataset: str | None, queries: str | None, source: DataSource) -> tuple[str, dict[str, float]] | None:
    """The column's name, and its number by query id; None where there is no such column. A row that leaves it empty
    is left out; a negative number is an error."""
    rows = _rows(dataset, queries, source)
    name, found = None, {}
    for number, row in enumerate(rows):
        name = name or next((column for column in COLUMNS if column in row.values), None)
        if name is None:
            return None
        value = row.values.get(name)
        if value in (None, ""):
            continue
        count = columns.read_number(value, row, name)
        if count < 0:
            raise DataError(f"{row.where}, column {name!r}: a query cannot be asked {count:g} times")
        id = next((row.values[key] for key in ("_id", "id") if key in row.values), number)
        found[str(id)] = float(count)
    return (name, found) if name and found else None


def _rows(dataset: str | None, queries: str | None, source: DataSource) -> list[readers.Row]:
    if queries:
        return list(readers.read(Path(queries).expanduser(), None))
    if dataset is None or Path(dataset).expanduser().is_file():  # a table of pairs has no row per query
        return []
    parts = beir_parts.find(dataset, source.name, source.split, source.revision)
    return list(parts.queries())
