"""The files of a run's outcomes: one for the examples, one for each table of details, and their checksums."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.core import Outcomes, RequestError, name_some
from calipers.core.files import sync_file, whole_file
from calipers.core.inputs import refuse_irregular
from calipers.core.packed import TextPacker, as_kept

_SUFFIX = re.compile(r"(\.[^/\\\0]+)?\.parquet")
_ROWS = 32_768  # whose texts are in hand at a time
Digests = Mapping[str, str]  # what a file's name has behind the run id → its SHA-256


def write_outcomes(path: Path, outcomes: Outcomes, moves: ExitStack) -> dict[str, str]:
    """One file for the examples, and one for each table of details beside it: written in full now, and in their place
    when `moves` closes. The SHA-256 of each, by what its name has behind the run id."""
    examples: dict[str, Any] = {"id": outcomes.ids}
    examples |= {f"text:{name}": texts for name, texts in outcomes.texts.items()}
    examples |= {f"value:{name}": values for name, values in outcomes.columns.items()}
    tables: dict[str, Mapping[str, Any]] = {f".{name}.parquet": table for name, table in outcomes.details.items()}
    tables[".parquet"] = examples
    return {suffix: _write_table(path.with_suffix(suffix), table, moves) for suffix, table in tables.items()}


def _write_table(path: Path, columns: Mapping[str, Any], moves: ExitStack) -> str:
    import pyarrow
    import pyarrow.parquet

    part = moves.enter_context(whole_file(path, flush=False))
    pyarrow.parquet.write_table(pyarrow.table(dict(columns)), part.absolute(), compression="zstd")
    sync_file(part)  # now, and not under the lock within which the file is moved
    return _sha256(part)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class _StoredColumns(dict[str, Any]):
    """Columns of stored outcomes; one that is not there is named."""

    def __init__(self, columns: Mapping[str, Any], path: Path) -> None:
        super().__init__(columns)
        self._path = path

    def __missing__(self, name: str) -> Any:
        raise RequestError(
            f"the outcomes in {self._path} have no column {name!r}: they have {name_some(list(self)) or 'none'}"
        )


def outcome_files(path: Path, digests: object) -> tuple[Path, ...]:
    """The files of the run whose examples are in `path`. Without digests, which older runs do not have, the folder is
    looked through; what stands in their place may be anything."""
    if not isinstance(digests, dict) or not digests:
        return tuple(path.parent.glob(f"{path.stem}.*"))
    return tuple(path.with_name(f"{path.stem}{suffix}") for suffix in digests if _SUFFIX.fullmatch(suffix))


def read_outcomes(path: Path, digests: Digests | None = None) -> Outcomes:
    for suffix, digest in (digests or {}).items():
        file = path.with_suffix(suffix)
        if file.is_file() and _sha256(file) != digest:
            raise RequestError(f"the outcomes in {file} are damaged: their checksum is not the one of the run")
    ids, texts, values = _read_examples(path)
    files = [file for file in outcome_files(path, digests) if file != path and file.is_file()]
    details = {file.stem.removeprefix(f"{path.stem}."): file for file in files}
    return Outcomes(
        ids=ids,
        texts=texts,
        columns=_StoredColumns(values, path),
        details={name: {n: _array(c) for n, c in _read_table(file).items()} for name, file in details.items()},
    )


def _read_examples(path: Path) -> tuple[Sequence[str], dict[str, Sequence[str]], dict[str, NDArray[Any]]]:
    """The ids, the texts by name and the values by name. A text is an object only while there are few of them."""
    with _opened(path) as file:
        names = file.schema_arrow.names
        if "id" not in names:
            _StoredColumns(dict.fromkeys(names), path)["id"]
        table = file.read(columns=[name for name in names if name.startswith("value:")])
        values = {name.removeprefix("value:"): _array(table[name]) for name in table.column_names}
        ids = _read_texts(file, "id")
        texts = {name.removeprefix("text:"): _read_texts(file, name) for name in names if name.startswith("text:")}
    return ids, texts, values


def _read_texts(file: Any, name: str) -> Sequence[str]:
    packer = TextPacker()
    for batch in file.iter_batches(_ROWS, columns=[name]):
        for text in batch.column(0).to_pylist():
            packer.append(text)
    return as_kept(packer.finish())


def _array(column: Any) -> NDArray[Any]:
    """A column of arrow as numpy has it. Not by np.asarray, for which arrow imports pandas: a second's work."""
    import pyarrow

    kind = column.type
    if not column.num_chunks or column.null_count:
        return np.asarray(column)
    if pyarrow.types.is_boolean(kind):
        return np.concatenate([np.from_dlpack(chunk.cast("uint8")) for chunk in column.chunks]).astype(np.bool_)
    if pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind):
        return np.concatenate([np.from_dlpack(chunk) for chunk in column.chunks])
    return np.array(column.to_pylist(), dtype=object) if pyarrow.types.is_string(kind) else np.asarray(column)


def _read_table(path: Path) -> dict[str, Any]:
    with _opened(path) as file:
        table = file.read()
    return {name: table[name] for name in table.column_names}


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    import pyarrow
    import pyarrow.parquet

    refuse_irregular(path, RequestError)
    try:
        # Absolute, because arrow reads a leading ~ as a home folder. read_table() would import pandas too.
        with pyarrow.parquet.ParquetFile(path.absolute()) as file:
            yield file
    except (OSError, pyarrow.ArrowException) as error:
        raise RequestError(f"the outcomes in {path} cannot be read: {error}") from error
