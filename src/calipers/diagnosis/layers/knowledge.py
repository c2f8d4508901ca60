"""Knowledge probe, of layer 3: does the model know the entities of a domain, or only their letters?

- *Entity coherence* I_q: the mean cosine between any two of the ten documents nearest to the entity. Grounded above
  0.7 and hallucinating below 0.3; but a cosine means little where all vectors share a direction, so both levels are
  also read against the corpus: hallucinating is what is no more coherent than 95 of 100 sets of ten documents drawn at
  random, grounded what is at least as coherent as the neighbourhoods of a quarter of the documents themselves.
  `entity_coherence_relative` is (I_q − b) / (1 − b), b that of random sets: 0 is chance, 1 is one point.
- *Semantic halo*: the first tokens when the states of the entity's tokens, pooled, go through the MLM head. An entity
  drifts lexically when more than half of the probability in its halo is on its own sub-words.
- *Fragmentation's effect*: how much less coherent entities are that the tokenizer splits than those that it does not.
- *Neighbourhood graph*: entity to document, and document to document, as the table `edges`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.core import Columns, Encoder, Halo, Metric, Outcomes, Progress, RequestError, figure_tables
from calipers.diagnosis.layer import Layer
from calipers.diagnosis.layers import knowledge_figures as figures_of
from calipers.diagnosis.layers.knowledge_probe import KnowledgeOptions, Probe, probe
from calipers.metrics import geometry
from calipers.metrics.means import mean_statistic
from calipers.runs.directions import LEAST, directed
from calipers.runs.space import Space

GROUNDED, HALLUCINATING = 0.7, 0.3  # where nothing is known of the corpus
_DRAWN = 20  # documents of an entity in the graph, whose edges grow with the square
_BEGINS = 60  # characters of a document in the graph


def run(model: Encoder | None, space: Space, options: KnowledgeOptions, progress: Progress) -> Outcomes:
    """Outcomes per entity: what it contributes to each figure. Details: `entities`, `halos`, `edges`."""
    space = directed(space, least=LEAST).space
    if model is None or model.info.backend == "vectors":
        raise RequestError("the layer knowledge encodes entities, and vectors that are already computed hold none")
    found = probe(model, space, options, progress)
    columns, figures = figures_of.measure(found, options.confidence, options.seed)
    return Outcomes(
        ids=tuple(f"{i}:{entity}/entity" for i, entity in enumerate(found.entities)),
        columns=columns,
        texts={"entity": found.entities},
        details={**figure_tables(figures, figures_of.name(found, space)), **tables(found, space)},
        counts={
            "entities": len(found.entities),
            "entities_without_vector": int(np.isnan(found.coherence).sum()),
            "grounded_absolute": int((found.coherence > GROUNDED).sum()),
            "hallucinating_absolute": int((found.coherence < HALLUCINATING).sum()),
            "background": found.background.mean,
            "neighbours": found.found.shape[1],
        },
        notes=tuple(figure.warning for figure in figures if figure.warning),
    )


# --- tables ------------------------------------------------------------------------------------------------------


def tables(found: Probe, space: Space) -> dict[str, Columns]:
    echo = found.echo
    entities: dict[str, NDArray[Any]] = {
        "example": np.arange(len(found.entities), dtype=np.int32),
        "coherence": found.coherence,
        "relative": found.relative,
        "z": found.z,
        "among_random": found.among_random,
        "among_documents": found.among_documents,
        "level": np.array(found.levels, dtype=np.str_),
        "pieces": np.array([n for _, n in found.sizes] if found.sizes else [-1] * len(found.entities), np.int32),
        "echo": np.full(len(found.entities), np.nan) if echo is None else echo,
    }
    return {"entities": entities, "halos": _halo_table(found.halos or []), "edges": edges(found, space)}


def _halo_table(halos: Sequence[Halo]) -> Columns:
    rows = [(i, rank, *token) for i, h in enumerate(halos) for rank, token in enumerate(_tokens(h), start=1)]
    return {
        "example": np.array([row[0] for row in rows], np.int32),
        "rank": np.array([row[1] for row in rows], np.int32),
        "token": np.array([row[2] for row in rows], dtype=np.str_),
        "log_prob": np.array([row[3] for row in rows], np.float64),
        "echo": np.array([row[4] for row in rows], np.bool_),
    }


def _tokens(halo: Halo) -> list[tuple[str, float, bool]]:
    return list(zip(halo.tokens, halo.log_probs, halo.echoes, strict=True))


def edges(found: Probe, space: Space) -> Columns:
    """The neighbourhood graph: per entity an edge to each of its `_DRAWN` nearest documents, and one between every
    two of these.

    `source` is "" where it is the entity (`example` says which), else a document's id; `target` is a document's id.
    `text` is how the target begins, where the source is the entity, else "".
    """
    k = min(found.found.shape[1], _DRAWN)
    one, other = np.triu_indices(k, 1)
    alive = np.flatnonzero((found.found >= 0).all(axis=1))
    rows = found.found[alive, :k]
    vectors = geometry.unit(space.corpus.vectors[rows.ravel()]).reshape(len(alive), k, -1)
    between = np.einsum("nid,njd->nij", vectors, vectors, dtype=np.float64)[:, one, other]
    ids = np.array(space.corpus.ids, dtype=object)
    source = np.concatenate([np.full((len(alive), k), "", object), ids[rows[:, one]]], axis=1)
    target = np.concatenate([ids[rows], ids[rows[:, other]]], axis=1)
    begins = [[str(space.corpus.texts[int(row)])[:_BEGINS] for row in some] + [""] * len(one) for some in rows]
    return {
        "example": np.repeat(alive, k + len(one)).astype(np.int32),
        "source": source.ravel().astype(np.str_),
        "target": target.ravel().astype(np.str_),
        "text": np.array(begins, dtype=np.str_).ravel(),
        "cosine": np.concatenate([found.cosine[alive, :k], between], axis=1).ravel(),
    }


def _metric(name: str, about: str, better: bool | None) -> Metric:
    return Metric(
        name,
        about,
        lambda columns: mean_statistic(columns[name]),
        higher_is_better=bool(better),
        digits=3,
        needs=(name,),
        minor=better is None,
    )


METRICS = tuple(_metric(kind.name, kind.about, kind.higher_is_better) for kind in figures_of.KINDS)

LAYER = Layer(
    name="knowledge",
    about="whether the model knows the entities of the domain, or only their letters",
    unit="entity",
    metrics=METRICS,
    run=run,
    options=KnowledgeOptions,
)
