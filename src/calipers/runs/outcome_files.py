"""The files of a run's outcomes: one for the examples, one for each table of details, and their checksums."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from calipers.core import Outcomes, RequestError
from calipers.core.files import sync_file, whole_file
from calipers.runs.stored_tables import StoredTable

_SUFFIX = re.compile(r"(\.[^/\\\0]+)?\.parquet")
TEXT, VALUE = "text:", "value:"  # how the names of columns begin
Digests = Mapping[str, str]  # what a file's name has behind the run id → its SHA-256


def write_outcomes(path: Path, outcomes: Outcomes, moves: ExitStack) -> dict[str, str]:
    """One file for the examples, and one for each table of details beside it: written in full now, and in their place
    when `moves` closes. The SHA-256 of each, by what its name has behind the run id."""
    examples: dict[str, Any] = {"id": outcomes.ids}
    examples |= {f"{TEXT}{name}": texts for name, texts in outcomes.texts.items()}
    examples |= {f"{VALUE}{name}": values for name, values in outcomes.columns.items()}
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
    files = [file for file in outcome_files(path, digests) if file != path and file.is_file()]
    with StoredTable(path) as examples:
        ids, texts, columns = examples.texts("id"), examples.all_texts(TEXT), examples.columns(VALUE)
    details = {file.stem.removeprefix(f"{path.stem}."): _read_table(file) for file in files}
    return Outcomes(ids=ids, texts=texts, columns=columns, details=details)


def _read_table(path: Path) -> Mapping[str, Any]:
    with StoredTable(path) as table:
        return table.columns()
