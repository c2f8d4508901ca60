"""The library is equal to the command: a function for each, every type of its signature public."""

from __future__ import annotations

import doctest
import inspect
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import calipers
from calipers.cli import app

# Command → its function. The others look things up or show them.
FUNCTIONS = {
    "eval": "evaluate",
    "serve": "serve",
    **{
        name: name
        for name in ("compare", "build", "attribute", "diagnose", "trust", "drift", "parity", "sweep", "report")
    },
}
LOOKING = {"schema", "tasks", "runs", "demo", "doctor"}


def parts(annotation: Any) -> Iterator[type]:
    """The classes that an annotation is made of."""
    for part in typing.get_args(annotation):
        yield from parts(part)
    if isinstance(annotation, type):
        yield annotation
    elif isinstance(typing.get_origin(annotation), type):
        yield typing.get_origin(annotation)  # type: ignore[misc]


def test_every_command_that_does_work_has_its_function() -> None:
    assert set(app.commands) == {*FUNCTIONS, *LOOKING}
    for name in FUNCTIONS.values():
        assert inspect.isfunction(getattr(calipers, name)), name


@pytest.mark.parametrize("name", [*FUNCTIONS.values(), "load_model", "load_dataset"])
def test_every_type_of_a_signature_is_public(name: str) -> None:
    hints = typing.get_type_hints(getattr(calipers, name))
    ours = {part for hint in hints.values() for part in parts(hint) if part.__module__.startswith("calipers.")}
    assert ours, f"{name} says nothing about its types"
    assert {part.__name__ for part in ours if getattr(calipers, part.__name__, None) is not part} == set()


# `serve` does not return, so what it shows is no example to run; tests/service runs it.
@pytest.mark.parametrize("name", [name for name in FUNCTIONS.values() if name != "serve"])
def test_a_function_shows_a_call_and_its_output(name: str) -> None:
    examples = doctest.DocTestParser().get_examples(inspect.getdoc(getattr(calipers, name)) or "")
    assert any(f"{name}(" in example.source for example in examples)
    assert any(example.want for example in examples)
    assert not any(doctest.SKIP in example.options for example in examples)


def test_every_public_name_can_be_imported_and_every_error_is_one() -> None:
    for name in calipers.__all__:
        assert getattr(calipers, name) is not None
    from calipers.core import errors

    classes = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert classes <= set(calipers.__all__)


def test_the_static_and_the_lazy_names_are_the_same() -> None:
    source = Path(calipers.__file__).read_text(encoding="utf-8")
    static = set(re.findall(r"\b(\w+) as \1\b", source))
    assert static == set(calipers.__all__)


def test_packages_do_not_take_the_names_of_functions() -> None:
    packages = {path.name for path in Path(calipers.__file__).parent.iterdir()}
    assert packages.isdisjoint({*FUNCTIONS.values(), *(f"{name}.py" for name in FUNCTIONS.values())})
