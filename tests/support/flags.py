"""Every flag of a command line, tried one by one: does it change the record of the run, or is it refused?

The flags are read from the commands, so that a new one is covered by itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from calipers import cli
from calipers.cli.options import HomePath

# What cannot show in a record, and why that is no fault.
NEUTRAL = {
    "as_json": "how the record is shown",
    "force": "whether a file may be overwritten",
    "store": "where runs are kept",
    "no_store": "whether they are",
    "no_cache": "whether vectors are kept",
    "cache_size": "how many of them",
    "threads": "speed alone: results do not depend on it",
    "fresh": "whether a stored run answers",
    "fail_on": "the exit code of a label that is AT_RISK or INCONCLUSIVE, which these runs do not have",
    "allow_pickle": "a permission that these models do not need",
    "trust_remote_code": "a permission that these models do not need",
    "accept_differences": "a permission that these builds do not need",
    "sandbox": "where a model is loaded: results do not depend on it",
    "place": "where runs are kept",
    "dry_run": "whether what would be done is done",
    "repair": "whether what is damaged is removed",
}
# Keys that differ from run to run.
PASSING = (
    "created", "run", "run_id", "timing", "request", "environment", "seconds", "model_path", "speed", "bytes", "size",
    "work", "sha256", "machine", "latency", "speedup",
)  # fmt: skip
_RATIO = re.compile(r",? [\d.]+ × as (fast|slow)")  # of two medians, in a sentence
_ON_SPEED = re.compile(r"\b(slower|no faster) than\b")  # remarks that depend on the load of the machine
NEW = "NEW-FOLDER"  # in a line: a folder that each run of it gets anew

Record = tuple[int, Any, str]  # exit code, what was printed, message


@dataclass(frozen=True)
class Walker:
    """Runs command lines. `values` are what an option may be given, by its name, where its type does not suggest it."""

    folder: Path
    values: Mapping[str, Sequence[str]]
    printed: Callable[[], tuple[str, str]]

    def ignored(self, line: Sequence[str]) -> list[str]:
        """The flags of the line's command that it takes without an effect. The line itself must work, and give the
        same record twice: a record that differs by itself proves nothing."""
        before = self.record(line)
        assert before[0] in (0, 1, 5), before[2]
        differences = list(differing(before[:2], self.record(line)[:2]))
        assert not differences, f"{differences[:3]} differ from run to run: that would hide ignored flags"
        given = {word.partition("=")[0] for word in line if word.startswith("-")}
        tried = [o for o in flags_of(line) if o.name not in NEUTRAL and not given & {*o.opts, *o.secondary_opts}]
        return [max(option.opts, key=len) for option in tried if not self._counts(line, option, before)]

    def record(self, line: Sequence[str]) -> Record:
        number = sum(1 for _ in self.folder.glob("new-*"))
        fresh = self.folder / f"new-{number}"
        if NEW in line:
            fresh.mkdir()
        words = [str(fresh / "made") if word == NEW else word for word in line]
        flags = {name for option in flags_of(line) for name in option.opts}
        code = cli.run([*words, *(["--json"] if "--json" in flags and "--json" not in words else [])])
        out, err = self.printed()
        out = out.replace(str(fresh), "")
        try:
            return code, strip(json.loads(out)), err
        except ValueError:
            return code, out, err

    def _counts(self, line: Sequence[str], option: click.Option, before: Record) -> bool:
        return any(self._has_effect([*line, *words], option, before) for words in self._probes(option))

    def _has_effect(self, line: Sequence[str], option: click.Option, before: Record) -> bool:
        """Whether the line is refused in one sentence, gives another record, or writes the file that it names."""
        code, after, message = self.record(line)
        if code in (2, 3):
            assert message.count("\n") == 1, message
            return True
        file = Path(line[-1]) if isinstance(option.type, HomePath) else None
        return (code, after) != before[:2] or bool(file and file.exists())

    def _probes(self, option: click.Option) -> Iterator[list[str]]:
        if option.is_flag or option.secondary_opts:
            names = [max(option.opts, key=len)] if option.default is not True else []
            for name in (*names, *option.secondary_opts):
                yield [name]
        else:
            for value in self._values(option):
                yield [max(option.opts, key=len), value]

    def _values(self, option: click.Option) -> Sequence[str]:
        """Values that this option has not by itself: what it is given here, or what its type allows."""
        if option.name in self.values:
            return self.values[option.name]
        if isinstance(option.type, click.Choice):
            return [choice for choice in option.type.choices if choice != option.default]
        if isinstance(option.type, HomePath):
            return [str(self.folder / f"out-{option.name}")]
        number = option.default if isinstance(option.default, (int, float)) else None
        if isinstance(option.type, (click.IntRange, type(click.INT))):
            return ["3", "7", "1"] if number is None else [str(number + 1), "1"]
        if isinstance(option.type, (click.FloatRange, type(click.FLOAT))):
            return [str(0.5 if not number else 0.9 * number)]
        return ["x "]


def flags_of(line: Sequence[str]) -> list[click.Option]:
    """Of the command that a line begins with."""
    app = click.Context(cli.app, **cli.app.context_settings)  # a command keeps the help flags of its first context
    command: Any = cli.app.get_command(app, line[0])
    if isinstance(command, click.Group):
        command = command.get_command(click.Context(command, parent=app), line[1])
    options = [
        option for option in command.get_params(click.Context(command, parent=app)) if isinstance(option, click.Option)
    ]
    return [option for option in options if "--help" not in option.opts]


def strip(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: strip(inner) for key, inner in value.items() if key not in PASSING}
    if isinstance(value, list):
        return [strip(inner) for inner in value if not (isinstance(inner, str) and _ON_SPEED.search(inner))]
    return _RATIO.sub("", value) if isinstance(value, str) else value


def differing(a: Any, b: Any, place: str = "") -> Iterator[str]:
    """Where two documents differ."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in {**a, **b}:
            yield from differing(a.get(key), b.get(key), f"{place}.{key}")
    elif isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and len(a) == len(b):
        for number, pair in enumerate(zip(a, b, strict=True)):
            yield from differing(*pair, f"{place}[{number}]")
    elif a != b:
        yield place
