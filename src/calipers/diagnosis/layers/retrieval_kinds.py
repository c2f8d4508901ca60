"""The figures of the retrieval layer: direction, warning level and meaning of each."""

from __future__ import annotations

from dataclasses import dataclass, replace

from calipers.core import RequestError, Thresholds
from calipers.diagnosis.layers.edits import EDITS
from calipers.metrics.codecs import CODECS
from calipers.metrics.indexes import INDEXES

GRADES = ("plain", "esci")
DEPTH = 100  # results per query that a search is asked for at least


@dataclass(frozen=True)
class RankingOptions:
    k: int = 10
    relevant_from: float = 1.0  # grades from here on are relevant
    grades: str = "plain"  # esci: 3 exact, 2 substitute, 1 complement, 0 irrelevant
    texts: int = 500  # queries that are edited, which needs the model
    confidence: float = 0.95
    seed: int = 42

    def __post_init__(self) -> None:
        for name in ("k", "texts"):
            if getattr(self, name) < 1:
                raise RequestError(f"--{name} must be at least 1, found {getattr(self, name)}")
        if self.grades not in GRADES:
            raise RequestError(f"--grades must be one of {', '.join(GRADES)}, found {self.grades!r}")
        if not self.relevant_from > 0:
            raise RequestError(f"--relevant-from must be above 0, found {self.relevant_from:g}")


# A share of queries or of results is judged in points: of 0.002 a tenth is nothing.
_SHARE = Thresholds(0.02, 0.05, relative=False)
_RELATIVE = Thresholds(0.05, 0.10)


@dataclass(frozen=True)
class Kind:
    """What is known about a figure before it is measured. It warns above or below a level, if it has one."""

    about: str
    meaning: str
    higher_is_better: bool | None
    above: float | None = None
    below: float | None = None
    advice: str = ""
    digits: int = 4
    thresholds: Thresholds = _SHARE

    @property
    def level(self) -> str | None:
        if self.above is not None:
            return f"above {self.above:g}"
        return None if self.below is None else f"below {self.below:g}"

    def warn(self, name: str, value: float) -> str | None:
        past = (self.above is not None and value > self.above) or (self.below is not None and value < self.below)
        return f"{name} is {value:.{self.digits}f}, {self.level}: {self.advice}" if past else None


def kinds(options: RankingOptions) -> dict[str, Kind]:
    """Every figure that these options can give, the primary one first."""
    k = options.k
    found = _quality(k, "")
    found |= _errors(k)
    found |= _quality(k, "base_")
    found |= _stability(k)
    return found | _robustness(k)


def _quality(k: int, prefix: str) -> dict[str, Kind]:
    deep = max(k, DEPTH)
    stage = "before reranking: " if prefix else ""
    measures = {
        f"ndcg@{k}": Kind(
            f"{stage}discounted gain of the first {k} over that of the ideal order",
            f"How close the first {k} results come to the best possible order: 1 is the ideal.",
            True,
        ),
        f"mrr@{k}": Kind(
            f"{stage}1 / rank of the first relevant document, 0 behind {k}",
            f"How soon the first relevant document comes: 1 is always first, 0.5 second, 0 not among the first {k}.",
            True,
        ),
        f"map@{deep}": Kind(
            f"{stage}mean of the precisions at the relevant documents among the first {deep}",
            "How well all relevant documents are gathered at the top, not only the first one.",
            True,
        ),
        f"recall@{k}": Kind(
            f"{stage}share of the relevant documents among the first {k}",
            f"How many of the relevant documents a user finds among the first {k}.",
            True,
        ),
        f"recall@{deep}": Kind(
            f"{stage}share of the relevant documents among the first {deep}",
            f"How many of the relevant documents a second stage could still bring up from the first {deep}.",
            True,
        ),
    }
    return {f"{prefix}{name}": replace(kind, thresholds=_RELATIVE) for name, kind in measures.items()}


def _errors(k: int) -> dict[str, Kind]:
    deep = max(k, DEPTH)
    return {
        "zero_recall": Kind(
            f"share of queries without a relevant document among the first {k}",
            f"The share of queries whose first {k} results hold nothing relevant: the user leaves with nothing.",
            False,
            above=0.5,
            advice="more than half of the queries show nothing relevant",
        ),
        f"zero_recall@{deep}": Kind(
            f"share of queries without a relevant document among the first {deep}",
            f"The share of queries with nothing relevant among the first {deep}: no second stage can help these.",
            False,
            above=0.25,
            advice="what is asked for is not even near the query",
        ),
        "rank_reversal": Kind(
            f"share of judged pairs among the first {k} with the lower grade above",
            f"How often, among two judged results of the first {k}, the worse stands above the better: 0.5 is chance.",
            False,
            above=0.5,
            advice="the order of the first results is no better than chance",
        ),
        "accessory_above_product": Kind(
            f"share of queries with a complement above every exact product among the first {k}",
            "How often something that goes with the product stands above the product itself.",
            False,
            above=0.25,
            advice="accessories push products down",
        ),
        "queries_without_direction": Kind(
            "share of queries whose vector is zero",
            "The share of queries whose vector is zero: they find nothing, and count as failing in the figures above.",
            False,
            above=0.0,
            advice="the model makes nothing of these queries; most likely it knows none of their words",
        ),
        f"judged@{k}": Kind(
            f"share of the first {k} results that have a judgement",
            "How much of what is shown was ever judged: what was not counts as irrelevant in the figures above.",
            None,
        ),
    }


def _stability(k: int) -> dict[str, Kind]:
    found = {}
    for name, (how, least, advice) in _SETTINGS.items():
        part = f"/{name}" if name else ""
        found[f"jaccard@{k}{part}"] = Kind(
            f"overlap of the first {k} results with those {how}",
            f"Overlap (Jaccard) of the first {k} results with those {how}: 1 is the same results, 0 none of them.",
            True if name else None,
            below=least,
            advice=advice,
        )
        found[f"churn{part}"] = Kind(
            f"share of queries that share less than half with those {how}",
            f"The share of queries whose first {k} results overlap by less than half with those {how}.",
            False if name else None,
        )
    return found


# What a list of results is compared with: in words, the overlap below which it warns, and what the warning says.
_SETTINGS: dict[str, tuple[str, float | None, str]] = {
    "": ("of the baseline model", None, ""),
    "fp16": (
        "with vectors in half precision",
        0.95,
        "neighbours are so close together that half precision mixes them up",
    ),
    "int8": ("with vectors in 8 bits", 0.8, "8 bits are too few to tell these vectors apart"),
    # One bit and product quantisation lose by design; how much is worth knowing and no fault of the model.
    "binary": ("with vectors in 1 bit", None, ""),
    "pq": ("with vectors in product quantisation", None, ""),
    "ivf": ("of an inverted-file index", 0.6, "this space does not fall into cells: look into more of them"),
    "hnsw": ("of a graph index (HNSW)", 0.8, "the graph does not reach the neighbours: build it with more links"),
}
assert {*_SETTINGS} <= {"", *CODECS, *INDEXES}


def _robustness(k: int) -> dict[str, Kind]:
    found = {
        "robustness": Kind(
            f"overlap of the first {k} results of a query and of its harmless edits",
            f"Overlap of the first {k} results of a query and of its harmless edits below; each kind counts the same.",
            True,
            below=0.3,
            advice="how a query is typed matters more than what it asks for",
        )
    }
    for name, (what, least, advice) in _EDITED.items():
        found[f"robustness/{name}"] = Kind(
            f"overlap of the first {k} results of a query and of the query {what}",
            f"Overlap (Jaccard) of the first {k} results of a query and of the query {what}: 1 is the same results.",
            True,
            below=least,
            advice=advice,
        )
    return found


_EDITED: dict[str, tuple[str, float | None, str]] = {
    "case": ("in other case", 0.5, "capital letters change what is found; lower the case of queries and documents"),
    "spacing": ("with other spacing", 0.9, "spaces change what is found; trim and join them before encoding"),
    "width": ("in full-width letters, or in plain ones", None, ""),  # only a fault where users type such letters
    "typo": ("with one typo", None, ""),  # a typo costs every model something
    "paraphrases": ("in other words", 0.1, "queries that mean the same find different things"),
}
assert {*_EDITED} == {*EDITS, "paraphrases"}
