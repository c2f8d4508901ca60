"""A Space: a corpus, queries, judgements and pairs with their vectors, embedded once for all that reads them.

Texts without a direction: a model that knows no word of a text may give it a vector of zeros, about which no cosine
says anything. It is counted and named, left out of all that rests on cosines, and neither finds nor is found in a
search, which counts as failing. Above a tenth of a side, and where a number is not finite, the output is INVALID.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from calipers.core import DataError, InvalidOutput, Outcomes, ShowsHalo, name_some
from calipers.metrics import codecs, geometry
from calipers.metrics import search as searching
from calipers.shop.products import Products
from calipers.tasks.outputs import MOST_UNREAD
from calipers.tasks.rankers import Ranker

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Search = Callable[[NDArray[Any], NDArray[Any], int], Ints]  # vectors of queries, documents, k → rows int64[q, k]

_SAME_LENGTH = 1e-3  # share by which lengths may differ and still count as one
LEAST = 3  # documents that the geometry of a space needs


@dataclass(frozen=True, eq=False)
class Kept:
    """Which rows of a whole of `of` are here, int64, ascending."""

    rows: Ints
    of: int


def draw(kept: Kept | None, size: int, most: int, *, seed: int) -> Ints:
    """Rows of a seeded sample, ascending. It is drawn from the whole: two models that leave out different rows see the
    same others. `size` are the rows that are here.

    >>> draw(Kept(np.array([0, 2, 3]), 4), 3, 4, seed=0)
    array([0, 1, 2])
    """
    if kept is None:
        return np.sort(geometry.sample(size, most, seed=seed))
    return np.flatnonzero(np.isin(kept.rows, geometry.sample(kept.of, most, seed=seed)))


@dataclass(frozen=True, eq=False)
class Texts:
    """Texts with their vectors float[n, d], which may be mapped from a file and need not have length 1.

    `prompt` is what `encode(prompt=…)` was given for them; None stands for the model's own. `kept` says where they
    stand among more, if they do. `title_lengths`, int[n], is how many characters each text begins with that are its
    title; 0 for one without a title, None where none has one.
    """

    ids: Sequence[str]
    texts: Sequence[str]
    vectors: NDArray[Any]
    prompt: str | None = None
    kept: Kept | None = None
    title_lengths: NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def title(self, row: int) -> str:
        """The title of a text; the whole text where it has none."""
        length = int(self.title_lengths[row]) if self.title_lengths is not None else 0
        return self.texts[row][:length] if length else self.texts[row]

    @cached_property
    def lengths(self) -> Floats:
        """Of the vectors, float64[n]: 0 or not finite where one has no direction."""
        return geometry.norms(self.vectors)

    def codec(self, name: str, seed: int) -> codecs.Codec:
        """The codec of this name, fitted on the vectors once for all who read them."""
        if (name, seed) not in self._fitted:
            self._fitted[name, seed] = codecs.fit(name, self.vectors, seed=seed)
        return self._fitted[name, seed]

    @cached_property
    def _fitted(self) -> dict[tuple[str, int], codecs.Codec]:
        return {}

    def with_direction(self) -> tuple[Texts, Ints]:
        """The texts whose vector has a direction, and their rows."""
        rows = np.flatnonzero(_has_direction(self.lengths))
        if len(rows) == len(self):
            return self, rows
        return replace(
            self,
            ids=tuple(self.ids[int(i)] for i in rows),
            texts=[self.texts[int(i)] for i in rows],
            vectors=cast(NDArray[Any], SomeRows(self.vectors, rows)),
            kept=Kept(rows, len(self)),
            title_lengths=None if self.title_lengths is None else self.title_lengths[rows],
        ), rows


@dataclass(frozen=True, eq=False)
class PairVectors:
    """Texts that belong together, as the vectors of their two sides, float[n, d] each."""

    ids: tuple[str, ...]
    left: NDArray[Any]
    right: NDArray[Any]
    kept: Kept | None = None

    @property
    def lengths(self) -> Floats:
        """Of the shorter of the two sides, NaN where one is not finite."""
        return np.minimum(geometry.norms(self.left), geometry.norms(self.right))

    def with_direction(self) -> tuple[PairVectors, Ints]:
        """The pairs of which both sides have a direction, and their rows."""
        rows = np.flatnonzero(_has_direction(self.lengths))
        if len(rows) == len(self.ids):
            return self, rows
        ids = tuple(self.ids[int(i)] for i in rows)
        return PairVectors(ids, self.left[rows], self.right[rows], kept=Kept(rows, len(self.ids))), rows


@dataclass(frozen=True, eq=False)
class GroupVectors:
    """Queries that mean the same: the texts of all groups one after the other, and the group of each, int[n] from 0."""

    ids: tuple[str, ...]
    texts: Texts
    group: NDArray[Any]


@dataclass(frozen=True, eq=False)
class Space:
    """`qrels` has one mapping per query, document id → grade. Without `pairs` the positives are taken from it.

    `searched` is what the search task found in this space: its details `results` have, per result, `example` (the row
    of the query), `rank`, `document` (id), `score`, `grade`, and `base_rank` where a second stage ordered them again.
    `reference` are the first results of every query with another model, rows of the corpus int[q, k].
    """

    corpus: Texts
    queries: Texts | None = None
    qrels: Sequence[Mapping[str, float]] = ()
    pairs: PairVectors | None = None
    terms: Sequence[str] = ()
    entities: Sequence[str] = ()  # for the knowledge probe; none: they are mined from the corpus
    head: ShowsHalo | None = None  # a masked language model on this model's own states
    foreign: Sequence[str] = ()  # queries that the corpus has no answer to; none: bundled ones are taken
    searched: Outcomes | None = None
    reference: NDArray[Any] | None = None
    paraphrases: GroupVectors | None = None
    products: Products | None = None  # what the documents are as products, for the layer attributes
    similarity: str = "cosine"  # how a search compares vectors, a key of `metrics.measures.MEASURES`
    truncated: Mapping[str, int] = field(default_factory=dict)  # by kind of text, how many the model cut
    ranker: Ranker | None = None  # what orders the documents where no vectors do
    no_vectors: str = ""  # why the texts have no vectors

    def sides(self) -> Iterator[tuple[str, Sequence[str], Floats]]:
        """What the texts of a side are called, their ids, and the lengths of their vectors."""
        if self.no_vectors:
            return
        for name, side in (("documents", self.corpus), ("queries", self.queries), ("pairs", self.pairs)):
            if side is not None:
                yield name, side.ids, side.lengths


# --- texts without a direction ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Directed:
    """A space without the texts that have no direction. `documents`, `queries` and `pairs` are the rows that it keeps,
    int64, ascending; its own rows are numbered from 0."""

    space: Space
    documents: Ints
    queries: Ints
    pairs: Ints

    @cached_property
    def why_not_by_direction(self) -> str:
        """Why what keeps directions alone, a codec or an index, cannot stand for this search; "" where it can: by the
        cosine, or where all documents have one length."""
        if self.space.no_vectors:
            return self.space.no_vectors
        lengths = self.space.corpus.lengths
        if self.space.similarity == "cosine" or np.ptp(lengths) <= _SAME_LENGTH * lengths.max():
            return ""
        return (
            f"it keeps directions alone, and this search is by {self.space.similarity} of vectors of different lengths"
        )

    def find(self, vectors: NDArray[Any], k: int, search: Search | None = None) -> Ints:
        """The k documents that a search finds for each vector, rows of the whole corpus int64[q, k]; -1 for a vector
        without a direction, and where there are fewer."""
        alive = np.flatnonzero(_has_direction(geometry.norms(vectors)))
        documents = np.full((len(vectors), k), -1, np.int64)
        if len(alive):
            search = search or partial(searching.nearest_rows, similarity=self.space.similarity)
            rows = search(vectors[alive], self.space.corpus.vectors, k)
            documents[alive, : rows.shape[1]] = np.where(rows >= 0, self.documents[rows], -1)
        return documents


def directed(space: Space, *, least: int = 0, checked: bool = False) -> Directed:
    """The space that cosines can describe; refused where too little of it is left, unless it is `checked`, or where it
    has too few documents. One without vectors stays whole."""
    if space.no_vectors:
        every, each = (np.arange(len(side or ())) for side in (space.corpus, space.queries))
        return Directed(space, every, each, np.empty(0, np.int64))
    if len(space.corpus) < least:
        raise DataError(f"the geometry of a space needs at least {least} documents, found {len(space.corpus)}")
    if not checked:
        refuse(space)
    nothing = np.empty(0, np.int64)
    corpus, documents = space.corpus.with_direction()
    queries, query_rows = space.queries.with_direction() if space.queries is not None else (None, nothing)
    pairs, pair_rows = space.pairs.with_direction() if space.pairs is not None else (None, nothing)
    qrels = space.qrels
    if queries is not None and len(query_rows) < len(qrels):
        qrels = [qrels[int(i)] for i in query_rows]
    less = replace(space, corpus=corpus, queries=queries, pairs=pairs, qrels=qrels, searched=None, reference=None)
    return Directed(less, documents, query_rows, pair_rows)


def refuse(space: Space) -> None:
    """Refuse what cannot be measured: a vector missing, NaN, or too many vectors of zeros."""
    for side in space.sides():
        refuse_side(*side)


def refuse_side(name: str, ids: Sequence[str], lengths: Floats) -> None:
    """The same for the vectors of one kind of text, by their lengths."""
    if len(ids) != len(lengths):
        raise DataError(f"{len(ids)} {name} have {len(lengths)} vectors: expected one each")
    broken = [ids[int(i)] for i in np.flatnonzero(~np.isfinite(lengths))]
    zero = [ids[int(i)] for i in np.flatnonzero(lengths == 0)]
    if broken or len(zero) > MOST_UNREAD * len(ids):
        dead, are = (
            (broken, "hold NaN or infinite numbers") if broken else (zero, f"are zero, more than {MOST_UNREAD:.0%}")
        )
        raise InvalidOutput(f"the vectors of {len(dead)} of {len(ids)} {name} {are} (rows {name_some(dead)})", dead)


def notes_on_directions(space: Space) -> Iterator[str]:
    """A sentence for each side that has texts without a direction."""
    effects = {
        "documents": "no search finds them, and they are left out of what rests on cosines",
        "queries": "they find nothing, count as failing in retrieval and are left out of what rests on cosines",
        "pairs": "they are left out of alignment",
    }
    for name, ids, lengths in space.sides():
        lost = [ids[int(i)] for i in np.flatnonzero(lengths == 0)]
        if lost:
            yield (
                f"{len(lost)} of {len(ids)} {name} have no direction, for their vectors are zero "
                f"({name_some(lost)}): {effects[name]}"
            )


def notes_on_truncation(truncated: Mapping[str, int], settings: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for each kind of text of which the model with these settings cuts some, or where that is unknown."""
    where = f" at {settings['max_length']} tokens" if settings.get("max_length") else ""
    if "truncation" in settings:
        yield f"how many texts the model cuts is {settings['truncation']}"
    for kind, count in truncated.items():
        if count:
            yield f"{count:,} {kind} are longer than the model reads and are cut{where}"


def _has_direction(lengths: Floats) -> NDArray[np.bool_]:
    return np.asarray(np.isfinite(lengths) & (lengths > 0))


class SomeRows:
    """Some rows of an array, taken when they are needed: an array that is mapped from a file stays there."""

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
    """Outcomes of the examples `rows` as outcomes of all `ids`: the others are NaN in every column, so that two models
    that leave out different texts can still be compared."""
    if len(rows) == len(ids):
        return outcomes

    def spread(values: NDArray[Any]) -> Floats:
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
