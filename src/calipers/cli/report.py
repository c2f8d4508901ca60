"""`calipers report`: stored runs in the formats of others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from calipers.cli import options


@click.command(cls=options.GroupedCommand, short_help="Stored runs as JSON, Markdown, MTEB results or a model card.")
@click.argument("runs", nargs=-1, required=True, metavar="RUN…")
@options.flags("runs.report:ReportOptions")
@options.file_option(
    "Output",
    "-o",
    "--output",
    help="Write to a file instead of standard output. For mteb it may be a folder, which gets a file per task.",
)
@options.FORCE_FLAG
@options.file_option("Output", "--store", metavar="DIR", help="Where runs are kept.")
def report(**flags: Any) -> None:
    """Stored runs in the formats that others read. RUN is an id, its beginning, or `latest`.

    \b
    Examples:
      calipers report latest
      calipers report 20261116-043822-5f0a1c latest --format markdown -o results.md
      calipers report latest --format model-index
      calipers report latest --format mteb --mteb-task STSBenchmark -o STSBenchmark.json
    """
    form, output, mteb_task = flags["format"], flags["output"], flags["mteb_task"]
    is_folder = form == "mteb" and output is not None and output.is_dir()
    if not is_folder:
        options.check_outputs(flags, "output")
    from calipers.rendering import mteb_json
    from calipers.runs import report as reporting
    from calipers.runs.store import Store

    results = reporting.load_runs(flags["runs"], Store(flags["store"]))
    if form == "mteb":
        for warning in (warning for result in results for warning in mteb_json.warnings(result)):
            click.echo(f"calipers: {warning}", err=True)
    if is_folder:
        _write_folder(output, reporting.mteb_files(results, mteb_task=mteb_task), flags["force"])
        return
    content = reporting.report(results, format=form, mteb_task=mteb_task).rstrip("\n")
    if output:
        options.write_output(output, content)
    elif form in ("json", "mteb"):
        options.echo_json(content)
    else:
        click.echo(content)


def _write_folder(folder: Path, contents: dict[str, str], force: bool) -> None:
    for name in contents:
        options.check_output(folder / f"{name}.json", force)
    for name, content in contents.items():
        options.write_output(folder / f"{name}.json", content)
        click.echo(str(folder / f"{name}.json"))
