"""The figures of the geometry layer: direction, warning level and meaning of each, and their metrics.

Warning levels lie outside of what healthy models show. Measured: all-MiniLM-L6-v2 and potion-base-4m on scifact and
icecat, bge-small-en-v1.5 (int8) on icecat:

    anisotropy              0.13 to 0.52    warns above 0.7
    principal_share@1       0.08 to 0.10    above 0.5
    used_dimensions         0.99 to 1       below 0.95
    intrinsic_dimension     4.3 to 16       below 2 (icecat has many products that differ in one word)
    hubness_skewness        1.1 to 8.6      above 10, as the field has it, and above twice what chance gives
    duplicates              0 to 0.02       above 0.05
    without_direction       0               above 0
    word_order_sensitivity  0.05 to 0.06    below 0.005 (potion, which is a bag of words, has 0)
    fragmentation           1.4 to 1.8      above 2.5
    unknown_words           under 0.0001    above 0.01

Alignment and uniformity pull against each other and have no level of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from calipers.core import Columns, Figure, Metric, Statistic
from calipers.diagnosis.layer import RESAMPLES
from calipers.metrics import bootstrap
from calipers.metrics.geometry import Estimate
from calipers.metrics.means import mean_statistic

_BOOTSTRAPPED = 5000  # examples; above it the interval is that of the normal distribution


@dataclass(frozen=True)
class Kind:
    """What is known about a figure before it is measured. It warns above or below a level, if it has one."""

    name: str
    about: str  # short, for lists
    meaning: str
    higher_is_better: bool | None
    above: float | None = None
    below: float | None = None
    advice: str = ""  # what a warning goes on to say
    digits: int = 3
    share: bool = False  # between 0 and 1, which an interval must not leave


_KINDS = (
    Kind(
        "anisotropy",
        "mean cosine of two documents",
        "The mean cosine of two different documents: 0 is an even spread, 1 means that all point the same way.",
        False,
        above=0.7,
        advice="all vectors share one direction, which leaves little room to tell texts apart; "
        "try removing the mean vector (see anisotropy_centred)",
    ),
    Kind(
        "anisotropy_centred",
        "mean cosine without the mean vector",
        "The mean cosine that is left when the mean vector is taken off every document; near 0 for any model.",
        None,
    ),
    Kind(
        "principal_share@1",
        "share of variance in the first principal direction",
        "How much of the variance around the mean lies in one single direction.",
        False,
        above=0.5,
        advice="one direction outweighs all others",
        share=True,
    ),
    Kind(
        "principal_share@10",
        "share of variance in the first ten principal directions",
        "How much of the variance around the mean lies in the ten strongest directions.",
        None,
        share=True,
    ),
    Kind(
        "used_dimensions",
        "share of dimensions in which documents vary at all",
        "In what share of its dimensions (or of the distinct documents, if fewer) the space varies at all.",
        True,
        below=0.95,
        advice="the others are dead: they cost memory and time and tell nothing",
        share=True,
    ),
    Kind(
        "uniformity",
        "log of the mean of exp(−t·distance²) over pairs",
        "How evenly documents cover the sphere: 0 is one point, lower is more even.",
        False,
    ),
    Kind(
        "alignment",
        "mean distance^α of positive pairs",
        "How far apart texts are that belong together: 0 means that they share one vector.",
        False,
    ),
    Kind(
        "intrinsic_dimension",
        "Two-NN: n / Σ ln(r₂/r₁)",
        "How many directions a document can move in among its nearest neighbours, whatever the length of the vector.",
        None,
        below=2.0,
        advice="near each other documents differ along very few directions",
        digits=2,
    ),
    Kind(
        "intrinsic_dimension_fit",
        "Two-NN by Facco's fit without the top 10 %",
        "The same by a line through the smaller nine tenths of the ratios, where density is most even.",
        None,
        digits=2,
    ),
    Kind(
        "hubness_skewness",
        "skewness of how often documents are retrieved",
        "How lopsidedly results are spread over the corpus: high means that few documents answer most queries.",
        False,
        above=10.0,
        advice="a few documents are among the first results of many queries (see the hubs)",
        digits=2,
    ),
    Kind(
        "hubness_gini",
        "Gini coefficient of how often documents are retrieved",
        "0 where all documents are retrieved equally often, near 1 where a few have all the results; "
        "few queries on a large corpus give a high one by themselves.",
        None,
        share=True,
    ),
    Kind(
        "never_retrieved",
        "share of documents that no query retrieves",
        "The share of the corpus that no query has among its first results; depends on how many queries there are.",
        None,
        share=True,
    ),
    Kind(
        "duplicates",
        "share of documents whose vector another one has",
        "The share of documents whose vector equals that of an earlier one; they are left out of the dimension.",
        None,
        above=0.05,
        advice="copies crowd the results and are counted as neighbours of each other",
        share=True,
    ),
    Kind(
        "without_direction",
        "share of documents whose vector is zero",
        "The share of documents whose vector is zero: no cosine says anything about them, and no search finds them.",
        False,
        above=0.0,
        advice="the model makes nothing of them; most likely it knows none of their words",
        digits=4,
        share=True,
    ),
    Kind(
        "word_order_sensitivity",
        "mean of 1 − cosine between a text and its shuffled words",
        "How far a vector moves when the words of the text are shuffled: 0 is a bag of words.",
        None,
        below=0.005,
        advice="the model does not see the order of words: 'dog bites man' is 'man bites dog'",
        digits=4,
    ),
    Kind(
        "fragmentation",
        "sub-words per word",
        "Into how many sub-words the tokenizer splits a word of the corpus: 1 is a vocabulary that knows the domain.",
        False,
        above=2.5,
        advice="the vocabulary does not know the words of this corpus",
        digits=2,
    ),
    Kind(
        "split_words",
        "share of words split into several sub-words",
        "The share of words of the corpus that fall into several sub-words.",
        False,
        share=True,
    ),
    Kind(
        "unknown_words",
        "share of words that the vocabulary cannot write",
        "The share of words with a sub-word that the vocabulary does not have: what stood there is lost.",
        False,
        above=0.01,
        advice="what stood there never reaches the model",
        digits=4,
        share=True,
    ),
    Kind(
        "terms_fragmentation",
        "sub-words per word of the terms",
        "Into how many sub-words a word of the given terms falls.",
        False,
        digits=2,
    ),
    Kind(
        "terms_split_words",
        "share of words of the terms that are split",
        "The share of words of the given terms that fall into several sub-words.",
        False,
        share=True,
    ),
    Kind(
        "terms_unknown_words",
        "share of words of the terms that are unknown",
        "The share of words of the given terms with a sub-word that the vocabulary does not have.",
        False,
        above=0.0,
        advice="what stood there never reaches the model",
        digits=4,
        share=True,
    ),
)
FIGURES = {kind.name: kind for kind in _KINDS}


def figure_of(
    name: str, unit: str, found: Estimate, confidence: float, seed: int, least: float | None = None
) -> Figure:
    """A figure out of an estimate. `least` lifts the level to what the corpus gives without any fault."""
    kind = FIGURES[name]
    above = max(kind.above, least) if kind.above is not None and least is not None else kind.above
    error = found.standard_error if np.isfinite(found.standard_error) else None
    return Figure(
        name=name,
        value=found.value,
        count=found.count,
        unit=unit,
        higher_is_better=kind.higher_is_better,
        meaning=kind.meaning,
        interval=_within(interval(found, confidence, seed), kind),
        standard_error=error,
        level=_level(above, kind.below),
        warning=_warning(kind, found.value, above),
        exact=found.exact,
        digits=kind.digits,
    )


def unknown(name: str, unit: str, reason: str) -> Figure:
    kind = FIGURES[name]
    level = _level(kind.above, kind.below)
    return Figure(name, None, 0, unit, kind.higher_is_better, kind.meaning, level=level, reason=reason)


def interval(found: Estimate, confidence: float, seed: int) -> tuple[float, float] | None:
    """Percentiles of a bootstrap over the contributions, or of the normal distribution where there are many."""
    error = found.standard_error
    if not np.isfinite(error):
        return None
    if len(found.rows) < found.count or found.count > _BOOTSTRAPPED:
        reach = NormalDist().inv_cdf((1 + confidence) / 2) * error
        return found.value - reach, found.value + reach
    drawn = bootstrap.distribution([mean_statistic(found.contributions)], found.count, resamples=RESAMPLES, seed=seed)
    return bootstrap.percentile_interval(drawn[0], confidence=confidence)


def _within(ends: tuple[float, float] | None, kind: Kind) -> tuple[float, float] | None:
    return (max(0.0, ends[0]), min(1.0, ends[1])) if ends and kind.share else ends


def _level(above: float | None, below: float | None) -> str | None:
    if above is not None:
        return f"above {above:.3g}"
    return None if below is None else f"below {below:.3g}"


def _warning(kind: Kind, value: float, above: float | None) -> str | None:
    if (above is None or value <= above) and (kind.below is None or value >= kind.below):
        return None
    return f"{kind.name} is {value:.{kind.digits}f}, {_level(above, kind.below)}: {kind.advice}"


def _mean(column: str) -> Callable[[Columns], Statistic]:
    return lambda columns: mean_statistic(columns[column])


METRICS = tuple(
    Metric(
        kind.name,
        kind.about,
        _mean(kind.name),
        higher_is_better=bool(kind.higher_is_better),
        digits=kind.digits,
        needs=(kind.name,),
        minor=kind.higher_is_better is None,  # neither way is a regression
    )
    for kind in _KINDS
)
