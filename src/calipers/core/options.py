"""Options: records whose fields carry their help, their group and their limits.

The command line is generated from them (`cli/options.py`), so that a new option is one line in one file:

>>> from dataclasses import dataclass
>>> @dataclass(frozen=True)
... class SearchOptions(Options):
...     k: int = option(10, "How many results.", group="Search", at_least=1)
>>> SearchOptions(k=0)
Traceback (most recent call last):
calipers.core.errors.RequestError: `k` must be at least 1, found 0
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any

from calipers.core.errors import RequestError, quote

_KEY = "option"


@dataclass(frozen=True)
class Option:
    """What a field of an options record says about itself. `flag` is its name on the command line where it is not the
    field's own; `off` is the flag that switches a boolean off. Limits hold for numbers, `choices` for texts; None is
    always accepted where it is the default. `needs` are fields without one of which it has no effect."""

    help: str
    group: str
    flag: str | None = None
    off: str | None = None
    short: str | None = None
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    below: float | None = None
    needs: tuple[str, ...] = ()


def option(default: Any, help: str, *, group: str = "Options", **settings: Any) -> Any:
    """A dataclass field with its `Option`. `settings` are the other fields of `Option`."""
    return field(default=default, metadata={_KEY: Option(help, group, **settings)})


def options_of(record: Any) -> dict[str, Option]:
    """The described fields of an options record or its class, by field name."""
    return {f.name: f.metadata[_KEY] for f in fields(record) if _KEY in f.metadata}


def flag_names(record: Any) -> dict[str, str]:
    """The key of each described field among a command's flags: by its flag where it has one of its own.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Hub(Options):
    ...     revision: str = option("", "Which.", flag="--model-revision")
    ...     device: str = option("cpu", "Where.")
    >>> flag_names(Hub)
    {'revision': 'model_revision', 'device': 'device'}
    """
    described = options_of(record).items()
    return {name: option.flag.strip("-").replace("-", "_") if option.flag else name for name, option in described}


def parameter(record: Any, name: str) -> str:
    """How an error names a field: in backticks, with its class where the flag has another name. The command line puts
    the flag in its place."""
    described = options_of(record).get(name)
    owner = record if isinstance(record, type) else type(record)
    return f"`{owner.__name__}.{name}`" if described and described.flag else f"`{name}`"


class Options:
    """The base of options records: it checks every field against what the field declares.

    An option that would be ignored is an error: the user must not believe that it had an effect.
    """

    def __post_init__(self) -> None:
        for name, described in options_of(self).items():
            value = getattr(self, name)
            if value is not None:
                _check(parameter(self, name), value, described)
        for name in self.changed():
            needs = options_of(self)[name].needs
            if needs and not any(getattr(self, other) for other in needs):
                others = " or ".join(parameter(self, other) for other in needs)
                raise RequestError(f"{parameter(self, name)} has no effect without {others}")

    def changed(self) -> tuple[str, ...]:
        """The described fields that are not at their default."""
        defaults = {entry.name: entry.default for entry in fields(self)}  # type: ignore[arg-type]
        return tuple(name for name in options_of(self) if getattr(self, name) != defaults[name])

    def refuse_others(self, who: str, *used: str) -> None:
        """Refuse what is set and not among `used`, which is all that `who` honours."""
        for name in self.changed():
            if name not in used:
                raise RequestError(f"{parameter(self, name)} is not supported for {who}")


def _check(name: str, value: Any, described: Option) -> None:
    if described.choices and value not in described.choices:
        raise RequestError(f"{name} must be one of {', '.join(described.choices)}, found {quote(value)}")
    if described.at_least is not None and not value >= described.at_least:
        raise RequestError(f"{name} must be at least {described.at_least:g}, found {quote(value)}")
    if described.at_most is not None and not value <= described.at_most:
        raise RequestError(f"{name} must be at most {described.at_most:,}, found {quote(value)}")
    low, high = described.above, described.below
    if (low is None or value > low) and (high is None or value < high):
        return
    if low is None or high is None or math.isinf(high):
        limit = f"above {low:g}" if low is not None else f"below {high:g}"
    else:
        limit = f"between {low:g} and {high:g}"
    raise RequestError(f"{name} must be {limit}, found {quote(value)}")
