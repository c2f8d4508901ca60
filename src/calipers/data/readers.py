"""Files to rows. Every row keeps its place, for the message of an error that may come later."""

from __future__ import annotations

import csv
import io
import re
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from calipers.core import DataError
from calipers.core.errors import explain, quote
from calipers.core.inputs import check_input, expand, expect_object, limits, open_input, parse_json, refuse_above

CHOOSE_SPLIT = " (choose one with `split`)"
_MOST_LINES, _MOST_CELL = 100, 100_000  # lines of a quoted cell in a TSV, and its characters
_BLANK, _FEW = ("\n", "\r\n", "\r"), 1_000
_NOT_UTF8 = re.compile("[\udc80-\udcff]")


@dataclass(frozen=True)
class Row:
    where: str  # "pairs.csv, line 7"
    values: Mapping[str, Any]


def to_path(reference: str) -> Path:
    return expand(reference)


def choose_split(path: Path, split: str | None) -> str | None:
    """The split that is read from a folder; a file is a split only if its name says so (`test.jsonl`)."""
    if path.is_dir():
        return usual_split(split, _splits(_data_files(path)))
    if split not in (None, *_splits([path])):
        raise DataError(f"`split` is {split!r}, and {path} is one file of another name: name the file of that split")
    return split


def usual_split(split: str | None, names: Sequence[str]) -> str:
    """This split, else the only one there is, else test."""
    return split or (names[0] if len(names) == 1 else "test")


def read(path: Path, split: str | None) -> Generator[Row, None, None]:
    """The rows of a file, or of the files of a split in a folder."""
    for file in _files(path, split) if path.is_dir() else [path]:
        reader = _READERS.get(_ending(file))
        if reader is None:
            raise DataError(f"{file} has an unknown format: expected {', '.join(_READERS)}")
        yield from reader(file)


def looks_like_a_path(reference: str) -> bool:
    """Whether a reference that is not there was meant as a file: hub ids have one slash and no such ending."""
    starts, ends = reference.startswith((".", "/", "~")), reference.lower().endswith(tuple(_READERS))
    return starts or ends or reference.count("/") > 1


def _data_files(folder: Path) -> list[Path]:
    files = sorted(f for f in (*folder.glob("*"), *folder.glob("data/*")) if f.is_file() and _ending(f) in _READERS)
    if not files:
        raise DataError(f"the folder {folder} holds no data: expected files {', '.join(_READERS)}")
    return files


def _files(folder: Path, split: str | None) -> list[Path]:
    """The data files of a folder whose name begins with the split."""
    files = _data_files(folder)
    splits = _splits(files)
    split = usual_split(split, splits)
    chosen = [f for f in files if re.fullmatch(rf"{re.escape(split)}([-_.]\d.*)?", _stem(f))]
    if not chosen:
        raise DataError(f"the folder {folder} has no split {split!r}: it has {', '.join(splits)}{CHOOSE_SPLIT}")
    if len({(f.parent, _ending(f)) for f in chosen}) > 1:
        names = ", ".join(str(f.relative_to(folder)) for f in chosen)
        raise DataError(f"the folder {folder} has the split {split!r} more than once: {names}; name one of the files")
    return chosen


def _splits(files: list[Path]) -> list[str]:
    return sorted({re.sub(r"[-_.]\d.*$", "", _stem(f)) for f in files})


def numbered_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Every line, after its place ("pairs.jsonl, line 7")."""
    for number, line in enumerate(_lines(path), start=1):
        yield f"{path.name}, line {number}", line


def _jsonl(path: Path) -> Iterator[Row]:
    for where, line in numbered_lines(path):
        if line.strip():
            yield Row(where, expect_object(parse_json(line.strip(), where), where))


def _json(path: Path) -> Iterator[Row]:
    """A list of objects, an object of equally long lists, or an object whose one list holds the rows."""
    check_input(path, limit="settings")
    content = parse_json("".join(_lines(path)), path.name)
    if isinstance(content, dict):
        lists = {key: value for key, value in content.items() if isinstance(value, list)}
        if len(lists) == 1 and all(isinstance(row, dict) for row in next(iter(lists.values()))):
            content = next(iter(lists.values()))
        elif lists and len(lists) == len(content) and len({len(v) for v in lists.values()}) == 1:
            content = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
    if not isinstance(content, list):
        raise DataError(f"{path.name}: expected a list of objects, found {type(content).__name__}")
    for number, row in enumerate(content, start=1):
        where = f"{path.name}, item {number}"
        yield Row(where, expect_object(row, where))


def _csv(path: Path) -> Iterator[Row]:
    csv.field_size_limit(min(limits().line, sys.maxsize, 2**31 - 1))
    lines = _lines(path)
    first = next(lines, "")
    delimiter = max(",;\t|", key=first.count)
    rows = csv.reader(chain([first], lines), delimiter=delimiter, strict=True)
    try:
        header = next(rows, [])
        _refuse_repeated_names(header, path)
        for cells in filter(None, rows):
            where = f"{path.name}, line {rows.line_num}"
            if len(cells) != len(header):
                raise DataError(f"{where}: expected {len(header)} fields as in the header, found {len(cells)}")
            yield Row(where, dict(zip(header, cells, strict=True)))
    except csv.Error as error:
        raise DataError(f"{path.name}, line {rows.line_num}: not valid CSV: {error}") from error


def _tsv(path: Path) -> Iterator[Row]:
    """Cells between tabs, in quotes where these are whole, as spreadsheets write them. Any other quote is a character:
    it never swallows a line that is a row by itself."""
    csv.field_size_limit(min(limits().line, sys.maxsize, 2**31 - 1))
    lines = _Lookahead(numbered_lines(path))
    header: list[str] = []
    for where, line in lines:
        if not header:
            header = _quoted(line) or _literal(line)
            _refuse_repeated_names(header, path)
        elif line.strip("\r\n"):
            cells = _tsv_cells(line, lines, len(header))
            if len(cells) != len(header):
                raise DataError(f"{where}: expected {len(header)} fields as in the header, found {len(cells)}")
            yield Row(where, dict(zip(header, cells, strict=True)))


class _Lookahead:
    """Lines that can be put back."""

    def __init__(self, lines: Iterator[tuple[str, str]]) -> None:
        self._lines = lines
        self._back: list[tuple[str, str]] = []

    def __iter__(self) -> Iterator[tuple[str, str]]:
        while (line := self._back.pop() if self._back else next(self._lines, None)) is not None:
            yield line

    def put_back(self, lines: Sequence[tuple[str, str]]) -> None:
        self._back.extend(reversed(lines))


def _tsv_cells(line: str, lines: _Lookahead, width: int) -> list[str]:
    literal, quoted = _literal(line), _quoted(line)
    if quoted is not None:
        return literal if len(literal) == width != len(quoted) else quoted
    taken: list[tuple[str, str]] = []
    text = line
    for where, further in lines:
        taken.append((where, further))
        if len(_literal(further)) == width > 1 or len(taken) > _MOST_LINES or len(text) > _MOST_CELL:
            break  # a row by itself, or no cell of a spreadsheet
        text += further
        quoted = _quoted(text)
        if quoted is not None and len(quoted) == width:
            return quoted
    lines.put_back(taken)
    return literal


def _literal(line: str) -> list[str]:
    return line.rstrip("\r\n").split("\t")


def _quoted(text: str) -> list[str] | None:
    """The cells by the rules of CSV; None where a quote is not closed or stands within a cell.

    >>> _quoted('"a ""b""\\tc"\\td'), _quoted('5" pipe\\t"open')
    (['a "b"\\tc', 'd'], None)
    """
    try:
        (cells,) = csv.reader(text.splitlines(keepends=True), delimiter="\t", strict=True)
    except (csv.Error, ValueError):
        return None
    return cells


def _refuse_repeated_names(header: Sequence[str], path: Path) -> None:
    refuse_above("columns", len(header), f"{path.name}: the number of columns")
    if twice := [name for name, count in Counter(header).items() if count > 1]:
        raise DataError(f"{path.name}, line 1: the header names the column {quote(twice[0])} twice")


def _text(path: Path) -> Iterator[Row]:
    """One text per line, in a column called text."""
    return (Row(where, {"text": line.rstrip("\r\n")}) for where, line in numbered_lines(path))


def _parquet(path: Path) -> Iterator[Row]:
    import pyarrow
    import pyarrow.parquet

    check_input(path)
    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path.absolute()) as file:  # absolute: arrow would expand a ~
            _refuse_repeated_names(file.schema_arrow.names, path)
            for values in (values for batch in _batches(file) for values in batch.to_pylist()):
                number += 1
                yield Row(f"{path.name}, row {number}", values)
    except (
        pyarrow.ArrowException,
        OSError,
        ValueError,
        OverflowError,
        MemoryError,
    ) as error:  # also bad UTF-8 and dates
        raise DataError(f"{path.name} cannot be read as parquet, after row {number}: {explain(error)}") from error


def _batches(file: Any) -> Iterator[Any]:
    """Batches of as many rows as a few megabytes hold: a row may be long, and a dictionary repeats it for nothing."""
    rows = max(1, file.metadata.num_rows)
    bytes_a_row = sum(file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups)) // rows
    yield from file.iter_batches(batch_size=max(1, min(65_536, 32_000_000 // max(1, bytes_a_row))))


_READERS: dict[str, Callable[[Path], Iterator[Row]]] = {
    ".jsonl": _jsonl,
    ".ndjson": _jsonl,
    ".json": _json,
    ".csv": _csv,
    ".tsv": _tsv,
    ".parquet": _parquet,
    ".txt": _text,
    ".raw": _text,
    ".jsonl.gz": _jsonl,
    ".csv.gz": _csv,
    ".tsv.gz": _tsv,
}


def _ending(path: Path) -> str:
    name = path.name.lower()
    return "".join(Path(name).suffixes[-2:]) if name.endswith(".gz") else Path(name).suffix


def _stem(path: Path) -> str:
    return path.name[: -len(_ending(path))]


def _lines(path: Path) -> Iterator[str]:
    """The lines of a text file. Bytes that are not UTF-8 arrive as surrogates: the error names their line."""
    most, number, blank = limits().line, 0, 0
    try:
        with io.TextIOWrapper(open_input(path), encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            while line := file.readline(most + 1):
                number += 1
                if len(line) > most:
                    refuse_above("line", len(line), f"{path.name}, line {number}: its length")
                blank = blank + 1 if line in _BLANK else 0
                if blank > _FEW:
                    refuse_above("blank", blank, f"{path.name}, line {number}: the number of blank lines before it")
                if not line.isascii() and (bad := _NOT_UTF8.search(line)):
                    byte = ord(bad[0]) - 0xDC00
                    raise DataError(
                        f"{path.name}, line {number}: expected UTF-8, found the byte {byte:#x} (save the file as UTF-8)"
                    )
                yield line
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path.name}, after line {number}: {error}") from error
