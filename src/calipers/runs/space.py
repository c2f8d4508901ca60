"""What a layer reads: a corpus, queries and judgements with their vectors, embedded once by the caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.core import Dataset, Outcomes, ShowsHalo
from calipers.metrics import geometry
from calipers.shop.products import Products


@dataclass(frozen=True, eq=False)
class Kept:
    """Which rows of a whole of `of` are here, int64, ascending; see layers.directions."""

    rows: NDArray[np.int64]
    of: int


def draw(kept: Kept | None, size: int, most: int, *, seed: int) -> NDArray[np.int64]:
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
    stand among more, if they do.
    """

    ids: tuple[str, ...]
    texts: Sequence[str]
    vectors: NDArray[Any]
    prompt: str | None = None
    kept: Kept | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def lengths(self) -> NDArray[np.float64]:
        """Of the vectors, float64[n]: 0 or not finite where one has no direction."""
        return geometry.norms(self.vectors)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Texts that belong together, as the vectors of their two sides, float[n, d] each."""

    ids: tuple[str, ...]
    left: NDArray[Any]
    right: NDArray[Any]
    kept: Kept | None = None


@dataclass(frozen=True, eq=False)
class Groups:
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
    pairs: Pairs | None = None
    terms: Sequence[str] = ()
    entities: Sequence[str] = ()  # for the knowledge probe; none: they are mined from the corpus
    head: ShowsHalo | None = None  # a masked language model on this model's own states
    foreign: Sequence[str] = ()  # queries that the corpus has no answer to; none: bundled ones are taken
    searched: Outcomes | None = None
    reference: NDArray[Any] | None = None
    paraphrases: Groups | None = None
    products: Products | None = None  # what the documents are as products, for the layer attributes


def space_of(
    dataset: Dataset,
    corpus_vectors: NDArray[Any],
    query_vectors: NDArray[Any],
    *,
    pairs: Pairs | None = None,
    terms: Sequence[str] = (),
    prompts: tuple[str | None, str | None] = (None, None),
) -> Space:
    """A BEIR dataset and its vectors; `prompts` are those of queries and of documents."""
    corpus = dataset.tables["corpus"]
    return Space(
        corpus=Texts(corpus.ids, corpus.columns["text"], corpus_vectors, prompts[1]),
        queries=Texts(dataset.ids, dataset.columns["query"], query_vectors, prompts[0]),
        qrels=dataset.columns["qrels"],
        pairs=pairs,
        terms=terms,
    )
