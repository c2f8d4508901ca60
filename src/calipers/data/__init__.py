"""A file, a folder or a hub id to a Dataset: typed columns, an id per row, a fingerprint of both."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from calipers.core import Column, DataError, Dataset, DataSource, RequestError, fingerprint
from calipers.core.options import Options, option
from calipers.data import hub, readers
from calipers.data.choose import choose
from calipers.data.columns import Record, map_columns, records

__all__ = ["DataOptions", "load", "sample"]


@dataclass(frozen=True)
class DataOptions(Options):
    """Which rows of a dataset are measured.

    >>> DataOptions(samples=500, seed=7).samples
    500
    """

    name: str | None = option(
        None, "The hub dataset's configuration.", group="Data", flag="--dataset-name", metavar="CONFIG"
    )
    revision: str | None = option(None, "The hub dataset's revision.", group="Data", metavar="R")
    split: str | None = option(None, "Which split. Default: test.", group="Data", metavar="S")
    samples: int | None = option(
        None,
        "How many rows to score. Default: all. Blank rows do not count.",
        group="Data",
        metavar="N",
        at_least=1,
    )
    seed: int = option(42, "Which rows, and which resamples.", group="Data", at_least=0)
    shuffle: bool = option(True, "Random rows, or the first ones.", group="Data", off="--no-shuffle")
    streaming: bool = option(False, "Read hub rows as they come; the same rows are chosen.", group="Data")


def sample(name: str) -> Path:
    """A file of the sample data that this package carries: "english" or "japanese"."""
    return Path(__file__).parent / "sample" / f"{name}.jsonl"


def load(reference: str, columns: Sequence[Column], *, mapping: Mapping[str, str], options: DataOptions) -> Dataset:
    """The chosen rows, in the order of the source. Blank texts are left out before rows are chosen.

    Shuffling decides which rows are taken, not their order: the same rows have the same fingerprint however they
    were asked for.
    """
    named = map_columns(columns, mapping)
    options = replace(options, split=_split(reference, options.split))
    with closing(_rows(reference, options)) as rows:
        found = records(rows, columns, named)
        chosen = choose(found, options.samples, seed=options.seed if options.shuffle else None)
    if not chosen.kept:
        blank = f": all {chosen.seen} rows have a blank text" if chosen.seen else ""
        raise DataError(f"{reference} holds no row to measure{blank}")
    _refuse_repeated_ids(chosen.kept, named)
    ids = tuple(record.id for record in chosen.kept)
    values = {column.key: [record.values[column.key] for record in chosen.kept] for column in columns}
    return Dataset(
        ids=ids,
        columns=values,
        source=DataSource(
            path=reference,
            name=options.name,
            split=options.split,
            revision=options.revision,
            requested=options.samples,
            shuffle=options.shuffle,
            seed=options.seed,
            streaming=options.streaming,
            columns_mapping=named,
            rows_read=chosen.seen,
            rows_blank=chosen.blank,
        ),
        fingerprint=fingerprint(ids, values),
    )


def _split(reference: str, split: str | None) -> str | None:
    if hub.is_on_hub(reference):
        return split or "test"
    return readers.choose_split(Path(os.path.expanduser(reference)), split)


def _rows(reference: str, options: DataOptions) -> Generator[readers.Row, None, None]:
    if hub.is_on_hub(reference):
        return hub.read(
            reference.removeprefix("hub:"),
            name=options.name,
            split=str(options.split),
            revision=options.revision,
            streaming=options.streaming,
        )
    if options.name or options.revision:
        raise RequestError(f"`DataOptions.name` and `revision` are for the hub, and {reference} is a file here")
    return readers.read(Path(os.path.expanduser(reference)), options.split)


def _refuse_repeated_ids(kept: Sequence[Record], named: Mapping[str, str]) -> None:
    first: dict[str, Record] = {}
    for record in kept:
        if record.id in first:
            raise DataError(
                f"{record.where}, column {record.id_column!r}: the id {record.id!r} stands already at "
                f"{first[record.id].where}; name another column with --column id_column=NAME, "
                "or number the rows with --column id_column="
            )
        first[record.id] = record
