"""`calipers demo`: the main jobs, on data and a model that are here already."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from calipers.cli import options

if TYPE_CHECKING:
    from rich.console import Console

    from calipers.diagnosis.records import Diagnosis
    from calipers.runs.store import Store


@click.command(short_help="The main jobs on the bundled sample, with a real model.")
@options.apply(click.option("--no-store", is_flag=True, help="Keep nothing."))
def demo(no_store: bool) -> None:
    """Show Calipers at work on the sample data that it carries, with the real all-MiniLM-L6-v2.

    Two evaluations on pairs of sentences, and a diagnosis of search in a made-up shop of 1,500 products, whose report
    is kept as an HTML file.
    """
    from calipers.cli import demo_steps as script
    from calipers.rendering import text

    out, err = options.consoles()
    store = options.open_store(None, no_store)
    model = script.find_model()
    out.print(f"Model: {model}\n", markup=False, soft_wrap=True)
    for number, step in enumerate(script.STEPS, start=1):
        _announce(out, number, step.title, step.command(model))
        with text.bar(err) as progress:
            result, task = step.run(model, store, progress)
        text.show_result(out, result, task)
        out.print(f"{step.reading(result)}\n", markup=False, soft_wrap=False)
    report = _visit_shop(out, err, model, store)
    _say_where(out, None if store is None else str(store.folder), report)


def _announce(out: Console, number: int, title: str, command: str) -> None:
    out.rule(f"[bold]{number}. {title}", align="left") if out.is_terminal else out.print(f"{number}. {title}")
    out.print(f"$ {command}", style="green", markup=False, soft_wrap=True)


# --- the sample shop ---------------------------------------------------------------------------------------------


def _visit_shop(out: Console, err: Console, model: str, store: Store | None) -> Path | None:
    """The place of the report; None where nothing is kept."""
    from calipers.cli import demo_steps as script
    from calipers.diagnosis import html as diagnosis_html
    from calipers.rendering import text

    kept = store.folder / "demo" if store else None
    report = kept / "shop.html" if kept else None
    number = len(script.STEPS) + 1
    _announce(out, number, script.SHOP_TITLE, script.shop_command(model, (kept or Path()) / "shop", report))
    with tempfile.TemporaryDirectory() as passing, text.bar(err) as progress:
        diagnosis = script.visit_shop(model, (kept or Path(passing)) / "shop", store, progress)
    _show_shop(out, diagnosis)
    if report:
        options.write_output(report, diagnosis_html.page(diagnosis))
    return report


def _show_shop(out: Console, diagnosis: Diagnosis) -> None:
    from calipers.cli import demo_steps as script
    from calipers.core import printable

    counts = diagnosis.counts
    out.print(f"{counts['documents']:,} products, {counts['queries']} queries in English and Japanese.")
    out.print("Of the first 10 results of queries that state it, this share contradicts it:")
    lines = script.contradictions(diagnosis)
    for line in lines:
        low, high = (100 * end for end in line.rate.interval or (float("nan"), float("nan")))
        share = f"{100 * (line.rate.value or 0):3.0f} %  (95 % interval {low:.0f} – {high:.0f} %)"
        out.print(f"  {line.what:8}{share}   {100 * line.ignored:.0f} % if a search ignored it")
    out.print("For example:")
    for line in lines:
        if line.example:
            out.print(f"  {printable(line.example.text)}", markup=False, soft_wrap=True)
            out.print(f"      {printable(line.example.note)}", style="dim", markup=False, soft_wrap=True)
    out.print(f"{script.read_shop(diagnosis)}\n", markup=False, soft_wrap=False)


# --- where to look -----------------------------------------------------------------------------------------------


def _own_name() -> str:
    """How this command is called: by its name where that is found, else by its place, such as .venv/bin/calipers."""
    if shutil.which("calipers"):
        return "calipers"
    return "python -m calipers" if sys.argv[0].endswith("__main__.py") else os.path.relpath(sys.argv[0])


def _say_where(out: Console, folder: str | None, report: Path | None) -> None:
    out.print("Where to look now:")
    me = _own_name()
    lines = [
        f"  your own model      {me} eval MODEL --dataset pairs.csv   ({me} eval --help)",
        f"  your own shop       {me} diagnose MODEL --corpus products.jsonl --queries queries.jsonl --html report.html",
    ]
    if folder:
        lines.insert(0, f"  look at them        {me} runs list, {me} runs show latest --examples 5")
        lines.insert(0, f"  runs and outcomes   {folder}")
    if report:
        lines.insert(0, f"  report of the shop  {report}")
    for line in lines:
        out.print(line, markup=False, soft_wrap=True)
