"""The command line. Errors become one sentence and an exit code here, and nowhere else."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import warnings
from collections import UserDict
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib import import_module
from typing import Any

import click

from calipers import __version__
from calipers.cli import streams

# Modules that hold a command of their name.
_MODULES = ("compare", "build", "attribute", "diagnose", "trust", "serve", "drift", "parity", "sweep", "runs", "report")
_HOMES = {name: f"{name}:{name}" for name in _MODULES}
_HOMES |= {
    "eval": "eval:eval_",
    "tasks": "info:tasks",
    "doctor": "info:doctor",
    "demo": "info:demo",
    "schema": "info:schema",
}

_ASSIGNMENT = re.compile(r"[a-z][a-z0-9_]*=.*", re.DOTALL)


class _Commands(UserDict[str, Any]):
    """Only the requested command is imported."""

    def __getitem__(self, name: str) -> click.Command:
        module, attribute = super().__getitem__(name).split(":")
        command: click.Command = getattr(import_module(f"calipers.cli.{module}"), attribute)
        return command


@click.group(
    commands=_Commands(_HOMES), context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="calipers")
@click.option("--debug", is_flag=True, help="Show the traceback of an error. Works anywhere on the line.")
@click.option(
    "--input-limit",
    multiple=True,
    metavar="NAME=N",
    help="Raise a limit on inputs, as an error names it: line=64M. Works anywhere on the line.",
)
def app(debug: bool, input_limit: tuple[str, ...]) -> None:
    """Measure text encoders before they ship.

    \b
    How good is it?         calipers eval MODEL --dataset pairs.csv
    Did I break it?         calipers compare BASELINE CANDIDATE
    Make the artifacts      calipers build MODEL --precision w8a8 -o DIR
    Which step broke it?    calipers attribute MODEL --precision w8a8 --fix
    All models, every night calipers sweep registry.yaml
    Is the server the same? calipers parity ./model http://localhost:8080
    Can I trust a result?   calipers trust MODEL --corpus C QUERY
    The same over HTTP      calipers serve --trust FILE
    Has the traffic moved?  calipers drift MODEL --reference A --current B
    Why does search fail?   calipers diagnose MODEL --dataset FOLDER --html report.html
    What can be measured?   calipers tasks
    What did I measure?     calipers runs list
    See it work             calipers demo

    A MODEL is a folder, an .onnx file, a hub id, an .npy or .parquet of vectors, or an http address.

    Exit codes: 0 done, 1 a regression, 2 the request or the data is wrong, 3 the model cannot be loaded,
    4 inference failed, 5 inconclusive, 130 interrupted.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point of the `calipers` command."""
    line = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in line or bool(os.environ.get("CALIPERS_DEBUG"))
    outlets = streams.open_outlets()
    with streams.capture_native(show=debug):
        if not debug:  # a sentence of ours is all that a user reads of a fault
            if not sys.warnoptions:
                warnings.simplefilter("ignore")
            logging.getLogger().addHandler(logging.NullHandler())  # else Python prints what libraries log
        code = run([word for word in line if word != "--debug"], debug=debug)
    sys.exit(streams.close_outlets(outlets, code, as_json="--json" in line))


def run(line: Sequence[str], *, debug: bool = False) -> int:
    """Run a command line and return its exit code. With `--json` on the line, errors are JSON as well."""
    fail = partial(_fail, line=line, debug=debug)
    try:
        rest, raised = take_flag(line, "--input-limit")
        with _limited(raised):
            code = app.main(args=spread_columns(rest), prog_name="calipers", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except click.ClickException as error:
        context = getattr(error, "ctx", None)  # of a usage error
        where = f" (see {context.command_path} --help)" if context else ""
        return fail(_describe(error) + where, 2)
    except (click.Abort, KeyboardInterrupt):
        return fail("interrupted", 130, debug=False)
    except (SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # a panic of a library in Rust is no Exception; it must not look like a verdict
        code = getattr(error, "exit_code", None)
        if isinstance(code, int):
            return fail(str(error), code)
        from calipers.core.errors import explain

        if isinstance(error, OSError) and error.filename is not None:  # of a file that the request names, or leads to
            return fail(f"{os.fsdecode(error.filename)} cannot be used: {error.strerror}", 2)
        if isinstance(error, MemoryError):
            return fail(f"the command cannot go on: {explain(error)}", 4)
        return fail(f"unexpected {type(error).__name__}: {explain(error)} (--debug shows where)", 4)


def take_flag(line: Sequence[str], flag: str) -> tuple[list[str], list[str]]:
    """The line without a flag that may stand anywhere, and the values of that flag.

    >>> take_flag(["eval", "--input-limit", "line=2", "x", "--input-limit=columns=3"], "--input-limit")
    (['eval', 'x'], ['line=2', 'columns=3'])
    """
    rest: list[str] = []
    values: list[str] = []
    words = iter(line)
    for word in words:
        if word == flag:
            values.append(next(words, ""))
        elif word.startswith(f"{flag}="):
            values.append(word.removeprefix(f"{flag}="))
        else:
            rest.append(word)
    return rest, values


def _limited(pairs: Sequence[str]) -> AbstractContextManager[None]:
    """Limits on inputs as the line sets them; nothing is imported where it sets none."""
    if not pairs:
        return nullcontext()
    from calipers.core.inputs import limited, read_limits

    return limited(**read_limits(pairs))


def _describe(error: click.ClickException) -> str:
    """The message, with the nearest options or commands first: click sorts them by the alphabet, and names no
    command."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None:
        return error.format_message()
    if isinstance(error, click.NoSuchOption):
        kind, word = "option", error.option_name
        words = [name for p in context.command.get_params(context) for name in (*p.opts, *p.secondary_opts)]
    elif isinstance(context.command, click.Group) and error.message.startswith("No such command '"):
        kind, word, words = "command", error.message.split("'")[1], context.command.list_commands(context)
    else:
        return error.format_message()
    import difflib

    near = difflib.get_close_matches(word, words, n=2, cutoff=0.7)
    hint = f". Did you mean {' or '.join(near)}?" if near else ""
    return f"No such {kind}: {word if kind == 'option' else repr(word)}{hint}"


def spread_columns(line: Sequence[str]) -> list[str]:
    """`--column a=b c=d` means `--column a=b --column c=d`.

    >>> spread_columns(["--column", "a=b", "c=d", "-m", "x=y"])
    ['--column', 'a=b', '--column', 'c=d', '-m', 'x=y']
    """
    spread: list[str] = []
    within = False
    for word in line:
        if within and spread[-1] != "--column" and _ASSIGNMENT.fullmatch(word):
            spread.append("--column")
        spread.append(word)
        within = word == "--column" or (within and bool(_ASSIGNMENT.fullmatch(word)))
    return spread


def _fail(message: str, code: int, *, line: Sequence[str], debug: bool) -> int:
    """Print what went wrong: one line without control characters, logins and keys, short unless debugging. With --json
    on the command's line it is JSON."""
    from calipers.core.errors import printable, shorten_sentence
    from calipers.core.references import hide

    sentence = printable(hide(message.replace("`input_limit`", "--input-limit"), line))
    if debug:
        import traceback

        streams.show_lines(hide(traceback.format_exc(), line))
    else:
        sentence = shorten_sentence(sentence)
    if "--json" in line:
        flag = re.search(r"(?<![\w-])--?[a-z][a-z-]*", sentence.partition(" (see ")[0])
        error = {"error": sentence, "option": flag[0] if flag else None, "exit": code}
        click.echo(streams.printable_json(json.dumps(error, ensure_ascii=False), sys.stderr.encoding), err=True)
    else:
        click.echo(f"calipers: {sentence}", err=True)
    return code
