"""The figures of the certainty layer: direction, meaning and statistic of each, and their metrics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.core import Columns, Figure, Metric, Statistic
from calipers.metrics import assessment, bootstrap, geometry, probabilities
from calipers.metrics.assessment import Assessment, Detection, IntervalEstimate
from calipers.metrics.means import mean_statistic
from calipers.metrics.trust import TrustParts

_UNJUDGED = "no query is judged: pass judgements with --qrels"
_NO_MODEL = "there is no model in hand to embed such queries"


@dataclass(frozen=True)
class Kind:
    name: str
    about: str
    meaning: str
    higher_is_better: bool | None
    statistic: Callable[[Columns], Statistic] | None = None
    needs: tuple[str, ...] = ()


def _mean(column: str) -> Callable[[Columns], Statistic]:
    return lambda columns: mean_statistic(columns[column])


def _judged_only(
    statistic: Callable[[NDArray[Any], NDArray[Any]], Statistic], score: str
) -> Callable[[Columns], Statistic]:
    """Over the queries that are judged: the others count for nothing."""

    def prepare(columns: Columns) -> Statistic:
        rows = np.flatnonzero(np.isfinite(columns["success"]) & np.isfinite(columns[score]))
        inner = statistic(columns[score][rows], columns["success"][rows])
        return lambda counts: inner(counts[rows])

    return prepare


_CALIBRATED = ("probability", "success")
_KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "reliability",
            "R_q: harmonic mean of stability and coherence",
            "The mean R_q of the queries: not a probability; a space whose vectors all point one way has a high one.",
            None,
            _mean("reliability"),
        ),
        Kind(
            "stability",
            "G_q: cosine of a query with what a codec leaves of it",
            "How much of a query's direction is left when it is stored in fewer bits: 1 is all of it.",
            True,
            _mean("stability"),
        ),
        Kind(
            "coherence",
            "I_q: mean cosine between the first K results",
            "How alike the first results of a query are: 1 where all share one vector.",
            None,
            _mean("coherence"),
        ),
        Kind(
            "auroc",
            "does the calibrated score order successes before failures?",
            "The chance that a query that succeeds has a higher calibrated score than one that fails: 0.5 is a coin.",
            True,
            _judged_only(probabilities.auroc_statistic, "probability"),
            _CALIBRATED,
        ),
        Kind(
            "brier",
            "mean squared error of the calibrated score",
            "How far the probabilities are from what happened, squared: 0 is best.",
            False,
            _judged_only(probabilities.brier_statistic, "probability"),
            _CALIBRATED,
        ),
        Kind(
            "ece",
            "expected calibration error of the calibrated score",
            "How far stated and true shares of success lie apart, in bins of equal size; chance leaves some of it.",
            False,
            _judged_only(probabilities.ece_statistic, "probability"),
            _CALIBRATED,
        ),
        Kind(
            "reliability_auroc",
            "the same for R_q alone",
            "The chance that a query that succeeds has a higher R_q than one that fails.",
            True,
            _judged_only(probabilities.auroc_statistic, "reliability"),
            _CALIBRATED,
        ),
        Kind(
            "top_score_auroc",
            "the same for the top cosine alone",
            "The chance that a query that succeeds has a higher top cosine than one that fails: what R_q must beat.",
            True,
            _judged_only(probabilities.auroc_statistic, "top_score"),
            _CALIBRATED,
        ),
        Kind("gibberish_auroc", "", "How well random strings and keyboard walks are told from the real queries.", True),
        Kind("vague_auroc", "", "How well frequent single words of the corpus are told from the real queries.", True),
        Kind("out_of_domain_auroc", "", "How well queries of other domains are told from the real ones.", True),
    )
}


def part_figures(parts: TrustParts, *, resamples: int, confidence: float, seed: int) -> list[Figure]:
    found = []
    for name in ("reliability", "stability", "coherence"):
        estimate = geometry.mean_estimate(getattr(parts, name))
        drawn = bootstrap.distribution(
            [mean_statistic(getattr(parts, name))], len(parts), resamples=resamples, seed=seed
        )
        ends = bootstrap.percentile_interval(drawn[0], confidence=confidence)
        error = estimate.standard_error
        found.append(_figure(name, IntervalEstimate(estimate.value, ends), estimate.count, error))
    return found


def judged_figures(judged: Assessment) -> list[Figure]:
    names = ("auroc", "brier", "ece", "reliability_auroc", "top_score_auroc")
    if judged.reason:
        reason = judged.reason if judged.count else _UNJUDGED
        return [_unknown(name, reason) for name in names]
    by = {quality.name: quality for quality in judged.qualities}
    values = (*(getattr(by["logistic"], key) for key in names[:3]), by["reliability"].auroc, by["top_score"].auroc)
    found = [_figure(name, value, judged.count) for name, value in zip(names, values, strict=True)]
    return [_warned(figure, judged, by) for figure in found]


def _warned(figure: Figure, judged: Assessment, by: dict[str, assessment.Quality]) -> Figure:
    """Two figures warn: a calibrated score that is no better than a constant, and an R_q that adds nothing."""
    constant = by["base_rate"].brier.value
    if figure.name == "brier":
        level = f"at or above {constant:.3f}, that of the base rate"
        bad = figure.value is not None and figure.value >= constant
        told = f"brier is {figure.value:.3f}, {level}: the score says no more than how often queries succeed"
        return replace(figure, level=level, warning=told if bad else None)
    if figure.name == "reliability_auroc":
        ends = judged.gain.interval
        bad = ends is None or ends[0] <= 0
        return replace(
            figure, level="not surely above that of the top cosine", warning=judged.sentences[0] if bad else None
        )
    return figure


@dataclass(frozen=True)
class OddTexts:
    """Queries that deserve no answer, and which they are, in words."""

    texts: Sequence[str]
    which: str = ""


def odd_figure(kind: str, found: Detection | None, asked: OddTexts | None) -> Figure:
    name = f"{kind}_auroc"
    if found is None or found.reason:
        return _unknown(name, found.reason if found and found.reason else _NO_MODEL)
    figure = _figure(name, found.auroc, found.count + found.real)
    which = f" ({asked.which})" if asked and asked.which else ""
    told = f"{figure.meaning[:-1]}{which}; 5 % false alarms find {found.found:.0%} of them."
    return replace(figure, meaning=told)


def _figure(name: str, found: IntervalEstimate, count: int, error: float | None = None) -> Figure:
    kind = _KINDS[name]
    known = None if error is None or not np.isfinite(error) else error
    if not np.isfinite(found.value):
        return _unknown(name, "no query has it")
    return Figure(
        name, found.value, count, "query", kind.higher_is_better, kind.meaning, found.interval, standard_error=known
    )


def _unknown(name: str, reason: str) -> Figure:
    kind = _KINDS[name]
    return Figure(name, None, 0, "query", kind.higher_is_better, kind.meaning, reason=reason)


METRICS = tuple(
    Metric(
        kind.name,
        kind.about,
        kind.statistic,
        higher_is_better=kind.higher_is_better is not False,
        digits=3,
        needs=kind.needs,
    )
    for kind in _KINDS.values()
    if kind.statistic
)
