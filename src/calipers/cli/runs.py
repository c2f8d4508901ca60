"""`calipers runs`: what was measured before."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import click

from calipers.cli import options
from calipers.cli.grouped import GroupedCommand

_STORE = click.option("--store", metavar="DIR", type=options.HomePath(), help="Where runs are kept.")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")


@click.group()
def runs() -> None:
    """Look into the store: list, show, tag, rm, prune, import. RUN is an id, its beginning, a name, or `latest`."""


@runs.command("list", cls=GroupedCommand)
@options.flags("runs.listing:RunFilter")
@options.file_option("Output", "--store", metavar="DIR", help="Where runs are kept.")
@options.option("Output", "--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
@options.option("Output", "--csv", "as_csv", is_flag=True, help="Print a table of comma-separated values.")
@options.option(
    "Output", "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="At most this many."
)
def list_(store: Path | None, as_json: bool, as_csv: bool, limit: int, **flags: Any) -> None:
    """The runs, newest first: what was measured on what, names, tags, and the label of the newest verdict."""
    from calipers.rendering import document, tables, text
    from calipers.rendering.numbers import megabytes
    from calipers.runs.listing import RunFilter, to_csv
    from calipers.runs.store import Store

    if as_json and as_csv:
        raise click.UsageError("--json and --csv exclude each other: give one of them")
    out, err = options.consoles()
    place, chosen = Store(store), options.make(RunFilter, flags)
    lines = list(islice(chosen.choose(place.lines()), limit + 1))  # one more, to see whether there is one
    lines, beyond = lines[:limit], lines[limit:]
    if as_json:
        options.echo_json(document.to_json([vars(line) for line in lines]))
        return
    if as_csv:
        options.echo_lines(to_csv(lines).rstrip("\n"))
        return
    if not (total := place.count()):
        tables.say(err, f"no runs yet in {place.folder}: calipers eval makes one")
        return
    if lines:
        text.show_runs(out, lines)
    shown = f"{len(lines)} of {total} runs" if len(lines) < total else f"{len(lines)} runs"
    older = ", older runs not shown (--limit)" if beyond else ""
    tables.say(err, f"{shown}{older}; the store in {place.folder} has {megabytes(place.size())}")


@runs.command()
@click.argument("run")
@click.argument("tags", nargs=-1, required=True, metavar="TAG…")
@click.option("--remove", is_flag=True, help="Take the tags off.")
@_STORE
def tag(run: str, tags: tuple[str, ...], remove: bool, store: Path | None) -> None:
    """Put tags on a run, by which `runs list --tag` finds it; `runs prune` keeps it."""
    from calipers.runs.store import Store

    place = Store(store)
    run_id = place.tag(run, tags, remove=remove)
    line = place.line(run_id)
    options.echo_lines(f"{run_id}: {', '.join(line.tags) or 'no tags'}")


@runs.command(cls=GroupedCommand)
@options.flags("runs.listing:PruneOptions")
@options.flags("runs.listing:RunFilter")
@options.option("Output", "--dry-run", is_flag=True, help="Print what would go, and remove nothing.")
@options.file_option("Output", "--store", metavar="DIR", help="Where runs are kept.")
def prune(store: Path | None, dry_run: bool, **flags: Any) -> None:
    """Remove runs by age, or all but the newest of their kind. `calipers doctor --repair` removes files of no run.

    \b
    Examples:
      calipers runs prune --keep 3 --dry-run
      calipers runs prune --older-than 90 --model MiniLM
    """
    from calipers.rendering.numbers import count, megabytes
    from calipers.runs.listing import PruneOptions, RunFilter
    from calipers.runs.store import Store

    place = Store(store)
    chosen = options.make(PruneOptions, flags).choose(options.make(RunFilter, flags).choose(place.lines()))
    verb = "would remove" if dry_run else "removed"
    for line in chosen:
        if not dry_run:
            place.remove(line.run_id)
        options.echo_lines(f"{verb} {line.run_id}  {line.task}  {line.artifact}  {megabytes(line.bytes)}")
    options.echo_lines(f"{verb} {count('run', len(chosen))}, {megabytes(sum(line.bytes for line in chosen))}")


@runs.command()
@click.argument("run")
@_STORE
@_JSON
@click.option("--examples", type=click.IntRange(min=0), default=0, metavar="N", help="Also the first N outcomes.")
@click.option(
    "--outcomes",
    type=options.HomePath(),
    metavar="FILE",
    help="Write what came out of each example as a table, .csv or .parquet.",
)
@click.option("--details", metavar="NAME", help="With --outcomes: a finer table, such as the tokens of fill-mask.")
@click.option("--force", is_flag=True, help="Overwrite that file.")
def show(
    run: str,
    store: Path | None,
    as_json: bool,
    examples: int,
    outcomes: Path | None,
    details: str | None,
    force: bool,
) -> None:
    """One run, as it was printed when it was made."""
    from calipers.rendering import document, tables, text
    from calipers.runs import catalogue, report
    from calipers.runs.store import Store

    if outcomes:
        options.check_output(outcomes, force)
    elif details:
        raise click.UsageError("--details has no effect without --outcomes")
    result = Store(store).load(run)
    if outcomes:
        report.write_outcomes(result, outcomes, details=details)
    if as_json:
        content = result.to_dict()
        if examples:
            content["examples"] = document.examples(result, examples)
        options.echo_json(document.to_json(content))
        return
    out, _ = options.consoles()
    text.show_result(out, result, catalogue.find(result.task))
    if examples:
        tables.show_records(out, document.examples(result, examples))


@runs.command()
@click.argument("run", nargs=-1, required=True)
@_STORE
def rm(run: tuple[str, ...], store: Path | None) -> None:
    """Forget runs."""
    from calipers.runs.store import Store

    place = Store(store)
    for run_id in dict.fromkeys([place.resolve(name) for name in run]):
        place.remove(run_id)
        options.echo_lines(f"removed {run_id}")


@runs.command("import")
@click.argument("path", nargs=-1, required=True, type=options.HomePath())
@click.option("--task", "names", multiple=True, metavar="NAME", help="Only this mteb task; may be repeated.")
@click.option("--common", is_flag=True, help="Only the scores that all the models have, so that they can be compared.")
@click.option("--model-id", metavar="NAME", help="The model, where the files do not name it.")
@_STORE
@_JSON
def import_(
    path: tuple[Path, ...],
    names: tuple[str, ...],
    common: bool,
    model_id: str | None,
    store: Path | None,
    as_json: bool,
) -> None:
    """Take result files of mteb into the store: one run per model and revision, one example per score.

    PATH is a JSON file, or a folder with mteb's layout of model, revision and task.
    """
    from calipers.core import printable
    from calipers.interop.mteb import import_results
    from calipers.rendering import document, text
    from calipers.runs.store import Store

    place = Store(store)
    results = import_results(path, tasks=names, model_id=model_id, common=common)
    place.check_writable()
    place.save_all(results)
    if as_json:
        options.echo_json(document.to_json([result.to_dict() for result in results]))
        return
    text.show_runs(options.consoles()[0], [place.line(result.run_id) for result in reversed(list(results))])
    for result in results:
        for warning in result.warnings:
            options.echo_lines(f"{result.run_id}: {printable(warning)}", err=True)
