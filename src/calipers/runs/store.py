"""Results kept on disk: one SQLite file for the facts, one parquet file beside it for each run's outcomes.

Outcomes are moved in place inside the transaction whose commit makes the run exist: a process killed at any moment
leaves a whole store. SQLite's rollback journal is used: its write-ahead log is safe with several writers only in
versions that are newer than what many machines have.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from calipers.core import DataSource, ModelInfo, Outcomes, RequestError, Result, RunLine
from calipers.core.errors import boundary, quote
from calipers.core.files import check_place, size_of, sync_folder, write_whole
from calipers.core.inputs import below, expand, number_of
from calipers.rendering.document import to_json
from calipers.runs.migrations import NAME, migrate
from calipers.runs.outcome_files import outcome_files, read_outcomes, write_outcomes

RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")  # nothing that a path or a pattern would read otherwise
_WAIT = 30.0  # seconds to wait for another process that writes
_LEAST_FREE = 1_000_000  # bytes on the disk, below which a run is not begun
_DIGESTS = "outcome_digests"  # among the facts: SHA-256 of each file of outcomes
_LINE = "run_id, created, task, model_id, dataset, examples, metric, value"  # columns of the table, fields of RunLine
_REST = (
    "CASE WHEN json_valid(facts) THEN "
    f"json_extract(facts, '$.name', '$.model.path', '$.model.fingerprint', '$.{_DIGESTS}') END, "
    "(SELECT group_concat(tag, ' ') FROM tags WHERE tags.run_id = runs.run_id), "
    "(SELECT label FROM labels WHERE labels.run_id = runs.run_id ORDER BY made DESC LIMIT 1)"
)
# In two steps, or SQLite reads every row in the order of the list.
_BEGINNING = "run_id IN (SELECT run_id FROM runs WHERE run_id >= ? AND run_id < ?)"
_PAGE = 256  # rows that are read under one lock: writers wait no longer than that, however long a list is
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
        return expand(chosen)
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "calipers"


class Store:
    """Runs kept in a folder, by default the user's.

    >>> Store(Path("./empty")).list()
    []
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = expand(folder or default_folder())

    @property
    def exists(self) -> bool:
        return self._database.exists()

    def check_writable(self, *, optional: bool = False) -> None:
        """Fail now, not after an hour of inference. `optional`: the work can be done without a store."""
        try:
            self._check_writable()
        except RequestError as error:
            raise RequestError(f"{error} (`no_store` keeps nothing and needs none)") if optional else error from error

    def _check_writable(self) -> None:
        with self._open(create=True) as database:
            try:
                database.execute("BEGIN IMMEDIATE")
                database.rollback()
            except sqlite3.OperationalError as error:
                raise RequestError(f"the store in {self.folder} cannot be written: {error}") from error
        why = check_place(self._outcomes_file("trial")) or check_place(self.folder / ".writing")
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
            facts = {**_facts(result), _DIGESTS: write_outcomes(path, result.outcomes, moves)}
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
                return self._load(str(run_id))
            except RequestError as error:
                if damaged is not None:
                    damaged.append(f"a stored run counts as absent: {error}")
        return None

    def list(self) -> list[RunLine]:
        """Every run, the last written first; `lines` reads no more than is taken from it."""
        return list(self.lines())

    def lines(self) -> Iterator[RunLine]:
        """The runs, the last written first. A row that no version of ours can have written is left out: `calipers
        doctor` names it."""
        width = len(_LINE.split(", "))
        for row in self._rows(f"{_LINE}, {_REST}"):
            if why_damaged(row[:width]) is None:
                yield self._line(row)

    def line(self, run_id: str) -> RunLine:
        """One run as a list shows it."""
        for row in self._rows(f"{_LINE}, {_REST}", "run_id = ?", run_id):
            return self._line(row)
        raise RequestError(f"the run {run_id} was removed by another process")

    def count(self) -> int:
        """Rows of runs, whatever is in them."""
        if not self.exists:
            return 0
        with self._open() as database:
            return int(database.execute("SELECT COUNT(*) FROM runs").fetchone()[0])

    def rows(self) -> Sequence[tuple[Any, ...]]:
        """What the database holds of each run, whatever it is: the fields of `RunLine` that are columns."""
        return list(self._rows(_LINE))

    def _rows(self, columns: str, where: str = "1", *values: str) -> Iterator[tuple[Any, ...]]:
        """Rows that meet a condition, the last written first. They are read page by page, with no lock in between."""
        if not self.exists:
            return
        query = f"SELECT rowid, {columns} FROM runs WHERE rowid < ? AND {where} ORDER BY rowid DESC LIMIT ?"
        last, size = 1 << 62, 8  # rows of a page: few where one is wanted
        with self._open() as database:
            database.text_factory = lambda content: content.decode("utf-8", "replace")
            while rows := database.execute(query, (last, *map(_storable, values), size)).fetchall():
                yield from (row[1:] for row in rows)
                last, size = rows[-1][0], min(2 * size, _PAGE)

    def _line(self, row: Sequence[Any]) -> RunLine:
        """Facts beyond the columns may be missing, or anything where the database was changed by others."""
        *columns, facts, tags, label = row
        name, path, fingerprint, digests = json.loads(facts) if facts else (None,) * 4
        size = sum(map(size_of, self._files(columns[0], digests)))
        name, path, fingerprint, tags, label = (_text(v) for v in (name, path, fingerprint, tags, label))
        rest: list[Any] = [name, path or None, fingerprint, tuple(sorted(tags.split())), label, size]
        return RunLine(*columns, *rest)

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
        thresholds may change; this is for finding it again. Runs that are not in the store are left out, and a store
        that cannot be written costs no verdict."""
        if not self._database.exists():
            return
        made = datetime.now(UTC).isoformat(timespec="milliseconds")
        newest = "SELECT baseline, label FROM labels WHERE run_id = ? ORDER BY made DESC LIMIT 1"
        with suppress(RequestError), self._open() as database:
            rows = [
                (run_id, *verdict, made, run_id)
                for run_id, verdict in labels.items()
                if database.execute(newest, (run_id,)).fetchone() != verdict  # to write the same again takes a flush
            ]
            if not rows:
                return
            keep = "INSERT OR REPLACE INTO labels SELECT ?, ?, ?, ? WHERE EXISTS (SELECT 1 FROM runs WHERE run_id = ?)"
            with self._writing(database):
                database.executemany(keep, rows)

    def keep_timing(self, results: Sequence[Result]) -> None:
        """The times of runs that were measured after they were stored; nothing else of a run changes."""
        if not self._database.exists():
            return
        rows = [(json.dumps(dict(result.timing)), result.run_id) for result in results]
        with suppress(RequestError), self._open() as database, self._writing(database):
            database.executemany("UPDATE runs SET facts = json_set(facts, '$.timing', json(?)) WHERE run_id = ?", rows)

    def size(self) -> int:
        """Bytes of all that is kept: runs, outcomes and vectors."""
        places = (os.path.join(folder, file) for folder, _, files in os.walk(self.folder) for file in files)
        return sum(map(size_of, places))

    def load(self, name: str) -> Result:
        return self._load(self.resolve(name))

    def _load(self, run_id: str) -> Result:
        with self._open() as database:
            row = database.execute("SELECT facts FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        if row is None:
            raise RequestError(f"the run {run_id} was removed by another process")
        try:
            facts = json.loads(row[0])
            return _with_outcomes(facts, read_outcomes(self._outcomes_file(run_id), facts.pop(_DIGESTS, {})))
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise RequestError(
                f"the run {run_id} was written by another version of calipers, and this one cannot read its facts "
                "(calipers eval measures it again, calipers runs rm removes it)"
            ) from error

    def remove(self, name: str) -> str:
        run_id = self.resolve(name)
        files = self.files_of(run_id)
        with self._open() as database, self._writing(database):
            for table in ("runs", "tags", "labels"):
                database.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))
        with boundary(RequestError, f"the run {run_id} is removed, but not its files"):
            for file in files:
                file.unlink(missing_ok=True)
        return run_id

    def files_of(self, run_id: str) -> tuple[Path, ...]:
        """The files beside the database that hold a run's outcomes."""
        digests = f"CASE WHEN json_valid(facts) THEN json_extract(facts, '$.{_DIGESTS}') END"
        for (content,) in self._rows(digests, "run_id = ?", run_id):
            return self._files(run_id, json.loads(content) if content else None)
        return self._files(run_id, None)

    def _files(self, run_id: str, digests: object) -> tuple[Path, ...]:
        return outcome_files(self._outcomes_file(run_id), digests)

    def resolve(self, name: str) -> str:
        """A run by its id, by the beginning of it, by its name (the newest of that name), or "latest"."""
        if name == "latest" and (newest := next(self._ids("1"), None)):
            return newest
        for condition in (f"{NAME} = ?", "run_id = ?"):
            if name and (run_id := next(self._ids(condition, name), None)):
                return run_id
        matches = list(self._ids(_BEGINNING, name, f"{name}\U0010ffff")) if name else []
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise RequestError(f"{name!r} is the beginning of {len(matches)} runs: {', '.join(matches[:5])}")
        raise RequestError(f"there is no run {name!r} in {self.folder} (calipers runs list)")

    def _ids(self, condition: str, *values: str) -> Iterator[str]:
        """The ids of whole rows that meet a condition, the last written first."""
        return (str(row[0]) for row in self._rows(_LINE, condition, *values) if why_damaged(row) is None)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """The database with a write lock; committed at the end, rolled back after an error."""
        with self._open(create=True) as database, self._writing(database):
            yield database

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The database without a lock beyond each statement's."""
        with self._open() as database:
            yield database

    @contextmanager
    def _writing(self, database: sqlite3.Connection) -> Iterator[None]:
        """A transaction that has its lock from the start. Writers queue at a file, in their order: SQLite lets them try
        again and again, so that one of many may wait beyond any limit, and gives up at once where a transaction that
        has read wants to write while another one ends."""
        with self._open_queue() as queue:
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

    def _open_queue(self) -> IO[bytes]:
        """A file of its own: a link would lead to another one, and a pipe would block."""
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
        try:
            handle = os.open(self.folder / ".writing", flags, 0o666)
        except OSError as error:
            raise RequestError(f"the store in {self.folder} cannot be written: {error.strerror}") from error
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise RequestError(f"the store in {self.folder} cannot be written: .writing is no regular file")
        return os.fdopen(handle, "r+b")

    def has_name(self, name: str) -> bool:
        return any(self._ids(f"{NAME} = ?", name))

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
        except (sqlite3.Error, UnicodeDecodeError) as error:  # a message of SQLite may hold damaged bytes
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
            digests = write_outcomes(part / "outcomes.parquet", result.outcomes, moves)
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
        outcomes = read_outcomes(folder / "outcomes.parquet", facts.pop(_DIGESTS, {}))
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


def _text(value: object) -> str:
    return str(_storable(str(value or "")))


def _run_line(result: Result) -> RunLine:
    metric, value = next(iter(result.metrics.items()))
    model, path, examples = result.model.model_id, result.dataset.path, len(result.outcomes)
    return RunLine(result.run_id, result.created, result.task, model, path, examples, metric, value)


def _facts(result: Result) -> dict[str, Any]:
    facts = {key: value for key, value in vars(result).items() if key not in ("outcomes", "slices")}
    outcomes = {"counts": dict(result.outcomes.counts), "outcome_notes": list(result.outcomes.notes)}
    return {**facts, "model": asdict(result.model), "dataset": asdict(result.dataset), **outcomes}


_JSON_KINDS = {
    "str": str,
    "int": int,
    "bool": bool,
    "Mapping": dict,
    "tuple": list,
    "ModelInfo": dict,
    "DataSource": dict,
}


def _check_kinds(record: type[Any], facts: Mapping[str, Any]) -> None:
    """TypeError where a fact is of another kind than its field: a damaged row must not surprise whoever shows it."""
    for entry in fields(record):
        kind, *others = str(entry.type).split(" | ")
        expected, value = _JSON_KINDS.get(kind.partition("[")[0], object), facts.get(entry.name)
        is_absent = entry.name not in facts or (value is None and "None" in others)
        if not is_absent and not isinstance(value, expected):
            raise TypeError(f"{entry.name} is {quote(value)}")


def _result(facts: dict[str, Any], outcomes: Outcomes) -> Result:
    for record, values in ((Result, facts), (ModelInfo, facts["model"]), (DataSource, facts["dataset"])):
        _check_kinds(record, values)
    if any(value is not None and number_of(value) is None for value in facts["metrics"].values()):
        raise TypeError("a metric is no number")
    changed = {
        "model": ModelInfo(**{**facts["model"], "notes": tuple(facts["model"].get("notes", ()))}),
        "dataset": DataSource(**facts["dataset"]),
        "intervals": {name: tuple(ends) if ends else None for name, ends in facts["intervals"].items()},
        "warnings": tuple(facts["warnings"]),
    }
    return Result(**{**facts, **changed}, outcomes=outcomes)


def _leave_document(result: Result, folder: Path) -> str:
    """Write the JSON of a run that the store does not take, and say where it is."""
    name = f"{result.run_id}.json"
    for place in (folder / "unsaved" / name, Path(tempfile.gettempdir()) / f"calipers-{name}"):
        with suppress(OSError, ValueError):
            place.parent.mkdir(parents=True, exist_ok=True)
            write_whole(place, to_json(result.to_dict()) + "\n")
            return f"its JSON is in {place}"
    return "its JSON could not be written either: `output` or `as_json` keep it"
