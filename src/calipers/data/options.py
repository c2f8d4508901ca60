"""Which rows are read: the options that every reader of data shares."""

from __future__ import annotations

from dataclasses import dataclass

from calipers.core import DataSource
from calipers.core.options import Options, option


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

    def source(self, reference: str) -> DataSource:
        """Where the rows come from and how they are chosen, before anything is read."""
        return DataSource(
            path=reference,
            name=self.name,
            split=self.split,
            revision=self.revision,
            requested=self.samples,
            shuffle=self.shuffle,
            seed=self.seed,
            streaming=self.streaming,
        )
