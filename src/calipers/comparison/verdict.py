"""Verdicts: did the change break the model? A function of two results over the same examples.

The label is that of the point estimate, with thresholds in the metric's own direction; how sure it is, is the share of
paired bootstrap resamples that give the same label. Nothing here knows a task: a metric is a function of counts, so
both models see the same resamples, and every statistic works for every metric.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from calipers.comparison.records import Comparison, Example, Label, Verdict, worst_label
from calipers.core import Columns, Metric, Outcomes, RequestError, Result, Thresholds, name_some
from calipers.metrics import bootstrap, exchange, paired

Floats = NDArray[np.float64]

PERMUTATIONS = 9_999
MOST_TO_LEAVE_OUT = 20_000  # beyond, leaving out one example at a time takes minutes
_MOST_USEFUL = 1_000_000  # examples; who needs more is too close to a threshold to be settled in practice


@dataclass(frozen=True)
class Terms:
    """How a verdict is found: everything in it can change without running a model again."""

    thresholds: Mapping[str, Thresholds]  # by metric, instead of the metric's own
    deciding: tuple[str, ...]  # metrics that the verdict depends on
    confidence: float = 0.95
    resamples: int = 10_000
    seed: int = 42
    threads: int = 1
    worst: int = 10


# --- the same examples or nothing --------------------------------------------------------------------------------


def refuse_unlike(baseline: Result, candidate: Result) -> None:
    """One sentence that says what differs, where two results do not speak of the same examples and question."""
    a, b = baseline.outcomes.ids, candidate.outcomes.ids
    if baseline.task != candidate.task:
        raise _unlike(f"the tasks differ: {baseline.task} and {candidate.task}")
    if changed := _changed(baseline.options, candidate.options):
        values = ", ".join(f"{key} {first!r} and {second!r}" for key, (first, second) in changed.items())
        raise _unlike(f"the task's options differ: {values}")
    if set(a) != set(b):
        lost, added = [id for id in a if id not in set(b)], [id for id in b if id not in set(a)]
        parts = [f"{name_some(ids, 3)} only in the {who}" for ids, who in ((lost, "first"), (added, "second")) if ids]
        raise _unlike(f"the examples differ ({len(a)} and {len(b)}): {', '.join(parts)}")
    if a != b:
        raise _unlike("the examples are the same but in another order; run both with the same data and `seed`")
    if baseline.fingerprint != candidate.fingerprint:
        raise _unlike(f"the data of {baseline.dataset.path} and {candidate.dataset.path} differ under the same ids")


def differences(baseline: Result, candidate: Result) -> dict[str, tuple[Any, Any]]:
    """What differs and may, being part of the model: backend, number type, pooling, batching, …"""
    settings = [{"backend": m.backend, "device": m.device, **m.settings} for m in (baseline.model, candidate.model)]
    versions = [result.environment.get("versions", {}) for result in (baseline, candidate)]
    return _changed(*settings) | {f"version of {name}": pair for name, pair in _changed(*versions).items()}


def _changed(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {key: (a.get(key), b.get(key)) for key in {**a, **b} if a.get(key) != b.get(key)}


def _unlike(what: str) -> RequestError:
    return RequestError(f"these runs cannot be compared: {what}")


# --- labels ----------------------------------------------------------------------------------------------------


def loss(baseline: Floats, candidate: Floats, *, higher_is_better: bool, relative: bool) -> Floats:
    """How much worse, in points or as a share of the baseline; negative is better. Worse than 0 is infinitely worse.

    >>> loss(np.array([4.0]), np.array([5.0]), higher_is_better=False, relative=True)
    array([0.25])
    """
    worse = baseline - candidate if higher_is_better else candidate - baseline
    if not relative:
        return np.asarray(worse)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = worse / np.abs(baseline)
    return np.where((baseline == 0) & (worse == 0), 0.0, share)


def labels(losses: Floats, thresholds: Thresholds) -> NDArray[np.int64]:
    """0 for PASS, 1 for AT_RISK, 2 for REGRESSION. What is not worse passes, whatever the thresholds."""
    worse = (losses > 0) & (losses >= thresholds.passes)
    return np.where(worse, np.where(losses >= thresholds.at_risk, 2, 1), 0)


BY_LOSS: tuple[Label, ...] = get_args(Label)[:3]  # what the numbers of `labels` stand for


# --- the verdict -----------------------------------------------------------------------------------------------


def compare(baseline: Result, candidate: Result, metrics: Sequence[Metric], terms: Terms) -> Verdict:
    """Every metric of both on the same resamples; the label is the worst one among the metrics that decide."""
    refuse_unlike(baseline, candidate)
    a, b = baseline.outcomes, candidate.outcomes
    shared = [metric for metric in metrics if all(c in a.columns and c in b.columns for c in metric.needs)]
    _refuse_unlike_units(shared, a, b, terms)
    statistics = [metric.statistic(outcomes.columns) for metric in shared for outcomes in (a, b)]
    drawn = bootstrap.distribution(
        statistics, len(a), resamples=terms.resamples, seed=terms.seed, threads=terms.threads
    )
    few = len(a) <= MOST_TO_LEAVE_OUT
    added = [paired.influence(s, len(a), threads=terms.threads) if few else None for s in statistics]
    comparisons = tuple(
        _compare_metric(metric, (a, b), drawn[2 * i : 2 * i + 2], added[2 * i : 2 * i + 2], terms)
        for i, metric in enumerate(shared)
    )
    return Verdict(
        baseline=baseline,
        candidate=candidate,
        candidate_name=candidate.model.model_id,
        label=worst_label(c.label for c in comparisons if c.decides),
        comparisons=comparisons,
        worst=_worst(shared[0], a, b, added[:2], terms.worst) if shared else (),
        differences=differences(baseline, candidate),
        bootstrap=_record(baseline, terms),
    )


def invalid(baseline: Result, name: str, reason: str, metrics: Sequence[Metric], terms: Terms) -> Verdict:
    """The verdict on a candidate whose output is dead: no number, and the reason."""
    comparisons = tuple(
        _unknown(metric, "INVALID", reason, baseline.metrics[metric.name], len(baseline.outcomes), terms)
        for metric in metrics
        if metric.name in baseline.metrics
    )
    return Verdict(baseline, None, name, "INVALID", comparisons, reason=reason, bootstrap=_record(baseline, terms))


def correct(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Holm's correction over all metrics of all candidates."""
    p_values = [c.p_value for verdict in verdicts for c in verdict.comparisons if c.p_value is not None]
    adjusted = iter(paired.holm(p_values))
    return [
        replace(
            verdict,
            comparisons=tuple(
                replace(c, adjusted_p=None if c.p_value is None else next(adjusted)) for c in verdict.comparisons
            ),
        )
        for verdict in verdicts
    ]


def _record(baseline: Result, terms: Terms) -> dict[str, Any]:
    return {
        "unit": baseline.bootstrap.get("unit", "example"),
        "confidence": terms.confidence,
        "resamples": terms.resamples,
        "seed": terms.seed,
        "permutations": PERMUTATIONS,
    }


def _refuse_unlike_units(metrics: Sequence[Metric], a: Outcomes, b: Outcomes, terms: Terms) -> None:
    """A mean per token of two tokenizers compares nothing."""
    for metric in metrics:
        for column in metric.same if metric.name in terms.deciding else ():
            if not np.array_equal(a.columns[column], b.columns[column]):
                sizes = [int(np.sum(o.columns[column])) for o in (a, b)]
                raise _unlike(
                    f"{metric.name} is a mean over {column}; the first has {sizes[0]} and the second {sizes[1]} (other "
                    "tokenizers, or another maximum length); use `word_level` of fill-mask, and the metric "
                    "word_pseudo_perplexity"
                )


def _compare_metric(
    metric: Metric, outcomes: tuple[Outcomes, Outcomes], drawn: Floats, added: Sequence[Floats | None], terms: Terms
) -> Comparison:
    a, b = (metric.value(o.columns) for o in outcomes)
    examples = len(outcomes[0])
    if not (math.isfinite(a) and math.isfinite(b)):
        who = " and ".join(w for w, v in (("baseline", a), ("candidate", b)) if not math.isfinite(v))
        return _unknown(metric, "INVALID", f"{metric.name} is not defined for the {who}", a, examples, terms)
    thresholds = terms.thresholds.get(metric.name, metric.thresholds)
    here = loss(np.array([a]), np.array([b]), higher_is_better=metric.higher_is_better, relative=thresholds.relative)
    estimate = int(labels(here, thresholds)[0])
    interval, why = None, "one example cannot be resampled"
    if examples > 1:  # every resample of one example is that example
        why = f"{metric.name} is undefined in too many resamples of {examples} examples"
        interval = bootstrap.percentile_interval(drawn[1] - drawn[0], confidence=terms.confidence)
    losses = loss(*drawn, higher_is_better=metric.higher_is_better, relative=thresholds.relative)
    losses = losses[~np.isnan(losses)]
    confidence = None if interval is None else float((labels(losses, thresholds) == estimate).mean())
    sure = confidence is not None and confidence >= terms.confidence
    unsettled = not sure and interval is not None
    return replace(
        _unknown(metric, BY_LOSS[estimate] if sure else "INCONCLUSIVE", None, a, examples, terms),
        candidate=b,
        delta=b - a,
        relative=(b - a) / abs(a) if a else None,
        interval=interval,
        estimate=BY_LOSS[estimate],
        confidence=confidence,
        p_value=_p_value(metric, outcomes, added, b - a, terms),
        settled_by=_settled_by(float(here[0]), losses, thresholds, examples, terms.confidence) if unsettled else None,
        reason=None if interval else why,
    )


def _p_value(
    metric: Metric,
    outcomes: tuple[Outcomes, Outcomes],
    added: Sequence[Floats | None],
    delta: float,
    terms: Terms,
) -> float | None:
    a, b = added
    if a is None or b is None or len(a) < 2:
        return None
    if metric.exchange:
        both = metric.statistic(_side_by_side(metric.exchange, *(o.columns for o in outcomes)))
        drawing = {"permutations": PERMUTATIONS, "seed": terms.seed, "threads": terms.threads}
        return exchange.exchange_p(both, len(a), delta, **drawing)
    return paired.permutation_p(b - a, delta, permutations=PERMUTATIONS, seed=terms.seed)


def _side_by_side(exchangeable: exchange.Exchange, a: Columns, b: Columns) -> Columns:
    """The outcomes of both models as those of one with twice the examples. What both have, such as gold, is no
    model's."""

    def join(one: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
        shared = np.array_equal(one, other)
        return np.concatenate([one, other] if shared else [exchangeable(one), exchangeable(other)])

    return {name: join(values, b[name]) for name, values in a.items() if name in b}


def _settled_by(here: float, losses: Floats, thresholds: Thresholds, examples: int, confidence: float) -> int | None:
    """About how many examples would settle a label, by the nearer threshold; None where none would."""
    finite = losses[np.isfinite(losses)]
    if len(finite) < 2 or not math.isfinite(here):
        return None
    distance = min(abs(here - bound) for bound in (thresholds.passes, thresholds.at_risk))
    needed = paired.examples_to_settle(examples, distance, float(finite.std()), confidence=confidence)
    return max(needed, examples + 1) if 0 < needed <= _MOST_USEFUL else None


def _unknown(
    metric: Metric, label: Label, reason: str | None, baseline: float, examples: int, terms: Terms
) -> Comparison:
    """The baseline's side alone."""
    unknown = ("candidate", "delta", "relative", "interval", "confidence", "p_value", "adjusted_p", "settled_by")
    nothing: dict[str, Any] = dict.fromkeys(unknown)
    return Comparison(
        **nothing,
        metric=metric.name,
        higher_is_better=metric.higher_is_better,
        baseline=baseline if math.isfinite(baseline) else None,
        label=label,
        estimate=label,
        examples=examples,
        thresholds=terms.thresholds.get(metric.name, metric.thresholds),
        decides=metric.name in terms.deciding,
        digits=metric.digits,
        reason=reason,
    )


def _worst(metric: Metric, a: Outcomes, b: Outcomes, added: Sequence[Floats | None], most: int) -> tuple[Example, ...]:
    """The examples that cost the candidate most of the metric; those that cost nothing are not named."""
    before, after = added
    if before is None or after is None or most < 1:
        return ()
    change = np.nan_to_num(after - before) + metric.value(b.columns) - metric.value(a.columns)
    share = (change if metric.higher_is_better else -change) / len(a)
    rounding = 1e-9 * np.abs(share).max(initial=0.0)
    order = [int(i) for i in np.argsort(share, kind="stable")[:most] if share[i] < -rounding]
    return tuple(
        Example(
            id=a.ids[i],
            texts={name: texts[i] for name, texts in a.texts.items()},
            baseline={name: values[i].item() for name, values in a.columns.items()},
            candidate={name: values[i].item() for name, values in b.columns.items()},
            share=float(share[i]),
        )
        for i in order
    )
