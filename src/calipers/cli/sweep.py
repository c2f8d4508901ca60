"""`calipers sweep`: a registry of models, tasks and precisions, every night."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calipers.cli import options
from calipers.cli.grouped import GroupedCommand

if TYPE_CHECKING:
    from calipers.runs.store import Store
    from calipers.sweeps.api import Sweep
    from calipers.sweeps.records import SweepOptions, SweepStatus

_QUIET = 10.0  # seconds between two lines of a log
_FILES = frozenset(("html", "markdown", "junit", "csv", "output", "force"))
_CELLS = frozenset(("only", "exclude", "confidence", "resamples"))
_RUNNING = frozenset(("fail_fast", "on", "jobs", "cell_timeout", "memory_limit", "latency"))
# The flags that each kind of call honours; a run of the registry honours what is not of another kind.
_HONOURED = {
    "--init": frozenset(("init", "force")),
    "--check": frozenset(("check", "as_json")),
    "--dry-run": frozenset(("dry_run", "as_json", "store")) | _CELLS | _RUNNING,
    "status": frozenset(("as_json", "store")),
    "show": frozenset(("as_json", "store", "columns")) | _FILES,
    "show --stages": frozenset(("stages", "as_json", "store")) | _CELLS,
}


@click.command(cls=GroupedCommand, short_help="A registry of models, tasks and precisions, crash-safe.")
@click.argument("words", nargs=-1, metavar="[status | show] REGISTRY")
@options.option("Plan", "--check", is_flag=True, help="Report every problem of the registry with its line.")
@options.option(
    "Plan", "--dry-run", is_flag=True, help="Print the cells, what is stored, the shared work and the time to expect."
)
@options.file_option(
    "Plan", "--init", metavar="DIR", help="Write a commented registry from the models in this folder to REGISTRY."
)
@options.flags("sweeps.records:SweepOptions")
@options.option(
    "Cells",
    "--retry-failed",
    is_flag=False,
    flag_value="all",
    metavar="[CLASS]",
    help="Try failed cells again: all, or one class (data, model-load, export, quantise, inference, time-out, memory, "
    "signal).",
)
@options.option("Output", "--columns", type=click.Choice(["full", "classic"]), default="full", help="Of the table.")
@options.option("Output", "--stages", is_flag=True, help="show: PyTorch, ONNX, optimised, quantised of every model.")
@options.file_option("Output", "--html", help="Write a page.")
@options.file_option("Output", "--markdown", help="Append a summary.")
@options.file_option("Output", "--junit", help="Write JUnit XML.")
@options.file_option("Output", "--csv", help="Write a table, one line a cell.")
@options.file_option("Output", "-o", "--output", help="Write the JSON document to a file.")
@options.FORCE_FLAG
@options.JSON_FLAG
@options.STORE_FLAG
@click.pass_context
def sweep(context: click.Context, /, words: tuple[str, ...], **flags: Any) -> None:
    """Measure every model of a registry in its precisions on its tasks, and compare each with its baseline.

    One process a cell: a crash costs that cell only. The store is the queue: after a crash, a kill or Ctrl-C (exit
    code 130) the same command goes on, and a second run takes everything from the store. `calipers sweep status
    REGISTRY` shows a running sweep from another terminal, `calipers sweep show REGISTRY` the last one that finished.

    Exit codes: the worst cell's, in the order 1, 4, 3, 2, 5, 0.

    \b
    Examples:
      calipers sweep --init ./models registry.yaml
      calipers sweep registry.yaml --dry-run
      calipers sweep registry.yaml --html sweep.html --junit sweep.xml
      calipers sweep registry.yaml --only minilm --retry-failed time-out
      calipers sweep status registry.yaml
      calipers sweep show registry.yaml --stages
    """
    verb, registry = _words(words)
    _refuse_unhonoured(context, verb, flags)
    options.check_outputs(flags, "output", "html", "junit", "csv")
    options.check_outputs({**flags, "force": True}, "markdown")
    if flags["init"]:
        _init(flags["init"], registry, flags["force"])
    elif flags["check"]:
        _check(registry, as_json=flags["as_json"])
    elif verb == "status":
        _status(registry, flags)
    elif verb == "show":
        _show_last(registry, flags)
    elif flags["dry_run"]:
        _dry_run(registry, flags)
    else:
        made = _run(registry, flags)
        _emit(made, flags)
        context.exit(made.exit_code)


def _words(words: tuple[str, ...]) -> tuple[str, Path]:
    from calipers.core.inputs import expand

    verb, rest = (words[0], words[1:]) if words and words[0] in ("status", "show") else ("run", words)
    if len(rest) != 1:
        raise click.UsageError("expected one REGISTRY, a YAML or JSON file (--init DIR writes one)")
    return verb, expand(rest[0])


def _refuse_unhonoured(context: click.Context, verb: str, flags: Mapping[str, Any]) -> None:
    """A flag that this kind of call would ignore is an error."""
    kind = verb if verb != "run" else next((f"--{n}" for n in ("init", "check", "dry-run") if flags[_key(n)]), "")
    kind = "show --stages" if kind == "show" and flags["stages"] else kind
    honoured = _HONOURED.get(kind, flags.keys() - {"stages"})
    for option in context.command.get_params(context):
        name = option.name or ""
        if name in flags and name not in honoured and options.is_given(context, name):
            flag = max(option.opts, key=len)
            raise click.UsageError(f"{flag} has no effect {f'with {kind}' if kind else 'here: it is for `show`'}")
    if flags["as_json"] and options.is_given(context, "columns"):
        raise click.UsageError("--columns has no effect with --json")


def _key(name: str) -> str:
    return name.replace("-", "_")


def _store(flags: Mapping[str, Any]) -> Store:
    from calipers.runs.store import Store

    return Store(flags["store"])


def _options(flags: Mapping[str, Any]) -> SweepOptions:
    from calipers.sweeps.records import SweepOptions

    return options.make(SweepOptions, flags)


def _init(folder: Path, registry: Path, force: bool) -> None:
    from calipers.sweeps.init import make_registry

    options.check_output(registry, force)
    options.write_output(registry, make_registry(folder).rstrip())
    options.echo_lines(f"{registry}: edit it, then: calipers sweep {registry} --dry-run")


def _check(registry: Path, *, as_json: bool) -> None:
    from calipers.rendering.document import to_json
    from calipers.rendering.numbers import count
    from calipers.sweeps.registry import check_registry

    entries, problems = check_registry(registry)
    if as_json:
        options.echo_json(to_json({"problems": [str(problem) for problem in problems], "notes": list(entries.notes)}))
    if problems:
        for problem in problems if not as_json else ():
            options.echo_lines(str(problem))
        raise click.UsageError(f"{registry} has {count('problem', len(problems))}")
    if as_json:
        return
    for note in entries.notes:
        options.echo_lines(f"note: {note}", err=True)
    options.echo_lines(
        f"{registry}: {count('model', len(entries.models))}, {count('task', len(entries.tasks))}, no problem"
    )


def _run(registry: Path, flags: Mapping[str, Any]) -> Sweep:
    from calipers.sweeps.api import sweep as run

    retried = flags["retry_failed"]
    classes = None if retried is None else [] if retried == "all" else [retried]
    store = _store(flags)
    with _live() as watch:
        return run(registry, options=_options(flags), retry_failed=classes, store=store, watch=watch)


@contextmanager
def _live() -> Iterator[Callable[[SweepStatus], None]]:
    """The state of the sweep on standard error: drawn anew on a terminal, now and then a line in a log."""
    console = options.consoles()[1]
    last = [0.0, -1.0]
    if not console.is_terminal:

        def log(status: SweepStatus) -> None:
            ended = status.done + status.failed
            if ended != last[1] and time.monotonic() - last[0] > _QUIET:
                last[:] = [time.monotonic(), ended]
                options.echo_lines(f"calipers: {status}", err=True)

        yield log
        return
    from rich.live import Live

    from calipers.sweeps.live import live_table

    with Live(console=console, refresh_per_second=4, transient=True) as live:
        yield lambda status: live.update(live_table(status))


def _emit(made: Sweep, flags: Mapping[str, Any]) -> None:
    from calipers.rendering import markdown
    from calipers.sweeps import formats, text

    show = text.show_classic if flags["columns"] == "classic" else text.show_sweep
    makers = {"html": formats.to_html, "junit": formats.to_junit, "csv": formats.to_csv}

    def write(name: str) -> None:
        options.write_output(flags[name], makers[name](made).rstrip("\n"))

    others: list[Callable[[], None]] = [partial(write, name) for name in makers if flags[name]]
    if flags["markdown"]:
        others.append(lambda: markdown.append(flags["markdown"], formats.to_markdown(made)))
    options.emit(made.to_dict(), flags, lambda out: show(out, made), *others, code=made.exit_code)


def _dry_run(registry: Path, flags: Mapping[str, Any]) -> None:
    from calipers.rendering.document import to_json
    from calipers.sweeps.api import look_ahead
    from calipers.sweeps.text import show_plan

    ahead = look_ahead(registry, _options(flags), _store(flags))
    if flags["as_json"]:
        options.echo_json(to_json(ahead.to_dict()))
    else:
        show_plan(options.consoles()[0], ahead)


def _status(registry: Path, flags: Mapping[str, Any]) -> None:
    from calipers.rendering.document import to_json
    from calipers.sweeps.api import queue_rows
    from calipers.sweeps.text import show_status

    rows = queue_rows(registry, _store(flags))
    if flags["as_json"]:
        options.echo_json(to_json([vars(row) for row in rows]))
    else:
        show_status(options.consoles()[0], rows)


def _show_last(registry: Path, flags: Mapping[str, Any]) -> None:
    from calipers.sweeps.api import last_sweep

    store = _store(flags)
    if flags["stages"]:
        _show_stages(registry, flags)
        return
    _emit(last_sweep(registry, store), flags)


def _show_stages(registry: Path, flags: Mapping[str, Any]) -> None:
    from calipers.rendering.document import to_json
    from calipers.sweeps.stages import show_stages, stage_tables

    with options.progress_bar() as progress:
        tables = stage_tables(registry, _options(flags), _store(flags), progress)
    if flags["as_json"]:
        options.echo_json(to_json([table.to_dict() for table in tables]))
    else:
        show_stages(options.consoles()[0], tables)
