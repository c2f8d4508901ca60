"""Vectors already computed, looked up by text or by id. It is also the test double of this package.

- `.parquet`: a column `vector` (or `embedding`) of lists, and a column `text` or `id`.
- `.npy`: float[n, d], and beside it, with the same name, a `.txt` of a text per line or an `.ids` of an id per line.

The id of a text is given by the task (see `calipers tasks`): for pairs it is the row's id with `/1` or `/2` behind it,
for a search `ID/document` and `ID/query`. The plain id is enough where only one text has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.core import SILENT, InferenceError, ModelError, ModelInfo, Progress, RequestError, name_some
from calipers.core.errors import explain, quote
from calipers.core.inputs import check_input
from calipers.core.packed import TextPacker, TextPlaces, may_repeat
from calipers.core.room import make_room
from calipers.core.text_ids import TextIds
from calipers.metrics.arrays import Vectors
from calipers.metrics.magnitudes import common_power, single
from calipers.models.options import ModelOptions
from calipers.models.shortening import Shortening, shorten
from calipers.models.source import Source
from calipers.models.tokenizer_files import first_line


def load(source: Source, options: ModelOptions) -> VectorsEncoder:
    options.refuse_others("vectors that are already computed", "model_id", "truncate_dim")
    file = source.path
    if file is None or file.suffix not in (".npy", ".parquet"):
        raise ModelError(f"vectors come from an .npy or .parquet file, found {quote(source.reference)}")
    check_input(file, ModelError)
    keys, by, table = _read_parquet(file) if file.suffix == ".parquet" else _read_npy(file)
    if table.ndim != 2 or len(table) != len(keys):
        raise ModelError(f"{file} holds an array {list(table.shape)} for {len(keys)} {by}s: expected one row each")
    if may_repeat(keys) and len(set(keys)) < len(keys):
        twice = sorted(key for key, count in Counter(keys).items() if count > 1)
        raise ModelError(f"{file} has more than one vector for the same {by}: {name_some(twice)}")
    shortening = shorten(options)
    settings = {"by": by, "vectors": len(keys), "dimensions": int(table.shape[1]), **shortening.settings}
    info = ModelInfo("vectors", options.model_id or file.stem, str(file), "none", "", settings)
    power = common_power(table)
    return VectorsEncoder(table, TextPlaces(keys), by, shortening, info, power=power)


@dataclass(frozen=True, eq=False)
class VectorsEncoder:
    table: NDArray[np.floating]
    rows: TextPlaces  # of texts or ids, in the table
    by: str  # "text" or "id"
    shortening: Shortening
    info: ModelInfo
    ids: Mapping[str, Sequence[str]] | None = None  # of each text
    is_shared: Callable[[str], bool] = lambda _: False  # whether several texts, as a document and a query, have an id
    only: str = ""  # the side whose ids count, where a text has one there
    power: int = 0  # of two, that all vectors are divided by to fit into float32

    def bind(self, ids: Mapping[str, Sequence[str]]) -> VectorsEncoder:
        """The same vectors, with the ids of each text."""
        return replace(
            self, ids=ids, is_shared=ids.is_shared if isinstance(ids, TextIds) else _shared(ids).__contains__
        )

    def side(self, name: str) -> VectorsEncoder:
        """The vectors of one side, by the ids ID/NAME that a text has there: a query may be worded as a document is."""
        return self if self.by == "text" or self.ids is None else replace(self, only=name)

    def encode(self, texts: Sequence[str], *, prompt: str | None = None, progress: Progress = SILENT) -> Vectors:
        if prompt is not None:
            raise RequestError(
                f"a prompt does not apply to {self.info.path}: its vectors are already computed, with their own prompts"
            )
        rows = {text: self._row(text) for text in dict.fromkeys(texts)}
        if -1 in rows.values():
            raise self._without_vector(rows)
        return self.shortening.apply(single(self.table[[rows[text] for text in texts]], self.power))

    def _without_vector(self, rows: Mapping[str, int]) -> InferenceError:
        keys = {text: text if row >= 0 else self._ids(text)[0] for text, row in rows.items()}
        missing = list(dict.fromkeys(keys[text] for text, row in rows.items() if row < 0))
        shared = [key for key in missing if self.is_shared(plain := _plain(key)) and self.rows.of(plain)]
        hint = f" ({_plain(shared[0])} is the id of several texts: write {shared[0]})" if shared else ""
        return InferenceError(
            f"{self.info.path} has no vector for {len(missing)} of {len(set(keys.values()))} {self.by}s: "
            f"{name_some(missing, 3)}{hint}"
        )

    def _ids(self, text: str) -> Sequence[str]:
        """The keys that the vector of a text may have."""
        if self.by == "text" or self.ids is None:
            return (text,)
        ids = self.ids.get(text, (text,))
        return ([id for id in ids if id.endswith(f"/{self.only}")] if self.only else ids) or ids

    def _row(self, text: str) -> int:
        """Of the table; -1 where it has no vector."""
        ids = self._ids(text)
        stored = {id: places[0] for id in ids if (places := self.rows.of(id))}
        if not stored and self.by == "id" and self.ids is not None:
            plain = (id for id in map(_plain, ids) if not self.is_shared(id))
            stored = {id: places[0] for id in plain if (places := self.rows.of(id))}
        if len(stored) > 1:
            vectors = np.asarray(self.table[list(stored.values())])
            if not np.array_equal(vectors, np.broadcast_to(vectors[0], vectors.shape), equal_nan=True):
                raise InferenceError(
                    f"{self.info.path} has different vectors for the same text under the ids {name_some([*stored])}: "
                    "a text has one vector here"
                )
        return next(iter(stored.values()), -1)


def _plain(id: str) -> str:
    return id.rpartition("/")[0]


def _shared(ids: Mapping[str, Sequence[str]]) -> frozenset[str]:
    """The plain ids that texts of several sides have."""
    sides: dict[str, set[str]] = {}
    for id in chain.from_iterable(ids.values()):
        plain, _, side = id.rpartition("/")
        sides.setdefault(plain, set()).add(side)
    return frozenset(plain for plain, names in sides.items() if len(names) > 1)


_KEYS = {"text": ".txt", "id": ".ids"}
_PARQUET_ROWS = 8192  # that are in hand at a time


def _lines(file: Path) -> Sequence[str]:
    """Not splitlines(), which also splits at separators that a text may hold, such as U+2028."""
    check_input(file, ModelError)
    lines = TextPacker()
    try:
        with file.open(encoding="utf-8-sig") as opened:
            for line in opened:
                lines.append(line.removesuffix("\n"))
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{file} cannot be read as UTF-8 text: {first_line(error)}") from error
    return lines.finish()


def _refuse_stray(texts: Path, ids: Path, rows: int) -> None:
    """Of both files the texts count; a file of texts that does not fit was not meant."""
    lines = len(_lines(texts))
    if lines != rows:
        has = f"has {lines:,} lines for {rows:,} vectors" if lines else "is empty"
        raise ModelError(
            f"{texts} {has} and stands beside {ids.name}: remove it to take the ids, or write one text per line into it"
        )


def _read_parquet(file: Path) -> tuple[Sequence[str], str, NDArray[np.floating]]:
    """Batch by batch, from Arrow's own buffers: a number is never a Python object."""
    import pyarrow.parquet

    try:
        # Absolute: arrow would expand a ~. Mapped, so that a column of a million vectors is not in memory as a whole.
        with pyarrow.parquet.ParquetFile(file.absolute(), memory_map=True) as opened:
            return _read_columns(file, opened)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"{file} cannot be read as parquet: {first_line(error)}") from error


def _read_columns(file: Path, opened: Any) -> tuple[Sequence[str], str, NDArray[np.floating]]:
    """The keys, which of the two they are, and the vectors of an open parquet file."""
    names = opened.schema_arrow.names
    key = next((name for name in ("text", "id") if name in names), None)
    numbers = next((name for name in ("vector", "embedding") if name in names), None)
    if key is None or numbers is None:
        raise ModelError(f"{file} needs a column 'vector' and a column 'text' or 'id': it has {', '.join(names)}")

    def batches(name: str) -> Iterator[Any]:
        return (batch.column(0) for batch in opened.iter_batches(_PARQUET_ROWS, columns=[name]))

    keys, nothing = TextPacker(), 0
    for column in batches(key):
        nothing += column.null_count
        for value in column.to_pylist():
            keys.append(str(value))
    if nothing:
        raise ModelError(f"{file}: {nothing} rows have nothing in column {key!r}")
    wide = 0.0  # the largest number, where float32 may not hold it
    for column in batches(numbers):
        part = _arrow_rows(column, file, numbers)
        wide = max(
            wide, 0.0 if part.dtype.itemsize <= 4 else float(np.abs(part).max(initial=0.0, where=np.isfinite(part)))
        )
    power, table, start = common_power(np.array([[wide]])), np.empty((0, 0), np.float32), 0
    for column in batches(numbers):
        part = _arrow_rows(column, file, numbers)
        if start == 0:
            table = make_room((len(keys), *part.shape[1:]), np.float32)
        if part.shape[1:] != table.shape[1:]:
            raise _ragged(file, numbers)
        table[start : start + len(part)] = single(part, power)
        start += len(part)
    return keys.finish(), key, table


def _arrow_rows(column: Any, file: Path, name: str) -> NDArray[np.floating]:
    """A batch of lists of one length as float[n, d]; of plain numbers, float[n]. A missing number is NaN."""
    import pyarrow.types as types

    is_list = types.is_list(column.type) or types.is_large_list(column.type) or types.is_fixed_size_list(column.type)
    kind = column.type.value_type if is_list else column.type
    if types.is_integer(kind):
        raise ModelError(f"{file} holds {kind} in column {name!r}, expected floating point vectors")
    if column.null_count or not types.is_floating(kind):
        raise _ragged(file, name)
    if not is_list:
        return np.asarray(column.to_numpy(zero_copy_only=False))
    numbers = np.asarray(column.flatten().to_numpy(zero_copy_only=False))
    length, rest = divmod(len(numbers), max(1, len(column)))
    lengths = np.diff(column.offsets.to_numpy()) if hasattr(column, "offsets") else np.array([length])
    if rest or (lengths != length).any():
        raise _ragged(file, name)
    return numbers.reshape(len(column), length)


def _ragged(file: Path, name: str) -> ModelError:
    return ModelError(f"{file}: the vectors in column {name!r} are not lists of numbers of one length")


def _read_npy(file: Path) -> tuple[Sequence[str], str, NDArray[np.floating]]:
    try:
        table = np.load(file, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # also of a zip that is none, and of a header that is no Python
        raise ModelError(f"{file} cannot be read as an array: {explain(error)}") from error
    if not isinstance(table, np.ndarray):
        table.close()
        raise ModelError(f"{file} cannot be read as an array: it is an .npz archive of several")
    if not np.issubdtype(table.dtype, np.floating):
        raise ModelError(f"{file} holds {table.dtype}, expected floating point vectors")
    beside = {by: file.with_suffix(suffix) for by, suffix in _KEYS.items() if file.with_suffix(suffix).exists()}
    if len(beside) > 1:
        _refuse_stray(beside["text"], beside["id"], len(table))
    for by, keys in beside.items():
        return _lines(keys), by, table
    raise ModelError(
        f"{file} needs a file beside it with the texts or ids of the vectors: "
        f"{file.stem}.txt with one text per line, or {file.stem}.ids with one id per line"
    )
