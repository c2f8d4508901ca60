"""How verdicts show themselves: in a prompt, in a notebook and as a dictionary."""

from __future__ import annotations

from dataclasses import replace

import pytest

from calipers.comparison.records import VerdictOptions, worst_label
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
