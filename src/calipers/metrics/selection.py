"""Which predictors a map reads: chosen on examples that are held out, one predictor where more are no better.

A candidate is a set of predictors with a ridge. Candidates are compared by their AUROC out of fold. The map of several
predictors is taken only where it beats the best single one; the choice is made anew inside every fold that measures
it, so that what is reported includes the choosing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calipers.metrics import calibration, predictors, probabilities
from calipers.metrics.arrays import Floats, Ints, once
from calipers.metrics.calibration import FOLDS, Logistic
from calipers.metrics.predictors import Columns

_RIDGE = 10.0  # of sets: measured on two models and two corpora, 3 and 30 differ by less than 0.01
_GAIN = 0.01  # in AUROC: less is the noise of choosing, and one predictor is easier to explain
_REPEATS = 2  # of the folds that compare candidates: one deal is too noisy with a hundred queries


@dataclass(frozen=True)
class Candidate:
    """A set of predictors and the ridge of their map. `about` names it in reports."""

    about: str
    features: tuple[str, ...]
    ridge: float = 1.0

    @property
    def single(self) -> bool:
        return len(self.features) == 1

    def fit(self, columns: Columns, labels: Floats) -> Logistic:
        return calibration.fit_logistic(predictors.matrix(columns, self.features), labels, ridge=self.ridge)


@dataclass(frozen=True)
class ChosenPredictors:
    """The chosen candidate, and the AUROC by which it and the best single predictor were compared."""

    candidate: Candidate
    auroc: float
    single: Candidate
    single_auroc: float


def candidates(names: Sequence[str], k: int) -> tuple[Candidate, ...]:
    """Every predictor alone, and sets of them: what each kind of input has, and all sorted scores."""
    kinds = {kind: tuple(name for name in group if name in names) for kind, group in predictors.PREDICTORS.items()}
    few = tuple(name for name in ("top_score", "margin", "bm25_overlap_10", "rerank_top") if name in names)
    classic = tuple(name for name in ("stability", "coherence", "top_score", "margin") if name in names)
    lexical = (*kinds["texts"], *("spread_top", "margin"), *kinds["reranker"]) if kinds["texts"] else ()
    sets = {
        "the scores' predictors": kinds["scores"],
        "stability, coherence, top score and margin": classic if len(classic) == 4 else (),
        "the sorted scores": predictors.sorted_names(k),
        "the strongest of each kind": few if len(few) > 2 else (),
        "BM25's predictors with spread and margin": lexical,
        "all predictors": tuple(names) if len(names) > len(kinds["scores"]) else (),
    }
    several = [Candidate(about, chosen, _RIDGE) for about, chosen in sets.items() if chosen]
    return (*(Candidate(name, (name,)) for name in names), *several)


def choose(
    columns: Columns, labels: Floats, options: Sequence[Candidate], *, folds: int, seed: int
) -> ChosenPredictors:
    """The candidate with the highest AUROC out of fold; the best single predictor where no set beats it."""
    scored = [(_held_out(columns, labels, option, folds, seed), option) for option in options]
    single_auroc, single = max((pair for pair in scored if pair[1].single), key=lambda pair: pair[0])
    auroc, best = max(scored, key=lambda pair: pair[0])
    return (
        ChosenPredictors(best, auroc, single, single_auroc)
        if auroc > single_auroc + _GAIN
        else ChosenPredictors(single, single_auroc, single, single_auroc)
    )


def out_of_fold(
    columns: Columns, labels: Floats, options: Sequence[Candidate], fold: Ints, *, seed: int
) -> tuple[Floats, list[ChosenPredictors]]:
    """The probability of each example by a map that was chosen and fitted on the other folds, and these choices."""
    values, choices = np.empty(len(labels)), []
    for number in np.unique(fold):
        held = fold == number
        rest = {name: column[~held] for name, column in columns.items()}
        choice = choose(rest, labels[~held], options, folds=FOLDS, seed=seed)
        mapped = choice.candidate.fit(rest, labels[~held])
        values[held] = mapped(predictors.matrix(columns, choice.candidate.features)[held])
        choices.append(choice)
    return values, choices


def _held_out(columns: Columns, labels: Floats, option: Candidate, folds: int, seed: int) -> float:
    """The mean AUROC over a few deals of folds; of a single predictor, whose map only chooses a side, its own."""
    inputs = predictors.matrix(columns, option.features)
    if option.single:
        plain = once(probabilities.auroc_statistic(inputs[:, 0], labels), len(labels))
        return max(plain, 1 - plain)
    values = []
    for repeat in range(_REPEATS):
        fold = calibration.folds(labels, folds, seed=seed + repeat)
        p = calibration.out_of_fold(
            lambda x, y: calibration.fit_logistic(x, y, ridge=option.ridge), inputs, labels, fold
        )
        values.append(once(probabilities.auroc_statistic(p, labels), len(labels)))
    return float(np.mean(values))
