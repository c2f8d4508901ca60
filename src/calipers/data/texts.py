"""Texts with ids: the one reader of corpora, queries and other lists of texts.

A row has a `text`, a `title` if there is one, and an id in `_id` or `id`. Rows of plain text files, and others without
an id, are numbered where the reader allows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from calipers.core import DataError, Dataset, DataSource, fingerprint
from calipers.core.packed import TextPacker, as_kept, may_repeat
from calipers.data import readers
from calipers.data.columns import read_id, read_text
from calipers.data.readers import Row

Notice = Callable[[str, Mapping[str, Any]], None]  # called with the id and the columns of every text that is kept


@dataclass(frozen=True)
class TextRows:
    """Rows that are read anew at each pass. `name` is for messages; `first_number` is the number of the first row,
    None where every row must have an id."""

    rows: Callable[[], Iterator[Row]]
    name: str
    first_number: int | None = None

    def identified(self) -> Iterator[tuple[str, Row]]:
        """Every row with its id, as it is stored."""
        for number, row in enumerate(self.rows(), start=self.first_number or 0):
            column = next((name for name in ("_id", "id") if name in row.values), None)
            numbered = column is None and self.first_number is not None
            yield str(number) if numbered else read_id(row, column or "_id"), row

    def stored(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        return ((id, row.values) for id, row in self.identified())

    def unique(self) -> Iterator[tuple[str, Row]]:
        """The same; a repeated id is an error that names both places."""
        seen: dict[str, int] = {}
        for number, (id, row) in enumerate(self.identified()):
            first = seen.setdefault(id, number)
            if first != number:
                before = next(islice(self.rows(), first, None)).where
                raise DataError(f"{row.where}: the id {id!r} is already used at {before}")
            yield id, row

    def load(self, notice: Notice | None = None) -> Dataset:
        """The texts that are not blank, in the column `text`. Other columns are not kept: see `Dataset.read_again`."""
        ids, texts, blank = TextPacker(), TextPacker(), list[str]()
        for id, row in self.identified():
            if text := read_passage(row):
                ids.append(id)
                texts.append(text)
                if notice:
                    notice(id, row.values)
            else:
                blank.append(id)
        if not len(ids):
            raise DataError(f"{self.name} holds no text")
        kept, values = as_kept(ids.finish()), {"text": texts.finish()}
        if may_repeat(chain(kept, blank)):
            self.refuse_repeated()
        source = DataSource(path=self.name, rows_read=len(kept) + len(blank), rows_blank=len(blank))
        return Dataset(kept, values, source, fingerprint(kept, values), read_again=self.stored)

    def refuse_repeated(self) -> None:
        for _ in self.unique():
            pass


def read_required_text(row: Row) -> str:
    """The value of `text`; a row without that column is an error."""
    if "text" not in row.values:
        raise DataError(f"{row.where}: there is no 'text'; found {', '.join(map(str, row.values)) or 'nothing'}")
    return read_text(row.values["text"], row, "text")


def read_passage(row: Row) -> str:
    """Title, a space and text, as in BEIR; the text alone where there is no title."""
    return f"{read_text(row.values.get('title'), row, 'title')} {read_required_text(row)}".strip()


def title_length(values: Mapping[str, Any]) -> int:
    """How many characters at the start of the passage of these columns are its title; 0 where there is none.

    >>> title_length({"title": " Red mug ", "text": "It holds 300 ml."}), title_length({"text": "A mug."})
    (7, 0)
    """
    title = values.get("title")
    return len(title.strip()) if isinstance(title, str) else 0


def file_rows(file: Path, *, first_number: int | None = None, name: str | None = None) -> TextRows:
    return TextRows(lambda: readers.read(file, None), name or str(file), first_number)


def find_file(folder: Path, name: str) -> Path | None:
    """`name`.jsonl of a folder, compressed or not."""
    return next((f for f in (folder / f"{name}.jsonl", folder / f"{name}.jsonl.gz") if f.is_file()), None)


def open_texts(reference: str, name: str) -> TextRows:
    """The texts of a file, or of `name`.jsonl in a folder. Rows without an id are numbered from 0, as all rows are."""
    place = readers.to_path(reference)
    file = find_file(place, name) if place.is_dir() else place
    if file is None:
        raise DataError(f"the folder {place} has no {name}.jsonl")
    return file_rows(file, first_number=0, name=reference)


def load_texts(reference: str, name: str) -> Dataset:
    return open_texts(reference, name).load()
