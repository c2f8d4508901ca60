"""A diagnosis as one HTML file that needs nothing else: no script, no font and no picture from outside.

All text is escaped by the template; charts escape their own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calipers.comparison import wording
from calipers.comparison.records import Comparison
from calipers.core import Columns, Figure, Outcomes
from calipers.core.errors import printable_lines
from calipers.diagnosis import findings
from calipers.diagnosis import text as diagnosis_text
from calipers.diagnosis.records import Diagnosis, Finding
from calipers.rendering import charts, numbers


@dataclass(frozen=True)
class Chart:
    """A drawing with what it says in one sentence."""

    svg: str
    caption: str


def page(diagnosis: Diagnosis) -> str:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    content = environment.get_template("diagnosis.html.j2").render(
        diagnosis=diagnosis,
        label=findings.label_of(diagnosis),
        layers=[_layer(finding) for finding in diagnosis.findings],
        settings=_settings(diagnosis),
        findings=findings,
        numbers=numbers,
        text=diagnosis_text,
        wording=wording,
    )
    return printable_lines(content.rstrip("\n"))


def _settings(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    model = diagnosis.model
    rows = [("fingerprint of the model", model.fingerprint), ("fingerprint of the data", diagnosis.fingerprint)]
    rows += [(name, str(value)) for name, value in model.settings.items() if value not in (None, "", {})]
    runs = ", ".join(f"{f.layer} {f.result.run_id}" for f in diagnosis.findings if f.result)
    return [*rows, ("runs", runs)]


def _layer(finding: Finding) -> dict[str, Any]:
    return {
        "finding": finding,
        "verdict": finding.verdict if finding.decides else None,
        "compared": findings.comparisons_of(finding),
        "figures": [(figure, *findings.beside(finding, figure)) for figure in findings.figures_of(finding)],
        "charts": [chart for chart in draw(finding) if chart.svg],
        "examples": findings.examples_of(finding),
    }


# --- charts ------------------------------------------------------------------------------------------------------


def draw(finding: Finding) -> Iterator[Chart]:
    """The charts that a layer's outcomes allow, by the tables and columns that they hold."""
    if finding.result is None:
        return
    details, columns = finding.result.outcomes.details, finding.result.outcomes.columns
    before = finding.verdict.baseline.outcomes.columns if finding.verdict else {}
    for name in [n for n in columns if n.startswith("ndcg@")]:
        yield from _spread(name, columns, before)
    if "retrieval_counts" in details:
        yield _counts(details["retrieval_counts"])
    if "scale_curve" in details:
        yield _scale(details["scale_curve"])
    if "reliability_curve" in details:
        yield from _certainty(details)
    if "edges" in details:
        yield from _neighbourhoods(finding.result.outcomes)
    compared = findings.comparisons_of(finding)
    for pattern, nameless, title, across in _BARS:
        rows = [
            _bar(f, match[1] or nameless, compared.get(f.name))
            for f in findings.figures_of(finding)
            if f.value is not None and (match := pattern.fullmatch(f.name))
        ]
        marked = any(row.other is not None for row in rows)
        caption = f"{title}.{' The upright line is the baseline.' if marked else ''}"
        yield Chart(charts.bars(rows, title=title, across=across), caption)


# Charts of one bar a figure: which figures, its group the name of the bar; the bar of an empty name; the title; and
# what is measured.
_BARS = (
    (
        re.compile(r"jaccard@\d+/?(.*)"),
        "baseline",
        "How alike the first results stay under other settings",
        "overlap with exact search (Jaccard)",
    ),
    (
        re.compile(r"robustness/(.+)"),
        "",
        "How alike the first results stay when a query is written another way",
        "overlap (Jaccard)",
    ),
    (
        re.compile(r"(.*?)_?explicit_failure_rate"),
        "any of them",
        "How many results contradict what their query states",
        "share of their results",
    ),
)


def _bar(figure: Figure, name: str, compared: Comparison | None) -> charts.Bar:
    other = compared.baseline if compared else None
    return charts.Bar(name, float(figure.value or 0.0), figure.interval, other, bool(figure.warning))


def _spread(name: str, columns: Columns, before: Columns) -> Iterator[Chart]:
    for whose, values in (("", columns), ("the baseline's ", before)):
        if name in values:
            counts, labels = charts.bin_shares(values[name].tolist())
            title = f"{whose}{name} of each query"
            caption = f"{title[:1].upper()}{title[1:]}: a mean hides how many queries get nothing (left) or all."
            yield Chart(charts.histogram(counts, labels, title=title, across=name, up="queries"), caption)


def _counts(table: Columns) -> Chart:
    counts, labels = charts.bin_doublings(table["times"].tolist(), table["documents"].tolist())
    title, across = "How often documents are retrieved", "queries that retrieve it"
    svg = charts.histogram(counts, labels, title=title, across=across, up="documents", log=True)
    return Chart(svg, "How many documents are among the first results of how many queries; hubs are on the right.")


def _scale(table: Columns) -> Chart:
    points = _points(table, "size", "dimension", "standard_error")
    svg = charts.curve(points, title="Intrinsic dimension by size of sample", across="documents", up="dimension")
    caption = "The dimension among ever more documents: where the curve is level, the figure holds at any size."
    return Chart(svg, caption)


def _points(table: Columns, *names: str) -> list[Any]:
    return list(zip(*(table[name].tolist() for name in names), strict=True))


def _certainty(details: Mapping[str, Columns]) -> Iterator[Chart]:
    """What a calibrated score is worth: stated against true shares, and failures against how much is answered."""
    points = _points(details["reliability_curve"], "probability", "share", "low", "high")
    across, up = "probability that the score states", "share that succeed"
    svg = charts.square(points, title="Reliability curve", across=across, up=up, diagonal=True)
    yield Chart(svg, "Stated against true shares of success, out of fold: on the broken line the score is honest.")
    answered = [(*pair, math.nan, math.nan) for pair in _points(details["risk_coverage"], "coverage", "risk")]
    across, up = "share of queries answered, surest first", "failures among them"
    svg = charts.square(answered, title="Risk and coverage", across=across, up=up)
    yield Chart(svg, "How many of the answered queries fail when only the surest are answered: a low start is good.")


_NEIGHBOURHOODS = 2  # of the least coherent entities, and of the most coherent


def _neighbourhoods(outcomes: Outcomes) -> Iterator[Chart]:
    """The neighbourhood graphs of entities at both ends of coherence."""
    table, edges = outcomes.details["entities"], outcomes.details["edges"]
    finite = [i for i, value in enumerate(table["coherence"].tolist()) if math.isfinite(value)]
    ranked = sorted(finite, key=lambda i: float(table["coherence"][i]))
    for i in dict.fromkeys([*ranked[:_NEIGHBOURHOODS], *ranked[-_NEIGHBOURHOODS:]]):
        name = numbers.shorten(str(outcomes.texts["entity"][i]), 40)
        caption = f"{name}: coherence {table['coherence'][i]:.2f}, {table['level'][i]}. Its nearest documents; "
        yield Chart(_neighbourhood(name, i, edges), f"{caption}the closer two are, the stronger the line.")


def _neighbourhood(name: str, example: int, edges: Columns) -> str:
    mine = [n for n, one in enumerate(edges["example"].tolist()) if one == example]
    source, target, cosine = (edges[key] for key in ("source", "target", "cosine"))
    spokes = [n for n in mine if not source[n]]
    place = {str(target[n]): number for number, n in enumerate(spokes)}
    around = [(numbers.shorten(str(edges.get("text", target)[n]), 21), float(cosine[n])) for n in spokes]
    between = {(place[str(source[n])], place[str(target[n])]): float(cosine[n]) for n in mine if source[n]}
    return charts.graph(name, around, between)
