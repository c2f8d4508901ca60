"""A sweep as CSV, JUnit XML, Markdown and HTML."""

from __future__ import annotations

import csv
import io
from html import escape
from xml.etree import ElementTree as xml

from calipers.core import printable
from calipers.rendering.document import strict
from calipers.rendering.markdown import code, table
from calipers.rendering.tables import csv_cell
from calipers.sweeps.api import Sweep
from calipers.sweeps.judge import is_broken
from calipers.sweeps.text import HEADER, sentence, table_row

_CSV = (
    *("model", "task", "precision", "group", "metric", "value", "interval_low", "interval_high", "baseline", "delta"),
    *("relative", "label", "p_value", "adjusted_p", "size", "latency_p50", "run", "failure", "dominated"),
    "newly_broken",
)
_STYLE = """body { font: 14px system-ui, sans-serif; margin: 2em; color: #1a1a1a; background: #fff }
table { border-collapse: collapse } th, td { padding: .3em .7em; border-bottom: 1px solid #ddd; text-align: left }
td.number { text-align: right; font-variant-numeric: tabular-nums } tr.dominated td { color: #999 }
.REGRESSION, .INVALID, .failed { color: #b00020; font-weight: bold } .AT_RISK { color: #9a6700 }
.PASS { color: #1a7f37 } .INCONCLUSIVE { color: #8250df } pre { background: #f6f6f6; padding: .6em }"""


def to_csv(sweep: Sweep) -> str:
    """One line a cell; what is unknown is empty."""
    out = io.StringIO()
    writer = csv.DictWriter(out, _CSV, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for cell in sweep.cells:
        facts = strict(cell.to_dict())
        low, high = cell.interval or (None, None)
        latency = cell.latency["p50"] if cell.latency else None
        failure = cell.failure.kind if cell.failure else None
        row = {**facts, "interval_low": low, "interval_high": high, "latency_p50": latency, "failure": failure}
        writer.writerow({name: csv_cell(row[name]) for name in _CSV})
    return out.getvalue()


def to_junit(sweep: Sweep) -> str:
    """A suite a task, a test case a cell. Bad labels are failures, what has no verdict because it broke is an error."""
    root = xml.Element("testsuites", name="calipers sweep")
    for task in dict.fromkeys(cell.key.task for cell in sweep.cells):
        cells = [cell for cell in sweep.cells if cell.key.task == task]
        suite = xml.SubElement(root, "testsuite", name=printable(task), tests=str(len(cells)))
        counts = {"failures": 0, "errors": 0}
        for cell in cells:
            case = xml.SubElement(
                suite, "testcase", classname=printable(cell.key.model), name=printable(cell.key.precision)
            )
            row = " ".join(table_row(cell)[3:8])
            if cell.label in ("REGRESSION", "INVALID"):
                counts["failures"] += 1
                xml.SubElement(case, "failure", type=str(cell.label), message=printable(row))
            elif cell.failure or cell.label == "INCONCLUSIVE":
                counts["errors"] += 1
                message = cell.failure.message if cell.failure else row
                error = xml.SubElement(case, "error", type=cell.failure.kind if cell.failure else "INCONCLUSIVE")
                error.set("message", printable(message))
                error.text = "\n".join(cell.failure.tail) if cell.failure else ""
            xml.SubElement(case, "system-out").text = printable(row)
        suite.attrib |= {name: str(count) for name, count in counts.items()}
    xml.indent(root)
    return xml.tostring(root, encoding="unicode", xml_declaration=True)


def to_markdown(sweep: Sweep) -> str:
    """The table, worst first, and what failed."""
    rows = []
    for cell in sweep.cells:
        model, task, precision, metric, *rest = table_row(cell)
        strong = "**{}**" if is_broken(cell) else "{}"
        rest[3] = strong.format(rest[3])
        rows.append((code(model), code(task), code(precision), code(metric), *rest))
    parts = [f"## Sweep of {code(sweep.registry)}", "\n".join(table(HEADER, rows, right=(4, 6, 8, 9, 10)))]
    parts += [f"- {code(str(c.key))}: {c.failure.kind}: {code(c.failure.message)}" for c in sweep.cells if c.failure]
    if broken := [code(str(cell.key)) for cell in sweep.cells if cell.newly_broken]:
        parts.append(f"Newly broken since the last sweep: {', '.join(broken)}")
    return "\n\n".join([*parts, sentence(sweep)]) + "\n"


def to_html(sweep: Sweep) -> str:
    """One self-contained page. Every text of the registry and of logs is escaped."""
    head = "".join(f"<th>{escape(name)}</th>" for name in HEADER)
    body = []
    for cell in sweep.cells:
        texts = table_row(cell)
        classes = dict.fromkeys((4, 6, 8, 9, 10), ' class="number"')
        classes[7] = f' class="{cell.label or ("failed" if cell.failure else "")}"'
        cells = "".join(f"<td{classes.get(i, '')}>{escape(printable(t))}</td>" for i, t in enumerate(texts))
        body.append(f'<tr class="dominated">{cells}</tr>' if cell.dominated else f"<tr>{cells}</tr>")
    failures = "".join(
        f"<h3>{escape(printable(str(cell.key)))}: {escape(cell.failure.kind)}</h3>"
        f"<p>{escape(printable(cell.failure.message))}</p><pre>{escape(chr(10).join(cell.failure.tail))}</pre>"
        for cell in sweep.cells
        if cell.failure
    )
    broken = ", ".join(escape(printable(str(cell.key))) for cell in sweep.cells if cell.newly_broken)
    news = f"<p class=failed>Newly broken since the last sweep: {broken}</p>" if broken else ""
    title = escape(printable(f"Sweep of {sweep.registry}"))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
        f"<h1>{title}</h1>{news}<p>{escape(sentence(sweep))}</p>"
        "<p>Grey rows are dominated: another cell of the task is at least as good in quality, latency and size.</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>{failures}</html>"
    )
