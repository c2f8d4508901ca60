"""Which rows are measured, and the Dataset that they make. Streaming or not, a seed chooses the same rows."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from calipers.core import Dataset, DataSource, fingerprint
from calipers.data.columns import Record

_DRAWS = 4096


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
    lots = _lots(seed)
    for seen, record in enumerate(rows, start=1):
        if record.blank:
            blank += 1
        elif samples is None or (seed is None and len(kept) < samples):
            kept.append(record)
        elif seed is not None:
            entry = (-next(lots), -seen, record)
            (heapq.heappush if len(heap) < samples else heapq.heappushpop)(heap, entry)
        if seed is None and samples is not None and len(kept) == samples:
            break
    kept += [record for _, _, record in sorted(heap, key=lambda entry: -entry[1])]
    return Chosen(kept, seen, blank)


def _lots(seed: int | None) -> Iterator[float]:
    rng = np.random.default_rng(seed)
    while True:
        yield from rng.random(_DRAWS).tolist()


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
        ids, columns, source, fingerprint(ids, columns, tables), tables=tables or {}, counts=counts or {}, notes=notes
    )
