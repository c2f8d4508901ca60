"""Outcomes: what came out of each example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from calipers.core.errors import RequestError, name_some

if TYPE_CHECKING:
    import pandas
    import pyarrow

Floats = NDArray[np.float64]
Counts = NDArray[np.number[Any]]
Columns = Mapping[str, NDArray[Any]]

# The outcome column that marks examples with a text that the model has no vector for; it is there if there are any.
WITHOUT_VECTOR = "without_vector"


CLUSTER = "cluster"  # the name under which the texts of outcomes hold the source of each example


@dataclass(frozen=True)
class Outcomes:
    """What came out of each example. `columns` has one entry per example, the unit that a bootstrap resamples.

    `details` are tables of a finer grain (tokens of a text) whose column `example` points back to the example's row;
    `counts` are facts about the run as a whole, such as how many texts were truncated, or a threshold.

    >>> Outcomes(("a", "b"), {"cosine": np.array([0.5, 1.0])}, texts={"text_1": ("one", "two")})
    Outcomes(2 examples: id, text_1, cosine)
    """

    ids: Sequence[str]  # a tuple, or packed texts of many examples
    columns: Columns
    texts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    details: Mapping[str, Columns] = field(default_factory=dict)
    counts: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # what a reader should be warned of

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def clusters(self) -> NDArray[np.int64] | None:
        """The number of each example's source, from 0, where examples of one source are drawn together; else None.

        >>> Outcomes(("a", "b", "c"), {}, texts={"cluster": ("x", "y", "x")}).clusters.tolist()
        [0, 1, 0]
        """
        if CLUSTER not in self.texts:
            return None
        return np.unique(np.array(self.texts[CLUSTER], dtype=object), return_inverse=True)[1].astype(np.int64)

    def take(self, rows: NDArray[np.int64]) -> Outcomes:
        """The outcomes of these examples, in this order, without details and counts, which are of the whole run.

        >>> Outcomes(("a", "b"), {"cosine": np.array([0.5, 1.0])}).take(np.array([1])).columns["cosine"].tolist()
        [1.0]
        """
        return Outcomes(
            tuple(self.ids[i] for i in rows),
            {name: values[rows] for name, values in self.columns.items()},
            {name: tuple(values[i] for i in rows) for name, values in self.texts.items()},
            notes=self.notes,
        )

    def __repr__(self) -> str:
        tables = f"; details: {', '.join(self.details)}" if self.details else ""
        return f"Outcomes({len(self):,} examples: {', '.join(self._table())}{tables})"

    def to_arrow(self, details: str | None = None) -> pyarrow.Table:
        """One row per example: its id, its texts and its columns; or the table of `details` with this name.

        >>> Outcomes(("a", "b"), {"cosine": np.array([0.5, 1.0])}).to_arrow().to_pydict()
        {'id': ['a', 'b'], 'cosine': [0.5, 1.0]}
        """
        import pyarrow

        if details is None:
            return pyarrow.table(self._table())
        if details not in self.details:
            names = f"expected one of {name_some([*self.details])}" if self.details else "these outcomes have none"
            raise RequestError(f"`details` {details!r} does not exist: {names}")
        return pyarrow.table(dict(self.details[details]))

    def to_pandas(self, details: str | None = None) -> pandas.DataFrame:
        """The same table as a DataFrame. It needs pandas."""
        try:
            import pandas  # noqa: F401
        except ImportError as error:
            raise RequestError("`to_pandas` needs pandas: pip install pandas") from error
        return self.to_arrow(details).to_pandas()

    def _table(self) -> dict[str, Sequence[str] | NDArray[Any]]:
        return {"id": self.ids, **self.texts, **self.columns}
