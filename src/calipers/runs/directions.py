"""Texts without a direction: a model that knows none of the words of a text may give it a vector of zeros.

No cosine says anything about such a text. It is counted and named; it is left out of the geometry and of all that rests
on cosines; in a search a query of this kind finds nothing and a document is never found, which counts as failing. Above
`MOST` of the documents, queries or pairs, and where a number is not finite, the model's output is INVALID.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from calipers.core import DataError, InvalidOutput, Outcomes, name_some
from calipers.metrics import geometry, search
from calipers.runs.space import Kept, Pairs, Space, Texts

Ints = NDArray[np.int64]
Search = Callable[[NDArray[Any], NDArray[Any], int], Ints]  # vectors that ask, documents, k → rows int64[q, k]

MOST = 0.1  # share of the texts of a side
LEAST = 3  # documents that the geometry of a space needs


@dataclass(frozen=True, eq=False)
class Directed:
    """A space without the texts that have no direction. `documents`, `queries` and `pairs` are the rows that it keeps,
    int64, ascending; its own rows are numbered from 0."""

    space: Space
    documents: Ints
    queries: Ints
    pairs: Ints

    def find(self, asking: NDArray[Any], k: int, search: Search | None = None) -> Ints:
        """The k documents that a search finds, rows of the whole corpus int64[q, k]; -1 for a vector without a
        direction, and where there are fewer."""
        alive = np.flatnonzero(_has_direction(geometry.norms(asking)))
        found = np.full((len(asking), k), -1, np.int64)
        if len(alive):
            rows = (search or _nearest)(asking[alive], self.space.corpus.vectors, k)
            found[alive, : rows.shape[1]] = np.where(rows >= 0, self.documents[rows], -1)
        return found


def _nearest(asking: NDArray[Any], vectors: NDArray[Any], k: int) -> Ints:
    return search.nearest(asking, vectors, k)[1]


def directed(space: Space, *, least: int = 0) -> Directed:
    """The space that cosines can speak about; refused where too little of it is left, or has too few documents."""
    if len(space.corpus) < least:
        raise DataError(f"the geometry of a space needs at least {least} documents, found {len(space.corpus)}")
    refuse(space)
    corpus, documents = _keep(space.corpus, space.corpus.lengths)
    queries, asking = space.queries, np.empty(0, np.int64)
    if queries is not None:
        queries, asking = _keep(queries, queries.lengths)
    pairs, kept = space.pairs, np.empty(0, np.int64)
    if pairs is not None:
        kept = np.flatnonzero(_has_direction(_pair_lengths(pairs)))
        pairs = pairs if len(kept) == len(pairs.ids) else _some_pairs(pairs, kept)
    qrels = space.qrels
    if len(asking) < len(qrels) and queries is not None:
        qrels = [qrels[int(i)] for i in asking]
    less = replace(space, corpus=corpus, queries=queries, pairs=pairs, qrels=qrels, searched=None, reference=None)
    return Directed(less, documents, asking, kept)


def refuse(space: Space) -> None:
    """What cannot be measured: a vector missing, NaN, or too many vectors of zeros."""
    for what, ids, lengths in _sides(space):
        refuse_side(what, ids, lengths)


def refuse_side(what: str, ids: Sequence[str], lengths: NDArray[np.float64]) -> None:
    """The same for the vectors of one kind of text, by their lengths."""
    if len(ids) != len(lengths):
        raise DataError(f"{len(ids)} {what} have {len(lengths)} vectors: expected one each")
    broken = [ids[int(i)] for i in np.flatnonzero(~np.isfinite(lengths))]
    zero = [ids[int(i)] for i in np.flatnonzero(lengths == 0)]
    for dead, are in ((broken, "hold NaN or infinite numbers"), (zero, f"are zero, more than {MOST:.0%}")):
        if dead and (dead is broken or len(dead) > MOST * len(ids)):
            raise InvalidOutput(f"the vectors of {len(dead)} of {len(ids)} {what} {are} (rows {name_some(dead)})", dead)


def tell(space: Space) -> Iterator[str]:
    """A sentence for each side that has texts without a direction."""
    so = {
        "documents": "no search finds them, and they are left out of what rests on cosines",
        "queries": "they find nothing, count as failing in retrieval and are left out of what rests on cosines",
        "pairs": "they are left out of alignment",
    }
    for what, ids, lengths in _sides(space):
        lost = [ids[int(i)] for i in np.flatnonzero(lengths == 0)]
        if lost:
            yield (
                f"{len(lost)} of {len(ids)} {what} have no direction, for their vectors are zero "
                f"({name_some(lost)}): {so[what]}"
            )


def _sides(space: Space) -> Iterator[tuple[str, Sequence[str], NDArray[np.float64]]]:
    yield "documents", space.corpus.ids, space.corpus.lengths
    if space.queries is not None:
        yield "queries", space.queries.ids, space.queries.lengths
    if space.pairs is not None:
        yield "pairs", space.pairs.ids, _pair_lengths(space.pairs)


def _pair_lengths(pairs: Pairs) -> NDArray[np.float64]:
    """The shorter of the two sides, NaN where one is not finite."""
    return np.minimum(geometry.norms(pairs.left), geometry.norms(pairs.right))


def _has_direction(lengths: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.asarray(np.isfinite(lengths) & (lengths > 0))


def _keep(texts: Texts, lengths: NDArray[np.float64]) -> tuple[Texts, Ints]:
    rows = np.flatnonzero(_has_direction(lengths))
    if len(rows) == len(texts):
        return texts, rows
    return replace(
        texts,
        ids=tuple(texts.ids[int(i)] for i in rows),
        texts=[texts.texts[int(i)] for i in rows],
        vectors=cast(NDArray[Any], SomeRows(texts.vectors, rows)),
        kept=Kept(rows, len(texts)),
    ), rows


def _some_pairs(pairs: Pairs, rows: Ints) -> Pairs:
    ids = tuple(pairs.ids[int(i)] for i in rows)
    return Pairs(ids, pairs.left[rows], pairs.right[rows], kept=Kept(rows, len(pairs.ids)))


class SomeRows:
    """Some rows of an array, taken when they are asked for: an array that is mapped from a file stays there."""

    def __init__(self, vectors: NDArray[Any], rows: Ints) -> None:
        self._vectors = vectors
        self._rows = rows
        self.shape = (len(rows), *vectors.shape[1:])
        self.dtype = vectors.dtype

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, which: Any) -> NDArray[Any]:
        return np.asarray(self._vectors[self._rows[which]])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self._vectors[self._rows], dtype=dtype)


def put_back(outcomes: Outcomes, rows: Ints, ids: Sequence[str], texts: Mapping[str, tuple[str, ...]]) -> Outcomes:
    """Outcomes of some examples as outcomes of all `ids`, of which they are the `rows`: the others are NaN in every
    column, so that two models that leave out different texts can still be compared."""
    if len(rows) == len(ids):
        return outcomes

    def spread(values: NDArray[Any]) -> NDArray[np.float64]:
        column = np.full(len(ids), np.nan)
        column[rows] = values
        return column

    def point(table: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
        return {**table, "example": rows[table["example"]].astype(np.int32)} if "example" in table else table

    return replace(
        outcomes,
        ids=tuple(ids),
        columns={name: spread(values) for name, values in outcomes.columns.items()},
        texts=texts,
        details={name: point(table) for name, table in outcomes.details.items()},
    )
