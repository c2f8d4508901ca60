"""`calipers demo`: the main jobs, on data and a model that are here already."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

import click

from calipers.cli import options

if TYPE_CHECKING:
    from rich.console import Console

    from calipers.demo import Step


@click.command(short_help="The main jobs on the bundled sample, with a real model.")
@options.apply(click.option("--no-store", is_flag=True, help="Keep nothing."))
def demo(no_store: bool) -> None:
    """Show Calipers at work on the sample data that it carries, with the real all-MiniLM-L6-v2."""
    from calipers import demo as script
    from calipers.report import text

    out, err = options.consoles()
    store = options.open_store(None, no_store)
    model = script.find_model()
    out.print(f"Model: {model}\n", markup=False, soft_wrap=True)
    for number, step in enumerate(script.STEPS, start=1):
        _announce(out, number, step, model)
        with text.bar(err) as progress:
            result, task = step.run(model, store, progress)
        text.show_result(out, result, task)
        out.print(f"{step.reading(result)}\n", markup=False, soft_wrap=False)
    _say_where(out, None if store is None else str(store.folder))


def _announce(out: Console, number: int, step: Step, model: str) -> None:
    out.rule(f"[bold]{number}. {step.title}", align="left") if out.is_terminal else out.print(f"{number}. {step.title}")
    out.print(f"$ {step.command(model)}", style="green", markup=False, soft_wrap=True)


def _own_name() -> str:
    """How this command is called: by its name where that is found, else by its place, such as .venv/bin/calipers."""
    if shutil.which("calipers"):
        return "calipers"
    return "python -m calipers" if sys.argv[0].endswith("__main__.py") else os.path.relpath(sys.argv[0])


def _say_where(out: Console, folder: str | None) -> None:
    out.print("Where to look now:")
    me = _own_name()
    lines = [f"  your own model      {me} eval -m MODEL --dataset pairs.csv   ({me} eval --help)"]
    if folder:
        lines.insert(0, f"  look at them        {me} runs list, {me} runs show latest --examples 5")
        lines.insert(0, f"  runs and outcomes   {folder}")
    for line in lines:
        out.print(line, markup=False, soft_wrap=True)
