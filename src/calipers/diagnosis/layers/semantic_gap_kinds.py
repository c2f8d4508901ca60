"""The figures of the semantic gap: direction, warning level and meaning of each, and their metrics."""

from __future__ import annotations

from calipers.core import Metric
from calipers.metrics.means import mean_statistic

FOLLOWS, NOTHING = 0.5, 0.2  # correlations: from where on the cosine follows overlap, up to where it adds nothing

_KINDS: tuple[tuple[str, bool | None, str, str], ...] = (
    (
        "semantic_gap",
        None,
        "mean of |overlap − cosine| over judged pairs",
        "How far the cosine of a judged pair lies from the share of characters that the two texts have in common.",
    ),
    (
        "lexical_correlation",
        None,
        "Spearman of cosine with character overlap",
        "How far the order of the cosines is that of the characters in common: 1 is a text search in disguise.",
    ),
    (
        "relevance_correlation",
        True,
        "Spearman of cosine with the grade",
        "How far the order of the cosines is that of the judges' grades, over all judged pairs together.",
    ),
    (
        "meaning_correlation",
        True,
        "partial Spearman of cosine with the grade, given overlap",
        "What the cosine knows about relevance beyond the characters in common: 0 is nothing.",
    ),
    (
        "beyond_lexical",
        True,
        "the same, given also the share of the query's characters that the document has",
        "What the cosine knows about relevance beyond both ways of counting the characters in common: 0 is nothing.",
    ),
    (
        "hallucination_rate",
        False,
        "share of irrelevant pairs without overlap that are close",
        "Of the irrelevant pairs that share no more than chance, how many are as close as the middle relevant one.",
    ),
    (
        "hallucination_excess",
        False,
        "that share less the share of all pairs that are close",
        "By how much that share is above that of all judged pairs, which a cosine that knows nothing would give.",
    ),
)
BETTER = {name: better for name, better, *_ in _KINDS}
MEANINGS = {name: meaning for name, *_, meaning in _KINDS}
LEVELS = {
    "lexical_correlation": f"above {FOLLOWS:g} while beyond_lexical is below {NOTHING:g}, both with their intervals",
    "hallucination_excess": "above 0 with its interval",
}


def _metric(name: str, better: bool | None, about: str) -> Metric:
    return Metric(
        name,
        about,
        lambda columns: mean_statistic(columns[name]),
        higher_is_better=bool(better),
        digits=3,
        needs=(name,),
        minor=better is None,
    )


METRICS = tuple(_metric(name, better, about) for name, better, about, _ in _KINDS)
