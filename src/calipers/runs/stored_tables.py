"""Tables of stored outcomes: those of many rows are read a column at a time, when it is needed.

The columns of a million examples take as much memory as all that is done with them, and most are never looked at. What
was read is kept only as long as somebody uses it. The file stays open: a run that is removed meanwhile can be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from calipers.core import RequestError, name_some
from calipers.core.inputs import refuse_irregular
from calipers.core.packed import PackedTexts, TextPacker, as_kept

_MANY = 100_000  # rows: the columns of fewer are read at once, and the file is closed
_ROWS = 32_768  # that are in hand at a time
_BUFFER = 1 << 20  # bytes of a file that is read piece by piece


class StoredTable:
    """A parquet file of outcomes. With many rows it stays open once it is left."""

    def __init__(self, path: Path) -> None:
        import pyarrow.parquet

        self._path, self._lock = path, Lock()
        refuse_irregular(path, RequestError)
        with self._reading():
            # Absolute, because arrow reads a leading ~ as a home folder. read_table() would import pandas too.
            self._file = pyarrow.parquet.ParquetFile(path.absolute(), buffer_size=_BUFFER)
            self.names: list[str] = self._file.schema_arrow.names
            self.rows: int = self._file.metadata.num_rows

    def __enter__(self) -> StoredTable:
        return self

    def __exit__(self, *_: object) -> None:
        if self.rows <= _MANY:
            self._file.close()

    def columns(self, beginning: str = "") -> Mapping[str, Any]:
        """Numbers by the rest of their names, or objects where they are none."""
        named = {name.removeprefix(beginning): name for name in self.names if name.startswith(beginning)}
        if self.rows > _MANY:
            return _LaterColumns(named, self)
        return _Columns({name: self.array(whole) for name, whole in named.items()}, self)

    def all_texts(self, beginning: str) -> dict[str, Sequence[str]]:
        return {name.removeprefix(beginning): self.texts(name) for name in self.names if name.startswith(beginning)}

    def texts(self, name: str) -> Sequence[str]:
        if name not in self.names:
            raise self.no_column(name, self.names)
        if self.rows > _MANY:
            return PackedTexts(self.rows, lambda: self._packer(name).pack())
        return as_kept(self._packer(name).finish())

    def array(self, name: str) -> NDArray[Any]:
        """One column."""
        with self._reading():
            values = self._numbers(name) if self.rows > _MANY else None
            return _array(self._file.read(columns=[name])[name]) if values is None else values

    def no_column(self, name: str, names: Iterable[str]) -> RequestError:
        have = name_some(list(names)) or "none"
        return RequestError(f"the outcomes in {self._path} have no column {name!r}: they have {have}")

    def _numbers(self, name: str) -> NDArray[Any] | None:
        """A column of numbers, in no more memory than its own; None where it holds anything else."""
        kind = self._file.schema_arrow.field(name).type
        if not _is_number(kind):
            return None
        values, start = np.empty(self.rows, kind.to_pandas_dtype()), 0
        for part in self._parts(name):
            if part.null_count:
                return None
            values[start : start + len(part)] = np.from_dlpack(part)
            start += len(part)
        return values

    def _packer(self, name: str) -> TextPacker:
        packer = TextPacker()
        with self._reading():
            for part in self._parts(name):
                packer.append_arrow(part)
        return packer

    def _parts(self, name: str) -> Iterator[Any]:
        return (batch.column(0) for batch in self._file.iter_batches(_ROWS, columns=[name]))

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """One reader at a time. What arrow keeps for the next one goes back to the system."""
        import pyarrow

        try:
            with self._lock:
                yield
        except (OSError, pyarrow.ArrowException) as error:
            raise RequestError(f"the outcomes in {self._path} cannot be read: {error}") from error
        finally:
            pyarrow.default_memory_pool().release_unused()


class _Columns(dict[str, Any]):
    """Columns of stored outcomes; one that is not there is named."""

    def __init__(self, columns: Mapping[str, Any], table: StoredTable) -> None:
        super().__init__(columns)
        self._table = table

    def __missing__(self, name: str) -> Any:
        raise self._table.no_column(name, self)


class _LaterColumns(Mapping[str, Any]):
    """The same, read when they are needed, and again where nobody has kept what was read."""

    def __init__(self, named: Mapping[str, str], table: StoredTable) -> None:
        self._named, self._table = named, table
        self._read = WeakValueDictionary[str, NDArray[Any]]()

    def __getitem__(self, name: str) -> Any:
        if name not in self._named:
            raise self._table.no_column(name, self)
        values = self._read.get(name)
        if values is None:
            values = self._read[name] = self._table.array(self._named[name])
        return values

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self._named else default

    def __contains__(self, name: object) -> bool:
        return name in self._named

    def __iter__(self) -> Iterator[str]:
        return iter(self._named)

    def __len__(self) -> int:
        return len(self._named)


def _is_number(kind: Any) -> bool:
    import pyarrow

    return bool(pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind))


def _array(column: Any) -> NDArray[Any]:
    """A column of arrow as numpy has it. Not by np.asarray, for which arrow imports pandas: a second's work."""
    import pyarrow

    kind = column.type
    if not column.num_chunks or column.null_count:
        return np.asarray(column)
    if pyarrow.types.is_boolean(kind):
        return np.concatenate([np.from_dlpack(chunk.cast("uint8")) for chunk in column.chunks]).astype(np.bool_)
    if _is_number(kind):
        return np.concatenate([np.from_dlpack(chunk) for chunk in column.chunks])
    return np.array(column.to_pylist(), dtype=object) if pyarrow.types.is_string(kind) else np.asarray(column)
