"""Knowledge probe, of layer 3: does the model know the entities of a domain, or only their letters?

- *Entity coherence* I_q: the mean cosine between any two of the ten documents nearest to the entity. Grounded above
  0.7 and hallucinating below 0.3; but a cosine means little where all vectors share a direction, so both levels are
  also read against the corpus: hallucinating is an entity that is no more coherent than 95 of 100 sets of ten documents
  drawn at random, grounded one that is at least as coherent as the neighbourhoods of a quarter of the documents.
  `entity_coherence_relative` is (I_q − b) / (1 − b), b the mean of random sets: 0 is chance, 1 is one point.
- *Mentions*: of the first min(10, m) results, m being the documents that mention the entity, the share that does. An
  entity is grounded only if at least half do, and hallucinating only if fewer do: ten documents that all mention
  purple are no hallucination, however different they are. One that the model gives no vector is unknown.
- *Semantic halo*: the first tokens when the states of the entity's tokens, pooled, go through the MLM head. An entity
  drifts lexically when more than half of the probability in its halo is on its own sub-words.
- *Fragmentation's effect*: how much less coherent entities are that the tokenizer splits than those that it does not.
- *Neighbourhood graph*: entity to document, and document to document, as the table `edges`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calipers.core import Columns, Encoder, Halo, Outcomes, Progress, RequestError, name_some, on_side
from calipers.core.choices import WORDS
from calipers.core.figures import Figure, Named, figure_tables
from calipers.diagnosis.layer import RESAMPLES, LayerOptions, kinds_of, make_layer, mean_figure, metric_of, setting
from calipers.diagnosis.layers.entities import MINED, Entity, count_mentions, mentions, mine
from calipers.diagnosis.layers.words import ShowsPieces, bare_piece, count_pieces, piece_sets
from calipers.metrics import bootstrap, geometry, search, trust
from calipers.metrics.arrays import Array, Floats, Ints, Vectors
from calipers.metrics.means import mean_statistic
from calipers.runs.space import LEAST, Space, directed
from calipers.tasks import outputs

FIGURES = kinds_of("knowledge")
GROUNDED, HALLUCINATING = 0.7, 0.3  # where nothing is known of the corpus
_LIKE_RANDOM, _LIKE_DOCUMENTS = 0.95, 0.25  # shares of the two backgrounds
_MENTIONED = 0.5  # share of the first results from which on they mention an entity
_SETS, _DOCUMENTS = 1000, 500
_AT_ONCE, _CELLS = 1024, 1 << 22  # entities whose neighbours' vectors are in hand, and numbers of these at most
_DRAWN = 20  # documents of an entity in the graph, whose edges grow with the square
_BEGINS = 60  # characters of a document in the graph
_NAMED = 15
_LEVELS = ("grounded", "hallucinating", "unknown")
_HEADLESS = ("static", "onnx", "http", "bm25")  # backends without states that a masked language model's head could read


@dataclass(frozen=True)
class KnowledgeOptions(LayerOptions):
    k: int = setting(10, "How many neighbours an entity has.", metavar="K", at_least=2)
    halo: int = setting(10, "How many tokens a halo has.", metavar="N", at_least=1)
    mined: int = setting(MINED, "How many entities are mined, where none are given.", metavar="N", at_least=1)
    words: str = setting("auto", "What a word is: phrases for Japanese and Chinese, or by the text.", choices=WORDS)


def run(model: Encoder | None, space: Space, options: KnowledgeOptions, progress: Progress) -> Outcomes:
    """Outcomes per entity: what it contributes to each figure. Details: `entities`, `halos`, `edges`."""
    if model is None or model.info.backend == "vectors":
        raise RequestError("the layer knowledge encodes entities, and vectors that are already computed hold none")
    entities = _entities(space, options, progress)
    space = directed(space, least=LEAST).space
    probed = probe(model, space, entities, options, progress)
    columns, figures = _measure(probed, options)
    return Outcomes(
        ids=tuple(f"{i}:{entity}/entity" for i, entity in enumerate(probed.entities)),
        columns=columns,
        texts={"entity": probed.entities},
        details={**figure_tables(figures, _named(probed, space)), **_tables(probed, space)},
        counts={
            "entities": len(probed.entities),
            **{f"entities_{kind}": count for kind, count in sorted(Counter(probed.kinds).items())},
            "entities_without_vector": int(np.isnan(probed.coherence).sum()),
            "grounded_absolute": int((probed.coherence > GROUNDED).sum()),
            "hallucinating_absolute": int((probed.coherence < HALLUCINATING).sum()),
            "background": probed.background.mean,
            "neighbours": probed.rows.shape[1],
        },
        notes=tuple(figure.warning for figure in figures if figure.warning),
    )


# --- the probe ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Background:
    """Coherence of random sets of documents float64[s], and of the neighbourhoods of documents float64[d]."""

    random: Floats
    documents: Floats

    @property
    def mean(self) -> float:
        return float(self.random.mean())


@dataclass(frozen=True, eq=False)
class Probe:
    """What is measured of each entity. `rows` int64[n, k] are rows of the corpus, -1 for an entity without a vector;
    `sizes` are words and sub-words, where the tokenizer is shown; `halos` where there is a head.
    `takes_head` says whether the head of another model could be named for it."""

    entities: tuple[str, ...]
    kinds: tuple[str, ...]  # brand, name, code, word or given
    rows: Ints
    cosine: Floats
    coherence: Floats
    mentions: Floats  # float64[n]; NaN where no document mentions it
    mentioning: Ints  # documents that mention it, counted up to k
    background: Background
    sizes: list[tuple[int, int]] | None
    halos: list[Halo] | None
    takes_head: bool = True

    @property
    def relative(self) -> Floats:
        """float64[n]; NaN where all documents are one point."""
        room = 1.0 - self.background.mean
        return np.asarray((self.coherence - self.background.mean) / (room if room > 1e-9 else np.nan))

    @property
    def z(self) -> Floats:
        spread = self.background.random.std(ddof=1) if len(self.background.random) > 1 else 0.0
        return np.asarray((self.coherence - self.background.mean) / (spread if spread > 1e-12 else np.nan))

    @property
    def among_random(self) -> Floats:
        return _share_below(self.background.random, self.coherence)

    @property
    def among_documents(self) -> Floats:
        return _share_below(self.background.documents, self.coherence)

    @property
    def levels(self) -> list[str]:
        """grounded, hallucinating or between, against the corpus; unknown for an entity without a vector."""
        mentioned = np.nan_to_num(self.mentions) >= _MENTIONED
        random = (self.among_random <= _LIKE_RANDOM) & ~mentioned
        grounded = (self.among_random > _LIKE_RANDOM) & (self.among_documents >= _LIKE_DOCUMENTS) & mentioned
        conditions = np.isnan(self.coherence), random, grounded
        levels: list[str] = np.select(conditions, ("unknown", "hallucinating", "grounded"), "between").tolist()
        return levels

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


def _entities(space: Space, options: KnowledgeOptions, progress: Progress) -> tuple[Entity, ...]:
    """The given ones, else those of the corpus: of all its texts, so that every model is probed with the same."""
    progress.start("Entities", 0)
    entities = tuple(Entity(text, "given") for text in dict.fromkeys(space.entities))
    entities = entities or mine(space.corpus.texts, space.products, most=options.mined, how=options.words)
    if not entities:
        raise RequestError("the corpus has no rare term to use as an entity: give `entities`")
    return entities


def probe(
    model: Encoder, space: Space, chosen: Sequence[Entity], options: KnowledgeOptions, progress: Progress
) -> Probe:
    entities = tuple(entity.text for entity in chosen)
    prompt = space.queries.prompt if space.queries else None
    vectors = on_side(model, "query").encode(list(entities), prompt=prompt, progress=progress)
    k = min(options.k, len(space.corpus))
    cosine, rows = _neighbours(vectors, entities, space, k)
    corpus = space.corpus.vectors
    sample = np.sort(geometry.sample(len(corpus), _DOCUMENTS, seed=options.seed))
    background = Background(
        random=_coherence(corpus, random_sets(len(corpus), k, _SETS, seed=options.seed)),
        documents=_coherence(corpus, search.nearest_own(corpus, sample, min(k, len(corpus) - 1))[1]),
    )
    mentioning = np.array(count_mentions(space.corpus.texts, entities, k), np.int64)
    progress.start("Halos", 0)
    return Probe(
        entities=entities,
        kinds=tuple(entity.kind for entity in chosen),
        rows=rows,
        cosine=cosine,
        coherence=_coherence(corpus, rows),
        mentions=_mention_shares(space, entities, rows, mentioning),
        mentioning=mentioning,
        background=background,
        sizes=count_pieces(model, entities),
        halos=_halos(model, entities, space, options),
        takes_head=model.info.backend not in _HEADLESS,
    )


def _mention_shares(space: Space, entities: Sequence[str], rows: Ints, mentioning: Ints) -> Floats:
    """Of the first min(k, m) documents of each entity the share that mentions it, float64[n]; NaN where m is 0 or it
    has no vector."""
    shares = np.full(len(entities), np.nan)
    for i, (entity, nearest, m) in enumerate(zip(entities, rows, mentioning.tolist(), strict=True)):
        if m and nearest[0] >= 0:
            shares[i] = np.mean([mentions(space.corpus.texts[int(row)], entity) for row in nearest[:m]])
    return shares


def _halos(model: Encoder, entities: Sequence[str], space: Space, options: KnowledgeOptions) -> list[Halo] | None:
    """The halos, where there is a head. An entity of unknown sub-words alone has none: nothing could echo it."""
    if space.head is None:
        return None
    halos = space.head.top_tokens(list(entities), options.halo)
    if not isinstance(model, ShowsPieces):
        return halos
    unknown = [pieces == {None} for pieces in piece_sets(model, entities)]
    return [Halo((), (), ()) if lost else halo for halo, lost in zip(halos, unknown, strict=True)]


def _neighbours(vectors: Vectors, entities: Sequence[str], space: Space, k: int) -> tuple[Floats, Ints]:
    """Cosines and rows of the k first results, [n, k] each; NaN and -1 for an entity whose vector is zero."""
    length = geometry.norms(vectors)
    alive = length > 0
    outputs.refuse_rows(~np.isfinite(length), entities, "NaN or infinite numbers", "entities")
    cosine, rows = np.full((len(entities), k), np.nan), np.full((len(entities), k), -1)
    if alive.any():
        rows[alive] = search.nearest_rows(vectors[alive], space.corpus.vectors, k, similarity=space.similarity)
        cosine[alive] = geometry.cosines_at(vectors[alive], space.corpus.vectors, rows[alive])
    return cosine, rows


def _coherence(corpus: Vectors, rows: Ints) -> Floats:
    """I_q of rows int64[n, k]; NaN where there are fewer than two."""
    step = max(1, min(_AT_ONCE, _CELLS // max(1, rows.shape[1] * corpus.shape[1])))
    parts = [rows[start : start + step] for start in range(0, len(rows), step)]
    return np.concatenate([np.empty(0), *(trust.coherence(corpus[np.maximum(part, 0)], part >= 0) for part in parts)])


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
    ordered = np.sort(background[np.isfinite(background)])
    if not len(ordered):
        return np.full(len(values), np.nan)
    return np.where(np.isnan(values), np.nan, np.searchsorted(ordered, np.nan_to_num(values)) / len(ordered))


# --- figures -----------------------------------------------------------------------------------------------------


def _measure(probed: Probe, options: KnowledgeOptions) -> tuple[dict[str, Floats], list[Figure]]:
    """Per figure what each entity contributes, float64[n], NaN where it has no part in it; and the figures."""
    columns, reasons = _contributions(probed)
    columns = {name: values for name, values in columns.items() if np.isfinite(values).any()}
    figures = []
    for name, kind in FIGURES.items():
        if name not in columns:
            figures.append(kind.unknown(reasons.get(name, "no entity has what it is about")))
            continue
        values = columns[name][np.isfinite(columns[name])]
        means = bootstrap.distribution([mean_statistic(values)], len(values), resamples=RESAMPLES, seed=options.seed)
        warning = None
        if name == "hallucinating_entities" and kind.warning(values.mean()):
            levels = zip(probed.entities, probed.levels, strict=True)
            lost = [entity for entity, level in levels if level == "hallucinating"]
            who = f"{len(lost)} of {len(probed.entities)} entities"
            warning = f"{who} have neighbours no more alike than chance, few of which mention them: {name_some(lost)}"
        figures.append(mean_figure(kind, values, means[0], confidence=options.confidence, warning=warning))
    return columns, figures


def _contributions(probed: Probe) -> tuple[dict[str, Floats], dict[str, str]]:
    """Columns by figure, and why there is none."""
    alive, levels, echo = np.isfinite(probed.coherence), np.array(probed.levels), probed.echo
    columns = {
        "entity_coherence": probed.coherence,
        "entity_coherence_relative": probed.relative,
        "entity_mentions": probed.mentions,
        "entities_above_0.7": np.where(alive, probed.coherence > GROUNDED, np.nan),
        "entities_below_0.3": np.where(alive, probed.coherence < HALLUCINATING, np.nan),
        **{f"{level}_entities": (levels == level).astype(np.float64) for level in _LEVELS},
    }
    no_vector = "the model gives no entity a vector"
    reasons = dict.fromkeys(columns, "no document mentions an entity" if alive.any() else no_vector)
    if alive.any():
        reasons["entity_coherence_relative"] = "all documents are one point"
    effect = fragmentation_effect(probed.relative, probed.sizes)
    if effect is not None:
        columns["fragmentation_effect"] = effect
    elif probed.sizes is None:
        reasons["fragmentation_effect"] = "the backend does not show its tokenizer"
    else:
        reasons["fragmentation_effect"] = _why_no_effect(probed.relative, probed.sizes)
    if echo is not None:
        columns |= {"lexical_drift": np.where(np.isnan(echo), np.nan, echo > 0.5), "halo_echo": echo}
    else:
        other = ", and only a PyTorch model can take the head of another one"
        other = ": name a model that has one (`mlm_head`)" if probed.takes_head else other
        reasons |= dict.fromkeys(("lexical_drift", "halo_echo"), f"there is no MLM head to read halos from{other}")
    return columns, reasons


def fragmentation_effect(relative: Floats, sizes: list[tuple[int, int]] | None) -> Floats | None:
    """Per entity its contribution, float64[n], to the mean of the whole ones less the mean of the split ones, which
    have more sub-words than words; None where there are not both. The mean of the contributions is the difference,
    and their spread over √n its standard error.

    >>> fragmentation_effect(np.array([0.6, 0.4, 0.1]), [(1, 1), (1, 1), (1, 3)]).round(2).tolist()
    [0.55, 0.25, 0.4]
    """
    if sizes is None:
        return None
    split = np.array([pieces > words for words, pieces in sizes])
    finite = np.isfinite(relative)
    whole, broken = finite & ~split, finite & split
    if not whole.any() or not broken.any():
        return None
    n, means = finite.sum(), (relative[whole].mean(), relative[broken].mean())
    added = np.full(len(relative), np.nan)
    added[whole] = (relative[whole] - means[0]) * n / whole.sum()
    added[broken] = (means[1] - relative[broken]) * n / broken.sum()
    return np.asarray(means[0] - means[1] + added)


def _why_no_effect(relative: Floats, sizes: list[tuple[int, int]]) -> str:
    """Why whole entities cannot be compared with split ones.

    >>> _why_no_effect(np.array([0.6, 0.4]), [(1, 2), (1, 3)])
    'the tokenizer splits all 2 entities, with none to compare with: name some that it has whole (`entities`)'
    """
    alive = [size for value, size in zip(relative, sizes, strict=True) if np.isfinite(value)]
    if not alive:
        return "no entity has a coherence"
    all_split = all(pieces > words for words, pieces in alive)
    how, which = ("splits all", "it has whole") if all_split else ("has all", "it splits")
    how = f"{how} {len(alive)} entities{'' if all_split else ' whole'}"
    return f"the tokenizer {how}, with none to compare with: name some that {which} (`entities`)"


# --- examples ----------------------------------------------------------------------------------------------------


def _named(probed: Probe, space: Space) -> list[Named]:
    """Those without a vector, the least coherent ones, those whose halo is most their own sub-words, and then the halos
    of all others."""
    note = "the model gives it no vector; most likely it knows none of its pieces"
    lost = np.flatnonzero(np.isnan(probed.coherence))
    named = [
        Named("unknown_entities", str(i), probed.entities[i], 0.0, f"{probed.kinds[i]}: {note}") for i in lost.tolist()
    ]
    order = np.argsort(probed.coherence, kind="stable")[:_NAMED]
    named += [_incoherent(probed, space, int(i)) for i in order if np.isfinite(probed.coherence[i])]
    echo = probed.echo
    if echo is None or probed.halos is None:
        return named
    for i in np.argsort(-echo, kind="stable"):
        if np.isfinite(echo[i]):
            figure = "lexical_drift" if echo[i] > 0.5 else "halo_echo"
            note = f"halo: {describe_halo(probed.halos[i])}"
            named.append(Named(figure, str(i), probed.entities[i], float(echo[i]), note))
    return named


def _incoherent(probed: Probe, space: Space, i: int) -> Named:
    rows, coherence = probed.rows[i], float(probed.coherence[i])
    shown = min(len(rows), int(probed.mentioning[i]))
    mention = f"{round(probed.mentions[i] * shown)} of the first {shown} mention it" if shown else "none mentions it"
    by_method = "above 0.7" if coherence > GROUNDED else "below 0.3" if coherence < HALLUCINATING else "0.3 to 0.7"
    note = f"{probed.kinds[i]}, {probed.levels[i]}: I_q {coherence:.2f} ({by_method}), "
    note += f"z {probed.z[i]:.1f} against random sets, above {probed.among_documents[i]:.0%} of documents; "
    note += f"{mention}; nearest {space.corpus.ids[int(rows[0])]}"
    note += f"; halo: {describe_halo(probed.halos[i])}" if probed.halos else ""
    return Named("entity_coherence", str(i), probed.entities[i], coherence, note)


def describe_halo(halo: Halo, most: int = 5) -> str:
    """The first tokens, without the marks of their vocabulary; an echo is in brackets.

    >>> describe_halo(Halo(("dog", "cat"), (-1.0, -2.0), (True, False)))
    '(dog) cat'
    """
    shown = [(bare_piece(token), echo) for token, echo in zip(halo.tokens, halo.echoes, strict=True)]
    return " ".join(f"({token})" if echo else token for token, echo in [pair for pair in shown if pair[0]][:most])


# --- tables ------------------------------------------------------------------------------------------------------


def _tables(probed: Probe, space: Space) -> dict[str, Columns]:
    echo, size = probed.echo, len(probed.entities)
    entities: dict[str, Array] = {
        "example": np.arange(size, dtype=np.int32),
        "coherence": probed.coherence,
        "relative": probed.relative,
        "z": probed.z,
        "among_random": probed.among_random,
        "among_documents": probed.among_documents,
        "mentions": probed.mentions,
        "mentioning": probed.mentioning.astype(np.int32),
        "kind": np.array(probed.kinds, dtype=np.str_),
        "level": np.array(probed.levels, dtype=np.str_),
        "pieces": np.array([n for _, n in probed.sizes] if probed.sizes else [-1] * size, np.int32),
        "echo": np.full(size, np.nan) if echo is None else echo,
    }
    return {"entities": entities, "halos": _halo_table(probed.halos or []), "edges": _edges(probed, space)}


def _halo_table(halos: Sequence[Halo]) -> Columns:
    sizes = [len(halo.tokens) for halo in halos]
    return {
        "example": np.repeat(np.arange(len(halos), dtype=np.int32), sizes),
        "rank": np.array([rank for size in sizes for rank in range(1, size + 1)], np.int32),
        "token": np.array([token for halo in halos for token in halo.tokens], dtype=np.str_),
        "log_prob": np.array([value for halo in halos for value in halo.log_probs], np.float64),
        "echo": np.array([echo for halo in halos for echo in halo.echoes], np.bool_),
    }


def _edges(probed: Probe, space: Space) -> Columns:
    """The neighbourhood graph: per entity an edge to each of its `_DRAWN` nearest documents, and one between every two
    of these. `source` is "" for the entity of `example`, else a document's id; `target` is a document's id. `text` is
    how the target of an entity begins, else ""."""
    k = min(probed.rows.shape[1], _DRAWN)
    one, other = np.triu_indices(k, 1)
    alive = np.flatnonzero((probed.rows >= 0).all(axis=1))
    rows = probed.rows[alive, :k]
    vectors = geometry.unit(space.corpus.vectors[rows.ravel()]).reshape(len(alive), k, space.corpus.vectors.shape[1])
    between = np.einsum("nid,njd->nij", vectors, vectors, dtype=np.float64)[:, one, other]
    ids = np.array(space.corpus.ids, dtype=object)
    source = np.concatenate([np.full((len(alive), k), "", object), ids[rows[:, one]]], axis=1)
    target = np.concatenate([ids[rows], ids[rows[:, other]]], axis=1)
    begins = [[str(space.corpus.texts[int(row)])[:_BEGINS] for row in nearest] + [""] * len(one) for nearest in rows]
    return {
        "example": np.repeat(alive, k + len(one)).astype(np.int32),
        "source": source.ravel().astype(np.str_),
        "target": target.ravel().astype(np.str_),
        "text": np.array(begins, dtype=np.str_).ravel(),
        "cosine": np.concatenate([probed.cosine[alive, :k], between], axis=1).ravel(),
    }


LAYER = make_layer("knowledge", run, KnowledgeOptions, map(metric_of, FIGURES.values()))
