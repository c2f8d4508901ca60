"""What a search task works with: models that search by themselves, and judgements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from calipers.core import SILENT, ModelInfo, Progress
from calipers.metrics.search import Hits

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Retriever(Protocol):
    """A model that searches by itself, such as BM25."""

    @property
    def info(self) -> ModelInfo: ...

    def search(
        self, queries: Any, documents: Any, k: int, *, progress: Progress = SILENT
    ) -> tuple[NDArray[np.float32], Ints]:
        """Scores float32[q, k] and documents int64[q, k], best first; -1 stands where there is no further document."""
        ...


@dataclass(frozen=True, eq=False)
class Judgements:
    """All grades of all queries: `query` int64[j] ascending, `document` int64[j] (a row of the corpus, -1 if it is not
    there), `grade` float64[j] from 0 up (TREC's negative grades are 0)."""

    query: Ints
    document: Ints
    grade: Floats
    queries: int
    documents: int

    def look_up(self, query: Ints, document: Ints) -> Floats:
        """The grade of each pair, NaN where it has none."""
        known = self.document >= 0
        keys = self.query[known] * self.documents + self.document[known]
        order = np.argsort(keys)
        keys, grades = np.append(keys[order], -1), np.append(self.grade[known][order], np.nan)
        asked = query * self.documents + document
        place = np.searchsorted(keys[:-1], asked)
        return np.where(keys[place] == asked, grades[place], np.nan)


def from_table(scores: NDArray[Any], documents: NDArray[Any]) -> Hits:
    """[q, k] arrays, -1 where there is no document, to ragged ones.

    >>> from_table(np.array([[3.0, 1.0], [2.0, 0.0]]), np.array([[7, 5], [6, -1]])).offsets
    array([0, 2, 3])
    """
    found = documents >= 0
    offsets = np.concatenate([[0], np.cumsum(found.sum(axis=1))])
    return Hits(offsets, documents[found].astype(np.int64), scores[found].astype(np.float64))
