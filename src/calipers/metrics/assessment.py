"""How good trust scores are on judged queries: R_q, the top cosine, and the maps fitted on them, side by side.

Maps are measured on queries that they were not fitted on (folds, seeded, with the same share of successes in each).
Intervals resample queries and keep the fitted maps; the interval of an ECE is moved to its value (see `_shifted`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from calipers.metrics import bootstrap, calibration, probabilities
from calipers.metrics.arrays import Floats, Ints, Statistic, once
from calipers.metrics.calibration import FOLDS
from calipers.metrics.probabilities import CurvePoint, RiskCoverage
from calipers.metrics.trust import TrustParts

RESAMPLES = 2000
_FITS: Mapping[str, Callable[[Floats, Floats], calibration.Map | calibration.Stacked]] = {
    "logistic": calibration.fit_logistic,
    "isotonic": calibration.fit_stacked,
}
FALSE_ALARMS = 0.05  # share of real queries that a detector may call odd


@dataclass(frozen=True)
class IntervalEstimate:
    """A number with its interval; NaN and None where it is not defined."""

    value: float = np.nan
    interval: tuple[float, float] | None = None


UNKNOWN = IntervalEstimate()


@dataclass(frozen=True)
class Quality:
    """Of one score. `brier` and `ece` take it for a probability; `honest` is the ECE that chance alone would leave."""

    name: str
    about: str
    auroc: IntervalEstimate
    brier: IntervalEstimate
    ece: IntervalEstimate
    honest: float


@dataclass(frozen=True, eq=False)
class Assessment:
    """Over `count` judged queries with all parts; the share `base_rate` of them succeeds. `probabilities` are out of
    fold, float64[q] by map, NaN where a query has no label or part. `reason` says why there are none; then only what
    needs no map is known."""

    count: int
    base_rate: float
    qualities: tuple[Quality, ...] = ()
    gain: IntervalEstimate = UNKNOWN  # AUROC of R_q less the AUROC of the top cosine, on the same resamples
    calibrated_gain: IntervalEstimate = UNKNOWN  # the same for the logistic map
    probabilities: Mapping[str, Floats] = field(default_factory=dict)
    curves: Mapping[str, tuple[CurvePoint, ...]] = field(default_factory=dict)
    risks: Mapping[str, RiskCoverage] = field(default_factory=dict)
    reason: str | None = None

    @property
    def sentences(self) -> tuple[str, ...]:
        """What R_q, and then the calibrated score, adds to the top cosine on these queries."""
        if self.reason:
            return (f"R_q cannot be compared with the top cosine: {self.reason}.",)
        return against("R_q", self.gain), against("The calibrated score", self.calibrated_gain)


def assess(
    parts: TrustParts,
    labels: Floats,
    *,
    folds: int = FOLDS,
    seed: int = 42,
    resamples: int = RESAMPLES,
    confidence: float = 0.95,
) -> Assessment:
    """`labels` float64[q]: 1 where a relevant result is among the K, 0 where not, NaN where nobody judged."""
    rows = np.flatnonzero(parts.complete & np.isfinite(labels))
    judged, right = parts.take(rows), labels[rows]
    base = float(right.mean()) if len(rows) else np.nan
    if reason := calibration.why_not(right, folds):
        return Assessment(len(rows), base, reason=reason)
    fold = calibration.folds(right, folds, seed=seed)
    mapped = {name: calibration.out_of_fold(fit, judged.features, right, fold) for name, fit in _FITS.items()}
    terms = _Terms(resamples, confidence, seed)
    qualities, drawn = _qualities(_columns(judged, right, fold, mapped), right, terms)
    spread = np.full((len(mapped), len(parts)), np.nan)
    spread[:, rows] = list(mapped.values())
    return Assessment(
        count=len(rows),
        base_rate=base,
        qualities=qualities,
        gain=_gain(qualities, drawn, "reliability", terms),
        calibrated_gain=_gain(qualities, drawn, "logistic", terms),
        probabilities=dict(zip(mapped, spread, strict=True)),
        curves={name: probabilities.reliability_curve(p, right, **vars(terms)) for name, p in mapped.items()},
        risks={name: probabilities.risk_coverage(p, right) for name, p in mapped.items()},
    )


@dataclass(frozen=True)
class _Terms:
    """How intervals are made."""

    resamples: int
    confidence: float
    seed: int

    def estimate(self, value: float, drawn: Floats) -> IntervalEstimate:
        return IntervalEstimate(value, bootstrap.percentile_interval(drawn, confidence=self.confidence))


def _columns(
    parts: TrustParts, labels: Floats, fold: Ints, mapped: Mapping[str, Floats]
) -> list[tuple[str, str, Floats, Floats]]:
    """Name, what it is, the score that orders, the same as a probability."""
    reliability, top = (
        calibration.out_of_fold(calibration.fit_isotonic, score, labels, fold)
        for score in (parts.reliability, parts.top_score)
    )
    share = np.array([labels[fold != number].mean() for number in fold])
    return [
        ("reliability", "R_q as it is", parts.reliability, np.clip(parts.reliability, 0, 1)),
        ("top_score", "the top cosine as it is", parts.top_score, np.clip(parts.top_score, 0, 1)),
        ("reliability_isotonic", "R_q through an isotonic map", reliability, reliability),
        ("top_score_isotonic", "the top cosine through an isotonic map", top, top),
        ("logistic", "all four features through a logistic map", mapped["logistic"], mapped["logistic"]),
        ("isotonic", "the same, then an isotonic map", mapped["isotonic"], mapped["isotonic"]),
        ("base_rate", "the share of successes, said of every query", np.zeros(len(labels)), share),
    ]


def _qualities(
    columns: list[tuple[str, str, Floats, Floats]], labels: Floats, terms: _Terms
) -> tuple[tuple[Quality, ...], dict[str, Floats]]:
    """The qualities, and the AUROC of each score on every resample."""
    makers = (probabilities.brier_statistic, probabilities.ece_statistic)
    statistics: list[Statistic] = []
    for _, _, score, p in columns:
        statistics += [probabilities.auroc_statistic(score, labels), *(make(p, labels) for make in makers)]
    drawn = bootstrap.distribution(statistics, len(labels), resamples=terms.resamples, seed=terms.seed)
    values = [once(statistic, len(labels)) for statistic in statistics]
    drawn[2::3] = _shifted(drawn[2::3], np.array(values[2::3]))
    estimates = iter([terms.estimate(value, row) for value, row in zip(values, drawn, strict=True)])
    qualities = tuple(
        Quality(
            name, about, next(estimates), next(estimates), next(estimates), probabilities.honest_ece(p, seed=terms.seed)
        )
        for name, about, _, p in columns
    )
    return qualities, {name: drawn[3 * i] for i, (name, *_) in enumerate(columns)}


def _shifted(drawn: Floats, values: Floats) -> Floats:
    """Resamples float64[s, r] of an ECE, moved so that their mean is the value of the sample, and not below 0: drawing
    again adds noise to every bin, and unmoved an interval may lie above its own value."""
    return np.asarray(np.maximum(drawn - (drawn.mean(axis=1) - values)[:, None], 0.0))


def _gain(qualities: tuple[Quality, ...], drawn: Mapping[str, Floats], name: str, terms: _Terms) -> IntervalEstimate:
    """The AUROC of a score less the AUROC of the top cosine."""
    values = {quality.name: quality.auroc.value for quality in qualities}
    return terms.estimate(values[name] - values["top_score"], drawn[name] - drawn["top_score"])


def against(who: str, gain: IntervalEstimate) -> str:
    """Whether a score is better than the top cosine, in words."""
    if gain.interval is None:
        return f"{who} cannot be compared with the top cosine: too many resamples hold one kind of query only."
    low, high = gain.interval
    which = "better" if low > 0 else "worse" if high < 0 else "no better"
    numbers = f"(AUROC {gain.value:+.3f}, interval {low:+.3f} to {high:+.3f})"
    return f"{who} is {which} than the top cosine alone on this data {numbers}."


@dataclass(frozen=True, eq=False)
class Detection:
    """How well odd queries of one kind are distinguished from real ones: AUROC by a map on all features (out of fold),
    and by a low R_q and a low top cosine alone. From `threshold` on the map calls a query odd, wrongly for 5 % of the
    real ones. `map` is None where `reason` says why there is none."""

    kind: str
    count: int
    real: int
    auroc: IntervalEstimate = UNKNOWN
    by_reliability: IntervalEstimate = UNKNOWN
    by_top_score: IntervalEstimate = UNKNOWN
    threshold: float = np.nan
    found: float = np.nan  # share of the odd ones at or above the threshold
    map: calibration.Logistic | None = None
    reason: str | None = None


def detect(
    kind: str,
    odd: TrustParts,
    real: TrustParts,
    *,
    folds: int = FOLDS,
    seed: int = 42,
    resamples: int = RESAMPLES,
    confidence: float = 0.95,
    read: Callable[[TrustParts], Floats] = lambda parts: parts.features,
) -> Detection:
    """A detector of odd queries, by what it may `read` of them. Queries without all parts are left out."""
    odd, real = odd.take(np.flatnonzero(odd.complete)), real.take(np.flatnonzero(real.complete))
    labels = np.concatenate([np.ones(len(odd)), np.zeros(len(real))])
    if min(len(odd), len(real)) < folds:
        real_ones = f"{len(real)} real {'query' if len(real) == 1 else 'queries'}"
        reason = f"{len(odd)} {kind} and {real_ones}: {folds} folds need at least {folds} of either kind"
        return Detection(kind, len(odd), len(real), reason=reason)
    features = np.concatenate([read(odd), read(real)])
    fold = calibration.folds(labels, folds, seed=seed)
    p = calibration.out_of_fold(calibration.fit_logistic, features, labels, fold)
    low = [-np.concatenate([getattr(odd, name), getattr(real, name)]) for name in ("reliability", "top_score")]
    terms = _Terms(resamples, confidence, seed)
    by_map, by_reliability, by_top_score = (_auroc(score, labels, terms) for score in (p, *low))
    threshold = false_alarm_threshold(p[len(odd) :])
    reached = float((p[: len(odd)] >= threshold).mean())
    fitted = calibration.fit_logistic(features, labels)
    return Detection(kind, len(odd), len(real), by_map, by_reliability, by_top_score, threshold, reached, fitted)


def false_alarm_threshold(real: Floats, share: float = FALSE_ALARMS) -> float:
    """The lowest threshold that at most this share of the real queries reaches.

    >>> false_alarm_threshold(np.array([0.1, 0.2, 0.9]), 0.34) > 0.2
    True
    """
    allowed = int(share * len(real))
    return float(np.nextafter(np.sort(real)[len(real) - 1 - allowed], np.inf))


def _auroc(scores: Floats, labels: Floats, terms: _Terms) -> IntervalEstimate:
    statistic = probabilities.auroc_statistic(scores, labels)
    interval = bootstrap.interval(statistic, len(labels), **vars(terms))
    return IntervalEstimate(once(statistic, len(labels)), interval)


def summary(assessment: Assessment) -> dict[str, Any]:
    """Numbers and sentences only, for JSON."""
    return {
        "queries": assessment.count,
        "base_rate": assessment.base_rate,
        "reason": assessment.reason,
        "sentences": list(assessment.sentences),
        "scores": [
            {
                "name": quality.name,
                "about": quality.about,
                **{key: vars(getattr(quality, key)) for key in ("auroc", "brier", "ece")},
                "honest_ece": quality.honest,
            }
            for quality in assessment.qualities
        ],
        "reliability_curve": {name: [vars(point) for point in points] for name, points in assessment.curves.items()},
        "risk_coverage": {name: _few(curve) for name, curve in assessment.risks.items()},
    }


def _few(curve: RiskCoverage) -> list[dict[str, float]]:
    """Points of the curve, at most twenty: the first from each twentieth of the queries on."""
    wanted = np.searchsorted(curve.coverage, np.arange(1, 21) / 20 - 1e-9)
    return [
        {key: float(getattr(curve, key)[place]) for key in ("coverage", "risk", "threshold")}
        for place in np.unique(np.minimum(wanted, len(curve.coverage) - 1))
    ]
