"""Headlines of a diagnosis: what a search team decides by first, then one warning a cause, on one base of counts."""

from __future__ import annotations

import re
from io import StringIO

import numpy as np
import pytest
from rich.console import Console

from calipers.core import Figure, Outcomes
from calipers.core.datasets import DataSource
from calipers.core.figures import figure_tables
from calipers.diagnosis import findings
from calipers.diagnosis import html as diagnosis_html
from calipers.diagnosis.layer import kinds_of
from calipers.diagnosis.layers import LAYERS
from calipers.diagnosis.records import Diagnosis, Finding
from calipers.diagnosis.text import show_diagnosis
from tests.support.verdicts import result

RETRIEVAL = kinds_of("retrieval", k=10, deep=100)
GEOMETRY, ATTRIBUTES = (kinds_of(name) for name in ("geometry", "attributes"))
BRIER = Figure(
    "brier",
    0.2,
    47,
    "query",
    False,
    "It means.",
    level="at or above 0.19",
    warning="brier is 0.200, at or above 0.19: the score says no more than how often queries succeed",
)


def finding(layer: str, *figures: Figure, **counts: float) -> Finding:
    outcomes = Outcomes(("q0",), {"x": np.zeros(1)}, details=figure_tables(figures, []), counts=counts)
    return Finding(layer, f"about {layer}", result("model", task=f"diagnose/{layer}", metrics={}, outcomes=outcomes))


def diagnosis(*several: Finding) -> Diagnosis:
    info = several[0].result
    assert info is not None
    return Diagnosis(info.model, None, DataSource("shop"), "sha256:0", {}, several, "2026-01-01T00:00:00")


def searched(zero: float = 20 / 47) -> Finding:
    return finding(
        "retrieval",
        RETRIEVAL["ndcg@10"].figure(0.4638, 54, interval=(0.4, 0.53)),
        RETRIEVAL["zero_recall"].figure(zero, 47),
        RETRIEVAL["zero_recall@100"].figure(2 / 47, 47),
        RETRIEVAL["queries_without_direction"].figure(3 / 54, 54),
        queries_without_relevant=7,
    )


WHOLE = diagnosis(
    finding(
        "geometry",
        GEOMETRY["word_order_sensitivity"].figure(0.0, 500),
        GEOMETRY["fragmentation"].figure(2.7, 500),
        GEOMETRY["unknown_words"].figure(0.16, 500),
    ),
    searched(),
    finding(
        "attributes",
        ATTRIBUTES["colour_explicit_failure_rate"].figure(0.77, 47, warning="colour_explicit is 0.77: they contradict"),
        ATTRIBUTES["colour_global_failure_rate"].figure(0.45, 47, warning="colour_global is 0.45: many contradict"),
        ATTRIBUTES["brand_explicit_failure_rate"].figure(0.61, 40, warning="brand_explicit is 0.61: they contradict"),
    ),
    finding("certainty", BRIER),
)


def sentences(whole: Diagnosis) -> list[str]:
    return [line.sentence for line in findings.headlines(whole)]


def test_what_a_search_team_decides_by_comes_first() -> None:
    first = sentences(WHOLE)[:3]
    assert first[0].startswith("ndcg@10 is 0.4638 (interval 0.4000 – 0.5300, 54 queries): the first 10 results reach")
    assert first[0].endswith("7 queries without a relevant document count as 0.")
    assert first[1] == "20 of 47 queries (43 %) show nothing relevant among their first results."
    assert first[2] == "2 of 47 queries (4 %) have nothing relevant even among the first 100."


def test_a_share_that_is_not_quite_nothing_does_not_read_as_nothing() -> None:
    few = diagnosis(finding("retrieval", RETRIEVAL["zero_recall"].figure(0.004, 500)))
    assert sentences(few)[0].startswith("2 of 500 queries (0.4 %)")


def test_one_cause_is_one_warning() -> None:
    warnings = [line.sentence for line in findings.headlines(WHOLE) if line.tone == "warning"]
    assert [line for line in warnings if "colour" in line] == [
        "They contradict (colour_explicit is 0.77; colour_global is 0.45)."
    ]
    assert [line for line in warnings if "brand" in line] == ["They contradict (brand_explicit is 0.61)."]
    (vocabulary,) = [line for line in warnings if "unknown_words" in line]
    assert vocabulary.startswith("The vocabulary cannot write some words of the corpus, and their unknown parts never")
    assert "(unknown_words is 0.1600, above" in vocabulary
    assert "fragmentation is 2.70" in vocabulary
    assert "queries_without_direction" in vocabulary
    assert len(warnings) == 4  # with word order


def test_a_warning_about_our_own_score_is_in_its_section_only() -> None:
    assert not any("brier" in sentence for sentence in sentences(WHOLE))
    healthy = diagnosis(searched(0.1), finding("certainty", BRIER))
    assert not any("brier" in sentence for sentence in sentences(healthy))
    out = StringIO()
    show_diagnosis(Console(file=out, width=200), WHOLE)
    said = "The score says no more than how often queries succeed (brier is 0.200, at or above 0.19)."
    text, page = out.getvalue(), diagnosis_html.page(WHOLE)
    assert text.index("about certainty") < text.index(said)
    assert page.index('id="certainty"') < page.index("The score says no more than how often queries succeed (brier")


def test_a_figure_that_decides_warns_in_its_own_line() -> None:
    lines = findings.headlines(diagnosis(searched(0.6)))
    (line,) = [line for line in lines if "among their first results" in line.sentence]
    assert (line.tone, lines.index(line)) == ("warning", 1)
    assert line.sentence.endswith("It warns above 0.5.")
    assert sum("zero_recall" in line.sentence for line in lines) == 0


def test_without_judgements_the_first_line_says_what_is_unknown() -> None:
    unknown = finding("retrieval", RETRIEVAL["ndcg@10"].unknown("no query is judged"))
    assert sentences(diagnosis(unknown))[0] == "How good the search is, is unknown: no query is judged."


def test_nothing_past_its_level_is_said_of_the_layers_about_the_model() -> None:
    calm = diagnosis(finding("geometry", GEOMETRY["anisotropy"].figure(0.1, 9)), finding("certainty", BRIER))
    assert sentences(calm) == ["No figure of geometry is past its warning level."]


@pytest.mark.parametrize("pattern", findings.read_file()["causes"])
def test_every_cause_names_figures_that_exist(pattern: str) -> None:
    names = [metric.name for layer in LAYERS.values() for metric in layer.measures(layer.options())]
    for alternative in re.split(r"\|(?![^(]*\))", pattern):
        assert any(re.fullmatch(alternative, name) for name in names), alternative


def test_a_headline_names_what_it_is_about() -> None:
    """A warning stands among others as a headline: 'their', 'these' and 'the others' have nothing to refer to there."""
    layers = ("geometry", "knowledge", "attributes")
    for kind in [*RETRIEVAL.values(), *(kind for layer in layers for kind in kinds_of(layer).values())]:
        assert not re.match(r"(their|they|these|the others)\b|[^:]* of (them|these)\b", kind.advice), kind.name
