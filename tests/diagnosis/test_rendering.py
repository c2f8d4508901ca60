"""The report of a diagnosis: words first, text from data escaped, and one file that needs nothing else."""

from __future__ import annotations

import html
import io
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from calipers.core.choices import CODECS
from calipers.core.datasets import DataSource
from calipers.diagnosis import api, findings, pictures
from calipers.diagnosis import html as diagnosis_html
from calipers.diagnosis import text as diagnosis_text
from calipers.diagnosis.options import DiagnosisOptions
from calipers.diagnosis.records import Diagnosis
from calipers.rendering import charts, document
from calipers.runs.embedding import CorpusInputs
from calipers.runs.store import Store
from tests.support.diagnoses import Letters
from tests.support.samples import write_jsonl

HOSTILE = "<script>alert('é')</script>\x1b[2J"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("tiny")
    words = ["apple", "banana", "cherry", "date", "elder", "fig", "grape", HOSTILE, "iris", "juniper", "kale", "lemon"]
    write_jsonl(folder / "corpus.jsonl", [{"_id": f"d{i}", "text": f"{w} {w[::-1]}x"} for i, w in enumerate(words)])
    write_jsonl(folder / "queries.jsonl", [{"_id": f"q{i}", "text": w} for i, w in enumerate(words)])
    graded = [f"q{i}\td{i}\t2\nq{i}\td{(i + 1) % len(words)}\t1" for i in range(len(words) - 1)]
    (folder / "qrels.tsv").write_text("\n".join([*graded, "q11\td3\t1"]) + "\n")
    names = {"corpus": "corpus.jsonl", "queries": "queries.jsonl", "qrels": "qrels.tsv"}
    return {key: str(folder / name) for key, name in names.items()}


@pytest.fixture(scope="module")
def diagnosis(files: dict[str, str]) -> Diagnosis:
    options = DiagnosisOptions(layers=("geometry", "retrieval"), layer_options={"k": 3})
    return api.diagnose(Letters(), CorpusInputs(**files), baseline=Letters(), options=options)


def text_of(diagnosis: Diagnosis, **settings: Any) -> str:
    out = io.StringIO()
    diagnosis_text.show_diagnosis(Console(file=out, **settings), diagnosis)
    return out.getvalue()


def test_the_page_needs_nothing_from_outside(diagnosis: Diagnosis) -> None:
    page = diagnosis_html.page(diagnosis)
    assert not re.search(r"<script|<link|<img|<iframe|@import|url\(|https?://", page)
    assert "Content-Security-Policy" in page
    assert page.count("<svg") >= 3


def test_text_from_data_is_escaped(diagnosis: Diagnosis) -> None:
    page = diagnosis_html.page(diagnosis)
    assert "alert(" in page  # it is shown
    assert "&lt;script&gt;" in page
    assert "\x1b" not in page + text_of(diagnosis) + text_of(diagnosis, force_terminal=False, width=80)


def test_every_figure_is_in_the_page_and_in_the_text(diagnosis: Diagnosis) -> None:
    page, told = diagnosis_html.page(diagnosis), text_of(diagnosis)
    for finding in diagnosis.findings:
        for figure in findings.figures_of(finding):
            assert f"<code>{figure.name}</code>" in page
            assert figure.name in told


def test_a_terminal_gets_panels_that_fit(diagnosis: Diagnosis) -> None:
    told = text_of(diagnosis, force_terminal=True, width=140, color_system=None)
    assert "╭" in told
    assert max(len(line) for line in told.splitlines()) <= 140


def test_findings_in_words_come_first(diagnosis: Diagnosis) -> None:
    page = diagnosis_html.page(diagnosis)
    lines = findings.headlines(diagnosis)
    starts = [line.sentence.split()[0].rstrip(":") for line in lines]
    assert starts[0] == "ndcg@3"
    assert 0 < starts.index("PASS") <= 3
    assert page.index("In short") < page.index("nothing relevant") < page.index('id="geometry"')


def test_the_json_has_the_keys_of_the_contract(diagnosis: Diagnosis) -> None:
    content = findings.document(diagnosis)
    assert "NaN" not in document.to_json(content)
    assert content["label"] == "PASS"
    layer = content["layers"]["retrieval"]
    assert {"metrics", "intervals", "warnings", "examples", "figures", "comparisons"} <= set(layer)
    assert {"figure", "id", "text", "value", "note"} == set(layer["examples"][0])
    assert set(layer["metrics"]) == set(layer["intervals"]) == {f["name"] for f in layer["figures"]}


def test_a_layer_that_cannot_run_is_left_out_with_its_reason(files: dict[str, str]) -> None:
    found = api.diagnose(Letters(), CorpusInputs(corpus=files["corpus"]))
    reasons = {finding.layer: finding.reason for finding in found.findings}
    assert reasons["geometry"] is None
    assert "`queries`" in (reasons["retrieval"] or "")
    assert "left out" in text_of(found)
    assert "Left out" in diagnosis_html.page(found)


def test_a_layer_whose_options_do_not_fit_is_left_out_too(files: dict[str, str]) -> None:
    found = api.diagnose(Letters(), CorpusInputs(**files), options=DiagnosisOptions(layer_options={"k": 1}))
    reasons = {finding.layer: finding.reason for finding in found.findings}
    assert reasons["retrieval"] is None
    assert "`k` must be at least 2" in (reasons["certainty"] or "")


def test_stored_layers_are_shown_and_compared_like_other_runs(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from calipers import cli

    store = Store(tmp_path)
    for _ in range(2):
        options = DiagnosisOptions(layers=("retrieval",))
        api.diagnose(Letters(), CorpusInputs(**files), options=options, store=store)
    first, second = store.list()
    assert first.task == "diagnose/retrieval"
    assert cli.run(["runs", "show", first.run_id, "--store", str(tmp_path)]) == 0
    assert "ndcg@10" in capsys.readouterr().out
    assert cli.run(["compare", second.run_id, first.run_id, "--store", str(tmp_path)]) == 0
    assert "PASS" in capsys.readouterr().out


def test_charts_without_data_are_empty_and_names_are_escaped() -> None:
    assert charts.histogram([], [], title="t", across="x", up="y") == ""
    assert charts.curve([(10, 2.0, 0.1)], title="t", across="x", up="y") == ""
    assert charts.bars([charts.Bar("a", float("nan"))], title="t", across="x") == ""
    drawn = charts.bars([charts.Bar("<b>", 0.5, (0.4, 0.6), other=0.3)], title='"t"', across="&")
    assert "<b>" not in drawn
    assert "&lt;b&gt;" in drawn
    assert 'aria-label="&quot;t&quot;"' in drawn


def test_a_reliability_curve_has_its_diagonal_and_a_whisker_for_each_point() -> None:
    drawn = charts.square(
        [(0.2, 0.3, 0.1, 0.5), (0.8, 0.7, 0.5, 0.9), (0.9, 0.8, float("nan"), float("nan"))],
        title="<b>",
        across="stated",
        up="true",
        diagonal=True,
    )
    assert "&lt;b&gt;" in drawn
    assert (drawn.count('class="ideal"'), drawn.count('class="thin"'), drawn.count("<circle")) == (1, 2, 2)
    assert charts.square([(0.5, 0.5, 0.4, 0.6)], title="one point", across="", up="") == ""


def test_a_graph_has_a_line_for_every_edge_and_escapes_names() -> None:
    drawn = charts.graph("<a>", [("b&c", 0.9), ("d", 0.5), ("e", -0.2)], {(0, 1): 0.7, (0, 2): 0.1, (1, 2): -0.5})
    assert (drawn.count('class="link"'), drawn.count('class="spoke"'), drawn.count("<circle")) == (3, 3, 4)
    assert drawn.count('stroke-opacity="0.00"') == 2  # cosines below 0
    assert "&lt;a&gt;" in drawn
    assert "b&amp;c" in drawn
    assert charts.graph("a", [], {}) == ""


def test_certainty_and_knowledge_are_drawn(data: Any, model: Any, tmp_path: Path) -> None:
    from tests.support.diagnoses import cut

    inputs = CorpusInputs(dataset=str(cut(data("scifact"), tmp_path)))
    options = DiagnosisOptions(layers=("certainty", "knowledge"))
    found = api.diagnose(str(model("potion-base-4m-int8")), inputs, options=options)
    page = diagnosis_html.page(found)
    for title in ("Reliability curve", "Risk and coverage", "Stability against coherence", "The neighbourhood of "):
        assert f"<title>{title}" in page
    assert page.count("<title>The neighbourhood of ") == 4
    certainty = next(f for f in found.findings if f.layer == "certainty")
    assert certainty.result is not None
    kept = certainty.result.outcomes.counts["map_neighbours_kept"]
    assert f"It keeps {kept:.1%} of the ten nearest neighbours" in page
    queries = certainty.result.outcomes.counts["queries"]
    judged = certainty.result.outcomes.columns["success"]
    fails = int((judged == 0).sum())
    assert f"fail ({fails})" in next(c.svg for c in pictures.draw(certainty) if "worth something" in c.caption)
    assert queries == len(judged)
    bars = next(c.svg for c in pictures.draw(certainty) if c.caption.startswith("What a codec leaves"))
    for name in CODECS:
        value = certainty.result.metrics[f"stability/{name}"]
        assert f">{name}<" in bars
        assert f">{value:.3f}<" in bars
    chosen = certainty.result.metrics["stability"]
    assert chosen == pytest.approx(certainty.result.metrics["stability/int8"], abs=1e-12)


def test_what_does_not_warn_is_folded_and_contents_lead_to_every_section(diagnosis: Diagnosis) -> None:
    page = diagnosis_html.page(diagnosis)
    contents = page[page.index('class="card contents"') : page.index("</nav>")]
    for finding in diagnosis.findings:
        assert f'href="#{finding.layer}"' in contents
        assert f'id="{finding.layer}"' in page
        section = page[page.index(f'id="{finding.layer}"') :]
        shown = section[: section.index("which do not warn")]
        for figure in findings.figures_of(finding):
            assert (f"<code>{figure.name}</code>" in shown) or not figure.warning
    assert "<code>ndcg@3</code>" in page[page.index('id="retrieval"') :].partition("which do not warn")[0]


def test_hubs_and_alignment_are_drawn_as_the_tables_have_them(diagnosis: Diagnosis) -> None:
    geometry = diagnosis.findings[0]
    hubs = findings.examples_of(geometry)["hubness_skewness"]
    drawn = next(c.svg for c in pictures.draw(geometry) if "largest hub" in c.caption)
    for place, hub in enumerate(hubs[:5], 1):
        assert f">{place} {hub.text} ({hub.value:g})<" in drawn
    assert drawn.count("<polyline") == 2  # this model and the baseline
    both = next(c.svg for c in pictures.draw(geometry) if c.caption.startswith("Lower"))
    assert "this model (1)" in both
    assert "baseline (1)" in both
    for name in ("all at one point", "random directions", "mean removed"):
        assert f">{name}<" in both


def test_the_cone_and_the_curve_have_the_figures_of_the_table(diagnosis: Diagnosis) -> None:
    geometry = diagnosis.findings[0]
    values = {figure.name: figure for figure in findings.figures_of(geometry)}
    drawn = {chart.caption.split()[0]: chart.svg for chart in pictures.draw(geometry) if chart.svg}
    assert f">anisotropy {findings.value_of(values['anisotropy'])}<" in drawn["Cosines"]
    assert geometry.result is not None
    cone = geometry.result.outcomes.details["cone"]
    mean = float((cone["random"] * (cone["low"] + 0.025)).sum() / cone["random"].sum())
    assert mean == pytest.approx(values["anisotropy"].value or 0.0, abs=0.03)
    aligned = next(c.caption for c in pictures.draw(geometry) if c.caption.startswith("Lower"))
    assert f"this model {values['uniformity'].value:.3f} and {values['alignment'].value:.3f}" in aligned


def test_a_scatter_has_every_point_the_lines_among_them_and_escaped_names() -> None:
    drawn = charts.scatter(
        {"<good>": [(0.1, 0.2), (0.9, 0.8), (float("nan"), 0.5)], "bad": [(0.5, 0.5)]},
        title="t",
        across="x",
        up="y",
        lines=[("same", [(0.2, 0.2), (0.8, 0.8)]), ("outside", [(5, 5), (6, 6)])],
    )
    assert drawn.count("<circle") == 3 + 2  # the points, and one for each name
    assert "&lt;good&gt; (2)" in drawn
    assert (drawn.count('class="contour"'), "same" in drawn, "outside" in drawn) == (1, True, False)
    assert charts.scatter({"one": [(0.5, 0.5)]}, title="t", across="x", up="y") == ""


def test_names_of_marks_do_not_stand_on_each_other_and_empty_kinds_have_no_legend() -> None:
    marks = [("random directions", 0.0, 2.0), ("mean removed", 0.1, 1.95), ("one point", 1.0, 0.0)]
    series = {"here": [(0.5, 0.5), (1.0, 0.0)], "nowhere": [(float("nan"), 1.0)]}
    drawn = charts.scatter(series, title="t", across="x", up="y", marks=marks, ends=((0, 1), (0, 2)))
    rows = {name: float(y) for y, name in re.findall(r'class="strong"[^>]* y="([\d.]+)"[^>]*>([^<]+)<', drawn)}
    assert abs(rows["random directions"] - rows["mean removed"]) >= 12
    assert "nowhere" not in drawn


def test_lines_share_a_frame_and_notes_are_escaped() -> None:
    lines = [charts.Stroke("a<b", [(1, 10), (5, 2)]), charts.Stroke("base", [(1, 8), (9, 1)], "line base")]
    drawn = charts.strokes(lines, title="t", across="x", up="y", log=True, names=[(1, 10, "1")], notes=["1 <hub>"])
    assert drawn.count("<polyline") == 2
    assert "a&lt;b" in drawn
    assert "1 &lt;hub&gt;" in drawn
    assert charts.strokes([charts.Stroke("one", [(1, 1)])], title="t", across="x", up="y") == ""


def test_pictures_show_the_numbers_of_the_tables(model: Any, tmp_path: Path) -> None:
    """On a small shop: every pair is a point, and failure rates stand beside their limits."""
    from calipers.shop import sample

    folder = sample.write(tmp_path / "shop")
    inputs = CorpusInputs(dataset=str(folder), source=DataSource(path="", requested=5))
    options = DiagnosisOptions(layers=("attributes", "semantic_gap"))
    made = api.diagnose(str(model("potion-base-4m-int8")), inputs, options=options)
    page = diagnosis_html.page(made)
    gap = next(f for f in made.findings if f.layer == "semantic_gap").result
    assert gap is not None
    pairs = gap.outcomes.details["pairs"]
    relevant = int((pairs["grade"] >= 1).sum())
    drawn = relevant if relevant <= 600 else len(range(0, relevant, -(-relevant // 600)))
    assert f"relevant ({drawn:,})" in page
    rates = next(f for f in made.findings if f.layer == "attributes")
    bars = next(chart for chart in pictures.draw(rates) if "contradict" in chart.caption)
    values = {figure.name: figure.value for figure in findings.figures_of(rates)}
    limits = [v for name, v in values.items() if name.endswith(("failure_floor", "failure_random")) and v is not None]
    assert bars.svg.count('class="thin"') == len(limits)
    for figure in findings.figures_of(rates):
        assert not figure.name.endswith("explicit_failure_rate") or f">{figure.value:.3f}<" in bars.svg
    quarters = gap.outcomes.details["quadrants"]
    assert quarters["pairs"].sum() == len(pairs["gap"])
    for name, count in zip(quarters["name"], quarters["pairs"], strict=True):
        assert f" {name}: {count:,} pairs, as “" in html.unescape(page)


def test_a_diagnosis_shows_itself_in_notebooks_and_as_a_document(diagnosis: Diagnosis) -> None:
    assert repr(diagnosis).startswith("Diagnosis(letters against letters on ")
    assert "<td>ndcg@3</td>" in diagnosis._repr_html_()
    assert diagnosis.to_dict()["layers"]["retrieval"]["metrics"].keys() >= {"ndcg@3"}
