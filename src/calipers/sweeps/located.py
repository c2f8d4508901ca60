"""YAML and JSON with the line of every value, so that an error can name it."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calipers.core import RequestError
from calipers.core.inputs import load_json, load_yaml, read_text


@dataclass(frozen=True)
class Located:
    """A value of a file: a scalar, a list of Located, or a dict from texts to Located; and the line where it begins."""

    value: Any
    line: int

    def plain(self) -> Any:
        """The value without its lines."""
        if isinstance(self.value, dict):
            return {key: inner.plain() for key, inner in self.value.items()}
        if isinstance(self.value, list):
            return [inner.plain() for inner in self.value]
        return self.value

    def items(self) -> Iterator[tuple[str, Located]]:
        yield from self.value.items()


def read_located(path: Path) -> Located:
    """The content of a YAML or JSON file. Nothing in it is run; a repeated key is an error."""
    import yaml

    # The checks of both are the same everywhere; what they return has no lines.
    try:
        (load_json if path.suffix == ".json" else load_yaml)(path, RequestError)
    except RequestError as error:
        if isinstance(error.__cause__, json.JSONDecodeError):
            raise RequestError(f"{path} line {error.__cause__.lineno}: not JSON: {error.__cause__.msg}") from error
        raise
    text = read_text(path, RequestError).removeprefix("\ufeff")
    if path.suffix == ".json":
        text = text.replace("\t", " ")  # JSON allows tabs between its parts, YAML does not
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            raise RequestError(f"{path} line 1: the registry is empty: expected `models` and `tasks`")
        return _convert(node, loader, path)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}" if mark else ""
        raise RequestError(f"{path}{line}: not YAML or JSON: {getattr(error, 'problem', None) or error}") from error
    except RecursionError as error:
        raise RequestError(f"{path}: the registry is nested too deep, or holds itself") from error
    finally:
        loader.dispose()


def _convert(node: Any, loader: Any, path: Path) -> Located:
    line = node.start_mark.line + 1
    if node.id == "sequence":
        return Located([_convert(inner, loader, path) for inner in node.value], line)
    if node.id != "mapping":
        return Located(loader.construct_object(node), line)
    own = [key for key, _ in node.value]
    names = [str(key.value) for key in own]
    for place, key in enumerate(own):
        if names.index(names[place]) < place:
            raise RequestError(f"{path} line {key.start_mark.line + 1}: the key {names[place]!r} is there twice")
    loader.flatten_mapping(node)  # what `<<` takes from elsewhere stands first, so that the mapping's own keys win
    entries: dict[str, Located] = {}
    for key, inner in node.value:
        entries[str(key.value)] = Located(_convert(inner, loader, path).value, key.start_mark.line + 1)
    return Located(entries, line)


def suggestion(name: str, expected: Iterable[str]) -> str:
    """The nearest of the expected names, else all of them.

    >>> suggestion("poling", ["pooling", "prompt"])
    "did you mean 'pooling'?"
    >>> suggestion("W8A8", ["int8-dynamic", "w8a8"]), suggestion("int8", ["int4", "int8-dynamic"])
    ("did you mean 'w8a8'?", "did you mean 'int8-dynamic'?")
    >>> suggestion("xyz", ["id", "task"])
    'expected one of id, task'
    """
    names = list(dict.fromkeys(expected))
    lower = name.lower()
    near = [n for n in names if n.lower() == lower] or [n for n in names if len(lower) > 2 and n.startswith(lower)]
    near = near or difflib.get_close_matches(lower, names, n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(names)}"
