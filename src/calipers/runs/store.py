"""Results kept on disk: one SQLite file for the facts, one parquet file beside it for each run's outcomes.

Outcomes are moved in place inside the transaction whose commit makes the run exist: a process killed at any moment
leaves a whole store. SQLite's rollback journal is used: its write-ahead log is safe with several writers only in
versions that are newer than what many machines have.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.core import DataSource, ModelInfo, Outcomes, RequestError, Result, RunLine, name_some
from calipers.core.errors import boundary, quote
from calipers.core.files import check_place, sync_folder, whole_file, write_whole
from calipers.core.inputs import below
from calipers.rendering.document import to_json
from calipers.runs.migrations import migrate

RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")  # nothing that a path or a pattern would read otherwise
_WAIT = 30.0  # seconds to wait for another process that writes
_LEAST_FREE = 1_000_000  # bytes on the disk, below which a run is not begun
_DIGESTS = "outcome_digests"  # among the facts: SHA-256 of each file of outcomes
_LINE = "run_id, created, task, model_id, dataset, examples, metric, value"  # columns of the table, fields of RunLine
_REST = (
    "CASE WHEN json_valid(facts) THEN json_extract(facts, '$.name') END, "
    "CASE WHEN json_valid(facts) THEN json_extract(facts, '$.model.path') END, "
    "CASE WHEN json_valid(facts) THEN json_extract(facts, '$.model.fingerprint') END, "
    "(SELECT group_concat(tag, ' ') FROM tags WHERE tags.run_id = runs.run_id), "
    "(SELECT label FROM labels WHERE labels.run_id = runs.run_id ORDER BY made DESC LIMIT 1)"
)
_TAG, _UNTAG = "INSERT OR IGNORE INTO tags VALUES (?, ?)", "DELETE FROM tags WHERE run_id = ? AND tag = ?"
_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*")
_RESERVED = re.compile(r"latest|\d{8}-\d{6}.*|bm25")


def refuse_name(name: str, what: str = "name") -> None:
    """A name or tag is one word, and cannot be taken for something else on the command line."""
    if name and (not _NAME.fullmatch(name) or _RESERVED.fullmatch(name)):
        raise RequestError(
            f"`{what}` must be a word of letters, digits, `.`, `_`, `+` and `-` that is no run id, found {name!r}"
        )


def default_folder() -> Path:
    """CALIPERS_STORE, or the place where this system keeps a user's data."""
    if chosen := os.environ.get("CALIPERS_STORE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "calipers"


class Store:
    """Runs kept in a folder, by default the user's.

    >>> Store().load("latest").metrics     # doctest: +SKIP
    {'cosine_spearman': 74.31}
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = (folder or default_folder()).expanduser()

    @property
    def exists(self) -> bool:
        return self._database.exists()

    def check_writable(self) -> None:
        """Fail now, not after an hour of inference."""
        with self._open(create=True) as database:
            try:
                database.execute("BEGIN IMMEDIATE")
                database.rollback()
            except sqlite3.OperationalError as error:
                raise RequestError(f"the store in {self.folder} cannot be written: {error}") from error
        why = check_place(self._outcomes_file("trial"))
        if not why and shutil.disk_usage(self.folder).free < _LEAST_FREE:
            why = f"less than {_LEAST_FREE:,} bytes are free"
        if why:
            raise RequestError(f"the store in {self.folder} cannot be written: {why}")

    def save(self, result: Result, key: str | None = None) -> None:
        """`key` says what question the run answers (see `calipers.runs.key`), so that `find` can answer it again."""
        line, path = _run_line(result), self._outcomes_file(result.run_id)
        failure = boundary(RequestError, f"the run could not be stored in {self.folder}")
        with self._open(create=True) as database, failure, ExitStack() as moves:
            # Files are written before the transaction, whose lock lasts no longer than moving them, and moved inside
            # it, so that a repeated id is refused before its files are touched.
            facts = {**_facts(result), _DIGESTS: _write_outcomes(path, result.outcomes, moves)}
            with self._writing(database):
                database.execute(
                    f"INSERT INTO runs ({_LINE}, facts, cache_key) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        *(_storable(getattr(line, name)) for name in _LINE.split(", ")),
                        json.dumps(facts, allow_nan=False),
                        key,
                    ),
                )
                moves.close()

    def keep(self, result: Result, key: str | None = None) -> tuple[str, ...]:
        """Save a finished run. Where that fails the work is not lost: its JSON is left beside the store, or where
        temporary files go, and a sentence says where."""
        try:
            self.save(result, key)
            return ()
        except RequestError as error:
            return (f"{error}; {_leave_document(result, self.folder)}",)

    def save_all(self, results: Sequence[Result]) -> None:
        """All of them, or none where one cannot be stored."""
        for number, result in enumerate(results):
            try:
                self.save(result)
            except BaseException:
                for stored in results[:number]:
                    self.remove(stored.run_id)
                raise

    def find(self, key: str, damaged: list[str] | None = None) -> Result | None:
        """The run that was saved last under the key and can still be read; None where there is none. Why others cannot
        be read is added to `damaged`."""
        if not self._database.exists():
            return None
        with self._open() as database:
            rows = database.execute(
                "SELECT run_id FROM runs WHERE cache_key = ? ORDER BY rowid DESC", (key,)
            ).fetchall()
        for (run_id,) in rows:
            # A run that was removed meanwhile, or whose file is gone, is not an answer: the model must run.
            try:
                return self.load(str(run_id))
            except RequestError as error:
                if damaged is not None:
                    damaged.append(f"a stored run counts as absent: {error}")
        return None

    def list(self) -> list[RunLine]:
        """The last written first. A row that no version of ours can have written is left out: `calipers doctor`
        names it."""
        sizes, width = self._sizes(), len(_LINE.split(", "))
        rows = self._select(f"{_LINE}, {_REST}")
        return [_stored_line(row, sizes.get(row[0], 0)) for row in rows if why_damaged(row[:width]) is None]

    def rows(self) -> Sequence[tuple[Any, ...]]:
        """What the database holds of each run, whatever it is: the fields of `RunLine` that are columns."""
        return self._select(_LINE)

    def _select(self, columns: str) -> Sequence[tuple[Any, ...]]:
        if not self._database.exists():
            return []
        with self._open() as database:
            database.text_factory = lambda content: content.decode("utf-8", "replace")
            return database.execute(f"SELECT {columns} FROM runs ORDER BY rowid DESC").fetchall()

    def tag(self, run: str, tags: Sequence[str], *, remove: bool = False) -> str:
        """Put tags on a run, or take them off; the run's id."""
        for tag in tags:
            refuse_name(tag, "tag")
        run_id = self.resolve(run)
        change = (
            "DELETE FROM tags WHERE run_id = ? AND tag = ?" if remove else "INSERT OR IGNORE INTO tags VALUES (?, ?)"
        )
        with self._open() as database, self._writing(database):
            database.executemany(change, [(run_id, tag) for tag in tags])
        return run_id

    def keep_labels(self, labels: Mapping[str, tuple[str, str]]) -> None:
        """Run id → the baseline's run id and the label of the newest verdict on it. A run holds no verdict, since
        thresholds may change; this is for finding it again. Runs that are not in the store are left out."""
        if not self._database.exists():
            return
        made = datetime.now(UTC).isoformat(timespec="milliseconds")
        with self._open() as database, suppress(sqlite3.OperationalError), self._writing(database):
            database.executemany(
                "INSERT OR REPLACE INTO labels SELECT ?, ?, ?, ? WHERE EXISTS (SELECT 1 FROM runs WHERE run_id = ?)",
                [(run_id, baseline, label, made, run_id) for run_id, (baseline, label) in labels.items()],
            )

    def keep_timing(self, results: Sequence[Result]) -> None:
        """The times of runs that were measured after they were stored; nothing else of a run changes."""
        if not self._database.exists():
            return
        rows = [(json.dumps(dict(result.timing)), result.run_id) for result in results]
        with self._open() as database, suppress(sqlite3.OperationalError), self._writing(database):
            database.executemany("UPDATE runs SET facts = json_set(facts, '$.timing', json(?)) WHERE run_id = ?", rows)

    def size(self) -> int:
        """Bytes of all that is kept: runs, outcomes and vectors."""
        return sum(file.stat().st_size for file in self.folder.rglob("*") if file.is_file())

    def _sizes(self) -> dict[str, int]:
        sizes: dict[str, int] = {}
        with suppress(OSError), os.scandir(self.folder / "outcomes") as files:
            for file in files:
                run_id = file.name.partition(".")[0]
                sizes[run_id] = sizes.get(run_id, 0) + file.stat().st_size
        return sizes

    def load(self, name: str) -> Result:
        run_id = self.resolve(name)
        with self._open() as database:
            row = database.execute("SELECT facts FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        if row is None:
            raise RequestError(f"the run {run_id} was removed by another process")
        try:
            facts = json.loads(row[0])
            return _with_outcomes(facts, _read_outcomes(self._outcomes_file(run_id), facts.pop(_DIGESTS, {})))
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise RequestError(
                f"the run {run_id} was written by another version of calipers, and this one cannot read its facts "
                "(calipers eval measures it again, calipers runs rm removes it)"
            ) from error

    def remove(self, name: str) -> str:
        run_id = self.resolve(name)
        with self._open() as database, self._writing(database):
            for table in ("runs", "tags", "labels"):
                database.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))
        for file in self.files_of(run_id):
            file.unlink(missing_ok=True)
        return run_id

    def files_of(self, run_id: str) -> tuple[Path, ...]:
        """The files beside the database that hold a run's outcomes."""
        return tuple(self._outcomes_file(run_id).parent.glob(f"{run_id}.*"))

    def resolve(self, name: str) -> str:
        """A run by its id, by the beginning of it, by its name (the newest of that name), or "latest"."""
        lines = self.list()
        run_ids = [line.run_id for line in lines]
        if name == "latest" and run_ids:
            return run_ids[0]
        if named := [line.run_id for line in lines if name and line.name == name]:
            return named[0]
        matches = [r for r in run_ids if r == name] or [r for r in run_ids if name and r.startswith(name)]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise RequestError(f"{name!r} is the beginning of {len(matches)} runs: {', '.join(matches[:5])}")
        raise RequestError(f"there is no run {name!r} in {self.folder} (calipers runs list)")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """The database with a write lock; committed at the end, rolled back after an error."""
        with self._open(create=True) as database, self._writing(database):
            yield database

    @contextmanager
    def _writing(self, database: sqlite3.Connection) -> Iterator[None]:
        """A transaction that has its lock from the start. Writers queue at a file, in their order: SQLite lets them try
        again and again, so that one of many may wait beyond any limit, and gives up at once where a transaction that
        has read wants to write while another one ends."""
        with (self.folder / ".writing").open("w") as queue:
            with suppress(ImportError, OSError):
                import fcntl  # not on Windows

                fcntl.flock(queue, fcntl.LOCK_EX)
            database.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                database.rollback()
                raise
            database.commit()

    def has_name(self, name: str) -> bool:
        return any(line.name == name for line in self.list())

    @property
    def _database(self) -> Path:
        return self.folder / "calipers.db"

    def _outcomes_file(self, run_id: str) -> Path:
        if not RUN_ID.fullmatch(run_id):
            raise RequestError(f"{quote(run_id)} is no id of a run: expected letters, digits, - and _")
        return below(self.folder / "outcomes", f"{run_id}.parquet", RequestError)

    @contextmanager
    def _open(self, *, create: bool = False) -> Iterator[sqlite3.Connection]:
        try:
            if create:
                (self.folder / "outcomes").mkdir(parents=True, exist_ok=True)
            elif not self._database.exists():
                raise RequestError(f"there is no store in {self.folder}")
            database = sqlite3.connect(self._database, timeout=_WAIT)
        except (OSError, sqlite3.Error) as error:
            raise RequestError(f"the store in {self.folder} cannot be opened: {error}") from error
        try:
            migrate(database, self._database)
            yield database
        except sqlite3.Error as error:
            raise RequestError(f"{self._database} cannot be used as a store: {error}") from error
        finally:
            database.close()


def write_run(folder: Path, result: Result, key: str | None) -> None:
    """A run as a folder, whole or not there: for a worker that must not open a database."""
    part = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        with ExitStack() as moves:
            digests = _write_outcomes(part / "outcomes.parquet", result.outcomes, moves)
        facts = {**_facts(result), _DIGESTS: digests}
        write_whole(part / "run.json", json.dumps({"key": key, "facts": facts}, allow_nan=False))
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
        sync_folder(folder.parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def read_run(folder: Path) -> tuple[Result, str | None]:
    """The run of such a folder, and the key that it answers."""
    try:
        content = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        facts = content["facts"]
        outcomes = _read_outcomes(folder / "outcomes.parquet", facts.pop(_DIGESTS, {}))
        return _with_outcomes(facts, outcomes), content["key"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RequestError(f"{folder} does not hold a run: {error!r}") from error


def _with_outcomes(facts: dict[str, Any], outcomes: Outcomes) -> Result:
    counts, notes = facts.pop("counts", {}), tuple(facts.pop("outcome_notes", ()))
    return _result(facts, replace(outcomes, counts=counts, notes=notes))


def why_damaged(row: Sequence[Any]) -> str | None:
    """Why a row of the database is none that `save` writes; None where it may be."""
    kinds = (str, str, str, str, str, int, str, float)
    if not isinstance(row[0], str) or not RUN_ID.fullmatch(row[0]):
        return f"{quote(row[0])} is no id of a run"
    wrong = [
        name
        for name, value, kind in zip(_LINE.split(", "), row, kinds, strict=True)
        if not isinstance(value, kind) and not (kind is float and isinstance(value, int))
    ]
    return f"its {wrong[0]} is {quote(row[_LINE.split(', ').index(wrong[0])])}" if wrong else None


def _storable(value: Any) -> Any:
    """A value as SQLite takes it: names of files that are not UTF-8 hold surrogates."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def _stored_line(row: Sequence[Any], size: int) -> RunLine:
    """Facts beyond the columns may be missing, or anything where the database was changed by others."""
    *facts, name, path, fingerprint, tags, label = row
    name, path, fingerprint, tags, label = (str(value or "") for value in (name, path, fingerprint, tags, label))
    rest: list[Any] = [name, path or None, fingerprint, tuple(sorted(tags.split())), label, size]
    return RunLine(*facts, *rest)


def _run_line(result: Result) -> RunLine:
    metric, value = next(iter(result.metrics.items()))
    model, path, examples = result.model.model_id, result.dataset.path, len(result.outcomes)
    return RunLine(result.run_id, result.created, result.task, model, path, examples, metric, value)


def _facts(result: Result) -> dict[str, Any]:
    facts = {key: value for key, value in vars(result).items() if key != "outcomes"}
    outcomes = {"counts": dict(result.outcomes.counts), "outcome_notes": list(result.outcomes.notes)}
    return {**facts, "model": asdict(result.model), "dataset": asdict(result.dataset), **outcomes}


def _result(facts: dict[str, Any], outcomes: Outcomes) -> Result:
    changed = {
        "model": ModelInfo(**{**facts["model"], "notes": tuple(facts["model"].get("notes", ()))}),
        "dataset": DataSource(**facts["dataset"]),
        "intervals": {name: tuple(ends) if ends else None for name, ends in facts["intervals"].items()},
        "warnings": tuple(facts["warnings"]),
    }
    return Result(**{**facts, **changed}, outcomes=outcomes)


def _write_outcomes(path: Path, outcomes: Outcomes, moves: ExitStack) -> dict[str, str]:
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

    part = moves.enter_context(whole_file(path))
    pyarrow.parquet.write_table(pyarrow.table(dict(columns)), part.absolute(), compression="zstd")
    return _sha256(part)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _leave_document(result: Result, folder: Path) -> str:
    """Write the JSON of a run that the store does not take, and say where it is."""
    name = f"{result.run_id}.json"
    for place in (folder / "unsaved" / name, Path(tempfile.gettempdir()) / f"calipers-{name}"):
        with suppress(OSError, ValueError):
            place.parent.mkdir(parents=True, exist_ok=True)
            write_whole(place, to_json(result.to_dict()) + "\n")
            return f"its JSON is in {place}"
    return "its JSON could not be written either: `output` or `as_json` keep it"


class _StoredColumns(dict[str, Any]):
    """Columns of stored outcomes; one that is not there is named."""

    def __init__(self, columns: Mapping[str, Any], path: Path) -> None:
        super().__init__(columns)
        self._path = path

    def __missing__(self, name: str) -> Any:
        raise RequestError(
            f"the outcomes in {self._path} have no column {name!r}: they have {name_some(list(self)) or 'none'}"
        )


def _read_outcomes(path: Path, digests: Mapping[str, str] | None = None) -> Outcomes:
    for suffix, digest in (digests or {}).items():
        file = path.with_suffix(suffix)
        if file.is_file() and _sha256(file) != digest:
            raise RequestError(f"the outcomes in {file} are damaged: their checksum is not the one of the run")
    named = _StoredColumns(_read_table(path), path)
    ids = named["id"].to_pylist()
    details = {f.stem.removeprefix(f"{path.stem}."): f for f in path.parent.glob(f"{path.stem}.*.parquet")}
    return Outcomes(
        ids=tuple(ids),
        texts={n.removeprefix("text:"): tuple(c.to_pylist()) for n, c in named.items() if n.startswith("text:")},
        columns=_StoredColumns(
            {n.removeprefix("value:"): _array(c) for n, c in named.items() if n.startswith("value:")}, path
        ),
        details={name: {n: _array(c) for n, c in _read_table(file).items()} for name, file in details.items()},
    )


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
    import pyarrow
    import pyarrow.parquet

    try:
        # Absolute, because arrow reads a leading ~ as a home folder. read_table() would import pandas too.
        with pyarrow.parquet.ParquetFile(path.absolute()) as file:
            table = file.read()
    except (OSError, pyarrow.ArrowException) as error:
        raise RequestError(f"the outcomes in {path} cannot be read: {error}") from error
    return {name: table[name] for name in table.column_names}
