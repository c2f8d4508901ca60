"""JUnit XML as Jenkins and the reporters of GitHub read it."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree as xml

import pytest

from calipers.comparison.junit import to_failed_junit, to_junit
from calipers.comparison.records import GateOptions, Verdict
from tests.support import verdicts as made

# The common schema (Jenkins xunit plugin): element → attributes that it must have, and those that it may have.
MUST: dict[str, set[str]] = {
    "testsuites": set(),
    "testsuite": {"name", "tests"},
    "properties": set(),
    "property": {"name", "value"},
    "testcase": {"name", "classname"},
    "failure": set(),
    "error": set(),
    "skipped": set(),
    "system-out": set(),
}
COUNTS = {"tests", "failures", "errors", "skipped"}
MAY = {
    "testsuites": {"name", "time", *COUNTS},
    "testsuite": {"id", "time", "timestamp", *COUNTS},
    "testcase": {"time"},
    "failure": {"message", "type"},
    "error": {"message", "type"},
    "skipped": {"message"},
}
INSIDE = {
    "testsuites": ["testsuite"],
    "testsuite": ["properties", "testcase", "system-out"],
    "properties": ["property"],
    "testcase": ["failure", "error", "skipped", "system-out"],
}


def check(text: str) -> xml.Element:
    """The root, after it has been held against the schema."""
    root = xml.fromstring(text)
    assert root.tag == "testsuites"
    for element in root.iter():
        assert set(element.keys()) >= MUST[element.tag]
        assert set(element.keys()) <= MUST[element.tag] | MAY.get(element.tag, set())
        order = [INSIDE.get(element.tag, []).index(child.tag) for child in element]
        assert order == sorted(order), f"children of {element.tag} in the order of the schema"
    for element in (root, *root):
        for count, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(element.get(count, "-1")) == sum(1 for _ in element.iter(tag))
        assert float(element.get("time", "-1")) >= 0
    for suite in root:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.get("timestamp", ""))
    return root


def outcomes(verdict: Verdict, fail_on: str = "regression") -> dict[str, str]:
    """Test case → what became of it."""
    root = check(to_junit([verdict], gate=GateOptions(fail_on)))
    return {
        case.get("name", ""): next((child.tag for child in case if child.tag != "system-out"), "passed")
        for case in root.iter("testcase")
    }


def test_a_suite_for_each_candidate_and_a_case_for_each_metric() -> None:
    root = check(to_junit([made.passing(), made.regression(), made.inconclusive(), made.invalid()]))
    assert [suite.get("tests") for suite in root] == ["3", "1", "1", "2"]
    assert (root.get("tests"), root.get("failures"), root.get("errors"), root.get("skipped")) == ("7", "2", "1", "1")


def test_a_regression_is_a_failure_with_its_numbers() -> None:
    root = check(to_junit([made.regression()]))
    (failure,) = root.iter("failure")
    assert failure.get("type") == "REGRESSION"
    assert failure.get("message") == "REGRESSION: cosine_spearman goes from 82.05 to 70.30 (-11.75, -14.3%)"
    numbers = root.findtext(".//testcase/system-out") or ""
    for line in (
        "baseline: 82.05",
        "95% interval: -13.20 to -10.10",
        "chances of PASS / AT_RISK / REGRESSION: 0 / 0.1 / 99.9 %",
        "passes below: 2 points",
    ):
        assert line in numbers.splitlines()


def test_inconclusive_is_an_error_unless_it_shall_fail() -> None:
    assert outcomes(made.inconclusive()) == {"cosine_spearman": "error"}
    assert outcomes(made.inconclusive(), "inconclusive") == {"cosine_spearman": "failure"}
    (error,) = check(to_junit([made.inconclusive()])).iter("error")
    assert "about 420 pairs would settle it" in error.get("message", "")


def test_at_risk_fails_only_if_asked() -> None:
    assert outcomes(made.perplexity())["word_pseudo_perplexity"] == "passed"
    assert outcomes(made.perplexity(), "at-risk") == {"word_pseudo_perplexity": "failure", "nll": "skipped"}


def test_a_metric_that_does_not_decide_cannot_fail() -> None:
    found = outcomes(made.perplexity("REGRESSION"))
    assert found == {"word_pseudo_perplexity": "failure", "nll": "skipped"}


def test_a_dead_candidate_fails_even_without_metrics() -> None:
    assert outcomes(made.invalid())["cosine_spearman"] == "failure"
    assert outcomes(replace(made.invalid(), comparisons=())) == {"verdict": "failure"}
    undecided = replace(made.invalid(), comparisons=(made.comparison("dot_spearman"),))
    assert outcomes(undecided) == {"dot_spearman": "passed", "verdict": "failure"}


@pytest.mark.parametrize("fail_on", ["regression", "at-risk", "inconclusive"])
@pytest.mark.parametrize(
    "verdict", [made.passing(), made.perplexity(), made.regression(), made.inconclusive(), made.invalid()]
)
def test_the_file_is_red_exactly_when_the_exit_code_is_not_0(verdict: Verdict, fail_on: str) -> None:
    red = bool({"failure", "error"} & set(outcomes(verdict, fail_on).values()))
    assert red == (GateOptions(fail_on).exit_code([verdict.label]) != 0)


@pytest.mark.parametrize("nasty", ["\x00\x0b\x1b[2J", "]]>", '<a b="c">&amp;', "\ud800", "\ufffe\uffff", "日本 🎉"])
def test_text_that_xml_cannot_hold_is_replaced(nasty: str) -> None:
    verdict = replace(made.invalid(), candidate_name=f"x{nasty}", reason=f"rows {nasty}", comparisons=())
    text = to_junit([verdict, made.passing(differences={"prompt": (None, nasty)})])
    root = check(text)
    text.encode("utf-8")
    assert "rows" in next(root.iter("failure")).get("message", "")
    for keep in ("]]>", '<a b="c">&amp;', "日本 🎉"):
        if nasty == keep:
            assert keep in root[0].get("name", "")


def class_names(*verdicts: Verdict) -> list[str]:
    return list(dict.fromkeys(case.get("classname", "") for case in check(to_junit(verdicts)).iter("testcase")))


def test_candidates_have_class_names_of_their_own() -> None:
    ours = [replace(made.regression(), candidate_name=name) for name in ("モデル", "模型", "enc.1", "enc_1")]
    assert len(set(class_names(*ours))) == 4
    assert class_names(ours[0]) == ["calipers.sentence-similarity.モデル"]
    twins = []
    for folder in ("b", "c"):
        verdict = replace(made.regression(), candidate_name="enc")
        assert verdict.candidate
        info = replace(verdict.candidate.model, model_id="enc", path=f"models/{folder}/enc")
        twins.append(replace(verdict, candidate=replace(verdict.candidate, model=info)))
    assert class_names(*twins) == ["calipers.sentence-similarity.b_enc", "calipers.sentence-similarity.c_enc"]
    assert class_names(*twins[::-1]) == class_names(*twins)[::-1]
    assert len(set(class_names(twins[0], twins[0]))) == 2


def test_a_comparison_without_a_verdict_is_an_error_for_each_candidate() -> None:
    root = check(to_failed_junit("x: there is no such model", ["./a", "./b"], "ModelError"))
    assert (root.get("tests"), root.get("errors")) == ("2", "2")
    assert {error.get("message") for error in root.iter("error")} == {"x: there is no such model"}
