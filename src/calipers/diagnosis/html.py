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

import numpy as np

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
    compared = findings.comparisons_of(finding)
    figures = [(figure, *findings.beside(finding, figure)) for figure in findings.figures_of(finding)]
    shown = [row for number, row in enumerate(figures) if not number or _stands_out(row[0], compared.get(row[0].name))]
    return {
        "finding": finding,
        "verdict": finding.verdict if finding.decides else None,
        "compared": compared,
        "shown": shown,
        "folded": [row for row in figures if row not in shown],
        "warnings": sum(bool(figure.warning) for figure, *_ in figures),
        "charts": [chart for chart in draw(finding) if chart.svg],
        "examples": findings.examples_of(finding),
    }


def _stands_out(figure: Figure, comparison: Comparison | None) -> bool:
    """Whether a figure is shown without a click: it warns, decides, or is a loss that is past what passes."""
    return bool(figure.warning) or findings.shown_label(figure, comparison) != numbers.NONE


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
    yield _hubs(finding)
    yield _aligned(finding)
    if "scale_curve" in details:
        yield _scale(details["scale_curve"])
    if "word_order_sensitivity" in columns:
        yield _word_order(columns["word_order_sensitivity"].tolist())
    if "pairs" in details and "overlap" in details["pairs"]:
        yield _overlaps(details["pairs"])
    if "stability" in columns and "coherence" in columns:
        yield _trusted(columns)
    if "reliability_curve" in details:
        yield from _certainty(details)
    if "edges" in details:
        yield from _neighbourhoods(finding.result.outcomes)
    compared = findings.comparisons_of(finding)
    for pattern, nameless, title, across in _BARS:
        values = {f.name: f.value for f in findings.figures_of(finding)}
        rows = [
            _bar(f, match[1] or nameless, compared.get(f.name), values)
            for f in findings.figures_of(finding)
            if f.value is not None and (match := pattern.fullmatch(f.name))
        ]
        marked = any(row.other is not None for row in rows)
        caption = f"{title}.{' The upright line is the baseline.' if marked else ''}"
        if any(row.limits for row in rows):
            caption += " The thin lines are the best possible and random products of the requested type."
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


def _bar(figure: Figure, name: str, compared: Comparison | None, values: Mapping[str, float | None]) -> charts.Bar:
    other = compared.baseline if compared else None
    part = figure.name.removesuffix("explicit_failure_rate")
    limits = [values.get(f"{part}{limit}") for limit in ("failure_floor", "failure_random")]
    shown = tuple(limit for limit in limits if limit is not None)
    return charts.Bar(name, float(figure.value or 0.0), figure.interval, other, bool(figure.warning), shown)


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


def _hubs(finding: Finding) -> Chart:
    """The documents that are retrieved most, by name, with the share of queries that retrieve them."""
    name = "hubness_skewness"
    queries = {figure.name: figure.count for figure in findings.figures_of(finding)}.get(name, 0)
    hubs = findings.examples_of(finding).get(name, [])[:_HUBS] if queries else []
    rows = [charts.Bar(numbers.shorten(hub.text, 20), hub.value / queries) for hub in hubs]
    svg = charts.bars(rows, title="The largest hubs", across="share of queries that retrieve it")
    return Chart(svg, "The documents that most queries have among their first results, the largest hub first.")


def _aligned(finding: Finding) -> Chart:
    """Alignment against uniformity beside the baseline: the lower left is best."""
    sides = {"this model": 0, "baseline": 1}
    values = {f.name: (f.value, findings.beside(finding, f)[0]) for f in findings.figures_of(finding)}
    points: dict[str, list[tuple[float, float]]] = {}
    for name, side in sides.items():
        x, y = (values.get(figure, (None, None))[side] for figure in ("uniformity", "alignment"))
        if x is not None and y is not None:
            points[name] = [(x, y)]
    title = "Alignment against uniformity"
    svg = charts.scatter(points, title=title, across="uniformity", up="alignment")
    return Chart(svg, "Lower is better on both axes; a model that gains on one alone has moved all its vectors.")


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


_HUBS = 8  # that are drawn
_DOTS = 600  # of a picture; more would hide each other


def _some(rows: list[Any]) -> list[Any]:
    """At most so many as a picture has room for, evenly drawn."""
    return rows[:: -(-len(rows) // _DOTS)] if rows else rows


def _word_order(values: list[float]) -> Chart:
    counts, labels = charts.bin_evenly(values, bins=6)
    title, across = "Word order by text", "1 − cosine of a text and its shuffled words"
    svg = charts.histogram(counts, labels, title=title, across=across, up="texts")
    return Chart(svg, "How far shuffled words move each text: on the left are those that are a bag of words.")


def _overlaps(table: Columns) -> Chart:
    """Overlap against cosine: above the broken line a cosine says more than the letters."""
    points = _points(table, "overlap", "cosine", "grade")
    judged = any(math.isfinite(grade) for *_, grade in points)
    names = ("relevant", "not relevant") if judged else ("results",)
    kinds: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for overlap, cosine, grade in points:
        kinds[("relevant" if grade >= 1 else "not relevant") if judged else "results"].append((overlap, cosine))
    shown = {name: _some(several) for name, several in kinds.items() if several}
    middle = float(np.median(table["overlap"]))
    ends = [step / 50 for step in range(-50, 51)]
    lines = [("gap 0", [(x, x) for x in ends if x >= 0]), ("", [(middle, y) for y in ends])]
    title, across = "Letters in common against closeness", "overlap of query and product (Jaccard of bigrams)"
    svg = charts.scatter(shown, title=title, across=across, up="cosine", lines=lines)
    most = sum(map(len, kinds.values())) > sum(map(len, shown.values()))
    caption = "Upper left: close without the words. Upper right: literal matches. Lower left: strangers."
    return Chart(svg, f"{caption}{' A part of the pairs is drawn.' if most else ''}")


def _trusted(columns: Columns) -> Chart:
    """I_q against G_q with the contours of R_q, and which queries fail."""
    success = columns["success"].tolist() if "success" in columns else [math.nan] * len(columns["coherence"])
    kinds: dict[str, list[tuple[float, float]]] = {}
    for x, y, succeeds in zip(columns["coherence"].tolist(), columns["stability"].tolist(), success, strict=True):
        name = "queries" if math.isnan(succeeds) else "succeed" if succeeds else "fail"
        kinds.setdefault(name, []).append((x, y))
    order: list[str] = ["succeed", "queries", "fail"]
    ordered = {name: _some(kinds[name]) for name in order if name in kinds}
    if len(ordered) > 2:
        ordered.pop("queries")
    lines = [(f"R_q {r:g}", _contour(r)) for r in (0.3, 0.5, 0.7, 0.8, 0.9)]
    across, up = "I_q: how alike the first results are", "G_q: what a codec leaves"
    svg = charts.scatter(ordered, title="Stability against coherence", across=across, up=up, lines=lines)
    return Chart(svg, "Each query by what R_q is made of; R_q is worth something where failures lie on its low side.")


def _contour(reliability: float) -> list[tuple[float, float]]:
    """Where 2 G I / (G + I) has this value, by I."""
    steps = [step / 1000 for step in range(1, 1001)]
    return [(i, reliability * i / (2 * i - reliability)) for i in steps if 2 * i > reliability]


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
