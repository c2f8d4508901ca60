"""The figures of the knowledge probe, and the entities that they point at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calipers.core import Figure, Halo, Named, name_some
from calipers.diagnosis.layer import RESAMPLES
from calipers.diagnosis.layers.knowledge_probe import Probe
from calipers.metrics import bootstrap
from calipers.metrics.means import mean_statistic
from calipers.runs.space import Space

Floats = NDArray[np.float64]

MANY_LOST = 0.25  # of the entities
_NAMED = 15


@dataclass(frozen=True)
class Kind:
    name: str
    about: str
    meaning: str
    higher_is_better: bool | None
    level: str | None = None


KINDS = (
    Kind(
        "entity_coherence",
        "mean cosine among the ten neighbours of an entity",
        "How alike the ten documents nearest to an entity are: above 0.7 it is grounded, below 0.3 it hallucinates.",
        True,
    ),
    Kind(
        "entity_coherence_relative",
        "the same, from chance (0) to one point (1)",
        "How alike they are beyond what ten documents drawn at random are: 0 is chance, 1 is one point.",
        True,
        "below 0.1",
    ),
    Kind(
        "grounded_entities",
        "share of entities as coherent as the lower quarter of documents",
        "The share of entities whose neighbourhood is at least as coherent as that of a quarter of the documents.",
        True,
    ),
    Kind(
        "hallucinating_entities",
        "share of entities no more coherent than random documents",
        "The share of entities whose neighbourhood is no more coherent than 95 of 100 random sets of documents.",
        False,
        f"above {MANY_LOST:g}",
    ),
    Kind(
        "fragmentation_effect",
        "relative coherence of whole entities less that of split ones",
        "By how much entities that the tokenizer splits are less coherent than those that it does not: 0 is no effect.",
        False,
    ),
    Kind(
        "lexical_drift",
        "share of entities whose halo is mostly their own sub-words",
        "The share of entities of which the model's head repeats the sub-words instead of naming what goes with them.",
        False,
        "above 0.5",
    ),
    Kind(
        "halo_echo",
        "share of a halo's probability on the entity's own sub-words",
        "How much of what the head says about an entity is its own sub-words, on average.",
        False,
    ),
)


def measure(found: Probe, confidence: float, seed: int) -> tuple[dict[str, Floats], list[Figure]]:
    """Per figure what each entity contributes, float64[n], NaN where it has no part in it; and the figures."""
    columns, reasons = contributions(found)
    figures = []
    for kind in KINDS:
        values = columns.get(kind.name)
        if values is None or not np.isfinite(values).any():
            columns.pop(kind.name, None)
            reason = reasons.get(kind.name, "no entity has what it is about")
            figures.append(
                Figure(
                    kind.name, None, 0, "entity", kind.higher_is_better, kind.meaning, level=kind.level, reason=reason
                )
            )
            continue
        figures.append(_figure(kind, values, found, confidence, seed))
    return columns, figures


def contributions(found: Probe) -> tuple[dict[str, Floats], dict[str, str]]:
    known = np.isfinite(found.coherence)
    levels = np.array(found.levels)
    columns = {
        "entity_coherence": found.coherence,
        "entity_coherence_relative": found.relative,
        "grounded_entities": np.where(known, levels == "grounded", np.nan),
        "hallucinating_entities": np.where(known, levels == "hallucinating", np.nan),
    }
    reasons = {"entity_coherence_relative": "all documents are one point"}
    effect = fragmentation_effect(found.relative, found.sizes)
    if effect is None:
        reasons["fragmentation_effect"] = (
            "the backend does not show its tokenizer"
            if found.sizes is None
            else "it takes entities that are split and entities that are not"
        )
    else:
        columns["fragmentation_effect"] = effect
    echo = found.echo
    if echo is None:
        no_head = (
            "there is no MLM head to ask: name a model that has one with --mlm-head"
            if found.takes_head
            else "there is no MLM head to ask, and one can be put on the states of a PyTorch model only"
        )
        reasons |= {"lexical_drift": no_head, "halo_echo": no_head}
    else:
        columns |= {"lexical_drift": np.where(np.isnan(echo), np.nan, echo > 0.5), "halo_echo": echo}
    return columns, reasons


def fragmentation_effect(relative: Floats, sizes: list[tuple[int, int]] | None) -> Floats | None:
    """Per entity its contribution, float64[n], to the mean of the whole ones less that of the split ones; None where
    there are not both. An entity is split when it has more sub-words than words.

    The contribution is the difference plus what the entity adds to the mean of its own group, as often as that group
    goes into all: their mean is the difference, and their spread over √n its standard error.

    >>> fragmentation_effect(np.array([0.6, 0.4, 0.1]), [(1, 1), (1, 1), (1, 3)]).round(2).tolist()
    [0.55, 0.25, 0.4]
    """
    if sizes is None:
        return None
    split = np.array([pieces > words for words, pieces in sizes])
    known = np.isfinite(relative)
    whole, broken = known & ~split, known & split
    if not whole.any() or not broken.any():
        return None
    n, means = known.sum(), (relative[whole].mean(), relative[broken].mean())
    added = np.full(len(relative), np.nan)
    added[whole] = (relative[whole] - means[0]) * n / whole.sum()
    added[broken] = (means[1] - relative[broken]) * n / broken.sum()
    return np.asarray(means[0] - means[1] + added)


def _figure(kind: Kind, values: Floats, found: Probe, confidence: float, seed: int) -> Figure:
    known = values[np.isfinite(values)]
    value = float(known.mean())
    interval = None
    if len(known) > 1:
        drawn = bootstrap.distribution([mean_statistic(known)], len(known), resamples=RESAMPLES, seed=seed)[0]
        interval = bootstrap.percentile_interval(drawn, confidence=confidence)
    return Figure(
        name=kind.name,
        value=value,
        count=len(known),
        unit="entity",
        higher_is_better=kind.higher_is_better,
        meaning=kind.meaning,
        interval=interval,
        standard_error=float(known.std(ddof=1) / np.sqrt(len(known))) if len(known) > 1 else None,
        level=kind.level,
        warning=_warning(kind.name, value, found),
    )


def _warning(name: str, value: float, found: Probe) -> str | None:
    lost = [entity for entity, level in zip(found.entities, found.levels, strict=True) if level == "hallucinating"]
    if name == "hallucinating_entities" and value > MANY_LOST:
        of = len(found.entities)
        return f"{len(lost)} of {of} entities have neighbours no more alike than chance: {name_some(lost)}"
    if name == "entity_coherence_relative" and value < 0.1:
        return f"entity_coherence_relative is {value:.3f}, below 0.1: the neighbours of an entity have little in common"
    if name == "lexical_drift" and value > 0.5:
        return f"lexical_drift is {value:.2f}, above 0.5: the head mostly repeats the sub-words of an entity"
    return None


# --- what they point at ------------------------------------------------------------------------------------------


def name(found: Probe, space: Space) -> list[Named]:
    """The least coherent entities, those whose halo is most their own sub-words, and then the halos of all others."""
    worst = [int(i) for i in np.argsort(found.coherence, kind="stable")[:_NAMED] if np.isfinite(found.coherence[i])]
    named = [_incoherent(found, space, i) for i in worst]
    echo = found.echo
    if echo is None or found.halos is None:
        return named
    order = [int(i) for i in np.argsort(-echo, kind="stable") if np.isfinite(echo[i])]
    return named + [
        Named(
            "lexical_drift" if echo[i] > 0.5 else "halo_echo",
            str(i),
            found.entities[i],
            float(echo[i]),
            f"halo: {tell(found.halos[i])}",
        )
        for i in order
    ]


def _incoherent(found: Probe, space: Space, i: int) -> Named:
    rows = found.found[i]
    folded = found.entities[i].casefold()
    mention = sum(folded in space.corpus.texts[int(row)].casefold() for row in rows)
    note = f"{found.levels[i]}, z {found.z[i]:.1f} against random sets, "
    note += f"above {found.among_documents[i]:.0%} of documents; "
    note += f"{mention} of {len(rows)} neighbours mention it; nearest {space.corpus.ids[int(rows[0])]}"
    if found.halos:
        note += f"; halo: {tell(found.halos[i])}"
    return Named("entity_coherence", str(i), found.entities[i], float(found.coherence[i]), note)


def tell(halo: Halo, most: int = 5) -> str:
    """The first tokens; an echo is in brackets.

    >>> tell(Halo(("dog", "cat"), (-1.0, -2.0), (True, False)))
    '(dog) cat'
    """
    shown: Sequence[tuple[str, bool]] = list(zip(halo.tokens, halo.echoes, strict=True))[:most]
    return " ".join(f"({token})" if echo else token for token, echo in shown)
