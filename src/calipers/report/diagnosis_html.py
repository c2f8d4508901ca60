"""A diagnosis as one HTML file that needs nothing else: no script, no font and no picture from outside.

All text is escaped by the template; charts escape their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calipers.core import Columns, Comparison, Diagnosis, Figure, Finding, Named
from calipers.report import charts, diagnosis_text, findings, scorecard_text, wording

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
        card_header=scorecard_text.HEADER,
        card_rows=[scorecard_text.row(line) for line in card.lines] if card else [],
        notes=diagnosis.notes,
        settings=_settings(diagnosis),
    )
    return content.rstrip("\n")


def _settings(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    model = diagnosis.model
    told = [("fingerprint of the model", model.fingerprint), ("fingerprint of the data", diagnosis.fingerprint)]
    told += [(name, str(value)) for name, value in model.settings.items() if value not in (None, "", {})]
    runs = ", ".join(f"{f.layer} {f.result.run_id}" for f in diagnosis.findings if f.result)
    return [*told, ("runs", runs)]


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
    asked = finding.result.bootstrap.get("confidence") if finding.result else None
    return f"{100 * asked:g} % interval" if asked else "interval"


def _figure(finding: Finding, figure: Figure, compared: Comparison | None) -> dict[str, Any]:
    before, delta = findings.beside(finding, figure)
    return {
        "name": figure.name,
        "value": findings.value_of(figure),
        "interval": findings.interval_of(figure),
        "direction": findings.direction(figure),
        "level": figure.level or wording.NONE,
        "warns": bool(figure.warning),
        "meaning": diagnosis_text.meaning(figure),
        "known": figure.value is not None,
        "baseline": wording.number(before, figure.digits),
        "delta": wording.signed(delta, figure.digits),
        "delta_interval": wording.interval(compared.interval if compared else None, figure.digits),
        "label": findings.shown_label(figure, compared),
    }


def _example(named: Named) -> dict[str, str]:
    return {
        "id": wording.shorten(named.id, 60),
        "text": wording.shorten(named.text, _TEXT) if named.text != named.id else "",
        "note": wording.shorten(named.note, _NOTE),
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
    compared = findings.comparisons_of(finding)
    for start, title, across in _BARS:
        rows = [
            _bar(f, f.name.partition("/")[2] or "baseline", compared.get(f.name))
            for f in figures.values()
            if f.name.startswith(start) and f.value is not None and ("/" in f.name or start != "robustness")
        ]
        marked = any(row.other is not None for row in rows)
        caption = f"{title}.{' The upright line is the baseline.' if marked else ''}"
        yield Chart(charts.bars(rows, title=title, across=across), caption)


_BARS = (
    ("jaccard@", "How alike the first results stay under other settings", "overlap with exact search (Jaccard)"),
    ("robustness", "How alike the first results stay when a query is written another way", "overlap (Jaccard)"),
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
