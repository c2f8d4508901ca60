"""A diagnosis as one HTML file that needs nothing else: no script, no font and no picture from outside.

All text is escaped by the template; pictures escape their own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from calipers.comparison import wording
from calipers.comparison.records import Comparison
from calipers.core import Figure
from calipers.core.errors import printable_lines
from calipers.diagnosis import findings, pictures
from calipers.diagnosis import text as diagnosis_text
from calipers.diagnosis.records import Diagnosis, Finding
from calipers.rendering import numbers


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
        "charts": [chart for chart in pictures.draw(finding) if chart.svg],
        "examples": findings.examples_of(finding),
        "slices": findings.slice_tables(finding, finding.result) if finding.result else [],
    }


def _stands_out(figure: Figure, comparison: Comparison | None) -> bool:
    """Whether a figure is shown without a click: it warns, decides, or is a loss that is past what passes."""
    return bool(figure.warning) or findings.shown_label(figure, comparison) != numbers.NONE
