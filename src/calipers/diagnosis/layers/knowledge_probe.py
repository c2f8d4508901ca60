"""The probe itself: the neighbours of entities, how coherent they are, and what the corpus gives by chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calipers.core import Encoder, Halo, InvalidOutput, Progress, RequestError, name_some
from calipers.diagnosis.layers.entities import MOST, count_pieces, mine
from calipers.metrics import geometry, search, trust
from calipers.runs.space import Space

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_LIKE_RANDOM, _LIKE_DOCUMENTS = 0.95, 0.25  # shares of the two backgrounds
_SETS, _DOCUMENTS = 1000, 500
_AT_ONCE, _CELLS = 1024, 1 << 22  # entities whose neighbours' vectors are in hand, and numbers of these at most

_HEADLESS = ("static", "onnx", "http", "bm25")  # backends without states that a masked language model's head could read


@dataclass(frozen=True)
class KnowledgeOptions:
    k: int = 10  # neighbours
    halo: int = 10  # tokens
    mined: int = MOST  # entities, where none are given
    words: str = "auto"
    confidence: float = 0.95
    seed: int = 42

    def __post_init__(self) -> None:
        for name in ("k", "halo", "mined"):
            if getattr(self, name) < 1:
                raise RequestError(f"--{name} must be at least 1, found {getattr(self, name)}")


@dataclass(frozen=True, eq=False)
class Background:
    """Coherence of sets of documents drawn at random float64[s], and of documents' own neighbourhoods float64[d]."""

    random: Floats
    own: Floats

    @property
    def mean(self) -> float:
        return float(self.random.mean())


@dataclass(frozen=True, eq=False)
class Probe:
    """What is known of each entity. `found` int64[n, k] are rows of the corpus, -1 for an entity without a vector;
    `sizes` are words and sub-words, where the tokenizer is shown; `halos` where there is a head.
    `takes_head` says whether the head of another model could be named for it."""

    entities: tuple[str, ...]
    found: Ints
    cosine: Floats
    coherence: Floats
    background: Background
    sizes: list[tuple[int, int]] | None
    halos: list[Halo] | None
    takes_head: bool = True

    @property
    def relative(self) -> Floats:
        """float64[n]; NaN where all documents are one point."""
        room = 1.0 - self.background.mean
        return np.asarray((self.coherence - self.background.mean) / room if room > 1e-9 else self.coherence * np.nan)

    @property
    def z(self) -> Floats:
        spread = self.background.random.std(ddof=1) if len(self.background.random) > 1 else 0.0
        return np.asarray(
            (self.coherence - self.background.mean) / spread if spread > 1e-12 else self.coherence * np.nan
        )

    @property
    def among_random(self) -> Floats:
        """The share of random sets that are less coherent."""
        return _share_below(self.background.random, self.coherence)

    @property
    def among_documents(self) -> Floats:
        """The share of documents whose neighbourhood is less coherent."""
        return _share_below(self.background.own, self.coherence)

    @property
    def levels(self) -> list[str]:
        """grounded, hallucinating or between, against the corpus; "" for an entity without a vector."""
        random, own = self.among_random, self.among_documents
        return [
            ""
            if np.isnan(i)
            else "hallucinating"
            if r <= _LIKE_RANDOM
            else "grounded"
            if d >= _LIKE_DOCUMENTS
            else "between"
            for i, r, d in zip(self.coherence, random, own, strict=True)
        ]

    @property
    def echo(self) -> Floats | None:
        """Of the probability in each halo, the share on the entity's own sub-words; NaN for an empty halo."""
        return None if self.halos is None else np.array([echo_share(halo) for halo in self.halos])


def echo_share(halo: Halo) -> float:
    """
    >>> round(echo_share(Halo(("dog", "cat"), (-1.0, -2.0), (True, False))), 4)  # e⁻¹ / (e⁻¹ + e⁻²)
    0.7311
    >>> echo_share(Halo((), (), ()))
    nan
    """
    mass = np.exp(halo.log_probs)
    return float(mass[list(halo.echoes)].sum() / mass.sum()) if len(mass) else float("nan")


def probe(model: Encoder, space: Space, options: KnowledgeOptions, progress: Progress) -> Probe:
    if options.k < 2:
        raise RequestError("the layer knowledge asks how alike the neighbours of an entity are: --k must be at least 2")
    progress.start("Entities", 0)
    entities = tuple(dict.fromkeys(space.entities))
    entities = entities or mine(space.corpus.texts, model, most=options.mined, how=options.words)
    if not entities:
        raise RequestError("the corpus has no rare term to ask for: give --entities FILE")
    prompt = space.queries.prompt if space.queries else None
    vectors = model.encode(list(entities), prompt=prompt, progress=progress)
    k = min(options.k, len(space.corpus))
    cosine, found = _neighbours(vectors, entities, space, k)
    corpus = space.corpus.vectors
    own = np.sort(geometry.sample(len(corpus), _DOCUMENTS, seed=options.seed))
    background = Background(
        random=coherence(corpus, random_sets(len(corpus), k, _SETS, seed=options.seed)),
        own=coherence(corpus, search.nearest_own(corpus, own, min(k, len(corpus) - 1))[1]),
    )
    progress.start("Halos", 0)
    return Probe(
        entities=entities,
        found=found,
        cosine=cosine,
        coherence=coherence(corpus, found),
        background=background,
        sizes=count_pieces(model, entities),
        halos=space.head.top_tokens(list(entities), options.halo) if space.head else None,
        takes_head=model.info.backend not in _HEADLESS,
    )


def _neighbours(vectors: NDArray[np.float32], entities: Sequence[str], space: Space, k: int) -> tuple[Floats, Ints]:
    """Cosines and rows of the k nearest documents, [n, k] each; NaN and -1 for an entity whose vector is zero."""
    length = geometry.norms(vectors)
    broken = [entities[int(i)] for i in np.flatnonzero(~np.isfinite(length))]
    if broken or not length.any():
        dead = broken or list(entities)
        raise InvalidOutput(
            f"the vectors of {len(dead)} of {len(entities)} entities are zero or hold NaN or infinite numbers "
            f"(rows {name_some(dead)})",
            dead,
        )
    alive = length > 0
    distance, rows = search.nearest(vectors[alive], space.corpus.vectors, k)
    cosine, found = np.full((len(entities), k), np.nan), np.full((len(entities), k), -1)
    cosine[alive], found[alive] = 1.0 - distance**2 / 2, rows
    return cosine, found


def coherence(corpus: NDArray[np.float32], rows: Ints) -> Floats:
    """I_q of rows int64[n, k]; NaN where there are fewer than two."""
    step = max(1, min(_AT_ONCE, _CELLS // max(1, rows.shape[1] * corpus.shape[1])))
    parts = [rows[start : start + step] for start in range(0, len(rows), step)]
    found = [trust.coherence(corpus[np.maximum(part, 0)], part >= 0) for part in parts]
    return np.concatenate(found) if found else np.empty(0)


def random_sets(documents: int, k: int, sets: int, *, seed: int) -> Ints:
    """Sets of k different rows, int64[sets, k]: shuffled documents cut into pieces, as often as it takes.

    >>> random_sets(5, 2, 3, seed=0).shape
    (3, 2)
    """
    rng = np.random.default_rng(seed)
    each = documents // k
    shuffles = -(-sets // each)
    drawn = [rng.permutation(documents)[: each * k].reshape(each, k) for _ in range(shuffles)]
    return np.concatenate(drawn)[:sets]


def _share_below(background: Floats, values: Floats) -> Floats:
    """NaN for NaN, and where there is no background."""
    known = np.sort(background[np.isfinite(background)])
    if not len(known):
        return np.full(len(values), np.nan)
    return np.where(np.isnan(values), np.nan, np.searchsorted(known, np.nan_to_num(values)) / len(known))
