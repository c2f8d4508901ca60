"""What a store holds that no run needs or can use: found, named and, on request, removed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from calipers.core import RequestError
from calipers.core.files import part_owner, remove
from calipers.runs import store, vector_cache
from calipers.runs.store import Store

_ABANDONED = 86_400.0  # seconds


@dataclass(frozen=True)
class Damage:
    """Something that is wrong, and what would put it right; None where that is for the user to decide."""

    what: str
    why: str
    repair: Callable[[], None] | None


def inspect(place: Store) -> list[Damage]:
    """Rows that are none of ours, runs whose outcomes cannot be read, files of no run, damaged vectors, and what killed
    sweeps left."""
    if not place.folder.is_dir():
        return []
    return [
        *_rows(place),
        *_runs(place),
        *_orphans(place),
        *_vectors(place.folder / "vectors"),
        *_unfinished(place.folder / "sweeps"),
    ]


def repair(place: Store) -> list[Damage]:
    """Remove what no run needs, and say what it was. Runs stay, readable or not."""
    mended = []
    for damage in inspect(place):
        if damage.repair is not None:
            damage.repair()
            mended.append(damage)
    return mended


def _rows(place: Store) -> Iterator[Damage]:
    for row in place.rows():
        if why := store.why_damaged(row):
            yield Damage("a row of the database", why, partial(_delete_row, place, row[0]))


def _delete_row(place: Store, run_id: object) -> None:
    """Without a look at any file: the id may be a path or a pattern."""
    with place.transaction() as database:
        database.execute("DELETE FROM runs WHERE run_id IS ?", (run_id,))


def _runs(place: Store) -> Iterator[Damage]:
    for line in place.list():
        try:
            place.load(line.run_id)
        except RequestError as error:
            yield Damage(f"the run {line.run_id}", f"{error} (calipers runs rm {line.run_id} removes it)", None)


def _orphans(place: Store) -> Iterator[Damage]:
    """Files without a run. Writers move a file and add its run under one lock, which is waited for here."""
    if not (place.folder / "calipers.db").exists():
        return
    place.check_writable()
    files = list((place.folder / "outcomes").iterdir())
    runs = {str(row[0]) for row in place.rows()}
    for file in files:
        with suppress(OSError):
            if _is_abandoned(file):
                yield Damage(str(file), "it is what a run that was stopped left behind", file.unlink)
            elif not file.name.startswith(".") and file.name.split(".")[0] not in runs:
                yield Damage(str(file), "no run has these outcomes", file.unlink)


def _is_abandoned(file: Path) -> bool:
    """Whether a temporary file is of a process that is no more, or older than a day."""
    owner = part_owner(file)
    return owner is not None and (not _is_running(owner) or _is_old(file))


def _is_old(file: Path) -> bool:
    return time.time() - file.stat().st_mtime > _ABANDONED


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _vectors(folder: Path) -> Iterator[Damage]:
    for file in sorted(folder.glob("*")) if folder.is_dir() else []:
        with suppress(OSError):
            if _is_abandoned(file):
                yield Damage(str(file), "it is what a run that was stopped left behind", file.unlink)
            elif file.suffix == ".npy" and (why := vector_cache.why_damaged(file)):
                yield Damage(str(file), why, file.unlink)


def _unfinished(folder: Path) -> Iterator[Damage]:
    """What workers that were killed left. They may have run on another machine, so only the age counts."""
    for part in sorted(folder.rglob(".*.part")):
        with suppress(OSError):
            if part_owner(part) is not None and _is_old(part):
                yield Damage(str(part), "it is what a sweep that was stopped left behind", partial(remove, part))
