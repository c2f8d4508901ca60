"""The state of a running sweep, drawn anew on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calipers.core import printable
from calipers.rendering.tables import make_table
from calipers.sweeps.records import SweepStatus

if TYPE_CHECKING:
    from rich.table import Table

_SHOWN = 8


def live_table(status: SweepStatus) -> Table:
    """What runs now, below the counts, the rate and the time to go."""
    running = [(printable(name), "running") for name in status.running[:_SHOWN]]
    left = "" if status.left is None else f"{status.left:.0f} s to go"
    rate = f"{60 * status.done / status.seconds:.1f} jobs a minute" if status.seconds else ""
    rows = [(f"{status.done} of {status.jobs} done, {status.failed} failed", f"{rate} {left}".strip()), *running]
    return make_table(("sweep", f"{status.seconds:.0f} s"), rows)
