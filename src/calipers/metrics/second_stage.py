"""Is a second stage worth its calls? nDCG@10 kept against rerank calls saved.

A reranker puts the first results of a query in another order. Queries that the first stage is sure of gain little from
it, so only those below a probability are passed on. The queries that made the map choose the threshold: the fewest
calls that keep 99 % of the nDCG@10 which reranking every query gives. The other queries, which neither has seen, say
what it keeps and what it saves. Where reranking every query does not raise nDCG@10, nothing is passed on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calipers.metrics import bootstrap
from calipers.metrics.arrays import Bools, Floats
from calipers.metrics.means import mean_statistic

KEPT = 0.99  # of the nDCG@10 of reranking every query
_STEPS = 60  # thresholds that are tried, at most
_RESAMPLES = 2000


@dataclass(frozen=True, eq=False)
class StagedQueries:
    """Queries with the probability of their map, which has not seen them, and nDCG@10 of their results before and after
    a reranker, float64[q] each. A query that is never passed on has the score −inf."""

    scores: Floats
    before: Floats
    after: Floats

    def __add__(self, other: StagedQueries) -> StagedQueries:
        return StagedQueries(*(np.concatenate(pair) for pair in zip(self._columns, other._columns, strict=True)))

    @property
    def _columns(self) -> tuple[Floats, Floats, Floats]:
        return self.scores, self.before, self.after

    def passed(self, threshold: float, answer: float | None = None) -> Bools:
        """Which queries are reranked: those below the threshold that are not answered as they are."""
        below = threshold if answer is None else min(threshold, answer)
        return np.isfinite(self.scores) & (self.scores < below)

    def ndcg(self, passed: Bools) -> float:
        return float(np.where(passed, self.after, self.before).mean())


@dataclass(frozen=True)
class TradePoint:
    """nDCG@10 where the share `calls` of the queries, the least sure ones, is reranked; `kept` of that of all calls."""

    calls: float
    ndcg: float
    kept: float


@dataclass(frozen=True)
class SecondStage:
    """nDCG@10 without (`before`) and with a reranker on every query (`after`), with the interval of the `gain`, over
    all judged queries. Below the `threshold` a query is reranked; None: a second stage is not worth it. On the `count`
    held-out queries that takes the share `calls` of the calls and gives `ndcg`, the share `kept` of that of all calls.
    """

    before: float
    after: float
    gain: float
    interval: tuple[float, float] | None
    count: int
    threshold: float | None = None
    calls: float = 0.0
    ndcg: float = np.nan
    kept: float = np.nan
    curve: tuple[TradePoint, ...] = ()

    @property
    def sentence(self) -> str:
        low, high = self.interval or (np.nan, np.nan)
        numbers = (
            f"nDCG@10 {self.before:.3f} to {self.after:.3f} ({self.gain:+.3f}, interval {low:+.3f} to {high:+.3f})"
        )
        if self.threshold is None:
            return f"A second stage is not worth its calls on these queries: reranking all moves {numbers}."
        return (
            f"Reranking every query moves {numbers}. Reranking only those with a probability below "
            f"{self.threshold:.3f} keeps {self.kept:.1%} of nDCG@10 ({self.ndcg:.3f}) and saves {1 - self.calls:.0%} "
            f"of the calls (on {self.count} held-out queries)."
        )


def second_stage(
    learned: StagedQueries, tested: StagedQueries, *, answer: float | None = None, seed: int = 42
) -> SecondStage:
    """The trade. `answer` is the probability from which on a query is answered without a second stage.

    >>> sure, unsure = StagedQueries(np.full(50, 0.9), *np.ones((2, 50))), np.full(50, 0.2)
    >>> half = sure + StagedQueries(unsure, np.zeros(50), np.ones(50))
    >>> second_stage(half, half).calls
    0.5
    """
    every = learned + tested
    gains = every.after - every.before
    drawn = bootstrap.interval(mean_statistic(gains), len(gains), resamples=_RESAMPLES, confidence=0.95, seed=seed)
    facts = (float(every.before.mean()), float(every.after.mean()), float(gains.mean()), drawn, len(tested.scores))
    curve = _curve(every)
    if drawn is None or drawn[0] <= 0:
        return SecondStage(*facts, curve=curve)
    threshold = _choose(learned, answer)
    passed = tested.passed(threshold, answer)
    ndcg = tested.ndcg(passed)
    kept = ndcg / tested.after.mean() if tested.after.any() else np.nan
    return SecondStage(*facts, threshold, float(passed.mean()), ndcg, float(kept), curve)


def _choose(learned: StagedQueries, answer: float | None) -> float:
    """The lowest threshold that keeps enough; where none does, the one that keeps most."""
    finite = learned.scores[np.isfinite(learned.scores)]
    edges = np.unique(np.quantile(finite, np.linspace(0, 1, _STEPS))) if len(finite) else np.array([1.0])
    thresholds = np.nextafter(edges, np.inf)  # a query at the edge is passed on
    values = np.array([learned.ndcg(learned.passed(float(t), answer)) for t in thresholds])
    enough = np.flatnonzero(values >= KEPT * learned.after.mean())
    return float(thresholds[enough[0] if len(enough) else int(values.argmax())])


def _curve(queries: StagedQueries) -> tuple[TradePoint, ...]:
    """In steps of a tenth of the calls, the least sure queries first."""
    order = np.argsort(queries.scores, kind="stable")
    n, whole = len(order), float(queries.after.mean())
    points = []
    for tenth in range(11):
        passed = np.zeros(n, np.bool_)
        passed[order[: round(n * tenth / 10)]] = True
        ndcg = queries.ndcg(passed)
        points.append(TradePoint(tenth / 10, ndcg, ndcg / whole if whole else np.nan))
    return tuple(points)
