"""Slices: the metrics of a run by group of examples. They inform; no verdict depends on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


def shown_group(group: str | None) -> str:
    """The name of a group as it is shown; of the one of examples without a label.

    >>> shown_group("ja"), shown_group(None)
    ('ja', '(no value)')
    """
    return "(no value)" if group is None else group


@dataclass(frozen=True)
class Slice:
    """The examples with one label. `group` is None for those without; `reason` says why a metric has no value."""

    group: str | None
    examples: int
    metrics: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float] | None]
    reason: str | None = None


@dataclass(frozen=True)
class Slices:
    """The groups of one column. `about` says where the labels come from, `metric` is the one that is shown."""

    by: str
    about: str
    slices: tuple[Slice, ...]
    metric: str
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it; NaN stays NaN."""
        rows = [
            {**vars(each), "metrics": dict(each.metrics), "intervals": dict(each.intervals)} for each in self.slices
        ]
        return {**vars(self), "slices": rows, "notes": list(self.notes)}
