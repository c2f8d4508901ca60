"""Verdicts: did the change break the model? A function of two results over the same examples.

The exit code follows the chance of a REGRESSION: REGRESSION where it is at least the confidence, PASS or AT_RISK by the
point estimate where it is at most 1 − confidence, else INCONCLUSIVE. Loosening a threshold lowers that chance, so it
never makes an exit code worse. Nothing here knows a task: a metric is a function of counts, so both models see the same
resamples, and every statistic works for every metric.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from calipers.comparison import evidence, unread
from calipers.comparison.evidence import DrawnUnits, Evidence
from calipers.comparison.records import Chances, Comparison, Example, Label, Question, Verdict, plain, worst_label
from calipers.core import Columns, Metric, Outcomes, RequestError, Result, Statistic, Thresholds, name_some
from calipers.metrics import exchange, paired, studentised
from calipers.metrics.bootstrap import enough_resamples

Floats = NDArray[np.float64]

_ROUNDING = 1e-9  # of a chance


@dataclass(frozen=True)
class Terms:
    """How a verdict is found: everything in it can change without running a model again."""

    thresholds: Mapping[str, Thresholds]  # by metric, instead of the metric's own
    deciding: tuple[str, ...]  # metrics that the verdict depends on
    confidence: float = 0.95
    resamples: int | None = None  # None: as many as suit the number of examples
    seed: int = 42
    threads: int = 1
    worst: int = 10
    question: Question = "REGRESSION"  # what the exit code is about: that label or a worse one


# --- the same examples or nothing --------------------------------------------------------------------------------


def refuse_unlike(baseline: Result, candidate: Result) -> None:
    """One sentence that says what differs, where two results do not speak of the same examples and question."""
    a, b = baseline.outcomes.ids, candidate.outcomes.ids
    if baseline.task != candidate.task:
        raise _unlike(f"the tasks differ: {baseline.task} and {candidate.task}")
    # A stored run has lists where a fresh one has tuples.
    if changed := _changed(plain(baseline.options), plain(candidate.options)):
        values = ", ".join(f"{key} {first!r} and {second!r}" for key, (first, second) in changed.items())
        raise _unlike(f"the task's options differ: {values}")
    if a != b and (first := set(a)) != (second := set(b)):
        lost, added = [id for id in a if id not in second], [id for id in b if id not in first]
        parts = [f"{name_some(ids, 3)} only in the {who}" for ids, who in ((lost, "first"), (added, "second")) if ids]
        raise _unlike(f"the examples differ ({len(a)} and {len(b)}): {', '.join(parts)}")
    if a != b:
        raise _unlike("the examples are the same but in another order; run both with the same data and `seed`")
    clusters = [run.bootstrap["cluster"] for run in (baseline, candidate) if "cluster" in run.bootstrap]
    if len({*clusters}) > 1:
        raise _unlike(f"their rows are drawn together by other columns: {clusters[0]} and {clusters[1]}")
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


def metric_loss(metric: Metric, baseline: float, candidate: float, *, relative: bool) -> Floats:
    """The loss of one metric, float64[1]; a share of a perplexity where the metric is one or its logarithm."""
    a, b = np.array([baseline]), np.array([candidate])
    if not (relative and metric.log_scale):
        return loss(a, b, higher_is_better=metric.higher_is_better, relative=relative)
    with np.errstate(over="ignore", divide="ignore"):
        change = np.expm1(metric.log_scale(b) - metric.log_scale(a))
    return np.asarray(-change if metric.higher_is_better else change)


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
    _refuse_undecided(shared, metrics, terms)
    _refuse_unlike_units(shared, a, b, terms)
    a, b, unread_examples = unread.settle(shared, a, b)
    units = _units(baseline, candidate)
    resamples = terms.resamples or enough_resamples(units.count)
    terms = replace(terms, resamples=resamples)
    judged = _judge(shared, (a, b), units, terms, baseline)
    comparisons = _with_exchange(judged.comparisons, shared, (a, b), units, terms)
    return Verdict(
        baseline=baseline,
        candidate=candidate,
        candidate_name=candidate.model.model_id,
        label=worst_label((c.label for c in comparisons if c.decides), terms.question),
        comparisons=comparisons,
        worst=_worst(judged.costliest, baseline.outcomes, candidate.outcomes),
        differences=differences(baseline, candidate),
        bootstrap=judged.record | _clusters(baseline, candidate),
        unread=unread_examples,
    )


@dataclass(frozen=True)
class _Judged:
    """What resamples say, without the evidence, which is larger than all else."""

    comparisons: tuple[Comparison, ...]
    costliest: tuple[tuple[int, float], ...]  # rows of examples, and what they add to the first metric
    record: dict[str, Any]


def _judge(
    metrics: Sequence[Metric], outcomes: tuple[Outcomes, Outcomes], units: DrawnUnits, terms: Terms, baseline: Result
) -> _Judged:
    drawing = {"resamples": terms.resamples or 0, "seed": terms.seed, "threads": terms.threads}
    gathered = evidence.gather(metrics, outcomes[0], outcomes[1], units, **drawing)
    return _Judged(
        tuple(_compare_metric(each, _permutation_p(each, outcomes, terms), terms) for each in gathered),
        _costliest(gathered[0], terms.worst),
        _record(baseline, terms, gathered[0].draws),
    )


def _units(baseline: Result, candidate: Result) -> DrawnUnits:
    """Clusters where one of the runs has them: both are of the same examples."""
    run = baseline if "cluster" in baseline.bootstrap else candidate
    return DrawnUnits(len(run.outcomes), run.outcomes.clusters)


def _clusters(baseline: Result, candidate: Result) -> dict[str, Any]:
    facts = {**candidate.bootstrap, **baseline.bootstrap}
    return {name: facts[name] for name in ("cluster", "clusters") if name in facts}


def _refuse_undecided(shared: Sequence[Metric], metrics: Sequence[Metric], terms: Terms) -> None:
    """Nothing to compare is no verdict, and neither is a comparison without the metrics that decide."""
    if not shared:
        raise _unlike("there is no metric that both have")
    missing = [metric for metric in metrics if metric.name in terms.deciding and metric not in shared]
    for metric in missing:
        raise _unlike(f"one of them has no {metric.name}, and the verdict depends on it")


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


def _record(baseline: Result, terms: Terms, draws: studentised.PairedDraws | None = None) -> dict[str, Any]:
    units = draws.units if draws else len(baseline.outcomes)
    return {
        "unit": baseline.bootstrap.get("unit", "example"),
        "method": "percentile" if draws and draws.added is None else "studentised",
        "confidence": terms.confidence,
        "question": terms.question,
        "resamples": terms.resamples or enough_resamples(len(baseline.outcomes)),
        "seed": terms.seed,
        "permutations": permutations(units),
        "fewest_changed": evidence.FEWEST_CHANGED,
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


def _compare_metric(each: Evidence, p_value: float | None, terms: Terms) -> Comparison:
    metric, (a, b) = each.metric, each.values
    if not (math.isfinite(a) and math.isfinite(b)):
        who = " and ".join(w for w, v in (("baseline", a), ("candidate", b)) if not math.isfinite(v))
        return _unknown(metric, "INVALID", f"{metric.name} is not defined for the {who}", a, each.examples, terms)
    thresholds = terms.thresholds.get(metric.name, metric.thresholds)
    estimate = BY_LOSS[int(labels(metric_loss(metric, a, b, relative=thresholds.relative), thresholds)[0])]
    chances, interval = evidence.chances_and_interval(each, thresholds, terms.confidence)
    label = decide(chances, estimate, terms.question, terms.confidence)
    unsettled = label == "INCONCLUSIVE" and (chances is not None or not each.shows_rare_losses)
    return replace(
        _unknown(metric, label, None, a, each.examples, terms),
        candidate=b,
        delta=b - a,
        relative=(b - a) / abs(a) if a else None,
        interval=interval,
        estimate=estimate,
        confidence=chances.of(estimate) if chances else None,
        chances=chances,
        p_value=p_value,
        settled_by=evidence.settled_by(each, thresholds, terms.question, terms.confidence) if unsettled else None,
        reason=_reason(each, interval is None),
    )


def decide(chances: Chances | None, estimate: Label, question: Question, confidence: float) -> Label:
    """The label, from the chances of all three and that of the point estimate.

    >>> decide(Chances(0.2, 0.77, 0.03), "AT_RISK", "REGRESSION", 0.95)
    'AT_RISK'
    >>> decide(Chances(0.2, 0.77, 0.03), "AT_RISK", "AT_RISK", 0.95)
    'INCONCLUSIVE'
    """
    if chances is None:
        return "INCONCLUSIVE"
    bad = chances.at_least(question)
    if bad >= confidence - _ROUNDING:
        return "AT_RISK" if question == "AT_RISK" and chances.regression < confidence - _ROUNDING else "REGRESSION"
    if bad > 1 - confidence + _ROUNDING:
        return "INCONCLUSIVE"
    return "PASS" if question == "AT_RISK" or estimate == "PASS" else "AT_RISK"


def _reason(each: Evidence, no_interval: bool) -> str | None:
    """Why a number is missing, or what a reader must know of it."""
    if each.lost:
        return f"{each.lost} of {each.examples} have no value in the candidate and count as the worst value"
    if not no_interval:
        return None if each.by_unit is not None else _without_influence(each)
    if each.draws.units < 2:
        return "one example cannot be resampled"
    if not each.shows_rare_losses:
        return (
            f"only {each.changed} of {each.draws.units} changed, which cannot show a rare loss: at least "
            f"{evidence.FEWEST_CHANGED} must"
        )
    return f"{each.metric.name} is undefined in too many resamples of {each.draws.units} examples"


def _without_influence(each: Evidence) -> str:
    method = "" if each.draws.added is not None else "judged by percentiles, "
    missing = "worst examples are unknown" if each.metric.exchange else "the p-value and the worst examples are unknown"
    most = studentised.MOST_TO_LEAVE_OUT
    return f"{method}{missing}: leaving out one at a time is for {most:,} at most, found {each.draws.units:,}"


def _permutation_p(each: Evidence, outcomes: tuple[Outcomes, Outcomes], terms: Terms) -> float | None:
    """The p-value of a metric by signs of contributions; None where it exchanges outcomes, or nothing is known."""
    units = each.draws.units
    if units < 2 or _exchanges(each.metric, outcomes, units) or (by_unit := each.by_unit) is None:
        return None
    return paired.permutation_p(by_unit, permutations=permutations(units), seed=terms.seed)


def _exchanges(metric: Metric, outcomes: tuple[Outcomes, Outcomes], units: int) -> bool:
    return metric.exchange is not None and units == len(outcomes[0])


def _with_exchange(
    comparisons: Sequence[Comparison],
    metrics: Sequence[Metric],
    outcomes: tuple[Outcomes, Outcomes],
    units: DrawnUnits,
    terms: Terms,
) -> tuple[Comparison, ...]:
    """The comparisons, with the p-values of metrics that exchange outcomes: all do so alike."""
    a, b = (side.columns for side in outcomes)
    if units.count < 2:
        return tuple(comparisons)
    tested = {
        i: (metric, metric.exchange, float(c.delta))
        for i, (metric, c) in enumerate(zip(metrics, comparisons, strict=True))
        if _exchanges(metric, outcomes, units.count) and metric.exchange and c.delta is not None
    }

    def tests() -> Iterator[tuple[Statistic, float]]:
        with evidence.sparing_memory(units.examples):
            for metric, way, delta in tested.values():
                yield metric.statistic(_SideBySide(way, a, b)), delta

    drawing = {"permutations": permutations(units.count), "seed": terms.seed, "threads": terms.threads}
    p_values = dict(zip(tested, exchange.exchange_ps(tests(), units.count, **drawing), strict=True))
    return tuple(replace(c, p_value=p_values.get(i, c.p_value)) for i, c in enumerate(comparisons))


def permutations(units: int) -> int:
    """Of a p-value: fewer of many units, as of resamples.

    >>> permutations(300), permutations(50_000), permutations(1_000_000)
    (9999, 3999, 999)
    """
    return enough_resamples(units) - 1


@dataclass(frozen=True)
class _SideBySide(Mapping[str, NDArray[Any]]):
    """The outcomes of both models as those of one with twice the examples, made when they are read. What both have,
    such as gold, is no model's."""

    exchangeable: exchange.Exchange
    a: Columns
    b: Columns

    def __getitem__(self, name: str) -> NDArray[Any]:
        one, other = self.a[name], self.b[name]
        shared = np.array_equal(one, other)
        return np.concatenate([one, other] if shared else [self.exchangeable(one), self.exchangeable(other)])

    def __iter__(self) -> Iterator[str]:
        return (name for name in self.a if name in self.b)

    def __len__(self) -> int:
        return sum(1 for _ in self)


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


def _costliest(each: Evidence, most: int) -> tuple[tuple[int, float], ...]:
    """The rows of the examples that cost the candidate most of the metric, and what they add to it; those that cost
    nothing are not named."""
    if most < 1 or (shares := each.each) is None:
        return ()
    share = np.nan_to_num(shares) * (1.0 if each.metric.higher_is_better else -1.0)
    rounding = 1e-9 * np.abs(share).max(initial=0.0)
    order = np.argsort(share, kind="stable")[:most].tolist()
    return tuple((i, float(share[i])) for i in order if share[i] < -rounding)


def _worst(costliest: Sequence[tuple[int, float]], a: Outcomes, b: Outcomes) -> tuple[Example, ...]:
    if not costliest:
        return ()
    rows = [i for i, _ in costliest]
    # Column by column: those of many examples are read when they are needed.
    texts = {name: [column[i] for i in rows] for name, column in a.texts.items()}
    first, second = ({name: column[rows].tolist() for name, column in side.columns.items()} for side in (a, b))
    return tuple(
        Example(
            id=a.ids[row],
            texts={name: column[k] for name, column in texts.items()},
            baseline={name: column[k] for name, column in first.items()},
            candidate={name: column[k] for name, column in second.items()},
            share=share,
        )
        for k, (row, share) in enumerate(costliest)
    )
