"""A diagnosis as one HTML file that needs nothing else: no script, no font and no picture from outside.

All text is escaped by the template; charts escape their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calipers.comparison import wording
from calipers.comparison.records import Comparison
from calipers.core import Columns, Figure, Named, Outcomes
from calipers.diagnosis import findings
from calipers.diagnosis import text as diagnosis_text
from calipers.diagnosis.records import Diagnosis, Finding
from calipers.rendering import charts, numbers

_EXAMPLES = 10  # of each figure
_TEXT, _NOTE = 220, 500  # letters of an example


@dataclass(frozen=True)
class Chart:
    """A drawing with what it says in one sentence."""

    svg: str
    caption: str


def page(diagnosis: Diagnosis) -> str:
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    label, card = findings.label_of(diagnosis), diagnosis.scorecard
    content = environment.get_template("diagnosis.html.j2").render(
        model=diagnosis.model,
        baseline=diagnosis.baseline,
        created=diagnosis.created[:16].replace("T", " "),
        label=label,
        facts=diagnosis_text.facts(diagnosis),
        headlines=findings.headlines(diagnosis),
        layers=[_layer(finding, Markup) for finding in diagnosis.findings],
        card=card,
        card_header=diagnosis_text.SCORECARD_HEADER,
        card_rows=[diagnosis_text.scorecard_row(line) for line in card.lines] if card else [],
        notes=diagnosis.notes,
        settings=_settings(diagnosis),
    )
    return content.rstrip("\n")


def _settings(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    model = diagnosis.model
    rows = [("fingerprint of the model", model.fingerprint), ("fingerprint of the data", diagnosis.fingerprint)]
    rows += [(name, str(value)) for name, value in model.settings.items() if value not in (None, "", {})]
    runs = ", ".join(f"{f.layer} {f.result.run_id}" for f in diagnosis.findings if f.result)
    return [*rows, ("runs", runs)]


def _layer(finding: Finding, safe: Callable[[str], Any]) -> dict[str, Any]:
    compared = findings.comparisons_of(finding)
    figures = findings.figures_of(finding)
    return {
        "name": finding.layer,
        "about": finding.about,
        "reason": finding.reason,
        "ran": finding.result is not None,
        "label": finding.verdict.label if finding.verdict and finding.decides else None,
        "sentence": wording.sentence(finding.verdict) if finding.verdict and finding.decides else None,
        "compared": bool(compared),
        "interval": _interval_name(finding),
        "figures": [_figure(finding, figure, compared.get(figure.name)) for figure in figures],
        "charts": [{"svg": safe(chart.svg), "caption": chart.caption} for chart in draw(finding) if chart.svg],
        "examples": [
            {"figure": name, "total": len(named), "rows": [_example(n) for n in named[:_EXAMPLES]]}
            for name, named in findings.examples_of(finding).items()
        ],
    }


def _interval_name(finding: Finding) -> str:
    confidence = finding.result.bootstrap.get("confidence") if finding.result else None
    return f"{100 * confidence:g} % interval" if confidence else "interval"


def _figure(finding: Finding, figure: Figure, compared: Comparison | None) -> dict[str, Any]:
    before, delta = findings.beside(finding, figure)
    return {
        "name": figure.name,
        "value": findings.value_of(figure),
        "interval": findings.interval_of(figure),
        "direction": findings.direction(figure),
        "level": figure.level or numbers.NONE,
        "warns": bool(figure.warning),
        "meaning": diagnosis_text.meaning(figure),
        "known": figure.value is not None,
        "baseline": numbers.number(before, figure.digits),
        "delta": numbers.signed(delta, figure.digits),
        "delta_interval": numbers.signed_interval(compared.interval if compared else None, figure.digits),
        "label": findings.shown_label(figure, compared),
    }


def _example(named: Named) -> dict[str, str]:
    return {
        "id": numbers.shorten(named.id, 60),
        "text": numbers.shorten(named.text, _TEXT) if named.text != named.id else "",
        "note": numbers.shorten(named.note, _NOTE),
    }


# --- charts ------------------------------------------------------------------------------------------------------


def draw(finding: Finding) -> Iterator[Chart]:
    """The charts that a layer's outcomes allow, by the tables and columns that they hold."""
    if finding.result is None:
        return
    details, columns = finding.result.outcomes.details, finding.result.outcomes.columns
    figures = {f.name: f for f in findings.figures_of(finding)}
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
    for name_of, title, across in _BARS:
        rows = [
            _bar(f, shown, compared.get(f.name))
            for f in figures.values()
            if f.value is not None and (shown := name_of(f.name))
        ]
        marked = any(row.other is not None for row in rows)
        caption = f"{title}.{' The upright line is the baseline.' if marked else ''}"
        yield Chart(charts.bars(rows, title=title, across=across), caption)


def _setting(figure: str) -> str | None:
    return (figure.partition("/")[2] or "baseline") if figure.startswith("jaccard@") else None


def _edit(figure: str) -> str | None:
    return figure.removeprefix("robustness/") if figure.startswith("robustness/") else None


def _attribute(figure: str) -> str | None:
    """
    >>> _attribute("colour_explicit_failure_rate"), _attribute("explicit_failure_rate"), _attribute("anisotropy")
    ('colour', 'any of them', None)
    """
    rate = "explicit_failure_rate"
    return (figure.removesuffix(rate).rstrip("_") or "any of them") if figure.endswith(rate) else None


# Charts of one bar a figure: the name of its bar (None: it has none there), the title, and what is measured.
_BARS: tuple[tuple[Callable[[str], str | None], str, str], ...] = (
    (_setting, "How alike the first results stay under other settings", "overlap with exact search (Jaccard)"),
    (_edit, "How alike the first results stay when a query is written another way", "overlap (Jaccard)"),
    (_attribute, "How many results contradict what their query states", "share of their results"),
)


def _bar(figure: Figure, name: str, compared: Comparison | None) -> charts.Bar:
    other = compared.baseline if compared else None
    return charts.Bar(name, float(figure.value or 0.0), figure.interval, other, bool(figure.warning))


def _spread(name: str, columns: Columns, before: Columns) -> Iterator[Chart]:
    for whose, values in (("", columns), ("the baseline's ", before)):
        if name in values:
            counts, labels = charts.bin_shares(values[name].tolist())
            title = f"{whose}{name} of each query"
            svg = charts.histogram(counts, labels, title=title, across=name, up="queries")
            yield Chart(
                svg, f"{title[:1].upper()}{title[1:]}: a mean hides how many queries get nothing (left) or all."
            )


def _counts(table: Columns) -> Chart:
    counts, labels = charts.bin_doublings(table["times"].tolist(), table["documents"].tolist())
    svg = charts.histogram(
        counts,
        labels,
        title="How often documents are retrieved",
        across="queries that retrieve it",
        up="documents",
        log=True,
    )
    return Chart(svg, "How many documents are among the first results of how many queries; hubs are on the right.")


def _scale(table: Columns) -> Chart:
    names = ("size", "dimension", "standard_error")
    points = list(zip(*(table[name].tolist() for name in names), strict=True))
    svg = charts.curve(points, title="Intrinsic dimension by size of sample", across="documents", up="dimension")
    return Chart(
        svg, "The dimension among ever more documents: where the curve is level, the figure holds at any size."
    )


def _certainty(details: Mapping[str, Columns]) -> Iterator[Chart]:
    """What a calibrated score is worth: stated against true shares, and failures against how much is answered."""
    stated, risk = details["reliability_curve"], details["risk_coverage"]
    points = list(zip(*(stated[name].tolist() for name in ("probability", "share", "low", "high")), strict=True))
    svg = charts.square(
        points,
        title="Reliability curve",
        across="probability that the score states",
        up="share that succeed",
        diagonal=True,
    )
    yield Chart(svg, "Stated against true shares of success, out of fold: on the broken line the score is honest.")
    answered = [
        (*pair, math.nan, math.nan) for pair in zip(risk["coverage"].tolist(), risk["risk"].tolist(), strict=True)
    ]
    svg = charts.square(
        answered, title="Risk and coverage", across="share of queries answered, surest first", up="failures among them"
    )
    yield Chart(svg, "How many of the answered queries fail when only the surest are answered: a low start is good.")


_NEIGHBOURHOODS = 2  # of the least coherent entities, and of the most coherent


def _neighbourhoods(outcomes: Outcomes) -> Iterator[Chart]:
    """The neighbourhood graphs of entities at both ends of coherence."""
    table, edges = outcomes.details["entities"], outcomes.details["edges"]
    finite = [i for i, value in enumerate(table["coherence"].tolist()) if math.isfinite(value)]
    ranked = sorted(finite, key=lambda i: float(table["coherence"][i]))
    for i in dict.fromkeys([*ranked[:_NEIGHBOURHOODS], *ranked[-_NEIGHBOURHOODS:]]):
        name = numbers.shorten(str(outcomes.texts["entity"][i]), 40)
        caption = f"{name}: coherence {table['coherence'][i]:.2f}, {table['level'][i]}."
        yield Chart(
            _neighbourhood(name, i, edges),
            f"{caption} Its nearest documents; the closer two are, the stronger the line.",
        )


def _neighbourhood(name: str, example: int, edges: Columns) -> str:
    mine = [n for n, one in enumerate(edges["example"].tolist()) if one == example]
    source, target, cosine = (edges[key] for key in ("source", "target", "cosine"))
    spokes = [n for n in mine if not source[n]]
    place = {str(target[n]): number for number, n in enumerate(spokes)}
    around = [(numbers.shorten(str(edges.get("text", target)[n]), 21), float(cosine[n])) for n in spokes]
    between = {(place[str(source[n])], place[str(target[n])]): float(cosine[n]) for n in mine if source[n]}
    return charts.graph(name, around, between)
