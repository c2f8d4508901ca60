"""`calipers report`: stored runs in the formats of others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from calipers.cli import options
from calipers.cli.grouped import GroupedCommand


@click.command(cls=GroupedCommand, short_help="Stored runs as JSON, Markdown, MTEB results or a model card.")
@click.argument("runs", nargs=-1, required=True, metavar="RUN…")
@options.flags("runs.report:ReportOptions")
@options.option(
    "Output",
    "-o",
    "--output",
    metavar="FILE",
    help="Write to a file instead of standard output. For mteb and eval-results it may be a folder (a new one ends in "
    "/), which gets the layout that mteb's ResultCache, or the hub, reads.",
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
      calipers report latest --format mteb -o cache/
      calipers report float32 int8 --format eval-results -o ./my-model/
    """
    from calipers.core.inputs import expand

    form, mteb_task = flags["format"], flags["mteb_task"]
    ends_in_slash = (flags["output"] or "").endswith(("/", os.sep))
    flags["output"] = output = expand(flags["output"]) if flags["output"] else None
    folder = output if output and (output.is_dir() or ends_in_slash) else None
    if folder and form not in ("mteb", "eval-results"):
        raise click.UsageError(f"{folder} is a folder: expected a file, or --format mteb or eval-results")
    if not folder:
        options.check_outputs(flags, "output")
    from calipers.runs import report as reporting
    from calipers.runs.store import Store

    results = reporting.load_runs(flags["runs"], Store(flags["store"]))
    if form == "mteb":
        for warning in reporting.mteb_warnings(results, mteb_task=mteb_task):
            options.echo_lines(f"calipers: {warning}", err=True)
    if folder:
        write = reporting.mteb_folder if form == "mteb" else reporting.eval_results_files
        _write_folder(folder, write(results, mteb_task=mteb_task), flags["force"])
        return
    content = reporting.report(results, format=form, mteb_task=mteb_task).rstrip("\n")
    if output:
        options.write_output(output, content)
    else:
        echo = options.echo_json if form in ("json", "mteb") else options.echo_lines
        echo(content)


def _write_folder(folder: Path, contents: dict[str, str], force: bool) -> None:
    for name in contents:
        file = folder / name
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise click.UsageError(f"{file.parent} cannot be made: {error.strerror}") from error
        if file.name != "model_meta.json":  # says the same each time
            options.check_output(file, force)
    for name, content in contents.items():
        options.write_output(folder / name, content)
        options.echo_lines(str(folder / name))
