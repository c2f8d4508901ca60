"""Commands whose flags stand in groups and are made when they are needed, and the flags that errors name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import click

SOURCES = "__flag_sources__"  # on a command's function: what makes its flags, in order
_PLAIN = "calipers.plain"  # in the notes that all contexts share: the one whose line has none of the rare flags


class FlagSource(NamedTuple):
    """What makes some flags of a command, once. Rare ones are made where the line has a flag that is no other's."""

    make: Callable[[], Sequence[click.Parameter]]
    rare: bool


def is_plain(context: click.Context) -> bool:
    """Whether none of the rare flags is on the command's line, so that they were not made."""
    return context.meta.get(_PLAIN) is context


class GroupedOption(click.Option):
    """A flag under a heading. `field` is the option field that it fills, as `Record.name`."""

    def __init__(self, *args: Any, group: str = "Options", field: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.group = group
        self.field = field


class GroupedCommand(click.Command):
    """A command whose help lists its flags under headings.

    Its flags are made when they are needed: `calipers --help` lists all commands and reads no record of options, and a
    line without flags of tasks imports no task for them. An error of the library that names a parameter in backticks
    names its flag instead.
    """

    _every: list[click.Parameter] | None

    @property
    def params(self) -> list[click.Parameter]:
        """All of them, the rare ones too; one list, since click puts its own flag for help there and takes it out."""
        if self._every is None:
            self._every = self._make(rare=True)
        return self._every

    @params.setter
    def params(self, arguments: list[click.Parameter]) -> None:
        self._arguments = arguments
        self._every = None

    def _make(self, *, rare: bool) -> list[click.Parameter]:
        sources: Sequence[FlagSource] = self.callback.__dict__.get(SOURCES, ())
        return [*self._arguments, *(flag for source in sources if rare or not source.rare for flag in source.make())]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        usual = {name for flag in self._make(rare=False) for name in (*flag.opts, *flag.secondary_opts)}
        words = (word.partition("=")[0] for word in args if word.startswith("-"))
        if not ctx.resilient_parsing and all(word in usual for word in words):  # else a shell asks for completions
            ctx.meta[_PLAIN] = ctx
        return super().parse_args(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """A line that asks for help is not plain."""
        return self._make(rare=False) if is_plain(ctx) else super().get_params(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record and not isinstance(parameter, click.Argument):  # the usage line names those
                groups.setdefault(getattr(parameter, "group", "Other"), []).append(record)
        for name, records in groups.items():
            with formatter.section(name):
                formatter.write_dl(records)

    def invoke(self, ctx: click.Context) -> Any:
        from calipers.core.errors import CalipersError

        try:
            return super().invoke(ctx)
        except CalipersError as error:
            error.args = (name_flags(str(error), self.params), *error.args[1:])
            raise


def name_flags(message: str, parameters: Sequence[click.Parameter]) -> str:
    """The message with flags in the place of the parameters that it names in backticks.

    >>> name_flags("`at_k` must be at least 1; see `docs`", [GroupedOption(["--at-k"])])
    '--at-k must be at least 1; see `docs`'
    """
    options = {p: max(p.opts, key=len) for p in parameters if isinstance(p, click.Option)}
    by_field = {p.field: flag for p, flag in options.items() if isinstance(p, GroupedOption)}
    flags = by_field | {field.rpartition(".")[2]: flag for field, flag in by_field.items()}
    flags |= {p.name: flag for p, flag in options.items() if p.name}  # a flag's own name comes before a field
    return re.sub(r"`([\w.]+)`", lambda match: flags.get(match[1], match[0]), message)
