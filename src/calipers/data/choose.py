"""Which rows are measured, and the Dataset that they make. Streaming or not, a seed chooses the same rows."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from calipers.core import Dataset, DataSource, fingerprint
from calipers.core.options import Options, option

if TYPE_CHECKING:
    from calipers.data.columns import Record


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
        None, "How many rows to score. Default: all. Blank rows do not count.", group="Data", metavar="N", at_least=1
    )
    seed: int = option(42, "Which rows, and which resamples.", group="Data", at_least=0)
    shuffle: bool = option(True, "Random rows, or the first ones.", group="Data", off="--no-shuffle")
    streaming: bool = option(False, "Read hub rows as they come; the same rows are chosen.", group="Data")
    cluster: str | None = option(
        None,
        "Rows with the same value here are of one source and drawn together by the bootstrap.",
        group="Data",
        metavar="COLUMN",
    )

    def source(self, reference: str) -> DataSource:
        """Where the rows come from and how they are chosen, before anything is read."""
        values = asdict(self)
        return DataSource(reference, requested=values.pop("samples"), **values)


@dataclass(frozen=True)
class Chosen:
    kept: list[Record]
    seen: int
    blank: int


def choose(rows: Iterable[Record], source: DataSource) -> Chosen:
    """As many rows as `source` requests that are not blank, in their order: the first ones, or random ones by its seed.

    Every row that is not blank draws a number as it passes, and those with the smallest numbers stay. That is a
    uniform sample without replacement that needs neither the length of the source nor more memory than the sample.
    """
    samples, seed = source.requested, source.seed if source.shuffle else None
    seen = blank = 0
    kept: list[Record] = []
    heap: list[tuple[float, int, Record]] = []
    rng = np.random.default_rng(seed)
    for seen, record in enumerate(rows, start=1):
        if record.blank:
            blank += 1
        elif samples is None or (seed is None and len(kept) < samples):
            kept.append(record)
        elif seed is not None:
            entry = (-rng.random(), -seen, record)
            (heapq.heappush if len(heap) < samples else heapq.heappushpop)(heap, entry)
        if seed is None and samples is not None and len(kept) == samples:
            break
    kept += [record for _, _, record in sorted(heap, key=lambda entry: -entry[1])]
    return Chosen(kept, seen, blank)


def make_dataset(
    records: Sequence[Record],
    source: DataSource,
    *,
    tables: Mapping[str, Dataset] | None = None,
    counts: Mapping[str, float] | None = None,
    notes: tuple[str, ...] = (),
) -> Dataset:
    """The records (at least one) as columns, with their fingerprint."""
    ids = tuple(record.id for record in records)
    columns = {key: [record.values[key] for record in records] for key in records[0].values}
    return Dataset(
        ids,
        columns,
        source,
        fingerprint(ids, columns, tables),
        tables=tables or {},
        counts=counts or {},
        notes=notes,
        clusters=tuple(record.cluster for record in records) if source.cluster else (),
    )
