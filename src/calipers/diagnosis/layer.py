"""A layer: what a diagnosis measures on a space, texts that are embedded once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from calipers.core import Encoder, Measurement, Outcomes, Progress
from calipers.core.options import Options, option
from calipers.metrics.arrays import Floats, Ints
from calipers.runs.space import Space, Texts

RESAMPLES = 2000  # for the interval of a figure, unless a layer says otherwise

T = TypeVar("T")
setting = partial(option, group="Diagnosis")  # an option of a layer


@dataclass(frozen=True)
class LayerOptions(Options):
    """The options that every layer has."""

    confidence: float = setting(0.95, "Of intervals and labels.", above=0, below=1)
    seed: int = option(42, "Of samples, shuffles, edits, resamples.", group="Data")


@dataclass(frozen=True, kw_only=True)
class Layer(Measurement):
    """`resamples` is the number behind the intervals of its figures. `skip_reason` says why a diagnosis that did not
    request the layer by name skips it, None where it does not."""

    run: Callable[[Encoder | None, Space, Any, Progress], Outcomes]
    skip_reason: Callable[[Space], str | None] | None = None
    resamples: int = RESAMPLES


def run_steps(steps: Sequence[tuple[str, Callable[[], T]]], progress: Progress) -> list[T]:
    """What each step gives, in their order, with its label as progress."""
    results = []
    for label, step in steps:
        progress.start(label, 0)
        results.append(step())
    return results


def rows_by_id(corpus: Texts, ids: Iterable[str]) -> dict[str, int]:
    """The rows of these documents by id; an id that the corpus lacks is absent."""
    wanted = set(ids)
    return {id: row for row, id in enumerate(corpus.ids) if id in wanted}


def judged_pairs(space: Space) -> tuple[Ints, Ints, Floats]:
    """Rows of queries, rows of the documents judged for them that the corpus has, and the grades, [n] each."""
    rows = rows_by_id(space.corpus, (id for grades in space.qrels for id in grades))
    judged = [
        (q, rows[id], grade) for q, grades in enumerate(space.qrels) for id, grade in grades.items() if id in rows
    ]
    pairs = np.array([(q, document) for q, document, _ in judged], np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1], np.array([grade for *_, grade in judged], np.float64)
