"""What a trust score is worth: R_q against the top cosine, and queries that it cannot speak about."""

from __future__ import annotations

import numpy as np
import pytest

from calipers.metrics import assessment
from calipers.metrics.trust import TrustParts


def made(reliability: np.ndarray, top: np.ndarray) -> TrustParts:
    noise = np.random.default_rng(5).random(len(top))
    return TrustParts(stability=noise, coherence=noise[::-1], reliability=reliability, top_score=top, margin=noise)


@pytest.mark.parametrize(
    ("informed", "word"), [("top", "worse than"), ("reliability", "better than"), ("both", "no better than")]
)
def test_the_report_says_whether_r_q_beats_the_top_cosine(informed: str, word: str) -> None:
    rng = np.random.default_rng(8)
    labels = (rng.random(200) < 0.6).astype(float)
    signal, noise = labels + 0.6 * rng.normal(size=200), rng.normal(size=200)
    reliability = noise if informed == "top" else signal
    top = noise if informed == "reliability" else signal
    found = assessment.assess(made(reliability, top), labels, resamples=300)
    assert f"R_q is {word} the top cosine alone" in found.sentences[0]


def test_the_gain_is_the_difference_of_the_two_aurocs() -> None:
    rng = np.random.default_rng(9)
    labels = (rng.random(90) < 0.5).astype(float)
    found = assessment.assess(made(rng.random(90), labels + rng.random(90)), labels, resamples=200)
    by = {quality.name: quality for quality in found.qualities}
    assert found.gain.value == pytest.approx(by["reliability"].auroc.value - by["top_score"].auroc.value)
    assert by["base_rate"].auroc.value == 0.5
    assert by["base_rate"].brier.value == pytest.approx(labels.mean() * (1 - labels.mean()), abs=0.01)


def test_queries_without_a_part_are_left_out_and_stay_unknown() -> None:
    rng = np.random.default_rng(9)
    labels = (rng.random(90) < 0.5).astype(float)
    reliability = rng.random(90)
    top = rng.random(90)
    top[4] = np.nan
    found = assessment.assess(made(reliability, top), labels, resamples=50)
    assert found.count == 89
    assert np.flatnonzero(np.isnan(found.probabilities["logistic"])).tolist() == [4]


def test_too_few_odd_queries_have_no_detector() -> None:
    few, many = made(np.ones(3), np.ones(3)), made(np.ones(50), np.ones(50))
    found = assessment.detect("vague", few, many)
    assert found.map is None
    assert "3 vague and 50 real queries" in str(found.reason)
