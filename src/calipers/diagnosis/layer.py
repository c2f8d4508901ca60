"""A layer: what a diagnosis measures on a space, texts that are embedded once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from calipers.core import Encoder, Measurement, Outcomes, Progress
from calipers.runs.space import Space

RESAMPLES = 2000  # that the interval of a figure rests on, unless a layer says otherwise


@dataclass(frozen=True, kw_only=True)
class Layer(Measurement):
    """`resamples` are those of its figures' intervals. `spare` says why a diagnosis that did not ask for the layer by
    name goes without it, None where it does not."""

    run: Callable[[Encoder | None, Space, Any, Progress], Outcomes]
    spare: Callable[[Space], str | None] | None = None
    resamples: int = RESAMPLES
