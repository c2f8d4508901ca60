"""Flags that several commands share, in groups, and the records they fill.

Nothing heavy is imported up here: `calipers --help` must stay quick.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

import click

from calipers.cli.grouped import SOURCES, FlagSource, GroupedOption, is_plain, name_flags
from calipers.cli.streams import printable_json

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from rich.console import Console

    from calipers.core import Progress
    from calipers.data import DataOptions
    from calipers.models import ModelOptions
    from calipers.runs.protocol import Protocol
    from calipers.runs.store import Store
    from calipers.runs.vector_cache import VectorCache

Decorator = Callable[[Any], Any]
Record = TypeVar("Record")


def made_by(source: Callable[[], Sequence[click.Parameter]], *, rare: bool = False) -> Decorator:
    """Flags of a command that are made when they are needed, rare ones where the line has a flag that is no other's."""

    def decorate(function: Any) -> Any:
        function.__dict__.setdefault(SOURCES, []).insert(0, FlagSource(cache(source), rare))
        return function

    return decorate


def option(group: str, *names: str, choices: str | None = None, **settings: Any) -> Decorator:
    """A flag of a command itself. `choices` names a list of `calipers.core.choices`."""

    def source() -> list[click.Parameter]:
        if choices:
            settings["type"] = click.Choice(_import(f"core.choices:{choices}"))
        return [GroupedOption(names, group=group, **settings)]

    return made_by(source)


class HomePath(click.Path):
    """A path in which a leading ~ is the user's home folder: a shell does not expand it in `--store=~/runs`."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if param is not None and param.metavar == "FILE" and str(value).endswith(("/", os.sep)):
            raise click.UsageError(f"{max(param.opts, key=len)} {value} names a folder: expected a file")
        return Path(os.path.expanduser(os.fsdecode(super().convert(value, param, ctx))))


def file_option(group: str, *names: str, metavar: str = "FILE", **settings: Any) -> Decorator:
    """A flag that names a file or a folder."""
    return option(group, *names, metavar=metavar, type=HomePath(), **settings)


def flags(
    record: str, *, only: Sequence[str] = (), without: Sequence[str] = (), group: str | None = None, **changes: str
) -> Decorator:
    """The flags of an options record, named "module:Class"; `changes` are new help texts by field."""

    def source() -> list[GroupedOption]:
        from calipers.core.options import flag_names

        owner = _import(record)
        names = [name for name in flag_names(owner) if name not in without and (not only or name in only)]
        return [_flag(owner, name, group, changes.get(name)) for name in names]

    return made_by(source)


def _import(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(import_module(f"calipers.{module}"), attribute)


def _flag(record: Any, name: str, group: str | None, help: str | None = None) -> GroupedOption:
    """One flag: its click type follows from the field's type, and a default that says something is shown."""
    from calipers.core.options import flag_names, options_of

    described, kind = options_of(record)[name], _types(record)[name]
    default = next(field.default for field in fields(record) if field.name == name)
    kinds = {k for k in (get_args(kind) or (kind,)) if k not in (type(None), Ellipsis)}
    flag = described.flag or f"--{name.replace('_', '-')}"
    settings: dict[str, Any] = {"default": default, "help": help or described.help, "metavar": described.metavar}
    if bool in kinds:
        if described.off:
            flag = f"{flag}/{described.off}"
        else:
            settings["is_flag"] = True
    elif described.choices:
        settings["type"] = click.Choice(described.choices)
    else:
        settings["type"] = next(
            (k for k in (int, float) if k in kinds and str not in kinds), HomePath() if Path in kinds else str
        )
    if get_origin(kind) is tuple:
        settings |= {"multiple": True, "default": ()}
    settings["show_default"] = default is not None and bool not in kinds and "Default:" not in settings["help"]
    names = [*([described.short] if described.short else []), flag, flag_names(record)[name]]
    return GroupedOption(names, group=group or described.group, field=f"{record.__name__}.{name}", **settings)


@cache
def _types(record: Any) -> dict[str, Any]:
    return get_type_hints(record)


def make(record: type[Record], values: Mapping[str, Any], **others: Any) -> Record:
    """An options record from a command's flags; `others` are its fields that are no flags."""
    from calipers.core.options import flag_names

    names = flag_names(record).items()
    return record(**{name: values[key] for name, key in names if key in values}, **others)


def apply(*decorators: Decorator) -> Decorator:
    def decorate(function: Any) -> Any:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


DATA_FLAGS = apply(
    option(
        "Data",
        "--dataset",
        metavar="D",
        help="A file (jsonl, json, csv, tsv, parquet, txt), a folder of them, or a hub id. Default: the task's own.",
    ),
    flags("data:DataOptions"),
    option(
        "Data",
        "--column",
        "columns",
        multiple=True,
        metavar="KEY=NAME …",
        help="Which column is which, e.g. input_column_1=premise score_column=label.",
    ),
)


def _flags_of_all(records: Mapping[str, Any], group: str, without: Sequence[str] = ()) -> list[GroupedOption]:
    """The options of several tasks or layers, by their names. An option that several have is one flag, whose help says
    which have it. The default is None, so that only what is on the command line reaches them."""
    made = []
    for name, owners in _owners(records, without).items():
        flag = _flag(records[owners[0]], name, group)
        default = f" Default: {flag.default}." if flag.show_default else ""
        flag.help = f"{', '.join(owners)}: {flag.help}{default}"
        flag.default, flag.show_default = None, False
        made.append(flag)
    return made


def _owners(records: Mapping[str, Any], without: Sequence[str] = ()) -> dict[str, list[str]]:
    """The options of the records by name, each with the names of the records that have it."""
    from calipers.core.options import flag_names

    owners: dict[str, list[str]] = {}
    for owner, record in records.items():
        for name in flag_names(record):
            if name not in without:
                owners.setdefault(name, []).append(owner)
    return owners


def _task_records() -> dict[str, Any]:
    from calipers.tasks import TASKS

    return {task.name: task.options for task in TASKS}


def _layer_records() -> dict[str, Any]:
    from calipers.diagnosis.layers import LAYERS

    return {name: layer.options for name, layer in LAYERS.items()}


DIAGNOSIS_OWN = ("seed", "confidence", "resamples")  # options of layers that a diagnosis sets for all of them
LAYER_FLAGS = made_by(lambda: _flags_of_all(_layer_records(), "Layers", DIAGNOSIS_OWN))
TASK_FLAGS = made_by(lambda: _flags_of_all(_task_records(), "Task"), rare=True)

_RUNNING = ("device", "provider", "batch_tokens", "batch_size", "threads", "timeout", "sandbox")
MODEL_FLAGS = flags("models:ModelOptions", without=_RUNNING)
RUN_FLAGS = flags("models:ModelOptions", only=_RUNNING)

FORCE_FLAG = option("Output", "--force", is_flag=True, help="Overwrite files that are there already.")
JSON_FLAG = option("Output", "--json", "as_json", is_flag=True, help="Print the JSON document and nothing else.")
STORE_FLAG = file_option(
    "Output",
    "--store",
    metavar="DIR",
    help="Where runs and vectors are kept. Default: CALIPERS_STORE, or the user's data folder.",
)
MARKDOWN_FLAG = file_option(
    "Output", "--markdown", help="Append a summary. Default: the file that GITHUB_STEP_SUMMARY names, if it is set."
)
GROUP_FLAG = option(
    "Output",
    "--group-by",
    multiple=True,
    metavar="COLUMN",
    help="Metrics by group, too: a column of the data, or language, length, head-tail, category. May be repeated; no "
    "exit code depends on it.",
)
OUTPUT_FLAGS = apply(
    file_option("Output", "-o", "--output", help="Write the JSON document to a file."),
    FORCE_FLAG,
    JSON_FLAG,
    STORE_FLAG,
    option("Output", "--no-store", is_flag=True, help="Keep nothing."),
)

_CACHE_SIZE = 10.0  # GB
_LARGEST_CACHE = 1_000_000
CACHE_FLAGS = apply(
    option("Output", "--no-cache", is_flag=True, help="Keep no vectors, and use none that were kept."),
    option(
        "Output",
        "--cache-size",
        type=float,
        metavar="GB",
        help=f"Of all kept vectors. Default: {_CACHE_SIZE:g}.",
    ),
)


def model_options(values: Mapping[str, Any]) -> ModelOptions:
    from calipers.models import ModelOptions

    return make(ModelOptions, values)


def data_options(values: Mapping[str, Any]) -> DataOptions:
    from calipers.data import DataOptions

    return make(DataOptions, values)


def task_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """What the command line sets for the task; the task decides which of it is its own."""
    if is_plain(click.get_current_context()):
        return {}
    return {name: values.get(name) for name in _owners(_task_records())}


def layer_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """What the command line sets for the layers of a diagnosis."""
    return {name: values.get(name) for name in _owners(_layer_records(), DIAGNOSIS_OWN)}


def protocol(values: Mapping[str, Any]) -> Protocol:
    """What both sides of a comparison are measured on."""
    from calipers.runs.protocol import Protocol

    return Protocol(
        task=values["task"],
        task_options=task_options(values),
        dataset=values["dataset"],
        columns=column_mapping(values["columns"]),
        model_options=model_options(values),
        data_options=data_options(values),
    )


def column_mapping(pairs: Sequence[str]) -> dict[str, str]:
    named: dict[str, str] = {}
    for key, name in split_pairs("--column", "KEY=NAME", pairs):
        if key in named:
            raise click.UsageError(f"--column {key}=… is given twice")
        named[key] = name
    return named


def split_pairs(flag: str, form: str, pairs: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The two sides of each `KEY=VALUE` that a flag takes."""
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise click.UsageError(f"{flag} must be {form}, found {pair!r}")
        yield key, value


def open_store(folder: Path | None, no_store: bool) -> Store | None:
    from calipers.runs.store import Store

    if no_store and folder:
        raise click.UsageError("--store and --no-store exclude each other: give one of them")
    return None if no_store else Store(folder)


def vector_cache(store: Store | None, flags: Mapping[str, Any]) -> VectorCache | None:
    """Vectors are kept beside the runs; None where nothing is to be kept."""
    from calipers.runs.vector_cache import VectorCache

    size = flags["cache_size"]
    if size is not None and not 1e-9 <= size <= _LARGEST_CACHE:
        raise click.UsageError(f"--cache-size must be above 0 and at most {_LARGEST_CACHE:,} GB, found {size}")
    if store is None or flags["no_cache"]:
        if flags["cache_size"] is not None:
            raise click.UsageError("--cache-size has no effect where no vectors are kept")
        return None
    return VectorCache(store.folder / "vectors", int((flags["cache_size"] or _CACHE_SIZE) * 1e9))


def is_given(context: click.Context, name: str) -> bool:
    """Whether the command line sets this parameter."""
    return context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def check_outputs(values: Mapping[str, Any], *names: str) -> None:
    """Before any work: will what these flags name have a place to go?"""
    for path in (values[name] for name in names):
        if path:
            check_output(path, values["force"])


def check_output(path: Path, force: bool) -> None:
    from calipers.core.files import check_place

    if why := check_place(path):
        raise click.UsageError(f"{path} cannot be written: {why}")
    if path.is_file() and not force:
        raise click.UsageError(f"{path} exists already: pass --force to overwrite it")


def write_output(path: Path, content: str) -> None:
    from calipers.core.files import write_whole

    try:
        write_whole(path, content + "\n")
    except OSError as error:
        raise click.UsageError(f"{path} cannot be written: {error.strerror}") from error


def emit(
    document: Mapping[str, Any],
    values: Mapping[str, Any],
    show: Callable[[Console], None],
    *others: Callable[[], None],
    code: int = 0,
    last: str | None = None,
) -> None:
    """The JSON document on standard output, or what `show` prints and the `last` line; then into the file of
    `--output`; then the others.

    A file that cannot be written costs nothing else: all others are, and it is an error at the end. Next to an exit
    code of the work itself it is a message.
    """
    from calipers.core import RequestError
    from calipers.rendering.document import to_json

    content = to_json(document)
    if values["as_json"]:
        echo_json(content)
    else:
        show(consoles()[0])
        if last:
            echo_lines(name_flags(last, click.get_current_context().command.params))
    output = values.get("output")
    failures = []
    for write in (*([lambda: write_output(output, content)] if output else []), *others):
        try:
            write()
        except (click.UsageError, RequestError) as error:
            failures.append(str(error))
    for failure in failures if code else failures[1:]:
        echo_lines(f"calipers: {failure}", err=True)
    if failures and not code:
        raise click.UsageError(failures[0])


def summarise(summary: str, path: Path | None) -> None:
    """Append to the requested file, else to the summary of a CI job. The latter was not requested: if it cannot be
    written, that is a message and no failure."""
    from calipers.core import RequestError
    from calipers.rendering import markdown

    job = os.environ.get("GITHUB_STEP_SUMMARY")
    if not (path or job):
        return
    try:
        markdown.append(path or Path(str(job)), summary)
    except RequestError as error:
        if path:
            raise
        echo_lines(f"calipers: the summary of the job is skipped: {error}", err=True)


def echo_lines(content: str, *, err: bool = False) -> None:
    """Print lines that may hold names and texts of others, without what a terminal would obey."""
    from calipers.core.errors import printable_lines

    click.echo(printable_lines(content), err=err)


def echo_json(content: str) -> None:
    """Print a JSON document, escaped where standard output cannot hold its characters."""
    click.echo(printable_json(content))


def progress_bar() -> AbstractContextManager[Progress]:
    """On standard error. Where that is a log, long work writes a line now and then, except beside a JSON document,
    whose readers expect JSON there, too."""
    from calipers.rendering.progress import bar

    return bar(consoles()[1], logs=not click.get_current_context().params.get("as_json"))


def consoles() -> tuple[Console, Console]:
    """Standard output and standard error."""
    from rich.console import Console

    return Console(highlight=False), Console(stderr=True, highlight=False)
