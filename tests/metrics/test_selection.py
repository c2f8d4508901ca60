"""Which predictors a map reads."""

from __future__ import annotations

import numpy as np

from calipers.metrics import calibration, predictors, probabilities, selection

RNG = np.random.default_rng(8)
N = 200
SIGNAL = RNG.normal(size=(2, N))
LABELS = (RNG.random(N) < calibration.sigmoid(1.5 * SIGNAL.sum(axis=0))).astype(float)
NAMES = predictors.names_for("texts")


def noise(seed: int = 9, **others: np.ndarray) -> dict[str, np.ndarray]:
    drawn = np.random.default_rng(seed)
    columns = {name: drawn.normal(size=N) for name in (*NAMES, *predictors.sorted_names(10))}
    return {**columns, **others}


def test_one_predictor_is_taken_where_more_are_no_better() -> None:
    columns = noise(margin=SIGNAL.sum(axis=0))
    choice = selection.choose(columns, LABELS, selection.candidates(NAMES, 10), folds=5, seed=1)
    assert choice.candidate.features == ("margin",)


def test_several_are_taken_where_they_are_better() -> None:
    columns = noise(margin=SIGNAL[0], bm25_top=SIGNAL[1])
    choice = selection.choose(columns, LABELS, selection.candidates(NAMES, 10), folds=5, seed=1)
    assert {"margin", "bm25_top"} <= set(choice.candidate.features)
    assert choice.auroc > choice.single_auroc


def test_choosing_among_noise_is_not_rewarded_out_of_fold() -> None:
    """The best of many predictors without a relation looks good on the data that chose it, and is not."""
    options, fold = selection.candidates(NAMES, 10), calibration.folds(LABELS, 5, seed=1)
    inside, outside = [], []
    for seed in range(6):
        columns = noise(seed)
        inside.append(selection.choose(columns, LABELS, options, folds=5, seed=1).auroc)
        p, _ = selection.out_of_fold(columns, LABELS, options, fold, seed=1)
        outside.append(probabilities.auroc_statistic(p, LABELS)(np.ones((N, 1)))[0])
    assert np.mean(inside) > 0.55
    assert np.mean(outside) < 0.55


def test_scores_alone_offer_no_predictor_of_vectors() -> None:
    features = {name for option in selection.candidates(predictors.names_for("scores"), 10) for name in option.features}
    assert features == {*predictors.names_for("scores"), *predictors.sorted_names(10)}
