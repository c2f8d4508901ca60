"""How verdicts show themselves: in a prompt, in a notebook and as a dictionary."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calipers.comparison.records import Chances, GateOptions, VerdictOptions, worst_label
from calipers.core import RequestError, Thresholds
from calipers.rendering.document import to_json
from tests.support import verdicts as made


def test_a_verdict_fits_in_a_line() -> None:
    assert repr(made.passing()) == "Verdict(PASS: model_quint8 against all-MiniLM-L6-v2, cosine_spearman -0.14)"
    assert repr(made.comparison()) == "Comparison(cosine_spearman: PASS, 82.05 → 81.91 [-0.35 to +0.07])"
    assert repr(made.invalid()).startswith("Verdict(INVALID: broken against all-MiniLM-L6-v2")


def test_a_notebook_shows_a_table_in_which_data_stay_text() -> None:
    page = made.passing(made.NASTY)._repr_html_()
    assert page.count("<tr>") == 1 + len(made.passing().comparisons)
    assert page.count("<th>") == page.count("</th>") == 7
    assert "<td>-0.35 to +0.07</td>" in page
    assert "<script>" not in page


def test_a_dictionary_holds_what_json_can() -> None:
    verdict = made.passing()
    facts = verdict.to_dict()
    assert (facts["name"], facts["label"], len(facts["comparisons"])) == ("model_quint8", "PASS", 3)
    assert facts["comparisons"][0]["thresholds"] == {"pass": 2.0, "at_risk": 4.0, "relative": False}
    assert to_json(facts)


def test_the_worst_label_stands_for_all() -> None:
    assert worst_label(["PASS", "REGRESSION", "INCONCLUSIVE"]) == "REGRESSION"
    assert worst_label([]) == "INCONCLUSIVE"


def test_options_out_of_their_limits_are_refused() -> None:
    with pytest.raises(RequestError, match="`worst` must be at least 0, found -1"):
        VerdictOptions(worst=-1)


@pytest.mark.parametrize(
    ("relative", "delta", "expected"),
    [
        (-0.0496, -4.96, "-4.96%"),
        (-0.0504, -5.04, "-5.04%"),
        (-0.05, -5.0, "-5.0%"),
        (-0.0999996, -9.99996, "-9.99996%"),
    ],
)
def test_digits_are_shown_until_a_value_and_its_threshold_differ(relative: float, delta: float, expected: str) -> None:
    comparison = replace(made.comparison(), delta=delta, relative=relative, thresholds=Thresholds(0.05, 0.1))
    assert comparison.cells()[4] == comparison.relative_text == expected
    points = replace(comparison, thresholds=Thresholds(-delta + 0.0001, 20.0, relative=False))
    assert float(points.delta_text) == pytest.approx(delta, abs=5e-5)
    assert float(points.delta_text) > -points.thresholds.passes


@pytest.mark.parametrize("seed", range(40))
def test_chances_sum_to_100_as_shown_and_look_no_more_certain_than_they_are(seed: int) -> None:
    rng = np.random.default_rng(seed)
    passes, at_risk, regression = rng.dirichlet([0.3, 0.3, 0.3])
    shown = [float(part) for part in str(Chances(passes, at_risk, regression)).removesuffix(" %").split(" / ")]
    assert sum(shown) == pytest.approx(100, abs=1e-9)
    for share, percent in ((regression, shown[2]), (at_risk + regression, shown[1] + shown[2])):
        assert abs(percent - 50) <= abs(100 * share - 50) + 1e-6
        assert abs(percent - 100 * share) < 0.1 + 1e-6


@pytest.mark.parametrize(
    ("fail_on", "labels", "words"),
    [
        ("inconclusive", ["PASS", "INCONCLUSIVE"], "Exit code 1: the verdict is INCONCLUSIVE"),
        ("at-risk", ["AT_RISK"], "Exit code 1: the verdict is AT_RISK"),
        ("regression", ["INCONCLUSIVE", "AT_RISK"], "Exit code 5"),
        ("regression", ["AT_RISK"], None),
        ("inconclusive", ["INCONCLUSIVE", "REGRESSION"], None),
    ],
)
def test_an_exit_code_that_the_labels_do_not_explain_is_explained(
    fail_on: str, labels: list[str], words: str | None
) -> None:
    explained = GateOptions(fail_on).explain(labels)
    assert explained is None if words is None else explained is not None and explained.startswith(words)
