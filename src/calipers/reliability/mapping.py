"""From predictors and judgements to a map for each kind of input, with what it is worth and what it can promise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from calipers.metrics import abstention, assessment, bootstrap, calibration, predictors, probabilities, selection
from calipers.metrics.arrays import Bools, Floats, Ints, once
from calipers.metrics.assessment import IntervalEstimate
from calipers.metrics.predictors import INPUTS, Columns
from calipers.metrics.promise import Promise, promise
from calipers.metrics.second_stage import SecondStage, StagedQueries, second_stage
from calipers.metrics.selection import Candidate
from calipers.reliability.records import DecisionThresholds, InputMap, Method

EVEN = 0.5  # below it a relevant result is less likely than not
_SPLIT = 2  # one half of the judged queries makes the map, the other tests what it may promise


@dataclass(frozen=True)
class MapRequest:
    """What is to be fitted: the number of neighbours, the kind of map, and the promise."""

    k: int
    method: Method
    error: float
    confidence: float
    folds: int
    seed: int


@dataclass(frozen=True, eq=False)
class JudgedQueries:
    """The columns of judged queries and their labels float64[q], without NaN. `flagged` are those that a detector calls
    odd, so that they are not answered; `makes` those whose judgements make the map, the others test it. `stages` has
    nDCG@10 of each before and after a reranker, where there is one."""

    columns: Columns
    labels: Floats
    makes: Bools
    flagged: Bools = field(default_factory=lambda: np.zeros(0, np.bool_))
    stages: tuple[Floats, Floats] | None = None

    def take(self, rows: Ints | Bools) -> dict[str, Floats]:
        return {name: column[rows] for name, column in self.columns.items()}


@dataclass(frozen=True, eq=False)
class FittedInput:
    """The map of one kind of input, and what is reported of it."""

    map: InputMap
    promise: Promise | None
    report: dict[str, Any]


def split(labels: Floats, wanted: MapRequest) -> Bools:
    """Which queries make the map: half of either label; all of them where half are too few for folds."""
    half = calibration.folds(labels, _SPLIT, seed=wanted.seed) == 0
    return np.ones(len(labels), np.bool_) if calibration.why_not(labels[half], wanted.folds) else half


def fit_inputs(judged: JudgedQueries, wanted: MapRequest) -> dict[str, FittedInput]:
    """A map for each kind of input whose predictors are all there."""
    kinds = [kind for kind in INPUTS if set(predictors.PREDICTORS[kind]) <= set(judged.columns)]
    return {kind: fit_input(kind, judged, wanted) for kind in kinds}


def fit_input(kind: str, judged: JudgedQueries, wanted: MapRequest, *, quality: bool = True) -> FittedInput:
    """The map of one kind of input; without `quality`, what it is worth is not measured."""
    options = tuple(
        option
        for option in selection.candidates(predictors.names_for(kind), wanted.k)
        if all(np.isfinite(judged.columns[name]).all() for name in option.features)
    )
    made, labels = judged.take(judged.makes), judged.labels[judged.makes]
    choice = selection.choose(made, labels, options, folds=wanted.folds, seed=wanted.seed)
    features = choice.candidate.features
    inputs = predictors.matrix(made, features)
    fold = calibration.folds(labels, wanted.folds, seed=wanted.seed)
    unseen = calibration.out_of_fold(
        lambda x, y: calibration.fit_logistic(x, y, ridge=choice.candidate.ridge), inputs, labels, fold
    )
    fitted = InputMap(
        features,
        choice.candidate.fit(made, labels),
        calibration.fit_isotonic(unseen, labels),
        DecisionThresholds("probability", None, EVEN, ""),
    )
    learned = fitted.isotonic(unseen) if wanted.method == "isotonic" else unseen
    given = None if judged.makes.all() else _promise(fitted, (learned, labels), judged, wanted)
    trade = _second_stage(kind, fitted, learned, given, judged, wanted)
    limits = _thresholds(given, judged, wanted, trade)
    return FittedInput(
        replace(fitted, thresholds=limits),
        given,
        {
            **(_quality(judged, options, wanted) if quality else {}),
            "chosen": _about(choice.candidate),
            "promise": _with_sentence(given),
            "rerank": _with_sentence(trade),
        },
    )


def _unless_flagged(scores: Floats, judged: JudgedQueries, rows: Bools) -> Floats:
    return np.where(judged.flagged[rows], -np.inf, scores) if len(judged.flagged) else scores


def _promise(fitted: InputMap, learned: tuple[Floats, Floats], judged: JudgedQueries, wanted: MapRequest) -> Promise:
    tests = ~judged.makes
    scores = _unless_flagged(fitted(judged.take(tests), wanted.method), judged, tests)
    return promise(learned, (scores, judged.labels[tests]), error=wanted.error, confidence=wanted.confidence)


def _second_stage(
    kind: str, fitted: InputMap, learned: Floats, given: Promise | None, judged: JudgedQueries, wanted: MapRequest
) -> SecondStage | None:
    """Whether a reranker is worth its calls after this map; None where there is no reranker, where its scores are
    already read, or where too little is judged to test it."""
    if judged.stages is None or given is None or kind == "reranker":
        return None
    halves = []
    for rows, scores in ((judged.makes, learned), (~judged.makes, fitted(judged.take(~judged.makes), wanted.method))):
        before, after = (values[rows] for values in judged.stages)
        halves.append(StagedQueries(_unless_flagged(scores, judged, rows), before, after))
    return second_stage(halves[0], halves[1], answer=given.threshold, seed=wanted.seed)


def _thresholds(
    given: Promise | None, judged: JudgedQueries, wanted: MapRequest, trade: SecondStage | None
) -> DecisionThresholds:
    if given is None:
        right = int(judged.labels.sum())
        why = (
            f"{right} of {len(judged.labels)} judged queries succeed: too few to make a map and to test it, so nothing "
            "is promised and nothing is answered"
        )
        return DecisionThresholds("probability", None, EVEN, why)
    answer = given.threshold
    why = f"{given.sentence} Below {EVEN} a failure is likelier than not."
    low = EVEN if answer is None else min(EVEN, answer)
    return DecisionThresholds("probability", answer, low, why, trade.threshold if trade else None)


def _with_sentence(facts: Promise | SecondStage | None) -> dict[str, Any] | None:
    return {**asdict(facts), "sentence": facts.sentence} if facts else None


def _about(candidate: Candidate) -> dict[str, Any]:
    return {"about": candidate.about, "features": list(candidate.features), "single": candidate.single}


def _quality(judged: JudgedQueries, options: tuple[Candidate, ...], wanted: MapRequest) -> dict[str, Any]:
    """The map, chosen and fitted anew in every fold, against the top cosine on the same resamples."""
    fold = calibration.folds(judged.labels, wanted.folds, seed=wanted.seed)
    p, choices = selection.out_of_fold(judged.columns, judged.labels, options, fold, seed=wanted.seed)
    statistics = [probabilities.auroc_statistic(x, judged.labels) for x in (p, judged.columns["top_score"])]
    n = len(judged.labels)
    values = [once(statistic, n) for statistic in statistics]
    drawn = bootstrap.distribution(statistics, n, resamples=assessment.RESAMPLES, seed=wanted.seed)
    auroc, gain = (
        IntervalEstimate(value, bootstrap.percentile_interval(row, confidence=0.95))
        for value, row in ((values[0], drawn[0]), (values[0] - values[1], drawn[0] - drawn[1]))
    )
    chosen = Counter(choice.candidate.about for choice in choices)
    return {
        "auroc": vars(auroc),
        "gain": vars(gain),
        "nauc": abstention.nauc(p, judged.labels),
        "chosen_in_folds": dict(chosen.most_common()),
        "sentence": assessment.against("The map", gain),
    }


def survey(columns: Columns, labels: Floats, *, seed: int) -> list[dict[str, Any]]:
    """Every predictor alone: AUROC with its interval, and nAUC; in the order of the kinds of input."""
    names = [name for kind in INPUTS for name in predictors.PREDICTORS[kind] if name in columns]
    needs = {name: kind for kind in INPUTS for name in predictors.PREDICTORS[kind]}
    statistics = [probabilities.auroc_statistic(columns[name], labels) for name in names]
    drawn = bootstrap.distribution(statistics, len(labels), resamples=assessment.RESAMPLES, seed=seed)
    return [
        {
            "name": name,
            "input": needs[name],
            "auroc": {
                "value": once(statistic, len(labels)),
                "interval": bootstrap.percentile_interval(row, confidence=0.95),
            },
            "nauc": abstention.nauc(columns[name], labels),
        }
        for name, statistic, row in zip(names, statistics, drawn, strict=True)
    ]


def report(fitted: Mapping[str, FittedInput]) -> dict[str, Any]:
    return {kind: one.report for kind, one in fitted.items()}
