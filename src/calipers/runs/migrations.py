"""The tables of the store, by numbered functions: a store of any age is brought up to date when it is opened."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

from calipers.core import RequestError

# A query by these very words has an index.
NAME = "CASE WHEN json_valid(facts) THEN json_extract(facts, '$.name') END"


def _create_runs(database: sqlite3.Connection) -> None:
    database.execute(
        "CREATE TABLE runs (run_id TEXT PRIMARY KEY, created TEXT NOT NULL, task TEXT NOT NULL, "
        "model_id TEXT NOT NULL, dataset TEXT NOT NULL, examples INTEGER NOT NULL, metric TEXT NOT NULL, "
        "value REAL NOT NULL, facts TEXT NOT NULL)"
    )


def _add_cache_key(database: sqlite3.Connection) -> None:
    """Older runs have no key and are never found by one."""
    database.execute("ALTER TABLE runs ADD COLUMN cache_key TEXT")
    database.execute("CREATE INDEX runs_by_cache_key ON runs (cache_key)")


def _create_jobs(database: sqlite3.Connection) -> None:
    """The queue of sweeps, and what each sweep came to."""
    database.execute(
        "CREATE TABLE sweeps (sweep_id TEXT PRIMARY KEY, name TEXT NOT NULL, created TEXT NOT NULL, finished TEXT, "
        "document TEXT)"
    )
    database.execute(
        "CREATE TABLE jobs (job_id TEXT PRIMARY KEY, sweep_id TEXT NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL, "
        "state TEXT NOT NULL, owner TEXT, lease REAL, attempts INTEGER NOT NULL DEFAULT 0, exit_code INTEGER, "
        "failure TEXT, message TEXT, log TEXT, run TEXT, seconds REAL, detail TEXT)"
    )


def _add_tags_and_labels(database: sqlite3.Connection) -> None:
    database.execute("CREATE TABLE tags (run_id TEXT NOT NULL, tag TEXT NOT NULL, PRIMARY KEY (run_id, tag))")
    database.execute(
        "CREATE TABLE labels (run_id TEXT NOT NULL, baseline TEXT NOT NULL, label TEXT NOT NULL, made TEXT NOT NULL, "
        "PRIMARY KEY (run_id, baseline))"
    )


def _add_index_of_names(database: sqlite3.Connection) -> None:
    database.execute(f"CREATE INDEX runs_by_name ON runs ({NAME})")


# Never edited, only added to: a store of any age is brought up by running those it has not seen.
MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = (
    _create_runs,
    _add_cache_key,
    _create_jobs,
    _add_tags_and_labels,
    _add_index_of_names,
)


def migrate(database: sqlite3.Connection, path: Path) -> None:
    """Bring a database up to this version; one of a newer version is an error."""
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version > len(MIGRATIONS):
        raise RequestError(f"{path} was written by a newer Calipers (schema {version}): update Calipers to read it")
    if version < 0:
        raise RequestError(f"{path} cannot be used as a store: its schema is {version}")
    if version == len(MIGRATIONS):
        return
    database.execute("BEGIN IMMEDIATE")
    (version,) = database.execute("PRAGMA user_version").fetchone()  # another process may have been faster
    for number in range(version, len(MIGRATIONS)):
        MIGRATIONS[number](database)
        database.execute(f"PRAGMA user_version = {number + 1}")
    database.commit()
